"""Delegates as child processes.

By ``posix_spawn``: importing ``subprocess`` costs a call 4 ms, and a fork would copy a daemon's page tables.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal builds enumerations at import
import errno
import os
import select
import stat
import time

from multus.errors import IOFailureError, MultusError, TryAgainLaterError
from multus.types.invocation import Completed

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

_BUSY_TRIES = 6
_BUSY_INTERVAL_S = 1.0
_CHUNK = 65536
_CLONE_FS = 0x200
_NEVER = float("inf")
OUTPUT_MAX = 16 * 2**20
"""Bytes of standard output or error that are kept; a delegate that prints more is stopped."""


class Processes:
    """Finds delegates' binaries and runs them.  ``ports.Programs`` made real."""

    def __init__(self, sleep: Callable[[float], None] = time.sleep, *, timeout_s: float = 0, root: str = "") -> None:
        """By default without a limit, and with our own root.

        Args:
            timeout_s: How long a program may take before it is killed with all that it started; 0: for ever.
            root: The folder that programs have as their root; they are found by the same path outside of it.
        """
        self._sleep = sleep
        self._timeout_s = timeout_s
        self._root = root
        self._running: set[int] = set()

    def find(self, name: str, folders: tuple[str, ...]) -> str | None:
        """The first regular file of that name, symbolic links followed."""
        for folder in folders:
            path = os.path.join(folder, name)
            try:
                if stat.S_ISREG(os.stat(path).st_mode):
                    return path
            except (OSError, ValueError):  # ValueError: a name that no file can have
                continue
        return None

    def run(self, path: str, environment: Mapping[str, str], stdin: bytes) -> Completed:
        """Run a program with ``stdin`` and wait for its end.

        A binary that is being replaced ("text file busy") is tried again for 5 s.

        Raises:
            IOFailureError: Code 5; it cannot be started, or printed more than 16 MiB; names the path.
            TryAgainLaterError: Code 11; it did not end in its time and was killed.
        """
        tries = 1
        while True:
            try:
                return _run(path, environment, stdin, self._timeout_s, self._root, self._running)
            except OSError as exc:
                if exc.errno != errno.ETXTBSY or tries == _BUSY_TRIES:
                    error = IOFailureError(f"{path} cannot be run: {exc.strerror}")
                    error.attached_nothing = True
                    raise error from exc
            self._sleep(_BUSY_INTERVAL_S)
            tries += 1

    def kill_all(self) -> None:
        """Kill what runs now, so that it does nothing more; to whoever runs it, it has failed."""
        for pid in tuple(self._running):
            _kill(pid, self._timeout_s)

    def forward(self, stderr: bytes) -> None:
        """Write to our own standard error, as far as it takes it."""
        try:
            os.write(2, stderr)
        except OSError:
            return


