"""A node changes over, and back, while pods run on it: thick plugins of both implementations, thin and thick, neighbouring releases.

``reference.py`` plays the Go implementation; a release before the handshake is our own, with the handshake taken out on its way.
"""

from __future__ import annotations

import json
import os
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multus.protocol import wire
from multus.testing.kubeapi_credentials import Certificates
from multus.testing.listener import Listener
from multus.testing.node import UPLINK
from multus.testing.pods import Pod
from multus.testing.thick import PRIMARY, ThickNode
from tests.integration.reference import (
    CAPABILITIES,
    attach_as_reference,
    blue_conf,
    cluster_conf,
    detach_as_reference,
    green_conf,
    rules,
)

BODY_MAX = 1 << 20
GENERATED = {
    "00-multus.conf": {
        "binDir": "/opt/cni/bin", "capabilities": {"portMappings": True}, "cniVersion": "1.0.0", "logLevel": "verbose",
        "logToStderr": True, "name": "multus-cni-network", "clusterNetwork": "/host/etc/cni/net.d/10-demo.conflist", "type": "multus-shim",
    },
    "00-multus.conflist": {
        "cniVersion": "1.0.0", "name": "multus-cni-network", "plugins": [{
            "type": "multus", "cniConf": "/host/etc/cni/multus/net.d", "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig",
            "delegates": [{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "bridge"}]}],
        }],
    },
}  # fmt: skip
"""What the Go daemon, and the Go entry point, write on a node.  Spec: Multus behaviour, "Generating and writing", "Layout"."""


def call_thin(node: ThickNode, multus: str, command: str, pod: Pod) -> str:
    """A call of the thin plugin on the same node; what went wrong."""
    with node.namespace.entered():
        config = {
            "cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus", "kubeconfig": node.kubeconfig,
            "binDir": node.plugin_folder, "cniDir": node.cni_dir, "confDir": node.conf_dir, "delegates": [node.cluster_network()],
        }  # fmt: skip
        return pod.call(multus, command, config, plugin_folder=node.plugin_folder).error


# --- Pods that the other one attached ---


def test_our_daemon_detaches_what_the_go_daemon_attached(thick_node: ThickNode) -> None:
    with thick_node.pod("web") as pod:
        attach_as_reference(thick_node, pod)
        assert (sorted(pod.links()), len(rules(thick_node))) == (["eth0", "net1", "net2"], 1)
        assert thick_node.detach(pod).error == ""
        assert (pod.links(), rules(thick_node)) == ({}, [])
    assert thick_node.remains() == {}


def test_the_go_daemon_detaches_what_ours_attached(thick_node: ThickNode) -> None:
    """Ours is stopped, as on a node that has changed back."""
    node = thick_node
    node.put_primary(cluster_conf(node))
    for conf in (blue_conf(node), green_conf(node)):
        node.add_network(conf["name"], conf)
    with node.pod("web", [{"name": "blue", **CAPABILITIES}, {"name": "green"}]) as pod:
        assert node.attach(pod).error == ""
        assert len(rules(node)) == 1
        assert node.stop() == 0
        detach_as_reference(node, pod)
        assert (pod.links(), rules(node)) == ({}, [])
        os.unlink(os.path.join(node.cni_dir, pod.container_id))  # the last thing that the Go implementation does


def test_a_delete_between_the_two_daemons_is_done_by_ours(thick_node: ThickNode) -> None:
    """The Go daemon attached the pod and is gone; our shim is installed, our daemon not started yet."""
    node = thick_node
    with node.pod("web") as pod:
        attach_as_reference(node, pod)
        assert node.stop() == 0
        assert node.detach(pod).error == ""
        assert len(os.listdir(os.path.join(node.cni_dir, "intents"))) == 1
        assert sorted(pod.links()) == ["eth0", "net1", "net2"]
        node.start()
        node.wait_until(lambda: node.metrics()["multus_pending_intents"] == 0, "the kept DEL is done")
        assert (pod.links(), rules(node)) == ({}, [])
    assert node.remains() == {}


def test_what_was_attached_before_the_change_is_checked_and_survives_gc(thick_node: ThickNode) -> None:
    node = thick_node
    with node.pod("old") as old:
        attach_as_reference(node, old, with_blue=False)
        assert node.call("CHECK", old).error == ""
        valid = [{"containerID": old.container_id, "ifname": "eth0"}]
        assert node.call("GC", old, cniVersion="1.1.0", **{"cni.dev/valid-attachments": valid}).error == ""
        assert sorted(old.links()) == ["eth0", "net1"]
        assert node.detach(old).error == ""
    assert node.remains() == {}


# --- The generated configuration ---


@pytest.mark.parametrize("name", GENERATED)
def test_what_the_go_implementation_generated_is_never_taken_for_the_primary(
    machine: None, shim_binary: str, daemon_binary: str, certificates: Certificates, tmp_path: Path, name: str
) -> None:
    """It sorts before every other file, and stays on the node where its writer was killed."""
    with ThickNode(shim_binary, daemon_binary, tmp_path, certificates=certificates, starts=False) as node:
        Path(node.cni_config_dir, name).write_text(json.dumps(GENERATED[name]))
        Path(node.cni_config_dir, f"00-a-copy-of-{name}").write_text(json.dumps(GENERATED[name]))
        node.start()
        assert (node.config["type"], node.config["clusterNetwork"]) == ("multus-shim", os.path.join(node.cni_config_dir, PRIMARY))
        with node.pod("web") as pod:
            assert node.attach(pod).error == ""
            assert node.detach(pod).error == ""


