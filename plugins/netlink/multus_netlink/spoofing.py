"""The key ``macspoofchk``: frames that a pod sends pass its bridge port with the pod's own MAC alone."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink import nftables, ownership
from multus_netlink.configuration import Section
from multus_netlink.nfnetlink import BRIDGE
from multus_netlink.nftables import PREROUTING, Rule, Table

if TYPE_CHECKING:
    from multus.types.invocation import Invocation

KEYS = frozenset(("macspoofchk",))
_PLUGIN = "spoofing"


def require_served(invocation: Invocation) -> None:
    """Everything is served."""


def start(invocation: Invocation, port: str, mac: str) -> None:
    """Drop what comes in by the port, a link of the host, from another MAC than the pod's, if that is wanted."""
    if _is_wanted(invocation):
        own = ownership.tag(invocation, _PLUGIN)
        with Table(BRIDGE, invocation.ifname) as table:
            table.replace(own, [_rule(own, port, mac)])


def stop(invocation: Invocation) -> None:
    """Remove the attachment's rule, if there is to be one."""
    if _is_wanted(invocation):
        ownership.remove(invocation, _PLUGIN, (BRIDGE,))


def check(invocation: Invocation, port: str, mac: str) -> None:
    """Raise IOFailureError if the rule is wanted, and is gone."""
    if _is_wanted(invocation):
        own = ownership.tag(invocation, _PLUGIN)
        with Table(BRIDGE, invocation.ifname) as table:
            missing = table.lacks(own, [_rule(own, port, mac)])
        if missing:
            raise IOFailureError(f"interface {invocation.ifname}: the rule {missing} of nftables is gone")


def gc(invocation: Invocation) -> None:
    """Remove the rules of the network that belong to no valid attachment."""
    if _is_wanted(invocation):
        ownership.collect(invocation, _PLUGIN, (BRIDGE,))


def _is_wanted(invocation: Invocation) -> bool:
    return Section.of(invocation).flag("macspoofchk")


def _rule(tag: str, port: str, mac: str) -> Rule:
    statements = (nftables.in_interface(port), nftables.source_mac(mac, negated=True), nftables.drop())
    return Rule(PREROUTING, statements, f"{tag} {port} {mac}")
