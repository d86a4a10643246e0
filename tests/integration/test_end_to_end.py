"""What the end-to-end scripts of the Go implementation prove with a cluster, on a node without one: those that need nothing of it.

``tests/e2e/README.md`` has the table.  Shim and daemon are processes, plugins and settings of the kernel are real.
"""

from __future__ import annotations

import itertools
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from multus.testing.kubeapi_credentials import Certificates
from multus.testing.node import NODE_NAME, UPLINK
from multus.testing.pods import Pod
from multus.testing.scriptable import Answer, ScriptedDelegates
from multus.testing.thick import PRIMARY, ThickNode
from tests.integration.claims import CLAIMED, DEVICE_ID, claim, claimed_pod

PARALLEL = 6


def setting(pod: Pod, ifname: str) -> str:
    """A setting of the kernel that only the chained plugins make."""
    return pod.run("cat", f"/proc/sys/net/ipv4/conf/{ifname}/arp_filter").strip()


def put(folder: Path, name: str, document: dict[str, Any]) -> None:
    folder.mkdir(exist_ok=True)
    (folder / name).write_text(json.dumps(document))


def test_a_static_pod_whose_mirror_has_another_uid(thick_node: ThickNode) -> None:
    """test-static-pod.sh: the kubelet makes the pod from a file of the node, and a mirror of it in the API."""
    thick_node.add_network("blue", {"type": "bridge", "bridge": "blue0", "ipam": thick_node.host_local("10.20.0.0/24")})
    annotations = {
        "k8s.v1.cni.cncf.io/networks": "blue", "kubernetes.io/config.source": "file", "kubernetes.io/config.mirror": "0123456789abcdef",
    }  # fmt: skip
    mirror = {"name": "web-node", "namespace": "default", "uid": "11111111-0000-4000-8000-000000000000", "annotations": annotations}
    thick_node.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": mirror, "spec": {"nodeName": NODE_NAME}})
    with Pod("web-node", uid="22222222-0000-4000-8000-000000000000") as pod:
        assert thick_node.attach(pod).error == ""
        assert sorted(pod.links()) == ["eth0", "net1"]
        assert [entry["interface"] for entry in thick_node.statuses(pod)] == ["eth0", "net1"]
        assert thick_node.detach(pod).error == ""
    assert thick_node.remains() == {}


@pytest.mark.daemon_config(connectionLimit=1)
def test_with_a_connection_limit_of_one_all_pods_start_one_by_one(thick_node: ThickNode, tmp_path: Path) -> None:
    """test-connection-limit.sh"""
    delegates = ScriptedDelegates(tmp_path / "scripted", "slow")
    delegates.answer("slow", "ADD", Answer(sleep_s=0.1))
    thick_node.plugin_folder = delegates.bin
    thick_node.add_network("slow", {"type": "slow"})
    with ExitStack() as exits, ThreadPoolExecutor(PARALLEL) as pool:
        pods = [exits.enter_context(thick_node.pod(f"web-{number}", "slow")) for number in range(PARALLEL)]
        assert [answer.error for answer in pool.map(thick_node.attach, pods)] == [""] * PARALLEL
        calls = delegates.calls()
        assert len(calls) == PARALLEL
        for earlier, later in itertools.pairwise(calls):
            assert earlier.ended is not None
            assert earlier.ended <= later.started
        assert [thick_node.detach(pod).error for pod in pods] == [""] * PARALLEL


@pytest.fixture
def stopped_node(machine: None, shim_binary: str, daemon_binary: str, certificates: Certificates, tmp_path: Path) -> Callable[..., Any]:
    """A thick node whose daemon is not started yet, and whose primary configuration is a plugin list named ``cluster``."""

    @contextmanager
    def make(daemon: str = daemon_binary, **settings: object) -> Iterator[ThickNode]:
        with ThickNode(shim_binary, daemon, tmp_path, certificates=certificates, settings=settings, starts=False) as node:
            os.unlink(os.path.join(node.cni_config_dir, PRIMARY))
            network = node.cluster_network()
            plugin = {key: value for key, value in network.items() if key not in ("cniVersion", "name")}
            put(Path(node.cni_config_dir), "10-cluster.conflist", {"cniVersion": "1.0.0", "name": "cluster", "plugins": [plugin]})
            yield node

    return make


