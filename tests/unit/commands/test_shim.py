"""The shim: what it refuses, what it asks the daemon, what it makes of the answer.  The daemon is a fake connection."""

from __future__ import annotations

import base64
import json
import os
import stat
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from multus.commands import shim, shim_detours, shim_failures
from multus.errors import MultusError, TryAgainLaterError
from multus.protocol import versions, wire
from multus.testing.fakes import FakeClock

SECRET = "hunter2"
ENV = {
    "CNI_CONTAINERID": "77aa",
    "CNI_NETNS": "/var/run/netns/not-there",
    "CNI_IFNAME": "eth0",
    "CNI_PATH": "/opt/cni/bin",
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0",
}
READY = wire.response(200, [("Connection", "close")])
RESULT = {
    "cniVersion": "1.1.0",
    "interfaces": [{"mac": "02:00:00:00:00:07", "mtu": 1450, "name": "eth0", "sandbox": "/n"}],
    "ips": [{"address": "10.4.0.7/24", "interface": 0}],
}


class Connection:
    """One connection of the fake daemon: gives an answer in pieces, or fails."""

    def __init__(self, daemon: FakeDaemon) -> None:
        self._daemon = daemon
        self._pieces: list[bytes | Exception] = []
        self.is_closed = False

    def settimeout(self, timeout: float) -> None:
        self._daemon.timeouts.append(timeout)

    def sendall(self, data: bytes) -> None:
        request = wire.read_request(lambda _: data, 1 << 20)
        self._daemon.requests.append(request)
        answers = self._daemon.answers.get(request.target, [])
        answer = answers.pop(0) if len(answers) > 1 else answers[0]
        self._pieces = list(answer) if isinstance(answer, tuple) else [answer]

    def recv(self, size: int) -> bytes:
        piece = self._pieces.pop(0) if self._pieces else b""
        if isinstance(piece, TimeoutError):
            self._daemon.clock.now += self._daemon.timeouts[-1]
        if isinstance(piece, Exception):
            raise piece
        return piece

    def close(self) -> None:
        self.is_closed = True


class FakeDaemon:
    """Answers by target, the last one again and again.  ``refusals`` come first: what connecting raises."""

    def __init__(self, *, refusals: list[Exception] | Exception = (), **answers: object) -> None:
        self.clock = FakeClock()
        self.answers = {f"/{target}": answer if isinstance(answer, list) else [answer] for target, answer in answers.items()}
        self.refusals = refusals
        self.requests: list[wire.Request] = []
        self.connections: list[Connection] = []
        self.timeouts: list[float] = []
        self.paths: list[str] = []

    def connect(self, path: str) -> Connection:
        self.paths.append(path)
        if isinstance(self.refusals, Exception):
            raise self.refusals
        if self.refusals:
            raise self.refusals.pop(0)
        self.connections.append(Connection(self))
        return self.connections[-1]

    @property
    def targets(self) -> list[str]:
        return [request.target for request in self.requests]


class Done(NamedTuple):
    status: int
    stdout: str
    stderr: str

    @property
    def error(self) -> dict[str, object]:
        return json.loads(self.stdout)


def content_of(fd: int) -> str:
    os.lseek(fd, 0, os.SEEK_SET)
    return os.read(fd, 1 << 24).decode()


def run(command: str, config: dict | bytes = {}, daemon: FakeDaemon | None = None, env: dict | None = None) -> Done:  # noqa: B006
    """A call of the shim; ``config`` goes to standard input, bytes as they are, keys with those that every call has."""
    given = {"CNI_COMMAND": command, **ENV, **(env or {})}
    environ = {name.encode(): value.encode() if isinstance(value, str) else value for name, value in given.items() if value is not None}
    if isinstance(config, dict):
        config = json.dumps({"cniVersion": "1.1.0", "name": "multus-cni-network", "token": SECRET, **config}).encode()
    daemon = daemon or FakeDaemon(refusals=FileNotFoundError(2, "No such file or directory"))
    fds = [os.memfd_create(name) for name in ("stdin", "stdout", "stderr")]
    try:
        os.write(fds[0], config)
        os.lseek(fds[0], 0, os.SEEK_SET)
        status = shim.run(environ, *fds, connect=daemon.connect, clock=daemon.clock)
        done = Done(status, content_of(fds[1]), content_of(fds[2]))
    finally:
        for fd in fds:
            os.close(fd)
    assert all(connection.is_closed for connection in daemon.connections)
    assert SECRET not in done.stdout + done.stderr
    return done


def daemon_that_answers(status: int, body: bytes | str | dict, **more) -> FakeDaemon:
    if isinstance(body, dict):
        body = json.dumps(body)
    content = body.encode() if isinstance(body, str) else body
    return FakeDaemon(healthz=READY, readyz=READY, cni=wire.response(status, [], content), **more)


# what needs no daemon


def test_without_a_command_it_says_what_it_is_and_succeeds() -> None:
    done = run("")
    assert (0, "", 2) == (done.status, done.stdout, len(done.stderr.splitlines()))
    assert "0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0" in done.stderr


