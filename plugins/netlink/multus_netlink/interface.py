"""A pod's interface: made for it, given its addresses and routes, compared with a previous result."""

from __future__ import annotations

import os
import time
from contextlib import ExitStack
from ipaddress import ip_interface
from typing import TYPE_CHECKING, Any, Self

from multus.errors import InvalidConfigError, IOFailureError, MultusError
from multus.netns import Entered
from multus.protocol import addresses, results
from multus_netlink import ipam
from multus_netlink.allocation import Allocation
from multus_netlink.links import Links, wish_setting, write_setting
from multus_netlink.opened import opened
from multus_netlink.route_messages import MAIN_TABLE

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from types import TracebackType

    from multus.types.invocation import Invocation
    from multus.types.result import Interface, ResultView
    from multus_netlink.links import Address, Link

_SETTLE_S = 5.0
_SETTLE_STEP_S = 0.05
_TENTATIVE = 0x40
_DUPLICATE = 0x08
ANNOUNCE = (("ipv4", "arp_notify", "1"), ("ipv6", "ndisc_notify", "1"))
"""The settings of an interface that tells its neighbours about its addresses."""


class Adding:
    """An ADD under way, from ``with`` to the end of the block: one that fails leaves neither interface nor addresses behind.

    ``host`` and ``pod`` are the links of either namespace::

        with Adding(invocation) as adding:
            link = adding.make("dummy")
            allocation = adding.allocate(interface=0)
            configure(adding.pod, link, invocation, allocation)
            made = {"name": invocation.ifname, "mac": link.mac, "sandbox": invocation.netns}
            return result_of(invocation, allocation, [made])
    """

    def __init__(self, invocation: Invocation) -> None:
        self.host = Links(ifname=invocation.ifname)
        self.pod = Links(invocation.netns, invocation.ifname)
        self._invocation = invocation
        self._undoing: list[Callable[[], None]] = []
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        with ExitStack() as exits:
            for links in (self.host, self.pod):
                exits.enter_context(links)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        with self._exits:
            for step in self._undoing if kind else ():
                try:
                    step()
                except MultusError:
                    pass  # the failure that is being undone says more

    def make(self, kind: str, on: Link | None = None, **fields: Any) -> Link:
        """Make the pod's interface, down, on a link of the host if one is given; empty fields are left out.

        Raises:
            IOFailureError: The kernel refuses; that it exists already, for one.
        """
        name = self._invocation.ifname
        if on is None:
            self.pod.add(name, kind, **fields)
            return self.own()
        with opened(self._invocation.netns) as netns:
            if self.host.add(name, kind, may_exist=True, link=on.ifindex, net_ns_fd=netns, **fields):
                return self.own()
            # The kernel looks for the name in the namespace of the host's link as well; renaming costs it a wait of 1 ms.
            interim = random_name()
            self.host.add(interim, kind, link=on.ifindex, net_ns_fd=netns, **fields)
        try:
            link = self.pod.get(interim)
            self.pod.change(link, f"rename to {name} the", ifname=name)
        except BaseException:
            self.pod.remove(interim)
            raise
        return self.own(link._replace(name=name))

    def own(self, link: Link | None = None) -> Link:
        """Take the link of the interface's name, which is this one if it is known, for one that goes if the block fails."""
        self.undo_by(lambda: self.pod.remove(self._invocation.ifname))
        return link or self.pod.get(self._invocation.ifname)

    def undo_by(self, step: Callable[[], None]) -> None:
        """Take a step if the block fails, after those that were named before, whatever becomes of them."""
        self._undoing.append(step)

    def allocate(self, interface: int) -> Allocation:
        """Addresses for the interface at that place in the result, given back if the block fails; none without an ``ipam``.

        Raises:
            MultusError: What the IPAM plugin raises.
        """
        if not ipam.is_wanted(self._invocation):
            return Allocation()
        allocation = ipam.allocate(self._invocation)
        self.undo_by(lambda: ipam.release(self._invocation))
        return allocation._replace(ips=tuple(ip._replace(interface=interface) for ip in allocation.ips))


class Checking:
    """A CHECK under way: the interface is there as the previous result has it, and at the end so are its addresses and routes.

    ``host`` and ``pod`` are the links of either namespace, ``link`` is the interface, ``previous`` the result::

        with Checking(invocation, "dummy"):
            pass

    Raises IOFailureError for what is not so, InvalidConfigError without a previous result or for one of another interface.
    """

    def __init__(self, invocation: Invocation, kind: str, *, may_be_down: bool = False) -> None:
        """``kind`` is the link's; empty: any."""
        self.host = Links(ifname=invocation.ifname)
        self.pod = Links(invocation.netns, invocation.ifname)
        self._invocation = invocation
        self._kind = kind
        self._may_be_down = may_be_down
        self._exits = ExitStack()

    def __enter__(self) -> Self:
        ipam.check(self._invocation)
        self.previous = previous_result(self._invocation)
        own = _own_interface(self._invocation, self.previous)
        with ExitStack() as exits:
            for links in (self.host, self.pod):
                exits.enter_context(links)
            self.link = _check_link(self.pod, self._invocation, self._kind, own.mac, may_be_down=self._may_be_down)
            self._exits = exits.pop_all()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        with self._exits:
            if kind is None:
                _check_addresses(self.pod, self.link, self.previous)


def random_name() -> str:
    """A name for a link that nobody has asked for by name."""
    return f"veth{os.urandom(4).hex()}"