def test_plugins_of_the_folder_named_like_the_primary_network_are_chained_to_it(stopped_node: Callable[..., Any]) -> None:
    """test-subdirectory-chaining.sh"""
    with stopped_node() as node:
        tuning = {"cniVersion": "1.0.0", "name": "sysctltwiddle", "type": "tuning", "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}}
        put(Path(node.cni_config_dir, "cluster"), "sysctltwiddle.conf", tuning)
        node.start()
        with node.pod("web") as pod:
            assert node.attach(pod).error == ""
            assert setting(pod, "eth0") == "1"
            assert node.detach(pod).error == ""
        assert node.remains() == {}


def test_an_auxiliary_chain_runs_once_a_restarted_daemon_is_told_of_it(stopped_node: Callable[..., Any]) -> None:
    """test-subdirectory-chaining-passthru.sh: ``passthru`` opens the chain, and hands the primary's result to the others."""
    with stopped_node() as node:
        tuning = {"cniVersion": "1.0.0", "name": "vendor", "type": "tuning", "sysctl": {"net.ipv4.conf.eth0.arp_filter": "1"}}
        put(Path(node.cni_config_dir, "vendor-cni-chain"), "tuning.conf", tuning)
        node.start()
        with node.pod("before") as pod:
            assert node.attach(pod).error == ""
            assert setting(pod, "eth0") == "0"
            assert node.detach(pod).error == ""
        assert node.stop() == 0
        node.settings["auxiliaryCNIChainName"] = "vendor-cni-chain"
        node.start()
        with node.pod("after") as pod:
            answer = node.attach(pod)
            assert answer.error == ""
            assert setting(pod, "eth0") == "1"
            assert [each["address"] for each in answer.document["ips"]] == list(pod.links()["eth0"].addresses)
            assert node.detach(pod).error == ""
        assert node.remains() == {}


def test_the_device_of_a_resource_claim_reaches_the_plugin(
    stopped_node: Callable[..., Any], daemon_binary: str, with_kubelet: Callable[[str], str], tmp_path: Path
) -> None:
    """test-dra-integration.sh, as far as Multus has part in it."""
    delegates = ScriptedDelegates(tmp_path / "scripted", "vf")
    with stopped_node(daemon=with_kubelet(daemon_binary)) as node:
        node.start()
        node.plugin_folder = delegates.bin
        node.add_network("vf", {"type": "vf", "capabilities": {"deviceID": True}})
        (network,) = node.api.store.all("network-attachment-definitions")
        network["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/resourceName": CLAIMED}
        node.api.put(network, *claim())
        with node.pod("web", "vf") as pod:
            stored = node.api.store.find("pods", "default", "web")
            assert stored is not None
            node.api.put(claimed_pod(stored))
            assert node.attach(pod).error == ""
            (call,) = delegates.calls()
            assert (call.config["deviceID"], call.config["runtimeConfig"]) == (DEVICE_ID, {"deviceID": DEVICE_ID})
            assert node.detach(pod).error == ""


def test_two_networks_with_addresses_that_the_pods_ask_for(thick_node: ThickNode) -> None:
    """test-simple-macvlan1.sh: hard checks of interface, address, and that the pods reach each other."""
    static = {"type": "macvlan", "master": UPLINK, "mode": "bridge", "capabilities": {"ips": True}, "ipam": {"type": "static"}}
    thick_node.add_network("macvlan1", static, {"type": "tuning"})
    wanted = {name: [{"name": "macvlan1", "ips": [f"10.1.1.{last}/24"]}] for name, last in (("worker1", 11), ("worker2", 12))}
    with thick_node.pod("worker1", wanted["worker1"]) as first, thick_node.pod("worker2", wanted["worker2"]) as second:
        assert [thick_node.attach(pod).error for pod in (first, second)] == ["", ""]
        assert [pod.links()["net1"].addresses for pod in (first, second)] == [("10.1.1.11/24",), ("10.1.1.12/24",)]
        assert first.pings("10.1.1.12", "net1")
        assert [thick_node.detach(pod).error for pod in (first, second)] == ["", ""]
    assert thick_node.remains() == {}


def test_the_default_route_moves_for_the_pod_that_asks_and_stays_for_the_other(thick_node: ThickNode) -> None:
    """test-default-route1.sh"""
    static = {"type": "macvlan", "master": UPLINK, "mode": "bridge", "capabilities": {"ips": True}, "ipam": {"type": "static"}}
    thick_node.add_network("macvlan1", static)
    moved = [{"name": "macvlan1", "ips": ["10.1.1.21/24"], "default-route": ["10.1.1.254"]}]
    with thick_node.pod("worker1", moved) as first, thick_node.pod("worker2", [{"name": "macvlan1", "ips": ["10.1.1.22/24"]}]) as second:
        assert [thick_node.attach(pod).error for pod in (first, second)] == ["", ""]
        routes = [pod.run("ip", "route", "show", "default").split() for pod in (first, second)]
        assert [route[:5] for route in routes] == [
            ["default", "via", "10.1.1.254", "dev", "net1"],
            ["default", "via", "10.244.0.1", "dev", "eth0"],
        ]
        assert [thick_node.detach(pod).error for pod in (first, second)] == ["", ""]
    assert thick_node.remains() == {}
