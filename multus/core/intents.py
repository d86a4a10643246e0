"""DELs that a shim could not deliver: replayed after the daemon's start, each until it has succeeded.

The shim wrote the request before it answered its runtime, which never comes back.  The order is that of the files' age.
"""

from __future__ import annotations

from multus.errors import DecodingError, MultusError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.core.ports import Clock, IntentStore, Log

_DELAYS_S = (2.0, 4.0, 8.0, 16.0, 32.0, 60.0)
"""After the first failure, the second, and so on; the last one for all that follow."""


class Replay:
    """Takes each intent up once at a time; one that fails waits twice as long each time, up to a minute."""

    def __init__(self, store: IntentStore, serve: Callable[[bytes, Callable[[str], None]], None], clock: Clock, log: Log) -> None:
        """
        Args:
            serve: Serves a request's body in its own time, and calls back with why it failed; empty: it did not.
                Raises DecodingError for a body that is no request.
        """
        self._store = store
        self._serve = serve
        self._clock = clock
        self._log = log
        self._taken: set[str] = set()
        self._failures: dict[str, tuple[int, float]] = {}
        """By name: how often it failed, and when it may be tried again."""
        self._unreadable = ""

    def pending(self) -> int:
        """How many DELs wait; 0 when their folder cannot be read."""
        try:
            return len(self._store.names())
        except MultusError:
            return 0

    def sweep(self) -> None:
        """Take up every intent whose time has come and that is not being served."""
        taken = frozenset(self._taken)  # before the names are read: one that ends in between is still among them
        try:
            names = self._store.names()
        except MultusError as exc:
            if exc.msg != self._unreadable:  # once, not with every sweep
                self._log.error("intents.unreadable", error=exc)
            self._unreadable = exc.msg
            return
        self._unreadable = ""
        now = self._clock.monotonic()
        for name in names:
            if name not in taken and self._failures.get(name, (0, now))[1] <= now:
                self._take(name)

    def _take(self, name: str) -> None:
        self._taken.add(name)
        try:
            self._serve(self._store.read(name), lambda problem: self._served(name, problem))
        except DecodingError as exc:
            self._log.error("intent.damaged", intent=name, error=exc)
            self._put_aside(name)
        except MultusError as exc:
            self._served(name, exc.msg)

    def _served(self, name: str, problem: str) -> None:
        if not problem:
            try:
                self._store.drop(name)
            except MultusError as exc:
                problem = exc.msg
        if problem:
            count = self._failures.get(name, (0, 0.0))[0] + 1
            self._failures[name] = (count, self._clock.monotonic() + _DELAYS_S[min(count, len(_DELAYS_S)) - 1])
            self._log.error("intent.failed", intent=name, times=count, error=problem)
        else:
            self._failures.pop(name, None)
            self._log.verbose("intent.replayed", intent=name)
        self._taken.discard(name)

    def _put_aside(self, name: str) -> None:
        try:
            self._store.put_aside(name)
        except MultusError as exc:
            self._served(name, exc.msg)
        else:
            self._taken.discard(name)