def test_a_go_shim_finds_in_our_file_what_it_reads(thick_node: ThickNode) -> None:
    """Each key in the kind that it expects; those that are ours it ignores."""
    expected = {
        "binDir": str, "capabilities": dict, "cniVersion": str, "logFile": str, "logLevel": str, "logToStderr": bool, "logOptions": dict,
        "name": str, "clusterNetwork": str, "namespaceIsolation": bool, "globalNamespaces": str, "type": str, "cniDir": str,
        "auxiliaryCNIChainName": str, "daemonSocketDir": str,
    }  # fmt: skip
    config = thick_node.config
    assert {"cniVersion", "name", "type", "clusterNetwork", "daemonSocketDir"} <= config.keys()
    assert {key: type(value) for key, value in config.items() if key in expected} == {
        key: expected[key] for key in config if key in expected
    }
    lowered = {key.lower(): key for key in expected}
    assert [key for key in config if lowered.get(key.lower(), key) != key] == []
    assert os.path.basename(thick_node.config_path).startswith("00-multus"), "files of that name are no primary for the Go daemon"


# --- Thin and thick ---


def test_thin_and_thick_detach_what_the_other_attached(thick_node: ThickNode, multus_binary: str) -> None:
    node = thick_node
    node.add_network("green", {"type": "macvlan", "master": UPLINK, "ipam": node.host_local("10.30.0.0/24")})
    with node.pod("first", "green") as first, node.pod("second", "green") as second:
        assert call_thin(node, multus_binary, "ADD", first) == ""
        assert node.attach(second).error == ""
        assert node.detach(first).error == ""
        assert call_thin(node, multus_binary, "DEL", second) == ""
        assert (first.links(), second.links()) == ({}, {})
    assert node.remains() == {}


# --- Neighbouring releases ---


class Between(Listener):
    """Stands between shim and daemon, and takes the handshake out; ``with Between(…):``.

    Args:
        of: ``shim``: its header does not reach the daemon, so it is one from before; ``daemon``: what the handshake adds to its
            answers does not reach the shim.
    """

    def __init__(self, folder: str, socket_path: str, of: str) -> None:
        self.answers: list[tuple[str, wire.Response]] = []
        """What the daemon said, by path."""
        self._to, self._of = socket_path, of
        super().__init__(os.path.join(folder, "multus.sock"), self._pass_on)

    def _pass_on(self, connection: socket.socket) -> None:
        request = wire.read_request(connection.recv, BODY_MAX)
        headers = dict(request.headers)
        assert headers.pop("multus-shim", "1") == "1"
        if self._of != "shim" and request.target == "/cni":
            headers["multus-shim"] = "1"
        for name in ("content-length", "connection"):
            headers.pop(name, None)
        with socket.socket(socket.AF_UNIX) as onward:
            onward.connect(self._to)
            onward.sendall(wire.request(request.method, request.target, [*headers.items(), ("Connection", "close")], request.body))
            answer = wire.read_response(onward.recv, request.method, BODY_MAX)
        self.answers.append((request.target, answer))
        connection.sendall(wire.response(answer.status, [("Connection", "close")], self._older(answer.body)))

    def _older(self, body: bytes) -> bytes:
        """An answer as a daemon without the handshake gives it."""
        if self._of != "daemon" or not body.startswith(b"{"):
            return body
        document = json.loads(body)
        return json.dumps({key: value for key, value in document.items() if key not in ("Stdout", "cniVersion")}).encode()


@pytest.fixture
def between(thick_node: ThickNode, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Callable[[str], Between]]:
    """The node's shims reach their daemon through it."""
    folder = str(tmp_path_factory.mktemp("old"))
    started: list[Between] = []

    def start(of: str) -> Between:
        thick_node.settings["daemonSocketDir"] = folder
        thick_node.stop()
        thick_node.start()
        started.append(Between(folder, thick_node.socket_path, of).__enter__())
        return started[-1]

    yield start
    for each in started:
        each.__exit__(None, None, None)


@pytest.mark.parametrize("older", ["shim", "daemon"])
def test_shim_and_daemon_of_neighbouring_releases_serve_every_verb(
    thick_node: ThickNode, between: Callable[[str], Between], older: str
) -> None:
    node = thick_node
    peer = between(older)
    node.add_network("green", {"type": "macvlan", "master": UPLINK, "ipam": node.host_local("10.30.0.0/24")})
    with node.pod("web", "green") as pod:
        added = node.attach(pod)
        assert added.error == ""
        assert added.document["cniVersion"] == "1.0.0", "as the caller's configuration, whoever converts it"
        assert [each["address"] for each in added.document["ips"]] == list(pod.links()["eth0"].addresses)
        assert node.call("CHECK", pod).error == ""
        assert node.call("STATUS", pod, cniVersion="1.1.0").error == ""
        refused = node.call("ADD", pod)
        assert (refused.status, refused.document["cniVersion"], refused.document["code"] > 0) == (1, "1.0.0", True)
        assert node.detach(pod).error == ""
    assert node.remains() == {}
    first = next(json.loads(answer.body) for path, answer in peer.answers if path == "/cni")
    assert set(first) == ({"Result"} if older == "shim" else {"Result", "Stdout"})
    assert first["Result"]["cniVersion"] == "1.1.0"
