"""Routes as the kernel tells them, and requests about them.  Numbers: linux/rtnetlink.h."""

from __future__ import annotations

import sys
from _socket import AF_INET, AF_INET6, inet_ntop
from _struct import Struct

from multus.rtnetlink import attribute, parsed, u32

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from multus.rtnetlink import Message

_MAIN_TABLE = 254
_PROTOCOL_STATIC = 4
_UNICAST = 1
_SRC, _OIF, _GATEWAY, _PRIORITY, _MULTIPATH, _TABLE, _VIA, _NH_ID = 2, 4, 5, 6, 9, 15, 18, 30
_RTNH_F_ONLINK = 4
_NEXT_HOP = Struct("=HBBi")
"""Of a multipath route: length of the entry, flags, weight, index of the link."""


def default_route(family: int, gateway: bytes, index: int, metric: int) -> tuple[tuple[int, ...], bytes]:
    """Fixed part and attributes of a default route by a link; family is 4 or 6, metric 0 the family's own."""
    attributes = attribute(_OIF, u32(index)) + attribute(_GATEWAY, gateway)
    if metric:
        attributes += attribute(_PRIORITY, u32(metric))
    return (AF_INET if family == 4 else AF_INET6, 0, 0, 0, _MAIN_TABLE, _PROTOCOL_STATIC, 0, _UNICAST, 0), attributes


class Hop:
    """A next hop of a route: index of its link, flags, weight, and its attributes as the kernel gave them."""

    def __init__(self, family: int, index: int, flags: int, weight: int, attributes: dict[int, bytes]) -> None:
        self.index = index
        self.flags = flags
        self.weight = weight
        self.attributes = attributes
        self._family = family

    @property
    def gateway(self) -> str:
        """"" for none.  An IPv4 route may have an IPv6 gateway."""
        via = self.attributes.get(_VIA)
        if via is not None:
            return inet_ntop(int.from_bytes(via[:2], sys.byteorder), via[2:])
        gateway = self.attributes.get(_GATEWAY)
        return "" if gateway is None else inet_ntop(self._family, gateway)


class Route:
    """A route as the kernel told it."""

    def __init__(self, message: Message) -> None:
        self.attributes = message.attributes
        family, length, source_length, tos, table, protocol, scope, kind, _ = message.fields
        self.fields = (family, length, source_length, tos, _MAIN_TABLE, protocol, scope, kind, 0)
        """The fixed part of a request about it."""
        self.family = 4 if family == AF_INET else 6
        self.is_default = length == 0 and _number(self.attributes.get(_TABLE), table) == _MAIN_TABLE
        self.hops = list(_hops(family, self.attributes))

    @property
    def metric(self) -> int:
        return _number(self.attributes.get(_PRIORITY))

    def gateways(self, index: int) -> tuple[str, ...]:
        """The gateway of each next hop by a link, "" for none."""
        return tuple(hop.gateway for hop in self.hops if hop.index == index)

    def identity(self) -> bytes:
        """The attributes that tell it from others; the kernel wants either the next hop object or what is in it."""
        by_object = _NH_ID in self.attributes
        return self._given((_SRC, _PRIORITY) if by_object else (_SRC, _PRIORITY, _OIF, _GATEWAY, _VIA))

    def with_hops(self, hops: Sequence[Hop]) -> bytes:
        """Its attributes with these next hops."""
        entries = []
        for hop in hops:
            own = b"".join(attribute(number, hop.attributes[number]) for number in (_GATEWAY, _VIA) if number in hop.attributes)
            entries.append(_NEXT_HOP.pack(_NEXT_HOP.size + len(own), hop.flags & _RTNH_F_ONLINK, hop.weight, hop.index) + own)
        return self._given((_SRC, _PRIORITY)) + attribute(_MULTIPATH, b"".join(entries))

    def _given(self, numbers: Sequence[int]) -> bytes:
        return b"".join(attribute(number, self.attributes[number]) for number in numbers if number in self.attributes)


def _hops(family: int, attributes: dict[int, bytes]) -> Iterator[Hop]:
    """The next hops of a route: those of a multipath one, or the only one."""
    entries = attributes.get(_MULTIPATH)
    if entries is None:
        yield Hop(family, _number(attributes.get(_OIF)), 0, 0, attributes)
        return
    start = 0
    while start + _NEXT_HOP.size <= len(entries):
        length, flags, weight, index = _NEXT_HOP.unpack_from(entries, start)
        yield Hop(family, index, flags, weight, parsed(entries[start + _NEXT_HOP.size:start + length]))
        start += max(length + -length % 4, _NEXT_HOP.size)


def _number(payload: bytes | None, default: int = 0) -> int:
    return default if payload is None else int.from_bytes(payload, sys.byteorder)
