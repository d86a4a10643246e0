"""What the daemon does with a request: bodies in, answers out, with delegates and the API server faked.

An ADD that attaches enters a namespace, which needs root: it is in ``tests/cases``.
"""

from __future__ import annotations

import base64
import json
from pathlib import Path
from typing import Any

import pytest

from multus.adapters.journal import Journal
from multus.adapters.metrics import Metrics
from multus.adapters.server import Answer, Work
from multus.adapters.work_queue import WorkQueue
from multus.commands import node_calls, wiring
from multus.commands.node_calls import NodeCalls
from multus.core import attach
from multus.defaults.execution import InProcessExecution
from multus.errors import DecodingError, DelegateError
from multus.protocol import conflists, daemon_config, results
from multus.protocol.wire import Request
from multus.testing.fakes import FakeGuard, FakeKube, FakePrograms, FakeRegistry, RecordingLog
from multus.types.delegate import Attachment, Delegate
from multus.types.pod import Pod

SHIM = {"multus-shim": "1"}
NETNS = "/nowhere/netns"


class Node:
    """A daemon's request handling without a daemon around it."""

    def __init__(self, folder: Path, **daemon: object) -> None:
        self.cni_dir = folder / "cni"
        self.daemon = {"cniDir": str(self.cni_dir), "binDir": "/bin-dir", **daemon}
        self.kube = FakeKube()
        self.kube.pods["shop", "web"] = Pod("shop", "web", "u1")
        self.programs = FakePrograms("primary", "second")
        self.metrics = Metrics()
        self.log = RecordingLog()
        self.deadlines: list[float] = []
        config = daemon_config.from_document(self.daemon, "daemon-config.json", 2)
        in_process = InProcessExecution(FakeRegistry(), self.programs, FakeGuard, self.log)
        world = wiring.World({"PATH": "/usr/bin", "CNI_PATH": "/inherited"}, self.programs, in_process)
        self.calls = NodeCalls(config, world, self._kube, self.kube, self.metrics, self.log)
        self.config: dict[str, Any] = {
            "cniVersion": "1.1.0",
            "name": "meta",
            "type": "multus-shim",
            "delegates": [{"cniVersion": "1.1.0", "name": "trunk", "type": "primary"}],
        }

    def _kube(self, deadline_s: float) -> FakeKube:
        self.deadlines.append(deadline_s)
        return self.kube

    def body(self, command: str, config: object = None, *, raw: bytes | None = None, env: Any = None, **members: object) -> bytes:
        environ = {
            "CNI_COMMAND": command,
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": NETNS,
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u1;EXTRA=7",
            "CNI_PATH": "/from/the/runtime",
            "HOME": "/root",
            **(env or {}),
        }
        content = json.dumps(self.config if config is None else config).encode() if raw is None else raw
        return json.dumps({"env": environ, "config": base64.b64encode(content).decode(), **members}).encode()

    def prepare(self, body: bytes, path: str = "/cni", headers: dict[str, str] | None = None) -> Work | Answer:
        return self.calls.prepare(Request("POST", path, headers or {}, body))

    def ask(self, command: str, path: str = "/cni", headers: dict[str, str] | None = None, **more: Any) -> tuple[int, Any]:
        """Status and decoded body of the answer, as a worker would give it."""
        prepared = self.prepare(self.body(command, **more), path, headers)
        assert isinstance(prepared, Work)
        answer = prepared.run()
        assert answer.content_type == ("application/json" if answer.body else "")
        return answer.status, json.loads(answer.body) if answer.body else None

    def record(self) -> None:
        """One network as an ADD leaves it."""
        conf = conflists.parse({"cniVersion": "1.1.0", "name": "trunk", "type": "primary", "id": 2**64 + 1}, where="a test")
        attachment = Attachment(
            Delegate("trunk", conf, is_cluster_network=True), "c1", NETNS, "eth0", (("K8S_POD_NAME", "web"),), result=results.empty("1.1.0")
        )
        journal = Journal(str(self.cni_dir))
        journal.write("c1", (attachment,))
        journal.write_result(attachment)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.cni_dir.rglob("*") if path.is_file())

    def count(self, name: str, **labels: str) -> float:
        return self.metrics.registry.get_sample_value(name, labels) or 0.0


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


def test_del_detaches_and_answers_with_nothing(node: Node) -> None:
    node.record()
    assert node.ask("DEL") == (200, None)
    assert [(call.command, call.type, call.config["id"]) for call in node.programs.made] == [("DEL", "primary", 2**64 + 1)]
    assert node.left() == []


