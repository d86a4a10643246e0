"""Pods with several networks, from RunPodSandbox to RemovePodSandbox."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from ipaddress import ip_interface

import pytest

pytest.importorskip("grpc", reason="CRI is gRPC: grpcio is not installed")

from tests.runtime.cluster import Cluster
from tests.runtime.cri import Pod, SandboxError
from tests.runtime.node import SECOND_BRIDGE, bridge_plugin, host_local

BOTH = "blue, green"


def test_a_sandbox_gets_its_networks_and_gives_them_back(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    sandbox = runtime.run(pod)

    inside = runtime.interfaces(runtime.start_container(pod, sandbox))
    assert {"eth0": ("10.201.0.2/24",), "net1": ("10.202.0.2/24",), "net2": ("10.203.0.2/24",)} == inside
    assert ("10.201.0.2",) == runtime.status(sandbox).addresses
    reported = [(entry["name"], entry["interface"], entry["ips"], entry.get("default", False)) for entry in cluster.statuses(pod)]
    assert [
        ("cluster", "eth0", ["10.201.0.2"], True),
        ("shop/blue", "net1", ["10.202.0.2"], False),
        ("shop/green", "net2", ["10.203.0.2"], False),
    ] == reported

    runtime.stop(sandbox)
    assert {} == cluster.node.network_remains()
    runtime.remove(sandbox)
    assert {} == cluster.node.process_remains()


def test_network_status_tells_the_addresses_of_the_links_inside(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    container = runtime.start_container(pod, runtime.run(pod))
    reported = {entry["interface"]: entry["mac"] for entry in cluster.statuses(pod)}
    assert {name: runtime.hardware_address(container, name) for name in ("eth0", "net1", "net2")} == reported


def test_the_default_route_is_the_cluster_networks(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    container = runtime.start_container(pod, runtime.run(pod))
    routes = runtime.execute(container, ["ip", "-4", "route", "show", "default"]).splitlines()
    assert ["default via 10.201.0.1 dev eth0"] == [route.strip() for route in routes]


@pytest.mark.parametrize(("interface", "network"), [("net1", "blue"), ("net2", "green")])
def test_two_pods_reach_each_other_over_a_second_network(cluster: Cluster, interface: str, network: str) -> None:
    runtime = cluster.node.runtime
    left, right = cluster.add_pod("left", BOTH), cluster.add_pod("right", BOTH)
    container = runtime.start_container(left, runtime.run(left))
    runtime.run(right)
    target = next(entry["ips"][0] for entry in cluster.statuses(right) if entry["name"] == f"shop/{network}")
    assert "1 packets received" in runtime.execute(container, ["ping", "-c", "1", "-w", "5", "-I", interface, target])


def test_a_missing_network_fails_the_sandbox_and_leaves_nothing(cluster: Cluster) -> None:
    pod = cluster.add_pod("web", "blue, absent")
    with pytest.raises(SandboxError) as refusal:
        cluster.node.runtime.run(pod)
    message = str(refusal.value)
    assert [] == [part for part in ("multus", "shop/web", "absent", "not found") if part not in message]
    assert {} == cluster.node.network_remains()
    assert {} == cluster.node.process_remains()


def test_a_failing_delegate_fails_the_sandbox_and_leaves_nothing(cluster: Cluster) -> None:
    """The last network fails after the cluster network and the first one are attached: both are taken down."""
    full = {"subnet": "10.204.0.0/24", "rangeStart": "10.204.0.1", "rangeEnd": "10.204.0.1"}  # nothing but the gateway
    bridge = bridge_plugin(cluster.node.folder, SECOND_BRIDGE, "10.204.0.0/24")
    ipam = {**host_local(cluster.node.folder, "10.204.0.0/24"), "ranges": [[full]]}
    cluster.add_network("full", {**bridge, "ipam": ipam})
    with pytest.raises(SandboxError) as refusal:
        cluster.node.runtime.run(cluster.add_pod("web", "blue, full"))
    message = str(refusal.value)
    assert [] == [part for part in ("multus", "[shop/web/uid-of-web:full]", "no IP addresses available") if part not in message]
    assert {} == cluster.node.network_remains()
    assert {} == cluster.node.process_remains()


def test_a_network_that_fails_to_attach_and_to_detach_is_given_up(cluster: Cluster) -> None:
    """Without its master, macvlan refuses DEL as it refuses ADD; nothing was attached, and the networks beside it are given back."""
    cluster.add_network("broken", {"type": "macvlan", "master": "nosuch0", "mode": "bridge"})
    with pytest.raises(SandboxError) as refusal:
        cluster.node.runtime.run(cluster.add_pod("web", "blue, broken"))
    message = str(refusal.value)
    assert [] == [part for part in ("multus", "[shop/web/uid-of-web:broken]", "Link not found") if part not in message]
    assert {} == cluster.node.network_remains()


def test_a_network_that_fails_half_way_gives_its_address_back(cluster: Cluster) -> None:
    """Its first plugin has made a link and taken an address when its second one fails."""
    bridge = bridge_plugin(cluster.node.folder, SECOND_BRIDGE, "10.204.0.0/24")
    cluster.add_network("half", bridge, {"type": "tuning", "sysctl": {"net.ipv4.nosuch": "1"}})
    with pytest.raises(SandboxError) as refusal:
        cluster.node.runtime.run(cluster.add_pod("web", "half"))
    message = str(refusal.value)
    assert [] == [part for part in ("[shop/web/uid-of-web:half]", "nosuch") if part not in message]
    assert {} == cluster.node.network_remains()


def test_an_unknown_pod_fails_the_sandbox_and_leaves_nothing(cluster: Cluster) -> None:
    with pytest.raises(SandboxError) as refusal:
        cluster.node.runtime.run(Pod("ghost", "shop", "uid-of-ghost"))
    message = str(refusal.value)
    assert [] == [part for part in ("multus", "shop/ghost", "not found") if part not in message]
    assert {} == cluster.node.network_remains()
    assert {} == cluster.node.process_remains()


def test_the_next_attempt_succeeds_once_the_network_exists(cluster: Cluster) -> None:
    """The kubelet repeats a failed sandbox with a higher attempt, under the same pod UID."""
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", "late")
    with pytest.raises(SandboxError):
        runtime.run(pod)
    cluster.add_network("late", bridge_plugin(cluster.node.folder, SECOND_BRIDGE, "10.204.0.0/24"))
    again = pod._replace(attempt=1)
    container = runtime.start_container(again, runtime.run(again))
    assert {"eth0", "net1"} == set(runtime.interfaces(container))


def test_a_sandbox_may_be_stopped_and_removed_twice(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    sandbox = runtime.run(cluster.add_pod("web", BOTH))
    runtime.stop(sandbox)
    runtime.stop(sandbox)
    runtime.remove(sandbox)
    runtime.remove(sandbox)
    assert {} == cluster.node.network_remains()
    assert {} == cluster.node.process_remains()


def test_a_sandbox_is_cleaned_up_after_its_pod_is_gone(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    sandbox = runtime.run(pod)
    cluster.remove_pod(pod)
    runtime.stop(sandbox)
    assert {} == cluster.node.network_remains()


def test_a_sandbox_is_cleaned_up_after_the_api_server_is_gone(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    sandbox = runtime.run(cluster.add_pod("web", BOTH))
    cluster.stop_api()
    runtime.stop(sandbox)
    assert {} == cluster.node.network_remains()
    runtime.remove(sandbox)
    assert {} == cluster.node.process_remains()


def test_ten_sandboxes_at_once_share_no_address_and_leave_nothing(cluster: Cluster) -> None:
    runtime = cluster.node.runtime
    pods = [cluster.add_pod(f"web-{number}", BOTH) for number in range(10)]

    def come(pod: Pod) -> tuple[str, dict[str, tuple[str, ...]]]:
        sandbox = runtime.run(pod)
        return sandbox, runtime.interfaces(runtime.start_container(pod, sandbox))

    def go(sandbox: str) -> None:
        runtime.stop(sandbox)
        runtime.remove(sandbox)

    with ThreadPoolExecutor(len(pods)) as pool:
        started = list(pool.map(come, pods))
        reported = [{entry["interface"]: entry["ips"] for entry in cluster.statuses(pod)} for pod in pods]
        list(pool.map(go, [sandbox for sandbox, _ in started]))

    inside = [{name: [str(ip_interface(address).ip) for address in addresses] for name, addresses in links.items()} for _, links in started]
    assert inside == reported
    assert [["eth0", "net1", "net2"]] * len(pods) == [sorted(links) for links in inside]
    addresses = [address for links in inside for each in links.values() for address in each]
    assert len(addresses) == len(set(addresses)) == 3 * len(pods)
    assert {} == cluster.node.network_remains()
    assert {} == cluster.node.process_remains()