def test_version_answers_without_reading_standard_input() -> None:
    expected = '{"cniVersion":"1.1.0","supportedVersions":["0.1.0","0.2.0","0.3.0","0.3.1","0.4.0","1.0.0","1.1.0"]}\n'
    assert Done(0, expected, "") == run("VERSION", b"no JSON", env=dict.fromkeys(ENV))


def test_versions_are_those_of_the_project() -> None:
    assert versions.SUPPORTED == shim.VERSIONS


@pytest.mark.parametrize(
    ("command", "required"),
    [
        ("ADD", {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}),
        ("CHECK", {"CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_PATH"}),
        ("DEL", {"CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH"}),
        ("GC", {"CNI_PATH"}),
        ("STATUS", {"CNI_PATH"}),
    ],
)
def test_missing_variables_are_named_all_at_once(command: str, required: set[str]) -> None:
    done = run(command, env=dict.fromkeys(ENV))
    assert (1, 4) == (done.status, done.error["code"])
    assert required == {word.strip(",") for word in done.error["msg"].split() if word.startswith("CNI_")}


@pytest.mark.parametrize("command", ["GC", "STATUS"])
@pytest.mark.parametrize("args", [None, ""])
def test_gc_and_status_need_no_arguments(command: str, args: str | None) -> None:
    env = {name: None for name in ENV if name != "CNI_PATH"} | {"CNI_ARGS": args}
    assert Done(0, "", "") == run(command, daemon=daemon_that_answers(200, b""), env=env)


@pytest.mark.parametrize("variable", ["CNI_NETNS", "CNI_IFNAME", "CNI_PATH"])
def test_empty_variable_counts_as_missing(variable: str) -> None:
    error = run("ADD", env={variable: ""}).error
    assert (4, True) == (error["code"], variable in error["msg"])


@pytest.mark.parametrize(
    ("variable", "value"),
    [
        ("CNI_CONTAINERID", "-77aa"),
        ("CNI_CONTAINERID", "77/aa"),
        ("CNI_CONTAINERID", "77é"),
        ("CNI_IFNAME", "sixteen-bytes-xy"),
        ("CNI_IFNAME", "."),
        ("CNI_IFNAME", ".."),
        ("CNI_IFNAME", "a/b"),
        ("CNI_IFNAME", "a:b"),
        ("CNI_IFNAME", "a b"),
    ],
)
def test_invalid_variable_is_named_with_its_value(variable: str, value: str) -> None:
    error = run("ADD", env={variable: value}).error
    assert (4, True, True) == (error["code"], variable in error["msg"], repr(value) in error["msg"])


@pytest.mark.parametrize("ifname", ["fifteen-bytes-x", "-", "é", "a_b.c"])
def test_unusual_interface_name_is_passed_on(ifname: str) -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    assert Done(0, "{}", "") == run("ADD", daemon=daemon, env={"CNI_IFNAME": ifname})
    assert ifname == json.loads(daemon.requests[1].body)["env"]["CNI_IFNAME"]


@pytest.mark.parametrize("command", ["PUT", "add", "ADD\n"])
def test_unknown_command_is_refused(command: str) -> None:
    done = run(command)
    assert (1, 4, 1) == (done.status, done.error["code"], len(done.stderr.splitlines()))


@pytest.mark.parametrize(
    ("config", "code", "word"),
    [
        (b"", 6, "not JSON"),
        (b"{", 6, "line 1 column"),
        (b"{} x", 6, "not JSON"),
        (b'{"name": NaN}', 6, "not JSON"),
        (b'{"name": "\xff"}', 6, "UTF-8"),
        (b"[" * 100_000, 6, "not JSON"),
        (b'{"name": "a", "n": ' + b"9" * 5000 + b"}", 6, "not JSON"),
        (b"[]", 6, "object"),
        (b"{}", 7, "name"),
        (b'{"name": ""}', 7, "name"),
        (b'{"name": "a b"}', 7, "a b"),
        (b'{"name": 7}', 7, "a number"),
        (b'{"name": null}', 7, "name"),
        (b'{"name": "a", "cniVersion": "9.9.9"}', 1, "9.9.9"),
        (b'{"name": "a", "cniVersion": 1}', 7, "cniVersion"),
        (b'{"name": "a", "daemonSocketDir": "a\\u0000b"}', 7, "daemonSocketDir"),
        (b'{"name": "a", "daemonSocketDir": "\\ud800"}', 7, "daemonSocketDir"),
        (b'{"name": "a", "cniDir": []}', 7, "cniDir"),
        (b'{"name": "a", "shimDeadline": 0}', 7, "shimDeadline"),
        (b'{"name": "a", "shimDeadline": "1"}', 7, "shimDeadline"),
        (b'{"name": "a", "shimTimeout": 3601}', 7, "shimTimeout"),
        (b'{"name": "a", "shimTimeout": true}', 7, "shimTimeout"),
        (b'{"name": "a", "logFile": 1}', 7, "logFile"),
    ],
)
@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_configuration_that_cannot_be_used_is_refused(command: str, config: bytes, code: int, word: str) -> None:
    done = run(command, config)
    assert (1, code, True) == (done.status, done.error["code"], word in done.stdout)


