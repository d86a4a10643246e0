"""Network namespaces of pods: enter one, look for a link, read and change default routes.

A namespace belongs to a thread: what is done here is done in the calling thread, and no other thread notices.
"""

from __future__ import annotations

import errno
import fcntl
import os
import sys
from _socket import AF_INET, AF_INET6, SOCK_DGRAM, socket

from multus.errors import InvalidConfigError, IOFailureError
from multus.netns import OWN, Entered
from multus.protocol import addresses

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType
    from typing import Self

    from multus.errors import MultusError
    from multus.protocol.kernel_routes import Route
    from multus.rtnetlink import Message, Netlink

_SIOCGIFINDEX = 0x8933
_IFNAMSIZ = 16
_IFLA_IFNAME = 3
_IFLA_GROUP = 27
_AF = {4: AF_INET, 6: AF_INET6}
_DEFAULT_METRIC = {4: 0, 6: 1024}


class KernelNetns:
    """The kernel's network namespaces, named by path.

    Raises InvalidNetnsError for a path that is missing or no network namespace, IOFailureError for what the kernel refuses.
    """

    def is_own(self, netns: str) -> bool:
        """Whether ``netns`` can be opened and is the namespace that the calling thread is in."""
        try:
            fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
        except (OSError, ValueError):
            return False
        try:
            theirs, ours = os.fstat(fd), os.stat(OWN)
            return (theirs.st_dev, theirs.st_ino) == (ours.st_dev, ours.st_ino)
        finally:
            os.close(fd)

    def entered(self, netns: str) -> Entered:
        """A context in which the calling thread is in ``netns``; it comes back at the end, whatever happens."""
        return Entered(netns)

    def has_link(self, netns: str, ifname: str) -> bool:
        """Whether the namespace has a link of that name, or of that alternative name; names of over 15 bytes there are none."""
        if len(ifname.encode()) >= _IFNAMSIZ:
            return False
        with Entered(netns):
            try:
                _link_index(ifname)
            except OSError as exc:
                if exc.errno == errno.ENODEV:
                    return False
                raise IOFailureError(f"cannot look for interface {ifname} in {netns}: {exc.strerror}") from exc
        return True

    def remove_links(self, netns: str, names: Sequence[str]) -> dict[str, MultusError]:
        """Remove links, several as a group: the kernel waits some 25 ms for each request, whatever the number of links.

        Those that are gone already count as removed.  What the kernel does not remove as a group is removed one by one.

        Returns:
            Why each link that is still there could not be removed.
        """
        from multus.rtnetlink import Netlink  # for in-process delegates alone

        with Entered(netns):
            try:
                netlink = Netlink()
            except OSError as exc:
                raise IOFailureError(f"cannot open a netlink socket in {netns}: {exc.strerror}") from exc
        try:
            return {} if len(names) > 1 and _remove_group(netlink, names) else _remove_each(netlink, names, netns)
        finally:
            netlink.close()

    def default_routes(self, netns: str, ifname: str, family: int) -> tuple[str, ...]:
        """The gateways ("" for none) of the default routes by ``ifname``, main table, in the order of their metrics.

        A default route is one of prefix length 0; family is 4 or 6.  Of a multipath route the next hops by ``ifname`` count.
        """
        with _Routes(netns, ifname) as routes:
            return routes.gateways(family)

    def remove_default_routes(self, netns: str, ifname: str, family: int) -> None:
        """Remove every default route of the family by ``ifname``, whatever its metric and origin, from the main table.

        A multipath route loses its next hops by ``ifname`` and keeps the others.
        """
        with _Routes(netns, ifname) as routes:
            for route in routes.listed(family):
                routes.remove(route)

    def add_default_route(self, netns: str, ifname: str, gateway: str, metric: int) -> None:
        """Add a default route via ``gateway`` by ``ifname``; metric 0: the family's own.  An identical one may exist."""
        with _Routes(netns, ifname) as routes:
            routes.add(gateway, metric)


