"""A bounded pool of workers behind a fair queue.

Jobs start in the order they came, except that jobs of one key never run at the same time: a later one waits while others
pass it.  A job whose time is over while it waits is refused, and never starts.  A worker that is held for too long is
replaced until it comes back.  Nothing polls: an idle queue sleeps.
"""

from __future__ import annotations

import threading
import time
from collections import deque

from multus.errors import TryAgainLaterError
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from types import TracebackType

    from multus.core.ports import Log

_NAP_MAX_S = 3600.0
_STOP_S = 5.0
_STEP_S = 0.2
"""How long a signal handler may have to wait for whoever drains."""


class _Job(NamedTuple):
    """What ``submit`` was given."""

    key: str
    run: Callable[[], None]
    refuse: Callable[[str], None]
    deadline: float


class WorkQueue:
    """``workers`` threads that run jobs; ``start`` to ``stop``."""

    def __init__(self, workers: int, log: Log) -> None:
        self._log = log
        lock = threading.Lock()
        self._changed = threading.Condition(lock)
        """Told to workers, and to who drains."""
        self._joined = threading.Condition(lock)
        """Told to the sweeper alone, so that it does not look at every job that ends."""
        self._waiting: deque[_Job] = deque()
        self._running: dict[str, int] = {}
        """The thread that runs a key's job, by its number."""
        self._busy = 0
        self._closed = ""
        self._ended = False
        self._wakes_at = 0.0
        """When the sweeper wakes by itself."""
        self._limited: set[Limited] = set()
        """What may hold its worker up to a time."""
        self._held: set[int] = set()
        """The workers, by their thread's number, that were held for longer: each ends with its job, for it has been replaced."""
        self._workers = workers
        names = [f"worker-{number}" for number in range(workers)]
        self._threads = [threading.Thread(target=self._work, name=name, daemon=True) for name in names]
        self._threads.append(threading.Thread(target=self._sweep, name="queue-sweeper", daemon=True))

    def start(self) -> None:
        for thread in self._threads:
            thread.start()

    def submit(self, key: str, run: Callable[[], None], refuse: Callable[[str], None], deadline: float = float("inf")) -> None:
        """Queue a job; it is refused at once when the queue is closed.

        Args:
            key: Jobs of the same key run one after the other; empty: beside any.
            run: Does it, in a worker's thread.
            refuse: Called with the reason, instead of ``run``, in any thread.
            deadline: By the monotonic clock: when it is too late to start.
        """
        job = _Job(key, run, refuse, deadline)
        with self._changed:
            closed = self._closed
            if not closed:
                self._waiting.append(job)
                self._changed.notify_all()
                self._joined.notify_all()
        if closed:
            self._refuse([job], closed)

    def limited(self, limit_s: float, what: str, key: str = "") -> Limited:
        """A context for a part of a job that nobody can end, and which may hold its worker for ``limit_s`` seconds; 0: for ever.

        It runs in the worker, or in a thread that the worker of ``key`` waits for.

        After that another worker takes its place, for as many at a time as the queue has workers; the key stays taken.

        Raises:
            TryAgainLaterError: At the end, if it took longer.
        """
        return Limited(self, limit_s, what, key)

    def overdue(self) -> int:
        """How many workers are held for longer than they may."""
        with self._changed:
            return sum(each.is_overdue for each in self._limited)

    def lengths(self) -> tuple[int, int]:
        """How many jobs wait and how many run."""
        with self._changed:
            return len(self._waiting), self._busy

    def close(self, reason: str) -> None:
        """Take no more jobs, and refuse those that wait; running ones go on."""
        with self._changed:
            self._closed = reason
            refused = list(self._waiting)
            self._waiting.clear()
        self._refuse(refused, reason)

    def drain(self, timeout_s: float) -> bool:
        """Wait for the running jobs to end; whether they did in time.

        In steps: a signal that comes just before a thread begins to wait for a lock, or to another thread, does not end that wait.
        """
        end = time.monotonic() + timeout_s
        with self._changed:
            while self._busy and (left_s := end - time.monotonic()) > 0:
                self._changed.wait(min(left_s, _STEP_S))
            return not self._busy

    def stop(self) -> None:
        """End the threads, once their jobs are done; the queue must be closed.  After 5 s, and for held ones, it does not wait."""
        with self._changed:
            self._ended = True
            self._changed.notify_all()
            self._joined.notify_all()
            threads = [each for each in self._threads if each.ident not in self._held]
        end = time.monotonic() + _STOP_S
        for thread in threads:
            thread.join(max(0.0, end - time.monotonic()))

    def _work(self) -> None:
        while True:
            with self._changed:
                job = self._next()
                while job is None:
                    if self._ended:
                        return
                    self._changed.wait()
                    job = self._next()
                self._busy += 1
                self._running[job.key] = threading.get_ident()
            try:
                job.run()
            except BaseException as exc:  # of what a job left uncaught, sys.exit too; it must not cost a worker
                self._log.error("queue.job.failed", error=f"{type(exc).__name__}: {exc}")
            with self._changed:
                self._busy -= 1
                self._running.pop(job.key, None)
                self._changed.notify_all()
                if threading.get_ident() in self._held:
                    self._held.discard(threading.get_ident())
                    self._threads.remove(threading.current_thread())
                    return

    def _next(self) -> _Job | None:
        """The first job that may run now, taken out of the queue."""
        now = time.monotonic()
        for index, job in enumerate(self._waiting):
            if job.deadline > now and (not job.key or job.key not in self._running):
                del self._waiting[index]
                return job
        return None

    def _sweep(self) -> None:
        """Refuse what has waited too long, and replace workers that are held too long."""
        while True:
            with self._joined:
                late, overdue = self._late(), self._overdue()
                while not late and not overdue:
                    if self._ended:
                        return
                    ends = [job.deadline for job in self._waiting] + [each.end for each in self._limited if not each.is_overdue]
                    now = time.monotonic()
                    self._wakes_at = min([now + _NAP_MAX_S, *ends])
                    self._joined.wait(max(0.0, self._wakes_at - now))
                    late, overdue = self._late(), self._overdue()
            self._refuse(late, "it waited too long for its turn")
            for each in overdue:
                self._replace(each)

    def _late(self) -> list[_Job]:
        """The jobs whose time is over, taken out of the queue."""
        now = time.monotonic()
        late = [job for job in self._waiting if job.deadline <= now]
        if late:
            self._waiting = deque(job for job in self._waiting if job.deadline > now)
        return late

    def _overdue(self) -> list[Limited]:
        """What has begun to hold its worker for too long."""
        now = time.monotonic()
        found = [each for each in self._limited if each.end <= now and not each.is_overdue]
        for each in found:
            each.is_overdue = True
        return found

    def _replace(self, held: Limited) -> None:
        """Start another worker in the place of one that is held; as many as there were at first, not more."""
        with self._changed:
            can = held in self._limited and 0 < held.worker not in self._held and len(self._held) < self._workers
            if can:
                self._held.add(held.worker)
                self._threads.append(threading.Thread(target=self._work, name="worker-in-place", daemon=True))
                try:
                    self._threads[-1].start()
                except RuntimeError:  # no more threads
                    self._threads.pop()
                    self._held.discard(held.worker)
                    can = False
        self._log.error("queue.worker.held", by=held.what, seconds=f"{held.limit_s:g}", replaced=can)

    def begin(self, held: Limited) -> None:
        """From now on ``held`` holds its worker."""
        with self._joined:
            here = threading.get_ident()
            is_worker = any(each.ident == here for each in self._threads)
            held.worker = here if is_worker else self._running.get(held.key, 0)
            self._limited.add(held)
            if held.end < self._wakes_at:
                self._joined.notify_all()

    def finish(self, held: Limited) -> None:
        """``held`` has come to its end."""
        with self._changed:
            self._limited.discard(held)

    def _refuse(self, jobs: list[_Job], reason: str) -> None:
        for job in jobs:
            try:
                job.refuse(reason)
            except Exception as exc:  # as with a job that runs: the others are to be refused as well
                self._log.error("queue.refusal.failed", error=f"{type(exc).__name__}: {exc}")


class Limited:
    """The context of ``WorkQueue.limited``."""

    def __init__(self, queue: WorkQueue, limit_s: float, what: str, key: str) -> None:
        self._queue = queue
        self.limit_s = limit_s
        self.what = what
        self.key = key
        self.worker = 0
        """The number of the thread that is held; 0: none that is known."""
        self.is_overdue = False

    def __enter__(self) -> None:
        if self.limit_s:
            self.end = time.monotonic() + self.limit_s
            self._queue.begin(self)

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None) -> None:
        if self.limit_s:
            self._queue.finish(self)
            if time.monotonic() > self.end:
                raise TryAgainLaterError(f"{self.what} did not end within {self.limit_s:g} s") from exc
