"""The network ``ipvlan``: a pod's interface that shares the MAC of another interface, its master.

Behind another plugin it may take from that one's result what it is not told: the master, and the addresses.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink import ipam
from multus_netlink.allocation import Allocation
from multus_netlink.configuration import Section, require_all_served
from multus_netlink.interface import Checking, previous_result
from multus_netlink.masters import KEYS, OnMaster, attach, check_master, find_master

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result, ResultView

_ROUTE_KEYS = {"dst", "gw"}
_MODES = ("l2", "l3", "l3s")


class Ipvlan(OnMaster):
    """Implements ``multus.hooks.delegates.LinkDelegate``."""

    keys = KEYS | {"mode"}

    def accepts(self, invocation: Invocation) -> bool:
        """Declines routes of a plugin before it that have more than ``dst`` and ``gw`` as well."""
        previous = invocation.config.get("prevResult")
        routes = previous.get("routes") if isinstance(previous, dict) else None
        require_all_served(routes, _ROUTE_KEYS, where="prevResult.routes.")
        return super().accepts(invocation)

    def add(self, invocation: Invocation) -> Result:
        """Make the interface, and give it addresses: those of the previous result if there is no ``ipam``.

        Raises:
            InvalidConfigError: A value is not valid, or the previous result has no single interface for the master.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        mode = config.choice("mode", _MODES)
        previous = previous_result(invocation) if invocation.config.get("prevResult") is not None else None
        master = _chained_master(config, previous)
        given = _chained_addresses(config, previous)
        if given is None:
            ipam.require(invocation)
        return attach(invocation, "ipvlan", master, given, ipvlan_mode=mode)

    def check(self, invocation: Invocation) -> None:
        """The interface is up, on a master that is named, of its mode, with the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        config = Section.of(invocation)
        mode = config.choice("mode", _MODES)
        with Checking(invocation, "ipvlan") as checking:
            if config.text("master"):  # else it was another plugin's, or a default route's of then
                check_master(invocation, checking.link, find_master(checking.host, checking.pod, config))
            if checking.link.mode != mode:
                raise IOFailureError(f"interface {invocation.ifname}: its mode is {checking.link.mode}, not {mode}")

    def status(self, invocation: Invocation) -> None:
        """As for others, but a master that is not named may be that of another plugin's result."""
        if invocation.config.get("master"):
            super().status(invocation)
        else:
            ipam.status(invocation)


def _chained_master(config: Section, previous: ResultView | None) -> str:
    """The only interface of the previous result, if the master is to be that; else empty."""
    if config.text("master") or previous is None:
        return ""
    if len(previous.interfaces) != 1 or not previous.interfaces[0].name:
        raise config.refusal("master", "given, and prevResult has not one interface to take")
    return previous.interfaces[0].name


def _chained_addresses(config: Section, previous: ResultView | None) -> Allocation | None:
    """The addresses and routes of the previous result, if there is no ``ipam`` to give others."""
    if previous is not None and previous.ips and not config.section("ipam").text("type"):
        return Allocation(tuple(ip._replace(interface=0) for ip in previous.ips), previous.routes)
    return None
