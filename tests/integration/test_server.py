"""The node socket as its clients see it: a real socket, a handler that does as it is told."""

from __future__ import annotations

import contextlib
import errno
import os
import socket
import stat
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from multus.adapters import server
from multus.adapters.server import Answer, Handler, NodeServer, Work, json_answer
from multus.adapters.work_queue import WorkQueue
from multus.errors import IOFailureError, MultusError
from multus.protocol import wire
from multus.testing.fakes import RecordingLog

PATIENCE_S = 20.0
WORKERS = 2
PROBE_MS, PROBE_MAX_MS = 100.0, 1000.0
"""What a probe takes at most, and on a machine that is busy with something else as well."""
NOSNIFF = {"content-type": "text/plain; charset=utf-8", "x-content-type-options": "nosniff"}


class Node(Handler):
    """Echoes a body as JSON; ``hold…`` bodies wait until they are let go; others do what their name says."""

    def __init__(self) -> None:
        self.reason = ""
        self.started: list[bytes] = []
        self.observed: list[tuple[str, str, int]] = []
        self.after: list[bytes] = []
        self.gate = threading.Event()
        self.changed = threading.Condition()

    def prepare(self, request: wire.Request) -> Work | Answer:
        if request.body == b"fault at once":
            raise ZeroDivisionError("a fault")
        if request.body == b"at once":
            return json_answer(200, b"{}")
        return Work(
            "" if request.body.startswith(b"any") else request.body.decode(errors="replace"),
            lambda: self._run(request),
            lambda reason: json_answer(400, reason.encode()),
            is_pointless_when_abandoned=b"ADD" in request.body,
        )

    def _run(self, request: wire.Request) -> Answer:
        with self.changed:
            self.started.append(request.body)
            self.changed.notify_all()
        if b"fault" in request.body:
            raise ZeroDivisionError("a fault")
        if b"hold" in request.body:
            assert self.gate.wait(PATIENCE_S)

        def after() -> None:
            self.after.append(request.body)
            if b"after" in request.body:
                raise ZeroDivisionError("a fault afterwards")

        return json_answer(200, request.body, after)

    def not_ready(self) -> str:
        return self.reason

    def observe(self, path: str, method: str, status: int) -> None:
        with self.changed:
            self.observed.append((path, method, status))
            self.changed.notify_all()

    def wait_for(self, predicate: Callable[[], bool]) -> None:
        with self.changed:
            assert self.changed.wait_for(predicate, PATIENCE_S)


class Daemon:
    """Handler, queue and server of one socket."""

    def __init__(self, path: Path, queue_timeout_s: float = 60.0) -> None:
        self.path = path
        self.log = RecordingLog()
        self.node = Node()
        self.queue = WorkQueue(WORKERS, self.log)
        self.server = NodeServer(str(path), self.node, self.queue, queue_timeout_s, self.log)

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        try:
            client.connect(str(self.path))
        except OSError:
            client.close()
            raise
        return client

    def send(self, content: bytes) -> socket.socket:
        client = self.connect()
        client.sendall(content)
        return client

    def post(self, body: bytes, path: str = "/cni") -> socket.socket:
        return self.send(wire.request("POST", path, [("Host", "dummy")], body))

    def ask(self, method: str, path: str, body: bytes = b"") -> wire.Response:
        with self.send(wire.request(method, path, [("Host", "dummy")], body)) as client:
            return read(client, method)

    def wait_until_waiting(self, count: int) -> None:
        end = time.monotonic() + PATIENCE_S
        while self.queue.lengths()[0] != count:
            assert time.monotonic() < end, self.queue.lengths()
            time.sleep(0.005)


def read(client: socket.socket, method: str = "POST") -> wire.Response:
    """The answer, after which the server closes."""
    response = wire.read_response(client.recv, method, 2**20)
    assert client.recv(1) == b""
    return response


def probe_ms(daemon: Daemon, target: str, tries: int = 11) -> list[float]:
    """How long some probes take, the fastest first."""
    times = []
    for _ in range(tries):
        start = time.monotonic()
        assert daemon.ask("GET", target).status == 200
        times.append((time.monotonic() - start) * 1000)
    return sorted(times)


def resident_kib() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "run" / "multus.sock"


