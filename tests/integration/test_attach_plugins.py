"""Pods on networks whose plugins do more than make a link: ports, rates, settings, requested addresses, other kinds of link."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import threading
from collections.abc import Iterator
from contextlib import closing, contextmanager

import pytest

from multus.testing.node import UPLINK, Node
from multus.testing.pods import PLUGIN_FOLDER, Namespace, Pod

GREETING = b"hello from the pod"
RATES = {"ingressRate": 8_000_000, "ingressBurst": 800_000, "egressRate": 4_000_000, "egressBurst": 400_000}
TUNING = {"type": "tuning", "mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}
PORTMAP = {"type": "portmap", "capabilities": {"portMappings": True}}
BANDWIDTH = {"type": "bandwidth", "capabilities": {"bandwidth": True}}


@pytest.fixture(scope="module")
def packet_filter(machine: None) -> None:
    """Skip where neither backend of iptables can do what portmap needs."""
    if shutil.which("iptables") is None:
        pytest.skip("iptables is not installed")
    rule = "PREROUTING -p tcp -m comment --comment try -m multiport --dports 80 -j DNAT --to-destination 192.0.2.1:80"
    with Namespace() as scratch, scratch.entered():
        tried = subprocess.run(["iptables", "-t", "nat", "-A", *rule.split()], check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"iptables does not work on this kernel: {tried.stderr.strip()}")


def bridge(node: Node, name: str, subnet: str) -> dict[str, object]:
    return {"type": "bridge", "bridge": name, "isGateway": True, "ipam": node.host_local(subnet)}


@contextmanager
def server(pod: Pod, port: int) -> Iterator[None]:
    """A TCP server in the pod that greets everyone."""
    with pod.entered():
        listening = socket.create_server(("", port))

    def greet() -> None:
        while True:
            try:
                connection, _ = listening.accept()
            except OSError:
                return
            with connection:
                connection.sendall(GREETING)

    thread = threading.Thread(target=greet)
    thread.start()
    try:
        yield
    finally:
        listening.shutdown(socket.SHUT_RDWR)
        thread.join()
        listening.close()


def greeting(node: Node, host: str, port: int) -> bytes:
    """What a port answers to a client on the node; empty: it does not."""
    with node.namespace.entered():
        try:
            client = socket.create_connection((host, port), timeout=3)
        except OSError:
            return b""
    with closing(client):
        return client.recv(100)


def queues(node: Node) -> list[str]:
    """The rates of the token buckets on the node, lowest first."""
    lines = node.namespace.run("tc", "qdisc", "show").splitlines()
    return sorted(line.split(" rate ")[1].split()[0] for line in lines if " tbf " in line)


def test_portmap_opens_a_port_of_the_node_and_closes_it(node: Node, packet_filter: None) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), PORTMAP)
    with node.pod("web", [{"name": "blue", "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}]) as pod:
        assert b"" == greeting(node, "10.20.0.1", 8080)
        assert "" == node.attach(pod).error
        with server(pod, 80):
            assert GREETING == greeting(node, "10.20.0.1", 8080)
            assert GREETING == greeting(node, "127.0.0.1", 8080)
            assert "" == node.detach(pod).error
            assert b"" == greeting(node, "10.20.0.1", 8080)
        assert "10.20.0.2" not in node.namespace.run("iptables", "-t", "nat", "-S")
        assert {} == node.remains()


def test_a_host_port_of_the_pod_itself_is_on_the_cluster_network(node: Node, packet_filter: None) -> None:
    """The kubelet's hostPort comes as runtimeConfig."""
    settings: dict[str, object] = {
        "delegates": [{"cniVersion": "1.0.0", "name": "cluster", "plugins": [node.cluster_network(), PORTMAP]}],
        "capabilities": {"portMappings": True},
        "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]},
    }
    with node.pod("web") as pod:
        assert "" == node.attach(pod, **settings).error
        with server(pod, 80):
            assert GREETING == greeting(node, "10.244.0.1", 8080)
        assert "" == node.call("DEL", pod, **{**settings, "runtimeConfig": {}}).error
        assert "--to-destination" not in node.namespace.run("iptables", "-t", "nat", "-S")
        assert {} == node.remains()


def test_bandwidth_limits_both_directions_until_del(node: Node) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), BANDWIDTH)
    with node.pod("web", [{"name": "blue", "bandwidth": RATES}]) as pod:
        assert "" == node.attach(pod).error
        assert ["4Mbit", "8Mbit"] == queues(node)
        assert "" == node.call("CHECK", pod).error
        assert "" == node.detach(pod).error
        assert [] == queues(node)
        assert {} == node.remains()


def test_tuning_sets_mtu_and_sysctl(node: Node) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), TUNING)
    with node.pod("web", "blue") as pod:
        assert "" == node.attach(pod).error
        assert 1400 == pod.links()["net1"].mtu
        assert "1" == pod.run("cat", "/proc/sys/net/ipv4/conf/net1/arp_filter").strip()
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_tuning_sets_the_hardware_address_that_the_pod_asks_for(node: Node) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), {"type": "tuning", "capabilities": {"mac": True}})
    with node.pod("web", [{"name": "blue", "mac": "02:00:00:00:00:0a"}]) as pod:
        assert "" == node.attach(pod).error
        assert "02:00:00:00:00:0a" == pod.links()["net1"].mac
        assert "02:00:00:00:00:0a" == node.statuses(pod)[1]["mac"]
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_a_list_of_four_plugins_each_with_its_request(node: Node, packet_filter: None) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), TUNING, PORTMAP, BANDWIDTH)
    wanted = {"name": "blue", "interface": "blue", "portMappings": [{"hostPort": 8080, "containerPort": 80}], "bandwidth": RATES}
    with node.pod("web", [wanted]) as pod:
        assert "" == node.attach(pod).error
        assert 1400 == pod.links()["blue"].mtu
        assert ["4Mbit", "8Mbit"] == queues(node)
        with server(pod, 80):
            assert GREETING == greeting(node, "10.20.0.1", 8080)
        assert "" == node.detach(pod).error
        assert [] == queues(node)
        assert "--to-destination" not in node.namespace.run("iptables", "-t", "nat", "-S")
        assert {} == node.remains()


