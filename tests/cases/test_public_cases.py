"""Faults that users of CNI meta-plugins reported, from end to end: environment and configuration in, and what the world then looks like.

Each test has the number of its case in its name.  Delegates are recording executables, the API server is a stand-in, namespaces
are real; needs root.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest

import multus
from multus.testing.kubeapi import KubeAPI
from multus.testing.pods import Namespace
from multus.testing.scriptable import Answer, DelegateCall, ScriptedDelegates

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes network namespaces")

MULTUS = [sys.executable, "-m", "multus.commands.cni"]
TEAM, POD, UID, CONTAINER = "team-kestrel", "lantern-0", "7b1c2d30-0000-4000-8000-0000000000a1", "c0ffee01"
WHERE = f"[{TEAM}/{POD}/{UID}"
ARGS = f"IgnoreUnknown=1;K8S_POD_NAMESPACE={TEAM};K8S_POD_NAME={POD};K8S_POD_INFRA_CONTAINER_ID={CONTAINER};K8S_POD_UID={UID}"
STATUS = "k8s.v1.cni.cncf.io/network-status"
NETWORKS = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK = "v1.multus-cni.io/default-network"
BUSY = {"code": 999, "msg": "link busy: no such file or directory in pool"}


class Ended(NamedTuple):
    """How a call ended: exit status, and what was printed, decoded; None: nothing."""

    status: int
    document: Any


class Node:
    """BASE and what it needs: folders, an API server, delegates, the pod's namespace."""

    def __init__(self, folder: Path, api: KubeAPI, namespace: Namespace) -> None:
        self.folder = folder
        self.api = api
        self.namespace = namespace
        self.delegates = ScriptedDelegates(folder, "fake-primary", "fake-a", "fake-b", "fake-ipam")
        self.kubeconfig = api.kubeconfig(folder / "kubeconfig")
        self.state = folder / "c"
        self.base: dict[str, object] = {
            "cniVersion": "1.1.0",
            "name": "meta-net",
            "type": "multus",
            "kubeconfig": self.kubeconfig,
            "cniDir": str(self.state),
            "confDir": str(folder / "nad.d"),
            "binDir": self.delegates.bin,
            "delegates": [{"cniVersion": "1.0.0", "name": "trunk", "type": "fake-primary"}],
        }

    def run(self, command: str, **more: object) -> Ended:
        environ = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": CONTAINER,
            "CNI_NETNS": self.namespace.path,
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": ARGS,
            "CNI_PATH": self.delegates.bin,
            "PATH": os.environ["PATH"],
            "PYTHONPATH": str(Path(multus.__file__).parent.parent),
        }
        stdin = json.dumps({**self.base, **more}).encode()
        done = subprocess.run(MULTUS, input=stdin, env=environ, capture_output=True, check=False, timeout=60)
        return Ended(done.returncode, json.loads(done.stdout) if done.stdout else None)

    def put_pod(self, networks: str = "", default_network: str = "") -> None:
        annotations = {key: text for key, text in ((NETWORKS, networks), (DEFAULT_NETWORK, default_network)) if text}
        metadata = {"name": POD, "namespace": TEAM, "uid": UID, "annotations": annotations}
        self.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "n"}})

    def put_network(self, config: dict[str, object], namespace: str = TEAM) -> None:
        self.api.put({
            "apiVersion": "k8s.cni.cncf.io/v1",
            "kind": "NetworkAttachmentDefinition",
            "metadata": {"name": config["name"], "namespace": namespace},
            "spec": {"config": json.dumps(config)},
        })  # fmt: skip

    def status(self) -> list[dict[str, Any]]:
        """The pod's network-status annotation."""
        pod = self.api.store.find("pods", TEAM, POD)
        assert pod is not None
        status: list[dict[str, Any]] = json.loads(pod["metadata"]["annotations"][STATUS])
        return status

    def events(self) -> list[tuple[str, str, str]]:
        return [(event["type"], event["reason"], event["message"]) for event in self.api.store.all("events")]

    def default_routes(self) -> list[str]:
        """The IPv4 default routes of the namespace, as iproute2 prints them, up to the interface."""
        return [" ".join(line.split()[:5]) for line in self.namespace.run("ip", "-4", "route", "show", "default").splitlines()]

    def cached_default_routes(self, network: str, ifname: str) -> list[dict[str, str]]:
        """The default routes of a cached result."""
        cached = json.loads((self.state / "results" / f"{network}-{CONTAINER}-{ifname}").read_text())
        return [route for route in cached["result"].get("routes", []) if route.get("dst", "0.0.0.0/0") == "0.0.0.0/0"]

    def left(self) -> list[str]:
        """The files of the state folder."""
        return sorted(str(path.relative_to(self.state)) for path in self.state.rglob("*") if path.is_file())


