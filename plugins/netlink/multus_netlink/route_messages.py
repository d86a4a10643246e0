"""Addresses and routes, and how the kernel spells them.  Numbers: linux/if_addr.h, linux/rtnetlink.h."""

from __future__ import annotations

import struct
from ipaddress import ip_address, ip_interface
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import TYPE_CHECKING, Any, NamedTuple

from multus.rtnetlink import attribute, parsed, u32, whole

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from multus.rtnetlink import Message

AF = {4: AF_INET, 6: AF_INET6}
MAIN_TABLE = 254
_SCOPE_UNIVERSE = 0
_SCOPE_NOWHERE = 255
_PROTOCOL_KERNEL = 2
_PROTOCOL_BOOT = 3
_ONLINK = 4
_UNICAST = 1
_IFA_ADDRESS, _IFA_LOCAL, _IFA_BROADCAST, _IFA_FLAGS = 1, 2, 4, 8
_DST, _OIF, _GATEWAY, _PRIORITY, _PREFSRC, _METRICS, _MULTIPATH, _CACHE_INFO, _TABLE, _VIA = 1, 4, 5, 6, 7, 8, 9, 12, 15, 18
_METRIC_NUMBERS = {"mtu": 2, "advmss": 8}
_ROUTE_FIELDS = frozenset(("table", "proto", "scope", "type", "flags", "priority", "prefsrc", "metrics"))
_HOP = struct.Struct("=HBBi")
"""A next hop of a multipath route: its length, flags, weight, index of its link."""
_LONGEST_WITH_BROADCAST = 30


class Address(NamedTuple):
    """An address of a link."""

    address: str
    length: int
    flags: int

    @property
    def cidr(self) -> str:
        return f"{self.address}/{self.length}"


class KernelRoute(NamedTuple):
    """A route; ``dst`` is CIDR text, ``gateway`` may be empty, ``oif`` the index of its link, 0 for none."""

    dst: str
    gateway: str
    oif: int


class KeptRoute:
    """A route with all that the kernel told of it, to be made again."""

    def __init__(self, message: Message) -> None:
        self._fields = message.fields
        self._attributes = message.attributes

    def __str__(self) -> str:
        family, length = self._fields[:2]
        dst = inet_ntop(family, self._attributes.get(_DST) or bytes(4 if family == AF_INET else 16))
        gateway = inet_ntop(family, self._attributes[_GATEWAY]) if _GATEWAY in self._attributes else "no gateway"
        return f"to {dst}/{length} via {gateway}"

    def goes_with(self, index: int) -> bool:
        """Whether it is by that link, of the main table, and not one that the kernel makes itself."""
        table, protocol, _, kind = self._fields[4:8]
        by_link = whole(self._attributes.get(_OIF, b"")) == index
        return by_link and (table, kind) == (MAIN_TABLE, _UNICAST) and protocol != _PROTOCOL_KERNEL

    @property
    def has_gateway(self) -> bool:
        """Whether it needs other routes, by which its gateway is reached."""
        return _GATEWAY in self._attributes or _VIA in self._attributes

    @property
    def wants_source(self) -> bool:
        """Whether it says which IPv6 address packets have for their source: the kernel must have found that no duplicate."""
        return self._fields[0] == AF_INET6 and _PREFSRC in self._attributes

    def request(self, table: int) -> tuple[tuple[int, ...], bytes]:
        """Fixed part and attributes of the same route in another table."""
        family, length, source_length, tos, _, protocol, scope, kind, flags = self._fields
        kept = {number: value for number, value in self._attributes.items() if number not in (_TABLE, _CACHE_INFO)}
        attributes = b"".join(attribute(number, value) for number, value in {**kept, _TABLE: u32(table)}.items())
        return (family, length, source_length, tos, table if table < 256 else 0, protocol, scope, kind, flags & _ONLINK), attributes


def address_request(index: int, cidr: str) -> tuple[tuple[int, ...], bytes]:
    """Fixed part and attributes of an address to add; an IPv4 one with the broadcast address of its network, if that has one."""
    interface = ip_interface(cidr)
    length = interface.network.prefixlen
    attributes = attribute(_IFA_ADDRESS, interface.packed)
    if interface.version == 4:
        attributes += attribute(_IFA_LOCAL, interface.packed)
        if length <= _LONGEST_WITH_BROADCAST:
            attributes += attribute(_IFA_BROADCAST, interface.network.broadcast_address.packed)
    return (AF[interface.version], length, 0, _SCOPE_UNIVERSE, index), attributes


