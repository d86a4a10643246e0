"""The networks on a node: what CHECK wants, what a failed ADD leaves, what DEL does without a namespace."""

from __future__ import annotations

import json
import os
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from sides import DELEGATES, UPLINK, Side, can_run, invocation_of, run_binary

from multus.errors import InvalidConfigError, IOFailureError, MultusError, NotAvailableError
from multus.testing.pods import Pod

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

ROUTES = [{"dst": "198.51.100.0/24", "gw": "10.1.0.1"}, {"dst": "203.0.113.0/24"}, {"dst": "::/0"}]
EXTRA: dict[str, dict[str, Any]] = {"bridge": {"bridge": "br7", "isGateway": True}, "macvlan": {"master": UPLINK}, "ptp": {}}
WITHOUT_IPAM = ("bridge", "macvlan")


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with Side(False, str(tmp_path)) as side, side.node.entered():
        yield side


def config_of(kind: str, side: Side, **more: Any) -> dict[str, Any]:
    ranges = [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]
    ipam = {"type": "host-local", "dataDir": side.data_dir, "ranges": ranges, "routes": ROUTES}
    return {"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": ipam, **EXTRA[kind], **more}


def call(side: Side, verb: str, config: dict[str, Any]) -> Any:
    invocation = invocation_of(side.pod, verb, config)
    delegate = DELEGATES[config["type"]]
    methods = {"ADD": delegate.add, "DEL": delegate.delete, "CHECK": delegate.check, "GC": delegate.gc, "STATUS": delegate.status}
    return methods[verb](invocation)


def leases(side: Side) -> list[str]:
    names = os.listdir(os.path.join(side.data_dir, "net"))
    return sorted(name for name in names if name != "lock" and not name.startswith("last_reserved_ip"))


