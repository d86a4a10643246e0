"""Events of the daemon: sent after the answer, by one thread, so that nothing waits for them.

An event that says the same of the same object as one that still waits is counted into it.  When the API server is away the
queue fills, the oldest are dropped, and the count of those is told.
"""

from __future__ import annotations

import threading
from collections import OrderedDict

from multus.errors import MultusError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.ports import EventSink, Log
    from multus.types.pod import Node, Pod

CAPACITY = 1000


class EventQueue:
    """An ``EventSink`` that never blocks; ``start`` to ``stop``."""

    def __init__(self, sink: EventSink, log: Log) -> None:
        self._sink = sink
        self._log = log
        self._changed = threading.Condition()
        self._waiting: OrderedDict[tuple[str, str, str, str], tuple[Pod | Node, int]] = OrderedDict()
        self._dropped = 0
        self._ended = False
        self._thread = threading.Thread(target=self._work, name="events", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        key = (str(about), kind, reason, message)
        with self._changed:
            _, count = self._waiting.get(key, (about, 0))
            self._waiting[key] = (about, count + 1)
            if len(self._waiting) > CAPACITY:
                _, (_, given_up) = self._waiting.popitem(last=False)
                self._dropped += given_up
            self._changed.notify()

    def dropped(self) -> int:
        """How many events were given up."""
        return self._dropped

    def stop(self, timeout_s: float) -> None:
        """Send what waits, as far as the time allows."""
        with self._changed:
            self._ended = True
            self._changed.notify()
        self._thread.join(timeout_s)

    def _work(self) -> None:
        while True:
            with self._changed:
                while not self._waiting:
                    if self._ended:
                        return
                    self._changed.wait()
                (_, kind, reason, message), (about, count) = self._waiting.popitem(last=False)
            repeated = f" ({count} times)" if count > 1 else ""
            try:
                self._sink.create_event(about, kind, reason, message + repeated)
            except MultusError as exc:
                with self._changed:
                    self._dropped += count
                self._log.error("event.failed", about=about, reason=reason, error=exc)
