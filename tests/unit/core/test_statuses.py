"""Attachments as entries of the network-status annotation."""

from __future__ import annotations

import pytest

from multus.core import statuses
from multus.protocol import conflists, results
from multus.types.delegate import Attachment, Delegate
from multus.types.pod import NetworkStatus
from multus.types.selection import NetworkSelectionElement

POD_SIDE = {"name": "net1", "mac": "02:00:00:00:00:09", "mtu": 1400, "sandbox": "/n"}
HOST_SIDE = {"name": "veth9"}


def entries(document: dict[str, object], *, cluster: bool = False, ifname: str = "net1", **fields: object) -> tuple[NetworkStatus, ...]:
    conf = conflists.parse({"cniVersion": "1.1.0", "name": "blue", "type": "a"}, where="a test")
    device_info = fields.pop("device_info", None)
    delegate = Delegate("shop/blue", conf, is_cluster_network=cluster, **fields)
    result = results.parse({"cniVersion": "1.1.0", **document}, "")
    return statuses.entries(Attachment(delegate, "c1", "/n", ifname, result=result, device_info=device_info))


def brief(found: tuple[NetworkStatus, ...]) -> list[tuple[str, tuple[str, ...], bool]]:
    return [(entry.interface, entry.ips, entry.default) for entry in found]


def test_one_interface_is_one_entry() -> None:
    ips = [{"address": "192.0.2.5/24", "interface": 0}, {"address": "2001:db8::5/64", "interface": 0}]
    (entry,) = entries({"interfaces": [POD_SIDE], "ips": ips, "dns": {"domain": "example"}}, device_info={"type": "pci"})
    both = ("192.0.2.5", "2001:db8::5")
    expected = NetworkStatus("shop/blue", "net1", both, "02:00:00:00:00:09", 1400, dns={"domain": "example"}, device_info={"type": "pci"})
    assert entry == expected


def test_host_side_has_no_entry_and_its_address_is_not_the_pods() -> None:
    ips = [{"address": "192.0.2.5/24", "interface": 1}, {"address": "203.0.113.1/24", "interface": 0}]
    assert brief(entries({"interfaces": [HOST_SIDE, POD_SIDE], "ips": ips})) == [("net1", ("192.0.2.5",), False)]


def test_address_without_interface_belongs_to_the_last_one_in_the_pod() -> None:
    interfaces = [POD_SIDE, {"name": "net1.7", "sandbox": "/n"}, HOST_SIDE]
    ips = [{"address": "192.0.2.5/24"}, {"address": "192.0.2.6/24", "interface": 0}]
    assert brief(entries({"interfaces": interfaces, "ips": ips})) == [("net1", ("192.0.2.6",), False), ("net1.7", ("192.0.2.5",), False)]


def test_plugin_that_names_no_sandbox_is_told_by_the_interface_of_our_name() -> None:
    found = entries({"interfaces": [{"name": "eth0"}], "ips": [{"address": "192.0.2.31/24"}]}, cluster=True, ifname="eth0")
    assert brief(found) == [("eth0", ("192.0.2.31",), True)]


def test_cluster_network_without_interfaces_has_one_default_entry() -> None:
    assert brief(entries({"ips": [{"address": "192.0.2.31/24"}]}, cluster=True, ifname="eth0")) == [("eth0", ("192.0.2.31",), True)]


def test_cluster_network_of_an_empty_result_has_one_default_entry() -> None:
    assert brief(entries({}, cluster=True, ifname="eth0")) == [("eth0", (), True)]


def test_secondary_network_of_an_empty_result_has_none() -> None:
    assert entries({}) == ()


def test_secondary_network_with_addresses_alone_has_an_entry() -> None:
    assert brief(entries({"ips": [{"address": "192.0.2.31/24"}]})) == [("net1", ("192.0.2.31",), False)]


def test_old_result_has_an_entry() -> None:
    conf = conflists.parse({"cniVersion": "0.2.0", "name": "blue", "type": "a"}, where="a test")
    result = results.parse({"cniVersion": "0.2.0", "ip4": {"ip": "192.0.2.5/24", "gateway": "192.0.2.1"}}, "")
    found = statuses.entries(Attachment(Delegate("blue", conf), "c1", "/n", "net1", result=result))
    assert brief(found) == [("net1", ("192.0.2.5",), False)]


def test_interface_on_the_host_alone_has_no_address_of_the_pod() -> None:
    assert brief(entries({"interfaces": [HOST_SIDE], "ips": [{"address": "192.0.2.5/24", "interface": 0}]})) == [("net1", (), False)]


def test_attachment_without_a_result_has_none() -> None:
    conf = conflists.parse({"cniVersion": "1.1.0", "name": "blue", "type": "a"}, where="a test")
    assert statuses.entries(Attachment(Delegate("blue", conf), "c1", "/n", "net1")) == ()


def test_auxiliary_chain_has_none() -> None:
    assert entries({"interfaces": [POD_SIDE]}, is_auxiliary=True) == ()


@pytest.mark.parametrize(
    ("ips", "default"),
    [
        ([], "eth0"),
        ([{"address": "192.0.2.5/24", "interface": 1, "gateway": "192.0.2.1"}], "eth1"),
        ([{"address": "192.0.2.5/24", "interface": 1}], "eth0"),
        ([{"address": "192.0.2.5/24", "gateway": "192.0.2.1"}], "eth0"),
        ([{"address": "192.0.2.5/24", "interface": 2, "gateway": "192.0.2.1"}], "eth0"),
    ],
    ids=["no address", "gateway", "no gateway", "no interface", "host side"],
)
def test_exactly_one_entry_of_the_cluster_network_is_the_default(ips: list[dict[str, object]], default: str) -> None:
    interfaces = [{"name": "eth0", "sandbox": "/n"}, {"name": "eth1", "sandbox": "/n"}, HOST_SIDE]
    found = entries({"interfaces": interfaces, "ips": ips}, cluster=True, ifname="eth0")
    assert [entry.interface for entry in found if entry.default] == [default]


@pytest.mark.parametrize(
    ("routes", "gateway"),
    [
        ([{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}, {"dst": "::/0", "gw": "2001:db8::1"}], ("192.0.2.1", "2001:db8::1")),
        ([{"dst": "0.0.0.0/1", "gw": "192.0.2.1"}], ()),
        ([{"dst": "0.0.0.0/0"}], ("192.0.2.254",)),
        ([{"dst": "::/0"}], ()),
        ([], ()),
    ],
    ids=["both families", "half of all", "of the address", "of no address", "none"],
)
def test_gateways_are_those_of_default_routes(routes: list[dict[str, str]], gateway: tuple[str, ...]) -> None:
    ips = [{"address": "2001:db8::5/64", "interface": 0}, {"address": "192.0.2.5/24", "gateway": "192.0.2.254", "interface": 0}]
    assert [entry.gateway for entry in entries({"interfaces": [POD_SIDE], "ips": ips, "routes": routes})] == [gateway]


def test_default_route_that_was_asked_for_is_told_in_place_of_the_gateway() -> None:
    selection = NetworkSelectionElement("blue", "shop", default_route=("192.0.2.1",))
    (entry,) = entries({"interfaces": [POD_SIDE], "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]}, selection=selection)
    assert (entry.gateway, entry.default_route) == ((), ("192.0.2.1",))


def test_empty_default_route_is_told_beside_the_plugins_gateway() -> None:
    selection = NetworkSelectionElement("blue", "shop", default_route=())
    (entry,) = entries({"interfaces": [POD_SIDE], "routes": [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}]}, selection=selection)
    assert (entry.gateway, entry.default_route) == (("192.0.2.1",), ())
