"""Static pods: the kubelet makes them from files, and their mirrors in the API have another UID.

A privileged pod writes the file, where ``--static-pod-path`` says where.
"""

from __future__ import annotations

import json

import pytest

from tests.e2e.cluster import Cluster

NAME = "multus-e2e-static"


def test_a_static_pod_gets_its_networks(cluster: Cluster, request: pytest.FixtureRequest) -> None:
    folder = request.config.getoption("--static-pod-path", default="")
    if not folder:
        pytest.skip("writes to a node: allow it with --static-pod-path, such as /etc/kubernetes/manifests")
    cluster.add_network("static-pod", cluster.macvlan({"type": "host-local", "ranges": [[{"subnet": "10.1.4.0/24"}]]}))
    node = cluster.nodes[0]
    manifest = {
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": NAME, "namespace": cluster.namespace, "annotations": {"k8s.v1.cni.cncf.io/networks": "static-pod"}},
        "spec": {"containers": [{"name": "main", "image": cluster.settings.image, "command": ["sleep", "3600"]}]},
    }  # fmt: skip
    mirror = f"{NAME}-{node}"
    with cluster.file_on_node(node, folder, f"{NAME}.json", json.dumps(manifest)):
        cluster.appears(mirror)
        cluster.running(mirror)
        assert [entry["interface"] for entry in cluster.statuses(mirror)] == ["eth0", "net1"]
    cluster.disappears(mirror)
