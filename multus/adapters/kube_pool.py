"""Connections to the API server for all threads of a process: few, kept open, none older than a minute at its next use.

Each is a transport that its maker has given the credentials of that moment; so tokens and certificates that were renewed
are in use a minute later, as they are with client-go.
"""

from __future__ import annotations

import threading

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.core.ports import Clock
    from multus.protocol.api_calls import Transport
    from multus.protocol.api_errors import Answer

MAX_IDLE = 8
MAX_AGE_S = 60.0


class _Kept(NamedTuple):
    transport: Transport
    made_at: float
    generation: int


class TransportPool:
    """A ``Transport`` that any number of threads may use at once: each exchange has a transport for itself."""

    def __init__(self, connect: Callable[[], Transport], clock: Clock, *, max_idle: int = MAX_IDLE, max_age_s: float = MAX_AGE_S) -> None:
        """
        Args:
            connect: Makes a transport, with credentials read anew; may raise what ``exchange`` may.
        """
        self._connect = connect
        self._clock = clock
        self._max_idle = max_idle
        self._max_age_s = max_age_s
        self._lock = threading.Lock()
        self._idle: list[_Kept] = []
        self._generation = 0

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        """Send a request once and read the answer, over the transport that was used last, or a new one."""
        kept = self._take()
        try:
            return kept.transport.exchange(method, target, content_type, body, limit_s)
        finally:
            self._give_back(kept)

    def renew(self) -> None:
        """Use none of the present transports again."""
        with self._lock:
            self._generation += 1
            dropped, self._idle = self._idle, []
        for kept in dropped:
            kept.transport.close()

    close = renew

    def _take(self) -> _Kept:
        now = self._clock.monotonic()
        dropped = []
        try:
            with self._lock:
                generation = self._generation
                while self._idle:
                    kept = self._idle.pop()
                    if now - kept.made_at < self._max_age_s:
                        return kept
                    dropped.append(kept)
        finally:
            for old in dropped:
                old.transport.close()
        return _Kept(self._connect(), now, generation)

    def _give_back(self, kept: _Kept) -> None:
        with self._lock:
            if kept.generation == self._generation and len(self._idle) < self._max_idle:
                self._idle.append(kept)
                return
        kept.transport.close()
