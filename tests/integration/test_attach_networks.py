"""Pods on networks of the real bridge, macvlan and IPAM plugins: what the kernel has, what network-status tells, what is left."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from multus.testing.node import CLUSTER_BRIDGE, UPLINK, Node
from multus.testing.pods import Pod


def bridge(node: Node, name: str, *subnets: str, **keys: object) -> dict[str, object]:
    """A bridge of its own with a gateway, addresses from host-local."""
    return {"type": "bridge", "bridge": name, "isGateway": True, "ipam": node.host_local(*subnets), **keys}


def macvlan(node: Node, master: str, subnet: str) -> dict[str, object]:
    return {"type": "macvlan", "master": master, "mode": "bridge", "ipam": node.host_local(subnet)}


def addresses(pod: Pod) -> dict[str, tuple[str, ...]]:
    return {name: link.addresses for name, link in pod.links().items()}


def told(node: Node, pod: Pod) -> list[tuple[Any, ...]]:
    """Name, interface, addresses and the mark of the default, of each entry of network-status."""
    return [(each["name"], each["interface"], each["ips"], each.get("default", False)) for each in node.statuses(pod)]


def default_routes(pod: Pod, family: int = 4) -> list[str]:
    """The default routes without who set them and how sure the kernel is."""
    lines = [route.removesuffix(" pref medium").replace(" proto static", "") for route in pod.routes(family)]
    return [line for line in lines if line.startswith("default")]


def test_the_cluster_network_alone(node: Node) -> None:
    with node.pod("web") as pod:
        answer = node.attach(pod)
        assert "" == answer.error
        assert ["10.244.0.2/24"] == [each["address"] for each in answer.document["ips"]]
        assert {"eth0": ("10.244.0.2/24",)} == addresses(pod)
        assert [("cluster", "eth0", ["10.244.0.2"], True)] == told(node, pod)
        assert pod.pings("10.244.0.1")


def test_a_lease_is_given_back_by_del(node: Node) -> None:
    lease = Path(node.leases, "cluster", "10.244.0.2")
    with node.pod("web") as pod:
        node.attach(pod)
        assert lease.read_text().split()[0] == pod.container_id
        assert "" == node.detach(pod).error
        assert not lease.exists()
        assert {} == pod.links()
        assert {} == node.remains()


def test_two_networks_beside_the_cluster_network(node: Node) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"))
    node.add_network("green", macvlan(node, UPLINK, "10.30.0.0/24"))
    with node.pod("web", "blue, green@green") as pod:
        assert "" == node.attach(pod).error
        assert {"eth0": ("10.244.0.2/24",), "net1": ("10.20.0.2/24",), "green": ("10.30.0.2/24",)} == addresses(pod)
        assert {"eth0": "veth", "net1": "veth", "green": "macvlan"} == {name: link.kind for name, link in pod.links().items()}
        assert [
            ("cluster", "eth0", ["10.244.0.2"], True),
            ("default/blue", "net1", ["10.20.0.2"], False),
            ("default/green", "green", ["10.30.0.2"], False),
        ] == told(node, pod)
        assert [link.mac for link in pod.links().values()] == [each["mac"] for each in node.statuses(pod)]
        assert "" == node.detach(pod).error
        assert {} == pod.links()
        assert {} == node.remains()


@pytest.mark.parametrize("master", [UPLINK, "lan0"], ids=["veth", "bridge"])
def test_two_pods_reach_each_other_over_macvlan(node: Node, master: str) -> None:
    node.namespace.run("ip", "link", "add", "lan0", "type", "bridge")
    node.namespace.run("ip", "link", "set", "lan0", "up")
    node.add_network("green", macvlan(node, master, "10.30.0.0/24"))
    with node.pod("left", "green") as left, node.pod("right", "green") as right:
        assert ["", ""] == [node.attach(left).error, node.attach(right).error]
        assert left.pings("10.30.0.3", "net1")
        assert ["", ""] == [node.detach(left).error, node.detach(right).error]
    assert {} == node.remains()


def test_ipv6(node: Node) -> None:
    node.add_network("six", bridge(node, "six0", "fd00:20::/64"))
    with node.pod("web", "six") as pod:
        assert "" == node.attach(pod).error
        assert ("fd00:20::2/64",) == addresses(pod)["net1"]
        assert ("default/six", "net1", ["fd00:20::2"], False) == told(node, pod)[1]
        assert pod.pings("fd00:20::1", "net1")
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_dual_stack(node: Node) -> None:
    node.add_network("both", bridge(node, "both0", "10.20.0.0/24", "fd00:20::/64"))
    with node.pod("web", "both") as pod:
        assert "" == node.attach(pod).error
        assert ("10.20.0.2/24", "fd00:20::2/64") == addresses(pod)["net1"]
        assert ("default/both", "net1", ["10.20.0.2", "fd00:20::2"], False) == told(node, pod)[1]
        assert pod.pings("10.20.0.1", "net1")
        assert pod.pings("fd00:20::1", "net1")
        assert "" == node.detach(pod).error
        assert {} == node.remains()


@pytest.mark.parametrize("version", ["0.3.1", "0.4.0", "1.0.0"])
def test_a_network_keeps_its_own_version(node: Node, version: str) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"), version=version)
    with node.pod("web", "blue") as pod:
        answer = node.attach(pod)
        assert ("", "1.0.0") == (answer.error, answer.document["cniVersion"])
        assert ("10.20.0.2/24",) == addresses(pod)["net1"]
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_the_default_route_moves(node: Node) -> None:
    node.add_network("exit", bridge(node, "exit0", "10.20.0.0/24"))
    with node.pod("web", [{"name": "exit", "default-route": ["10.20.0.1"]}]) as pod:
        assert "" == node.attach(pod).error
        assert ["default via 10.20.0.1 dev net1"] == default_routes(pod)
        assert ["10.20.0.1"] == node.statuses(pod)[1]["default-route"]
        assert pod.pings("10.244.0.1"), "the cluster network has lost its own subnet"
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_the_default_routes_of_both_families_move_apart(node: Node) -> None:
    """Only the family that is asked for moves."""
    cluster_network = {**node.cluster_network(), "ipam": node.host_local("10.244.0.0/24", "fd00:244::/64")}
    node.add_network("exit", bridge(node, "exit0", "10.20.0.0/24", "fd00:20::/64"))
    with node.pod("web", [{"name": "exit", "default-route": ["fd00:20::1"]}]) as pod:
        assert "" == node.attach(pod, delegates=[cluster_network]).error
        assert ["default via 10.244.0.1 dev eth0"] == default_routes(pod)
        assert ["default via fd00:20::1 dev net1 metric 1024"] == default_routes(pod, 6)
        assert "" == node.detach(pod, delegates=[cluster_network]).error
        assert {} == node.remains()


def test_an_unreachable_gateway_fails_add_and_leaves_nothing(node: Node) -> None:
    node.add_network("exit", bridge(node, "exit0", "10.20.0.0/24"))
    with node.pod("web", [{"name": "exit", "default-route": ["192.0.2.1"]}]) as pod:
        answer = node.attach(pod)
        assert 1 == answer.status
        assert "192.0.2.1" in answer.error
        assert {} == pod.links()
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_a_pod_chooses_its_default_network(node: Node) -> None:
    node.add_network("storage", bridge(node, "storage0", "10.20.0.0/24", isDefaultGateway=True), namespace="kube-system")
    with node.pod("web", annotations={"v1.multus-cni.io/default-network": "storage"}) as pod:
        assert "" == node.attach(pod).error
        assert {"eth0": ("10.20.0.2/24",)} == addresses(pod)
        assert [("kube-system/storage", "eth0", ["10.20.0.2"], True)] == told(node, pod)
        assert ["default via 10.20.0.1 dev eth0"] == default_routes(pod)
        assert CLUSTER_BRIDGE not in node.namespace.links()
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_isolation_refuses_the_network_of_another_namespace(node: Node) -> None:
    node.add_network("ledger", bridge(node, "ledger0", "10.20.0.0/24"), namespace="finance")
    with node.pod("curious", "finance/ledger", namespace="guest") as pod, node.pod("clerk", "ledger", namespace="finance") as clerk:
        answer = node.attach(pod, namespaceIsolation=True)
        assert 1 == answer.status
        assert [] == [word for word in ("guest", "finance", "ledger") if word not in answer.error]
        assert {} == pod.links()
        assert "" == node.detach(pod, namespaceIsolation=True).error
        assert {} == node.remains()
        assert "" == node.attach(clerk, namespaceIsolation=True).error
        assert ("10.20.0.2/24",) == addresses(clerk)["net1"]
        assert "" == node.detach(clerk, namespaceIsolation=True).error


def test_a_network_without_configuration_is_found_on_the_node(node: Node) -> None:
    conf = {"cniVersion": "1.0.0", "name": "local", "plugins": [bridge(node, "local0", "10.20.0.0/24")]}
    Path(node.conf_dir, "20-local.conflist").write_text(json.dumps(conf))
    node.api.put({
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": "local", "namespace": "default"},
    })
    with node.pod("web", "local") as pod:
        assert "" == node.attach(pod).error
        assert ("10.20.0.2/24",) == addresses(pod)["net1"]
        assert "" == node.detach(pod).error
        assert {} == node.remains()


def test_a_failing_network_undoes_those_before_it(node: Node) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"))
    node.add_network("broken", macvlan(node, "nosuch0", "10.30.0.0/24"))
    with node.pod("web", "blue, broken") as pod:
        answer = node.attach(pod)
        assert 1 == answer.status
        assert "default/web" in answer.error
        assert "broken" in answer.error
        assert {} == pod.links()
        assert "links" not in node.remains()


def test_del_needs_neither_api_server_nor_namespace(node: Node) -> None:
    """The runtime may send DEL after the pod is gone from the cluster and the namespace from the node."""
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"))
    with node.pod("web", "blue") as pod:
        node.attach(pod)
        requests = len(node.api.requests)
    detached = Pod("web", uid=pod.uid, container_id=pod.container_id)
    with detached:
        environment_of_another_namespace = node.detach(detached)
    assert "" == environment_of_another_namespace.error
    assert requests == len(node.api.requests)
    assert {} == node.remains()


def test_check_passes_while_all_is_there_and_fails_when_an_address_is_gone(node: Node) -> None:
    node.add_network("blue", bridge(node, "blue0", "10.20.0.0/24"))
    with node.pod("web", "blue") as pod:
        node.attach(pod)
        assert "" == node.call("CHECK", pod).error
        pod.run("ip", "address", "flush", "dev", "net1")
        failed = node.call("CHECK", pod)
        assert 1 == failed.status
        assert "blue" in failed.error
        assert "" == node.detach(pod).error
