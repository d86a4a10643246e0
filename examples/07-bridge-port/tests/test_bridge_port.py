"""The network on the real kernel: a bridge on a node, and pods that are plugged into it.  Needs root and iproute2."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from typing import Any, ClassVar

import pytest
from hypothesis import strategies as st
from multus_bridge_port import delegate, settings
from multus_bridge_port.delegate import BridgePort
from multus_bridge_port.kernel import Kernel, Link

from multus.errors import InvalidConfigError, IOFailureError, NotAvailableError, UnsupportedFieldError
from multus.testing import conformance
from multus.testing.pods import Namespace, Pod
from multus.types.invocation import CNICommand, Invocation
from multus.types.result import Result

ADDRESS = "192.168.20.7/24"
VLANS = {"vlan": 10, "trunk": [20, "30-32"]}


def ip(command: str, node: Namespace) -> None:
    node.run("ip", *command.split())


def make_bridge(node: Namespace) -> None:
    ip("link add br-lan type bridge", node)
    ip("link set br-lan up", node)


def call(pod: Pod, command: str = "ADD", **config: object) -> Invocation:
    document = {"cniVersion": "1.1.0", "name": "lan", "type": "bridge-port", "bridge": "br-lan", **config}
    return Invocation(CNICommand(command), "bridge-port", document, pod.container_id, pod.path, "lan0")


@pytest.fixture
def node() -> Iterator[Namespace]:
    """A node with the bridge ``br-lan``; the test's thread is on it."""
    if os.geteuid() != 0:
        pytest.skip("network namespaces need root")
    with Namespace() as namespace, namespace.entered():
        make_bridge(namespace)
        yield namespace


@pytest.fixture
def pod(node: Namespace) -> Iterator[Pod]:
    with Pod("camera") as pod:
        yield pod


# --- The CNI specification ---


def configs() -> st.SearchStrategy[dict[str, Any]]:
    addresses = st.lists(st.sampled_from([ADDRESS, "fd00:20::7/64", "10.9.8.7/32"]), unique=True, min_size=1)
    optional = {"mtu": st.integers(1280, 1500), "port": st.just("camera"), "runtimeConfig": st.just({"mac": "02:00:00:00:00:07"})}
    return st.fixed_dictionaries({"bridge": st.just("br-lan"), "addresses": addresses}, optional=optional)


TestConformance = conformance.suite(conformance.InProcess("bridge-port", BridgePort()), configs(), prepare=make_bridge)


# --- Beyond it ---


def test_pods_of_a_bridge_reach_each_other(node: Namespace, pod: Pod) -> None:
    with Pod("viewer") as viewer:
        for each, address in ((pod, ADDRESS), (viewer, "192.168.20.8/24")):
            BridgePort().add(call(each, addresses=[address]))
        assert viewer.pings("192.168.20.7", "lan0")


def test_a_pod_names_its_port_and_its_address(node: Namespace, pod: Pod) -> None:
    asked = {"args": {"cni": {"port": "camera"}}, "runtimeConfig": {"ips": [ADDRESS], "mac": "02:00:00:00:00:07"}}
    result = BridgePort().add(call(pod, port="other", addresses=["10.0.0.1/8"], **asked))
    (inside,) = pod.links().values()
    port = node.links()["camera"]
    assert (inside.name, inside.mac, inside.addresses) == ("lan0", "02:00:00:00:00:07", (ADDRESS,))
    assert result.document == {
        "cniVersion": "1.1.0",
        "interfaces": [
            {"name": "camera", "mac": port.mac, "mtu": 1500},
            {"name": "lan0", "mac": inside.mac, "mtu": 1500, "sandbox": pod.path},
        ],
        "ips": [{"address": ADDRESS, "interface": 1}],
    }


def test_a_port_has_the_mtu_of_its_bridge(node: Namespace, pod: Pod) -> None:
    ip("link set br-lan mtu 1400", node)
    BridgePort().add(call(pod))
    assert pod.links()["lan0"].mtu == 1400


