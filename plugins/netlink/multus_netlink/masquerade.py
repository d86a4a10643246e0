"""The keys ``ipMasq`` and ``ipMasqBackend``: what pods send beyond their network leaves with an address of the host."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network
from typing import TYPE_CHECKING

from multus_netlink import nftables
from multus_netlink.configuration import unserved
from multus_netlink.host_rules import HostRules
from multus_netlink.nftables import POSTROUTING, Rule

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multus.types.invocation import Invocation
    from multus.types.result import IPConfig

_BACKENDS = (None, "", "nftables")
_MULTICAST = {4: ip_network("224.0.0.0/4"), 6: ip_network("ff00::/8")}


class Masquerade(HostRules):
    """Masquerades what comes from the addresses of a pod.  Declines iptables."""

    key = "ipMasq"
    keys = frozenset((key, "ipMasqBackend"))
    plugin = "masquerade"
    families = (4, 6)

    def require_served(self, invocation: Invocation) -> None:
        """Decline iptables."""
        backend = invocation.config.get("ipMasqBackend")
        if invocation.config.get(self.key) and backend not in _BACKENDS:
            raise unserved("ipMasqBackend", backend)

    def start(self, invocation: Invocation, ips: Iterable[IPConfig]) -> None:
        """Masquerade what comes from these addresses, and from no others that the attachment had, if that is wanted."""
        self._start(invocation, lambda tag: _rules(tag, ips))

    def check(self, invocation: Invocation, ips: Iterable[IPConfig]) -> None:
        """Raise IOFailureError if it is wanted, and a rule for one of these addresses is gone."""
        self._check(invocation, lambda tag: _rules(tag, ips))


def _rules(tag: str, ips: Iterable[IPConfig]) -> dict[int, list[Rule]]:
    """By family."""
    found: dict[int, list[Rule]] = {}
    for ip in ips:
        address = ip_interface(ip.address)
        elsewhere = [nftables.destination(network, negated=True) for network in (address.network, _MULTICAST[address.version])]
        statements = (nftables.source(ip_network(address.ip)), *elsewhere, nftables.masquerade())
        found.setdefault(address.version, []).append(Rule(POSTROUTING, statements, f"{tag} {ip.address}"))
    return found
