"""The cluster around a node in a box: an API server that the node can reach, its networks and its pods.

The API server is the stand-in of ``multus.testing``, run by this process but listening inside the box.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from contextlib import ExitStack
from pathlib import Path
from types import TracebackType
from typing import Any, Self

from multus.testing.kubeapi import KubeAPI
from tests.runtime.cri import Pod
from tests.runtime.node import CLUSTER_BRIDGE, PLUGINS, SECOND_BRIDGE, UPLINK, Node, bridge_plugin, host_local

NAMESPACE = "shop"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
NETWORK_STATUS = "k8s.v1.cni.cncf.io/network-status"


def multus_configuration(folder: Path) -> dict[str, object]:
    """Configure multus for a node whose files lie in ``folder``: the cluster network is a bridge, named in a file."""
    plugin = {**bridge_plugin(folder, CLUSTER_BRIDGE, "10.201.0.0/24"), "isDefaultGateway": True}
    cluster_network = folder / "10-cluster.conflist"
    cluster_network.write_text(json.dumps({"cniVersion": "1.0.0", "name": "cluster", "plugins": [plugin]}))
    return {
        "cniVersion": "1.0.0",
        "name": "node-network",
        "type": "multus",
        "clusterNetwork": str(cluster_network),
        "kubeconfig": str(folder / "kubeconfig"),
        "binDir": str(PLUGINS),
        "cniDir": str(folder / "multus"),
        "confDir": str(folder / "conf.d"),
        "logFile": str(folder / "multus.log"),
        "logLevel": "debug",
    }


class Cluster:
    """A cluster of one node; ``with Cluster(node) as cluster:``."""

    def __init__(self, node: Node) -> None:
        self.node = node
        self._stack = ExitStack()

    def __enter__(self) -> Self:
        self.api = self.node.box.inside(lambda: self._stack.enter_context(KubeAPI(token="token-of-the-node")))
        self.api.kubeconfig(self.node.folder / "kubeconfig")
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.stop_api()

    def stop_api(self) -> None:
        """End the API server: what still calls it is refused. Stopping twice is allowed."""
        self._stack.close()

    def add_network(self, name: str, *plugins: Mapping[str, object]) -> None:
        """Store a net-attach-def in the cluster: a list of these plugins."""
        self.api.put({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": name, "namespace": NAMESPACE},
            "spec": {"config": json.dumps({"cniVersion": "1.0.0", "name": name, "plugins": plugins})},
        })

    def add_blue(self) -> None:
        """Store the network ``blue``: a second bridge, 10.202.0.0/24."""
        self.add_network("blue", bridge_plugin(self.node.folder, SECOND_BRIDGE, "10.202.0.0/24"))

    def add_green(self) -> None:
        """Store the network ``green``: macvlan on the node's uplink, 10.203.0.0/24."""
        ipam = host_local(self.node.folder, "10.203.0.0/24")
        self.add_network("green", {"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": ipam})

    def add_pod(self, name: str, networks: str) -> Pod:
        """Store a pod that asks for networks, and give it as the kubelet sees it."""
        pod = Pod(name, NAMESPACE, f"uid-of-{name}", {NETWORKS: networks})
        self.api.put({
            "apiVersion": "v1",
            "kind": "Pod",
            "metadata": {"name": name, "namespace": NAMESPACE, "uid": pod.uid, "annotations": dict(pod.annotations)},
            "spec": {"nodeName": "node", "containers": [{"name": "tools", "image": "tools"}]},
        })
        return pod

    def remove_pod(self, pod: Pod) -> None:
        """Take a pod out of the cluster, as a forced deletion does before its sandbox is stopped."""
        self.api.store.remove("pods", NAMESPACE, pod.name)

    def statuses(self, pod: Pod) -> list[dict[str, Any]]:
        """Read a pod's network-status annotation: the attachments in order, as plain JSON."""
        stored = self.api.store.find("pods", NAMESPACE, pod.name)
        annotations = stored["metadata"]["annotations"] if stored else {}
        statuses: list[dict[str, Any]] = json.loads(annotations.get(NETWORK_STATUS, "[]"))
        return statuses