def test_a_port_that_is_anothers_is_not_taken_and_not_removed(node: Namespace, pod: Pod) -> None:
    BridgePort().add(call(pod, port="camera"))
    with Pod("viewer", container_id="c2") as viewer:
        with pytest.raises(IOFailureError, match=rf"interface camera on this node already \(bridge-port lan {pod.container_id} lan0\)$"):
            BridgePort().add(call(viewer, port="camera"))
        assert viewer.links() == {}
        BridgePort().delete(call(viewer, "DEL", port="camera"))
    assert "camera" in node.links()


def test_del_needs_nothing_of_the_configuration(node: Namespace, pod: Pod) -> None:
    BridgePort().add(call(pod, port="camera"))
    BridgePort().delete(call(pod, "DEL", port=5, bridge=None, ipam={"type": "x"}))
    assert (pod.links(), node.links().keys()) == ({}, {"br-lan"})


def test_a_failed_add_leaves_nothing(node: Namespace, pod: Pod) -> None:
    with pytest.raises(IOFailureError, match=r"cannot add 192\.168\.20\.7/24 to lan0"):
        BridgePort().add(call(pod, addresses=[ADDRESS, ADDRESS]))
    assert (pod.links(), node.links().keys()) == ({}, {"br-lan"})


@pytest.mark.parametrize(
    ("damage", "message"),
    [
        ("link set camera down", "interface camera is down"),
        ("link set camera nomaster", "port camera is not on bridge br-lan"),
        ("link set camera alias mine", r"port camera is not the one of lan0 \(mine\)"),
        ("link del camera", "there is no interface camera in the host"),
        ("link set camera name other", "there is no interface camera in the host"),
    ],
)
def test_check_tells_what_has_changed_on_the_node(node: Namespace, pod: Pod, damage: str, message: str) -> None:
    result = BridgePort().add(call(pod, port="camera", addresses=[ADDRESS]))
    again = call(pod, "CHECK", port="camera", addresses=[ADDRESS], prevResult=result.document)
    BridgePort().check(again)
    ip(damage, node)
    with pytest.raises(IOFailureError, match=message):
        BridgePort().check(again)


def test_check_tells_a_lost_address_and_a_missing_result(node: Namespace, pod: Pod) -> None:
    result = BridgePort().add(call(pod, addresses=[ADDRESS]))
    pod.run("ip", "address", "flush", "dev", "lan0")
    with pytest.raises(IOFailureError, match=r"interface lan0 has lost 192\.168\.20\.7/24"):
        BridgePort().check(call(pod, "CHECK", addresses=[ADDRESS], prevResult=result.document))
    with pytest.raises(InvalidConfigError, match="prevResult"):
        BridgePort().check(call(pod, "CHECK", addresses=[ADDRESS]))


def test_gc_removes_ports_of_its_own_network_alone(node: Namespace, pod: Pod) -> None:
    with Pod("other") as other, Pod("kept") as kept:
        for each, name in ((pod, "lan"), (other, "lan-2"), (kept, "lan")):
            BridgePort().add(call(each, name=name, port=each.name))
        valid = [{"containerID": kept.container_id, "ifname": "lan0"}]
        BridgePort().gc(call(pod, "GC", **{"cni.dev/valid-attachments": valid}))
        assert node.links().keys() == {"br-lan", "other", "kept"}


@pytest.mark.parametrize("command", ["ADD", "STATUS"])
@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bridge": "br-wan"}, 'key "bridge": there is no br-wan on this node: ip link add br-wan type bridge'),
        ({"bridge": "lo"}, "key \"bridge\": lo is no bridge but of kind '(none)'"),
        ({"vlan": 10}, 'bridge br-lan does not filter VLANs, as the keys "vlan" and "trunk" need: '
                       "ip link set br-lan type bridge vlan_filtering 1"),
    ],
)  # fmt: skip
def test_what_the_node_lacks_is_told(node: Namespace, pod: Pod, command: str, config: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError if command == "ADD" else NotAvailableError) as caught:
        (BridgePort().add if command == "ADD" else BridgePort().status)(call(pod, command, **config))
    assert caught.value.msg == message
    assert pod.links() == {}


# --- Settings ---


