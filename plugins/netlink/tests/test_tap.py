"""A tap in a pod: made with every key, opened as a virtual machine opens it, and gone at the end."""

from __future__ import annotations

import fcntl
import json
import os
import struct
from typing import TYPE_CHECKING, Any

import pytest
from kinds import IPAM, Site, why_declined, why_not
from multus_netlink.tap import Tap

from multus.errors import InvalidConfigError, IOFailureError, MultusError

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(why_not("tap")), reason=why_not("tap") or "runs")

MAC = "0a:58:00:00:00:09"
TUNSETIFF = 0x400454CA
TAP_WITHOUT_PACKET_INFORMATION = 0x1002
MULTI_QUEUE = 0x0100


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(Tap(), "tap") as site:
        site.pod.run("ip", "link", "add", "br1", "type", "bridge")
        yield site


def told(site: Site) -> dict[str, Any]:
    """What the kernel says of the interface."""
    return dict(json.loads(site.pod.run("ip", "-j", "-d", "link", "show", "eth0"))[0])


def opened(site: Site, flags: int = TAP_WITHOUT_PACKET_INFORMATION) -> int:
    """A descriptor by which a program sends and receives what passes the interface."""
    with site.pod.entered():
        fd = os.open("/dev/net/tun", os.O_RDWR | os.O_CLOEXEC)
    try:
        fcntl.ioctl(fd, TUNSETIFF, struct.pack("16sH22x", b"eth0", flags))
    except OSError:
        os.close(fd)
        raise
    return fd


def test_without_keys_it_is_up_and_nobodys(site: Site) -> None:
    result = site.call("ADD", site.config())
    link = told(site)
    assert result == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "mac": link["address"], "sandbox": site.pod.path}],
    }
    info = link["linkinfo"]["info_data"]
    assert (link["mtu"], "UP" in link["flags"], "master" in link) == (1500, True, False)
    assert (info["type"], info["persist"], info["pi"], info["multi_queue"]) == ("tap", True, False, False)
    assert info.keys().isdisjoint(("user", "group"))


def test_every_key_is_the_kernels(site: Site) -> None:
    config = site.config(mac=MAC, mtu=1400, multiQueue=True, owner=0, group=4294967294, bridge="br1", dns={"domain": "a.org"})
    result = site.call("ADD", config)
    link = told(site)
    info = link["linkinfo"]["info_data"]
    assert (link["address"], link["mtu"], link["master"]) == (MAC, 1400, "br1")
    assert (info["multi_queue"], info["user"], info["group"]) == (True, "root", 4294967294)
    assert (result["interfaces"][0]["mac"], result["dns"]) == (MAC, {"domain": "a.org"})


@pytest.mark.parametrize(("key", "value"), [("owner", 0), ("owner", 4294967294), ("group", 0), ("group", 65534)])
def test_an_owner_or_a_group_alone_is_the_only_one(site: Site, key: str, value: int) -> None:
    site.call("ADD", site.config(**{key: value}))
    info = told(site)["linkinfo"]["info_data"]
    assert {"owner": "user" in info, "group": "group" in info} == {"owner": key == "owner", "group": key == "group"}


@pytest.mark.parametrize("queues", [False, True])
def test_a_program_gets_the_packets(site: Site, queues: bool) -> None:
    site.call("ADD", site.config(multiQueue=queues, ipam=IPAM))
    flags = TAP_WITHOUT_PACKET_INFORMATION | (MULTI_QUEUE if queues else 0)
    with pytest.raises(OSError, match="Invalid argument"):
        opened(site, flags ^ MULTI_QUEUE)
    first = opened(site, flags)
    try:
        if queues:
            os.close(opened(site, flags))
        site.pod.run("ping", "-n", "-c", "1", "-W", "0.1", "10.1.0.1", check=False)
        assert os.read(first, 2000)[12:14] in (b"\x08\x06", b"\x86\xdd")  # ARP or IPv6
    finally:
        os.close(first)


def test_the_mac_of_the_runtime_comes_before_that_of_the_arguments_and_of_the_configuration(site: Site) -> None:
    site.call("ADD", site.config(mac=MAC), args="IgnoreUnknown=1;MAC=0a:58:00:00:00:0a")
    assert told(site)["address"] == "0a:58:00:00:00:0a"
    site.call("DEL", site.config())
    site.call("ADD", site.config(mac=MAC, runtimeConfig={"mac": "0a:58:00:00:00:0b"}), args="MAC=0a:58:00:00:00:0a")
    assert told(site)["address"] == "0a:58:00:00:00:0b"


def test_addresses_and_routes_are_the_ipam_plugins(site: Site) -> None:
    result = site.call("ADD", site.config(ipam=IPAM))
    assert result["ips"] == [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"interface": 0, "address": "fd00::5/64"}]
    assert result["routes"] == IPAM["routes"]
    assert site.pod.links()["eth0"].addresses == ("10.1.0.5/24", "fd00::5/64")
    assert site.pod.run("cat", "/proc/sys/net/ipv4/conf/eth0/arp_notify").strip() == "1"


