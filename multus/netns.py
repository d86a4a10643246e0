"""Enter a pod's network namespace: for delegates, and for whatever else here works inside of one.  Standard library only.

    with Entered(invocation.netns):
        socket = IPRoute()
"""

from __future__ import annotations

import errno
import fcntl
import os
import stat
import sys

from multus.errors import InvalidNetnsError, IOFailureError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

OWN = "/proc/thread-self/ns/net"
"""The namespace that the calling thread is in."""
_CLONE_NEWNET = 0x40000000
_NS_GET_NSTYPE = 0xB703
_FILE_TYPES = {stat.S_IFREG: "a regular file", stat.S_IFDIR: "a folder", stat.S_IFIFO: "a pipe"}


class Entered:
    """A context in which the calling thread is in a network namespace; it comes back at the end, whatever happens.

    No other thread notices.  A socket stays in the namespace in which it was made, so most callers are inside only to
    open one.  Raises InvalidNetnsError for a path that is missing or no network namespace, IOFailureError for what the
    kernel refuses.

    A thread that cannot come back would do the next pod's work in this pod's namespace, and no exception can keep a
    pool from using it again.  So the process ends then, with a line on standard error and status 1.
    """

    def __init__(self, netns: str) -> None:
        self._netns = netns
        self._own = -1

    def __enter__(self) -> None:
        fd = _open(self._netns)
        try:
            self._own = os.open(OWN, os.O_RDONLY | os.O_CLOEXEC)
            try:
                setns(fd)
            except OSError:
                os.close(self._own)
                raise
        except OSError as exc:
            raise IOFailureError(f"cannot enter network namespace {self._netns}: {exc.strerror}") from exc
        finally:
            os.close(fd)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        try:
            setns(self._own)
        except OSError as failure:
            try:
                os.write(2, f"multus: cannot leave network namespace {self._netns}: {failure.strerror}; the process ends\n".encode())
            finally:
                os._exit(1)
        os.close(self._own)


def _open(netns: str) -> int:
    """A descriptor of the namespace, checked to be one."""
    try:
        fd = os.open(netns, os.O_RDONLY | os.O_CLOEXEC | os.O_NONBLOCK)
    except ValueError as exc:
        raise InvalidNetnsError(f"network namespace {netns!r} cannot be opened: {exc}") from exc
    except OSError as exc:
        ours = exc.errno in (errno.EMFILE, errno.ENFILE, errno.ENOMEM)  # says nothing about the path
        error = IOFailureError if ours else InvalidNetnsError
        raise error(f"network namespace {netns!r} cannot be opened: {exc.strerror}") from exc
    try:
        kind = fcntl.ioctl(fd, _NS_GET_NSTYPE)
    except OSError as exc:
        what = _FILE_TYPES.get(stat.S_IFMT(os.fstat(fd).st_mode), "a special file")
        os.close(fd)
        raise InvalidNetnsError(f"{netns!r} is no network namespace but {what}") from exc
    if kind != _CLONE_NEWNET:
        os.close(fd)
        raise InvalidNetnsError(f"{netns!r} is no network namespace but one of another kind (0x{kind:x})")
    return fd


def setns(fd: int) -> None:
    """Put the calling thread in the network namespace ``fd``."""
    if sys.version_info >= (3, 12):
        os.setns(fd, _CLONE_NEWNET)
    else:
        global _setns_of_libc
        if _setns_of_libc is None:
            _setns_of_libc = _find_setns()
        function, last_error = _setns_of_libc
        if function(fd, _CLONE_NEWNET) != 0:
            code = last_error()
            raise OSError(code, os.strerror(code))


_setns_of_libc: tuple[Callable[[int, int], int], Callable[[], int]] | None = None


def _find_setns() -> tuple[Callable[[int, int], int], Callable[[], int]]:
    """``setns`` of the C library, and what reads its error number, on Python 3.11, which has none of its own.

    By the C half of ctypes: importing ctypes itself costs 4 ms, and every ADD comes here.  Only a Python that no longer
    changes comes this way.
    """
    import _ctypes

    class CInt(_ctypes._SimpleCData):  # type: ignore[type-arg]  # generic for the stub alone
        _type_ = "i"

    class Function(_ctypes.CFuncPtr):
        _flags_ = _ctypes.FUNCFLAG_CDECL | _ctypes.FUNCFLAG_USE_ERRNO
        _restype_ = CInt

    this_process = _ctypes.dlopen(None, 0)  # type: ignore[arg-type]  # the stub forgets None
    return Function(_ctypes.dlsym(this_process, "setns")), _ctypes.get_errno
