"""Cases from public bug reports, through shim and daemon: B3, C1, C4, C6, F2.

Both are processes; delegates are recording executables, the API server is a stand-in, namespaces are real; needs root.
"""

from __future__ import annotations

import json
import os
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from multus.testing.pods import Pod
from multus.testing.scriptable import Answer, ScriptedDelegates
from multus.testing.thick import PRIMARY, ThickNode

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes network namespaces")

TEAM, NAME, UID, CONTAINER = "team-kestrel", "lantern-0", "7b1c2d30-0000-4000-8000-0000000000a1", "c0ffee01"
TRUNK = {"cniVersion": "1.1.0", "name": "trunk", "type": "fake-primary"}
REPLAYED_WITHIN_S = 10


class Case:
    """BASE: a thick node with its delegates, ``lan-a`` and ``lan-b``, and the one pod."""

    def __init__(self, node: ThickNode, delegates: ScriptedDelegates, pod: Pod) -> None:
        self.node = node
        self.delegates = delegates
        self.pod = pod

    def put_pod(self, networks: str = "") -> None:
        """Store the pod, and wait until the daemon, if it runs, has it."""
        annotations = {"k8s.v1.cni.cncf.io/networks": networks} if networks else {}
        metadata = {"name": NAME, "namespace": TEAM, "uid": UID, "annotations": annotations}
        self.node.api.put({"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": {"nodeName": "node"}})
        self.node.wait_until(lambda: self.node.metrics()['multus_cache_objects{cache="pods"}'] == 1, "the pod is cached")

    def attached(self) -> dict[str, Any]:
        """The result of an ADD."""
        answer = self.node.attach(self.pod)
        assert answer.error == ""
        result: dict[str, Any] = answer.document
        return result

    def brief(self) -> list[tuple[str, str, str]]:
        """The calls since this was asked last."""
        return [(call.command, call.type, call.ifname) for call in self.delegates.new_calls()]


def binary(name: str) -> str:
    beside = Path(sys.executable).with_name(name)
    found = os.environ.get(name.upper().replace("-", "_") + "_BIN") or (str(beside) if beside.exists() else shutil.which(name))
    if found is None:
        pytest.skip(f"no {name} executable: install the package")
    return os.path.abspath(found)


@pytest.fixture
def make(tmp_path: Path) -> Iterator[Callable[..., Any]]:
    """A case, given further keys of the daemon's configuration."""

    @contextmanager
    def make(primary: dict[str, Any] = TRUNK, **settings: object) -> Iterator[Case]:
        delegates = ScriptedDelegates(tmp_path / "delegates", "fake-primary", "fake-a", "fake-b")
        shim, daemon = binary("multus-shim"), binary("multus-daemon")
        with ExitStack() as exits:
            node = ThickNode(shim, daemon, tmp_path, plugin_folder=delegates.bin, settings=settings, starts=False)
            exits.enter_context(node)
            for name in ("a", "b"):
                node.add_network(f"lan-{name}", {"type": f"fake-{name}"}, namespace=TEAM)
            pod = exits.enter_context(Pod(NAME, TEAM, uid=UID, container_id=CONTAINER))
            node.put_primary(primary)
            node.start()
            yield Case(node, delegates, pod)
            print(node.log[-4000:])  # shown with a failing test

    return make


# --- B3: daemon away at DEL ---


def test_b3_a_del_without_a_daemon_is_done_once_when_it_is_back(make: Callable[..., Any]) -> None:
    with make() as case:
        node = case.node
        case.put_pod("lan-a,lan-b")
        case.attached()
        case.brief()
        node.stop()
        assert "" == node.detach(case.pod).error
        intents = [path for path in node.remains()["journal"] if "/intents/" in path]
        assert 1 == len(intents)
        assert [] == case.brief()

        case.delegates.answer("fake-primary", "DEL", Answer(sleep_s=1.0))
        node.start()
        node.wait_until(lambda: node.metrics()["multus_pending_intents"] == 1, "the intent is counted", patience_s=2)
        node.wait_until(lambda: node.remains() == {}, "the intent is done and dropped", patience_s=REPLAYED_WITHIN_S)
        assert 0 == node.metrics()["multus_pending_intents"]
        expected = [("DEL", "fake-b", "net2"), ("DEL", "fake-a", "net1"), ("DEL", "fake-primary", "eth0")]
        assert expected == case.brief()

        node.stop()
        node.start()
        time.sleep(3)  # more than the daemon lets pass between two looks
        assert [] == case.brief()


def test_b3_a_del_that_fails_when_it_is_replayed_is_tried_again(make: Callable[..., Any]) -> None:
    with make() as case:
        node = case.node
        case.put_pod("lan-a")
        case.attached()
        node.stop()
        assert "" == node.detach(case.pod).error
        case.brief()
        case.delegates.answer("fake-a", "DEL", Answer(error={"code": 11, "msg": "busy"}), Answer())
        node.start()
        node.wait_until(lambda: node.remains() == {}, "the intent is done and dropped", patience_s=REPLAYED_WITHIN_S)
        assert [("DEL", "fake-a", "net1"), ("DEL", "fake-primary", "eth0"), ("DEL", "fake-a", "net1")] == case.brief()


