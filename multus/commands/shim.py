"""``multus-shim``: the CNI binary of the thick plugin.  Hands each call to the node daemon over its Unix socket.

A process per call, so it costs little more than the interpreter: nothing is imported beyond the list that a test pins, and
JSON is read and written by the C halves of ``json`` alone.  What a call needs when it goes wrong (``shim_failures``) or
another way than usual (``shim_detours``) is imported then, and so are those who know every rule and how to say which one
was broken (``environment``, ``versions``).

Keys of its configuration, in any case; all else is for the daemon, which gets standard input untouched:

=================== ======================= ========================================================================
``cniVersion``      ``0.1.0``               of the result and of errors
``daemonSocketDir`` ``/run/multus``         where ``multus.sock`` is, as seen from the host
``shimDeadline``    60                      seconds that ADD, CHECK and GC wait for a daemon that is not ready
``shimTimeout``     300                     seconds for the whole call; above what runtimes allow
``cniDir``          ``/var/lib/cni/multus`` a DEL that finds no daemon is kept in its ``intents``, for the daemon to do later
``logFile``         none                    gets a line for each failure, as standard error does, unless ``logLevel`` is ``panic``
=================== ======================= ========================================================================

Spec: CNI 1.1.0 §2, "CNI operations"; Multus behaviour, "The shim".
"""

from __future__ import annotations

import binascii
import gc
import posix
import sys
import time
from _json import encode_basestring_ascii as _quoted
from _socket import AF_UNIX, SOCK_STREAM
from _socket import socket as Socket  # noqa: N812  # of the socket module, which costs 3 ms more
from select import POLLIN, poll

from multus.errors import (
    DecodingError,
    IncompatibleVersionError,
    InvalidConfigError,
    InvalidNetnsError,
    IOFailureError,
    MultusError,
    NotAvailableError,
    TryAgainLaterError,
)
from multus.protocol import documents, wire

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from multus.core.ports import Clock

    Connect = Callable[[str], Socket]
    """Connects to a path at once, or raises BlockingIOError while the daemon's queue is full, or another OSError."""

ABOUT = "meta-plugin that passes each call to the multus daemon of its node"
VERSIONS = ("0.1.0", "0.2.0", "0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0")
"""``multus.protocol.versions.SUPPORTED``, whose import would cost each call."""

WAIT_S, LIMIT_S, MAX_SECONDS = 60.0, 300.0, 3600
CONNECT_S = 5.0
"""For a connection, and for the one look that STATUS and DEL have at the daemon."""
INTERVAL_S = 0.1
_QUEUE_INTERVAL_S = 0.01
MAX_STDIN_BYTES = 4 * 1024 * 1024
MAX_ANSWER_BYTES = 8 * 1024 * 1024
_SHOWN = 200
_SHOWN_DETAILS = 4000

_ATTACHMENT = ("CNI_CONTAINERID", "CNI_IFNAME", "CNI_PATH")
_REQUIRED = {
    "ADD": (*_ATTACHMENT, "CNI_NETNS"),
    "DEL": _ATTACHMENT,
    "CHECK": (*_ATTACHMENT, "CNI_NETNS"),
    "GC": ("CNI_PATH",),
    "STATUS": ("CNI_PATH",),
}
_SINCE = {"CHECK": "0.4.0", "GC": "1.1.0", "STATUS": "1.1.0"}
_READY = (200, 404, 405)
"""404 and 405: a daemon older than the question."""
_NOT_BEGUN = 503
"""Our daemon is about to end, or is not ready."""
_HEADERS = (("Host", "dummy"), ("Multus-Shim", "1"), ("Content-Type", "application/json"), ("Connection", "close"))


def main() -> None:
    """Serve one call: the process's environment and standard input in, an answer and an exit status out."""
    if len(sys.argv) > 1 and sys.argv[1].startswith("-"):
        from multus.commands import shim_detours

        sys.exit(shim_detours.talk(sys.argv[1]))
    gc.disable()  # the process is over before there is garbage worth collecting
    posix._exit(run(posix.environ, 0, 1, 2))  # nothing is left to do, and taking an interpreter down costs 3 ms