class _Routes:
    """The default routes of one interface, by a netlink socket in its namespace."""

    def __init__(self, netns: str, ifname: str) -> None:
        self._netns = netns
        self._ifname = ifname

    def __enter__(self) -> Self:
        from multus.rtnetlink import Netlink  # for pods that move a default route

        with Entered(self._netns):
            # A socket stays in the namespace in which it was made; the thread need not.
            try:
                self._index = _link_index(self._ifname)
                self._netlink = Netlink()
            except OSError as exc:
                raise IOFailureError(f"cannot look at interface {self._ifname} in {self._netns}: {exc.strerror}") from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._netlink.close()

    def listed(self, family: int) -> list[Route]:
        """The routes of prefix length 0 in the main table that have a next hop by the interface."""
        from multus.protocol.kernel_routes import Route
        from multus.rtnetlink import DUMP, GETROUTE

        answers = self._ask(f"cannot list the IPv{family} routes", GETROUTE, (_AF[family], 0, 0, 0, 0, 0, 0, 0, 0), flags=DUMP)
        routes = [Route(each) for each in answers or ()]
        return [route for route in routes if route.is_default and self._index in [hop.index for hop in route.hops]]

    def gateways(self, family: int) -> tuple[str, ...]:
        """The gateways by the interface ("" for none), by metric."""
        listed = sorted(self.listed(family), key=lambda route: route.metric)
        return tuple(gateway for route in listed for gateway in route.gateways(self._index))

    def remove(self, route: Route) -> None:
        from multus.rtnetlink import CREATE, DELROUTE, NEWROUTE, REPLACE

        others = [hop for hop in route.hops if hop.index != self._index]
        gateways = " ".join(route.gateways(self._index)).strip() or "no gateway"
        what = f"cannot remove the IPv{route.family} default route of interface {self._ifname} via {gateways}"
        if others:
            self._ask(what, NEWROUTE, route.fields, route.with_hops(others), flags=CREATE | REPLACE)
        else:
            self._ask(what, DELROUTE, route.fields, route.identity())

    def add(self, gateway: str, metric: int) -> None:
        from multus.protocol.kernel_routes import default_route
        from multus.rtnetlink import CREATE, EXCLUSIVE, NEWROUTE

        parsed = addresses.parse_ip(gateway)
        if parsed is None:
            raise InvalidConfigError(f"gateway {gateway!r} of interface {self._ifname} is no IP address")
        family, packed = parsed
        what = f"cannot add an IPv{family} default route of interface {self._ifname} via {gateway}"
        request = default_route(family, packed, self._index, metric)
        if self._ask(what, NEWROUTE, *request, flags=CREATE | EXCLUSIVE, tolerated=errno.EEXIST) is None:
            wanted = (metric or _DEFAULT_METRIC[family], (addresses.canonical_ip(gateway),))
            if wanted not in [(route.metric, route.gateways(self._index)) for route in self.listed(family)]:
                raise IOFailureError(f"{what}: there is another default route with metric {wanted[0]}")

    def _ask(
        self, what: str, kind: int, fields: tuple[int, ...], attributes: bytes = b"", *, flags: int = 0, tolerated: int = 0
    ) -> list[Message] | None:
        """The kernel's answers; None for a refusal with the error number that is tolerated."""
        try:
            return self._netlink.ask(kind, fields, attributes, flags)
        except OSError as exc:
            if tolerated and exc.errno == tolerated:
                return None
            hint = ", is the gateway on the link?" if exc.errno in (errno.ENETUNREACH, errno.EHOSTUNREACH) else ""
            raise IOFailureError(f"{what} in {self._netns}: {exc.strerror}{hint}") from exc


def _remove_group(netlink: Netlink, names: Sequence[str]) -> bool:
    """Remove links in one request; False: the kernel refuses, and removes none."""
    from multus.rtnetlink import DELLINK, SETLINK, attribute

    group = attribute(_IFLA_GROUP, os.urandom(4))
    try:
        found = [name for name in names if _ask_of_link(netlink, SETLINK, name, group)]
        if found:
            netlink.ask(DELLINK, (0, 0, 0, 0, 0), group)
    except OSError:
        return False
    return True


def _remove_each(netlink: Netlink, names: Sequence[str], netns: str) -> dict[str, MultusError]:
    from multus.rtnetlink import DELLINK

    refused: dict[str, MultusError] = {}
    for name in names:
        try:
            _ask_of_link(netlink, DELLINK, name)
        except OSError as exc:
            refused[name] = IOFailureError(f"cannot remove link {name} in {netns}: {exc.strerror}")
    return refused


def _ask_of_link(netlink: Netlink, kind: int, name: str, attributes: bytes = b"") -> bool:
    """Change or remove the link of a name; False: there is none.  Raises OSError."""
    from multus.rtnetlink import attribute, text

    try:
        netlink.ask(kind, (0, 0, 0, 0, 0), attribute(_IFLA_IFNAME, text(name)) + attributes)
    except OSError as exc:
        if exc.errno == errno.ENODEV:
            return False
        raise
    return True


def _link_index(ifname: str) -> int:
    """The index of a link in the present namespace; OSError with ENODEV: there is none.  (if_nametoindex hides the reason.)"""
    asking = socket(AF_INET, SOCK_DGRAM)
    try:
        answer = fcntl.ioctl(asking.fileno(), _SIOCGIFINDEX, ifname.encode()[:_IFNAMSIZ - 1].ljust(40, b"\0"))
    finally:
        asking.close()
    return int.from_bytes(answer[_IFNAMSIZ:_IFNAMSIZ + 4], sys.byteorder)