@pytest.fixture
def node(tmp_path: Path) -> Iterator[Node]:
    """A node with ``lan-a`` of ``fake-a`` and ``lan-b`` of ``fake-b``."""
    with KubeAPI() as api, Namespace() as namespace:
        node = Node(tmp_path, api, namespace)
        node.put_network({"cniVersion": "1.0.0", "name": "lan-a", "type": "fake-a"})
        node.put_network({"cniVersion": "1.0.0", "name": "lan-b", "type": "fake-b"})
        yield node


def brief(calls: list[DelegateCall]) -> list[tuple[str, str, str]]:
    return [(call.command, call.type, call.ifname) for call in calls]


def link(address: str, gateway: str = "", dst: str = "0.0.0.0/0") -> Answer:
    """A link with an address and perhaps a default route, in the kernel and in the result."""
    return Answer(addresses=(address,), routes=((dst, gateway),) if gateway else ())


# --- A1, A3: the default route ---


@pytest.mark.parametrize("told", [{"dst": "0.0.0.0/0", "gw": "192.0.2.1"}, {"gw": "192.0.2.1"}], ids=["explicit", "no destination"])
def test_a1_default_route_on_net1_replaces_the_one_on_eth0(node: Node, told: dict[str, str]) -> None:
    node.put_pod('[{"name":"lan-a","default-route":["198.51.100.1"]}]')
    result = {
        "interfaces": [{"name": "$IFNAME", "sandbox": "$NETNS"}],
        "ips": [{"address": "192.0.2.20/24", "interface": 0}],
        "routes": [told],
    }
    node.delegates.answer("fake-primary", "ADD", link("192.0.2.20/24", "192.0.2.1")._replace(result=result))
    node.delegates.answer("fake-a", "ADD", link("198.51.100.20/24"))
    ended = node.run("ADD")
    assert ended.status == 0, ended.document
    assert node.default_routes() == ["default via 198.51.100.1 dev net1"]
    assert node.cached_default_routes("trunk", "eth0") == []
    assert node.cached_default_routes("lan-a", "net1") == [{"dst": "0.0.0.0/0", "gw": "198.51.100.1"}]
    assert ended.document.get("routes", []) == []
    assert node.run("CHECK").status == 0
    assert node.run("DEL").status == 0


def test_a1_gateway_off_the_link_fails_add_and_rolls_back(node: Node) -> None:
    node.put_pod('[{"name":"lan-a","default-route":["203.0.113.77"]}]')
    node.delegates.answer("fake-primary", "ADD", link("192.0.2.20/24", "192.0.2.1"))
    node.delegates.answer("fake-a", "ADD", link("198.51.100.20/24"))
    ended = node.run("ADD")
    assert ended.status == 1
    assert "203.0.113.77" in ended.document["msg"]
    assert brief(node.delegates.calls())[2:] == [("DEL", "fake-a", "net1"), ("DEL", "fake-primary", "eth0")]
    assert list(node.namespace.links()) == []


def test_a3_empty_default_route_keeps_the_attachments_own_and_takes_the_others(node: Node) -> None:
    node.put_pod('[{"name":"lan-a","default-route":[]},{"name":"lan-b"}]')
    node.delegates.answer("fake-primary", "ADD", link("192.0.2.20/24", "192.0.2.1"))
    node.delegates.answer("fake-a", "ADD", link("198.51.100.20/24", "198.51.100.1"))
    node.delegates.answer("fake-b", "ADD", link("203.0.113.20/24", "203.0.113.1"))
    ended = node.run("ADD")
    assert ended.status == 0, ended.document
    assert node.default_routes() == ["default via 198.51.100.1 dev net1"]
    assert node.cached_default_routes("trunk", "eth0") == []
    assert node.cached_default_routes("lan-a", "net1") == [{"dst": "0.0.0.0/0", "gw": "198.51.100.1"}]
    assert node.cached_default_routes("lan-b", "net2") == []


# --- A4: requests in the default-network annotation ---

A4_POD = '[{"name":"alt-trunk","ips":["192.0.2.77/24"],"mac":"02:00:5e:00:00:4d"}]'


def test_a4_default_networks_requests_reach_its_delegate(node: Node) -> None:
    capabilities = {"ips": True, "mac": True}
    node.put_network({"cniVersion": "1.0.0", "name": "alt-trunk", "type": "fake-a", "capabilities": capabilities}, "infra")
    node.put_pod(default_network=A4_POD)
    ended = node.run("ADD", multusNamespace="infra")
    assert ended.status == 0, ended.document
    (call,) = node.delegates.calls()
    assert (call.type, call.ifname) == ("fake-a", "eth0")
    assert call.config["runtimeConfig"] == {"ips": ["192.0.2.77/24"], "mac": "02:00:5e:00:00:4d"}
    assert [event for event in node.events() if event[0] == "Warning"] == []


