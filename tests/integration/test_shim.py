"""The shim as a process, under a bare interpreter, against a scripted daemon behind a real Unix socket.

The answers of the reference's daemon are byte for byte what it sends.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

import multus
from multus.protocol import wire
from multus.testing.listener import Listener

ROOT = str(Path(multus.__file__).parent.parent)
PYTHON = [sys.executable, "-I", "-S", "-B", "-c"]
MAIN = f"import sys; sys.path.insert(0, {ROOT!r}); from multus.commands.shim import main; main()"
RESULT = (
    b'{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:00:00:00:07","mtu":1450,"name":"eth0","sandbox":"/n"}],'
    b'"ips":[{"address":"10.4.0.7/24","interface":0}]}'
)
HEAD = (
    b"HTTP/1.1 %s\r\nConnection: close\r\nContent-Type: text/plain; charset=utf-8\r\n"
    b"Date: Thu, 20 Aug 2026 10:00:00 GMT\r\nContent-Length: %d\r\n\r\n"
)
PROBE = b"HTTP/1.1 200 OK\r\nConnection: close\r\nDate: Thu, 20 Aug 2026 10:00:00 GMT\r\nContent-Length: 0\r\n\r\n"
CNI_ERROR = b'{"code":50,"msg":"bridge down","details":"br0"}'
PLAIN_ERROR = b'ContainerID:"77aa" Netns:"/n" IfName:"eth0" Args:"" Path:"" ERRORED: no such network\n'


class Done(NamedTuple):
    status: int
    stdout: bytes
    stderr: str
    seconds: float

    @property
    def code(self) -> int:
        return json.loads(self.stdout)["code"]


class Daemon:
    """Serves one connection after another by ``script``, which gets the socket and the request; by default all is well."""

    def __init__(self, folder: Path) -> None:
        self.path = folder / "multus.sock"
        self.requests: list[wire.Request] = []
        self.answers = {"/healthz": PROBE, "/readyz": PROBE, "/cni": PROBE}
        self.script: Callable[[socket.socket, wire.Request], None] = self.answer
        self.stopping = threading.Event()
        self._listening = contextlib.ExitStack()

    def start(self) -> None:
        self._listening.enter_context(Listener(str(self.path), self._serve))

    def stop(self) -> None:
        self.stopping.set()
        self._listening.close()

    def answer(self, connection: socket.socket, request: wire.Request) -> None:
        connection.sendall(self.answers[request.target])

    def _serve(self, connection: socket.socket) -> None:
        request = wire.read_request(connection.recv, 1 << 24)
        self.requests.append(request)
        self.script(connection, request)


@pytest.fixture
def daemon(tmp_path: Path) -> Iterator[Daemon]:
    daemon = Daemon(tmp_path)
    yield daemon
    daemon.stop()


def shim(command: str, folder: Path, *, env: dict | None = None, user: int | None = None, main: str = MAIN, **config: object) -> Done:
    document = {
        "cniVersion": "1.1.0",
        "name": "multus-cni-network",
        "type": "multus-shim",
        "daemonSocketDir": str(folder),
        "cniDir": str(folder / "state"),
        "shimDeadline": 1,
        **config,
    }
    environ = {
        b"CNI_COMMAND": command.encode(),
        b"CNI_CONTAINERID": b"77aa",
        b"CNI_NETNS": b"/var/run/netns/cni-77",
        b"CNI_IFNAME": b"eth0",
        b"CNI_PATH": b"/opt/cni/bin",
        **(env or {}),
    }
    start = time.monotonic()
    stdin = json.dumps(document).encode()
    done = subprocess.run([*PYTHON, main], input=stdin, env=environ, capture_output=True, timeout=60, user=user, check=False)
    return Done(done.returncode, done.stdout, done.stderr.decode(), time.monotonic() - start)


# the reference's answers


@pytest.mark.parametrize(
    ("version", "expected"),
    [
        ("1.1.0", json.loads(RESULT)),
        (
            "1.0.0",
            {
                "cniVersion": "1.0.0",
                "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:07", "sandbox": "/n"}],
                "ips": [{"interface": 0, "address": "10.4.0.7/24"}],
            },
        ),
        (
            "0.4.0",
            {
                "cniVersion": "0.4.0",
                "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:07", "sandbox": "/n"}],
                "ips": [{"version": "4", "interface": 0, "address": "10.4.0.7/24"}],
                "dns": {},
            },
        ),
        ("", {"cniVersion": "0.1.0", "ip4": {"ip": "10.4.0.7/24"}, "dns": {}}),
    ],
)
def test_result_of_the_reference_is_printed_in_the_version_asked_for(daemon: Daemon, tmp_path: Path, version: str, expected: dict) -> None:
    body = b'{"Result":' + RESULT + b"}"
    daemon.answers["/cni"] = HEAD % (b"200 OK", len(body)) + body
    daemon.start()
    done = shim("ADD", tmp_path, cniVersion=version)
    assert (0, json.dumps(expected, indent=4).encode(), "") == (done.status, done.stdout, done.stderr)


@pytest.mark.parametrize(
    ("body", "expected"),
    [
        (CNI_ERROR, {"cniVersion": "1.1.0", "code": 50, "msg": "bridge down", "details": "br0"}),
        (b'{"code":11,"msg":"later"}', {"cniVersion": "1.1.0", "code": 11, "msg": "later"}),
    ],
)
@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC", "STATUS"])
def test_cni_error_of_the_reference_keeps_its_code(daemon: Daemon, tmp_path: Path, command: str, body: bytes, expected: dict) -> None:
    daemon.answers["/cni"] = HEAD % (b"400 Bad Request", len(body)) + body
    daemon.start()
    done = shim(command, tmp_path)
    assert (1, json.dumps(expected, indent=4).encode(), 1) == (done.status, done.stdout, len(done.stderr.splitlines()))


def test_plain_error_of_the_reference_is_quoted(daemon: Daemon, tmp_path: Path) -> None:
    daemon.answers["/cni"] = HEAD % (b"400 Bad Request", len(PLAIN_ERROR)) + PLAIN_ERROR
    daemon.start()
    done = shim("ADD", tmp_path)
    assert (1, 999) == (done.status, done.code)
    assert b"ERRORED: no such network" in done.stdout


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_empty_answer_of_the_reference_is_a_success(daemon: Daemon, tmp_path: Path, command: str) -> None:
    daemon.start()
    done = shim(command, tmp_path)
    assert (0, b"", "") == (done.status, done.stdout, done.stderr)
    assert ["/healthz" if command == "DEL" else "/readyz", "/cni"] == [request.target for request in daemon.requests]


def test_usual_call_loads_no_module_beyond_the_list(daemon: Daemon, tmp_path: Path) -> None:
    """What ``tests/unit/commands/modules.json`` says of the import holds for a whole ADD."""
    daemon.answers["/cni"] = wire.response(200, [], b'{"Result": {}, "Stdout": "{}"}')
    daemon.start()
    code = f"""