def test_b3_a_del_replayed_after_the_namespace_is_gone_still_frees_what_is_outside(make: Callable[..., Any]) -> None:
    """As after a reboot: the record has the configuration, the pod has gone from the cluster."""
    with make() as case:
        node = case.node
        case.put_pod("lan-a")
        case.attached()
        node.stop()
        with Pod(NAME, TEAM, uid=UID, container_id=CONTAINER) as gone:
            pass
        environment = gone.environment

        class Gone(Pod):
            def environment(self, *arguments: Any, **more: Any) -> dict[str, str]:
                return {**environment(*arguments, **more), "CNI_NETNS": ""}

        with Gone(NAME, TEAM, uid=UID, container_id=CONTAINER) as pod:
            assert "" == node.detach(pod).error
        node.api.store.remove("pods", TEAM, NAME)
        case.brief()
        node.start()
        node.wait_until(lambda: node.remains() == {}, "the intent is done and dropped", patience_s=REPLAYED_WITHIN_S)
        calls = [(call.command, call.type, call.environment["CNI_NETNS"]) for call in case.delegates.new_calls()]
        assert [("DEL", "fake-a", ""), ("DEL", "fake-primary", "")] == calls


# --- C1: primary configuration half-written ---


def test_c1_a_half_written_primary_keeps_the_configuration_and_a_new_name_is_followed(make: Callable[..., Any]) -> None:
    with make(overrideNetworkName=True) as case:
        node = case.node
        primary, own = Path(node.cni_config_dir, PRIMARY), Path(node.config_path)
        good = own.read_bytes()
        for content in (b'{"cniVers', b""):
            primary.write_bytes(content)
            node.wait_until(lambda: node.ask("/readyz")[0] == 500, "it is noticed")
            assert str(primary) in node.ask("/readyz")[1]
            assert good == own.read_bytes()
        node.put_primary({**TRUNK, "name": "renamed"})
        node.wait_until(lambda: node.config["name"] == "renamed", "the new name is followed")
        case.put_pod()
        case.attached()
        assert "renamed" == case.delegates.calls()[-1].config["name"]


# --- C4: an old primary under a newer version ---


def test_c4_an_old_primary_is_called_in_its_version_and_answered_in_ours(make: Callable[..., Any]) -> None:
    with make({"cniVersion": "0.3.1", "name": "trunk", "type": "fake-primary"}, cniVersion="1.1.0") as case:
        node = case.node
        case.put_pod()
        assert "1.1.0" == case.attached()["cniVersion"]
        for command in ("CHECK", "STATUS"):
            assert "" == node.call(command, case.pod).error
        valid = [{"containerID": CONTAINER, "ifname": "eth0"}]
        assert "" == node.call("GC", case.pod, **{"cni.dev/valid-attachments": valid}).error
        assert "" == node.detach(case.pod).error
        told = [(call.command, call.config["cniVersion"]) for call in case.delegates.calls()]
        assert [("ADD", "0.3.1"), ("DEL", "0.3.1")] == told
        assert 1 == node.log.count("warning: configuration.note")
        assert {} == node.remains()


# --- C6: an explicit configuration file ---


def test_c6_an_explicit_configuration_is_served_until_a_signal(make: Callable[..., Any], tmp_path: Path) -> None:
    own = tmp_path / "my-multus.conf"
    own.write_text(json.dumps({
        "cniVersion": "1.1.0",
        "name": "mine",
        "type": "multus-shim",
        "daemonSocketDir": str(tmp_path / "run"),
        "cniDir": str(tmp_path / "multus"),
        "delegates": [TRUNK],
    }))  # fmt: skip
    with make(multusConfigFile=str(own)) as case:
        node = case.node
        node.config_path = os.path.join(node.cni_config_dir, own.name)
        assert own.read_bytes() == Path(node.config_path).read_bytes()
        time.sleep(5)  # the case says 30 s; the reference ends at once
        case.put_pod("lan-a")
        assert "1.1.0" == case.attached()["cniVersion"]
        assert "" == node.detach(case.pod).error
        begun = time.monotonic()
        assert 0 == node.stop()
        assert time.monotonic() - begun < 5
        assert {} == node.remains()


# --- F2: a plugin that names no sandbox ---

IPS = [{"address": "192.0.2.31/24"}]
POD_SIDE = {"name": "$IFNAME", "sandbox": "$NETNS"}


@pytest.mark.parametrize(
    ("result", "interface"),
    [
        ({"interfaces": [{"name": "eth0"}], "ips": IPS}, "eth0"),
        ({"ips": IPS}, "eth0"),
        ({"interfaces": [{"name": "veth7"}, POD_SIDE], "ips": [{**IPS[0], "interface": 1}]}, "eth0"),
    ],
    ids=["no sandbox", "no interfaces", "host side first"],
)
def test_f2_network_status_has_the_pods_side(make: Callable[..., Any], result: dict[str, Any], interface: str) -> None:
    with make() as case:
        case.delegates.answer("fake-primary", "ADD", Answer(result={"cniVersion": "1.0.0", **result}))
        case.put_pod()
        case.attached()
        told = [(entry["interface"], entry["ips"], entry["default"]) for entry in case.node.statuses(case.pod)]
        assert [(interface, ["192.0.2.31"], True)] == told
