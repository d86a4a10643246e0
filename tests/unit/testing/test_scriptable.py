"""Scriptable delegates: what they are told is what they answer, and every call is noted."""

from __future__ import annotations

import json
import os
import subprocess
import time
from pathlib import Path
from typing import Any

import pytest

from multus.protocol import results, versions
from multus.testing.pods import Namespace
from multus.testing.scriptable import VERSIONS, Answer, ScriptedDelegates

NETNS = "/run/netns/none"


def run(delegates: ScriptedDelegates, delegate_type: str, command: str, config: Any = None, **environ: str) -> tuple[int, Any, bytes]:
    """Exit status, standard output (decoded where it is JSON), standard error."""
    stdin = json.dumps({"cniVersion": "1.0.0", **(config or {})}).encode()
    environ = {"PATH": os.environ["PATH"], "CNI_COMMAND": command, "CNI_IFNAME": "net1", "CNI_NETNS": NETNS, **environ}
    done = subprocess.run([f"{delegates.bin}/{delegate_type}"], input=stdin, env=environ, capture_output=True, check=False)
    try:
        return done.returncode, json.loads(done.stdout), done.stderr
    except ValueError:
        return done.returncode, done.stdout, done.stderr


@pytest.fixture
def delegates(tmp_path: Path) -> ScriptedDelegates:
    return ScriptedDelegates(tmp_path, "bridge", "tuning")


@pytest.mark.parametrize("version", VERSIONS)
def test_own_answer_is_a_result_of_the_requests_version(delegates: ScriptedDelegates, version: str) -> None:
    status, document, _ = run(delegates, "bridge", "ADD", {"cniVersion": version})
    assert status == 0
    assert results.parse(document, "").cni_version == version
    assert [ip.address for ip in results.view(results.parse(document, "")).ips] == ["198.51.100.2/24"]


def test_versions_are_ours() -> None:
    assert VERSIONS == versions.SUPPORTED


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_other_verbs_succeed_and_say_nothing(delegates: ScriptedDelegates, command: str) -> None:
    assert run(delegates, "bridge", command) == (0, b"", b"")


def test_version_verb_is_answered(delegates: ScriptedDelegates) -> None:
    assert run(delegates, "bridge", "VERSION") == (0, {"cniVersion": "1.0.0", "supportedVersions": list(VERSIONS)}, b"")


def test_plugin_in_a_chain_hands_the_previous_result_on(delegates: ScriptedDelegates) -> None:
    previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "x"}]}
    assert run(delegates, "tuning", "ADD", {"prevResult": previous})[1] == previous


def test_result_has_the_calls_interface_and_namespace(delegates: ScriptedDelegates) -> None:
    delegates.answer("bridge", "ADD", Answer(result={"interfaces": [{"name": "$IFNAME", "sandbox": "$NETNS"}]}))
    assert run(delegates, "bridge", "ADD")[1] == {"cniVersion": "1.0.0", "interfaces": [{"name": "net1", "sandbox": NETNS}]}


def test_answers_come_in_turn_and_the_last_one_stays(delegates: ScriptedDelegates) -> None:
    delegates.answer("bridge", "DEL", Answer(error={"code": 11, "msg": "busy"}), Answer())
    expected = {"cniVersion": "1.0.0", "code": 11, "msg": "busy"}
    assert [run(delegates, "bridge", "DEL")[:2] for _ in range(3)] == [(1, expected), (0, b""), (0, b"")]


def test_answers_are_counted_by_type_and_verb(delegates: ScriptedDelegates) -> None:
    delegates.answer("bridge", "DEL", Answer(error={"code": 11, "msg": "busy"}), Answer())
    run(delegates, "bridge", "ADD")
    run(delegates, "tuning", "DEL")
    assert run(delegates, "bridge", "DEL")[0] == 1