def test_a4_request_without_capability_is_a_warning_event_and_a_log_line(node: Node) -> None:
    node.put_network({"cniVersion": "1.0.0", "name": "alt-trunk", "type": "fake-a"}, "infra")
    node.put_pod(default_network=A4_POD)
    log = node.folder / "log"
    assert node.run("ADD", multusNamespace="infra", logLevel="error", logFile=str(log), logToStderr=False).status == 0
    ((_, _, message),) = [event for event in node.events() if event[0] == "Warning"]
    for text in (message, log.read_text()):
        assert "infra/alt-trunk" in text
        assert "ips, mac" in text


def test_a4_request_without_capability_fails_before_any_delegate_where_strictness_is_asked_for(node: Node) -> None:
    node.put_network({"cniVersion": "1.0.0", "name": "alt-trunk", "type": "fake-a"}, "infra")
    node.put_pod(default_network=A4_POD)
    ended = node.run("ADD", multusNamespace="infra", strictCapabilities=True)
    assert (ended.status, ended.document["code"]) == (1, 7)
    assert "ips, mac" in ended.document["msg"]
    assert node.delegates.calls() == []


# --- A6: the pod is not there ---


def test_a6_pod_that_is_not_there_is_code_11_and_nothing_is_done(node: Node) -> None:
    ended = node.run("ADD")
    assert (ended.status, ended.document["code"]) == (1, 11)
    assert f"{TEAM}/{POD}" in ended.document["msg"]
    assert UID in ended.document["msg"]
    assert node.delegates.calls() == []
    assert not node.state.exists()