class Rooted:
    """A context in which the calling thread has another root folder, and so has what it starts; empty: the same.

    The kernel keeps root and working folder per thread once the thread says so (``unshare``); no other thread notices.
    A thread that cannot come back ends the process: what it did next would happen in the wrong place.
    """

    def __init__(self, root: str) -> None:
        self._root = root
        self._own = -1

    def __enter__(self) -> None:
        if not self._root:
            return
        import ctypes  # 4 ms, for a daemon with a chrootDir

        libc = ctypes.CDLL(None, use_errno=True)
        self._own = os.open("/", os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            if libc.unshare(_CLONE_FS) != 0:
                raise OSError(ctypes.get_errno(), "cannot have a root folder per thread")
            os.chroot(self._root)
            os.chdir("/")
        except OSError as exc:
            os.close(self._own)
            raise OSError(exc.errno, f"root folder {self._root}: {exc.strerror}") from exc

    def __exit__(self, *_: object) -> None:
        if not self._root:
            return
        try:
            os.fchdir(self._own)
            os.chroot(".")
        except OSError as exc:
            os.write(2, f"multus: cannot leave the root folder {self._root}: {exc.strerror}; the process ends\n".encode())
            os._exit(1)
        os.close(self._own)


def _run(path: str, environment: Mapping[str, str], stdin: bytes, timeout_s: float, root: str, running: set[int]) -> Completed:
    """Spawn, exchange, reap.  The three pipes are closed whatever happens; meanwhile the process is among those that are running."""
    pipes: list[tuple[int, int]] = []
    try:
        for _ in range(3):
            pipes.append(os.pipe2(os.O_CLOEXEC))
        (child_in, to_child), (from_out, child_out), (from_err, child_err) = pipes
        own_group: Any = {"setpgroup": 0} if timeout_s else {}  # to be killed as one
        with Rooted(root):
            pid = os.posix_spawn(
                path,
                [path],
                environment,
                file_actions=[
                    (os.POSIX_SPAWN_DUP2, child_in, 0),
                    (os.POSIX_SPAWN_DUP2, child_out, 1),
                    (os.POSIX_SPAWN_DUP2, child_err, 2),
                ],
                **own_group,
                setsigdef=(_signal.SIGPIPE, _signal.SIGXFSZ),  # ignored by the interpreter, not to be by a delegate
            )
    except OSError:
        for fd in (fd for pipe in pipes for fd in pipe):
            os.close(fd)
        raise
    running.add(pid)
    for fd in (child_in, child_out, child_err):
        os.close(fd)
    end = time.monotonic() + timeout_s if timeout_s else _NEVER
    try:
        output = _exchange(to_child, stdin, end, from_out, from_err)
        status = _reap(pid, end)
    except (MultusError, _OverdueError) as exc:
        _kill(pid, timeout_s)
        os.waitpid(pid, 0)
        if isinstance(exc, MultusError):
            raise exc.prefixed(path) from exc
        raise TryAgainLaterError(f"{path}: it did not end within {timeout_s:g} s and was killed") from exc
    finally:
        running.discard(pid)
    return Completed(os.waitstatus_to_exitcode(status), output[from_out], output[from_err])


def _kill(pid: int, timeout_s: float) -> None:
    """Kill a program; with a time limit it has a group of its own, which goes with it."""
    try:
        (os.killpg if timeout_s else os.kill)(pid, 9)
    except ProcessLookupError:
        return  # it has just ended


class _OverdueError(Exception):
    """The time of a program is over."""


def _reap(pid: int, end: float) -> int:
    """Wait for a child that has closed its outputs, which most do by ending; its wait status."""
    if end == _NEVER:
        return os.waitpid(pid, 0)[1]
    pause_s = 0.0001
    while True:
        ended, status = os.waitpid(pid, os.WNOHANG)
        if ended:
            return status
        if time.monotonic() > end:
            raise _OverdueError
        time.sleep(pause_s)
        pause_s = min(2 * pause_s, 0.05)


def _exchange(to_child: int, stdin: bytes, end: float, *readers: int) -> dict[int, bytes]:
    """Feed ``stdin`` and read each reader to its end, all at the same time, so that no pipe can fill up and block."""
    unsent = memoryview(stdin)
    chunks: dict[int, list[bytes]] = {reader: [] for reader in readers}
    sizes = dict.fromkeys(readers, 0)
    poll = select.poll()
    open_fds = {to_child, *readers}
    os.set_blocking(to_child, False)
    poll.register(to_child, select.POLLOUT)
    for reader in readers:
        poll.register(reader, select.POLLIN)

    def close(fd: int) -> None:
        poll.unregister(fd)
        open_fds.discard(fd)
        os.close(fd)

    try:
        while open_fds:
            ready = poll.poll(None if end == _NEVER else max(0.0, end - time.monotonic()) * 1000)
            if not ready:
                raise _OverdueError
            for fd, _ in ready:
                if fd == to_child:
                    try:
                        unsent = unsent[os.write(fd, unsent[:_CHUNK]):]
                    except BlockingIOError:
                        continue
                    except BrokenPipeError:
                        unsent = unsent[:0]
                    if not unsent:
                        close(fd)
                    continue
                chunk = os.read(fd, _CHUNK)
                chunks[fd].append(chunk)
                sizes[fd] += len(chunk)
                if sizes[fd] > OUTPUT_MAX:
                    raise IOFailureError(f"it printed more than {OUTPUT_MAX >> 20} MiB and was stopped")
                if not chunk:
                    close(fd)
    finally:
        for fd in tuple(open_fds):
            close(fd)
    return {reader: b"".join(parts) for reader, parts in chunks.items()}
