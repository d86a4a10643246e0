"""``multus`` as a function: environment and standard input in, one JSON document and an exit status out.

What is here needs no root: an ADD enters the pod's namespace, so that those which succeed are in ``tests/cases``.
"""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import multus
from multus.adapters.journal import Journal
from multus.commands import cni, thin
from multus.core import attach
from multus.protocol import conflists, results, versions
from multus.testing.scriptable import Answer, ScriptedDelegates
from multus.types.delegate import Attachment, Delegate


class Node:
    """Folders, scripted delegates, and a configuration without an API server."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.delegates = ScriptedDelegates(folder, "primary", "second")
        self.cni_dir = folder / "cni"
        self.config: dict[str, Any] = {
            "cniVersion": "1.1.0",
            "name": "meta",
            "type": "multus",
            "cniDir": str(self.cni_dir),
            "binDir": self.delegates.bin,
            "delegates": [{"cniVersion": "1.1.0", "name": "trunk", "type": "primary"}],
        }
        self.environ = {
            "CNI_CONTAINERID": "c1",
            "CNI_NETNS": "/nowhere/netns",
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web;K8S_POD_UID=u1",
            "CNI_PATH": self.delegates.bin,
        }

    def run(self, command: str, environ: dict[str, str] | None = None, stdin: bytes | None = None, **config: object) -> tuple[int, Any]:
        given = json.dumps({**self.config, **config}).encode() if stdin is None else stdin
        stdout = io.BytesIO()
        status = cni.run({**self.environ, "CNI_COMMAND": command, **(environ or {})}, io.BytesIO(given), stdout)
        return status, json.loads(stdout.getvalue()) if stdout.getvalue() else None

    def record(self, container_id: str = "c1") -> None:
        """Two networks as an ADD leaves them."""
        attachments = (_attached("trunk", "primary", "eth0", container_id), _attached("blue", "second", "net1", container_id))
        journal = Journal(str(self.cni_dir))
        journal.write(container_id, attachments)
        for attachment in attachments:
            journal.write_result(attachment)

    def left(self) -> list[str]:
        return sorted(path.name for path in self.cni_dir.rglob("*") if path.is_file())

    def ran(self) -> list[tuple[str, str]]:
        return [(call.command, call.type) for call in self.delegates.new_calls()]


def _attached(name: str, plugin: str, ifname: str, container_id: str) -> Attachment:
    conf = conflists.parse({"cniVersion": "1.1.0", "name": name, "type": plugin}, where="a test")
    delegate = Delegate(name, conf, is_cluster_network=ifname == "eth0")
    return Attachment(delegate, container_id, "/nowhere/netns", ifname, (("K8S_POD_NAME", "web"),), result=results.empty("1.1.0"))


@pytest.fixture
def node(tmp_path: Path) -> Node:
    return Node(tmp_path)


# --- The contract of a CNI binary ---


def test_without_a_command_it_says_what_it_is_on_standard_error(capsys: pytest.CaptureFixture[str]) -> None:
    stdout = io.BytesIO()
    assert cni.run({}, io.BytesIO(b"not read"), stdout) == 0
    assert stdout.getvalue() == b""
    assert capsys.readouterr().err == f"{cni.ABOUT}\nCNI protocol versions supported: {', '.join(versions.SUPPORTED)}\n"


def test_version_needs_no_input(node: Node) -> None:
    expected = {"cniVersion": "1.1.0", "supportedVersions": ["0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"]}
    assert node.run("VERSION", stdin=b"") == (0, expected)


def test_command_that_is_unknown_is_code_4(node: Node) -> None:
    status, error = node.run("PAUSE")
    assert (status, error["code"], "'PAUSE'" in error["msg"]) == (1, 4, True)


def test_variables_that_are_missing_are_all_named(node: Node) -> None:
    status, error = node.run("ADD", {"CNI_NETNS": "", "CNI_IFNAME": ""})
    assert (status, error["code"]) == (1, 4)
    assert "CNI_NETNS, CNI_IFNAME" in error["msg"]


@pytest.mark.parametrize(
    ("stdin", "code"), [(b"", 6), (b"{", 6), (b"[]", 6), (b"\xff\xfe\xff", 6), (b"{}", 7), (b'{"name":"n","cniVersion":"9.0.0"}', 1)]
)
def test_input_that_is_no_configuration_is_an_error_object(node: Node, stdin: bytes, code: int) -> None:
    status, error = node.run("ADD", stdin=stdin)
    assert (status, error["code"], error["cniVersion"]) == (1, code, "1.1.0")


def test_input_that_cannot_be_read_is_code_5(node: Node) -> None:
    class Broken(io.BytesIO):
        def read(self, *_: object) -> bytes:
            raise OSError(5, "Input/output error")

    stdout = io.BytesIO()
    assert cni.run({**node.environ, "CNI_COMMAND": "DEL"}, Broken(), stdout) == 1
    assert json.loads(stdout.getvalue())["code"] == 5


@pytest.mark.parametrize(("command", "version"), [("CHECK", "0.3.1"), ("GC", "1.0.0"), ("STATUS", "1.0.0")])
def test_version_that_does_not_allow_the_command_is_code_1(node: Node, command: str, version: str) -> None:
    status, error = node.run(command, cniVersion=version)
    assert (status, error["code"], error["cniVersion"]) == (1, 1, version)
    assert node.ran() == []


def test_error_object_has_the_callers_version(node: Node) -> None:
    _, error = node.run("ADD", cniVersion="0.4.0")
    assert error["cniVersion"] == "0.4.0"


def test_answer_is_indented_and_ends_without_a_newline(node: Node) -> None:
    stdout = io.BytesIO()
    cni.run({**node.environ, "CNI_COMMAND": "PAUSE"}, io.BytesIO(b"{}"), stdout)
    assert stdout.getvalue().startswith(b'{\n    "cniVersion"')
    assert stdout.getvalue().endswith(b"}")


# --- ADD that is refused ---


def test_namespace_that_does_not_exist_is_code_8_and_no_delegate_is_added(node: Node) -> None:
    status, error = node.run("ADD")
    assert (status, error["code"]) == (1, 8)
    assert error["msg"].startswith("[shop/web/u1:trunk]: cannot attach 'eth0': ")
    assert ("ADD", "primary") not in node.ran()
    assert node.run("DEL") == (0, None)
    assert node.left() == []


def test_own_namespace_is_code_8_before_anything(node: Node) -> None:
    status, error = node.run("ADD", {"CNI_NETNS": "/proc/self/ns/net"})
    assert (status, error["code"]) == (1, 8)
    assert "CNI_NETNS_OVERRIDE" in error["msg"]
    assert not node.cni_dir.exists()


# --- The other verbs ---


def test_del_of_a_recorded_container_needs_no_api_server(node: Node) -> None:
    node.record()
    assert node.run("DEL", kubeconfig="/nowhere/kubeconfig") == (0, None)
    assert node.ran() == [("DEL", "second"), ("DEL", "primary")]
    assert node.left() == []


def test_del_without_a_record_and_with_a_broken_kubeconfig_succeeds(node: Node) -> None:
    (node.folder / "kubeconfig").write_text("{")
    assert node.run("DEL", kubeconfig=str(node.folder / "kubeconfig")) == (0, None)
    assert node.ran() == []


def test_del_of_a_damaged_record_detaches_what_the_results_tell(node: Node) -> None:
    node.record()
    (node.cni_dir / "c1").write_text('[{"Conf"')
    assert node.run("DEL") == (0, None)
    assert node.ran() == [("DEL", "second"), ("DEL", "primary")]
    assert node.left() == []


@pytest.mark.parametrize("content", ["[]", "null", "{}", ""])
def test_del_of_an_empty_record_detaches_what_the_results_tell(node: Node, content: str) -> None:
    node.record()
    (node.cni_dir / "c1").write_text(content)
    assert node.run("DEL") == (0, None)
    assert node.ran() == [("DEL", "second"), ("DEL", "primary")]


def test_failed_del_keeps_what_is_left_on_disk(node: Node) -> None:
    node.record()
    node.delegates.answer("second", "DEL", Answer(error={"code": 57, "msg": "busy", "details": "d"}), Answer())
    expected = {"cniVersion": "1.1.0", "code": 57, "msg": "[shop/web/u1:blue]: cannot detach 'net1': plugin 'second': busy", "details": "d"}
    assert node.run("DEL") == (1, expected)
    assert node.left() == ["blue-c1-net1", "c1"]
    assert node.run("DEL") == (0, None)
    assert node.ran() == [("DEL", "second"), ("DEL", "primary"), ("DEL", "second")]
    assert node.left() == []


def test_del_without_args_and_namespace_works_from_the_record(node: Node) -> None:
    node.record()
    assert node.run("DEL", {"CNI_ARGS": ";;nonsense", "CNI_NETNS": ""}) == (0, None)
    assert [call.environment["CNI_NETNS"] for call in node.delegates.new_calls()] == ["", ""]


def test_check_asks_every_recorded_attachment(node: Node) -> None:
    node.record()
    assert node.run("CHECK") == (0, None)
    assert node.ran() == [("CHECK", "primary"), ("CHECK", "second")]


def test_check_of_an_unknown_container_is_code_3(node: Node) -> None:
    status, error = node.run("CHECK")
    assert (status, error["code"]) == (1, 3)


def test_status_passes_a_delegates_code(node: Node) -> None:
    assert node.run("STATUS") == (0, None)
    node.delegates.answer("primary", "STATUS", Answer(error={"code": 51, "msg": "no uplink"}))
    assert node.run("STATUS") == (1, {"cniVersion": "1.1.0", "code": 51, "msg": "no uplink"})


def test_gc_detaches_what_the_runtime_does_not_count(node: Node) -> None:
    node.record("c1")
    node.record("c2")
    assert node.run("GC", **{"cni.dev/valid-attachments": [{"containerID": "c2", "ifname": "eth0"}]}) == (0, None)
    assert node.ran() == [("DEL", "second"), ("DEL", "primary"), ("GC", "primary"), ("GC", "second")]
    assert node.left() == ["blue-c2-net1", "c2", "trunk-c2-eth0"]


def test_gc_on_a_node_without_state_has_nothing_to_do(node: Node) -> None:
    assert node.run("GC", **{"cni.dev/valid-attachments": []}) == (0, None)
    assert node.ran() == [("GC", "primary")]


# --- Wiring ---


def test_warnings_of_the_configuration_and_life_and_death_are_logged(node: Node) -> None:
    log = node.folder / "log"
    settings = {"logFile": str(log), "logLevel": "verbose", "logToStderr": False}
    node.run("STATUS", **settings)
    node.run("STATUS", clusterNetwork="nowhere", **settings)
    text = log.read_text()
    for expected in ("status.started", "status.complete", "warning: configuration", "status.failed"):
        assert expected in text


def test_hook_plugin_of_the_configuration_is_loaded_by_its_name(node: Node) -> None:
    status, error = node.run("STATUS", plugins=["no-such-plugin"])
    assert (status, error["code"], "'no-such-plugin'" in error["msg"]) == (1, 7, True)


def test_hook_plugin_that_is_disabled_is_not_loaded(node: Node) -> None:
    assert node.run("STATUS", {"MULTUS_DISABLED_PLUGINS": "no-such-plugin"}, plugins=["no-such-plugin"]) == (0, None)


def test_del_gives_the_api_server_less_time_than_add(node: Node) -> None:
    """The runtime waits for DEL, and it has an answer without the API server."""
    assert thin.DEL_API_DEADLINE_S < 30.0


def test_fault_of_ours_is_an_error_object_that_tells_where(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def faulty(context: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(attach, "delete", faulty)
    status, error = node.run("DEL")
    assert (status, error["code"], error["msg"]) == (1, 999, "internal error: ZeroDivisionError: a fault")
    assert error["details"].startswith("faulty (test_cni.py:")


def test_fault_after_the_answer_does_not_spoil_it(
    node: Node, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    def faulty(attached: object, context: object) -> None:
        raise ZeroDivisionError("a fault")

    monkeypatch.setattr(attach, "add", lambda _context: attach.Attached(results.empty("1.1.0")))
    monkeypatch.setattr(attach, "announce", faulty)
    assert node.run("ADD") == (0, {"cniVersion": "1.1.0"})
    assert "ZeroDivisionError: a fault" in capsys.readouterr().err


# --- The process ---


def process(*arguments: str, stdin: bytes = b"", **environ: str) -> subprocess.CompletedProcess[bytes]:
    root = str(Path(multus.__file__).parent.parent)
    command = [sys.executable, "-m", "multus.commands.cni", *arguments]
    environ = {"PATH": os.environ["PATH"], "PYTHONPATH": root, **environ}
    return subprocess.run(command, input=stdin, env=environ, capture_output=True, check=False)


@pytest.mark.parametrize("flag", ["-v", "--version"])
def test_version_flag_is_for_people(flag: str) -> None:
    done = process(flag)
    assert (done.returncode, done.stdout.startswith(b"multus: version:")) == (0, True)


def test_process_answers_on_standard_output_and_by_its_status(node: Node) -> None:
    done = process(stdin=json.dumps(node.config).encode(), CNI_COMMAND="CHECK", **node.environ)
    assert (done.returncode, json.loads(done.stdout)["code"], done.stderr) == (1, 3, b"")


def test_process_serves_a_call_and_leaves_with_status_0(node: Node) -> None:
    node.record()
    done = process(stdin=json.dumps(node.config).encode(), CNI_COMMAND="DEL", **node.environ)
    assert (done.returncode, done.stdout, done.stderr) == (0, b"", b"")
    assert node.left() == []