def test_version_that_is_not_supported_is_told_with_those_that_are() -> None:
    error = run("ADD", {"cniVersion": "2.0.0"}).error
    assert ("2.0.0" in error["details"], "1.1.0" in error["details"], error["cniVersion"]) == (True, True, "1.1.0")


@pytest.mark.parametrize(
    ("command", "version", "is_allowed"),
    [
        ("CHECK", "0.3.1", False),
        ("CHECK", "0.4.0", True),
        ("GC", "1.0.0", False),
        ("GC", "1.1.0", True),
        ("STATUS", "1.0.0", False),
        ("STATUS", "1.1.0", True),
        ("ADD", "0.1.0", True),
        ("DEL", "", True),
    ],
)
def test_commands_need_the_version_that_brought_them(command: str, version: str, is_allowed: bool) -> None:
    done = run(command, {"cniVersion": version}, daemon_that_answers(200, {"Stdout": "{}"}))
    assert (0 if is_allowed else 1) == done.status
    assert is_allowed or done.error["code"] == 1


def test_errors_are_in_the_version_of_the_configuration() -> None:
    assert "0.3.1" == run("CHECK", {"cniVersion": "0.3.1"}).error["cniVersion"]
    assert "0.1.0" == run("CHECK", {"cniVersion": None}).error["cniVersion"]


def test_error_object_is_indented_by_four_and_ends_without_a_newline() -> None:
    error = TryAgainLaterError('it "was"\nso', "why")
    expected = '{\n    "cniVersion": "1.0.0",\n    "code": 11,\n    "msg": "it \\"was\\"\\nso",\n    "details": "why"\n}'
    assert expected == shim_failures.document(error, "1.0.0")


@pytest.mark.parametrize("command", ["ADD", "DEL"])
def test_own_network_namespace_is_refused_before_the_daemon_is_asked(command: str) -> None:
    daemon = daemon_that_answers(200, b"")
    done = run(command, daemon=daemon, env={"CNI_NETNS": "/proc/self/ns/net"})
    assert (1, 8, []) == (done.status, done.error["code"], daemon.paths)


@pytest.mark.parametrize("override", ["1", "true", "TRUE"])
def test_own_network_namespace_is_allowed_on_request(override: str) -> None:
    env = {"CNI_NETNS": "/proc/self/ns/net", "CNI_NETNS_OVERRIDE": override}
    assert 0 == run("ADD", daemon=daemon_that_answers(200, {"Stdout": "{}"}), env=env).status


def test_del_needs_no_network_namespace() -> None:
    assert Done(0, "", "") == run("DEL", daemon=daemon_that_answers(200, b""), env={"CNI_NETNS": None})


def test_standard_input_without_an_end_is_an_error_in_time() -> None:
    reader, writer = os.pipe()
    fds = [os.memfd_create(name) for name in ("stdout", "stderr")]
    environ = {b"CNI_COMMAND": b"STATUS", b"CNI_PATH": b"/opt/cni/bin"}
    try:
        os.write(writer, b"{")
        assert 1 == shim.run(environ, reader, *fds, limit_s=0.02)
        assert 5 == json.loads(content_of(fds[0]))["code"]
    finally:
        for fd in (reader, writer, *fds):
            os.close(fd)


def test_standard_input_that_cannot_be_read_is_an_error() -> None:
    folder = os.open("/", os.O_RDONLY)
    fds = [os.memfd_create(name) for name in ("stdout", "stderr")]
    try:
        assert 1 == shim.run({b"CNI_COMMAND": b"STATUS", b"CNI_PATH": b"/"}, folder, *fds)
        assert 5 == json.loads(content_of(fds[0]))["code"]
    finally:
        for fd in (folder, *fds):
            os.close(fd)


def test_standard_input_over_the_limit_is_refused() -> None:
    error = run("ADD", b" " * (shim.MAX_STDIN_BYTES + 1)).error
    assert (6, f"configuration is longer than {shim.MAX_STDIN_BYTES} bytes") == (error["code"], error["msg"])


# what the daemon is asked


def test_request_is_what_the_protocol_says() -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    config = b' {"name":"a", "big": 12345678901234567890123 }\n'
    run("ADD", config, daemon)
    ready, asked = daemon.requests
    headers = {"host": "dummy", "multus-shim": "1", "content-type": "application/json", "connection": "close"}
    assert ("POST", "/readyz", {**headers, "content-length": "4"}, b"null") == (ready.method, ready.target, ready.headers, ready.body)
    assert ("POST", "/cni", {**headers, "content-length": str(len(asked.body))}) == (asked.method, asked.target, asked.headers)
    expected = {"env": {"CNI_COMMAND": "ADD", **ENV}, "config": base64.b64encode(config).decode()}
    assert expected == json.loads(asked.body)


