"""Third-party code in our own threads: what it leaves behind in thread and process is put back.

It runs with all that we may do, so this guards against mistakes, not against malice.
"""

from __future__ import annotations

import _signal  # type: ignore[import-not-found]  # signal builds enumerations at import
import os

from multus.netns import OWN, setns

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from contextlib import AbstractContextManager
    from types import TracebackType
    from typing import Self

    from multus.core.ports import Log


class Guard:
    """Makes the blocks that third-party code runs in.

    Made once, before any of that code runs: umask and working folder are those of that moment.

    Args:
        limited: A context for a block, given what it runs and for which container; it raises if the block took too long.
    """

    def __init__(self, log: Log, limited: Callable[[str, str], AbstractContextManager[None]] | None = None) -> None:
        self._log = log
        self._limited = limited
        self._folder = os.open(".", os.O_PATH | os.O_CLOEXEC)
        self._umask = os.umask(0o077)
        os.umask(self._umask)

    def block(self, what: str, container_id: str) -> Block:
        """A context for code that ``what`` tells of, in the calling thread, for a container, or for none.

        Raises:
            TryAgainLaterError: Code 11; it took longer than it may.
        """
        limit = self._limited(what, container_id) if self._limited is not None else None
        return Block(what, self._folder, self._umask, limit, self._log)


class Block:
    """The context of ``Guard.block``: network namespace, signal mask, working folder and umask are at its end what they were.

    A thread that cannot come back ends the process, as in ``multus.netns``; so does a child that the code has forked and
    let return: it would serve the call a second time.
    """

    def __init__(self, what: str, folder: int, umask: int, limit: AbstractContextManager[None] | None, log: Log) -> None:
        self._what = what
        self._folder = folder
        self._umask = umask
        self._limit = limit
        self._log = log

    def __enter__(self) -> Self:
        self._pid = os.getpid()
        self._netns = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
        self._mask = _signal.pthread_sigmask(_signal.SIG_BLOCK, ())
        self._was_in = _identity(os.stat("."))
        if self._limit is not None:
            self._limit.__enter__()
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if os.getpid() != self._pid:
            os._exit(1)
        try:
            self._put_back()
        except OSError as failure:
            try:
                os.write(2, f"multus: cannot put back what {self._what} has changed: {failure.strerror}; the process ends\n".encode())
            finally:
                os._exit(1)
        if self._limit is not None:
            self._limit.__exit__(kind, exc, trace)

    def _put_back(self) -> None:
        changed = []
        if _identity(os.fstat(self._netns)) != _identity(os.stat(OWN)):
            setns(self._netns)
            changed.append("the network namespace")
        os.close(self._netns)
        if _signal.pthread_sigmask(_signal.SIG_SETMASK, self._mask) != self._mask:
            changed.append("the signal mask")
        if _identity(os.stat(".")) != self._was_in:
            os.fchdir(self._folder)
            changed.append("the working folder")
        if os.umask(self._umask) != self._umask:
            changed.append("the umask")
        if changed:
            self._log.error("guard.put_back", after=self._what, changed=", ".join(changed))


def _identity(status: os.stat_result) -> tuple[int, int]:
    return status.st_dev, status.st_ino