@pytest.fixture
def daemon(path: Path) -> Iterator[Daemon]:
    daemon = Daemon(path)
    daemon.queue.start()
    daemon.server.start()
    yield daemon
    end(daemon)


def end(daemon: Daemon) -> None:
    daemon.node.gate.set()
    daemon.queue.close("the test is over")
    assert daemon.queue.drain(PATIENCE_S)
    daemon.server.stop()
    daemon.queue.stop()


# --- Methods and paths ---


@pytest.mark.parametrize("method", ["GET", "POST"])
@pytest.mark.parametrize("target", ["/healthz", "/readyz", "/healthz?verbose"])
def test_a_probe_is_answered_with_200_and_nothing(daemon: Daemon, method: str, target: str) -> None:
    response = daemon.ask(method, target, b"null" if method == "POST" else b"")
    assert (response.status, response.body, response.headers) == (200, b"", {"connection": "close", "content-length": "0"})


def test_readiness_gives_its_reason_and_health_does_not_care(daemon: Daemon) -> None:
    daemon.node.reason = "the daemon is stopping"
    ready = daemon.ask("GET", "/readyz")
    assert (ready.status, ready.body) == (500, b"the daemon is stopping")
    assert daemon.ask("GET", "/healthz").status == 200


@pytest.mark.parametrize("target", ["/", "/cni/", "/CNI", "/delegate/x", "/metrics", "/healthz/"])
@pytest.mark.parametrize("method", ["GET", "POST", "DELETE"])
def test_another_path_is_404_without_a_body_and_is_logged(daemon: Daemon, target: str, method: str) -> None:
    response = daemon.ask(method, target)
    assert (response.status, response.body, response.headers["connection"]) == (404, b"", "close")
    assert daemon.log.lines == [("error", "server.path.unknown", {"path": target})]


@pytest.mark.parametrize(
    ("method", "target"),
    [("GET", "/cni"), ("PUT", "/cni"), ("GET", "/delegate"), ("DELETE", "/delegate"), ("PUT", "/healthz"), ("DELETE", "/readyz")],
)
def test_another_method_is_405_with_the_references_text(daemon: Daemon, method: str, target: str) -> None:
    response = daemon.ask(method, target)
    assert (response.status, response.body) == (405, b"Method not allowed\n")
    assert response.headers == {"connection": "close", "content-length": "19", **NOSNIFF}


@pytest.mark.parametrize("target", ["/cni", "/healthz"])
def test_head_is_another_method_and_has_no_body(daemon: Daemon, target: str) -> None:
    content = b""
    with daemon.send(wire.request("HEAD", target, [])) as client:
        while piece := client.recv(4096):
            content += piece
    assert content.startswith(b"HTTP/1.1 405 Method Not Allowed\r\n")
    assert content.endswith(b"\r\nContent-Length: 19\r\n\r\n")


@pytest.mark.parametrize("target", ["/cni", "/delegate"])
def test_a_request_is_served_by_a_worker_and_answered_in_json(daemon: Daemon, target: str) -> None:
    response = daemon.ask("POST", target, b'{"a":1}')
    expected = {"connection": "close", "content-type": "application/json", "content-length": "7"}
    assert (response.status, response.body, response.headers) == (200, b'{"a":1}', expected)
    daemon.node.wait_for(lambda: daemon.node.observed == [(target, "POST", 200)])
    assert daemon.node.started == [b'{"a":1}']


def test_a_request_that_is_decided_at_once_needs_no_worker(daemon: Daemon) -> None:
    assert daemon.ask("POST", "/cni", b"at once").body == b"{}"
    assert daemon.node.started == []


def test_what_comes_after_the_answer_comes_after_it(daemon: Daemon) -> None:
    assert daemon.ask("POST", "/cni", b"x").status == 200
    end(daemon)
    assert daemon.node.after == [b"x"]


def test_every_answer_is_observed(daemon: Daemon) -> None:
    daemon.ask("GET", "/healthz")
    daemon.ask("GET", "/nowhere")
    daemon.ask("PUT", "/cni")
    with daemon.send(b"garbage\r\n\r\n") as client:
        read(client)
    expected = [("/healthz", "GET", 200), ("/nowhere", "GET", 404), ("/cni", "PUT", 405), ("unreadable", "", 400)]
    daemon.node.wait_for(lambda: sorted(daemon.node.observed) == sorted(expected))