def test_after_delete_the_pod_is_as_before(site: Site) -> None:
    site.pod.run("ip", "link", "del", "br1")
    before = site.look()
    config = site.config(ipam=IPAM, multiQueue=True)
    site.call("ADD", config)
    fd = opened(site, TAP_WITHOUT_PACKET_INFORMATION | MULTI_QUEUE)
    try:
        for netns in ("/run/netns/gone", "", None, None):
            site.call("DEL", config, netns=netns)
    finally:
        os.close(fd)
    assert site.look() == before


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"mac": "odd"}, "mac 'odd' is not a MAC address of six bytes"),
        ({"mtu": -1}, "mtu -1 is not from 0 to 2147483647"),
        ({"mtu": "1400"}, "mtu '1400' is not a whole number"),
        ({"mtu": 10}, "cannot set mtu of link eth0 in NETNS: "),
        ({"owner": -1}, "owner -1 is not from 0 to 4294967294"),
        ({"owner": 4294967295}, "owner 4294967295 is not from 0 to 4294967294"),
        ({"group": "root"}, "group 'root' is not a whole number"),
        ({"multiQueue": 1}, "multiQueue 1 is not true or false"),
        ({"bridge": "nowhere"}, "there is no link nowhere in NETNS"),
        ({"bridge": "lo"}, "cannot set master of link eth0 in NETNS: Operation not supported"),
        ({"ipam": {"type": "static"}}, "ipam gives no address"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name_and_leaves_nothing(site: Site, config: dict[str, Any], message: str) -> None:
    with pytest.raises(MultusError) as caught:
        site.call("ADD", site.config(**config))
    assert caught.value.msg.replace(site.pod.path, "NETNS").startswith(f"interface eth0: {message}")
    assert list(site.pod.links()) == ["br1"]


@pytest.mark.parametrize("command", ["ip link add eth0 type bridge", "ip tuntap add mode tap name eth0"])
def test_an_interface_that_is_there_is_left_alone(site: Site, command: str) -> None:
    site.pod.run("sh", "-c", command)
    before = site.look()
    with pytest.raises(IOFailureError, match="interface eth0: there is a link of that name"):
        site.call("ADD", site.config())
    assert site.look() == before


def test_an_interface_that_comes_meanwhile_is_left_alone(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    site.pod.run("ip", "tuntap", "add", "mode", "tap", "name", "eth0")
    monkeypatch.setattr("multus_netlink.tap.require_absent", lambda *_: None)
    with pytest.raises(IOFailureError, match=r"interface eth0: cannot make it by /dev/net/tun in .*: Device or resource busy"):
        site.call("ADD", site.config())
    assert sorted(site.pod.links()) == ["br1", "eth0"]


def test_a_namespace_that_is_none_is_an_error_of_ours(site: Site) -> None:
    with pytest.raises(MultusError, match="/run/netns/gone"):
        site.call("ADD", site.config(), netns="/run/netns/gone")


@pytest.mark.parametrize("key", ["selinuxContext", "selinuxcontext"])
def test_a_context_of_selinux_is_declined(site: Site, key: str) -> None:
    context = "system_u:system_r:container_t:s0"
    told = [why_declined(site.delegate, site.invocation("ADD", site.config(**{key: each}))) for each in (context, "")]
    assert told == [f"key \"{key}\" '{context}' is not served", ""]


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("ip link set eth0 down", "it is down"),
        ("ip link set eth0 address 0a:58:00:00:00:77", f"its MAC is 0a:58:00:00:00:77, not {MAC}"),
        ("ip link set eth0 nomaster", "it is not on bridge br1"),
        ("ip link del br1", "there is no link br1 in NETNS"),
        ("ip address del 10.1.0.5/24 dev eth0", "address 10.1.0.5/24 is gone"),
        ("ip link del eth0", "there is no link eth0"),
        ("ip link del eth0; ip link add eth0 type bridge", "its kind is 'bridge', not 'tun'"),
    ],
)
def test_check_notices_drift(site: Site, command: str, message: str) -> None:
    config = site.config(mac=MAC, bridge="br1", ipam=IPAM)
    config["prevResult"] = site.call("ADD", config)
    site.call("CHECK", config)
    site.pod.run("sh", "-c", command)
    with pytest.raises(IOFailureError) as caught:
        site.call("CHECK", config)
    assert caught.value.msg.replace(site.pod.path, "NETNS").startswith(f"interface eth0: {message}")


def test_check_needs_a_previous_result(site: Site) -> None:
    with pytest.raises(InvalidConfigError, match="interface eth0: prevResult is missing"):
        site.call("CHECK", site.config())


def test_gc_and_status_are_the_ipam_plugins(site: Site, tmp_path: Path) -> None:
    config = site.config(ipam={"type": "host-local", "dataDir": str(tmp_path), "ranges": [[{"subnet": "10.1.0.0/24"}]]})
    site.call("ADD", config)
    site.call("STATUS", config)
    site.call("GC", {**config, "cni.dev/valid-attachments": []})
    assert "10.1.0.2" not in os.listdir(tmp_path / "net")
    with pytest.raises(MultusError):
        site.call("STATUS", {**config, "ipam": {"type": "host-local"}})
