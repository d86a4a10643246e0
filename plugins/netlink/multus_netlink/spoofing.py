"""The key ``macspoofchk``: frames that a pod sends pass its bridge port with the pod's own MAC alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus_netlink import nftables
from multus_netlink.host_rules import HostRules
from multus_netlink.nfnetlink import BRIDGE
from multus_netlink.nftables import PREROUTING, Rule

if TYPE_CHECKING:
    from multus.types.invocation import Invocation


class SpoofCheck(HostRules):
    """Drops what comes in by a port, a link of the host, from another MAC than the pod's."""

    key = "macspoofchk"
    keys = frozenset((key,))
    plugin = "spoofing"
    families = (BRIDGE,)

    def start(self, invocation: Invocation, port: str, mac: str) -> None:
        """Begin, if that is wanted."""
        self._start(invocation, lambda tag: {BRIDGE: [_rule(tag, port, mac)]})

    def check(self, invocation: Invocation, port: str, mac: str) -> None:
        """Raise IOFailureError if the rule is wanted, and is gone."""
        self._check(invocation, lambda tag: {BRIDGE: [_rule(tag, port, mac)]})


def _rule(tag: str, port: str, mac: str) -> Rule:
    statements = (nftables.in_interface(port), nftables.source_mac(mac, negated=True), nftables.drop())
    return Rule(PREROUTING, statements, f"{tag} {port} {mac}")
