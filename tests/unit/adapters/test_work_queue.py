"""The queue of the daemon: how much runs at once, in which order, and what is refused.

The threads are real; they wait for events, never for a time to pass, except where a job is to be late.
"""

from __future__ import annotations

import signal
import threading
import time
from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

import pytest

from multus.adapters.work_queue import WorkQueue
from multus.errors import TryAgainLaterError
from multus.testing.fakes import RecordingLog

if TYPE_CHECKING:
    Make = Callable[[int], WorkQueue]
    Job = tuple[str, Callable[[], None], Callable[[str], None], float]
    """What ``submit`` takes."""

PATIENCE_S = 20.0


@pytest.fixture
def log() -> RecordingLog:
    return RecordingLog()


@pytest.fixture
def make(log: RecordingLog) -> Iterator[Make]:
    """Makes started queues; afterwards none of their threads is left."""
    before = set(threading.enumerate())
    queues: list[WorkQueue] = []

    def made(workers: int) -> WorkQueue:
        queues.append(WorkQueue(workers, log))
        queues[-1].start()
        return queues[-1]

    yield made
    for queue in queues:
        queue.close("the test is over")
        assert queue.drain(PATIENCE_S)
        queue.stop()
    assert set(threading.enumerate()) - before == set()


class Work:
    """Jobs that note what happens to them, and run until they are let go."""

    def __init__(self) -> None:
        self.started: list[str] = []
        self.refused: list[tuple[str, str]] = []
        self.running = 0
        self.most = 0
        self._changed = threading.Condition()
        self._go: set[str] = set()

    def job(self, name: str, key: str = "", deadline: float = float("inf")) -> Job:
        return key, lambda: self._run(name), lambda reason: self._refuse(name, reason), deadline

    def let_go(self, *names: str) -> None:
        with self._changed:
            self._go.update(names)
            self._changed.notify_all()

    def wait_for_started(self, *names: str) -> None:
        self._wait_for(lambda: set(names) <= set(self.started))

    def wait_for_refused(self, count: int) -> None:
        self._wait_for(lambda: len(self.refused) == count)

    def wait_for_idle(self) -> None:
        self._wait_for(lambda: self.running == 0)

    def _wait_for(self, predicate: Callable[[], bool]) -> None:
        with self._changed:
            assert self._changed.wait_for(predicate, PATIENCE_S)

    def _run(self, name: str) -> None:
        with self._changed:
            self.started.append(name)
            self.running += 1
            self.most = max(self.most, self.running)
            self._changed.notify_all()
            assert self._changed.wait_for(lambda: name in self._go, PATIENCE_S)
            self.running -= 1
            self._changed.notify_all()

    def _refuse(self, name: str, reason: str) -> None:
        with self._changed:
            self.refused.append((name, reason))
            self._changed.notify_all()


def test_no_more_jobs_run_than_there_are_workers(make: Make) -> None:
    queue, work = make(3), Work()
    names = [f"job-{number}" for number in range(20)]
    for name in names:
        queue.submit(*work.job(name))
    work.wait_for_started(*names[:3])
    assert (sorted(work.started), queue.lengths()) == (names[:3], (17, 3))
    work.let_go(*names)
    work.wait_for_started(*names)
    work.wait_for_idle()
    assert (work.most, work.refused) == (3, [])


def test_jobs_start_in_the_order_they_came(make: Make) -> None:
    queue, work = make(1), Work()
    names = [f"job-{number}" for number in range(20)]
    work.let_go(*names)
    for name in names:
        queue.submit(*work.job(name, key=name))
    work.wait_for_started(*names)
    assert work.started == names


def test_jobs_of_one_key_run_one_after_the_other_and_others_pass_them(make: Make) -> None:
    queue, work = make(3), Work()
    for name, key in (("a1", "a"), ("a2", "a"), ("a3", "a"), ("b1", "b"), ("none", "")):
        queue.submit(*work.job(name, key))
    work.wait_for_started("a1", "b1", "none")
    assert "a2" not in work.started
    work.let_go("b1", "none", "a1")
    work.wait_for_started("a2")
    assert "a3" not in work.started
    work.let_go("a2", "a3")
    work.wait_for_started("a3")


def test_jobs_without_a_key_run_beside_each_other(make: Make) -> None:
    queue, work = make(2), Work()
    queue.submit(*work.job("one"))
    queue.submit(*work.job("two"))
    work.wait_for_started("one", "two")
    work.let_go("one", "two")


