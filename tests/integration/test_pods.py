"""The test kit's own namespaces, pods and nodes: do they see what is there, and go when they should?"""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from multus.testing.node import Node
from multus.testing.pods import Answer, Namespace, Pod


@pytest.fixture
def namespace(machine: None) -> Namespace:
    return Namespace()


def test_a_namespace_is_apart_and_has_lo_up(namespace: Namespace) -> None:
    with namespace:
        assert {} == namespace.links()
        assert namespace.pings("127.0.0.1")
        assert not namespace.pings("192.0.2.1")


def test_a_namespace_goes_with_its_block(namespace: Namespace) -> None:
    with namespace:
        path = namespace.path
        assert os.path.exists(path)
    assert not os.path.exists(path)


def test_only_the_calling_thread_enters(namespace: Namespace) -> None:
    own = os.readlink("/proc/thread-self/ns/net")
    with namespace:
        with namespace.entered():
            assert own != os.readlink("/proc/thread-self/ns/net")
        assert own == os.readlink("/proc/thread-self/ns/net")


def test_processes_inside_are_seen_until_they_end(namespace: Namespace) -> None:
    with namespace:
        with namespace.entered():
            process = subprocess.Popen(["sleep", "60"])
        try:
            assert (process.pid,) == namespace.processes()
        finally:
            process.kill()
            process.wait()
        assert () == namespace.processes()


def test_a_failing_command_tells_so_unless_it_may_fail(namespace: Namespace) -> None:
    with namespace:
        with pytest.raises(subprocess.CalledProcessError):
            namespace.run("false")
        assert "" == namespace.run("false", check=False)


@pytest.mark.parametrize(
    ("answer", "error"),
    [
        (Answer(0, {"msg": "ignored"}, ""), ""),
        (Answer(1, {"code": 7, "msg": "no name", "details": "at $"}, ""), "no name at $"),
        (Answer(1, {"code": 7, "msg": "no name"}, "noise"), "no name"),
        (Answer(2, None, "panic\n"), "exit status 2: panic"),
        (Answer(-9, [], ""), "exit status -9: nothing said"),
    ],
)
def test_an_answer_tells_what_went_wrong(answer: Answer, error: str) -> None:
    assert error == answer.error


def test_a_plugin_gets_what_a_runtime_gives_it(machine: None, tmp_path: Path) -> None:
    plugin = tmp_path / "plugin"
    told = """'{"command": "%s", "ifname": "%s", "args": "%s"}' $CNI_COMMAND $CNI_IFNAME "$CNI_ARGS\""""
    plugin.write_text(f"#!/bin/sh\ncat >&2; printf {told}\n")
    plugin.chmod(0o755)
    with Pod("web", "shop", uid="u", container_id="c") as pod:
        answer = pod.call(str(plugin), "ADD", {"name": "n"}, ifname="net1")
    args = "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_INFRA_CONTAINER_ID=c;K8S_POD_UID=u"
    assert Answer(0, {"command": "ADD", "ifname": "net1", "args": args}, '{"name": "n"}') == answer


def test_an_answer_that_is_no_json_is_none(machine: None, tmp_path: Path) -> None:
    with Pod("web") as pod:
        assert Answer(0, None, "") == pod.call("/bin/true", "DEL", {})


def test_a_node_tells_what_remains(node: Node) -> None:
    assert {} == node.remains()
    for path in (Path(node.leases, "blue", "10.0.0.2"), Path(node.leases, "blue", "lock"), Path(node.cni_dir, "c1")):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.touch()
    node.namespace.run("ip", "link", "add", "left0", "type", "veth", "peer", "name", "left1")
    node.namespace.run("ip", "link", "add", "kept0", "type", "bridge")
    expected = {"links": ["left0", "left1"], "leases": [f"{node.leases}/blue/10.0.0.2"], "journal": [f"{node.cni_dir}/c1"]}
    assert expected == node.remains()


def test_a_pod_of_the_cluster_keeps_its_uid(node: Node) -> None:
    created = node.pod("web", "blue")
    assert created.uid == node.pod("web").uid
    assert created.container_id != node.pod("web").container_id
