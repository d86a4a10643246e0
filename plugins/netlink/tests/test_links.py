"""Links, addresses and routes as the kernel has them, and as it refuses them; what needs pyroute2, and what does not."""

from __future__ import annotations

import errno
import json
import subprocess
import sys
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import given
from hypothesis import strategies as st
from multus_netlink import link_messages
from multus_netlink.links import Links
from sides import can_run

from multus import rtnetlink
from multus.errors import InvalidNetnsError, IOFailureError
from multus.rtnetlink import Netlink, attribute, parsed
from multus.testing.pods import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator

on_a_kernel = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")


@pytest.fixture
def namespace() -> Iterator[Namespace]:
    with Namespace() as namespace:
        yield namespace


def shown(namespace: Namespace, *command: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(namespace.run("ip", "-j", "-d", *command) or "[]")
    return [each for each in found if each]


@given(st.dictionaries(st.integers(0, 0x3FFF), st.binary(max_size=70)))
def test_attributes_are_read_as_they_were_written(attributes: dict[int, bytes]) -> None:
    packed = b"".join(attribute(number, payload) for number, payload in attributes.items())
    assert len(packed) % 4 == 0
    assert parsed(packed) == attributes


@given(st.binary(max_size=64))
def test_any_bytes_are_read_to_an_end(data: bytes) -> None:
    assert all(len(payload) <= len(data) for payload in parsed(data).values())


@pytest.mark.parametrize(
    ("kind", "fields"),
    [
        ("macvlan", {"macvlan_mode": "vepa", "macvlan_bc_queue_len": 7}),
        ("ipvlan", {"ipvlan_mode": "l3s", "ipvlan_flags": 1}),
        ("vlan", {"vlan_id": 4094, "vlan_protocol": 0x88A8}),
        ("vrf", {"vrf_table": 70000}),
        ("bridge", {"br_vlan_filtering": 1, "br_ageing_time": 100}),
        ("vlan", {"vlan_id": 0}),
        ("dummy", {}),
    ],
)
def test_what_only_a_kind_has_is_read_as_it_was_written(kind: str, fields: dict[str, Any]) -> None:
    given = {"ifname": "net1", "mtu": 1400, "address": "0a:58:00:00:00:01", "master": 3, **fields}
    assert link_messages.is_known(kind, given)
    message = rtnetlink.Message((0, 0, 9, 1, 0), parsed(link_messages.packed(kind, given)))
    link = link_messages.link_of(message)
    assert link[:6] == (9, "net1", kind, "0a:58:00:00:00:01", 1400, True)
    assert (link.master, link.details, link.mode) == (3, fields, fields.get(f"{kind}_mode", ""))


def test_only_known_fields_are_packed() -> None:
    assert not link_messages.is_known("bridge", {"br_hello_time": 1})
    assert not link_messages.is_known("vxlan", {})
    assert not link_messages.is_known("veth", {"peer": {"ifname": "a", "unheard_of": 1}})
    assert link_messages.is_known("veth", {"peer": {"ifname": "a", "net_ns_fd": 3}})
    assert link_messages.is_known("bridge_slave", {"index": 3, "mode": 1})


@on_a_kernel
@pytest.mark.parametrize("field", ["br_ageing_time", "br_hello_time"])  # one that is known here, one that pyroute2 knows
def test_a_link_is_made_with_what_only_its_kind_has(namespace: Namespace, field: str) -> None:
    with Links(namespace.path, "net1") as links:
        assert links.add("br0", "bridge", mtu=1400, address="0a:58:00:00:00:05", **{field: 300})
        assert not links.add("br0", "bridge", may_exist=True, **{field: 300})
        found = links.get("br0")
    assert (found.kind, found.mtu, found.mac, found.is_up) == ("bridge", 1400, "0a:58:00:00:00:05", False)
    (link,) = shown(namespace, "link", "show", "br0")
    assert link["linkinfo"]["info_data"][field.removeprefix("br_")] == 300


@on_a_kernel
@pytest.mark.parametrize("value", [1500, 10**6])
def test_a_link_is_changed(namespace: Namespace, value: int) -> None:
    with Links(namespace.path, "net1") as links:
        links.add("veth0", "veth", peer={"ifname": "veth1", "address": "0a:58:00:00:00:06"})
        link, peer = links.get("veth0"), links.get("veth1")
        assert (link.peer, peer.peer, peer.mac) == (peer.ifindex, link.ifindex, "0a:58:00:00:00:06")
        links.set_up(link)
        links.set_promiscuous(link)
        links.set_up(peer)
        found = links.get("veth0")
        assert (found.is_up, found.is_promiscuous, found.is_operational) == (True, True, True)
        if value > found.mtu:
            with pytest.raises(IOFailureError, match=r"^interface net1: cannot widen link veth0 in .*: Invalid argument"):
                links.change(link, "widen", mtu=value)
        links.set_down(link)
        assert not links.get("veth0").is_up
        links.remove("veth0")
        links.remove("veth0")
        assert (links.find("veth1"), links.at(peer.ifindex)) == (None, None)


@on_a_kernel
def test_addresses_and_routes_are_the_kernels(namespace: Namespace) -> None:
    with Links(namespace.path) as links:
        links.add("veth0", "veth", peer={"ifname": "veth1"})
        link = links.get("veth0")
        for name in ("veth0", "veth1"):
            links.set_up(links.get(name))
        for cidr in ("10.1.0.2/24", "10.2.0.2/31", "fd00::2/64"):
            links.add_address(link, cidr)
        links.add_address(link, "10.1.0.2/24", may_exist=True)
        assert [each.cidr for each in links.addresses(link, 4)] == ["10.1.0.2/24", "10.2.0.2/31"]
        assert "fd00::2/64" in [each.cidr for each in links.addresses(link, 6)]
        broadcasts = {each["local"]: each.get("broadcast") for each in shown(namespace, "-4", "address", "show", "veth0")[0]["addr_info"]}
        assert broadcasts == {"10.1.0.2": "10.1.0.255", "10.2.0.2": None}
        links.add_route(link, "0.0.0.0/0", "10.1.0.1", priority=50, prefsrc="10.1.0.2", metrics={"mtu": 1300, "advmss": 1200})
        links.add_route(link, "198.51.100.0/24", "", scope=253)
        links.add_route(link, "198.51.100.0/24", "", scope=253, exclusive=True, may_exist=True)
        links.add_route(link, "192.0.2.0/24", "10.1.0.1", table=1000)
        namespace.run("ip", "route", "add", "203.0.113.0/24", "nexthop", "via", "10.1.0.3", "dev", "veth0", "nexthop", "via", "10.1.0.4")
        routes = {(each.dst, each.gateway, each.oif) for each in links.routes(4)}
        wanted = {("0.0.0.0/0", "10.1.0.1"), ("198.51.100.0/24", ""), ("203.0.113.0/24", "10.1.0.3"), ("203.0.113.0/24", "10.1.0.4"),
                  ("10.1.0.0/24", ""), ("10.2.0.2/31", "")}  # fmt: skip
        assert routes == {(*each, link.ifindex) for each in wanted}
        assert ("fd00::/64", "", link.ifindex) in set(links.routes(6))
        (default,) = shown(namespace, "route", "show", "default")
        assert (default["metric"], default["prefsrc"], default["metrics"]) == (50, "10.1.0.2", [{"mtu": 1300, "advmss": 1200}])
        assert [each["dst"] for each in shown(namespace, "route", "show", "table", "1000")] == ["192.0.2.0/24"]
        links.remove_route(link, "198.51.100.0/24")
        links.remove_address(link, links.addresses(link, 4)[1])
        assert "198.51.100.0/24" not in {each.dst for each in links.routes(4)}
        assert [each.cidr for each in links.addresses(link, 4)] == ["10.1.0.2/24"]


@on_a_kernel
def test_many_routes_are_all_listed(namespace: Namespace) -> None:
    script = "for i in $(seq 1 250); do for j in 1 2 3 4; do echo route add 10.$i.$j.0/24 dev lo; done; done | ip -batch -"
    namespace.run("sh", "-c", "ip link set lo up; " + script)
    with Links(namespace.path) as links:
        assert len(list(links.routes(4))) == 1000


@on_a_kernel
def test_the_kernels_own_reason_is_told(namespace: Namespace) -> None:
    with namespace.entered():
        netlink = Netlink()
        try:
            with pytest.raises(OSError, match=r"^\[Errno 95\] Operation not supported \(Unknown device type\)$") as caught:
                netlink.ask(rtnetlink.NEWLINK, (0, 0, 0, 0, 0), attribute(18, attribute(1, b"no-such-kind\0")), rtnetlink.CREATE)
            assert caught.value.errno == errno.EOPNOTSUPP
            (answer,) = netlink.ask(rtnetlink.GETLINK, (0, 0, 1, 0, 0))  # the socket is good for the next request
            assert link_messages.link_of(answer).name == "lo"
        finally:
            netlink.close()


@on_a_kernel
def test_a_listing_that_changed_is_asked_for_again_and_not_for_ever(namespace: Namespace, monkeypatch: pytest.MonkeyPatch) -> None:
    answers: list[list[rtnetlink.Message] | None] = [None, []]
    with Links(namespace.path) as links:
        monkeypatch.setattr(Netlink, "_answers", lambda *_: answers.pop(0))
        assert list(links.routes(4)) == []
        monkeypatch.setattr(Netlink, "_answers", lambda *_: None)
        with pytest.raises(IOFailureError, match=r"cannot list the routes in .*: it changes all the time$"):
            list(links.routes(4))


@on_a_kernel
def test_a_path_that_is_no_namespace_is_an_error() -> None:
    with pytest.raises(InvalidNetnsError), Links("/dev/null"):
        pass


@on_a_kernel
@pytest.mark.parametrize("kind", ["bridge", "macvlan", "ptp"])
def test_a_pod_is_attached_and_detached_without_pyroute2(kind: str) -> None:
    """It takes 150 ms and 12 MiB."""
    script = f"""
import sys
sys.path[:0] = {sys.path!r}
from sides import DELEGATES, Side, invocation_of
from tempfile import TemporaryDirectory
with TemporaryDirectory() as folder, Side(False, folder) as side, side.node.entered():
    ipam = {{"type": "host-local", "dataDir": folder, "ranges": [[{{"subnet": "10.1.0.0/24"}}]], "routes": [{{"dst": "0.0.0.0/0"}}]}}
    config = {{"cniVersion": "1.0.0", "name": "net", "type": {kind!r}, "ipam": ipam}}
    DELEGATES[{kind!r}].add(invocation_of(side.pod, "ADD", config))
    DELEGATES[{kind!r}].delete(invocation_of(side.pod, "DEL", config))
assert "pyroute2" not in sys.modules
"""
    subprocess.run([sys.executable, "-c", script], check=True, timeout=60)


@on_a_kernel
def test_links_are_listed_with_their_aliases(namespace: Namespace) -> None:
    with Links(namespace.path) as links:
        links.add("veth0", "veth", peer={"ifname": "veth1"})
        links.change(links.get("veth0"), "label", ifalias="of the host")
        assert {each.name: each.alias for each in links.every()} == {"lo": "", "veth0": "of the host", "veth1": ""}
        links.change(links.get("veth0"), "label", ifalias="")
        assert links.get("veth0").alias == ""


@on_a_kernel
@pytest.mark.parametrize("table", [10, 1000])
def test_routes_are_made_again_as_they_were_in_another_table(namespace: Namespace, table: int) -> None:
    script = """
set -e
ip link add veth0 type veth peer veth1; ip link set veth0 up; ip link set veth1 up
ip address add 10.1.0.2/24 dev veth0; ip address add fd00::2/64 dev veth0 nodad
ip route add default via 10.1.0.1
ip route add 10.9.0.0/16 via 10.1.0.3 metric 77 mtu 1300 advmss 1000 src 10.1.0.2 proto 99 tos 4
ip route add 192.168.0.1 dev veth0 scope link; ip route add 10.8.0.0/16 via 192.168.0.1
ip route add 10.7.0.0/16 via 192.168.9.9 dev veth0 onlink
ip route add 10.6.0.0/16 via inet6 fd00::9 dev veth0
ip -6 route add default via fd00::1 metric 5; ip -6 route add 2001:db8::/32 via fd00::3 src fd00::2 pref high
ip route add 10.5.0.0/16 dev veth1; ip route add 10.4.0.0/16 dev veth0 table 7; ip route add unreachable 10.3.0.0/16
"""
    namespace.run("sh", "-c", script)
    before = shown(namespace, "-4", "route", "show", "dev", "veth0") + shown(namespace, "-6", "route", "show", "dev", "veth0")
    with Links(namespace.path) as links:
        kept = links.kept_routes(links.get("veth0"))
        for _ in range(2):
            for route in kept:
                links.put_route(route, table)
    after = [each for family in "46" for each in shown(namespace, f"-{family}", "route", "show", "dev", "veth0", "table", str(table))]
    assert len(kept) == 8
    assert after == [each for each in before if each.get("protocol") != "kernel"]


@on_a_kernel
def test_a_route_that_cannot_be_made_again_is_named(namespace: Namespace) -> None:
    namespace.run("sh", "-c", "ip link add veth0 type veth peer veth1; ip link set veth0 up; ip address add 10.1.0.2/24 dev veth0")
    namespace.run("ip", "route", "add", "198.51.100.0/24", "via", "10.1.0.1")
    with Links(namespace.path, "net1") as links:
        (kept,) = links.kept_routes(links.get("veth0"))
        namespace.run("ip", "address", "flush", "dev", "veth0")
        refused = r"^interface net1: cannot add the route to 198\.51\.100\.0/24 via 10\.1\.0\.1 to table 5 in "
        with pytest.raises(IOFailureError, match=refused):
            links.put_route(kept, 5)