def test_a_thousand_jobs_of_fifty_keys_keep_the_order_of_each_key(make: Make) -> None:
    queue = make(8)
    guard = threading.Lock()
    order: dict[str, list[int]] = {}
    busy: set[str] = set()
    overlaps: list[str] = []
    done = threading.Semaphore(0)

    def job(key: str, number: int) -> Job:
        def run() -> None:
            with guard:
                overlaps.extend({key} & busy)
                busy.add(key)
            time.sleep(0)
            with guard:
                order.setdefault(key, []).append(number)
                busy.discard(key)
            done.release()

        return key, run, pytest.fail, float("inf")

    for number in range(1000):
        queue.submit(*job(f"key-{number % 50}", number))
    assert all(done.acquire(timeout=PATIENCE_S) for _ in range(1000))
    assert overlaps == []
    assert order == {f"key-{key}": list(range(key, 1000, 50)) for key in range(50)}


def test_a_job_that_waited_too_long_is_refused_and_never_starts(make: Make) -> None:
    queue, work = make(1), Work()
    queue.submit(*work.job("first"))
    work.wait_for_started("first")
    queue.submit(*work.job("patient"))
    queue.submit(*work.job("late", deadline=time.monotonic() + 0.05))
    submitted = time.monotonic()
    work.wait_for_refused(1)
    assert time.monotonic() - submitted < 5
    assert work.refused == [("late", "it waited too long for its turn")]
    work.let_go("first", "patient", "late")
    work.wait_for_started("patient")
    work.wait_for_idle()
    assert work.started == ["first", "patient"]


def test_a_job_is_not_taken_after_its_time(make: Make) -> None:
    """Even by a worker that is free at that moment."""
    queue, work = make(2), Work()
    queue.submit(*work.job("late", deadline=time.monotonic()))
    work.wait_for_refused(1)
    assert (work.started, queue.lengths()) == ([], (0, 0))


def test_the_nearest_deadline_counts_whichever_came_first(make: Make) -> None:
    queue, work = make(1), Work()
    queue.submit(*work.job("first"))
    work.wait_for_started("first")
    queue.submit(*work.job("later", deadline=time.monotonic() + 600))
    queue.submit(*work.job("sooner", deadline=time.monotonic() + 0.05))
    work.wait_for_refused(1)
    assert work.refused == [("sooner", "it waited too long for its turn")]
    work.let_go("first", "later")


def test_a_closed_queue_refuses_what_waits_and_what_comes_and_lets_running_jobs_end(make: Make) -> None:
    queue, work = make(1), Work()
    queue.submit(*work.job("running"))
    work.wait_for_started("running")
    queue.submit(*work.job("waiting"))
    queue.close("the end is near")
    queue.submit(*work.job("coming"))
    assert work.refused == [("waiting", "the end is near"), ("coming", "the end is near")]
    assert (queue.lengths(), queue.drain(0.05)) == ((0, 1), False)
    work.let_go("running")
    assert queue.drain(PATIENCE_S)
    assert (queue.lengths(), work.started) == ((0, 0), ["running"])


def test_a_signal_that_another_thread_gets_is_handled_by_the_one_that_drains(make: Make) -> None:
    """It does not end a wait for a lock: neither does one that comes just before that wait."""
    queue, work = make(1), Work()
    queue.submit(*work.job("running"))
    work.wait_for_started("running")
    worker = next(each.ident for each in threading.enumerate() if each.name == "worker-0")
    assert worker is not None
    before = signal.signal(signal.SIGUSR1, lambda *_: work.let_go("running"))
    try:
        sender = threading.Timer(0.1, signal.pthread_kill, (worker, signal.SIGUSR1))
        start = time.monotonic()
        sender.start()
        assert queue.drain(PATIENCE_S)
        assert time.monotonic() - start < PATIENCE_S / 2
        sender.join()
    finally:
        signal.signal(signal.SIGUSR1, before)


def test_a_job_that_raises_costs_no_worker(make: Make, log: RecordingLog) -> None:
    queue, work = make(1), Work()

    def fail(*_: object) -> None:
        raise ZeroDivisionError("a fault")

    queue.submit("a", fail, fail)
    queue.submit(*work.job("next", "a"))
    work.wait_for_started("next")
    queue.submit("", fail, fail)
    queue.submit(*work.job("other"))
    queue.close("over")
    assert work.refused == [("other", "over")]
    assert log.lines == [
        ("error", "queue.job.failed", {"error": "ZeroDivisionError: a fault"}),
        ("error", "queue.refusal.failed", {"error": "ZeroDivisionError: a fault"}),
    ]
    work.let_go("next")


def test_a_job_that_exits_costs_no_worker_either(make: Make, log: RecordingLog) -> None:
    queue, work = make(1), Work()

    def leave() -> None:
        raise SystemExit(3)

    queue.submit("a", leave, pytest.fail)
    queue.submit(*work.job("next", "a"))
    work.wait_for_started("next")
    assert log.lines == [("error", "queue.job.failed", {"error": "SystemExit: 3"})]
    work.let_go("next")


