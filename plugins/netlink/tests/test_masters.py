"""Interfaces that are made on another one, their master: macvlan here, ipvlan and vlan where the kernel has them."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from kinds import IPAM, Site, why_not
from multus_netlink.ipvlan import Ipvlan
from multus_netlink.macvlan import Macvlan
from multus_netlink.vlan import Vlan

from multus.errors import InvalidConfigError, IOFailureError, MultusError, NotAvailableError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from multus.hooks.delegates import InProcessDelegate

DELEGATES: dict[str, InProcessDelegate] = {"ipvlan": Ipvlan(), "macvlan": Macvlan(), "vlan": Vlan()}
OWN: dict[str, dict[str, Any]] = {"ipvlan": {"mode": "l3s"}, "macvlan": {"mode": "vepa", "bcqueuelen": 300}, "vlan": {"vlanId": 7}}
SHOWN: dict[str, dict[str, Any]] = {
    "ipvlan": {"mode": "l3s"}, "macvlan": {"mode": "vepa", "bcqueuelen": 300}, "vlan": {"protocol": "802.1Q", "id": 7}
}  # fmt: skip
OTHER: dict[str, tuple[dict[str, Any], str]] = {
    "ipvlan": ({"mode": "l2"}, "its mode is l3s, not l2"),
    "macvlan": ({"mode": "bridge"}, "its mode is vepa, not bridge"),
    "vlan": ({"vlanId": 8}, "its VLAN is 7, not 8"),
}
MAKE = "ip link add up0 type veth peer wire; ip link set up0 up; ip link set wire up; "


@pytest.fixture(params=list(DELEGATES))
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    reason = why_not(request.param)
    if reason:
        pytest.skip(reason)
    with Site(DELEGATES[request.param], request.param) as site:
        site.node.run("sh", "-c", MAKE + "ip address add 192.0.2.1/24 dev up0; ip route add default via 192.0.2.254")
        yield site


def config_of(site: Site, **more: Any) -> dict[str, Any]:
    return site.config(**{"master": "up0", "ipam": IPAM, **OWN[site.kind], **more})


def test_it_is_made_on_its_master_and_gone_after_delete(site: Site) -> None:
    before = site.look()
    config = config_of(site, mtu=1400, dns={"domain": "a.org"})
    result = site.call("ADD", config)
    link = site.pod.links()["eth0"]
    assert (link.kind, link.mtu, link.is_up, link.addresses) == (site.kind, 1400, True, ("10.1.0.5/24", "fd00::5/64"))
    assert result["interfaces"] == [{"name": "eth0", "mac": link.mac, "sandbox": site.pod.path}]
    assert (result["routes"], result["dns"]) == (IPAM["routes"], {"domain": "a.org"})
    shown = json.loads(site.pod.run("ip", "-j", "-d", "link", "show", "eth0"))[0]
    assert shown["link_index"] == json.loads(site.node.run("ip", "-j", "link", "show", "up0"))[0]["ifindex"]
    assert {key: shown["linkinfo"]["info_data"][key] for key in SHOWN[site.kind]} == SHOWN[site.kind]
    site.call("CHECK", {**config, "prevResult": result})
    for netns in ("/run/netns/gone", "", None, None):
        site.call("DEL", config, netns=netns)
    assert site.look() == before


def test_a_master_may_be_in_the_pod(site: Site) -> None:
    site.pod.run("sh", "-c", MAKE.replace("up0", "net0"))
    before = site.look()
    config = config_of(site, master="net0", linkInContainer=True)
    config["prevResult"] = site.call("ADD", config)
    shown = json.loads(site.pod.run("ip", "-j", "link", "show", "eth0"))[0]
    assert shown["link"] == "net0"
    for verb in ("CHECK", "STATUS", "GC"):
        site.call(verb, config)
    site.call("DEL", config)
    assert site.look() == before
    with pytest.raises(IOFailureError, match="interface eth0: there is no link up0 in /proc/"):
        site.call("ADD", {**config, "master": "up0"})


def test_a_link_of_the_hosts_name_may_be_in_the_way_of_neither(site: Site) -> None:
    site.node.run("ip", "link", "add", "eth0", "type", "bridge")
    site.call("ADD", config_of(site))
    assert site.pod.links()["eth0"].kind == site.kind


@pytest.mark.parametrize("where", ["host", "pod"])
def test_an_interface_that_is_there_is_left_alone(site: Site, where: str) -> None:
    site.pod.run("sh", "-c", MAKE + "ip link add eth0 type bridge")
    before = site.look()
    with pytest.raises(IOFailureError, match="interface eth0: "):
        site.call("ADD", config_of(site, linkInContainer=where == "pod"))
    assert site.look() == before


def test_a_failed_add_leaves_neither_interface_nor_address(site: Site, tmp_path: Path) -> None:
    ranges = [[{"subnet": "10.1.0.0/24"}]]
    ipam = {"type": "host-local", "dataDir": str(tmp_path), "ranges": ranges, "routes": [{"dst": "198.51.100.0/24", "gw": "192.168.9.9"}]}
    before = site.look()
    with pytest.raises(IOFailureError, match=r"^interface eth0: cannot add the route to 198\.51\.100\.0/24 via 192\.168\.9\.9"):
        site.call("ADD", config_of(site, ipam=ipam))
    assert (site.look(), "10.1.0.2" in os.listdir(tmp_path / "net")) == (before, False)


def test_a_value_that_is_too_large_is_refused_by_name(site: Site) -> None:
    refused = "interface eth0: mtu 9000 is not from 0 to that of master up0, 1500"
    with pytest.raises(InvalidConfigError, match=refused):
        site.call("ADD", config_of(site, mtu=9000))
    previous = site.call("ADD", config_of(site))
    with pytest.raises(InvalidConfigError, match=refused):
        site.call("CHECK", config_of(site, mtu=9000, prevResult=previous))


def test_check_notices_another_master_and_what_is_its_kinds_own(site: Site) -> None:
    config = config_of(site)
    config["prevResult"] = site.call("ADD", config)
    site.node.run("ip", "link", "set", "wire", "mtu", "1400")
    with pytest.raises(IOFailureError, match="interface eth0: it is not on wire"):
        site.call("CHECK", {**config, "master": "wire"})
    other, message = OTHER[site.kind]
    with pytest.raises(IOFailureError, match=f"interface eth0: {message}"):
        site.call("CHECK", {**config, **other})
    site.pod.run("ip", "link", "set", "eth0", "down")
    with pytest.raises(IOFailureError, match="interface eth0: it is down"):
        site.call("CHECK", config)


def test_status_tells_of_a_master_that_is_missing(site: Site) -> None:
    site.call("STATUS", config_of(site))
    with pytest.raises(NotAvailableError, match="there is no link nowhere"):
        site.call("STATUS", config_of(site, master="nowhere"))


@pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")
@pytest.mark.parametrize(
    ("kind", "config", "message"),
    [
        ("macvlan", {"bcqueuelen": -1}, "bcqueuelen -1 is not from 0 to 4294967295"),
        ("macvlan", {"linkInContainer": 1}, "linkInContainer 1 is not true or false"),
        ("vlan", {"vlanId": 4095}, "vlanId 4095 is not from 0 to 4094"),
        ("vlan", {"vlanId": -1}, "vlanId -1 is not from 0 to 4094"),
        ("vlan", {"vlanId": "7"}, "vlanId '7' is not a whole number"),
        ("vlan", {"master": ""}, "master '' is not the name of a link"),
        ("vlan", {"master": None}, "master None is not the name of a link"),
        ("vlan", {"ipam": {}}, "ipam.type None is not host-local or static"),
        ("ipvlan", {"mode": "l4"}, "mode 'l4' is not one of l2, l3, l3s"),
        ("ipvlan", {"ipam": {}}, "ipam.type None is not host-local or static"),
        ("ipvlan", {"master": "", "prevResult": {}}, "master '' is not given, and prevResult has not one interface to take"),
        ("ipvlan", {"master": ""}, "master '' is not given, and there is no default route to go by"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(kind: str, config: dict[str, Any], message: str) -> None:
    with Site(DELEGATES[kind], kind) as site:
        with pytest.raises(MultusError) as caught:
            site.call("ADD", config_of(site, **config))
        assert (caught.value.msg, list(site.pod.links())) == (f"interface eth0: {message}", [])
