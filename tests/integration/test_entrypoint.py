"""``thin_entrypoint`` as a process, beside a runtime that calls ``multus`` with what it wrote.

The service account is a folder as the kubelet mounts it: files behind a link that is replaced as a whole.
"""

from __future__ import annotations

import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.testing.kubeapi_signing import User
from multus.testing.node import Node
from multus.testing.pods import Answer

PATIENCE_S = 30.0
PROGRAM = """
import os, sys
from multus.commands import entrypoint
entrypoint.REFRESH_S = 0.05
entrypoint.PRIMARY_TIMEOUT_S = float(os.environ.get("PRIMARY_TIMEOUT_S", entrypoint.PRIMARY_TIMEOUT_S))
sys.exit(entrypoint.run(sys.argv[2:], os.environ, sys.argv[1]))
"""


class Host:
    """The folders of a node as the pod sees them, its service account, and the program."""

    def __init__(self, folder: Path) -> None:
        folder.mkdir()
        self.folder = folder
        self.bin_dir, self.conf_dir, self.own_dir, self.account = (folder / name for name in ("bin", "net.d", "own.d", "account"))
        for each in (self.bin_dir, self.conf_dir, self.account):
            each.mkdir()
        self.binary = folder / "multus-of-the-image"
        self.binary.write_text("#!/bin/sh\n")
        self.binary.chmod(0o4755)
        self.environ = {"KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443", "PATH": os.environ["PATH"]}
        self.processes: list[subprocess.Popen[str]] = []
        self.kubeconfig = self.conf_dir / "multus.d" / "multus.kubeconfig"
        self.mount("token-1", "-----BEGIN CERTIFICATE-----\n")
        self.put_primary({"cniVersion": "1.0.0", "name": "demo", "type": "bridge"})

    def mount(self, token: str, authority: str = "") -> None:
        """Replace token and certificates at once, as the kubelet does."""
        version = self.account / f"..{time.monotonic_ns()}"
        version.mkdir()
        (version / "token").write_text(token)
        (version / "ca.crt").write_text(authority or (self.account / "ca.crt").read_text())
        (self.account / "..data.new").symlink_to(version.name)
        (self.account / "..data.new").rename(self.account / "..data")
        for name in ("token", "ca.crt"):
            if not (self.account / name).is_symlink():
                (self.account / name).symlink_to(f"..data/{name}")

    def put_primary(self, document: object, name: str = "10-demo.conf") -> None:
        (self.conf_dir / f".{name}").write_text(document if isinstance(document, str) else json.dumps(document))
        (self.conf_dir / f".{name}").rename(self.conf_dir / name)

    def start(self, *arguments: str) -> subprocess.Popen[str]:
        flags = {
            "--cni-bin-dir": self.bin_dir, "--cni-conf-dir": self.conf_dir, "--multus-autoconfig-dir": self.conf_dir,
            "--multus-cni-conf-dir": self.own_dir, "--multus-bin-file": self.binary, "--multus-kubeconfig-file-host": self.kubeconfig,
        }  # fmt: skip
        command = [sys.executable, "-c", PROGRAM, str(self.account), *(f"{flag}={value}" for flag, value in flags.items()), *arguments]
        process = subprocess.Popen(command, env=self.environ, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.processes.append(process)
        return process

    def started(self, *arguments: str) -> subprocess.Popen[str]:
        """Start it, and wait until the configuration is written."""
        process = self.start(*arguments)
        assert process.stdout is not None
        for line in process.stdout:
            if "configuration is written" in line:
                return process
        raise AssertionError(process.communicate()[1])

    def ended(self, *arguments: str) -> tuple[int, str]:
        """Start it, and wait for its end: status and standard error."""
        process = self.start(*arguments)
        err = process.communicate(timeout=PATIENCE_S)[1]
        return process.returncode, err

    def stop(self, process: subprocess.Popen[str]) -> int:
        process.send_signal(signal.SIGTERM)
        process.communicate(timeout=PATIENCE_S)
        return process.returncode

    def configuration(self, name: str = "00-multus.conflist") -> dict[str, Any]:
        document: dict[str, Any] = json.loads((self.conf_dir / name).read_text())
        return document

    def delegate(self) -> dict[str, Any]:
        delegate: dict[str, Any] = self.configuration()["plugins"][0]["delegates"][0]
        return delegate

    def token(self) -> str:
        token: str = json.loads(self.kubeconfig.read_text())["users"][0]["user"]["token"]
        return token

    def names(self) -> list[str]:
        return sorted(os.listdir(self.conf_dir))


@pytest.fixture
def host(tmp_path: Path) -> Iterator[Host]:
    host = Host(tmp_path / "host")
    yield host
    for process in host.processes:
        if process.poll() is None:
            process.kill()
        process.communicate()


def eventually(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.02)


def test_it_installs_writes_and_waits_and_leaves_all_of_it(host: Host) -> None:
    process = host.started()
    assert ("#!/bin/sh\n", 0o755) == ((host.bin_dir / "multus").read_text(), stat.S_IMODE((host.bin_dir / "multus").stat().st_mode))
    assert host.delegate() == {"cniVersion": "1.0.0", "name": "demo", "type": "bridge"}
    assert {0o600} == {stat.S_IMODE(path.stat().st_mode) for path in (host.kubeconfig, host.conf_dir / "00-multus.conflist")}
    assert host.own_dir.is_dir()
    assert host.stop(process) == 0
    assert ["00-multus.conflist", "10-demo.conf", "multus.d"] == host.names()
    assert ["multus.kubeconfig"] == os.listdir(host.kubeconfig.parent)


@pytest.mark.parametrize(
    ("flag", "arguments"),
    [
        ("--cni-conf-dir", ()),
        ("--cni-bin-dir", ()),
        ("--cni-bin-dir", ("--skip-multus-binary-copy",)),
        ("--multus-bin-file", ()),
        ("--multus-conf-file", ()),
    ],
)
def test_what_is_missing_is_named_by_its_flag(host: Host, flag: str, arguments: tuple[str, ...]) -> None:
    status, err = host.ended(f"{flag}=/none", *arguments)
    assert (1, f"thin_entrypoint: {flag} /none does not exist\n") == (status, err)


def test_a_binary_that_is_not_copied_may_be_missing(host: Host) -> None:
    process = host.started("--multus-bin-file=/none", "--skip-multus-binary-copy")
    assert [] == os.listdir(host.bin_dir)
    assert host.stop(process) == 0


@pytest.mark.parametrize(
    ("flag", "said"),
    [
        ("--multus-log-level=loud", "--multus-log-level 'loud' is none of panic, error, verbose, debug"),
        ("--multus-master-cni-file-name=../x", "--multus-master-cni-file-name '../x' is no file name"),
        ("--force-cni-version", "--force-cni-version is set, and --cni-version does not say which"),
    ],
)
def test_flags_that_cannot_be_are_status_1_before_anything_is_done(host: Host, flag: str, said: str) -> None:
    assert (1, f"thin_entrypoint: {said}\n") == host.ended(flag)
    assert (["10-demo.conf"], []) == (host.names(), os.listdir(host.bin_dir))


def test_a_missing_token_is_status_1(host: Host) -> None:
    (host.account / "token").unlink()
    assert (1, f"thin_entrypoint: cannot read {host.account}/token: No such file or directory\n") == host.ended()


def test_an_unknown_api_server_is_status_1(host: Host) -> None:
    del host.environ["KUBERNETES_SERVICE_PORT"]
    status, err = host.ended()
    assert (1, True) == (status, "KUBERNETES_SERVICE_PORT" in err)


def test_a_ready_made_configuration_that_no_runtime_could_use_is_status_1(host: Host) -> None:
    own = host.folder / "70-own.conf"
    own.write_text('{"cniVersion": "1.0.0", "name": "own", "type": "bridge"}')
    status, err = host.ended(f"--multus-conf-file={own}", "--cleanup-config-on-exit")
    assert (1, True) == (status, "has no plugin of type multus" in err)
    assert ["10-demo.conf", "multus.d"] == host.names()
    assert not host.kubeconfig.exists()


def test_a_primary_of_another_version_than_demanded_is_status_1_unless_it_is_forced(host: Host) -> None:
    host.environ["PRIMARY_TIMEOUT_S"] = "0.3"
    status, err = host.ended("--cni-version=0.4.0")
    assert (1, True) == (status, "10-demo.conf: its cniVersion 1.0.0 is not 0.4.0, which was asked for" in err)
    assert host.stop(host.started("--cni-version=0.4.0", "--force-cni-version")) == 0
    assert host.configuration("00-multus.conf")["delegates"][0]["cniVersion"] == "0.4.0"
    assert "1.0.0" in (host.conf_dir / "10-demo.conf").read_text()


def test_a_bundle_is_installed_whole(host: Host, bundle: Path) -> None:
    process = host.started(f"--multus-bin-file={bundle}")
    assert {".multus", "multus", "passthru"} == set(os.listdir(host.bin_dir))
    done = subprocess.run([host.bin_dir / "multus"], env={"CNI_COMMAND": "VERSION"}, capture_output=True, text=True, check=True)
    assert "1.1.0" in done.stdout
    assert host.stop(process) == 0


def test_a_primary_that_is_not_there_yet_is_waited_for(host: Host) -> None:
    (host.conf_dir / "10-demo.conf").unlink()
    process = host.start()
    eventually(host.kubeconfig.exists)
    host.put_primary({"cniVersion": "1.0.0", "name": "late", "type": "bridge"})
    eventually((host.conf_dir / "00-multus.conflist").exists)
    assert host.delegate()["name"] == "late"
    assert host.stop(process) == 0


def test_a_signal_ends_the_waiting_for_a_primary(host: Host) -> None:
    (host.conf_dir / "10-demo.conf").unlink()
    process = host.start()
    eventually(host.kubeconfig.exists)
    assert host.stop(process) == 0
    assert ["multus.d"] == host.names()


@pytest.mark.parametrize("arguments", [(), ("--multus-conf-file={own}",), ("--cleanup-config-on-exit",)])
def test_the_token_is_always_followed(host: Host, arguments: tuple[str, ...]) -> None:
    """With default flags, and with a configuration of the user's own."""
    own = host.folder / "70-own.conf"
    own.write_text(json.dumps({"cniVersion": "1.0.0", "name": "own", "type": "multus", "delegates": []}))
    process = host.started(*(argument.format(own=own) for argument in arguments))
    assert host.token() == "token-1"
    host.mount("token-2")
    eventually(lambda: host.token() == "token-2")
    assert host.stop(process) == 0


def test_a_token_that_cannot_be_read_for_a_moment_is_followed_later(host: Host) -> None:
    process = host.started()
    (host.account / "token").unlink()
    assert process.stderr is not None
    assert "the kubeconfig stays as it is: cannot read" in next(line for line in process.stderr if "kubeconfig" in line)
    assert host.token() == "token-1"
    host.mount("token-2")
    eventually(lambda: host.token() == "token-2")
    assert host.stop(process) == 0


def test_the_primary_is_followed_when_that_is_asked_for(host: Host) -> None:
    process = host.started("--cleanup-config-on-exit")
    host.put_primary('{"half')
    host.put_primary({"cniVersion": "1.0.0", "name": "changed", "type": "bridge"})
    eventually(lambda: host.delegate()["name"] == "changed")
    host.put_primary({"cniVersion": "0.4.0", "name": "older", "type": "bridge"}, "05-older.conf")
    eventually(lambda: host.names()[0] == "00-multus.conf")
    assert host.configuration("00-multus.conf")["delegates"][0]["name"] == "older"
    eventually(lambda: "00-multus.conflist" not in host.names())
    assert host.stop(process) == 0
    assert ["05-older.conf", "10-demo.conf", "multus.d"] == host.names()


@pytest.mark.parametrize("arguments", [(), ("--cleanup-config-on-exit", "--skip-config-watch")])
def test_the_primary_is_not_followed_otherwise(host: Host, arguments: tuple[str, ...]) -> None:
    process = host.started(*arguments)
    host.put_primary({"cniVersion": "1.0.0", "name": "changed", "type": "bridge"})
    host.mount("token-2")
    eventually(lambda: host.token() == "token-2")
    assert host.delegate()["name"] == "demo"
    assert host.stop(process) == 0


def test_cleaning_up_removes_configuration_and_credential(host: Host) -> None:
    (host.conf_dir / "00-multus.conf").write_text(json.dumps({"cniVersion": "0.4.0", "name": "x", "type": "multus"}))
    assert host.stop(host.started("--cleanup-config-on-exit", "--skip-config-watch")) == 0
    assert ["10-demo.conf", "multus.d"] == host.names()
    assert [] == os.listdir(host.kubeconfig.parent)
    assert ["multus"] == os.listdir(host.bin_dir)


def test_a_configuration_of_the_users_own_is_copied_and_cleaned_up(host: Host) -> None:
    own = host.folder / "70-own.conf"
    own.write_text('{"cniVersion": "1.0.0", "name": "own", "type": "multus", "delegates": []}')
    process = host.started(f"--multus-conf-file={own}", "--cleanup-config-on-exit")
    assert own.read_bytes() == (host.conf_dir / "70-own.conf").read_bytes()
    assert host.stop(process) == 0
    assert ["10-demo.conf", "multus.d"] == host.names()
    assert own.exists()


def test_a_renamed_primary_survives_a_restart_and_comes_back(host: Host) -> None:
    assert host.stop(host.started("--rename-conf-file")) == 0
    assert ["00-multus.conflist", "10-demo.conf.old", "multus.d"] == host.names()
    process = host.started("--rename-conf-file", "--cleanup-config-on-exit")
    assert host.delegate()["name"] == "demo"
    host.put_primary({"cniVersion": "1.0.0", "name": "new", "type": "bridge"})
    eventually(lambda: host.delegate()["name"] == "new")
    eventually(lambda: "10-demo.conf" not in host.names())
    assert host.stop(process) == 0
    assert ["10-demo.conf.old", "multus.d"] == host.names()


def test_a_second_signal_ends_it_at_once(host: Host) -> None:
    """Whatever the clean end of the first one is waiting for."""
    code = (
        "import os, signal, time; from multus.commands import entrypoint, entrypoint_flags\n"
        "flags = entrypoint_flags.parser().parse_args([])\n"
        "made = entrypoint.EntryPoint(flags, dict(KUBERNETES_SERVICE_HOST='h', KUBERNETES_SERVICE_PORT='1'))\n"
        "made._signalled(15, None)\nassert made._stop.is_set()\nmade._signalled(15, None)\nprint('alive')\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (1, "", "") == (done.returncode, done.stdout, done.stderr)


def test_calls_go_on_while_the_token_is_rotated(node: Node, host: Host) -> None:
    """The API server takes the two newest tokens, as a real one takes each to its expiry."""
    process, settings = serving(node, host)
    answers: list[Answer] = []

    def attach() -> None:
        for number in range(8):
            with node.pod(f"web{number}") as pod:
                answers.append(node.attach(pod, **settings))
                answers.append(node.detach(pod, **settings))

    calls = threading.Thread(target=attach)
    calls.start()
    tokens = [node.api.token]
    while calls.is_alive():
        tokens.append(f"token-{len(tokens)}-of-the-node")
        node.api.users[tokens[-1]] = User("")
        host.mount(tokens[-1])
        eventually(lambda: host.token() == tokens[-1])
        node.api.token = tokens[-2]
        for old in tokens[:-2]:
            node.api.users.pop(old, None)
        calls.join(0.5)
    assert [""] * 16 == [answer.error for answer in answers]
    assert len(tokens) > 2
    assert host.stop(process) == 0


def test_a_call_that_is_refused_goes_on_with_the_token_that_came_meanwhile(node: Node, host: Host) -> None:
    process, settings = serving(node, host)
    node.api.fail("GET", "/pods/", 401, hang_s=3.0)

    def rotate() -> None:
        eventually(lambda: bool(node.api.requests))
        node.api.users["fresh"] = User("")
        host.mount("fresh")
        eventually(lambda: host.token() == "fresh")

    rotation = threading.Thread(target=rotate)
    with node.pod("web") as pod:
        node.api.requests.clear()
        rotation.start()
        answer = node.attach(pod, **settings)
        rotation.join()
        assert answer.error == ""
        bearers = [each.headers["authorization"] for each in node.api.requests if each.method == "GET"]
        assert [f"Bearer {node.api.token}", "Bearer fresh"] == bearers[:2]
        assert node.detach(pod, **settings).error == ""
    assert host.stop(process) == 0


def serving(node: Node, host: Host) -> tuple[subprocess.Popen[str], dict[str, Any]]:
    """The program with the node's API server, and the configuration that it makes, as a runtime hands it to the plugin."""
    assert node.api.certificates is not None
    host.environ["KUBERNETES_SERVICE_PORT"] = str(node.api.port)
    host.mount(node.api.token, Path(node.api.certificates.server).read_text())
    host.put_primary(node.cluster_network())
    process = host.started(f"--additional-bin-dir={node.plugin_folder}")
    document = host.configuration()
    settings = {**document["plugins"][0], "cniVersion": document["cniVersion"], "name": document["name"]}
    return process, {**settings, "cniDir": node.cni_dir, "confDir": node.conf_dir}


def test_an_expired_token_gives_one_more_reading(node: Node, host: Host) -> None:
    """The first request is refused; what is in the kubeconfig by then is tried, once."""
    process, settings = serving(node, host)
    expired, node.api.token = node.api.token, "another"
    with node.pod("web") as pod:
        node.api.requests.clear()
        answer = node.attach(pod, **settings)
        assert "401" in answer.error
        assert [("GET", f"Bearer {expired}")] * 2 == [(each.method, each.headers["authorization"]) for each in node.api.requests]
    assert host.stop(process) == 0