def test_environment_is_compact_and_sorted_as_the_reference_writes_it() -> None:
    body = shim._request_body({"b": "2", "a": "1"}, b"{}")
    assert b'{"env":{"a":"1","b":"2"},"config":"e30="}' == body


@pytest.mark.parametrize("value", ["a=b;c", 'quote " and \\', "tab\tline\n", "ünï✓😀", "<&>", ""])
def test_values_of_the_environment_survive_the_trip(value: str) -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    run("ADD", daemon=daemon, env={"X": value})
    assert value == json.loads(daemon.requests[1].body)["env"]["X"]


def test_bytes_outside_utf8_survive_the_trip() -> None:
    """As halves of characters, which Python's own file system encoding turns back into the bytes."""
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    run("ADD", daemon=daemon, env={"X": b"\xff\xfe/\x80"})
    assert b"\xff\xfe/\x80" == json.loads(daemon.requests[1].body)["env"]["X"].encode(errors="surrogateescape")


def test_names_of_the_environment_are_stripped_and_nameless_entries_dropped() -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    run("ADD", daemon=daemon, env={" X ": "1", "": "2", "  ": "3"})
    sent = json.loads(daemon.requests[1].body)["env"]
    assert {"X": "1"} == {name: value for name, value in sent.items() if not name.startswith("CNI_")}


@pytest.mark.parametrize(
    ("config", "path"),
    [
        ({}, "/run/multus/multus.sock"),
        ({"daemonSocketDir": ""}, "/run/multus/multus.sock"),
        ({"daemonSocketDir": "/a/b/"}, "/a/b/multus.sock"),
        ({"daemonsocketdir": "/a"}, "/a/multus.sock"),
        ({"daemonSocketDir": "/ä"}, "/ä/multus.sock"),
    ],
)
def test_socket_is_in_the_folder_of_the_configuration(config: dict, path: str) -> None:
    daemon = daemon_that_answers(200, b"")
    run("STATUS", config, daemon)
    assert {path} == set(daemon.paths)


# waiting


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC"])
def test_waits_for_a_daemon_that_comes(command: str) -> None:
    refusals = [FileNotFoundError(2, "No such file"), ConnectionRefusedError(111, "refused")]
    daemon = daemon_that_answers(200, {"Stdout": "{}"}, refusals=refusals)
    daemon.answers["/readyz"] = [wire.response(500, [], b"caches are cold"), READY]
    assert 0 == run(command, daemon=daemon).status
    assert [0.1, 0.1, 0.1] == daemon.clock.sleeps
    assert ["/readyz", "/readyz", "/cni"] == daemon.targets


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC"])
def test_daemon_that_does_not_come_is_told_with_code_11(command: str) -> None:
    daemon = FakeDaemon(refusals=ConnectionRefusedError(111, "Connection refused"))
    done = run(command, {"daemonSocketDir": "/run/elsewhere"}, daemon)
    assert (1, 11) == (done.status, done.error["code"])
    assert "/run/elsewhere/multus.sock" in done.error["msg"]
    assert "Connection refused" in done.error["msg"]
    assert 60 == pytest.approx(sum(daemon.clock.sleeps), abs=0.2)


def test_deadline_of_the_configuration_holds() -> None:
    daemon = FakeDaemon(refusals=ConnectionRefusedError(111, "Connection refused"))
    assert 11 == run("ADD", {"shimDeadline": 2}, daemon).error["code"]
    assert 2 == pytest.approx(sum(daemon.clock.sleeps), abs=0.2)


def test_waiting_ends_with_the_time_for_the_whole_call() -> None:
    daemon = FakeDaemon(refusals=ConnectionRefusedError(111, "Connection refused"))
    error = run("ADD", {"shimTimeout": 3}, daemon).error
    assert (11, True) == (error["code"], "3.0 s" in error["msg"])
    assert 3 == pytest.approx(sum(daemon.clock.sleeps), abs=0.2)


def test_reason_why_the_daemon_is_not_ready_is_told() -> None:
    daemon = FakeDaemon(readyz=wire.response(500, [], b"shutting down\n"))
    error = run("ADD", {"shimDeadline": 1}, daemon).error
    assert (11, True) == (error["code"], error["msg"].endswith(": shutting down"))


def test_reason_is_told_though_the_last_question_runs_out_of_time() -> None:
    cut_off = TimeoutError("timed out")
    error = run("ADD", {"shimDeadline": 1}, FakeDaemon(readyz=[wire.response(500, [], b"shutting down\n"), cut_off])).error
    assert error["msg"].endswith(" is not ready, waited 1.0 s: shutting down")
    error = run("ADD", {"shimDeadline": 1}, FakeDaemon(readyz=cut_off)).error
    assert error["msg"].endswith(" is not ready, waited 1.0 s: timed out")