class Held:
    """Jobs that hold their worker beyond a limit until they are let go, and the error that each ends with."""

    def __init__(self, queue: WorkQueue, limit_s: float = 0.02) -> None:
        self.errors: list[TryAgainLaterError] = []
        self.ended = threading.Semaphore(0)
        self._queue = queue
        self._limit_s = limit_s
        self._go = threading.Event()

    def submit(self, key: str) -> None:
        self._queue.submit(key, lambda: self._run(key), pytest.fail)

    def let_go(self, count: int) -> None:
        self._go.set()
        assert all(self.ended.acquire(timeout=PATIENCE_S) for _ in range(count))

    def _run(self, key: str) -> None:
        try:
            with self._queue.limited(self._limit_s, f"delegate {key}", key):
                assert self._go.wait(PATIENCE_S)
        except TryAgainLaterError as exc:
            self.errors.append(exc)
        self.ended.release()


def wait_until(fact: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < end
        time.sleep(0.005)


def test_a_worker_that_is_held_too_long_is_replaced_until_it_comes_back(make: Make, log: RecordingLog) -> None:
    queue, work = make(1), Work()
    held = Held(queue)
    held.submit("stuck")
    queue.submit(*work.job("same key", "stuck"))
    queue.submit(*work.job("other"))
    work.wait_for_started("other")
    assert (work.started, queue.overdue()) == (["other"], 1)
    assert log.lines == [("error", "queue.worker.held", {"by": "delegate stuck", "seconds": "0.02", "replaced": True})]
    work.let_go("other", "same key")
    held.let_go(1)
    assert [exc.msg for exc in held.errors] == ["delegate stuck did not end within 0.02 s"]
    work.wait_for_started("same key")
    wait_until(lambda: len(queue._threads) == 2)  # a worker and the sweeper, as at first
    assert queue.overdue() == 0


def test_a_worker_that_waits_for_a_held_thread_is_replaced(make: Make, log: RecordingLog) -> None:
    """As the attachments of one pod may run side by side, in threads beside the worker's."""
    queue, work = make(1), Work()
    held = Held(queue)

    def side_by_side() -> None:
        beside = [threading.Thread(target=held._run, args=("stuck",)) for _ in range(2)]
        for each in beside:
            each.start()
        for each in beside:
            each.join(PATIENCE_S)

    queue.submit("stuck", side_by_side, pytest.fail)
    queue.submit(*work.job("other"))
    work.wait_for_started("other")
    wait_until(lambda: len(log.lines) == 2)
    assert (queue.overdue(), [fields["replaced"] for _, _, fields in log.lines]) == (2, [True, False])
    work.let_go("other")
    held.let_go(2)
    wait_until(lambda: len(queue._threads) == 2)


def test_no_more_workers_are_replaced_than_there_are(make: Make, log: RecordingLog) -> None:
    queue, work = make(1), Work()
    held = Held(queue)
    held.submit("one")
    held.submit("two")
    wait_until(lambda: len(log.lines) == 2)
    assert [fields["replaced"] for _, _, fields in log.lines] == [True, False]
    queue.submit(*work.job("waits"))
    assert (queue.overdue(), queue.lengths()) == (2, (1, 2))
    work.let_go("waits")
    held.let_go(2)
    work.wait_for_started("waits")
    wait_until(lambda: len(queue._threads) == 2)


def test_what_ends_within_its_limit_is_left_alone(make: Make, log: RecordingLog) -> None:
    queue = make(2)
    held, unlimited = Held(queue, limit_s=600), Held(queue, limit_s=0)
    for each in (held, unlimited):
        each.submit("quick")
        each.let_go(1)
    assert (held.errors, unlimited.errors, queue.overdue(), log.lines) == ([], [], 0, [])


def test_an_idle_queue_sleeps(make: Make) -> None:
    """Its threads wait to be told: a second of idleness costs no processor time worth naming."""
    queue, work = make(8), Work()
    queue.submit(*work.job("first", "first"))
    work.wait_for_started("first")
    queue.submit(*work.job("waits", "first", time.monotonic() + 600))
    time.sleep(0.3)  # until all have heard of it
    before = _switches(queue)
    time.sleep(0.5)
    assert _switches(queue) == before
    work.let_go("first", "waits")


def _switches(queue: WorkQueue) -> int:
    """How often the queue's threads have gone to sleep of their own will."""
    total = 0
    for thread in queue._threads:
        with open(f"/proc/self/task/{thread.native_id}/status", encoding="ascii") as file:
            total += sum(int(line.split()[1]) for line in file if line.startswith("voluntary_ctxt_switches"))
    return total


def test_stopping_does_not_wait_for_ever(log: RecordingLog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multus.adapters.work_queue._STOP_S", 0.5)
    queue, work = WorkQueue(8, log), Work()
    queue.start()
    names = [f"job-{number}" for number in range(8)]
    for name in names:
        queue.submit(*work.job(name))
    work.wait_for_started(*names)
    queue.close("over")
    start = time.monotonic()
    queue.stop()
    assert time.monotonic() - start < 8 * 0.5
    work.let_go(*names)
    work.wait_for_idle()
