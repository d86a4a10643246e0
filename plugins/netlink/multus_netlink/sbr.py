"""The plugin ``sbr``: what a pod sends from an interface's address leaves by that interface, by a routing table of its own."""

from __future__ import annotations

import fcntl
from contextlib import ExitStack, contextmanager
from ipaddress import ip_address, ip_interface
from typing import TYPE_CHECKING, NamedTuple

from multus.errors import InvalidConfigError, InvalidNetnsError, IOFailureError, MultusError
from multus.protocol import results
from multus_netlink import chained
from multus_netlink.configuration import Section, require_served
from multus_netlink.opened import opened
from multus_netlink.ranges import parse_address
from multus_netlink.route_messages import MAIN_TABLE
from multus_netlink.routing import RoutingLinks, SourceRule

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from multus.types.invocation import Invocation
    from multus.types.result import IPConfig, Result
    from multus_netlink.links import Link
    from multus_netlink.ranges import Address
    from multus_netlink.routing import ListedRoute

_KEYS = frozenset(("table", "gateways", "addSourceHints"))
_FIRST_TABLE = 100
_LARGEST_TABLE = (1 << 32) - 1
_SCOPE_LINK = 253


class _Settings(NamedTuple):
    """The configuration, read; ``table`` None: the first free one for each address, with the interface's routes."""

    table: int | None
    gateways: dict[int, Address]
    adds_source_hints: bool


class Sbr:
    """Implements ``multus.hooks.delegates.InProcessDelegate``.

    Calls for one namespace wait for each other, and for the binary's: both lock the namespace's file.
    """

    def accepts(self, invocation: Invocation) -> bool:
        """Every key that its binary knows is served."""
        require_served(invocation.config, _KEYS)
        return True

    def add(self, invocation: Invocation) -> Result:
        """Make a rule for each address of the interface, and move its routes to the tables; the result so far.

        Raises:
            InvalidConfigError: A value is not valid, or there is no previous result, or it has no address.
            IOFailureError: The kernel refuses; rules and routes are as before then.
        """
        settings = _read(invocation)
        result = chained.previous(invocation)
        ips = _own_ips(invocation, result)
        if not ips:
            raise InvalidConfigError(f"interface {invocation.ifname}: prevResult has no address of it")
        with _locked(invocation), RoutingLinks(invocation.netns, invocation.ifname) as pod, ExitStack() as undo:
            if settings.table is None:
                _move_routes(pod, pod.get(invocation.ifname), ips, settings, undo)
            else:
                for ip in ips:
                    _add_rule(pod, SourceRule(_host(ip), settings.table), undo)
            undo.pop_all()
        return result

    def delete(self, invocation: Invocation) -> None:
        """Remove the rules for the interface's addresses; their tables go with the interface."""
        table = _read(invocation).table
        try:
            sources = {_host(ip) for ip in _own_ips(invocation, chained.previous(invocation))}
        except MultusError:
            sources = set()  # DEL does not need the previous result
        if not invocation.netns:
            return
        try:
            with _locked(invocation), RoutingLinks(invocation.netns, invocation.ifname) as pod:
                link = pod.find(invocation.ifname)
                if link is not None:
                    sources |= {address.address for family in (4, 6) for address in pod.addresses(link, family)}
                for rule in pod.source_rules():
                    if rule.source in sources and table in (None, rule.table):
                        pod.remove_rule(rule)
        except InvalidNetnsError:
            pass  # it has taken its rules with it

    def check(self, invocation: Invocation) -> None:
        """There is a rule for each address.

        Raises:
            InvalidConfigError: There is no previous result.
            IOFailureError: One is gone.
        """
        table = _read(invocation).table
        ips = _own_ips(invocation, chained.previous(invocation))
        with RoutingLinks(invocation.netns, invocation.ifname) as pod:
            there = {rule.source for rule in pod.source_rules() if rule.table != MAIN_TABLE and table in (None, rule.table)}
        for ip in ips:
            if _host(ip) not in there:
                raise IOFailureError(f"interface {invocation.ifname}: the rule from {_host(ip)} is gone")

    def gc(self, invocation: Invocation) -> None:
        """Rules go with their namespace."""

    def status(self, invocation: Invocation) -> None:
        """It can always serve."""


def _read(invocation: Invocation) -> _Settings:
    config = Section.of(invocation)
    table = config.whole("table") if config.has("table") else None
    if table is not None and not 0 < table <= _LARGEST_TABLE:
        raise config.refusal("table", f"from 1 to {_LARGEST_TABLE}")
    gateways: dict[int, Address] = {}
    for text in config.texts("gateways"):
        address = parse_address(text)
        if address is None:
            raise config.refusal("gateways", f"a list of IP addresses: {text!r}")
        if address.version in gateways:
            raise config.refusal("gateways", f"a list of one address of each family: {gateways[address.version]} and {address}")
        gateways[address.version] = address
    return _Settings(table, gateways, config.flag("addSourceHints"))


def _own_ips(invocation: Invocation, result: Result) -> list[IPConfig]:
    """The addresses of the interface, and those of no interface."""
    view = results.view(result)
    return [ip for ip in view.ips if ip.interface is None or view.interfaces[ip.interface].name == invocation.ifname]


def _host(ip: IPConfig) -> str:
    return str(ip_interface(ip.address).ip)


@contextmanager
def _locked(invocation: Invocation) -> Iterator[None]:
    with opened(invocation.netns) as fd:
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
        except OSError as exc:
            raise IOFailureError(f"interface {invocation.ifname}: cannot lock {invocation.netns}: {exc.strerror}") from exc
        yield  # closing the file gives the lock back


def _move_routes(pod: RoutingLinks, link: Link, ips: Sequence[IPConfig], settings: _Settings, undo: ExitStack) -> None:
    """A table for each address, with a default route by its gateway, and those of the interface's routes that are its."""
    taken = pod.tables()
    routes = pod.routes_by(link.ifindex)
    table = _FIRST_TABLE - 1
    for ip in ips:
        table = next(number for number in range(table + 1, _LARGEST_TABLE) if number not in taken)
        _add_rule(pod, SourceRule(_host(ip), table), undo)
        undo.callback(pod.empty_table, table)
        interface = ip_interface(ip.address)
        gateway = settings.gateways.get(interface.version) or (ip_address(ip.gateway) if ip.gateway else None)
        if gateway is not None:
            default = "0.0.0.0/0" if interface.version == 4 else "::/0"
            pod.add_route(link, default, str(gateway), exclusive=True, table=table)
        for route in routes:
            if _is_of(route, ip):
                pod.copy_route(route, table)
    hints = {str(ip_interface(ip.address).network): _host(ip) for ip in ips} if settings.adds_source_hints else {}
    for route in sorted(routes, key=lambda each: not each.gateway):  # the reverse is the order in which they can be put back
        if not hints or not route.is_of_the_link or str(route) in hints:
            pod.take_route(route)
            undo.callback(pod.copy_route, route, MAIN_TABLE)
    for network, source in hints.items():
        pod.add_route(link, network, "", scope=_SCOPE_LINK, prefsrc=source)


def _add_rule(pod: RoutingLinks, rule: SourceRule, undo: ExitStack) -> None:
    pod.add_rule(rule)
    undo.callback(pod.remove_rule, rule)


def _is_of(route: ListedRoute, ip: IPConfig) -> bool:
    """Whether a route's source or gateway is in the address's network; a route with neither is of every address."""
    network = ip_interface(ip.address).network
    near = [each for each in (route.source, route.gateway) if each]
    return not near or any(ip_address(each) in network for each in near)