def test_late_word_of_the_daemon_is_told_and_not_an_earlier_trouble() -> None:
    class Slow(FakeDaemon):
        def connect(self, path: str) -> Connection:
            connection = super().connect(path)
            if self.targets == ["/readyz"]:
                self.clock.now += 5
            return connection

    refusal = wire.response(503, [], b'{"code": 11, "msg": "the daemon is stopping"}')
    daemon = Slow(refusals=[FileNotFoundError(2, "No such file or directory")], readyz=READY, cni=refusal)
    assert run("ADD", {"shimDeadline": 2}, daemon).error["msg"].endswith(": the daemon is stopping")


def test_long_reason_is_cut() -> None:
    error = run("STATUS", daemon=FakeDaemon(readyz=wire.response(500, [], b"x" * 1000))).error
    assert error["msg"].endswith(": " + "x" * 200)


def test_daemon_without_a_reason_is_told_by_its_status() -> None:
    error = run("ADD", {"shimDeadline": 1}, FakeDaemon(readyz=wire.response(500, []))).error
    assert error["msg"].endswith(": status 500")


@pytest.mark.parametrize("status", [404, 405])
def test_daemon_that_does_not_know_readiness_counts_as_ready(status: int) -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    daemon.answers["/readyz"] = [wire.response(status, [], b"Method not allowed\n")]
    assert Done(0, "{}", "") == run("ADD", daemon=daemon)


@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\n", b"SSH-2.0\r\n\r\n", ConnectionResetError(104, "reset")])
def test_broken_answer_about_readiness_means_not_yet(answer: object) -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    daemon.answers["/readyz"] = [answer, READY]
    assert 0 == run("ADD", daemon=daemon).status


def test_daemon_that_goes_between_readiness_and_call_is_waited_for() -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    refusals = iter([None, ConnectionRefusedError(111, "refused"), None, None])
    connect = daemon.connect

    def flaky(path: str) -> Connection:
        if (refusal := next(refusals)) is not None:
            raise refusal
        return connect(path)

    daemon.connect = flaky
    assert 0 == run("ADD", daemon=daemon).status
    assert ["/readyz", "/readyz", "/cni"] == daemon.targets


def test_full_queue_of_connections_is_waited_for() -> None:
    daemon = daemon_that_answers(200, {"Stdout": "{}"}, refusals=[BlockingIOError(11, "again")] * 7)
    assert 0 == run("ADD", daemon=daemon).status
    assert [0.01] * 7 == daemon.clock.sleeps


def test_queue_that_stays_full_is_given_up() -> None:
    daemon = FakeDaemon(refusals=BlockingIOError(11, "again"))
    error = run("STATUS", daemon=daemon).error
    assert (50, True) == (error["code"], "queue" in error["msg"])
    assert 5 == pytest.approx(sum(daemon.clock.sleeps), abs=0.1)


@pytest.mark.parametrize(("command", "code"), [("ADD", 11), ("CHECK", 11), ("GC", 11), ("DEL", 11), ("STATUS", 50)])
def test_answer_that_does_not_come_ends_with_the_time_for_the_whole_call(command: str, code: int) -> None:
    daemon = daemon_that_answers(200, b"")
    daemon.answers["/cni"] = [TimeoutError("timed out")]
    done = run(command, daemon=daemon)
    assert (1, code, True) == (done.status, done.error["code"], "timed out" in done.error["msg"])
    assert 300 == daemon.clock.now - 1000


def test_answer_byte_by_byte_is_cut_off_in_time() -> None:
    daemon = daemon_that_answers(200, b"")

    class Slow(Connection):
        def recv(self, size: int) -> bytes:
            if daemon.targets[-1] == "/readyz":
                return super().recv(size)
            daemon.clock.now += 1
            return b"H"

    daemon.connect = lambda _: daemon.connections.append(Slow(daemon)) or daemon.connections[-1]
    error = run("CHECK", {"shimTimeout": 10}, daemon).error
    assert (11, 10) == (error["code"], daemon.clock.now - 1000)


@pytest.mark.parametrize("command", ["ADD", "CHECK", "GC", "DEL"])
@pytest.mark.parametrize("answer", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\n{", ConnectionResetError(104, "reset")])
def test_connection_that_breaks_in_the_middle_is_told_with_code_11(command: str, answer: object) -> None:
    """Also DEL: the runtime has to come again."""
    daemon = daemon_that_answers(200, b"")
    daemon.answers["/cni"] = [answer]
    done = run(command, {"cniDir": "/nowhere"}, daemon)
    assert (1, 11, 1) == (done.status, done.error["code"], daemon.targets.count("/cni"))


# answers


def test_text_of_the_daemon_is_printed_as_it_stands() -> None:
    text = '{\n    "cniVersion": "1.0.0",\n    "é": 1.50\n}'
    assert Done(0, text, "") == run("ADD", daemon=daemon_that_answers(200, {"Result": RESULT, "Stdout": text}))


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
@pytest.mark.parametrize("body", [b"", b'{"Result":null}'])
def test_other_commands_print_nothing(command: str, body: bytes) -> None:
    assert Done(0, "", "") == run(command, daemon=daemon_that_answers(200, body))


@pytest.mark.parametrize(
    "body",
    [b"", b'{"Result":null}', b"{}", b'{"Result":[]}', b'{"Result":{"ips":[{"address":"nonsense"}]}}', b"[]", b"garbage"],
)
def test_add_without_a_result_is_an_error(body: bytes) -> None:
    done = run("ADD", daemon=daemon_that_answers(200, body))
    assert (1, 999, 1) == (done.status, done.error["code"], len(done.stderr.splitlines()))


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_garbage_is_no_success(command: str) -> None:
    error = run(command, daemon=daemon_that_answers(200, b"<html>")).error
    assert (999, True) == (error["code"], "status 200: '<html>'" in error["msg"])


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0"])
def test_result_of_another_daemon_in_an_old_version(version: str) -> None:
    done = run("ADD", {"cniVersion": version}, daemon_that_answers(200, {"Result": RESULT}))
    expected = {
        "cniVersion": version,
        "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:07", "sandbox": "/n"}],
        "ips": [{"version": "4", "interface": 0, "address": "10.4.0.7/24"}],
        "dns": {},
    }
    assert json.dumps(expected, indent=4) == done.stdout