import posix, sys
before = set(sys.modules)
sys.path.insert(0, {ROOT!r})
from multus.commands.shim import run
run(posix.environ, 0, 2, 2)
print(*sorted(set(sys.modules) - before))
"""
    done = shim("ADD", tmp_path, main=code)
    expected = json.loads(Path(__file__).parents[1].joinpath("unit/commands/modules.json").read_text())["shim"]
    assert ("{}", expected) == (done.stderr, done.stdout.decode().split())


def test_daemon_gets_environment_and_configuration_untouched(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    shim("CHECK", tmp_path, env={b"X": b'a=b;"\xc3\xa9\xff'}, big=12345678901234567890123)
    request = json.loads(daemon.requests[1].body)
    assert b'a=b;"\xc3\xa9\xff' == os.fsencode(request["env"]["X"])
    assert b'"big": 12345678901234567890123' in base64.b64decode(request["config"])


# faults


def test_daemon_that_starts_late_is_waited_for(daemon: Daemon, tmp_path: Path) -> None:
    timer = threading.Timer(0.5, daemon.start)
    timer.start()
    done = shim("CHECK", tmp_path, shimDeadline=20)
    timer.join()
    assert (0, b"") == (done.status, done.stdout)


def test_daemon_that_closes_early_is_code_11(daemon: Daemon, tmp_path: Path) -> None:
    daemon.script = lambda connection, request: daemon.answer(connection, request) if request.target == "/readyz" else None
    daemon.start()
    done = shim("ADD", tmp_path)
    assert (1, 11, True) == (done.status, done.code, b"connection ended" in done.stdout)


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_daemon_that_never_answers_is_cut_off(daemon: Daemon, tmp_path: Path, command: str) -> None:
    daemon.script = lambda connection, request: daemon.answer(connection, request) if request.target != "/cni" else daemon.stopping.wait(10)
    daemon.start()
    done = shim(command, tmp_path, shimTimeout=0.7)
    assert (1, 11, True) == (done.status, done.code, 0.6 < done.seconds < 5)
    assert not (tmp_path / "state").exists()


def test_daemon_that_answers_byte_by_byte_is_cut_off(daemon: Daemon, tmp_path: Path) -> None:
    def slowly(connection: socket.socket, request: wire.Request) -> None:
        if request.target != "/cni":
            return daemon.answer(connection, request)
        for byte in PROBE * 10:
            connection.sendall(bytes([byte]))
            if daemon.stopping.wait(0.02):
                return None
        return None

    daemon.script = slowly
    daemon.start()
    done = shim("CHECK", tmp_path, shimTimeout=0.7)
    assert (1, 11, True) == (done.status, done.code, done.seconds < 5)


def test_slow_answer_in_time_is_read(daemon: Daemon, tmp_path: Path) -> None:
    def slowly(connection: socket.socket, request: wire.Request) -> None:
        for byte in daemon.answers[request.target]:
            connection.sendall(bytes([byte]))
            time.sleep(0.001)

    daemon.script = slowly
    daemon.start()
    assert 0 == shim("CHECK", tmp_path, shimDeadline=10).status


def test_answer_of_ten_megabytes_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    body = b"x" * 10_000_000
    daemon.answers["/cni"] = HEAD % (b"200 OK", len(body)) + body
    daemon.start()
    done = shim("ADD", tmp_path)
    assert (1, 999, True) == (done.status, done.code, len(done.stdout) < 1000)


def test_endless_answer_is_refused(daemon: Daemon, tmp_path: Path) -> None:
    def endless(connection: socket.socket, request: wire.Request) -> None:
        if request.target != "/cni":
            return daemon.answer(connection, request)
        connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
        while not daemon.stopping.is_set():
            connection.sendall(b"x" * 65536)
        return None

    daemon.script = endless
    daemon.start()
    done = shim("ADD", tmp_path)
    assert (1, 999) == (done.status, done.code)


@pytest.mark.parametrize("kind", ["missing", "regular file", "folder", "stale socket"])
def test_without_a_daemon_add_waits_del_is_kept_and_status_says_50(tmp_path: Path, kind: str) -> None:
    path = tmp_path / "multus.sock"
    if kind == "regular file":
        path.write_text("no socket")
    elif kind == "folder":
        path.mkdir()
    elif kind == "stale socket":
        with socket.socket(socket.AF_UNIX) as stale:
            stale.bind(str(path))
            stale.listen()
    added, deleted, status = (shim(command, tmp_path, shimDeadline=0.4) for command in ("ADD", "DEL", "STATUS"))
    assert [(1, 11, True), (1, 50, True)] == [(done.status, done.code, str(path).encode() in done.stdout) for done in (added, status)]
    assert (0, b"") == (deleted.status, deleted.stdout)
    (intent,) = (tmp_path / "state" / "intents").iterdir()
    assert "DEL" == json.loads(intent.read_bytes())["env"]["CNI_COMMAND"]


def test_socket_that_may_not_be_used_is_told(tmp_path: Path) -> None:
    if os.geteuid() != 0:
        pytest.skip("needs root, to be someone else")
    someone = 65534
    may_import = f"import sys; sys.path.insert(0, {ROOT!r}); import multus"
    try:
        subprocess.run([*PYTHON, may_import], user=someone, capture_output=True, check=True)
    except (PermissionError, subprocess.CalledProcessError):
        pytest.skip("someone else can run neither the interpreter nor the package here")
    with tempfile.TemporaryDirectory() as name, socket.socket(socket.AF_UNIX) as listener:
        folder = Path(name)
        folder.chmod(0o711)
        listener.bind(str(folder / "multus.sock"))
        listener.listen()
        (folder / "multus.sock").chmod(0o600)
        done = shim("ADD", folder, user=someone, shimDeadline=0.3)
    assert (1, 11, True) == (done.status, done.code, b"Permission denied" in done.stdout)


def test_full_queue_is_waited_for(tmp_path: Path) -> None:
    """The kernel refuses at once what does not fit into the queue of a Unix socket."""
    with socket.socket(socket.AF_UNIX) as listener, socket.socket(socket.AF_UNIX) as first:
        listener.bind(str(tmp_path / "multus.sock"))
        listener.listen(0)
        first.connect(str(tmp_path / "multus.sock"))

        def serve() -> None:
            time.sleep(0.5)
            listener.accept()[0].close()
            for _ in range(2):
                with listener.accept()[0] as connection:
                    wire.read_request(connection.recv, 1 << 20)
                    connection.sendall(PROBE)

        thread = threading.Thread(target=serve)
        thread.start()
        done = shim("CHECK", tmp_path, shimDeadline=10)
        thread.join()
    assert (0, b"") == (done.status, done.stdout)


def test_closed_standard_input_is_an_error_object(tmp_path: Path) -> None:
    done = shim("STATUS", tmp_path, main=f"import os; os.close(0); {MAIN}")
    assert (1, 5) == (done.status, done.code)


def test_environment_without_a_utf8_locale_survives(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    shim("CHECK", tmp_path, env={b"LC_ALL": b"C", b"X": b"\xc3\xa9\x80"})
    assert b"\xc3\xa9\x80" == json.loads(daemon.requests[1].body)["env"]["X"].encode(errors="surrogateescape")


def test_a_hundred_at_once_are_all_served(daemon: Daemon, tmp_path: Path) -> None:
    daemon.start()
    threads_done: list[Done] = []
    threads = [threading.Thread(target=lambda: threads_done.append(shim("CHECK", tmp_path, shimDeadline=30))) for _ in range(100)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert [0] * 100 == [done.status for done in threads_done]


@pytest.mark.parametrize("content", [b"", b"{nope", b"[", b'{"name": "a\nb"}', b'{"name": "\\x"}', b'{"name": nul}', b"\xff"])
def test_standard_input_that_is_no_json_is_code_6(content: bytes) -> None:
    """In a process of its own: the scanner fails in another way while ``json`` is not loaded."""
    environ = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "77aa", "CNI_NETNS": "/n", "CNI_IFNAME": "eth0", "CNI_PATH": "/p"}
    done = subprocess.run([*PYTHON, MAIN], env=environ, input=content, capture_output=True, check=False)
    assert (1, 6) == (done.returncode, json.loads(done.stdout)["code"])
