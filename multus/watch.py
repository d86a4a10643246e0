"""Wait until something changes in a set of folders: inotify where the kernel grants it, a shorter time limit elsewhere.

Tells that something may have changed, never what: who waits here looks at its files anew, which also covers what inotify
does not tell (an overflow of its queue, changes behind symbolic links).  Standard library only.

Three functions by ``ctypes`` cost 0.6 MiB; the library ``watchfiles`` would cost 5.8 MiB and 50 ms at start
(``docs/decisions/0010-watching-files.md``).
"""

from __future__ import annotations

import ctypes
import os
import select

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable
    from typing import Any

_CLOSE_WRITE, _MOVED_FROM, _MOVED_TO, _CREATE, _DELETE, _DELETE_SELF, _MOVE_SELF = 0x8, 0x40, 0x80, 0x100, 0x200, 0x400, 0x800
_ONLYDIR = 0x0100_0000
_MASK = _CLOSE_WRITE | _MOVED_FROM | _MOVED_TO | _CREATE | _DELETE | _DELETE_SELF | _MOVE_SELF | _ONLYDIR
_QUEUE_BYTES = 1 << 20


class FolderWatch:
    """Changes of files in folders (not below them).  One thread waits; any thread may cancel."""

    def __init__(self, libc: Any = None) -> None:
        """``libc`` is for tests: the C library, with ``errno`` kept for ``ctypes.get_errno``."""
        self._libc = ctypes.CDLL(None, use_errno=True) if libc is None else libc
        self._cancelled = os.eventfd(0, os.EFD_CLOEXEC | os.EFD_NONBLOCK)
        self._inotify: int = self._libc.inotify_init1(os.O_CLOEXEC | os.O_NONBLOCK)
        self.problem = "" if self._inotify >= 0 else f"no inotify: {os.strerror(ctypes.get_errno())}"
        """Why some folder is not watched; empty: all are."""
        self._watched: frozenset[int] = frozenset()

    def follow(self, folders: Iterable[str]) -> bool:
        """Watch exactly these folders from now on; whether all of them could be.

        To be called again after each wait: a folder that was missing or replaced is watched when it is there again.
        """
        if self._inotify < 0:
            return False
        watched, self.problem = set(), ""
        for folder in folders:
            descriptor = self._libc.inotify_add_watch(self._inotify, os.fsencode(folder), _MASK)  # one per folder, however often
            if descriptor >= 0:
                watched.add(descriptor)
            else:
                self.problem = f"cannot watch {folder}: {os.strerror(ctypes.get_errno())}"
        for descriptor in self._watched - watched:
            self._libc.inotify_rm_watch(self._inotify, descriptor)
        self._watched = frozenset(watched)
        return not self.problem

    def wait(self, timeout_s: float, settle_s: float = 0.0) -> bool:
        """Wait for a change, then ``settle_s`` for those that come with it; whether there was one.

        After ``cancel`` it returns at once.
        """
        ready = self._ready((self._cancelled, self._inotify), timeout_s)
        if self._inotify not in ready or self._cancelled in ready:
            return False
        self._ready((self._cancelled,), settle_s)
        os.read(self._inotify, _QUEUE_BYTES)
        return True

    def cancel(self) -> None:
        """End the present wait and all later ones."""
        os.eventfd_write(self._cancelled, 1)

    def close(self) -> None:
        """Give the descriptors back; nobody may be waiting."""
        for fd in (self._inotify, self._cancelled):
            if fd >= 0:
                os.close(fd)
        self._inotify = self._cancelled = -1

    @staticmethod
    def _ready(fds: tuple[int, ...], timeout_s: float) -> set[int]:
        poll = select.poll()
        for fd in fds:
            if fd >= 0:
                poll.register(fd, select.POLLIN)
        return {fd for fd, _ in poll.poll(max(0.0, timeout_s) * 1000)}