def test_raw_output_and_status_are_as_they_were_told(delegates: ScriptedDelegates) -> None:
    delegates.answer("bridge", "ADD", Answer(stdout=b"\x00\xff{", stderr=b"\xfe!", exit=7))
    assert run(delegates, "bridge", "ADD") == (7, b"\x00\xff{", b"\xfe!")


def test_calls_tell_verb_input_environment_and_time(delegates: ScriptedDelegates) -> None:
    before = time.time()
    run(delegates, "bridge", "ADD", {"name": "blue"}, CNI_ARGS="a=b", OTHER="x")
    (call,) = delegates.calls()
    assert (call.type, call.command, call.config, call.ifname) == ("bridge", "ADD", {"cniVersion": "1.0.0", "name": "blue"}, "net1")
    assert call.environment == {"CNI_COMMAND": "ADD", "CNI_IFNAME": "net1", "CNI_NETNS": NETNS, "CNI_ARGS": "a=b"}
    assert call.ended is not None
    assert before <= call.started <= call.ended <= time.time()


def test_new_calls_are_those_since_the_last_look(delegates: ScriptedDelegates) -> None:
    run(delegates, "bridge", "ADD")
    assert len(delegates.new_calls()) == 1
    assert delegates.new_calls() == []
    run(delegates, "tuning", "DEL")
    assert [call.type for call in delegates.new_calls()] == ["tuning"]
    assert len(delegates.calls()) == 2


def test_call_that_was_killed_has_no_end(delegates: ScriptedDelegates) -> None:
    delegates.answer("bridge", "ADD", Answer(sleep_s=60))
    process = subprocess.Popen([f"{delegates.bin}/bridge"], stdin=subprocess.DEVNULL, env={"CNI_COMMAND": "ADD"})
    while not delegates.calls():
        time.sleep(0.01)
    process.kill()
    process.wait()
    run(delegates, "bridge", "DEL")
    assert [(call.config, call.ended is None) for call in delegates.calls()] == [(None, True), ({"cniVersion": "1.0.0"}, False)]


def test_calls_at_the_same_time_are_all_noted(delegates: ScriptedDelegates) -> None:
    delegates.answer("bridge", "ADD", Answer(sleep_s=0.2))
    command, silent = [f"{delegates.bin}/bridge"], subprocess.DEVNULL
    processes = [subprocess.Popen(command, stdin=silent, stdout=silent, env={"CNI_COMMAND": "ADD"}) for _ in range(5)]
    for process in processes:
        assert process.wait() == 0
    assert [call.ended is not None for call in delegates.calls()] == [True] * 5


def test_executable_that_is_taken_away_is_gone(delegates: ScriptedDelegates) -> None:
    delegates.remove("tuning")
    assert os.listdir(delegates.bin) == ["bridge"]


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace")
def test_link_is_made_by_add_and_removed_by_del(delegates: ScriptedDelegates) -> None:
    routes = (("0.0.0.0/0", "192.0.2.1"), ("::/0", "2001:db8::1"))
    delegates.answer("bridge", "ADD", Answer(addresses=("192.0.2.2/24", "2001:db8::2/64"), routes=routes))
    with Namespace() as namespace:
        status, document, _ = run(delegates, "bridge", "ADD", CNI_NETNS=namespace.path)
        assert status == 0
        assert [ip["address"] for ip in document["ips"]] == ["192.0.2.2/24", "2001:db8::2/64"]
        assert namespace.links()["net1"].addresses == ("192.0.2.2/24", "2001:db8::2/64")
        assert "via 192.0.2.1 dev net1" in namespace.run("ip", "-4", "route", "show", "default")
        assert "via 2001:db8::1 dev net1" in namespace.run("ip", "-6", "route", "show", "default")
        assert run(delegates, "bridge", "DEL", CNI_NETNS=namespace.path)[0] == 0
        assert run(delegates, "bridge", "DEL", CNI_NETNS=namespace.path)[0] == 0
        assert "net1" not in namespace.links()
