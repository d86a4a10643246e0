"""How the daemon starts and ends, by its exit status and what it says, without a node around it."""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

import pytest

from multus.commands.daemon import Daemon
from multus.testing.kubeapi import KubeAPI

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="the daemon needs root")

PRIMARY = {"cniVersion": "1.0.0", "name": "cluster", "type": "bridge"}
PATIENCE_S = 30


class Ended(NamedTuple):
    status: int
    stdout: str
    stderr: str
    seconds: float


@pytest.fixture
def start(daemon_binary: str, tmp_path: Path) -> Callable[..., subprocess.Popen[str]]:
    """Starts a daemon with a configuration: the file's text, or keys beside the folders of the test."""

    def start(content: str | dict[str, object], *, is_there: bool = True, arguments: tuple[str, ...] = ()) -> subprocess.Popen[str]:
        path = tmp_path / "daemon-config.json"
        folders = {"socketDir": str(tmp_path / "run"), "cniDir": str(tmp_path / "state"), "cniConfigDir": str(tmp_path)}
        if is_there:
            path.write_text(content if isinstance(content, str) else json.dumps({**folders, "primaryTimeout": 0, **content}))
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
        command = [daemon_binary, *(arguments or ("-config", str(path)))]
        return subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)

    return start


def end_of(process: subprocess.Popen[str]) -> Ended:
    begun = time.monotonic()
    try:
        stdout, stderr = process.communicate(timeout=PATIENCE_S)
    finally:
        process.kill()
    return Ended(process.returncode, stdout, stderr, time.monotonic() - begun)


def put_primary(folder: Path) -> None:
    (folder / "10-cluster.conf").write_text(json.dumps(PRIMARY))


def becomes_true(fact: Callable[[], bool]) -> bool:
    end = time.monotonic() + PATIENCE_S
    while not fact() and time.monotonic() < end:
        time.sleep(0.01)
    return fact()


@pytest.mark.parametrize("flag", ["-version", "--version"])
def test_version_is_one_line_and_status_0(start: Callable, flag: str) -> None:
    ended = end_of(start("", is_there=False, arguments=(flag,)))
    assert (0, "") == (ended.status, ended.stderr)
    assert ended.stdout.startswith("multus-daemon: version:")
    assert 1 == ended.stdout.count("\n")


def test_an_unknown_flag_is_status_2(start: Callable) -> None:
    ended = end_of(start("", is_there=False, arguments=("-nosuch",)))
    assert (2, "") == (ended.status, ended.stdout)
    assert "usage: multus-daemon" in ended.stderr


def test_a_configuration_that_is_not_there_is_status_1(start: Callable, tmp_path: Path) -> None:
    ended = end_of(start("", is_there=False))
    assert (1, f"multus-daemon: cannot read {tmp_path}/daemon-config.json: No such file or directory\n") == (ended.status, ended.stderr)


@pytest.mark.parametrize("content", ["", "{", "[]", '{"connectionLimit": 0}', '{"socketDir": 7}'])
def test_a_configuration_that_is_not_valid_is_status_1(start: Callable, tmp_path: Path, content: str) -> None:
    ended = end_of(start(content))
    assert 1 == ended.status
    assert f"multus-daemon: {tmp_path}/daemon-config.json" in ended.stderr


def test_no_primary_configuration_is_status_2(start: Callable, tmp_path: Path) -> None:
    ended = end_of(start({}))
    assert 2 == ended.status
    assert f"no network configuration (.conf, .conflist) is in folder {tmp_path}" in ended.stderr
    assert not (tmp_path / "00-multus.conf").exists()


def test_a_primary_configuration_is_waited_for(start: Callable, tmp_path: Path) -> None:
    process = start({"primaryTimeout": 20})
    time.sleep(1)
    assert process.poll() is None
    put_primary(tmp_path)
    ended = end_of(process)
    assert (3, True) == (ended.status, "no API server" in ended.stderr)  # it went on, to the next thing that is missing


def test_a_ready_made_configuration_that_is_missing_is_status_2_and_named(start: Callable, tmp_path: Path) -> None:
    """Case C6, second half."""
    ended = end_of(start({"multusConfigFile": str(tmp_path / "own" / "multus.conf")}))
    assert 2 == ended.status
    assert f"{tmp_path}/own/multus.conf" in ended.stderr