@pytest.mark.parametrize("kind", EXTRA)
def test_check_notices_that_a_route_without_a_gateway_is_gone(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    config["prevResult"] = dict(call(side, "ADD", config).document)
    call(side, "CHECK", config)
    side.pod.run("ip", "route", "del", "203.0.113.0/24")
    with pytest.raises(IOFailureError, match=r"^interface eth0: the route to 203\.0\.113\.0/24 via any gateway is gone"):
        call(side, "CHECK", config)


@pytest.mark.parametrize("kind", EXTRA)
def test_check_takes_a_result_of_the_binary_and_wants_a_lease(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    config["prevResult"] = json.loads(run_binary(side.pod, "ADD", config).stdout)
    call(side, "CHECK", config)
    os.unlink(os.path.join(side.data_dir, "net", "10.1.0.2"))
    os.unlink(os.path.join(side.data_dir, "net", "fd00::2"))
    with pytest.raises(IOFailureError, match="has no address in"):
        call(side, "CHECK", config)


def test_check_of_macvlan_notices_another_mode_and_master(side: Side) -> None:
    config = config_of("macvlan", side)
    config["prevResult"] = dict(call(side, "ADD", config).document)
    with pytest.raises(IOFailureError, match="its mode is bridge, not vepa"):
        call(side, "CHECK", {**config, "mode": "vepa"})
    with pytest.raises(IOFailureError, match="it is not on outside"):
        call(side, "CHECK", {**config, "master": "outside"})


@pytest.mark.parametrize("kind", EXTRA)
def test_check_needs_a_previous_result_of_this_interface(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    result = dict(call(side, "ADD", config).document)
    with pytest.raises(InvalidConfigError, match="prevResult is missing"):
        call(side, "CHECK", config)
    with pytest.raises(InvalidConfigError, match="prevResult has no interface of that name"):
        call(side, "CHECK", {**config, "prevResult": {**result, "interfaces": []}})


def test_check_of_loopback_notices_that_it_is_down(side: Side) -> None:
    config = {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
    call(side, "ADD", config)
    call(side, "CHECK", config)
    call(side, "DEL", config)
    with pytest.raises(IOFailureError, match="interface lo: it is down"):
        call(side, "CHECK", config)
    assert (call(side, "GC", config), call(side, "STATUS", config)) == (None, None)


def test_loopback_with_an_address_of_the_outside_is_refused(side: Side) -> None:
    side.pod.run("ip", "address", "add", "192.0.2.77/32", "dev", "lo")
    with pytest.raises(InvalidConfigError, match=r"interface lo: address 192\.0\.2\.77/32 is not a loopback address"):
        call(side, "ADD", {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"})


@pytest.mark.parametrize("kind", EXTRA)
def test_delete_without_a_namespace_frees_the_addresses(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    call(side, "ADD", config)
    for netns in ("/run/netns/gone", "", side.data_dir):
        DELEGATES[kind].delete(invocation_of(side.pod, "DEL", config)._replace(netns=netns))
    assert leases(side) == []
    call(side, "DEL", config)
    call(side, "DEL", config)
    assert list(side.pod.links()) == []


@pytest.mark.parametrize("netns", ["/run/netns/gone", ""])
def test_delete_of_loopback_without_a_namespace_is_no_error(side: Side, netns: str) -> None:
    config = {"cniVersion": "1.0.0", "name": "lo", "type": "loopback"}
    DELEGATES["loopback"].delete(invocation_of(side.pod, "DEL", config)._replace(netns=netns))


@pytest.mark.parametrize("kind", EXTRA)
def test_delete_removes_the_interface_though_the_addresses_cannot_be_freed(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    call(side, "ADD", config)
    config["ipam"]["dataDir"] = "/dev/null"
    with pytest.raises(IOFailureError, match="cannot lock the address store"):
        call(side, "DEL", config)
    assert list(side.pod.links()) == []


@pytest.mark.parametrize("kind", EXTRA)
def test_a_failed_add_leaves_neither_interface_nor_address(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    config["ipam"]["routes"] = [{"dst": "198.51.100.0/24", "gw": "192.168.9.9"}]
    with pytest.raises(IOFailureError, match=r"^interface eth0: cannot add the route to 198\.51\.100\.0/24 via 192\.168\.9\.9"):
        call(side, "ADD", config)
    assert (list(side.pod.links()), leases(side)) == ([], [])


@pytest.mark.parametrize("kind", EXTRA)
def test_an_add_for_an_interface_that_is_there_leaves_it_alone(side: Side, kind: str) -> None:
    side.pod.run("ip", "link", "add", "eth0", "type", "bridge")
    with pytest.raises(IOFailureError, match="interface eth0: "):
        call(side, "ADD", config_of(kind, side))
    assert {name: link.kind for name, link in side.pod.links().items()} == {"eth0": "bridge"}


def test_macvlan_may_have_the_name_of_its_master(side: Side) -> None:
    side.node.run("ip", "link", "add", "eth0", "type", "bridge")
    call(side, "ADD", config_of("macvlan", side))
    assert side.pod.links()["eth0"].kind == "macvlan"


def test_macvlan_without_a_master_and_without_a_default_route_is_refused(side: Side) -> None:
    side.node.run("ip", "route", "del", "default")
    with pytest.raises(InvalidConfigError, match="interface eth0: master '' is not given"):
        call(side, "ADD", config_of("macvlan", side, master=""))


@pytest.mark.parametrize("kind", EXTRA)
def test_status_tells_of_addresses_and_masters_that_are_missing(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    call(side, "STATUS", config)
    with pytest.raises(NotAvailableError):
        call(side, "STATUS", {**config, "ipam": {"type": "host-local"}})
    if kind == "macvlan":
        with pytest.raises(NotAvailableError, match="there is no link nowhere"):
            call(side, "STATUS", {**config, "master": "nowhere"})


@pytest.mark.parametrize("kind", EXTRA)
def test_gc_takes_addresses_back(side: Side, kind: str) -> None:
    config = config_of(kind, side)
    call(side, "ADD", config)
    call(side, "GC", {**config, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]})
    assert leases(side) == ["10.1.0.2", "fd00::2"]
    call(side, "GC", {**config, "cni.dev/valid-attachments": []})
    assert leases(side) == []


def test_an_ipam_that_gives_nothing_is_refused(side: Side) -> None:
    with pytest.raises(InvalidConfigError, match="interface eth0: ipam gives no address"):
        call(side, "ADD", {**config_of("bridge", side), "ipam": {"type": "static"}})
    assert list(side.pod.links()) == []


def test_a_bridge_gets_another_address_only_by_force(side: Side) -> None:
    side.node.run("sh", "-c", "ip link add br7 type bridge; ip address add 10.9.0.1/24 dev br7; ip address add fd00::9/64 dev br7")
    with pytest.raises(InvalidConfigError, match=r"bridge 'br7' has the address 10\.9\.0\.1/24, not 10\.1\.0\.1/24"):
        call(side, "ADD", config_of("bridge", side))
    call(side, "ADD", config_of("bridge", side, forceAddress=True))
    assert side.node.links()["br7"].addresses == ("10.1.0.1/24", "fd00::1/64")


def test_the_pod_reaches_its_gateway_and_another_pod(side: Side) -> None:
    config = config_of("bridge", side)
    with Pod("other", container_id="c2") as other:
        call(side, "ADD", config)
        DELEGATES["bridge"].add(invocation_of(other, "ADD", config))
        assert [side.pod.pings("10.1.0.1"), side.pod.pings("10.1.0.3"), other.pings("fd00::2")] == [True, True, True]


def test_many_threads_attach_and_detach_at_once(side: Side) -> None:
    config = config_of("bridge", side)
    config["ipam"] = {**config["ipam"], "ranges": [[{"subnet": "10.1.0.0/24"}]], "routes": []}
    pods = [Pod(f"p{number}") for number in range(12)]

    def attach(pod: Pod) -> str:
        with side.node.entered():
            return str(DELEGATES["bridge"].add(invocation_of(pod, "ADD", config)).document["ips"][0]["address"])  # type: ignore[index]

    def detach(pod: Pod) -> None:
        with side.node.entered():
            DELEGATES["bridge"].delete(invocation_of(pod, "DEL", config))

    for pod in pods:
        pod.__enter__()
    try:
        with ThreadPoolExecutor(6) as pool:
            given = list(pool.map(attach, pods))
            assert [pod.links()["eth0"].addresses for pod in pods] == [(each,) for each in given]
            list(pool.map(detach, pods))
    finally:
        for pod in pods:
            pod.__exit__(None, None, None)
    assert (len(set(given)), leases(side)) == (12, [])


def test_a_namespace_that_is_none_is_an_error_of_ours(side: Side) -> None:
    for kind in EXTRA:
        with pytest.raises(MultusError, match="/run/netns/gone"):
            DELEGATES[kind].add(invocation_of(side.pod, "ADD", config_of(kind, side))._replace(netns="/run/netns/gone"))


@pytest.mark.parametrize("kind", WITHOUT_IPAM)
def test_the_result_tells_the_macs_of_the_kernel(side: Side, kind: str) -> None:
    document: Any = call(side, "ADD", config_of(kind, side, runtimeConfig={"mac": "0a:58:00:00:00:07"})).document
    links = {**side.node.links(), **side.pod.links()}
    assert [links[each["name"]].mac for each in document["interfaces"]] == [each["mac"] for each in document["interfaces"]]
    assert document["interfaces"][-1] == {"name": "eth0", "mac": "0a:58:00:00:00:07", "sandbox": side.pod.path}


@pytest.mark.parametrize("kind", ["bridge", "ptp"])
@pytest.mark.parametrize(
    ("dns", "expected"), [({}, {"domain": "a.org"}), ({"domain": ""}, {"domain": "a.org"}), ({"search": ["b.org"]}, {"search": ["b.org"]})]
)
def test_name_servers_of_the_configuration_go_before_those_of_the_ipam(
    side: Side, kind: str, dns: dict[str, Any], expected: dict[str, Any]
) -> None:
    ipam = {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}], "dns": {"domain": "a.org"}}
    config = config_of(kind, side, ipam=ipam, dns=dns)
    assert call(side, "ADD", config).document["dns"] == expected
    call(side, "DEL", config)
    assert "dns" not in call(side, "ADD", {**config, "dns": {"search": []}}).document, "a list that is empty says that there are none"


@pytest.mark.parametrize("kind", WITHOUT_IPAM)
def test_an_interface_without_ipam_is_up_and_has_no_address(side: Side, kind: str) -> None:
    config = config_of(kind, side, ipam={}, dns={"domain": "a.org"})
    result = call(side, "ADD", config)
    link = side.pod.links()["eth0"]
    assert (link.is_up, link.addresses, result.document.get("ips"), result.document["dns"]) == (True, (), None, {"domain": "a.org"})
    call(side, "CHECK", {**config, "prevResult": dict(result.document)})
    for verb in ("STATUS", "GC", "DEL"):
        call(side, verb, config)
    assert list(side.pod.links()) == []


@pytest.mark.parametrize(
    ("kind", "more", "message"),
    [
        ("macvlan", {"mode": "odd"}, "mode 'odd' is not one of bridge, private, vepa, passthru"),
        ("macvlan", {"mtu": 9000}, f"mtu 9000 is not from 0 to that of master {UPLINK}, 1500"),
        ("macvlan", {"master": "nowhere"}, "there is no link nowhere in the host"),
        ("bridge", {"mtu": -1}, "mtu -1 is not from 0 to 2147483647"),
        ("ptp", {"mtu": 10**20}, "mtu 100000000000000000000 is not from 0 to 2147483647"),
        ("bridge", {"bridge": UPLINK}, f"bridge '{UPLINK}' is not a bridge, but of kind 'veth'"),
        ("bridge", {"hairpinMode": True, "promiscMode": True}, "hairpinMode True is not possible together with promiscMode"),
        ("bridge", {"disableContainerInterface": True}, "disableContainerInterface True is not possible together with ipam"),
        ("ptp", {"ipam": {}}, "ipam is missing, and without addresses there is nothing to route to"),
        ("ptp", {"ipam": {"type": "static", "addresses": [{"address": "10.1.0.5/24"}]}}, "ipam gives the address 10.1.0.5/24 no gateway"),
        ("bridge", {"ipam": {"type": "dhcp"}}, "ipam.type 'dhcp' is not host-local or static"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(side: Side, kind: str, more: dict[str, Any], message: str) -> None:
    with pytest.raises(MultusError) as caught:
        call(side, "ADD", config_of(kind, side, **more))
    assert (caught.value.msg, list(side.pod.links())) == (f"interface eth0: {message}", [])


def test_check_of_bridge_wants_the_bridge_of_the_previous_result(side: Side) -> None:
    config = config_of("bridge", side)
    result: Any = dict(call(side, "ADD", config).document)
    with pytest.raises(InvalidConfigError, match="prevResult has no bridge 'br7'"):
        call(side, "CHECK", {**config, "prevResult": {**result, "interfaces": result["interfaces"][1:]}})
    side.node.run("sh", "-c", "ip link del br7; ip link add br7 type veth peer br8")
    with pytest.raises(IOFailureError, match="br7 is no bridge, but of kind 'veth'"):
        call(side, "CHECK", {**config, "prevResult": result})


def test_a_bridge_that_detects_duplicate_addresses_says_so_to_the_kernel(side: Side) -> None:
    config = config_of("bridge", side, enabledad=True, promiscMode=True, hairpinMode=False)
    call(side, "ADD", config)
    assert side.pod.run("sh", "-c", "cat /proc/sys/net/ipv6/conf/eth0/accept_dad").strip() == "1"
    assert "PROMISC" in side.node.run("ip", "link", "show", "br7")


def test_an_ipv6_address_that_another_host_has_is_an_error(side: Side) -> None:
    ipam = {"type": "static", "addresses": [{"address": "fd00::77/64", "gateway": "fd00::1"}]}
    config = config_of("bridge", side, ipam=ipam, enabledad=True)
    with Pod("other", container_id="c2") as other:
        DELEGATES["bridge"].add(invocation_of(other, "ADD", {**config, "enabledad": False}))
        with pytest.raises(IOFailureError, match="interface eth0: address fd00::77/64 is in use by another host"):
            call(side, "ADD", config)
    assert list(side.pod.links()) == []


def test_a_port_is_isolated(side: Side) -> None:
    call(side, "ADD", config_of("bridge", side, portIsolation=True, hairpinMode=True))
    shown = side.node.run("ip", "-d", "link", "show", "master", "br7")
    assert ("isolated on" in shown, "hairpin on" in shown) == (True, True)


def test_an_interface_that_is_disabled_is_down_and_checked_all_the_same(side: Side) -> None:
    config = config_of("bridge", side, ipam={}, disableContainerInterface=True)
    config["prevResult"] = dict(call(side, "ADD", config).document)
    assert not side.pod.links()["eth0"].is_up
    call(side, "CHECK", config)
    side.pod.run("ip", "link", "set", "eth0", "address", "0a:58:00:00:00:77")
    with pytest.raises(IOFailureError, match="interface eth0: its MAC is"):
        call(side, "CHECK", config)


def test_hairpin_mode_is_the_ports(side: Side) -> None:
    call(side, "ADD", config_of("bridge", side, hairpinMode=True))
    assert "hairpin on" in side.node.run("ip", "-d", "link", "show", "master", "br7")


def test_a_pod_of_ptp_reaches_the_host_and_another_pod(side: Side) -> None:
    config = config_of("ptp", side)
    with Pod("other", container_id="c2") as other:
        call(side, "ADD", config)
        DELEGATES["ptp"].add(invocation_of(other, "ADD", config))
        assert [side.pod.pings("10.1.0.1"), side.pod.pings("10.1.0.3"), other.pings("fd00::2")] == [True, True, True]


@pytest.mark.parametrize("kind", EXTRA)
def test_an_undoing_that_fails_itself_hides_nothing(side: Side, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    config = config_of(kind, side)
    config["ipam"]["routes"] = [{"dst": "198.51.100.0/24", "gw": "192.168.9.9"}]

    def refuse(*_: object) -> None:
        raise IOFailureError("refused")

    monkeypatch.setattr("multus_netlink.links.Links.remove", refuse)
    monkeypatch.setattr("multus_netlink.ipam.release", refuse)
    with pytest.raises(IOFailureError, match="cannot add the route"):
        call(side, "ADD", config)


@pytest.mark.parametrize("ifname", ["net1", UPLINK])
def test_an_interface_of_the_pod_may_have_the_name_of_one_of_the_host(side: Side, ifname: str) -> None:
    side.pod.ifname = ifname
    config = config_of("macvlan", side)
    links = set(side.node.links())
    result = call(side, "ADD", config)
    assert (list(side.pod.links()), set(side.node.links())) == ([ifname], links)
    assert result.document["interfaces"][0]["mac"] == side.pod.links()[ifname].mac
    with pytest.raises(MultusError, match="File exists"):
        call(side, "ADD", config)
    assert list(side.pod.links()) == [ifname]
    call(side, "DEL", config)
    assert (side.pod.links(), leases(side)) == ({}, [])
