"""The default route: moved to the attachment that asked for it, per family, and read back."""

from __future__ import annotations

import pytest

from multus.core import routes
from multus.errors import IOFailureError, MultusError
from multus.protocol import conflists, results
from multus.testing.fakes import NETNS, DefaultRoute, FakeNamespace, FakeNetns
from multus.types.delegate import Attachment, Delegate
from multus.types.selection import NetworkSelectionElement

ETH0_4, ETH0_6 = DefaultRoute("eth0", 4, "192.0.2.1"), DefaultRoute("eth0", 6, "2001:db8::1")
NET1_4, NET1_6 = DefaultRoute("net1", 4, "198.51.100.9"), DefaultRoute("net1", 6, "2001:db8:1::9")
MOVED = DefaultRoute("net1", 4, "198.51.100.1", 0)
DEFAULTS = {4: "0.0.0.0/0", 6: "::/0"}


def attachment(
    ifname: str, *default_routes: DefaultRoute, asked: tuple[str, ...] | None = None, beside: tuple[str, ...] = ()
) -> Attachment:
    """One whose plugin answered with these default routes, a route of its own, and further interfaces beside its own."""
    conf = conflists.parse({"cniVersion": "1.0.0", "name": f"of-{ifname}", "type": "a"}, where="a test")
    selection = None if asked is None else NetworkSelectionElement("n", "shop", default_route=asked)
    interfaces = [{"name": name, "sandbox": NETNS} for name in (ifname, *beside)] + [{"name": "on-host"}]
    given = [{"dst": DEFAULTS[route.family], "gw": route.gateway} for route in default_routes]
    result = {"cniVersion": "1.0.0", "interfaces": interfaces, "routes": [*given, {"dst": "10.0.0.0/8", "gw": "192.0.2.1"}]}
    return Attachment(Delegate(f"of-{ifname}", conf, selection), "c1", NETNS, ifname, result=results.parse(result, ""))


def kernel(*found: DefaultRoute, links: tuple[str, ...] = ("eth0", "net1", "net2")) -> FakeNetns:
    return FakeNetns(namespaces={NETNS: FakeNamespace(*links, routes=found)})


def left(netns: FakeNetns) -> list[DefaultRoute]:
    return netns.namespaces[NETNS].routes


def told(attachment: Attachment) -> list[tuple[str, str]]:
    """The default routes of an attachment's result."""
    assert attachment.result is not None
    return [(route.dst, route.gw) for route in results.view(attachment.result).routes if route.dst != "10.0.0.0/8"]


def test_nobody_asks_and_nothing_is_looked_at() -> None:
    netns = kernel(ETH0_4)
    attachments = [attachment("eth0", ETH0_4), attachment("net1")]
    assert routes.move(attachments, netns) == tuple(attachments)
    routes.verify(attachments, netns)
    assert netns.calls.made == []


def test_default_route_moves_to_the_gateway_that_was_asked_for() -> None:
    netns = kernel(ETH0_4, NET1_4)
    eth0, net1 = routes.move([attachment("eth0", ETH0_4), attachment("net1", NET1_4, asked=("198.51.100.1",))], netns)
    assert left(netns) == [MOVED]
    assert (told(eth0), told(net1)) == ([], [("0.0.0.0/0", "198.51.100.1")])


def test_other_routes_of_a_result_stay() -> None:
    (eth0, _) = routes.move([attachment("eth0", ETH0_4), attachment("net1", asked=("198.51.100.1",))], kernel(ETH0_4))
    assert eth0.result is not None
    assert [route.dst for route in results.view(eth0.result).routes] == ["10.0.0.0/8"]


def test_other_family_stays_where_it_is() -> None:
    netns = kernel(ETH0_4, ETH0_6)
    eth0, net1 = routes.move([attachment("eth0", ETH0_4, ETH0_6), attachment("net1", asked=("198.51.100.1",))], netns)
    assert left(netns) == [ETH0_6, MOVED]
    assert (told(eth0), told(net1)) == ([("::/0", "2001:db8::1")], [("0.0.0.0/0", "198.51.100.1")])


def test_both_families_move_when_both_are_asked_for() -> None:
    netns = kernel(ETH0_4, ETH0_6)
    routes.move([attachment("eth0", ETH0_4, ETH0_6), attachment("net1", asked=("2001:db8:1::1", "198.51.100.1"))], netns)
    assert left(netns) == [MOVED, DefaultRoute("net1", 6, "2001:db8:1::1", 0)]