# --- The socket ---


def modes(path: Path) -> tuple[int, int]:
    """Of the folder and of the socket."""
    assert stat.S_ISSOCK(path.stat().st_mode)
    return stat.S_IMODE(path.parent.stat().st_mode), stat.S_IMODE(path.stat().st_mode)


@contextlib.contextmanager
def started(path: Path) -> Iterator[Daemon]:
    daemon = Daemon(path)
    daemon.queue.start()
    try:
        daemon.server.start()
        yield daemon
    finally:
        end(daemon)


def test_the_socket_is_for_its_owner_alone_and_goes_at_the_end(path: Path) -> None:
    with started(path):
        assert modes(path) == (0o700, 0o600)
    assert (path.parent.exists(), path.exists()) == (True, False)


def test_a_folder_that_is_there_keeps_what_is_in_it_and_loses_its_permissions(path: Path) -> None:
    path.parent.mkdir(mode=0o755)
    (path.parent / "other").write_text("kept")
    with started(path):
        assert modes(path) == (0o700, 0o600)
    assert (path.parent / "other").read_text() == "kept"


def test_a_socket_that_a_killed_daemon_left_is_replaced(path: Path) -> None:
    path.parent.mkdir()
    with socket.socket(socket.AF_UNIX) as left:
        left.bind(str(path))
    with started(path) as daemon:
        assert daemon.ask("GET", "/healthz").status == 200
        assert modes(path) == (0o700, 0o600)


def test_a_socket_that_somebody_serves_is_refused_by_its_name_and_stays(daemon: Daemon, path: Path) -> None:
    with pytest.raises(IOFailureError) as caught:
        Daemon(path).server.start()
    assert (caught.value.code, caught.value.msg) == (5, f"another process serves {path}; one daemon serves a node")
    assert daemon.ask("GET", "/healthz").status == 200


def test_a_socket_whose_owner_is_too_busy_to_accept_is_refused(path: Path) -> None:
    path.parent.mkdir()
    with contextlib.ExitStack() as stack:
        owner = stack.enter_context(socket.socket(socket.AF_UNIX))
        owner.bind(str(path))
        owner.listen(0)
        for _ in range(2):
            client = stack.enter_context(socket.socket(socket.AF_UNIX))
            client.setblocking(False)
            with contextlib.suppress(BlockingIOError):
                client.connect(str(path))
        with pytest.raises(IOFailureError, match="another process serves"):
            Daemon(path).server.start()


@pytest.mark.parametrize("kind", ["file", "folder", "link"])
def test_what_is_no_socket_is_refused_and_stays(path: Path, kind: str) -> None:
    path.parent.mkdir()
    {"file": path.touch, "folder": path.mkdir, "link": lambda: path.symlink_to("elsewhere")}[kind]()
    with pytest.raises(IOFailureError) as caught:
        Daemon(path).server.start()
    assert caught.value.msg == f"{path} is there already and is no socket"
    assert os.path.lexists(path)


def test_a_folder_that_cannot_be_made_is_an_error_that_names_the_socket(tmp_path: Path) -> None:
    (tmp_path / "file").touch()
    with pytest.raises(IOFailureError, match=f"cannot serve the socket {tmp_path}/file/x/multus.sock: Not a directory"):
        Daemon(tmp_path / "file" / "x" / "multus.sock").server.start()


def test_a_path_that_is_too_long_for_a_socket_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(IOFailureError, match="AF_UNIX path too long"):
        Daemon(tmp_path / ("x" * 120) / "multus.sock").server.start()


def test_a_server_that_never_started_can_be_stopped(path: Path) -> None:
    Daemon(path).server.stop()
    assert not path.exists()


def test_a_socket_of_another_daemon_survives_the_end_of_this_one(daemon: Daemon, path: Path) -> None:
    path.unlink()
    with started(path) as other:
        assert daemon.server.problem() == f"the socket {path} was removed or replaced"
        daemon.server.stop()
        assert other.ask("GET", "/healthz").status == 200