def removed_address_request(index: int, address: Address) -> tuple[tuple[int, ...], bytes]:
    ip = ip_address(address.address)
    return (AF[ip.version], address.length, 0, 0, index), attribute(_IFA_LOCAL, ip.packed) + attribute(_IFA_ADDRESS, ip.packed)


def address_of(message: Message) -> Address:
    """The address that an answer tells; of a link between two points our end."""
    family, length, flags = message.fields[:3]
    attributes = message.attributes
    packed = attributes.get(_IFA_LOCAL) or attributes[_IFA_ADDRESS]
    return Address(inet_ntop(family, packed), length, whole(attributes[_IFA_FLAGS]) if _IFA_FLAGS in attributes else flags)


def knows_route(fields: Mapping[str, Any]) -> bool:
    """Whether ``route_request`` can write these fields."""
    metrics = fields.get("metrics") or {}
    return fields.keys() <= _ROUTE_FIELDS and isinstance(metrics, dict) and metrics.keys() <= _METRIC_NUMBERS.keys()


def route_request(index: int, dst: str, gateway: str, **fields: Any) -> tuple[tuple[int, ...], bytes]:
    """Fixed part and attributes of a route to add."""
    family, length, attributes = _destination(index, dst)
    if gateway:
        attributes += _gateway(family, gateway)
    if fields.get("priority"):
        attributes += attribute(_PRIORITY, u32(fields["priority"]))
    if fields.get("prefsrc"):
        attributes += attribute(_PREFSRC, inet_pton(family, fields["prefsrc"]))
    metrics = {number: fields["metrics"][name] for name, number in _METRIC_NUMBERS.items() if (fields.get("metrics") or {}).get(name)}
    if metrics:
        attributes += attribute(_METRICS, b"".join(attribute(number, u32(value)) for number, value in metrics.items()))
    table = fields.get("table") or MAIN_TABLE
    attributes += attribute(_TABLE, u32(table))
    scope, protocol = fields.get("scope", _SCOPE_UNIVERSE), fields.get("proto", _PROTOCOL_BOOT)
    small_table = table if table < 256 else 0
    return (family, length, 0, 0, small_table, protocol, scope, fields.get("type", _UNICAST), fields.get("flags", 0)), attributes


def removed_route_request(index: int, dst: str) -> tuple[tuple[int, ...], bytes]:
    """Fixed part and attributes for the route to a destination by a link, whatever its scope and origin."""
    family, length, attributes = _destination(index, dst)
    return (family, length, 0, 0, MAIN_TABLE, 0, _SCOPE_NOWHERE, 0, 0), attributes


def listed_routes_request(family: int) -> tuple[int, ...]:
    return (AF[family], 0, 0, 0, 0, 0, 0, 0, 0)


def routes_of(message: Message, wanted: int = MAIN_TABLE) -> Iterator[KernelRoute]:
    """The unicast routes of a table in an answer: one, or one for each next hop, or none."""
    family, length, attributes = message.fields[0], message.fields[1], message.attributes
    table = whole(attributes[_TABLE]) if _TABLE in attributes else message.fields[4]
    if table != wanted or message.fields[7] != _UNICAST:
        return
    dst = inet_ntop(family, attributes.get(_DST) or bytes(4 if family == AF_INET else 16))
    hops = list(_hops(attributes[_MULTIPATH])) if _MULTIPATH in attributes else [(whole(attributes.get(_OIF, b"")), attributes)]
    for oif, own in hops:
        yield KernelRoute(f"{dst}/{length}", inet_ntop(family, own[_GATEWAY]) if _GATEWAY in own else "", oif)


def _destination(index: int, dst: str) -> tuple[int, int, bytes]:
    """Family, prefix length, and attributes for the destination and the link."""
    host, _, length = dst.partition("/")
    family = AF_INET6 if ":" in host else AF_INET
    attributes = attribute(_OIF, u32(index))
    return family, int(length), attributes if length == "0" else attribute(_DST, inet_pton(family, host)) + attributes


def _gateway(family: int, gateway: str) -> bytes:
    own = AF_INET6 if ":" in gateway else AF_INET
    packed = inet_pton(own, gateway)
    return attribute(_GATEWAY, packed) if own == family else attribute(_VIA, struct.pack("=H", own) + packed)


def _hops(data: bytes) -> Iterator[tuple[int, dict[int, bytes]]]:
    """Index of the link and attributes of each next hop."""
    start = 0
    while start + _HOP.size <= len(data):
        length, _, _, index = _HOP.unpack_from(data, start)
        yield index, parsed(data[start + _HOP.size:start + length])
        start += max(length + -length % 4, _HOP.size)