def test_a_delegates_error_keeps_its_code_and_details(node: Node) -> None:
    node.record()
    node.programs.answer("primary", "DEL", DelegateError("busy", "br0", 57))
    message = "[shop/web/u1:trunk]: cannot detach 'eth0': plugin 'primary': busy"
    assert node.ask("DEL") == (400, {"code": 57, "msg": message, "details": "br0"})
    assert node.left() == ["c1", "trunk-c1-eth0"]


def test_our_shim_gets_an_error_that_it_can_print(node: Node) -> None:
    status, error = node.ask("CHECK", headers=SHIM, config={**node.config, "cniVersion": "0.4.0"})
    assert (status, list(error), error["cniVersion"], error["code"]) == (400, ["cniVersion", "code", "msg"], "0.4.0", 3)


def test_status_passes_the_delegates_answer(node: Node) -> None:
    assert node.ask("STATUS") == (200, None)
    node.programs.answer("primary", "STATUS", DelegateError("bridge down", "br0", 50))
    assert node.ask("STATUS") == (400, {"code": 50, "msg": "bridge down", "details": "br0"})


def test_gc_detaches_what_the_runtime_does_not_count(node: Node) -> None:
    node.record()
    assert node.ask("GC", config={**node.config, "cni.dev/valid-attachments": []}) == (200, None)
    assert [call.command for call in node.programs.made] == ["DEL", "GC"]
    assert node.left() == []


