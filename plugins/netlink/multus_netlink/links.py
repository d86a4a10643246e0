"""Links, addresses and routes of one network namespace, by netlink.

The only import of pyroute2, which costs 150 ms and 12 MiB: it loads for fields that ``link_messages`` does not know.
"""

from __future__ import annotations

import errno
import os
from contextlib import nullcontext
from functools import cached_property
from typing import TYPE_CHECKING, Any, Self

from multus import rtnetlink
from multus.errors import IOFailureError
from multus.netns import Entered
from multus_netlink import link_messages, route_messages
from multus_netlink.link_messages import PROMISCUOUS, UP, Link
from multus_netlink.route_messages import Address, KeptRoute, KernelRoute

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from contextlib import AbstractContextManager
    from types import TracebackType

    from multus.rtnetlink import Message

__all__ = ["FORWARDING", "UP", "Address", "KernelRoute", "Link", "Links", "put_setting", "wish_setting", "write_setting"]

_LIST_TRIES = 10
_LONGEST_SETTING = 256
_NEW = rtnetlink.CREATE | rtnetlink.EXCLUSIVE
FORWARDING = {4: "ipv4/ip_forward", 6: "ipv6/conf/all/forwarding"}
"""The setting by which the host forwards packets, by family."""


class Links:
    """A netlink socket in a namespace, from ``with`` to the end of the block; without a path in the thread's own.

    Raises InvalidNetnsError for a path that is no namespace, IOFailureError for what the kernel refuses.
    """

    def __init__(self, netns: str = "", ifname: str = "") -> None:
        self._netns = netns
        self._what = f"interface {ifname}: " if ifname else ""

    def __enter__(self) -> Self:
        try:
            with self._inside():  # a socket stays in the namespace in which it was made
                self._netlink = rtnetlink.Netlink()
        except OSError as exc:
            raise self._refused("cannot open a netlink socket", exc.strerror) from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._netlink.close()
        if "_socket" in self.__dict__:
            self._socket.close()

    @cached_property
    def _socket(self) -> Any:
        """pyroute2's, made when it is needed."""
        from pyroute2 import IPRoute  # type: ignore[import-untyped]  # 150 ms, for a link of a seldom kind

        try:
            with self._inside():
                return IPRoute()
        except OSError as exc:
            raise self._refused("cannot open a netlink socket", exc.strerror) from exc

    def find(self, name: str) -> Link | None:
        """The link of a name, or None."""
        return self._found(f"cannot look for link {name}", 0, link_messages.packed("", {"ifname": name}))

    def get(self, name: str) -> Link:
        """The link of a name, which is an error not to be there."""
        link = self.find(name)
        if link is None:
            raise IOFailureError(f"{self._what}there is no link {name} in {self._netns or 'the host'}")
        return link

    def at(self, index: int) -> Link | None:
        """The link of an index, or None."""
        return self._found(f"cannot look for link {index}", index, b"")

    def add(self, name: str, kind: str, *, may_exist: bool = False, data: Mapping[str, Any] | None = None, **fields: Any) -> bool:
        """Make a link; False: one of that name is there, which is an error unless ``may_exist``.  Empty fields are left out.

        Fields are pyroute2's, such as ``link``, ``address``, ``macvlan_mode``.

        Args:
            data: Fields in which 0 says something.
        """
        given = {"ifname": name, **{key: value for key, value in fields.items() if value}, **(data or {})}
        return self._change_links(f"cannot make {kind} {name}", "add", kind, given, tolerated=errno.EEXIST if may_exist else 0)

    def change(self, link: Link, what: str, *, kind: str = "", **fields: Any) -> None:
        """Change a link; ``kind`` is given for fields that only its kind has, or that of the port it is (``bridge_slave``)."""
        self._change_links(f"cannot {what} link {link.name}", "set", kind, {"index": link.ifindex, **fields})

    def set_up(self, link: Link) -> None:
        self.change(link, "bring up", flags=UP, change=UP)

    def set_down(self, link: Link) -> None:
        self.change(link, "bring down", flags=0, change=UP)

    def set_promiscuous(self, link: Link) -> None:
        self.change(link, "set promiscuous", flags=PROMISCUOUS, change=PROMISCUOUS)

    def remove(self, name: str) -> None:
        """Remove a link, if it is there."""
        link = self.find(name)
        if link is not None:
            self._request(f"cannot remove link {name}", rtnetlink.DELLINK, (0, 0, link.ifindex, 0, 0), tolerated=errno.ENODEV)

    def addresses(self, link: Link, family: int) -> list[Address]:
        """The addresses of a link, in the kernel's order; family is 4 or 6."""
        fixed = (route_messages.AF[family], 0, 0, 0, link.ifindex)
        found = self._request(f"cannot list the addresses of {link.name}", rtnetlink.GETADDR, fixed, flags=rtnetlink.DUMP)
        return [route_messages.address_of(each) for each in found or () if each.fields[4] == link.ifindex]

    def add_address(self, link: Link, cidr: str, *, may_exist: bool = False) -> None:
        """Add an address; an IPv4 one with the broadcast address of its network, if that has one."""
        request = route_messages.address_request(link.ifindex, cidr)
        what = f"cannot add address {cidr} to {link.name}"
        self._request(what, rtnetlink.NEWADDR, *request, flags=_NEW, tolerated=errno.EEXIST if may_exist else 0)

    def remove_address(self, link: Link, address: Address) -> None:
        request = route_messages.removed_address_request(link.ifindex, address)
        self._request(f"cannot remove address {address.cidr} from {link.name}", rtnetlink.DELADDR, *request)

    def routes(self, family: int, table: int = route_messages.MAIN_TABLE) -> Iterator[KernelRoute]:
        """The unicast routes of a table; a multipath route once for each next hop."""
        fixed = route_messages.listed_routes_request(family)
        for each in self._request("cannot list the routes", rtnetlink.GETROUTE, fixed, flags=rtnetlink.DUMP) or ():
            yield from route_messages.routes_of(each, table)

    def add_route(
        self, link: Link, dst: str, gateway: str, *, exclusive: bool = False, may_exist: bool = False, **fields: Any
    ) -> None:
        """Add a route by a link; ``gateway`` may be empty.  Fields are pyroute2's, such as ``scope``, ``prefsrc``, ``priority``.

        Args:
            exclusive: No other route to this destination may exist, which is an error unless ``may_exist``.
        """
        what = f"cannot add the route to {dst} via {gateway or 'no gateway'} by {link.name}"
        flags = _NEW if exclusive else rtnetlink.CREATE  # as the binaries ask, so that the kernel's answers are the same
        tolerated = errno.EEXIST if may_exist else 0
        if route_messages.knows_route(fields):
            request = route_messages.route_request(link.ifindex, dst, gateway, **fields)
            self._request(what, rtnetlink.NEWROUTE, *request, flags=flags, tolerated=tolerated)
        else:
            command = (rtnetlink.NEWROUTE, rtnetlink.REQUEST | rtnetlink.ACK | flags)
            given = {"oif": link.ifindex, "dst": dst, **({"gateway": gateway} if gateway else {}), **fields}
            self._ask(what, self._socket.route, command, tolerated=tolerated, **given)

    def remove_route(self, link: Link, dst: str) -> None:
        """Remove the route to a destination by a link, whatever its scope and origin."""
        request = route_messages.removed_route_request(link.ifindex, dst)
        self._request(f"cannot remove the route to {dst} by {link.name}", rtnetlink.DELROUTE, *request)

    def every(self) -> list[Link]:
        """All links, in the order of their indexes."""
        found = self._request("cannot list the links", rtnetlink.GETLINK, (0,) * 5, link_messages.WITHOUT_STATISTICS, flags=rtnetlink.DUMP)
        return [link_messages.link_of(each) for each in found or ()]

    def kept_routes(self, link: Link) -> list[KeptRoute]:
        """The routes by a link that the kernel has not made itself, of the main table; in an order in which they can be made again."""
        found: list[Message] = []
        for family in (4, 6):
            fixed = route_messages.listed_routes_request(family)
            found += self._request("cannot list the routes", rtnetlink.GETROUTE, fixed, flags=rtnetlink.DUMP) or ()
        kept = [route for route in map(KeptRoute, found) if route.goes_with(link.ifindex)]
        return sorted(kept, key=lambda route: route.has_gateway)

    def put_route(self, kept: KeptRoute, table: int) -> None:
        """Make a route as it was, but in another table; one to the same destination there is replaced."""
        flags = rtnetlink.CREATE | rtnetlink.REPLACE
        self._request(f"cannot add the route {kept} to table {table}", rtnetlink.NEWROUTE, *kept.request(table), flags=flags)

    def _found(self, what: str, index: int, attributes: bytes) -> Link | None:
        attributes += link_messages.WITHOUT_STATISTICS
        found = self._request(what, rtnetlink.GETLINK, (0, 0, index, 0, 0), attributes, tolerated=errno.ENODEV)
        return link_messages.link_of(found[0]) if found else None

    def _change_links(self, what: str, command: str, kind: str, fields: dict[str, Any], *, tolerated: int = 0) -> bool:
        """Send a link's fields, by pyroute2 those that only it knows; False: the kernel refused as is tolerated."""
        if not link_messages.is_known(kind, fields):
            given = {**fields, "kind": kind} if kind else fields
            return bool(self._ask(what, self._socket.link, command, tolerated=tolerated, **given))
        fixed = (0, 0, fields.get("index", 0), fields.get("flags", 0), fields.get("change", 0))
        flags = _NEW if command == "add" else 0
        attributes = link_messages.packed(kind, fields)
        return self._request(what, rtnetlink.NEWLINK, fixed, attributes, flags=flags, tolerated=tolerated) is not None

    def _request(
        self, what: str, kind: int, fixed: tuple[int, ...], attributes: bytes = b"", *, flags: int = 0, tolerated: int = 0
    ) -> list[Message] | None:
        """The kernel's answers; None for a refusal with the error number that is tolerated."""
        try:
            return self._netlink.ask(kind, fixed, attributes, flags)
        except OSError as exc:
            if tolerated and exc.errno == tolerated:
                return None
            raise self._refused(what, exc.strerror) from exc

    def _ask(self, what: str, request: Callable[..., Any], *arguments: Any, tolerated: int = 0, **fields: Any) -> list[Any]:
        """pyroute2's answers; none for a refusal with the error number that is tolerated."""
        from pyroute2.netlink.exceptions import NetlinkDumpInterrupted, NetlinkError  # type: ignore[import-untyped]  # loaded with IPRoute

        for _ in range(_LIST_TRIES):
            try:
                return list(request(*arguments, **fields))
            except NetlinkDumpInterrupted:
                continue  # what was being listed has changed meanwhile
            except (NetlinkError, OSError) as exc:
                code = (exc.errno if isinstance(exc, OSError) else exc.code) or 0
                if code == tolerated:
                    return []
                raise self._refused(what, os.strerror(code)) from exc
        raise self._refused(what, "it changes all the time")

    def _inside(self) -> AbstractContextManager[None]:
        return Entered(self._netns) if self._netns else nullcontext()

    def _refused(self, what: str, why: str | None) -> IOFailureError:
        return IOFailureError(f"{self._what}{what} in {self._netns or 'the host'}: {why}")


def write_setting(path: str, value: str, ifname: str) -> None:
    """Write, for an interface, a kernel setting below /proc/sys/net of the thread's namespace, unless it has the value.

    Raises:
        IOFailureError: The kernel has no such setting, or refuses the value.
    """
    full = f"/proc/sys/net/{path}"
    try:
        if _setting(full) != value.encode():
            put_setting(full, value.encode())
    except OSError as exc:
        raise IOFailureError(f"interface {ifname}: cannot set net/{path} to {value}: {exc.strerror}") from exc


def wish_setting(path: str, value: str) -> None:
    """Write a kernel setting if it can be written: without it the network works all the same."""
    try:
        write_setting(path, value, "")
    except IOFailureError:
        pass


def _setting(path: str) -> bytes:
    """Without a file object, which costs three times as much: an ADD asks for many."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        return os.read(fd, _LONGEST_SETTING).strip()
    finally:
        os.close(fd)


def put_setting(path: str, value: bytes) -> None:
    """Write a kernel setting by its whole path.  Raises OSError."""
    fd = os.open(path, os.O_WRONLY | os.O_CLOEXEC)
    try:
        os.write(fd, value)
    finally:
        os.close(fd)