def configure(
    pod: Links, link: Link, invocation: Invocation, allocation: Allocation, settings: Iterable[tuple[str, str, str]] = ANNOUNCE
) -> None:
    """Give the interface, which is ``link``, its addresses, bring it up, add the routes.

    A route without gateway has its family's first one.

    Args:
        settings: Kernel settings to wish for if there are addresses: family's folder, name, value.

    Raises:
        IOFailureError: The kernel refuses, or an address is somebody else's.
    """
    if allocation.ips:
        with Entered(invocation.netns):
            for family, name, value in settings:
                wish_setting(f"{family}/conf/{invocation.ifname}/{name}", value)
            if any(":" in ip.address for ip in allocation.ips):
                for owner in ("lo", invocation.ifname):
                    write_setting(f"ipv6/conf/{owner}/disable_ipv6", "0", invocation.ifname)
                wish_setting(f"ipv6/conf/{invocation.ifname}/keep_addr_on_down", "1")
    for ip in allocation.ips:
        pod.add_address(link, ip.address)
    pod.set_up(link)
    gateways = {":" in ip.gateway: ip.gateway for ip in reversed(allocation.ips) if ip.gateway}
    if True in gateways:
        settle(pod, link)
    for route in allocation.routes:
        pod.add_route(link, route.dst, route.gw or gateways.get(":" in route.dst, ""))


def previous_result(invocation: Invocation) -> ResultView:
    """The result that CHECK compares with.

    Raises:
        InvalidConfigError: There is none.
    """
    previous = invocation.config.get("prevResult")
    if previous is None:
        raise InvalidConfigError(f"interface {invocation.ifname}: prevResult is missing")
    return results.view(results.parse(previous, str(invocation.config.get("cniVersion") or "")))


def _own_interface(invocation: Invocation, previous: ResultView) -> Interface:
    """The pod's interface in a previous result.

    Raises:
        InvalidConfigError: It has none of that name in that namespace.
    """
    for each in previous.interfaces:
        if (each.name, each.sandbox) == (invocation.ifname, invocation.netns):
            return each
    raise InvalidConfigError(f"interface {invocation.ifname}: prevResult has no interface of that name in {invocation.netns}")


def require_absent(pod: Links, invocation: Invocation) -> None:
    """Raise IOFailureError if there is an interface of that name."""
    if pod.find(invocation.ifname) is not None:
        raise IOFailureError(f"interface {invocation.ifname}: there is a link of that name in {invocation.netns} already")


def _check_link(pod: Links, invocation: Invocation, kind: str, mac: str = "", *, may_be_down: bool = False) -> Link:
    """The interface, which is up unless it may be down, of that kind if one is given, and has that MAC if one is given.

    Raises:
        IOFailureError: It is not.
    """
    link = pod.get(invocation.ifname)
    if kind and link.kind != kind:
        raise IOFailureError(f"interface {invocation.ifname}: its kind is {link.kind!r}, not {kind!r}")
    if not link.is_up and not may_be_down:
        raise IOFailureError(f"interface {invocation.ifname}: it is down")
    if mac and link.mac != mac.lower():
        raise IOFailureError(f"interface {invocation.ifname}: its MAC is {link.mac}, not {mac}")
    return link


def _check_addresses(pod: Links, link: Link, previous: ResultView) -> None:
    """The interface has the addresses of the previous result, with the routes to their networks, and its routes exist.

    Raises:
        IOFailureError: One is gone.
    """
    had = {address.cidr for family in (4, 6) for address in pod.addresses(link, family)}
    table = _table(pod, link)
    routes = {(route.dst, route.gateway) for family in (4, 6) for route in pod.routes(family, table)}
    destinations = {dst for dst, _ in routes}
    for ip in previous.ips:
        if ip.address not in had:
            raise IOFailureError(f"interface {link.name}: address {ip.address} is gone")
        network = ip_interface(ip.address).network
        if network.prefixlen < network.max_prefixlen and str(network) not in destinations:
            raise IOFailureError(f"interface {link.name}: the route to {network} is gone")
    for route in previous.routes:
        # Which default route is in force may be another's business; that there is one is ours.
        by_gateway = route.gw and not addresses.is_default(route.dst)
        if ((route.dst, route.gw) not in routes) if by_gateway else (route.dst not in destinations):
            raise IOFailureError(f"interface {link.name}: the route to {route.dst} via {route.gw or 'any gateway'} is gone")


def _table(pod: Links, link: Link) -> int:
    """The routing table of an interface: that of a VRF, if a later plugin has put it into one."""
    master = pod.at(link.master) if link.master else None
    return int(master.details.get("vrf_table", MAIN_TABLE)) if master else MAIN_TABLE


def settle(pod: Links, link: Link) -> None:
    """Wait until no IPv6 address is tentative; five seconds at most.

    Raises:
        IOFailureError: An address is a duplicate, or still tentative on a link that has a carrier.
    """
    end = time.monotonic() + _SETTLE_S
    while True:
        pending: list[Address] = [each for each in pod.addresses(link, 6) if each.flags & _TENTATIVE]
        duplicate = next((each for each in pending if each.flags & _DUPLICATE), None)
        if duplicate is not None:
            raise IOFailureError(f"interface {link.name}: address {duplicate.cidr} is in use by another host")
        if not pending:
            return
        if time.monotonic() >= end:
            if pod.get(link.name).is_operational:
                raise IOFailureError(f"interface {link.name}: address {pending[0].cidr} is still tentative after {_SETTLE_S:g} s")
            return
        time.sleep(_SETTLE_STEP_S)