def test_no_api_server_is_status_3(start: Callable, tmp_path: Path) -> None:
    put_primary(tmp_path)
    ended = end_of(start({}))
    assert 3 == ended.status
    assert "KUBERNETES_SERVICE_HOST" in ended.stderr
    assert not (tmp_path / "00-multus.conf").exists()


def test_a_socket_that_is_served_is_status_3_and_stays(start: Callable, tmp_path: Path) -> None:
    put_primary(tmp_path)
    (tmp_path / "run").mkdir()
    own = tmp_path / "00-multus.conf"
    own.write_text(json.dumps({"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus-shim", "clusterNetwork": "/a"}))
    with KubeAPI() as api, socket.socket(socket.AF_UNIX) as other:
        other.bind(str(tmp_path / "run" / "multus.sock"))
        other.listen()
        ended = end_of(start({"kubeconfig": api.kubeconfig(tmp_path / "kubeconfig"), "cleanupConfigOnExit": True}))
        assert 3 == ended.status
        assert f"another process serves {tmp_path}/run/multus.sock" in ended.stderr
        assert (tmp_path / "run" / "multus.sock").is_socket()
    assert own.exists()  # it is the other one's


def test_a_signal_ends_the_wait_for_a_primary_configuration(start: Callable, tmp_path: Path) -> None:
    process = start({"primaryTimeout": 60, "logToStderr": True, "logLevel": "verbose"})
    time.sleep(1.5)
    process.send_signal(signal.SIGTERM)
    ended = end_of(process)
    assert (0, True) == (ended.status, ended.seconds < 10)


def test_a_signal_ends_the_wait_for_a_silent_api_server(start: Callable, tmp_path: Path) -> None:
    """It accepts connections and says nothing; without the signal, the caches would be waited for 20 s."""
    put_primary(tmp_path)
    with KubeAPI(latency_s=15) as api:
        process = start({"kubeconfig": api.kubeconfig(tmp_path / "kubeconfig")})
        assert becomes_true(lambda: len(api.requests) > 0)
        process.send_signal(signal.SIGTERM)
        ended = end_of(process)
        assert (0, "", True) == (ended.status, ended.stderr, ended.seconds < 10)
    assert not (tmp_path / "00-multus.conf").exists()


def test_the_daemon_serves_in_whatever_process_runs_it(tmp_path: Path) -> None:
    """In this one, as a supervisor of our own would; it ends by a signal as well."""
    put_primary(tmp_path)
    folders = {"socketDir": str(tmp_path / "run"), "cniDir": str(tmp_path / "state"), "cniConfigDir": str(tmp_path)}
    own = tmp_path / "00-multus.conf"
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    wakeup = signal.set_wakeup_fd(-1)
    seen = []

    def end_when_ready() -> None:
        seen.append(becomes_true(own.exists))
        os.kill(os.getpid(), signal.SIGTERM)

    watcher = threading.Thread(target=end_when_ready)
    with KubeAPI() as api:
        config = {**folders, "kubeconfig": api.kubeconfig(tmp_path / "kubeconfig"), "nosuch": 1, "logFile": str(tmp_path / "log")}
        (tmp_path / "daemon-config.json").write_text(json.dumps({**config, "cleanupConfigOnExit": True, "logLevel": "debug"}))
        watcher.start()
        try:
            assert 0 == Daemon(str(tmp_path / "daemon-config.json"), {"MULTUS_NODE_NAME": "node"}).run()
        finally:
            watcher.join()
            for number, handler in handlers.items():
                signal.signal(number, handler)
            signal.set_wakeup_fd(wakeup)
    assert [True] == seen
    assert (False, False) == (own.exists(), (tmp_path / "run" / "multus.sock").exists())
    log = (tmp_path / "log").read_text()
    assert [] == [part for part in ("nosuch", "is unknown", "daemon.ready", "daemon.ended status=0") if part not in log]


def test_a_readiness_file_that_vanishes_ends_the_daemon_with_status_2(start: Callable, tmp_path: Path) -> None:
    put_primary(tmp_path)
    indicator = tmp_path / "ready" / "network"
    indicator.parent.mkdir()
    with KubeAPI() as api:
        process = start({"kubeconfig": api.kubeconfig(tmp_path / "kubeconfig"), "readinessindicatorfile": str(indicator)})
        time.sleep(1)
        assert not (tmp_path / "run").exists()
        indicator.touch()
        assert becomes_true((tmp_path / "00-multus.conf").exists)
        indicator.unlink()
        ended = end_of(process)
    assert 2 == ended.status
    assert not (tmp_path / "00-multus.conf").exists()
