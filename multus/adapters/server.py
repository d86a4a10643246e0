"""The node socket: HTTP over a Unix socket, probes answered at once, everything else by the bounded workers.

A connection is read in a thread of its own, which ends when the request is complete; a request that waits for its turn
holds a socket and its body, and no thread.  Spec: Multus behaviour, "Unix socket" and "HTTP surface".
"""

from __future__ import annotations

import contextlib
import errno
import os
import select
import socket
import stat
import threading
import time

from multus.errors import IOFailureError, MultusError
from multus.protocol import wire
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.adapters.work_queue import WorkQueue
    from multus.core.ports import Log

BACKLOG = 1024
BODY_MAX = 16 * 2**20
"""Bytes of a request's body."""
READ_TIMEOUT_S = 10.0
WRITE_TIMEOUT_S = 30.0
_READERS_MAX = 256
_JSON, _TEXT = "application/json", "text/plain; charset=utf-8"
_PASSING = frozenset((errno.EMFILE, errno.ENFILE, errno.ENOBUFS, errno.ENOMEM, errno.ECONNABORTED))
"""What accepting fails with when it can be tried again."""
_PAUSE_S = 0.1


class Answer(NamedTuple):
    """One answer, and what is to be done once it is sent."""

    status: int
    body: bytes = b""
    content_type: str = ""
    after: Callable[[], None] | None = None


class Work(NamedTuple):
    """A request that is understood and waits for a worker."""

    key: str
    run: Callable[[], Answer]
    refused: Callable[[str], Answer]
    is_pointless_when_abandoned: bool = False
    """Nobody would undo it, so it does not start when its client has gone."""


class Handler:
    """What the server serves: a base to derive from."""

    def prepare(self, request: wire.Request) -> Work | Answer:
        """Understand a request of ``/cni`` or ``/delegate``; an error is answered at once."""
        raise MultusError(f"nothing serves {request.target}")

    def not_ready(self) -> str:
        """Why ADDs should wait; empty: they need not."""
        return ""

    def observe(self, path: str, method: str, status: int) -> None:
        """Told of every answer."""