@pytest.mark.parametrize("more", [{}, {"Stdout": ""}, {"Stdout": None}])
def test_result_of_another_daemon_in_the_newest_version_is_printed_as_it_came(more: dict) -> None:
    assert json.dumps(RESULT, indent=4) == run("ADD", daemon=daemon_that_answers(200, {"result": RESULT, **more})).stdout


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", ""])
def test_result_of_another_daemon_in_the_oldest_versions(version: str) -> None:
    done = run("ADD", {"cniVersion": version}, daemon_that_answers(200, {"Result": RESULT}))
    assert {"cniVersion": version or "0.1.0", "ip4": {"ip": "10.4.0.7/24"}, "dns": {}} == json.loads(done.stdout)


def test_result_without_an_address_is_no_failure_in_the_oldest_versions() -> None:
    """The pod is attached already."""
    result = {"cniVersion": "1.1.0", "interfaces": [{"name": "eth0"}], "dns": {"nameservers": ["192.0.2.53"]}}
    done = run("ADD", {"cniVersion": "0.2.0"}, daemon_that_answers(200, {"Result": result}))
    assert (0, {"cniVersion": "0.2.0", "dns": {"nameservers": ["192.0.2.53"]}}) == (done.status, json.loads(done.stdout))


@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC", "STATUS"])
def test_cni_error_of_our_daemon_is_printed_as_it_stands(command: str) -> None:
    body = '{"cniVersion": "1.0.0", "code": 7, "msg": "bad network", "details": "net1", "more": [1]}'
    done = run(command, daemon=daemon_that_answers(400, body + "\n"))
    assert (1, body, True) == (done.status, done.stdout, "code=7" in done.stderr)


@pytest.mark.parametrize("command", ["ADD", "DEL", "CHECK", "GC", "STATUS"])
def test_cni_error_of_another_daemon_keeps_its_code_and_details(command: str) -> None:
    done = run(command, daemon=daemon_that_answers(400, {"code": 50, "msg": "bridge down", "details": "br0"}))
    assert {"cniVersion": "1.1.0", "code": 50, "msg": "bridge down", "details": "br0"} == done.error


@pytest.mark.parametrize("body", [{"msg": "later"}, {"code": 0, "msg": "later", "cniVersion": "1.0.0"}])
def test_cni_error_without_a_code_is_of_code_999(body: dict) -> None:
    assert {"cniVersion": "1.1.0", "code": 999, "msg": "later"} == run("ADD", daemon=daemon_that_answers(400, body)).error


@pytest.mark.parametrize(
    "body",
    ["no such network\n", '{"code": 7}', '{"code": "7", "msg": "x"}', '{"code": true, "msg": "x"}', '{"code":7,"msg":""}', "[]"],
)
def test_other_failure_is_quoted_with_its_status(body: str) -> None:
    error = run("ADD", daemon=daemon_that_answers(400, body)).error
    assert (999, True) == (error["code"], f"status 400: {body.strip()!r}" in error["msg"])


def test_long_failure_is_cut_in_the_message_and_longer_in_the_details() -> None:
    error = run("ADD", daemon=daemon_that_answers(500, "a" * 150 + "b" * 10_000)).error
    assert ("a" * 150 + "b" * 50 + "'" in error["msg"], 4000) == (True, len(error["details"]))


def test_failure_that_is_no_text_is_shown_as_far_as_it_is() -> None:
    assert "\ufffd" in run("ADD", daemon=daemon_that_answers(400, b"\xff\xfe")).error["msg"]


@pytest.mark.parametrize("answer", [b"SSH-2.0-x\r\n\r\n", b"HTTP/1.1 200 OK\r\nContent-Length: 99999999\r\n\r\n"])
def test_answer_that_is_not_http_or_too_long_is_of_code_999(answer: bytes) -> None:
    daemon = daemon_that_answers(200, b"")
    daemon.answers["/cni"] = [answer]
    assert 999 == run("ADD", daemon=daemon).error["code"]


# STATUS