def test_a_socket_that_is_gone_is_a_problem_and_the_end_is_none(daemon: Daemon, path: Path) -> None:
    assert daemon.server.problem() == ""
    path.unlink()
    assert daemon.server.problem() == f"the socket {path} was removed or replaced"
    daemon.server.stop()
    assert daemon.server.problem() == ""


def test_an_unexpected_end_of_accepting_is_logged_and_a_problem(daemon: Daemon, path: Path) -> None:
    assert daemon.server._listener is not None
    daemon.server._listener.shutdown(socket.SHUT_RDWR)
    wait_for_thread_to_end("accept")
    expected = f"the socket {path} accepts no more: Invalid argument"
    assert daemon.server.problem() == expected
    assert daemon.log.lines == [("error", "server.ended", {"error": expected})]


def wait_for_thread_to_end(name: str) -> None:
    for thread in threading.enumerate():
        if thread.name == name:
            thread.join(PATIENCE_S)
            assert not thread.is_alive()


class Listener:
    """A listener that fails first, then passes everything on."""

    def __init__(self, real: socket.socket, *errors: int) -> None:
        self._real = real
        self._errors = list(errors)

    def accept(self) -> tuple[socket.socket, object]:
        if self._errors:
            raise OSError(self._errors.pop(0), "a cause")
        return self._real.accept()

    def shutdown(self, how: int) -> None:
        self._real.shutdown(how)

    def close(self) -> None:
        self._real.close()