def test_requested_addresses_of_both_families_and_a_hardware_address(node: Node) -> None:
    plugin = {"type": "bridge", "bridge": "fixed0", "capabilities": {"ips": True, "mac": True}, "ipam": {"type": "static"}}
    node.add_network("fixed", plugin)
    with node.pod("db", [{"name": "fixed", "ips": ["10.20.0.5/24", "fd00:20::5/64"], "mac": "02:00:00:00:00:05"}]) as pod:
        assert "" == node.attach(pod).error
        link = pod.links()["net1"]
        assert (("10.20.0.5/24", "fd00:20::5/64"), "02:00:00:00:00:05") == (link.addresses, link.mac)
        status = node.statuses(pod)[1]
        assert (["10.20.0.5", "fd00:20::5"], "02:00:00:00:00:05") == (status["ips"], status["mac"])
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_a_requested_address_that_is_taken_fails_add(node: Node) -> None:
    """host-local hands out the requested address, once."""
    plugin = {**bridge(node, "blue0", "10.20.0.0/24"), "capabilities": {"ips": True}}
    node.add_network("blue", plugin)
    wanted = [{"name": "blue", "ips": ["10.20.0.77"]}]
    with node.pod("first", wanted) as first, node.pod("second", wanted) as second:
        assert "" == node.attach(first).error
        assert ("10.20.0.77/24",) == first.links()["net1"].addresses
        refused = node.attach(second)
        assert 1 == refused.status
        assert "10.20.0.77" in refused.error
        assert ["", ""] == [node.detach(second).error, node.detach(first).error]
        assert {} == node.remains()


def test_ptp_as_a_second_network(node: Node) -> None:
    require("ptp")
    node.add_network("line", {"type": "ptp", "ipam": node.host_local("10.20.0.0/24")})
    with node.pod("web", "line") as pod:
        assert "" == node.attach(pod).error
        assert pod.pings("10.20.0.1")
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_host_device_lends_a_link_of_the_node(node: Node) -> None:
    require("host-device")
    node.namespace.run("ip", "link", "add", "spare0", "type", "veth", "peer", "name", "spare1")
    node.add_network("spare", {"type": "host-device", "device": "spare0"})
    with node.pod("web", "spare") as pod:
        assert "" == node.attach(pod).error
        assert "net1" in pod.links()
        assert "spare0" not in node.namespace.links()
        assert "" == node.detach(pod).error
        assert "spare0" in node.namespace.links()
        node.namespace.run("ip", "link", "delete", "spare0")
        assert {} == node.remains()


@pytest.mark.parametrize(("kind", "keys"), [("ipvlan", {"mode": "l2"}), ("vlan", {"vlanId": 7}), ("macvlan", {"mode": "bridge"})])
def test_a_link_on_the_uplink(node: Node, kind: str, keys: dict[str, object]) -> None:
    require(kind, *(("id", "7") if kind == "vlan" else ()))
    node.add_network("more", {"type": kind, "master": UPLINK, "ipam": node.host_local("10.20.0.0/24"), **keys})
    with node.pod("web", "more") as pod:
        assert "" == node.attach(pod).error
        link = pod.links()["net1"]
        assert (kind, ("10.20.0.2/24",)) == (link.kind, link.addresses)
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_vrf_takes_in_the_link_of_the_plugin_before(node: Node) -> None:
    require("vrf", "table", "7")
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), {"type": "vrf", "vrfname": "blue-vrf"})
    with node.pod("web", "blue") as pod:
        assert "" == node.attach(pod).error
        assert "vrf" == pod.links()["blue-vrf"].kind
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_dummy(node: Node) -> None:
    require("dummy")
    node.add_network("none", {"type": "dummy", "ipam": node.host_local("10.20.0.0/24")})
    with node.pod("web", "none") as pod:
        assert "" == node.attach(pod).error
        assert "dummy" == pod.links()["net1"].kind
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def require(plugin: str, *link_options: str) -> None:
    """Skip where the plugin is not installed, or the kernel cannot make its kind of link."""
    if not os.path.exists(os.path.join(PLUGIN_FOLDER, plugin)):
        pytest.skip(f"no CNI plugin {plugin} in {PLUGIN_FOLDER}")
    if plugin in ("ptp", "host-device"):
        return
    with Namespace() as scratch, scratch.entered():
        subprocess.run(["ip", "link", "add", "veth0", "type", "veth", "peer", "name", "veth1"], check=True)
        on = () if plugin in ("vrf", "dummy") else ("link", "veth0")
        command = ["ip", "link", "add", *on, "name", "probe0", "type", plugin, *link_options]
        tried = subprocess.run(command, check=False, capture_output=True, text=True)
    if tried.returncode != 0:
        pytest.skip(f"this kernel has no links of kind {plugin}: {tried.stderr.strip()}")