@pytest.mark.parametrize(
    ("config", "message"),
    [
        ({"bridge": None}, 'key "bridge" is missing: name a bridge of the node'),
        ({"bridge": 5}, 'key "bridge" 5 is not a string'),
        ({"port": "a-name-that-is-too-long"}, "key \"port\" 'a-name-that-is-too-long' is not a name of an interface, of up to 15 bytes"),
        ({"port": "a/b"}, "key \"port\" 'a/b' is not a name of an interface, of up to 15 bytes"),
        ({"vlan": 4095}, 'key "vlan" 4095 is not a VLAN from 1 to 4094'),
        ({"vlan": True}, 'key "vlan" True is not a VLAN from 1 to 4094'),
        ({"trunk": 20}, 'key "trunk" 20 is not a list'),
        ({"trunk": ["20-x"]}, "key \"trunk\" '20-x' is not a VLAN, or a range like \"20-29\""),
        ({"trunk": ["30-20"]}, "key \"trunk\" '30-20' is not a range from the lower to the higher"),
        ({"trunk": ["0-20"]}, 'key "trunk" 0 is not a VLAN from 1 to 4094'),
        ({"vlan": 20, "trunk": ["10-20"]}, 'key "trunk" 20 is not another VLAN than that of "vlan", which is untagged'),
        ({"addresses": ["192.168.20.7"]}, "key \"addresses\" '192.168.20.7' is not an IP address with a prefix length"),
        ({"addresses": ["192.168.20.300/24"]}, "key \"addresses\" '192.168.20.300/24' is not an IP address with a prefix length"),
        ({"mtu": "big"}, "key \"mtu\" 'big' is not a number of bytes from 68 to 65535"),
        ({"mtu": 2**40}, 'key "mtu" 1099511627776 is not a number of bytes from 68 to 65535'),
        ({"runtimeConfig": {"mac": "0"}}, "key \"mac\" '0' is not a MAC address of six bytes with colons"),
        ({"bridge": "br\0lan"}, "key \"bridge\" 'br\\x00lan' is not a name of an interface, of up to 15 bytes"),
        ({"runtimeConfig": "x"}, "key \"runtimeConfig\" 'x' is not an object"),
    ],
)
def test_a_wrong_value_is_an_error_that_names_it(config: dict[str, Any], message: str) -> None:
    invocation = Invocation(CNICommand.ADD, "bridge-port", {"name": "lan", "bridge": "br-lan", **config}, "c1", "/n", "lan0")
    with pytest.raises(InvalidConfigError) as caught:
        settings.read(invocation)
    assert caught.value.msg == message


def test_ipam_is_refused() -> None:
    with pytest.raises(UnsupportedFieldError, match='key "ipam"'):
        settings.read(Invocation(CNICommand.ADD, "bridge-port", {"bridge": "br-lan", "ipam": {"type": "host-local"}}))


def test_ports_without_a_name_have_one_for_each_attachment() -> None:
    names = {
        settings.port_name(Invocation(CNICommand.ADD, "bridge-port", {}, container_id, "/n", ifname))
        for container_id in ("c1", "c2") for ifname in ("net1", "net2") for _ in range(2)
    }  # fmt: skip
    assert len(names) == 4
    assert {len(name) for name in names} == {14}


# --- VLANs ---


@pytest.fixture
def filtering(node: Namespace) -> None:
    """The bridge filters VLANs; every port begins with VLAN 1."""
    try:
        ip("link set br-lan type bridge vlan_filtering 1", node)
    except subprocess.CalledProcessError:
        pytest.skip("this kernel cannot filter VLANs on bridges (CONFIG_BRIDGE_VLAN_FILTERING)")


@pytest.mark.usefixtures("filtering")
def test_a_port_has_the_vlans_of_the_configuration_and_no_others(node: Namespace, pod: Pod) -> None:
    result = BridgePort().add(call(pod, port="camera", **VLANS))
    with Kernel() as host:
        assert host.vlans(host.get("camera")) == {10: True, 20: False, 30: False, 31: False, 32: False}
    again = call(pod, "CHECK", port="camera", prevResult=result.document, **VLANS)
    BridgePort().check(again)
    node.run("bridge", "vlan", "del", "dev", "camera", "vid", "20")
    with pytest.raises(IOFailureError, match="port camera has other VLANs than the configuration"):
        BridgePort().check(again)