def test_accepting_goes_on_when_descriptors_are_short(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    listen = server._listen
    monkeypatch.setattr(server, "_listen", lambda where: Listener(listen(where), errno.EMFILE, errno.ENOBUFS))
    with started(path) as daemon:
        assert daemon.ask("GET", "/healthz").status == 200
        assert daemon.log.events() == ["server.accept.failed", "server.accept.failed"]


def test_a_client_without_a_thread_is_dropped_and_the_next_is_served(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    start = threading.Thread.start

    def refuse(thread: threading.Thread) -> None:
        monkeypatch.setattr(threading.Thread, "start", start)
        raise RuntimeError("can't start new thread")

    monkeypatch.setattr(threading.Thread, "start", refuse)
    with daemon.connect() as client:
        assert client.recv(1) == b""
    assert daemon.ask("GET", "/healthz").status == 200
    assert daemon.log.events("error") == ["server.accept.failed"]


# --- Many, and busy ---


def test_probes_answer_at_once_while_all_workers_are_busy_and_two_hundred_wait(daemon: Daemon) -> None:
    """A request that waits costs a descriptor and its body, not a thread."""
    waiting = 200
    with contextlib.ExitStack() as stack:
        for number in range(WORKERS):
            stack.enter_context(daemon.post(b"hold %d" % number))
        daemon.node.wait_for(lambda: len(daemon.node.started) == WORKERS)
        threads, before = threading.active_count(), resident_kib()
        clients = [stack.enter_context(daemon.post(b"any %d" % number)) for number in range(waiting)]
        daemon.wait_until_waiting(waiting)
        for target in ("/healthz", "/readyz"):
            times = probe_ms(daemon, target)
            assert times[len(times) // 2] < PROBE_MS
            assert times[-1] < PROBE_MAX_MS
        assert (resident_kib() - before) / waiting < 1024
        assert threading.active_count() - threads < 5
        daemon.node.gate.set()
        assert [read(client).body for client in clients] == [b"any %d" % number for number in range(waiting)]


def test_no_more_requests_are_served_at_once_than_there_are_workers(daemon: Daemon) -> None:
    with contextlib.ExitStack() as stack:
        clients = [stack.enter_context(daemon.post(b"hold %d" % number)) for number in range(6)]
        daemon.wait_until_waiting(6 - WORKERS)
        assert len(daemon.node.started) == WORKERS
        daemon.node.gate.set()
        assert [read(client).status for client in clients] == [200] * 6


def test_a_request_that_waits_too_long_is_refused(path: Path) -> None:
    daemon = Daemon(path, queue_timeout_s=0.2)
    daemon.queue.start()
    daemon.server.start()
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(daemon.post(b"hold %d" % number)) for number in range(WORKERS)]
        daemon.node.wait_for(lambda: len(daemon.node.started) == WORKERS)
        late = daemon.ask("POST", "/cni", b"late")
        assert (late.status, late.body) == (400, b"it waited too long for its turn")
        daemon.node.gate.set()
        assert [read(client).status for client in busy] == [200] * WORKERS
    end(daemon)
    assert b"late" not in daemon.node.started


# --- Clients that are odd ---


def test_a_request_in_small_pieces_is_served(daemon: Daemon) -> None:
    with daemon.connect() as client:
        for byte in wire.request("POST", "/cni", [("Host", "dummy")], b"slow"):
            client.sendall(bytes([byte]))
        assert read(client).body == b"slow"


def test_a_request_in_chunks_is_served(daemon: Daemon) -> None:
    content = b"POST /cni HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nab\r\n1\r\nc\r\n0\r\n\r\n"
    with daemon.send(content) as client:
        assert read(client).body == b"abc"


def test_a_silent_or_trickling_client_is_given_up_and_holds_nobody_up(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "READ_TIMEOUT_S", 0.4)
    with started(path) as daemon, daemon.connect() as silent, daemon.send(b"POST /cni HTTP/1.1\r\n") as trickling:
        start = time.monotonic()
        assert daemon.ask("GET", "/healthz").status == 200
        for _ in range(100):
            try:
                trickling.sendall(b"X: y\r\n")
            except BrokenPipeError:
                break
            time.sleep(0.05)
        assert time.monotonic() - start < 4
        assert (read(silent).status, daemon.node.started) == (400, [])
        wait_for_readers_to_end()


def wait_for_readers_to_end() -> None:
    end = time.monotonic() + PATIENCE_S
    while any(thread.name == "reader" for thread in threading.enumerate()):
        assert time.monotonic() < end
        time.sleep(0.005)


@pytest.mark.parametrize(
    "content",
    [
        b"\0\xff\r\n\r\n",
        b"GET\r\n\r\n",
        b"GET / HTTP/2.0\r\n\r\n",
        b"POST /cni HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST /cni HTTP/1.1\r\nContent-Length: 99999999999\r\n\r\n",
        b"POST /cni HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\nzz\r\n",
        b"X" * (wire.MAX_HEAD_BYTES + 65536),
    ],
)
def test_garbage_and_what_is_too_long_is_answered_with_400(daemon: Daemon, content: bytes) -> None:
    client = daemon.connect()
    with client, contextlib.suppress(BrokenPipeError):
        client.sendall(content)
    with daemon.connect() as client:
        with contextlib.suppress(BrokenPipeError):
            client.sendall(content)
        response = wire.read_response(client.recv, "POST", 2**20)
    assert (response.status, {key: response.headers[key] for key in NOSNIFF}) == (400, NOSNIFF)
    assert daemon.ask("GET", "/healthz").status == 200


def test_a_body_of_the_largest_size_is_served_and_one_byte_more_is_not(daemon: Daemon, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "BODY_MAX", 1000)
    assert daemon.ask("POST", "/cni", b"x" * 1000).status == 200
    response = daemon.ask("POST", "/cni", b"x" * 1001)
    assert (response.status, response.body) == (400, b"HTTP body is longer than 1000 bytes\n")


def test_a_client_that_leaves_within_its_request_is_forgotten(daemon: Daemon) -> None:
    daemon.send(b"POST /cni HTTP/1.1\r\nContent-Length: 10\r\n\r\nabc").close()
    wait_for_readers_to_end()
    assert (daemon.node.started, daemon.ask("GET", "/healthz").status) == ([], 200)


def test_what_a_client_gave_up_is_only_done_if_it_must_be(daemon: Daemon) -> None:
    """Its runtime will send DEL for an ADD that it gave up; nobody repeats a DEL."""
    with contextlib.ExitStack() as stack:
        busy = [stack.enter_context(daemon.post(b"hold %d" % number)) for number in range(WORKERS)]
        daemon.node.wait_for(lambda: len(daemon.node.started) == WORKERS)
        for body in (b"any ADD", b"any DEL"):
            client = daemon.post(body)
            daemon.wait_until_waiting(1 if body == b"any ADD" else 2)
            client.close()
        daemon.node.gate.set()
        assert [read(client).status for client in busy] == [200] * WORKERS
    end(daemon)
    assert daemon.node.started[WORKERS:] == [b"any DEL"]
    assert sorted(daemon.log.events("warning")) == ["server.answer.lost", "server.request.abandoned"]  # two workers tell


def test_a_client_that_only_sends_no_more_is_served(daemon: Daemon) -> None:
    with daemon.post(b"any ADD") as client:
        client.shutdown(socket.SHUT_WR)
        assert read(client).body == b"any ADD"


def test_an_answer_that_nobody_takes_holds_its_worker_for_a_limited_time(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(server, "WRITE_TIMEOUT_S", 0.2)
    with started(path) as daemon, daemon.post(b"x" * 2**20):
        daemon.node.wait_for(lambda: ("/cni", "POST", 200) in daemon.node.observed)
        assert [(event, str(fields["error"])) for _, event, fields in daemon.log.lines] == [("server.answer.lost", "timed out")]


# --- Faults of ours ---


@pytest.mark.parametrize("body", [b"fault at once", b"fault in a worker"])
def test_a_handler_that_raises_answers_400_and_the_daemon_lives_on(daemon: Daemon, body: bytes) -> None:
    for number in range(2 * WORKERS):
        response = daemon.ask("POST", "/cni", body if body == b"fault at once" else body + b" %d" % number)
        assert (response.status, response.body) == (400, b"internal error: ZeroDivisionError: a fault\n")
    assert daemon.ask("POST", "/cni", b"x").status == 200
    assert daemon.log.events("error") == ["server.request.failed"] * 2 * WORKERS


def test_a_fault_after_the_answer_costs_no_worker(daemon: Daemon) -> None:
    for number in range(2 * WORKERS):
        assert daemon.ask("POST", "/cni", b"after %d" % number).status == 200
    assert daemon.ask("POST", "/cni", b"x").status == 200
    end(daemon)
    assert daemon.log.events("error") == ["server.after.failed"] * 2 * WORKERS


def test_a_handler_that_serves_nothing_answers_so(path: Path) -> None:
    log = RecordingLog()
    queue = WorkQueue(1, log)
    nothing = NodeServer(str(path), Handler(), queue, 1.0, log)
    with pytest.raises(MultusError, match="nothing serves /cni"):
        Handler().prepare(wire.Request("POST", "/cni", {}, b""))
    nothing.start()
    with socket.socket(socket.AF_UNIX) as client:
        client.settimeout(PATIENCE_S)
        client.connect(str(path))
        client.sendall(wire.request("POST", "/readyz", []))
        assert read(client).status == 200
    nothing.stop()


# --- The end ---


def test_at_the_end_running_requests_finish_and_waiting_ones_are_refused(daemon: Daemon, path: Path) -> None:
    with contextlib.ExitStack() as stack:
        running = [stack.enter_context(daemon.post(b"hold %d" % number)) for number in range(WORKERS)]
        daemon.node.wait_for(lambda: len(daemon.node.started) == WORKERS)
        waiting = stack.enter_context(daemon.post(b"waiting"))
        daemon.wait_until_waiting(1)
        daemon.queue.close("the daemon is stopping")
        assert read(waiting).body == b"the daemon is stopping"
        assert daemon.ask("POST", "/cni", b"late").body == b"the daemon is stopping"
        assert daemon.ask("GET", "/healthz").status == 200
        assert not daemon.queue.drain(0.05)
        daemon.node.gate.set()
        assert daemon.queue.drain(PATIENCE_S)
        daemon.server.stop()
        assert [read(client).status for client in running] == [200] * WORKERS
    assert not path.exists()
    wait_for_thread_to_end("accept")
    with pytest.raises(FileNotFoundError):
        daemon.connect()


@pytest.mark.parametrize("path", ["/multus.sock", "/run/multus.sock", "/var/run/multus.sock"])
def test_a_top_level_folder_is_never_taken_for_our_own(path: str) -> None:
    """Its mode would become 0700, and the machine unusable."""
    mode = os.stat("/run").st_mode
    with pytest.raises(IOFailureError, match="one of its own"):
        NodeServer(path, Handler(), WorkQueue(1, RecordingLog()), 1.0, RecordingLog()).start()
    assert mode == os.stat("/run").st_mode