def test_a6_older_answer_on_demand_carries_no_address(node: Node) -> None:
    ended = node.run("ADD", podNotFoundResult="empty")
    assert ended == Ended(0, {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": node.namespace.path}]})
    assert node.delegates.calls() == []


def test_a6_del_of_a_pod_that_is_not_there_succeeds_and_runs_nothing(node: Node) -> None:
    assert node.run("DEL") == Ended(0, None)
    assert node.delegates.calls() == []


# --- B1: DEL of a list ---


def test_b1_del_gets_the_whole_configuration_back(node: Node) -> None:
    ipam = {"type": "fake-ipam", "pool": "p7", "vendor": {"kubeconfig": "/etc/x/kc", "nodename": "n7"}}
    plugins = [{"type": "fake-a", "ipam": ipam}, {"type": "fake-b", "tuning": {"k": [1, 2]}}]
    node.put_network({"cniVersion": "1.0.0", "name": "lan-a", "plugins": plugins})
    node.put_pod("lan-a")
    assert node.run("ADD").status == 0
    added = {call.type: call.config for call in node.delegates.new_calls()}
    result = json.loads((node.state / "results" / f"lan-a-{CONTAINER}-net1").read_text())["result"]
    node.api.store.remove("pods", TEAM, POD)
    node.api.store.remove("network-attachment-definitions", TEAM, "lan-a")
    assert node.run("DEL") == Ended(0, None)
    deleted = node.delegates.new_calls()
    assert brief(deleted) == [("DEL", "fake-b", "net1"), ("DEL", "fake-a", "net1"), ("DEL", "fake-primary", "eth0")]
    for call in deleted[:2]:
        assert call.config == {**added[call.type], "prevResult": result}
    assert deleted[1].config["ipam"] == ipam
    assert deleted[0].config["tuning"] == {"k": [1, 2]}
    assert node.left() == []


# --- B4: a delegate fails once ---


def test_b4_failed_del_is_retried_and_forgotten_once_it_succeeds(node: Node) -> None:
    node.put_pod("lan-a,lan-b")
    assert node.run("ADD").status == 0
    node.delegates.new_calls()
    node.api.store.remove("pods", TEAM, POD)
    node.delegates.answer("fake-a", "DEL", Answer(error=BUSY), Answer())

    first = node.run("DEL")
    first_calls = node.delegates.new_calls()
    assert brief(first_calls) == [("DEL", "fake-b", "net2"), ("DEL", "fake-a", "net1"), ("DEL", "fake-primary", "eth0")]
    assert (first.status, first.document["code"]) == (1, 999)
    assert first.document["msg"].startswith(f"{WHERE}:lan-a]: ")
    assert node.left() == [CONTAINER, f"results/lan-a-{CONTAINER}-net1"]

    assert node.run("DEL") == Ended(0, None)
    (again,) = [call for call in node.delegates.new_calls() if call.type == "fake-a"]
    assert (again.config, again.environment) == (first_calls[1].config, first_calls[1].environment)
    assert node.left() == []

    assert node.run("DEL") == Ended(0, None)
    assert node.delegates.new_calls() == []


def test_b4_rollback_goes_on_after_a_failing_del_and_adds_own_error_is_told(node: Node) -> None:
    node.put_pod("lan-a,lan-b")
    node.delegates.answer("fake-b", "ADD", Answer(error={"code": 57, "msg": "no lease"}))
    node.delegates.answer("fake-a", "DEL", Answer(error=BUSY), Answer())
    ended = node.run("ADD")
    assert brief(node.delegates.new_calls())[3:] == [("DEL", "fake-b", "net2"), ("DEL", "fake-a", "net1"), ("DEL", "fake-primary", "eth0")]
    assert (ended.status, ended.document["code"]) == (1, 57)
    assert ended.document["msg"] == f"{WHERE}:lan-b]: cannot attach 'net2': plugin 'fake-b': no lease"
    assert node.run("DEL") == Ended(0, None)
    assert node.left() == []


# --- F2: a plugin that names no sandbox ---


@pytest.mark.parametrize(
    "result",
    [
        {"interfaces": [{"name": "eth0"}], "ips": [{"address": "192.0.2.31/24"}]},
        {"ips": [{"address": "192.0.2.31/24"}]},
        {
            "interfaces": [{"name": "veth7"}, {"name": "eth0", "sandbox": "$NETNS"}],
            "ips": [{"address": "192.0.2.31/24", "interface": 1}],
        },
    ],
    ids=["no sandbox", "no interfaces", "host side first"],
)
def test_f2_primary_has_one_default_entry_with_its_address(node: Node, result: dict[str, object]) -> None:
    node.put_pod()
    node.delegates.answer("fake-primary", "ADD", Answer(result=result))
    assert node.run("ADD").status == 0
    (entry,) = node.status()
    assert (entry["interface"], entry["ips"], entry["default"]) == ("eth0", ["192.0.2.31"], True)


def test_f2_status_is_one_patch_and_nothing_is_read_for_it(node: Node) -> None:
    node.put_pod("lan-a")
    assert node.run("ADD").status == 0
    pod, networks = f"/api/v1/namespaces/{TEAM}/pods/{POD}", f"/apis/k8s.cni.cncf.io/v1/namespaces/{TEAM}/network-attachment-definitions"
    made = [(request.method, request.path) for request in node.api.requests if not request.path.endswith("/events")]
    assert made == [("GET", pod), ("GET", f"{networks}/lan-a"), ("PATCH", f"{pod}/status")]


# --- I2: selections that break the rules ---


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('[{"name":"team-kestrel/lan-a"}]', ["element 0", '"name"', "team-kestrel/lan-a", '"namespace"']),
        ('[{"name":"lan-a","interface":"../../x"}]', ["element 0", '"interface"', "../../x"]),
        ('[{"name":"lan-a","interface":"a-name-that-is-too-long"}]', ["element 0", '"interface"', "a-name-that-is-too-long"]),
        ('[{"name":"../lan-a"}]', ["element 0", '"name"', "../lan-a"]),
        ("[null]", ["element 0", "null"]),
        ('[{"name":"lan-a","ips":"192.0.2.9"}]', ["element 0", '"ips"', "192.0.2.9", "a list is expected"]),
        ("lan-a,", ["element 1", "empty"]),
        ('[{"name":"lan-a","interface":"eth0"}]', ["element 0", "eth0", "taken"]),
        ('[{"name":"lan-a","interface":"x0"},{"name":"lan-b","interface":"x0"}]', ["element 1", "x0", "taken"]),
    ],
)
def test_i2_selection_that_breaks_the_rules_fails_before_anything_is_fetched_or_run(node: Node, text: str, told: list[str]) -> None:
    node.put_pod(text)
    ended = node.run("ADD")
    assert (ended.status, ended.document["code"]) == (1, 7)
    assert [word for word in told if word not in ended.document["msg"]] == []
    assert [request.path for request in node.api.requests if "network-attachment-definitions" in request.path] == []
    assert node.delegates.calls() == []
    assert not node.state.exists()


# --- J1: a definition that is malformed ---


def test_j1_malformed_definition_is_one_useful_line_and_nothing_runs(node: Node) -> None:
    plugins = [{"type": "fake-b"}, {"type:": "tuning", "secretToken": "hunter-7"}]
    node.put_network({"cniVersion": "1.0.0", "name": "lan-b", "plugins": plugins})
    node.put_pod("lan-a,lan-b")
    ended = node.run("ADD")
    assert (ended.status, ended.document["code"]) == (1, 7)
    assert ended.document["msg"] == f'{WHERE}]: net-attach-def {TEAM}/lan-b: plugin 1 has no `type`, did you mean the key "type:"'
    assert "details" not in ended.document
    assert node.delegates.calls() == []
    assert node.left() == []
    assert [(kind, message) for kind, _, message in node.events()] == [("Warning", ended.document["msg"])]