class NodeServer:
    """The server of one socket; ``start``, then ``drain`` and ``stop``."""

    def __init__(self, path: str, handler: Handler, queue: WorkQueue, queue_timeout_s: float, log: Log) -> None:
        self._path = path
        self._handler = handler
        self._queue = queue
        self._queue_timeout_s = queue_timeout_s
        self._log = log
        self._readers = threading.BoundedSemaphore(_READERS_MAX)
        self._listener: socket.socket | None = None
        self._inode: int | None = None
        self._stopping = False
        self._ended = ""

    def start(self) -> None:
        """Bind the socket and serve.

        Raises:
            IOFailureError: The folder or the socket cannot be made, or another process serves it; names the path.
        """
        folder = os.path.dirname(self._path)
        try:
            if os.path.dirname(os.path.realpath(folder)) == "/":
                raise IOFailureError(f"{folder} is a top-level folder; the socket {self._path} needs one of its own, of mode 0700")
            os.makedirs(folder, mode=0o700, exist_ok=True)
            os.chmod(folder, 0o700)
            self._remove_stale()
            self._listener = _listen(self._path)
        except OSError as exc:
            raise IOFailureError(f"cannot serve the socket {self._path}: {exc.strerror or exc}") from exc
        self._inode = _inode(self._path)
        threading.Thread(target=self._accept, args=(self._listener,), name="accept", daemon=True).start()

    def stop(self) -> None:
        """Accept no more, and remove the socket."""
        self._stopping = True
        if self._listener is None:
            return
        mine = self._is_mine()
        with contextlib.suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        if mine:
            with contextlib.suppress(FileNotFoundError):
                os.unlink(self._path)

    def problem(self) -> str:
        """Why no more requests come in, once the server has started; empty: they do.

        It does not pass: the process had better end, so that another one takes its place.
        """
        if self._stopping or self._ended:
            return self._ended
        return "" if self._is_mine() else f"the socket {self._path} was removed or replaced"

    def _is_mine(self) -> bool:
        return self._inode is not None and _inode(self._path) == self._inode

    def _remove_stale(self) -> None:
        """Remove what a killed daemon left; refuse a socket that somebody serves, and what is no socket."""
        try:
            mode = os.lstat(self._path).st_mode
        except FileNotFoundError:
            return
        if not stat.S_ISSOCK(mode):
            raise IOFailureError(f"{self._path} is there already and is no socket")
        with socket.socket(socket.AF_UNIX) as probe:
            probe.settimeout(2)
            try:
                probe.connect(self._path)
            except (ConnectionRefusedError, FileNotFoundError):
                os.unlink(self._path)
                return
            except OSError:
                pass  # it has a backlog, so it has an owner
        raise IOFailureError(f"another process serves {self._path}; one daemon serves a node")

    def _accept(self, listener: socket.socket) -> None:
        while True:
            try:
                connection, _ = listener.accept()
            except OSError as exc:
                if self._stopping:
                    return
                if exc.errno not in _PASSING:
                    self._ended = f"the socket {self._path} accepts no more: {exc.strerror}"
                    self._log.error("server.ended", error=self._ended)
                    return
                self._log.error("server.accept.failed", error=exc)
                time.sleep(_PAUSE_S)  # others will be closed
                continue
            self._readers.acquire()
            try:
                threading.Thread(target=self._read, args=(connection,), name="reader", daemon=True).start()
            except RuntimeError as exc:  # no more threads: the client sees the connection end, and the next may have luck
                self._readers.release()
                connection.close()
                self._log.error("server.accept.failed", error=exc)
                time.sleep(_PAUSE_S)

    def _read(self, connection: socket.socket) -> None:
        """Read one request; answer a probe, or pass the connection on to a worker."""
        try:
            connection.settimeout(READ_TIMEOUT_S)
            end = time.monotonic() + READ_TIMEOUT_S

            def receive(size: int) -> bytes:
                connection.settimeout(max(0.001, end - time.monotonic()))
                return connection.recv(size)

            request = wire.read_request(receive, BODY_MAX)
        except (MultusError, OSError) as exc:
            self._log.debug("server.request.unreadable", error=exc)
            self._send(connection, "unreadable", "", _plain(400, str(exc)))
            return
        finally:
            self._readers.release()
        path = request.target.partition("?")[0]
        if path in ("/healthz", "/readyz") or path not in ("/cni", "/delegate") or request.method != "POST":
            self._send(connection, path, request.method, self._probe(path, request.method))
            return
        try:
            prepared = self._handler.prepare(request)
        except Exception as exc:  # a fault of ours must be answered, never a dropped connection
            self._log.error("server.request.failed", error=f"{type(exc).__name__}: {exc}")
            prepared = _plain(400, f"internal error: {type(exc).__name__}: {exc}")
        if isinstance(prepared, Answer):
            self._send(connection, path, request.method, prepared)
        else:
            self._submit(connection, path, request.method, prepared)

    def _probe(self, path: str, method: str) -> Answer:
        if path not in ("/cni", "/delegate", "/healthz", "/readyz"):
            self._log.error("server.path.unknown", path=path)
            return Answer(404)
        if path in ("/cni", "/delegate") or method not in ("GET", "POST"):
            return _plain(405, "Method not allowed")
        reason = self._handler.not_ready() if path == "/readyz" else ""
        return Answer(500, reason.encode(), _TEXT) if reason else Answer(200)

    def _submit(self, connection: socket.socket, path: str, method: str, work: Work) -> None:
        def run() -> None:
            if work.is_pointless_when_abandoned and _is_abandoned(connection):
                connection.close()
                self._log.warning("server.request.abandoned", path=path)
                return
            try:
                answer = work.run()
            except Exception as exc:  # a worker lives on, and the client gets an answer
                self._log.error("server.request.failed", error=f"{type(exc).__name__}: {exc}")
                answer = _plain(400, f"internal error: {type(exc).__name__}: {exc}")
            self._send(connection, path, method, answer)

        def refuse(reason: str) -> None:
            self._send(connection, path, method, work.refused(reason))

        self._queue.submit(work.key, run, refuse, time.monotonic() + self._queue_timeout_s)

    def _send(self, connection: socket.socket, path: str, method: str, answer: Answer) -> None:
        headers = [("Connection", "close")]
        if answer.content_type:
            headers.append(("Content-Type", answer.content_type))
        if answer.content_type == _TEXT:
            headers.append(("X-Content-Type-Options", "nosniff"))
        content = wire.response(answer.status, headers, answer.body)
        if method == "HEAD":
            content = content.removesuffix(answer.body)
        try:
            connection.settimeout(WRITE_TIMEOUT_S)
            connection.sendall(content)
        except OSError as exc:
            self._log.warning("server.answer.lost", path=path, error=exc)
        finally:
            connection.close()
        self._handler.observe(path, method, answer.status)
        if answer.after is None:
            return
        try:
            answer.after()
        except Exception as exc:  # the client has its answer
            self._log.error("server.after.failed", error=f"{type(exc).__name__}: {exc}")


def json_answer(status: int, body: bytes, after: Callable[[], None] | None = None) -> Answer:
    """An answer with a JSON body."""
    return Answer(status, body, _JSON, after)


def _plain(status: int, text: str) -> Answer:
    return Answer(status, f"{text}\n".encode(), _TEXT)


def _listen(path: str) -> socket.socket:
    """A listening socket that nobody but root can connect to, from its first moment on."""
    listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    before = os.umask(0o177)
    try:
        listener.bind(path)
    except OSError:
        listener.close()
        raise
    finally:
        os.umask(before)
    os.chmod(path, 0o600)
    listener.listen(BACKLOG)
    return listener


def _inode(path: str) -> int | None:
    try:
        return os.stat(path).st_ino
    except OSError:
        return None


def _is_abandoned(connection: socket.socket) -> bool:
    """Whether the client has closed; one that only says that it sends no more still waits for its answer."""
    poll = select.poll()
    poll.register(connection, 0)  # POLLHUP is told unasked
    return bool(poll.poll(0))