def run(
    environ: Mapping[bytes, bytes],
    stdin: int,
    stdout: int,
    stderr: int,
    *,
    connect: Connect | None = None,
    clock: Clock = time,
    limit_s: float = LIMIT_S,
) -> int:
    """Serve one call between file descriptors; the exit status: 0, or 1 with an error object on ``stdout``.

    Args:
        limit_s: For the whole call, if its configuration does not say otherwise.

    Spec: CNI 1.1.0 §2, §5.
    """
    env = _decoded(environ)
    command = env.get("CNI_COMMAND", "")
    if not command:
        _write(stderr, f"{ABOUT}\nCNI protocol versions supported: {', '.join(VERSIONS)}\n")
        return 0
    if command == "VERSION":
        supported = ",".join(map(_quoted, VERSIONS))
        _write(stdout, f'{{"cniVersion":{_quoted(VERSIONS[-1])},"supportedVersions":[{supported}]}}\n')
        return 0
    call = _Call(command, env, stderr, connect or _connect, clock, limit_s)
    try:
        text, status = call.serve(stdin), 0
    except Exception as exc:  # a fault of ours, too, must not look like a crash of the node
        text, status = call.failed(exc), 1
    try:
        _write(stdout, text)
    except OSError as exc:
        call.failed(IOFailureError(f"standard output cannot be written: {exc.strerror}"))
        return 1
    return status


class _Unreachable(Exception):
    """There is no connection to the daemon, or it has begun nothing: it may be asked again, or another one."""


class _NoAnswer(Exception):
    """The daemon was sent a request and did not answer it, or not to the end."""


class _Call:
    """One call, from environment and standard input to what is printed."""

    def __init__(self, command: str, env: dict[str, str], stderr: int, connect: Connect, clock: Clock, limit_s: float) -> None:
        self.cni_version = VERSIONS[-1]
        """The version to answer in: the newest until the configuration says another."""
        self._command = command
        self._env = env
        self._stderr = stderr
        self._log_file = ""
        self._cni_dir = ""
        self._clock = clock
        self._start = clock.monotonic()
        self._limit_s = limit_s
        self._wait_s = WAIT_S
        self._daemon = Daemon("", connect, clock)

    def serve(self, stdin: int) -> str:
        """What goes to standard output: the result of an ADD, else nothing.

        Raises:
            MultusError: With the code that the CNI specification gives the failure, or the daemon's own.
        """
        _check_environment(self._command, self._env)
        content = _read(stdin, self._limit_s)
        self._configure(content)
        if self._command in ("ADD", "DEL"):
            _refuse_own_netns(self._env)
        body = _request_body(self._env, content)
        if self._command == "DEL":
            return self._delete(body)
        response = self._ask_at_once(body) if self._command == "STATUS" else self._ask_when_ready(body)
        return self._outcome(response)

    def failed(self, error: Exception) -> str:
        """The error object that goes to standard output; noted for the operator."""
        from multus.commands import shim_failures

        known = error if isinstance(error, MultusError) else shim_failures.internal(error)
        self._note("failed", known)
        return shim_failures.document(known, self.cni_version)

    def _note(self, event: str, error: MultusError) -> None:
        from multus.commands import shim_failures

        verb = self._command.lower() if self._command in _REQUIRED else "call"
        line = shim_failures.line(f"shim.{verb}.{event}", self._env, error)
        shim_failures.append(line, self._stderr, self._log_file)

    def _configure(self, content: bytes) -> None:
        """Take our keys from the configuration."""
        document = documents.loads(content, "configuration")
        if not isinstance(document, dict):
            raise DecodingError("configuration is not a JSON object")
        keys = {key.lower(): value for key, value in document.items() if value is not None}
        if str(keys.get("loglevel")).lower() != "panic":
            self._log_file = _text(keys, "logFile", "")
        version = _text(keys, "cniVersion", VERSIONS[0])
        if version not in VERSIONS:
            from multus.protocol import versions

            versions.require_supported(version)
        self.cni_version = version
        if not _is_identifier(name := _text(keys, "name", "")):
            raise InvalidConfigError(f"configuration: key \"name\" {_quoted(name[:_SHOWN])} is no network name")
        since = _SINCE.get(self._command)
        if since and VERSIONS.index(version) < VERSIONS.index(since):
            raise IncompatibleVersionError(f"configuration of cniVersion {version} does not allow {self._command}, which came with {since}")
        self._daemon.path = _text(keys, "daemonSocketDir", "/run/multus").rstrip("/") + "/multus.sock"
        self._cni_dir = _text(keys, "cniDir", "/var/lib/cni/multus")
        self._wait_s = _seconds(keys, "shimDeadline", self._wait_s)
        self._limit_s = _seconds(keys, "shimTimeout", self._limit_s)

    def _ask_when_ready(self, body: bytes) -> wire.Response:
        """Ask as soon as the daemon is ready: it may be about to start, or to give way to its successor."""
        begun = self._clock.monotonic()
        wait_end = min(begun + self._wait_s, self._end)
        problem = ""
        while True:
            said = self._daemon.problem("/readyz", wait_end)
            if not said:
                try:
                    return self._ask(body)
                except _Unreachable as exc:
                    problem = str(exc)
            elif not problem or self._clock.monotonic() < wait_end:
                problem = said  # one that the end of the wait cut off would tell less than the one before
            if self._clock.monotonic() + INTERVAL_S >= wait_end:
                raise TryAgainLaterError(f"{self._daemon} is not ready, waited {wait_end - begun:.1f} s: {problem}")
            self._clock.sleep(INTERVAL_S)

    def _ask_at_once(self, body: bytes) -> wire.Response:
        """For STATUS, whose answer is whether a pod could be attached now."""
        problem = self._daemon.problem("/readyz", self._soon())
        if not problem:
            try:
                return self._ask(body)
            except _Unreachable as exc:
                problem = str(exc)
            except TryAgainLaterError as exc:
                raise NotAvailableError(exc.msg) from exc
        raise NotAvailableError(f"{self._daemon} is not ready: {problem}")

    def _delete(self, body: bytes) -> str:
        """A DEL that finds no daemon is kept for the next one, so that no pod waits for it."""
        problem = self._daemon.problem("/healthz", self._soon())
        if not problem:
            try:
                return self._outcome(self._ask(body))
            except _Unreachable as exc:
                problem = str(exc)
        from multus.commands import shim_detours

        absence = f"{self._daemon} is not there: {problem}"
        path = shim_detours.keep(self._cni_dir, f"{self._env['CNI_CONTAINERID']}-{self._env['CNI_IFNAME']}", body, absence)
        self._note("kept", TryAgainLaterError(absence, f"DEL is kept in {path}"))
        return ""

    def _ask(self, body: bytes) -> wire.Response:
        try:
            response = self._daemon.post("/cni", body, self._end)
        except _NoAnswer as exc:
            raise TryAgainLaterError(f"{self._daemon} did not answer: {exc}") from exc
        except DecodingError as exc:
            raise MultusError(f"{self._daemon} did not answer as it should: {exc.msg}") from exc
        if response.status == _NOT_BEGUN:
            raise _Unreachable((_object_in(response.body) or {}).get("msg", "it has begun nothing"))
        return response

    def _outcome(self, response: wire.Response) -> str:
        """What to print of the daemon's answer."""
        answer = _object_in(response.body) if response.body else {}
        if response.status != 200 or answer is None:
            from multus.commands import shim_failures

            raise shim_failures.refusal(answer, response, f"{self._daemon}")
        if self._command != "ADD":
            return ""
        stdout = answer.get("Stdout")
        if isinstance(stdout, str) and stdout:
            return stdout
        result = next((value for key, value in answer.items() if key.lower() == "result"), None)
        if not isinstance(result, dict):
            raise MultusError(f"{self._daemon} answered ADD without a result")
        from multus.commands import shim_detours

        try:
            return shim_detours.converted(result, self.cni_version)
        except DecodingError as exc:
            raise MultusError(f"{self._daemon} answered ADD with an invalid result: {exc.msg}") from exc

    @property
    def _end(self) -> float:
        return self._start + self._limit_s

    def _soon(self) -> float:
        return min(self._clock.monotonic() + CONNECT_S, self._end)


