"""Routes as the kernel tells them: what is read is what is asked for again."""

from __future__ import annotations

from ipaddress import ip_address
from socket import AF_INET, AF_INET6, inet_ntop

from hypothesis import given
from hypothesis import strategies as st

from multus.protocol.kernel_routes import Route, default_route
from multus.rtnetlink import Message, parsed

INDEXES = st.integers(1, 2**31 - 1)


def told(fields: tuple[int, ...], attributes: bytes) -> Route:
    return Route(Message(fields, parsed(attributes)))


@given(st.ip_addresses(), INDEXES, st.integers(0, 2**32 - 1))
def test_a_default_route_is_read_as_it_was_asked_for(gateway: object, index: int, metric: int) -> None:
    address = ip_address(str(gateway))
    route = told(*default_route(address.version, address.packed, index, metric))
    assert (route.is_default, route.family, route.metric) == (True, address.version, metric)
    spelled = inet_ntop(AF_INET6 if address.version == 6 else AF_INET, address.packed)
    assert (route.gateways(index), route.gateways(index + 1)) == ((spelled,), ())


@given(st.lists(st.tuples(INDEXES, st.ip_addresses(v=4)), min_size=1, max_size=6), st.integers(1, 2**32 - 1), st.data())
def test_a_multipath_route_keeps_the_next_hops_that_it_is_given(pairs: list[tuple[int, object]], metric: int, data: st.DataObject) -> None:
    single = [told(*default_route(4, ip_address(str(address)).packed, index, metric)) for index, address in pairs]
    whole = told(single[0].fields, single[0].with_hops([route.hops[0] for route in single]))
    assert [(hop.index, hop.gateway) for hop in whole.hops] == [(index, str(address)) for index, address in pairs]
    kept = data.draw(st.lists(st.sampled_from(whole.hops), min_size=1))
    again = told(whole.fields, whole.with_hops(kept))
    assert [(hop.index, hop.gateway) for hop in again.hops] == [(hop.index, hop.gateway) for hop in kept]
    assert again.metric == metric
