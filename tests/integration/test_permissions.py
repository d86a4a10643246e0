"""The roles of the manifests against what the API server was asked: every request is allowed, and every permission is used.

A pod with a claimed device and three networks takes a component through all requests that it can make.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import yaml

from multus.testing.kubeapi import KubeAPI, Request
from multus.testing.kubeapi_credentials import Certificates
from multus.testing.kubeapi_store import parse_path
from multus.testing.node import UPLINK, Node
from multus.testing.thick import ThickNode
from tests.integration.claims import CLAIMED, claim, claimed_pod

DEPLOYMENTS = Path(__file__).parents[2] / "deployments"
VERBS = {"POST": "create", "PUT": "update", "PATCH": "patch", "DELETE": "delete"}

Permission = tuple[str, str, str]
"""API group, resource with its subresource, verb."""


def granted(manifest: str, role: str) -> set[Permission]:
    """What a role of a manifest allows."""
    text = (DEPLOYMENTS / f"multus-{manifest}.yaml").read_text(encoding="utf-8")
    (document,) = (each for each in yaml.safe_load_all(text) if (each["kind"], each["metadata"]["name"]) == ("ClusterRole", role))
    return {
        (group, resource, verb)
        for rule in document["rules"]
        for group in rule["apiGroups"]
        for resource in rule["resources"]
        for verb in rule["verbs"]
    }


def used(request: Request) -> Permission:
    """The permission that a request needs.  Spec: Kubernetes, "Authorization overview", request verbs."""
    at = parse_path(request.path)
    assert at is not None, request.path
    verb = VERBS.get(request.method) or ("get" if at.name else "watch" if request.is_watch else "list")
    group, _, _ = at.resource.api_version.rpartition("/")
    return group, f"{at.resource.plural}/{at.sub}" if at.sub else at.resource.plural, verb


def asked(api: KubeAPI) -> set[Permission]:
    return {used(request) for request in api.requests}


def take_through(node: Node) -> None:
    """Attach a pod with a claimed device, and one that asks for a network which is not there."""
    node.add_network("vf", {"type": "macvlan", "master": UPLINK})
    (network,) = node.api.store.all("network-attachment-definitions")
    network["metadata"]["annotations"] = {"k8s.v1.cni.cncf.io/resourceName": CLAIMED}
    node.api.put(network, *claim())
    with node.pod("web", "vf") as pod:
        stored = node.api.store.find("pods", "default", "web")
        assert stored is not None
        node.api.put(claimed_pod(stored))
        answer = node.attach(pod)
        assert answer.error == ""
        assert node.detach(pod).error == ""
    with node.pod("other", "missing") as pod:
        stored = node.api.store.find("pods", "default", "other")
        assert stored is not None
        node.api.put({**stored, "spec": {"nodeName": "another"}})  # so that the daemon does not have it cached
        assert "missing" in node.attach(pod).error
        node.detach(pod)


def test_the_thin_plugins_role_is_what_it_uses(
    machine: None, multus_binary: str, certificates: Certificates, tmp_path: Path, with_kubelet: Callable[[str], str]
) -> None:
    with Node(with_kubelet(multus_binary), tmp_path, certificates=certificates) as node:
        take_through(node)
        assert asked(node.api) == granted("thin", "multus") == granted("crio", "multus")


def test_the_daemons_role_is_what_it_uses(
    machine: None, shim_binary: str, daemon_binary: str, certificates: Certificates, tmp_path: Path, with_kubelet: Callable[[str], str]
) -> None:
    with ThickNode(shim_binary, with_kubelet(daemon_binary), tmp_path, certificates=certificates) as node:
        take_through(node)
        node.wait_until(lambda: any(each.path.endswith("/events") for each in node.api.requests), "events are sent")
        node.stop()
        assert asked(node.api) == granted("thick", "multus")


def test_a_role_is_the_same_with_certificates() -> None:
    for way in ("thin", "thick"):
        assert granted(way, "multus") == granted(f"{way}-certificates", "multus")


def test_requests_are_told_by_the_permission_that_they_need() -> None:
    """So the tests above can fail."""
    found = [
        used(Request(method, path, query, {}, None, b""))
        for method, path, query in (
            ("GET", "/api/v1/namespaces/shop/pods/web", {}),
            ("GET", "/api/v1/pods", {"watch": "1"}),
            ("GET", "/apis/resource.k8s.io/v1/resourceslices", {}),
            ("PATCH", "/api/v1/namespaces/shop/pods/web/status", {}),
            ("POST", "/api/v1/namespaces/shop/events", {}),
        )
    ]
    assert json.loads(json.dumps(found)) == [
        ["", "pods", "get"],
        ["", "pods", "watch"],
        ["resource.k8s.io", "resourceslices", "list"],
        ["", "pods/status", "patch"],
        ["", "events", "create"],
    ]