def test_several_gateways_of_a_family_get_rising_metrics() -> None:
    netns = kernel(ETH0_4)
    asked = ("198.51.100.1", "198.51.100.2", "2001:db8:1::1", "2001:db8:1::2")
    _, net1 = routes.move([attachment("eth0", ETH0_4), attachment("net1", asked=asked)], netns)
    assert left(netns) == [
        MOVED,
        DefaultRoute("net1", 4, "198.51.100.2", 1),
        DefaultRoute("net1", 6, "2001:db8:1::1", 0),
        DefaultRoute("net1", 6, "2001:db8:1::2", 1025),
    ]
    assert told(net1) == [("0.0.0.0/0", "198.51.100.1"), ("::/0", "2001:db8:1::1")]


def test_empty_list_keeps_the_plugins_own_default_and_takes_the_others() -> None:
    netns = kernel(ETH0_4, NET1_4, DefaultRoute("net2", 4, "203.0.113.1"))
    given = [attachment("eth0", ETH0_4), attachment("net1", NET1_4, asked=()), attachment("net2", DefaultRoute("net2", 4, "203.0.113.1"))]
    moved = routes.move(given, netns)
    assert left(netns) == [NET1_4]
    assert [told(each) for each in moved] == [[], [("0.0.0.0/0", "198.51.100.9")], []]


def test_empty_list_leaves_a_family_alone_in_which_the_plugin_set_no_default() -> None:
    netns = kernel(ETH0_4, ETH0_6, NET1_6)
    routes.move([attachment("eth0", ETH0_4, ETH0_6), attachment("net1", NET1_6, asked=())], netns)
    assert left(netns) == [ETH0_4, NET1_6]


def test_interfaces_that_a_plugin_put_beside_its_own_lose_their_default_too() -> None:
    beside = DefaultRoute("eth0.7", 4, "192.0.2.65")
    netns = kernel(beside, links=("eth0", "eth0.7", "net1"))
    routes.move([attachment("eth0", beside=("eth0.7",)), attachment("net1", asked=("198.51.100.1",))], netns)
    assert left(netns) == [MOVED]


def test_attachment_without_a_link_has_no_route_to_lose() -> None:
    netns = kernel(links=("net1",))
    _, net1 = routes.move([attachment("eth0")._replace(result=None), attachment("net1", asked=("198.51.100.1",))], netns)
    assert left(netns) == [MOVED]
    assert told(net1) == [("0.0.0.0/0", "198.51.100.1")]


def test_route_that_stays_in_the_kernel_fails_and_is_named() -> None:
    netns = kernel(ETH0_6._replace(metric=100))
    netns.keeps_routes = True
    with pytest.raises(MultusError, match=r"'eth0' are via \['2001:db8::1'\], \[\] was asked for"):
        routes.move([attachment("eth0", ETH0_6), attachment("net1", asked=("2001:db8:1::1",))], netns)


def test_route_that_cannot_be_added_fails() -> None:
    netns = kernel(ETH0_4)
    netns.keeps_routes = True
    with pytest.raises(IOFailureError, match="File exists"):
        routes.move([attachment("eth0", ETH0_4), attachment("net1", asked=("198.51.100.1",))], netns)


def test_moved_route_is_verified_in_any_spelling() -> None:
    netns = kernel(DefaultRoute("net1", 6, "2001:db8:1::1", 1024))
    routes.verify([attachment("eth0"), attachment("net1", asked=("2001:0db8:1:0::1",))], netns)


@pytest.mark.parametrize(
    "found",
    [(), (NET1_4,), (MOVED, ETH0_4), (MOVED, NET1_4._replace(metric=5))],
    ids=["gone", "another gateway", "back on eth0", "one more"],
)
def test_verify_refuses_a_table_that_is_not_as_asked(found: tuple[DefaultRoute, ...]) -> None:
    with pytest.raises(MultusError, match="default route"):
        routes.verify([attachment("eth0"), attachment("net1", asked=("198.51.100.1",))], kernel(*found))


def test_verify_of_an_empty_list_refuses_a_default_elsewhere() -> None:
    with pytest.raises(MultusError, match="'eth0'"):
        routes.verify([attachment("eth0"), attachment("net1", asked=())], kernel(NET1_4, ETH0_4))


def test_verify_of_an_empty_list_asks_for_no_particular_gateway() -> None:
    routes.verify([attachment("eth0"), attachment("net1", asked=())], kernel(NET1_4))