class Daemon:
    """The daemon behind a socket: a new connection for each request, no request without an end."""

    def __init__(self, path: str, connect: Connect, clock: Clock) -> None:
        self.path = path
        self._connect = connect
        self._clock = clock

    def __str__(self) -> str:
        return f"multus daemon at {self.path}"

    def problem(self, target: str, end: float) -> str:
        """Why the daemon is not alive, or not ready, by its own word if it has one; empty when it is."""
        try:
            response = self.post(target, b"null", end)
        except (_Unreachable, _NoAnswer, DecodingError) as exc:
            return str(exc)
        if response.status in _READY:
            return ""
        return response.body.decode("utf-8", "replace").strip()[:_SHOWN] or f"status {response.status}"

    def post(self, target: str, body: bytes, end: float) -> wire.Response:
        """Send a request and read the whole answer until the time ``end``.

        Raises:
            DecodingError: What came is not HTTP, or too long.
        """
        request = wire.request("POST", target, _HEADERS, body)
        connection = self._connected(end)
        try:
            connection.settimeout(self._left(end))
            connection.sendall(request)
            return wire.read_response(lambda size: self._receive(connection, size, end), "POST", MAX_ANSWER_BYTES)
        except (OSError, IOFailureError) as exc:
            raise _NoAnswer(_cause(exc)) from exc
        finally:
            connection.close()

    def _connected(self, end: float) -> Socket:
        end = min(end, self._clock.monotonic() + CONNECT_S)
        while True:
            try:
                return self._connect(self.path)
            except BlockingIOError as exc:
                if self._clock.monotonic() >= end:
                    raise _Unreachable("its queue of connections stays full") from exc
            except OSError as exc:
                raise _Unreachable(_cause(exc)) from exc
            self._clock.sleep(_QUEUE_INTERVAL_S)

    def _receive(self, connection: Socket, size: int, end: float) -> bytes:
        connection.settimeout(self._left(end))
        return connection.recv(size)

    def _left(self, end: float) -> float:
        left_s = end - self._clock.monotonic()
        if left_s <= 0:
            raise TimeoutError("timed out")
        return left_s


