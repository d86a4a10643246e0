"""Ranges: what is valid, and the order in which addresses are tried."""

from __future__ import annotations

from ipaddress import ip_address
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multus_netlink.configuration import Section
from multus_netlink.ranges import Range, RangeSet, candidates, describe, parse_address, range_of, read_sets

from multus.errors import InvalidConfigError


def sets(**ipam: Any) -> tuple[RangeSet, ...]:
    return read_sets(Section({"ipam": ipam}, ""))


@st.composite
def range_sets(draw: st.DrawFn) -> RangeSet:
    ranges = []
    for number in range(draw(st.integers(1, 3))):
        length = draw(st.integers(27, 30))
        family = f"10.{number}.0.0/{length}"
        ((found,),) = sets(subnet=family)
        start = draw(st.integers(int(found.start), int(found.end)))
        end = draw(st.integers(start, int(found.end)))
        gateway = draw(st.integers(int(found.start), int(found.end)))
        ranges.append(found._replace(start=ip_address(start), end=ip_address(end), gateway=ip_address(gateway)))
    return tuple(ranges)


@given(range_sets(), st.data())
def test_every_address_but_a_gateway_comes_once(ranges: RangeSet, data: st.DataObject) -> None:
    every = {ip_address(value) for each in ranges for value in range(int(each.start), int(each.end) + 1)}
    last = data.draw(st.sampled_from([None, *sorted(every, key=int), ip_address("192.0.2.1")]))
    found = [address for address, _ in candidates(ranges, last)]
    assert (len(found), set(found)) == (len(set(found)), every - {each.gateway for each in ranges})


@given(range_sets())
def test_the_walk_goes_on_after_the_last_address(ranges: RangeSet) -> None:
    circle = list(candidates(ranges, None))
    for index, (last, _) in enumerate(circle):
        assert list(candidates(ranges, last)) == circle[index + 1:] + circle[:index + 1]


def test_a_subnet_alone_gives_all_but_its_edges_and_gateway() -> None:
    ((found,),) = sets(subnet="10.1.0.0/29")
    assert [str(address) for address, _ in candidates((found,), None)] == [f"10.1.0.{last}" for last in range(2, 7)]


def test_the_last_address_of_an_ipv6_subnet_is_given_away() -> None:
    assert describe(sets(subnet="fd00::/126")[0]) == "fd00::1-fd00::3"


def test_the_single_range_comes_before_the_list_and_the_runtimes_before_both() -> None:
    ipam = {"subnet": "10.1.0.0/24", "ranges": [[{"subnet": "10.2.0.0/24"}]]}
    config: dict[str, Any] = {"ipam": ipam, "runtimeConfig": {"ipRanges": [[{"subnet": "10.3.0.0/24"}]]}}
    assert [str(each[0].subnet) for each in read_sets(Section(config, ""))] == ["10.3.0.0/24", "10.1.0.0/24", "10.2.0.0/24"]


def test_an_address_is_found_in_its_range() -> None:
    ranges = sets(ranges=[[{"subnet": "10.1.0.0/24", "rangeEnd": "10.1.0.9"}, {"subnet": "10.2.0.0/24"}]])[0]
    assert [range_of(ranges, parse_address(text)) for text in ("10.2.0.7", "10.1.0.10", "fd00::1", "x")] == [ranges[1], None, None, None]


@pytest.mark.parametrize(
    ("ipam", "message"),
    [
        ({}, "ipam.ranges None is not a list with an address range"),
        ({"ranges": [[]]}, "ipam.ranges (a list) is not a list of lists of ranges"),
        ({"ranges": [[1]]}, "ipam.ranges (a list) is not a list of objects"),
        ({"subnet": "10.1.0.0"}, "ipam.subnet '10.1.0.0' is not a network address with a prefix length"),
        ({"subnet": "::ffff:10.1.0.0/120"}, "ipam.subnet '::ffff:10.1.0.0/120' is not a network address with a prefix length"),
        ({"subnet": "10.1.0.0/31"}, "ipam.subnet '10.1.0.0/31' is not large enough to allocate from"),
        ({"subnet": "10.1.0.5/24"}, "ipam.subnet '10.1.0.5/24' is not the network address, 10.1.0.0"),
        ({"subnet": "10.1.0.0/24", "gateway": "x"}, "ipam.gateway 'x' is not an IP address"),
        ({"subnet": "10.1.0.0/24", "rangeStart": "10.2.0.1"}, "ipam.rangeStart '10.2.0.1' is not in the network 10.1.0.0/24"),
        (
            {"subnet": "10.1.0.0/24", "rangeStart": "10.1.0.9", "rangeEnd": "10.1.0.8"},
            "ipam.rangeEnd '10.1.0.8' is not in the network 10.1.0.0/24 and after the start, 10.1.0.9",
        ),
        (
            {"ranges": [[{"subnet": "10.1.0.0/24"}], [{"subnet": "10.1.0.0/25"}]]},
            "ipam.ranges 10.1.0.1-10.1.0.254 of range set 0 overlaps 10.1.0.1-10.1.0.126 of range set 1",
        ),
        (
            {"ranges": [[{"subnet": "10.1.0.0/30"}, {"subnet": "fd00::/126"}]]},
            "ipam.ranges of set 0, 10.1.0.1-10.1.0.2,fd00::1-fd00::3, mix address families",
        ),
    ],
)
def test_what_is_not_valid_is_refused_by_name(ipam: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        sets(**ipam)
    assert caught.value.msg == message


def test_a_range_holds_its_edges_and_nothing_of_another_family() -> None:
    ((found,),) = sets(subnet="10.1.0.0/30")
    assert isinstance(found, Range)
    assert [parse_address(text) in found for text in ("10.1.0.1", "10.1.0.2", "10.1.0.3", "::a01:1")] == [True, True, False, False]
