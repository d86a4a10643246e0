"""The delegate that hands the previous result on, as an object and as a binary."""

from __future__ import annotations

import io
import json
import os
import subprocess
import sys
from typing import Any

import pytest
from multus_passthru import command
from multus_passthru.delegate import Passthru

from multus.errors import DecodingError
from multus.protocol import versions
from multus.types.invocation import CNICommand, Invocation

ENVIRON = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c1", "CNI_NETNS": "/run/netns/t1", "CNI_IFNAME": "eth0", "CNI_PATH": "/opt/cni/bin"}
PREVIOUS = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": [{"address": "192.0.2.9/24"}], "x-own": 2**70}


def invocation(**config: object) -> Invocation:
    return Invocation(CNICommand.ADD, "passthru", {"cniVersion": "1.0.0", "name": "a", "type": "passthru", **config})


def run(verb: str, config: object, **environ: str) -> tuple[int, Any]:
    stdout = io.StringIO()
    text = config if isinstance(config, bytes) else json.dumps(config).encode()
    status = command.run({**ENVIRON, "CNI_COMMAND": verb, **environ}, text, stdout)
    return status, json.loads(stdout.getvalue() or "null")


def test_it_serves_every_configuration() -> None:
    assert Passthru().accepts(invocation()) is True


def test_add_hands_the_previous_result_on_with_every_key() -> None:
    assert Passthru().add(invocation(prevResult=PREVIOUS)).document == PREVIOUS


def test_add_answers_in_the_version_of_the_configuration() -> None:
    result = Passthru().add(invocation(cniVersion="0.4.0", prevResult=PREVIOUS))
    assert (result.cni_version, result.document["ips"]) == ("0.4.0", [{"version": "4", "address": "192.0.2.9/24"}])


def test_add_without_a_previous_result_is_empty() -> None:
    assert Passthru().add(invocation()).document == {"cniVersion": "1.0.0"}


def test_add_refuses_a_previous_result_that_is_not_valid() -> None:
    with pytest.raises(DecodingError):
        Passthru().add(invocation(prevResult={"ips": [{"address": "x"}]}))


@pytest.mark.parametrize("method", ["delete", "check", "gc", "status"])
def test_every_other_verb_succeeds_and_does_nothing(method: str) -> None:
    assert getattr(Passthru(), method)(invocation()) is None


def test_the_binary_prints_the_same_result() -> None:
    assert run("ADD", {"cniVersion": "1.0.0", "prevResult": PREVIOUS}) == (0, PREVIOUS)


@pytest.mark.parametrize("verb", ["DEL", "CHECK", "GC", "STATUS"])
def test_the_binary_prints_nothing_for_the_other_verbs(verb: str) -> None:
    assert run(verb, {"cniVersion": "1.1.0"}) == (0, None)


@pytest.mark.parametrize("config", [b"", {"cniVersion": "1.0.0"}])
def test_the_binary_prints_its_versions(config: object) -> None:
    status, document = run("VERSION", config)
    assert (status, document["supportedVersions"]) == (0, list(versions.SUPPORTED))


@pytest.mark.parametrize(
    ("verb", "config", "version", "code"),
    [
        ("ADD", b"{", "1.1.0", 6),
        ("ADD", {"cniVersion": "9.9.9"}, "1.1.0", 1),
        ("ADD", {"cniVersion": "1.0.0", "prevResult": {"ips": [{"address": "x"}]}}, "1.0.0", 6),
        ("FLY", {}, "1.1.0", 4),
    ],
)
def test_the_binary_fails_with_an_error_object(verb: str, config: object, version: str, code: int) -> None:
    status, document = run(verb, config)
    assert (status, document["cniVersion"], document["code"]) == (1, version, code)


def test_the_command_serves_a_call_of_its_process() -> None:
    environ = {**os.environ, **ENVIRON, "PYTHONPATH": os.pathsep.join(part for part in sys.path if part)}
    done = subprocess.run(
        [sys.executable, "-m", "multus_passthru.command"],
        input=json.dumps({"cniVersion": "1.0.0", "prevResult": PREVIOUS}).encode(),
        capture_output=True,
        check=False,
        env=environ,
    )
    assert (done.returncode, json.loads(done.stdout), done.stderr) == (0, PREVIOUS, b"")
