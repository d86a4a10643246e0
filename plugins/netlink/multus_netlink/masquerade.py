"""The keys ``ipMasq`` and ``ipMasqBackend``: what pods send beyond their network leaves with an address of the host."""

from __future__ import annotations

from ipaddress import ip_interface, ip_network
from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink import nftables, ownership
from multus_netlink.configuration import Section, unserved
from multus_netlink.nftables import POSTROUTING, Rule, Table

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multus.types.invocation import Invocation
    from multus.types.result import IPConfig

KEYS = frozenset(("ipMasq", "ipMasqBackend"))
_PLUGIN = "masquerade"
_BACKENDS = (None, "", "nftables")
_MULTICAST = {4: ip_network("224.0.0.0/4"), 6: ip_network("ff00::/8")}


def require_served(invocation: Invocation) -> None:
    """Decline iptables."""
    backend = invocation.config.get("ipMasqBackend")
    if invocation.config.get("ipMasq") and backend not in _BACKENDS:
        raise unserved("ipMasqBackend", backend)


def start(invocation: Invocation, ips: Iterable[IPConfig]) -> None:
    """Masquerade what comes from these addresses, and from no others that the attachment had, if that is wanted."""
    if _is_wanted(invocation):
        own = ownership.tag(invocation, _PLUGIN)
        for family, rules in _rules(own, ips).items():
            with Table(family, invocation.ifname) as table:
                table.replace(own, rules)


def stop(invocation: Invocation) -> None:
    """Remove the attachment's rules, if there are to be some."""
    if _is_wanted(invocation):
        ownership.remove(invocation, _PLUGIN)


def check(invocation: Invocation, ips: Iterable[IPConfig]) -> None:
    """Raise IOFailureError if it is wanted, and a rule for one of these addresses is gone."""
    if _is_wanted(invocation):
        own = ownership.tag(invocation, _PLUGIN)
        for family, rules in _rules(own, ips).items():
            with Table(family, invocation.ifname) as table:
                missing = table.lacks(own, rules)
            if missing:
                raise IOFailureError(f"interface {invocation.ifname}: the rule {missing} of nftables is gone")


def gc(invocation: Invocation) -> None:
    """Remove the rules of the network that belong to no valid attachment."""
    if _is_wanted(invocation):
        ownership.collect(invocation, _PLUGIN)


def _is_wanted(invocation: Invocation) -> bool:
    return Section.of(invocation).flag("ipMasq")


def _rules(tag: str, ips: Iterable[IPConfig]) -> dict[int, list[Rule]]:
    """By family."""
    found: dict[int, list[Rule]] = {}
    for ip in ips:
        address = ip_interface(ip.address)
        elsewhere = [nftables.destination(network, negated=True) for network in (address.network, _MULTICAST[address.version])]
        statements = (nftables.source(ip_network(address.ip)), *elsewhere, nftables.masquerade())
        found.setdefault(address.version, []).append(Rule(POSTROUTING, statements, f"{tag} {ip.address}"))
    return found
