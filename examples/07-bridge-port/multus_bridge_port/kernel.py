"""Links of one network namespace, by netlink.  The only import of pyroute2, which costs 150 ms."""

from __future__ import annotations

import errno
import os
from ipaddress import ip_interface
from typing import TYPE_CHECKING, Any, NamedTuple, Self

from multus.errors import IOFailureError
from multus.netns import Entered

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from types import TracebackType

_UP = 1
_PVID, _UNTAGGED = 2, 4
_NO_DUPLICATE_DETECTION = 2


class Link(NamedTuple):
    """A network interface."""

    ifindex: int
    name: str
    kind: str
    mac: str
    mtu: int
    is_up: bool
    bridge: int
    """The number of the bridge that it is a port of; 0: none."""
    alias: str
    filters_vlans: bool
    """Of a bridge."""


class Kernel:
    """A netlink socket in a namespace, from ``with`` to the end of the block; without a path in the thread's own.

    Raises:
        InvalidNetnsError: Code 8, the path is no network namespace.
        IOFailureError: Code 5, the kernel refuses; says what.
    """

    def __init__(self, netns: str = "") -> None:
        self._netns = netns
        self._where = netns or "the host"

    def __enter__(self) -> Self:
        from pyroute2 import IPRoute  # type: ignore[import-untyped]  # when a link is to be made or looked at, no sooner

        if self._netns:
            with Entered(self._netns):  # the socket stays there, the thread need not
                self._socket: Any = IPRoute()
        else:
            self._socket = IPRoute()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.close()

    def find(self, name: str) -> Link | None:
        found = self._ask(f"look for {name}", self._socket.link, "get", ifname=name, tolerated=errno.ENODEV)
        return _link(found[0]) if found else None

    def get(self, name: str) -> Link:
        """The link of a name, which is an error not to be there."""
        link = self.find(name)
        if link is None:
            raise IOFailureError(f"there is no interface {name} in {self._where}")
        return link

    def with_alias(self, alias: str, *, whole: bool = True) -> Iterator[Link]:
        """The links of an alias, or of one that begins so."""
        links = map(_link, self._ask("list the links", self._socket.get_links))
        return (link for link in links if link.alias == alias or (not whole and link.alias.startswith(alias)))

    def add_pair(self, port: str, ifname: str, netns: str, *, mac: str, mtu: int) -> None:
        """A veth: ``port`` here, and ``ifname``, with the MAC if one is given, in another namespace."""
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC)
        try:
            peer = {"ifname": ifname, "net_ns_fd": fd, "mtu": mtu, **({"address": mac} if mac else {})}
            what = f"make a veth of {port} and {ifname} with MAC {mac or '(any)'} and MTU {mtu}"
            self._ask(what, self._socket.link, "add", ifname=port, kind="veth", mtu=mtu, peer=peer)
        finally:
            os.close(fd)

    def plug(self, link: Link, bridge: Link, alias: str) -> None:
        """Make a link a port of a bridge, and leave a note on it whose it is."""
        self._ask(f"name the owner of {link.name}", self._socket.link, "set", index=link.ifindex, ifalias=alias)
        self._ask(f"make {link.name} a port of {bridge.name}", self._socket.link, "set", index=link.ifindex, master=bridge.ifindex)

    def set_up(self, link: Link) -> None:
        self._ask(f"bring up {link.name}", self._socket.link, "set", index=link.ifindex, flags=_UP, change=_UP)

    def remove(self, link: Link) -> None:
        self._ask(f"remove {link.name}", self._socket.link, "del", index=link.ifindex, tolerated=errno.ENODEV)

    def addresses(self, link: Link) -> set[str]:
        found = self._ask(f"list the addresses of {link.name}", self._socket.get_addr, index=link.ifindex)
        return {f"{each.get_attr('IFA_LOCAL') or each.get_attr('IFA_ADDRESS')}/{each['prefixlen']}" for each in found}

    def add_address(self, link: Link, cidr: str) -> None:
        address, length = str(ip_interface(cidr).ip), ip_interface(cidr).network.prefixlen
        flags = {"flags": _NO_DUPLICATE_DETECTION} if ":" in address else {}
        self._ask(f"add {cidr} to {link.name}", self._socket.addr, "add", index=link.ifindex, address=address, prefixlen=length, **flags)

    def vlans(self, port: Link) -> dict[int, bool]:
        """The VLANs of a bridge's port, and whether each is that of untagged frames."""
        found: dict[int, bool] = {}
        for message in self._ask(f"list the VLANs of {port.name}", self._socket.get_vlans, index=port.ifindex):
            spec = message.get_attr("IFLA_AF_SPEC")
            for name, info in spec["attrs"] if spec is not None and message["index"] == port.ifindex else ():
                if name == "IFLA_BRIDGE_VLAN_INFO":
                    found[info["vid"]] = bool(info["flags"] & _PVID)
        return found

    def set_vlans(self, port: Link, wanted: Mapping[int, bool]) -> None:
        """Give a port these VLANs and no others."""
        for vid in self.vlans(port).keys() - wanted.keys():
            self._filter("del", port, vid, 0)
        for vid, is_untagged in sorted(wanted.items()):
            self._filter("add", port, vid, _PVID | _UNTAGGED if is_untagged else 0)

    def _filter(self, command: str, port: Link, vid: int, flags: int) -> None:
        info = {"vid": vid, **({"flags": flags} if flags else {})}
        self._ask(f"{command} VLAN {vid} of {port.name}", self._socket.vlan_filter, command, index=port.ifindex, vlan_info=info)

    def _ask(self, what: str, request: Callable[..., Any], *arguments: str, tolerated: int = 0, **fields: Any) -> list[Any]:
        """The kernel's answers; none for a refusal with the error number that is tolerated."""
        from pyroute2.netlink.exceptions import NetlinkError  # type: ignore[import-untyped]  # loaded with IPRoute

        try:
            return list(request(*arguments, **fields))
        except (NetlinkError, OSError) as exc:
            code = (exc.code if isinstance(exc, NetlinkError) else exc.errno) or 0
            if code == tolerated:
                return []
            raise IOFailureError(f"cannot {what} in {self._where}: {os.strerror(code)}") from exc


def _link(message: Any) -> Link:
    info = message.get_attr("IFLA_LINKINFO")
    data = info.get_attr("IFLA_INFO_DATA") if info is not None else None
    kind = (info.get_attr("IFLA_INFO_KIND") if info is not None else "") or ""
    return Link(
        message["index"],
        message.get_attr("IFLA_IFNAME"),
        kind,
        message.get_attr("IFLA_ADDRESS") or "",
        message.get_attr("IFLA_MTU"),
        bool(message["flags"] & _UP),
        message.get_attr("IFLA_MASTER") or 0,
        message.get_attr("IFLA_IFALIAS") or "",
        kind == "bridge" and data is not None and bool(data.get_attr("IFLA_BR_VLAN_FILTERING")),
    )
