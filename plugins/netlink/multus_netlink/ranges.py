"""The ranges of ``host-local``: read, found to be valid, and walked through in turn.  Pure."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address, ip_network
from typing import TYPE_CHECKING, NamedTuple, TypeAlias

from multus.protocol import addresses

if TYPE_CHECKING:
    from collections.abc import Iterator
    from ipaddress import IPv4Network, IPv6Network

    from multus_netlink.configuration import Section

Address: TypeAlias = IPv4Address | IPv6Address


class Range(NamedTuple):
    """Addresses from ``start`` to ``end``, both included; the gateway among them is never given away."""

    subnet: IPv4Network | IPv6Network
    start: Address
    end: Address
    gateway: Address

    def __contains__(self, address: object) -> bool:
        return isinstance(address, type(self.start)) and int(self.start) <= int(address) <= int(self.end)

    def overlaps(self, other: Range) -> bool:
        return other.start in self or self.start in other


RangeSet: TypeAlias = tuple[Range, ...]
"""Ranges of one family; a pod gets one address of each set."""


def parse_address(text: str) -> Address | None:
    """An IP address, an IPv4-mapped one as IPv4; None: it is none."""
    parsed = addresses.parse_ip(text)
    return ip_address(parsed[1]) if parsed else None


def read_sets(config: Section) -> tuple[RangeSet, ...]:
    """The sets of a configuration: ``runtimeConfig.ipRanges``, the range in ``ipam`` itself, ``ipam.ranges``.

    Raises:
        InvalidConfigError: There is none, one is not valid, or two overlap.
    """
    ipam = config.section("ipam")
    sets = [*_sets(config.section("runtimeConfig"), "ipRanges")]
    if ipam.text("subnet"):
        sets.append((_range(ipam),))
    sets += _sets(ipam, "ranges")
    if not sets:
        raise ipam.refusal("ranges", "a list with an address range")
    for number, ours in enumerate(sets):
        if any(type(each.start) is not type(ours[0].start) for each in ours):
            raise ipam.invalid(f"ranges of set {number}, {describe(ours)}, mix address families")
    every = [(number, each) for number, ours in enumerate(sets) for each in ours]
    for index, (number, each) in enumerate(every):
        for other_number, other in every[index + 1:]:
            if each.overlaps(other):
                where = f"range set {number} overlaps {describe((other,))} of range set {other_number}"
                raise ipam.invalid(f"ranges {describe((each,))} of {where}")
    return tuple(sets)


def range_of(ranges: RangeSet, address: Address | None) -> Range | None:
    """The range that holds an address."""
    return next((each for each in ranges if address in each), None)


def candidates(ranges: RangeSet, last: Address | None) -> Iterator[tuple[Address, Range]]:
    """Every address of a set once, in turn, from the one after ``last`` on; without the gateways."""
    number = next((index for index, each in enumerate(ranges) if last in each), None)
    if number is None or last is None:
        walk = [(each, int(each.start), int(each.end)) for each in ranges]
    else:
        begun = ranges[number]
        walk = [
            (begun, int(last) + 1, int(begun.end)),
            *((each, int(each.start), int(each.end)) for each in (*ranges[number + 1:], *ranges[:number])),
            (begun, int(begun.start), int(last)),
        ]
    for each, first, end in walk:
        for value in range(first, end + 1):
            address = type(each.start)(value)
            if address != each.gateway:
                yield address, each


def describe(ranges: RangeSet) -> str:
    return ",".join(f"{each.start}-{each.end}" for each in ranges)


def _sets(owner: Section, key: str) -> Iterator[RangeSet]:
    for ranges in owner.items(key):
        if not isinstance(ranges, list) or not ranges:
            raise owner.refusal(key, "a list of lists of ranges")
        yield tuple(_range(each) for each in owner.elements(key, ranges))


def _range(owner: Section) -> Range:
    parsed = addresses.parse_cidr(owner.text("subnet"))
    if parsed is None or (parsed[0] == 4) is (":" in owner.text("subnet")):
        raise owner.refusal("subnet", "a network address with a prefix length")
    family, packed, length = parsed
    if length > len(packed) * 8 - 2:
        raise owner.refusal("subnet", "large enough to allocate from")
    subnet = ip_network((packed, length), strict=False)
    if subnet.network_address.packed != packed:
        raise owner.refusal("subnet", f"the network address, {subnet.network_address}")
    first, last = subnet.network_address + 1, subnet.broadcast_address - (1 if family == 4 else 0)
    start = _address(owner, "rangeStart") or first
    end = _address(owner, "rangeEnd") or last
    if start not in subnet:
        raise owner.refusal("rangeStart", f"in the network {subnet}")
    if end not in subnet or int(end) < int(start):
        raise owner.refusal("rangeEnd", f"in the network {subnet} and after the start, {start}")
    return Range(subnet, start, end, _address(owner, "gateway") or first)


def _address(owner: Section, key: str) -> Address | None:
    text = owner.text(key)
    address = parse_address(text)
    if text and address is None:
        raise owner.refusal(key, "an IP address")
    return address