@pytest.mark.usefixtures("filtering")
def test_pods_reach_those_of_their_own_vlan_alone(node: Namespace, pod: Pod) -> None:
    with Pod("same") as same, Pod("other") as other:
        for each, address, vlan in ((pod, ADDRESS, 10), (same, "192.168.20.8/24", 10), (other, "192.168.20.9/24", 11)):
            BridgePort().add(call(each, addresses=[address], vlan=vlan))
        assert same.pings("192.168.20.7", "lan0")
        other.run("ping", "-c", "1", "-W", "1", "192.168.20.7", check=False)
        assert "FAILED" in other.run("ip", "neigh", "show") or "INCOMPLETE" in other.run("ip", "neigh", "show")


class Filtering(Kernel):
    """A kernel that filters VLANs, made up; all the rest is the real one."""

    ports: ClassVar[dict[str, dict[int, int]]] = {}
    up_without: ClassVar[list[str]] = []

    def find(self, name: str) -> Link | None:
        link = super().find(name)
        return link._replace(filters_vlans=link.kind == "bridge") if link is not None else None

    def vlans(self, port: Link) -> dict[int, bool]:
        return {vid: flags == 6 for vid, flags in self.ports.setdefault(port.name, {1: 6}).items()}

    def set_up(self, link: Link) -> None:
        if not self._netns and 1 in self.ports.get(link.name, {}):
            self.up_without.append(link.name)
        super().set_up(link)

    def _filter(self, command: str, port: Link, vid: int, flags: int) -> None:
        vlans = self.ports.setdefault(port.name, {1: 6})
        if command == "del":
            del vlans[vid]
        else:
            vlans[vid] = flags


@pytest.fixture
def made_up(monkeypatch: pytest.MonkeyPatch) -> type[Filtering]:
    monkeypatch.setattr(Filtering, "ports", {})
    monkeypatch.setattr(Filtering, "up_without", [])
    monkeypatch.setattr(delegate, "Kernel", Filtering)
    return Filtering


def test_vlans_replace_the_bridges_default_before_the_port_is_up(node: Namespace, pod: Pod, made_up: type[Filtering]) -> None:
    result = BridgePort().add(call(pod, port="camera", **VLANS))
    assert made_up.ports == {"camera": {10: 6, 20: 0, 30: 0, 31: 0, 32: 0}}
    assert made_up.up_without == []
    again = call(pod, "CHECK", port="camera", prevResult=result.document, **VLANS)
    BridgePort().check(again)
    made_up.ports["camera"][20] = 6
    with pytest.raises(IOFailureError, match="other VLANs"):
        BridgePort().check(again)


def test_without_vlans_the_bridges_default_stays(node: Namespace, pod: Pod, made_up: type[Filtering]) -> None:
    BridgePort().add(call(pod, port="camera"))
    assert made_up.ports == {}


def test_a_kernel_that_cannot_filter_says_so_and_leaves_nothing(node: Namespace, pod: Pod, monkeypatch: pytest.MonkeyPatch) -> None:
    class Refusing(Filtering):
        def _filter(self, command: str, port: Link, vid: int, flags: int) -> None:
            raise IOFailureError("cannot add VLAN 10 of camera in the host: Operation not supported")

    monkeypatch.setattr(delegate, "Kernel", Refusing)
    monkeypatch.setattr(Filtering, "ports", {})
    with pytest.raises(IOFailureError, match="Operation not supported"):
        BridgePort().add(call(pod, port="camera", vlan=10))
    assert (pod.links(), node.links().keys()) == ({}, {"br-lan"})


def test_the_result_is_one_of_the_newest_version(node: Namespace, pod: Pod) -> None:
    """Multus converts it to the configuration's."""
    assert isinstance(BridgePort().add(call(pod, cniVersion="0.4.0")), Result)
