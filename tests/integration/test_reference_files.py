"""Pods change hands: what the reference implementation attached we detach, and what we record it can read.

``reference.py`` plays its side.
Spec: Multus behaviour, "Scratch cache" and "Results cache".
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from multus.testing.node import Node
from multus.testing.pods import Pod
from tests.integration.reference import (
    CAPABILITIES,
    ELEMENT,
    assert_shape,
    attach_as_reference,
    blue_conf,
    cluster_conf,
    detach_as_reference,
    green_conf,
    rules,
)


def settings(node: Node) -> dict[str, Any]:
    """What the node runs after the change of hands: our multus, and an API server that is out of reach."""
    return {"delegates": [cluster_conf(node)], "kubeconfig": "/nonexistent/kubeconfig"}


def test_del_of_a_pod_that_the_reference_attached(node: Node) -> None:
    with node.pod("web") as pod:
        attach_as_reference(node, pod)
        assert ["eth0", "net1", "net2"] == sorted(pod.links())
        assert 1 == len(rules(node))
        assert "" == node.detach(pod, **settings(node)).error
        assert {} == pod.links()
        assert [] == rules(node)
        assert {} == node.remains()


@pytest.mark.parametrize("damage", ["missing", "torn"])
def test_del_when_the_references_record_is_damaged(node: Node, damage: str) -> None:
    """It writes in place: a crash leaves half a file.  The results files tell what there is."""
    with node.pod("web") as pod:
        attach_as_reference(node, pod)
        path = Path(node.cni_dir, pod.container_id)
        if damage == "missing":
            path.unlink()
        else:
            path.write_bytes(path.read_bytes()[:100])
        assert "" == node.detach(pod, **settings(node)).error
        assert {} == pod.links()
        assert [] == rules(node)
        assert {} == node.remains()


def test_del_when_the_reference_was_killed_before_the_last_result(node: Node) -> None:
    with node.pod("web") as pod:
        attach_as_reference(node, pod)
        Path(node.cni_dir, "results", f"green-{pod.container_id}-net2").unlink()
        assert "" == node.detach(pod, **settings(node)).error
        assert {} == pod.links()
        assert {} == node.remains()


def test_check_of_a_pod_that_the_reference_attached(node: Node) -> None:
    with node.pod("web") as pod:
        attach_as_reference(node, pod, with_blue=False)
        assert "" == node.call("CHECK", pod, **settings(node)).error
        pod.run("ip", "link", "set", "net1", "down")
        pod.run("ip", "address", "flush", "dev", "net1")
        assert 1 == node.call("CHECK", pod, **settings(node)).status
        assert "" == node.detach(pod, **settings(node)).error
        assert {} == node.remains()


def attach_as_ourselves(node: Node, pod_networks: list[object]) -> Pod:
    """Store the networks ``blue`` and ``green``, and give a pod that asks for some."""
    for conf in (blue_conf(node), green_conf(node)):
        node.add_network(conf["name"], conf)
    return node.pod("web", pod_networks)


def test_our_record_is_what_the_reference_reads(node: Node) -> None:
    asked: list[object] = [
        {"name": "blue", "interface": "blue", **CAPABILITIES, "default-route": ["10.20.0.1"]},
        {"name": "green", "mac": "02:00:00:00:00:05"},
    ]
    with attach_as_ourselves(node, asked) as pod:
        assert "" == node.attach(pod, delegates=[cluster_conf(node)]).error
        elements = json.loads(Path(node.cni_dir, pod.container_id).read_text())
        assert ["cluster", "default/blue", "default/green"] == [element["Name"] for element in elements]
        for element in elements:
            assert_shape(element, ELEMENT)
        assert [None, "blue", "net2"] == [element.get("ifnameRequest") or None for element in elements]
        assert ["10.20.0.1"] == elements[1]["default-route"]
        assert "02:00:00:00:00:05" == elements[2]["macRequest"]
        recorded = [json.loads(base64.b64decode(element["Bytes"], validate=True)) for element in elements]
        assert [cluster_conf(node), blue_conf(node), green_conf(node)] == recorded
        assert ["bridge", None, "macvlan"] == [element["Conf"].get("type") for element in elements]
        assert ["bridge", "portmap"] == [plugin["type"] for plugin in elements[1]["ConfList"]["plugins"]]
        assert "" == node.detach(pod).error


def test_a_reader_like_the_reference_detaches_what_we_attached(node: Node) -> None:
    """Last attachment first, last plugin of each first, with the recorded configuration, arguments and result."""
    with attach_as_ourselves(node, [{"name": "blue", **CAPABILITIES}, {"name": "green"}]) as pod:
        assert "" == node.attach(pod, delegates=[cluster_conf(node)]).error
        assert 1 == len(rules(node))
        detach_as_reference(node, pod)
        assert {} == pod.links()
        assert [] == rules(node)
        assert ["journal"] == list(node.remains())
        assert "" == node.detach(pod).error, "DEL is idempotent: plugins that have nothing left to do succeed"
        assert {} == node.remains()


def test_folders_and_files_are_for_root_alone(node: Node) -> None:
    with attach_as_ourselves(node, [{"name": "green"}]) as pod:
        assert "" == node.attach(pod).error
        folder = Path(node.cni_dir)
        assert [0o700, 0o700] == [path.stat().st_mode & 0o777 for path in (folder, folder / "results")]
        assert {0o600} == {path.stat().st_mode & 0o777 for path in folder.rglob("*") if path.is_file()}
        assert "" == node.detach(pod).error