def test_add_answers_in_the_newest_version_and_to_our_shim_also_in_the_callers(node: Node) -> None:
    node.kube.pods.clear()
    config = {**node.config, "cniVersion": "0.4.0", "podNotFoundResult": "empty"}
    result = {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0", "sandbox": NETNS}]}
    assert node.ask("ADD", config=config) == (200, {"Result": result})
    status, answer = node.ask("ADD", config=config, headers=SHIM)
    printed = json.loads(answer["Stdout"])
    assert (status, answer["Result"], printed) == (200, result, {**result, "cniVersion": "0.4.0", "dns": {}})
    assert answer["Stdout"].startswith('{\n    "cniVersion": "0.4.0"')


def test_the_callers_version_counts_whatever_the_daemons_is(tmp_path: Path) -> None:
    """The overlay brings every key of the daemon's file; the runtime still reads its own version."""
    node = Node(tmp_path, cniVersion="1.0.0", podNotFoundResult="empty")
    node.kube.pods.clear()
    _, answer = node.ask("ADD", config={**node.config, "cniVersion": "0.3.1"}, headers=SHIM)
    assert json.loads(answer["Stdout"])["cniVersion"] == "0.3.1"
    _, answer = node.ask("ADD", config={key: value for key, value in node.config.items() if key != "cniVersion"}, headers=SHIM)
    assert json.loads(answer["Stdout"])["cniVersion"] == "1.0.0"


def test_what_there_is_to_announce_waits_until_the_answer_is_sent(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    announced: list[object] = []
    made = attach.Attached(results.empty("1.1.0"))
    monkeypatch.setattr(attach, "add", lambda _context: made)
    monkeypatch.setattr(attach, "announce", lambda attached, _context: announced.append(attached))
    prepared = node.prepare(node.body("ADD"))
    assert isinstance(prepared, Work)
    answer = prepared.run()
    assert announced == []
    assert answer.after is not None
    answer.after()
    assert announced == [made]


def test_a_pod_that_is_not_there_fails_add_with_code_11(node: Node) -> None:
    node.kube.pods.clear()
    status, error = node.ask("ADD")
    assert (status, error["code"]) == (400, 11)


def test_the_daemons_configuration_is_laid_over_the_requests(node: Node) -> None:
    node.ask("STATUS", config={**node.config, "binDir": "/not/this"})
    assert node.programs.made[0].environment["CNI_PATH"] == "/bin-dir:/from/the/runtime"


def test_delegates_get_the_requests_cni_variables_and_nothing_else_of_its_environment(node: Node) -> None:
    node.ask("STATUS", env={"CNI_MORE": "x"})
    environment = node.programs.made[0].environment
    assert (environment["PATH"], environment.get("HOME"), environment["CNI_MORE"]) == ("/usr/bin", None, "x")


def test_del_gives_the_api_server_less_time_than_add(node: Node) -> None:
    node.kube.pods.clear()
    node.ask("ADD")
    node.ask("DEL")
    node.ask("DEL", config={**node.config, "apiDeadline": 1})
    assert node.deadlines == [30.0, node_calls.DEL_API_DEADLINE_S, 1.0]


@pytest.mark.parametrize(
    ("raw", "code"), [(b"", 6), (b"{", 6), (b"[]", 6), (b"{}", 7), (b'{"name":"n"}', 7), (b'{"name":"n","cniVersion":"9.0.0"}', 1)]
)
def test_a_configuration_that_is_none_is_an_error_object(node: Node, raw: bytes, code: int) -> None:
    status, error = node.ask("STATUS", raw=raw)
    assert (status, error["code"]) == (400, code)


def test_a_version_that_has_not_the_verb_is_code_1(node: Node) -> None:
    status, error = node.ask("CHECK", config={**node.config, "cniVersion": "0.3.1"})
    assert (status, error["code"], "does not allow CHECK" in error["msg"]) == (400, 1, True)


def test_a_fault_of_ours_is_an_error_object(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(context: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(attach, "delete", faulty)
    assert node.ask("DEL") == (400, {"code": 999, "msg": "internal error: ZeroDivisionError: a fault"})
    assert node.count("multus_requests_total", command="DEL", code="999") == 1
    assert node.log.events("error") == ["del.failed"]


def test_what_is_odd_about_a_configuration_is_logged(node: Node) -> None:
    node.ask("DEL", config={**node.config, "clusterNetwork": "trunk"})
    assert node.log.events("warning")[0] == "configuration"


def test_nothing_secret_is_logged(node: Node) -> None:
    node.ask("STATUS", config={**node.config, "secret": "xyzzy"}, env={"TOKEN": "plugh"})
    node.ask("DEL", raw=b'{"secret":"xyzzy"')
    assert not any(word in repr(node.log.lines) for word in ("xyzzy", "plugh"))


# --- What is decided before a worker is needed ---


@pytest.mark.parametrize(
    ("content", "code", "named"),
    [
        (b"no json", 6, "not JSON"),
        (b'{"config":"*"}', 6, "Base64"),
        (b'{"env":{"CNI_COMMAND":"ADD","CNI_CONTAINERID":"77aa","CNI_ARGS":"K8S_POD_NAME=x"},"config":"e30="}', 4, "CNI_NETNS"),
        (b'{"env":{"CNI_COMMAND":"PAUSE"}}', 4, "PAUSE"),
        (b"{}", 4, "CNI_COMMAND"),
    ],
)
def test_a_body_that_is_no_request_is_answered_at_once(node: Node, content: bytes, code: int, named: str) -> None:
    for headers, keys in (({}, ["code", "msg"]), (SHIM, ["cniVersion", "code", "msg"])):
        answer = node.prepare(content, headers=headers)
        assert isinstance(answer, Answer)
        error = json.loads(answer.body)
        assert (answer.status, list(error), error["code"], named in error["msg"]) == (400, keys, code, True)


def test_requests_of_one_container_share_a_key_and_node_wide_ones_have_none(node: Node) -> None:
    works = [node.prepare(node.body(command)) for command in ("ADD", "DEL", "STATUS", "GC")]
    works.append(node.prepare(node.body("ADD"), "/delegate"))
    assert [work.key for work in works if isinstance(work, Work)] == ["c1", "c1", "", "", "c1"]


def test_only_what_changes_something_for_good_is_done_for_a_client_that_has_gone(node: Node) -> None:
    works = {command: node.prepare(node.body(command)) for command in ("ADD", "CHECK", "STATUS", "DEL", "GC")}
    pointless = [command for command, work in works.items() if isinstance(work, Work) and work.is_pointless_when_abandoned]
    assert pointless == ["ADD", "CHECK", "STATUS"]


def test_a_request_that_is_refused_is_told_to_come_again(node: Node) -> None:
    prepared = node.prepare(node.body("ADD"))
    assert isinstance(prepared, Work)
    answer = prepared.refused("too late")
    assert (answer.status, json.loads(answer.body)) == (400, {"code": 11, "msg": "the request was not started: too late"})


def test_a_request_that_is_refused_at_the_end_has_a_status_by_which_the_shim_waits(node: Node) -> None:
    prepared = node.prepare(node.body("DEL"))
    assert isinstance(prepared, Work)
    node.calls.readiness.append(lambda: "the daemon is stopping")
    answer = prepared.refused("the daemon is stopping")
    assert (answer.status, json.loads(answer.body)) == (503, {"code": 11, "msg": "the request was not started: the daemon is stopping"})


def test_the_first_reason_counts_for_readiness(node: Node) -> None:
    assert node.calls.not_ready() == ""
    node.calls.readiness += [lambda: "", lambda: "no primary", lambda: "stopping"]
    assert node.calls.not_ready() == "no primary"


# --- Hot-plug ---

BLUE = {"cniVersion": "1.1.0", "name": "blue", "type": "second", "master": "eth1"}


def test_a_plugged_network_is_served_by_its_own_configuration(tmp_path: Path) -> None:
    """Neither the daemon's keys nor its version reach the plugin, and its cluster network is out of the way."""
    node = Node(tmp_path, cniVersion="0.3.1", clusterNetwork="trunk", logLevel="debug")
    assert node.ask("DEL", "/delegate", config=BLUE, env={"CNI_IFNAME": "net5"}) == (200, None)
    (call,) = node.programs.made
    assert (call.command, call.type, call.config, call.ifname) == ("DEL", "second", BLUE, "net5")


def test_what_is_asked_of_a_plugged_interface_is_passed_on(node: Node) -> None:
    attributes = {"ips": ["10.9.0.5/24"], "mac": "02:00:00:00:09:05", "cni-args": None}
    node.ask("DEL", "/delegate", config=BLUE, interfaceAttributes=attributes, env={"CNI_IFNAME": "net5"})
    pairs = node.programs.made[0].environment["CNI_ARGS"].split(";")
    assert {"MAC=02:00:00:00:09:05", "IP=10.9.0.5/24", "EXTRA=7"} <= set(pairs)


def test_isolation_of_the_daemon_holds_for_hot_plug(tmp_path: Path) -> None:
    node = Node(tmp_path, namespaceIsolation=True)
    for network, expected in (("shop/blue", 200), ("bank/blue", 400), ("", 400)):
        assert node.ask("DEL", "/delegate", config=BLUE, env={"CNI_IFNAME": "net5"}, network=network)[0] == expected


def test_an_error_of_hot_plug_is_in_the_version_of_its_configuration(node: Node) -> None:
    status, error = node.ask("CHECK", "/delegate", headers=SHIM, config={**BLUE, "cniVersion": "0.4.0"}, env={"CNI_IFNAME": "net5"})
    assert (status, error["cniVersion"], error["code"]) == (400, "0.4.0", 3)
    status, error = node.ask("GC", "/delegate", config=BLUE)
    assert (status, error["code"]) == (400, 4)


@pytest.mark.parametrize("raw", [b"", b"{}", b'{"name":"x","type":""}', b"[]"])
def test_a_plugged_configuration_that_is_none_is_an_error_object(node: Node, raw: bytes) -> None:
    status, error = node.ask("STATUS", "/delegate", raw=raw)
    assert (status, error["code"] in (6, 7)) == (400, True)


# --- Intents ---


def replay(node: Node, body: bytes) -> list[str]:
    """What the server of an intent calls back with."""
    queue, told = WorkQueue(1, node.log), []
    queue.start()
    node.calls.replay(body, told.append, queue)
    while queue.lengths() != (0, 0):
        queue.drain(20)
    queue.close("over")
    queue.stop()
    return told


def test_a_replayed_del_detaches(node: Node) -> None:
    node.record()
    assert replay(node, node.body("DEL")) == [""]
    assert node.left() == []


def test_a_replayed_del_that_fails_says_why(node: Node) -> None:
    node.record()
    node.programs.answer("primary", "DEL", DelegateError("busy", "", 57))
    (problem,) = replay(node, node.body("DEL"))
    assert json.loads(problem)["code"] == 57


@pytest.mark.parametrize("command", ["ADD", "GC", "STATUS", "PAUSE", ""])
def test_an_intent_of_another_verb_is_damaged(node: Node, command: str) -> None:
    with pytest.raises(DecodingError):
        replay(node, node.body(command))


@pytest.mark.parametrize("raw", [b"", b"{", b"[]"])
def test_an_intent_without_a_configuration_is_damaged(node: Node, raw: bytes) -> None:
    with pytest.raises(DecodingError):
        replay(node, node.body("DEL", raw=raw))


def test_an_intent_of_a_closed_queue_is_told_so(node: Node) -> None:
    queue, told = WorkQueue(1, node.log), []
    queue.close("the daemon is stopping")
    node.calls.replay(node.body("DEL"), told.append, queue)
    assert told == ["the daemon is stopping"]


# --- Metrics ---


def test_calls_and_answers_are_counted(node: Node) -> None:
    node.record()
    node.ask("DEL")
    node.ask("CHECK")
    node.calls.observe("/cni", "POST", 200)
    assert node.count("multus_requests_total", command="DEL", code="0") == 1
    assert node.count("multus_requests_total", command="CHECK", code="3") == 1
    assert node.count("multus_errors_total", code="3") == 1
    assert node.count("multus_request_duration_seconds_count", command="DEL") == 1
    assert node.count("multus_delegate_duration_seconds_count", command="DEL", type="primary", network="trunk") == 1
    assert node.count("multus_server_request_total", handler="/cni", code="200", method="post") == 1