@pytest.mark.parametrize(
    ("answer", "word"),
    [(wire.response(500, [], b"no primary configuration"), "no primary configuration"), (TimeoutError("timed out"), "timed out")],
)
def test_status_asks_once_and_says_50(answer: object, word: str) -> None:
    daemon = FakeDaemon(readyz=answer)
    done = run("STATUS", daemon=daemon)
    assert (1, 50, True, ["/readyz"]) == (done.status, done.error["code"], word in done.error["msg"], daemon.targets)
    assert daemon.clock.now - 1000 <= 5


def test_status_says_50_when_the_daemon_goes_in_between() -> None:
    daemon = daemon_that_answers(200, b"")
    connect = daemon.connect

    def once(path: str) -> Connection:
        if daemon.connections:
            raise ConnectionRefusedError(111, "Connection refused")
        return connect(path)

    daemon.connect = once
    assert 50 == run("STATUS", daemon=daemon).error["code"]


# DEL without a daemon


def intents(folder: Path) -> list[Path]:
    return sorted((folder / "intents").iterdir())


@pytest.mark.parametrize(
    "daemon",
    [
        FakeDaemon(refusals=FileNotFoundError(2, "No such file or directory")),
        FakeDaemon(refusals=ConnectionRefusedError(111, "Connection refused")),
        FakeDaemon(healthz=wire.response(500, [])),
        FakeDaemon(healthz=TimeoutError("timed out")),
    ],
    ids=["absent", "refusing", "unhealthy", "hanging"],
)
def test_del_without_a_daemon_is_kept_and_succeeds(daemon: FakeDaemon, tmp_path: Path) -> None:
    cni_dir = tmp_path / "a" / "b"
    done = run("DEL", {"cniDir": str(cni_dir)}, daemon)
    assert (0, "") == (done.status, done.stdout)
    (intent,) = intents(cni_dir)
    prefix, _, digits = intent.name.rpartition("-")
    assert ("77aa-eth0", 8, True) == (prefix, len(digits), set(digits) <= set("0123456789abcdef"))
    assert (0o600, 0o700) == (stat.S_IMODE(intent.stat().st_mode), stat.S_IMODE(intent.parent.stat().st_mode))
    body = json.loads(intent.read_bytes())
    assert {"CNI_COMMAND": "DEL", **ENV} == body["env"]
    assert "multus-cni-network" == json.loads(base64.b64decode(body["config"]))["name"]
    assert [True, True] == [word in done.stderr for word in ("shim.del.kept", intent.name)]
    assert daemon.clock.now - 1000 <= 5


def test_intent_is_what_would_have_been_posted(tmp_path: Path) -> None:
    config = {"cniDir": str(tmp_path)}
    daemon = daemon_that_answers(200, b"")
    run("DEL", config, daemon)
    run("DEL", config)
    assert daemon.requests[1].body == intents(tmp_path)[0].read_bytes()


def test_del_is_kept_when_the_daemon_goes_before_it_is_asked(tmp_path: Path) -> None:
    daemon = daemon_that_answers(200, b"")
    connect = daemon.connect

    def once(path: str) -> Connection:
        if daemon.connections:
            raise ConnectionRefusedError(111, "Connection refused")
        return connect(path)

    daemon.connect = once
    assert 0 == run("DEL", {"cniDir": str(tmp_path)}, daemon).status
    assert 1 == len(intents(tmp_path))


def test_each_del_is_kept_in_a_file_of_its_own(tmp_path: Path) -> None:
    for _ in range(2):
        assert 0 == run("DEL", {"cniDir": str(tmp_path)}).status
    assert 2 == len(intents(tmp_path))


def test_del_that_cannot_be_kept_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    done = run("DEL", {"cniDir": str(tmp_path / "file")})
    assert (1, 11, True) == (done.status, done.error["code"], str(tmp_path / "file") in done.error["msg"])


def test_del_that_the_daemon_refuses_is_not_kept(tmp_path: Path) -> None:
    done = run("DEL", {"cniDir": str(tmp_path)}, daemon_that_answers(400, {"code": 11, "msg": "later"}))
    assert (1, 11, []) == (done.status, done.error["code"], list(tmp_path.iterdir()))


ENDING = wire.response(503, [], b'{"code":11,"msg":"the request was not started: the daemon is stopping"}')
"""Of our daemon, to what waits when it is told to end."""


def test_add_that_an_ending_daemon_has_not_begun_waits_for_the_next_one() -> None:
    daemon = daemon_that_answers(200, {"Result": RESULT, "Stdout": "the result"})
    daemon.answers["/cni"].insert(0, ENDING)
    done = run("ADD", {}, daemon)
    assert (0, "the result", ["/readyz", "/cni"] * 2) == (done.status, done.stdout, daemon.targets)


def test_add_that_no_daemon_begins_fails_at_its_deadline() -> None:
    done = run("ADD", {"shimDeadline": 2}, FakeDaemon(readyz=READY, cni=ENDING))
    assert (1, 11, True) == (done.status, done.error["code"], "the daemon is stopping" in done.error["msg"])