def _connect(path: str) -> Socket:
    connection = Socket(AF_UNIX, SOCK_STREAM)
    try:
        connection.setblocking(False)  # a Unix socket connects at once or not at all
        connection.connect(path)
    except BaseException:
        connection.close()
        raise
    return connection


def _decoded(environ: Mapping[bytes, bytes]) -> dict[str, str]:
    """The environment by stripped name, without nameless entries; bytes outside UTF-8 become halves of characters, and stay."""
    env = {name.decode("utf-8", "surrogateescape").strip(): value for name, value in environ.items()}
    return {name: value.decode("utf-8", "surrogateescape") for name, value in env.items() if name}


def _check_environment(command: str, env: Mapping[str, str]) -> None:
    """Refuse a call that no daemon could serve; what is not plainly good is looked at by those who know each rule."""
    required = _REQUIRED.get(command, ("",))
    is_plain = all(map(env.get, required))
    if is_plain and required != _REQUIRED["GC"]:
        is_plain = _is_identifier(env["CNI_CONTAINERID"]) and _is_identifier(env["CNI_IFNAME"]) and len(env["CNI_IFNAME"]) <= 15
    if not is_plain:
        from multus.protocol import environment

        environment.parse_call(env)


def _is_identifier(text: str) -> bool:
    return text.isascii() and text[:1].isalnum() and text.replace("_", "").replace(".", "").replace("-", "").isalnum()


def _read(fd: int, limit_s: float) -> bytes:
    """All of standard input."""
    end = time.monotonic() + limit_s
    waiting = poll()
    waiting.register(fd, POLLIN)
    content = bytearray()
    try:
        while waiting.poll(max(0, end - time.monotonic()) * 1000):
            piece = posix.read(fd, 65536)
            if not piece:
                return bytes(content)
            content += piece
            if len(content) > MAX_STDIN_BYTES:
                raise DecodingError(f"configuration is longer than {MAX_STDIN_BYTES} bytes")
    except OSError as exc:
        raise IOFailureError(f"standard input cannot be read: {exc.strerror}") from exc
    raise IOFailureError(f"standard input did not end within {limit_s:g} s")


def _text(keys: Mapping[str, object], key: str, default: str) -> str:
    value = keys.get(key.lower(), "")
    if isinstance(value, str) and value.isascii() and "\0" not in value:
        return value or default
    from multus.protocol import documents

    if not isinstance(value, str):
        raise InvalidConfigError(f"configuration: key \"{key}\" is {documents.kind(value)}, a string is expected")
    if not documents.is_path_text(value):
        raise InvalidConfigError(f"configuration: key \"{key}\" {documents.quote(value)} is invalid: it has NUL or half a character")
    return value


def _seconds(keys: Mapping[str, object], key: str, default: float) -> float:
    value = keys.get(key.lower(), default)
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= MAX_SECONDS:
        raise InvalidConfigError(f"configuration: key \"{key}\" is no number of seconds above 0 and up to {MAX_SECONDS}")
    return float(value)


def _refuse_own_netns(env: Mapping[str, str]) -> None:
    """Before anything is done.  A namespace that is not there is not ours."""
    netns = env.get("CNI_NETNS", "")
    if not netns or env.get("CNI_NETNS_OVERRIDE", "").lower() in ("true", "1"):
        return
    try:
        asked, own = posix.stat(netns), posix.stat("/proc/self/ns/net")
    except (OSError, ValueError):
        return
    if (asked.st_dev, asked.st_ino) == (own.st_dev, own.st_ino):
        raise InvalidNetnsError(f"CNI_NETNS {netns!r} is the network namespace of the plugin itself; CNI_NETNS_OVERRIDE=true allows it")


def _request_body(env: Mapping[str, str], content: bytes) -> bytes:
    """The daemon's request: the whole environment, sorted by name, and standard input in Base64."""
    pairs = ",".join(f"{_quoted(name)}:{_quoted(env[name])}" for name in sorted(env))
    return b'{"env":{%s},"config":"%s"}' % (pairs.encode("ascii"), binascii.b2a_base64(content, newline=False))


def _object_in(body: bytes) -> dict[str, Any] | None:
    try:
        value = documents.loads(body, "answer")
    except DecodingError:
        return None
    return value if isinstance(value, dict) else None


def _cause(error: Exception) -> str:
    return getattr(error, "strerror", None) or str(error)


def _write(fd: int, text: str) -> None:
    content = text.encode(errors="replace")
    while content:
        content = content[posix.write(fd, content):]
