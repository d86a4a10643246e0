"""What pods get from Multus on real nodes."""

from __future__ import annotations

import re

import pytest

from tests.e2e.cluster import Cluster

SEE = "ip -o addr; ip route; ip -6 route"
STATIC = {"type": "static"}


def addresses(report: str, ifname: str) -> list[str]:
    """Of the first family, with their prefix lengths."""
    return re.findall(rf"^\d+: {ifname}(?:@\S+)?\s+inet (\S+)", report, flags=re.MULTILINE)


def default_routes(report: str) -> list[tuple[str, str]]:
    """Gateway and interface."""
    return re.findall(r"^default via (\d[\d.]*) dev (\S+)", report, flags=re.MULTILINE)


def test_a_pod_without_an_annotation_has_the_cluster_network(cluster: Cluster) -> None:
    cluster.start("simple", SEE)
    report = cluster.report("simple")
    (status,) = cluster.statuses("simple")
    assert (status["interface"], status["default"]) == ("eth0", True)
    assert [address.partition("/")[0] for address in addresses(report, "eth0")] == [ip for ip in status["ips"] if ":" not in ip]
    assert addresses(report, "net1") == []


def test_macvlan_with_the_addresses_that_pods_ask_for(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    cluster.add_network("macvlan1", cluster.macvlan(STATIC, capabilities={"ips": True}), {"type": "tuning"})
    first, second = cluster.two_nodes()
    cluster.start("macvlan-1", "sleep 3600", [{"name": "macvlan1", "ips": ["10.1.1.11/24"]}], node=first)
    cluster.running("macvlan-1")
    # Pods of one node are on one segment; those of two only where the nodes' interface is.
    is_shared = first == second or request.config.getoption("--shared-segment", default=False)
    script = f"{SEE}; ping -c 3 -w 30 10.1.1.11 >/dev/null && echo reached" if is_shared else SEE
    cluster.start("macvlan-2", script, [{"name": "macvlan1", "ips": ["10.1.1.12/24"]}], node=second)
    report = cluster.report("macvlan-2")
    assert addresses(report, "net1") == ["10.1.1.12/24"]
    assert ("reached" in report.split()) is is_shared
    assert [(each["interface"], each["ips"]) for each in cluster.statuses("macvlan-1")][1:] == [("net1", ["10.1.1.11"])]


def test_the_default_route_moves_for_the_pod_that_asks_alone(cluster: Cluster) -> None:
    cluster.add_network("route", cluster.macvlan(STATIC, capabilities={"ips": True}))
    cluster.start("route-1", SEE, [{"name": "route", "ips": ["10.1.2.21/24"], "default-route": ["10.1.2.254"]}])
    cluster.start("route-2", SEE, [{"name": "route", "ips": ["10.1.2.22/24"]}])
    assert default_routes(cluster.report("route-1")) == [("10.1.2.254", "net1")]
    assert [ifname for _, ifname in default_routes(cluster.report("route-2"))] == ["eth0"]


def test_an_address_is_free_again_when_its_pod_is_gone(cluster: Cluster) -> None:
    """A network with one address: DEL has run on the node, or the second pod does not start."""
    only = {"type": "host-local", "ranges": [[{"subnet": "10.1.3.0/24", "rangeStart": "10.1.3.5", "rangeEnd": "10.1.3.5"}]]}
    cluster.add_network("single", cluster.macvlan(only))
    node = cluster.nodes[0]
    for name in ("single-1", "single-2"):
        cluster.start(name, "sleep 3600", "single", node=node)
        cluster.running(name)
        assert cluster.statuses(name)[1]["ips"] == ["10.1.3.5"]
        cluster.delete(name)


def test_a_network_that_is_not_there_holds_the_pod_and_says_why(cluster: Cluster) -> None:
    """A pod never comes up on fewer networks than it asked for."""
    cluster.start("missing", SEE, "no-such-network")
    cluster.start("beside", SEE)
    cluster.report("beside")
    assert cluster.pod("missing")["status"]["phase"] == "Pending"
    cluster.delete("missing")


def test_many_pods_on_every_node_all_get_their_network(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    ipam = {"type": "host-local", "ranges": [[{"subnet": "10.20.0.0/16"}]]}
    cluster.add_network("many", cluster.macvlan(ipam))
    count = request.config.getoption("--pods", default=10)
    names = [(f"many-{place}-{number}", node) for place, node in enumerate(cluster.nodes) for number in range(count)]
    for name, node in names:
        cluster.start(name, "sleep 3600", "many", node=node)
    seen: dict[str, list[str]] = {}
    for name, node in names:
        cluster.running(name)
        seen.setdefault(node, []).extend(cluster.statuses(name)[1]["ips"])
    assert {node: len(set(ips)) for node, ips in seen.items()} == dict.fromkeys(cluster.nodes, count)
    for name, _ in names:
        cluster.delete(name)
