"""How a process that runs for long learns that it is to end."""

from __future__ import annotations

import os
import select
import signal

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable


class Stop:
    """Whether the process is to end: set by a signal handler, or by any thread.

    Not a ``threading.Event``: its lock may be held by the very code that the handler interrupts, which would then never go on.
    The interpreter writes to the same pipe when a signal comes, so that one that comes just before a wait ends it, too.
    """

    def __init__(self) -> None:
        self._fd, self._wake_fd = os.pipe2(os.O_CLOEXEC | os.O_NONBLOCK)
        self._is_set = False

    def listen(self, *signals: int, handler: Callable[[int, object], None]) -> None:
        """Call ``handler`` for these signals; from the main thread."""
        signal.set_wakeup_fd(self._wake_fd)
        for number in signals:
            signal.signal(number, handler)

    def set(self) -> None:
        if not self._is_set:
            self._is_set = True
            os.write(self._wake_fd, b"\0")

    def is_set(self) -> bool:
        return self._is_set

    def wait(self, timeout_s: float) -> bool:
        """Wait until it is set; whether it is."""
        waiting = select.poll()
        waiting.register(self._fd, select.POLLIN)
        waiting.poll(timeout_s * 1000)
        return self._is_set
