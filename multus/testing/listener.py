"""A Unix socket that somebody answers at, in the place of a daemon."""

from __future__ import annotations

import contextlib
import socket
import threading
from typing import TYPE_CHECKING, Self

if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

BACKLOG = 64


class Listener:
    """Listens from ``with`` to the end of the block, and answers one connection after the other on a thread of its own.

    Args:
        path: Of the socket, which must not be there.
        answer: Called with each connection, which is closed when it returns; an OSError says that the peer has gone.
    """

    def __init__(self, path: str, answer: Callable[[socket.socket], None]) -> None:
        self._path = path
        self._answer = answer
        self._socket = socket.socket(socket.AF_UNIX)
        self._thread = threading.Thread(target=self._serve)

    def __enter__(self) -> Self:
        self._socket.bind(self._path)
        self._socket.listen(BACKLOG)
        self._thread.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self._socket.shutdown(socket.SHUT_RDWR)
        self._thread.join()
        self._socket.close()

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._socket.accept()
            except OSError:
                return
            with connection, contextlib.suppress(OSError):
                self._answer(connection)