def test_del_that_an_ending_daemon_has_not_begun_is_kept(tmp_path: Path) -> None:
    done = run("DEL", {"cniDir": str(tmp_path)}, FakeDaemon(healthz=READY, cni=ENDING))
    assert (0, "", 1) == (done.status, done.stdout, len(intents(tmp_path)))


def test_status_of_an_ending_daemon_is_not_available() -> None:
    done = run("STATUS", {}, FakeDaemon(readyz=READY, cni=wire.response(503, [])))
    assert (1, 50, True) == (done.status, done.error["code"], "has begun nothing" in done.error["msg"])


def test_folder_that_another_shim_makes_meanwhile_is_used(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = os.mkdir

    def slower(path: str, mode: int) -> None:
        made(path, mode)
        raise FileExistsError

    monkeypatch.setattr(os, "mkdir", slower)
    assert Path(shim_detours.keep(str(tmp_path), "a-b", b"{}", "")).read_bytes() == b"{}"


# what the operator sees


def test_success_is_silent(tmp_path: Path) -> None:
    log = tmp_path / "log"
    assert "" == run("ADD", {"logFile": str(log), "logLevel": "debug"}, daemon_that_answers(200, {"Stdout": "{}"})).stderr
    assert not log.exists()


def test_failure_is_one_line_on_standard_error_and_in_the_log_file(tmp_path: Path) -> None:
    log = tmp_path / "log"
    log.write_text("before\n")
    done = run("ADD", {"logFile": str(log)}, daemon_that_answers(400, {"code": 7, "msg": "two\nlines"}))
    assert 1 == len(done.stderr.splitlines())
    assert f"before\n{done.stderr}" == log.read_text()
    assert ' [error] shim.add.failed container="77aa" ifname="eth0" code=7 error="two\\nlines"\n' in done.stderr


def test_level_panic_keeps_the_log_file_empty(tmp_path: Path) -> None:
    done = run("ADD", {"logFile": str(tmp_path / "log"), "logLevel": "Panic"}, daemon_that_answers(400, {"code": 7, "msg": "x"}))
    assert (True, []) == (bool(done.stderr), list(tmp_path.iterdir()))


@pytest.mark.parametrize("log_file", ["/not/there/log", "/dev/full"])
def test_log_file_that_cannot_be_written_changes_nothing(log_file: str) -> None:
    assert 7 == run("ADD", {"logFile": log_file}, daemon_that_answers(400, {"code": 7, "msg": "x"})).error["code"]


def test_standard_error_that_is_gone_changes_nothing(tmp_path: Path) -> None:
    shim_failures.append("line\n", 1 << 20, str(tmp_path / "log"))
    assert "line\n" == (tmp_path / "log").read_text()


def test_standard_output_that_cannot_be_written_is_a_failure() -> None:
    full = os.open("/dev/full", os.O_WRONLY)
    fds = [os.memfd_create(name) for name in ("stdin", "stderr")]
    daemon = daemon_that_answers(200, {"Stdout": "{}"})
    environ = {name.encode(): value.encode() for name, value in {"CNI_COMMAND": "ADD", **ENV}.items()}
    try:
        os.write(fds[0], b'{"name": "a"}')
        os.lseek(fds[0], 0, os.SEEK_SET)
        assert 1 == shim.run(environ, fds[0], full, fds[1], connect=daemon.connect, clock=daemon.clock)
        assert "standard output cannot be written: No space left on device" in content_of(fds[1])
    finally:
        for fd in (full, *fds):
            os.close(fd)


def test_fault_of_the_shim_is_an_error_object_that_shows_no_values() -> None:
    def broken(path: str) -> Connection:
        raise KeyError(SECRET)

    daemon = FakeDaemon()
    daemon.connect = broken
    done = run("ADD", daemon=daemon)
    assert (1, 999) == (done.status, done.error["code"])
    assert [True, True] == [word in done.stdout for word in ("KeyError", "broken (test_shim.py:")]


def test_errors_of_the_daemon_are_multus_errors_of_its_code() -> None:
    error = shim_failures.DaemonError("m", "d", 7, "")
    assert (True, 7, "m; d") == (isinstance(error, MultusError), error.code, str(error))


# people


@pytest.mark.parametrize("flag", ["-version", "--version", "-v", "--v"])
def test_version_flag_prints_the_version(flag: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert 0 == shim_detours.talk(flag)
    assert capsys.readouterr().out.startswith("multus-shim: version:")


@pytest.mark.parametrize(("flag", "status"), [("-help", 0), ("-h", 0), ("-x", 2)])
def test_other_flags_print_how_to_use_it(flag: str, status: int, capsys: pytest.CaptureFixture[str]) -> None:
    assert status == shim_detours.talk(flag)
    assert capsys.readouterr().err.startswith("usage: multus-shim")


def test_flag_of_the_process_is_answered() -> None:
    code = "import sys; sys.argv[1:] = ['-x']; from multus.commands.shim import main; main()"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert (2, "") == (done.returncode, done.stdout)
