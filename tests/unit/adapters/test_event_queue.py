"""Events sent behind the answer: never blocking, counted when they repeat, given up when nobody takes them."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

import pytest

from multus.adapters.event_queue import CAPACITY, EventQueue
from multus.errors import TryAgainLaterError
from multus.testing.fakes import FakeKube, RecordingLog
from multus.types.pod import Node, Pod

WEB, DB = Pod("shop", "web", "u1"), Pod("shop", "db", "u2")
PATIENCE_S = 20.0


class GatedKube(FakeKube):
    """Takes events once its gate is open."""

    def __init__(self) -> None:
        super().__init__()
        self.gate = threading.Event()
        self.asked = threading.Event()

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        self.asked.set()
        assert self.gate.wait(PATIENCE_S)
        super().create_event(about, kind, reason, message)


@pytest.fixture
def kube() -> GatedKube:
    return GatedKube()


@pytest.fixture
def queue(kube: GatedKube) -> EventQueue:
    """Busy with one event until the gate opens, so that others wait."""
    queue = EventQueue(kube, RecordingLog())
    queue.start()
    queue.create_event(WEB, "Normal", "First", "first")
    assert kube.asked.wait(PATIENCE_S)
    return queue


def finish(queue: EventQueue, kube: GatedKube) -> list[tuple[str, str, str]]:
    kube.gate.set()
    queue.stop(PATIENCE_S)
    assert not any(thread.name == "events" for thread in threading.enumerate())
    return kube.events[1:]


def test_events_go_out_in_order_and_stopping_sends_what_waits(kube: GatedKube, queue: EventQueue) -> None:
    for number in range(5):
        queue.create_event(WEB, "Normal", "AddedInterface", f"net{number}")
    assert finish(queue, kube) == [("Normal", "AddedInterface", f"net{number}") for number in range(5)]
    assert queue.dropped() == 0


def test_telling_an_event_takes_no_time_while_the_api_server_is_slow(kube: GatedKube, queue: EventQueue) -> None:
    start = time.monotonic()
    queue.create_event(WEB, "Normal", "AddedInterface", "net1")
    assert time.monotonic() - start < 1
    finish(queue, kube)


def test_an_event_that_repeats_while_it_waits_is_sent_once_with_its_count(kube: GatedKube, queue: EventQueue) -> None:
    for message in ("net1", "net2", "net1", "net1"):
        queue.create_event(WEB, "Warning", "Failed", message)
    assert finish(queue, kube) == [("Warning", "Failed", "net1 (3 times)"), ("Warning", "Failed", "net2")]


@pytest.mark.parametrize(
    "other", [(DB, "Normal", "R", "m"), (WEB, "Warning", "R", "m"), (WEB, "Normal", "S", "m"), (WEB, "Normal", "R", "n")]
)
def test_events_that_differ_in_anything_are_not_counted_together(
    kube: GatedKube, queue: EventQueue, other: tuple[Pod, str, str, str]
) -> None:
    queue.create_event(WEB, "Normal", "R", "m")
    queue.create_event(*other)
    assert len(finish(queue, kube)) == 2


def test_a_full_queue_gives_up_the_oldest_and_counts_them(kube: GatedKube, queue: EventQueue) -> None:
    queue.create_event(WEB, "Normal", "R", "0")
    for number in range(CAPACITY + 2):
        queue.create_event(WEB, "Normal", "R", str(number))
    assert queue.dropped() == 3
    sent = finish(queue, kube)
    assert (len(sent), sent[0], sent[-1]) == (CAPACITY, ("Normal", "R", "2"), ("Normal", "R", str(CAPACITY + 1)))


def test_an_event_that_cannot_be_sent_is_logged_and_the_next_goes_out() -> None:
    kube, log = GatedKube(), RecordingLog()
    kube.calls.fail("kube.create_event", TryAgainLaterError("away"))
    queue = EventQueue(kube, log)
    queue.start()
    queue.create_event(WEB, "Normal", "R", "lost")
    assert kube.asked.wait(PATIENCE_S)
    queue.create_event(WEB, "Normal", "R", "sent")
    kube.gate.set()
    queue.stop(PATIENCE_S)
    assert (kube.events, queue.dropped()) == ([("Normal", "R", "sent")], 1)
    (level, event, fields), = log.lines
    assert (level, event, fields["about"], str(fields["error"])) == ("error", "event.failed", WEB, "away")


def test_stopping_waits_no_longer_than_it_may(kube: GatedKube, queue: EventQueue) -> None:
    start = time.monotonic()
    queue.stop(0.05)
    assert time.monotonic() - start < 5
    finish(queue, kube)


def test_an_event_after_a_pause_is_sent(kube: GatedKube, queue: EventQueue) -> None:
    kube.gate.set()
    _wait_for(lambda: len(kube.events) == 1)
    queue.create_event(WEB, "Normal", "R", "later")
    assert finish(queue, kube) == [("Normal", "R", "later")]


def _wait_for(predicate: Callable[[], bool]) -> None:
    end = time.monotonic() + PATIENCE_S
    while not predicate():
        assert time.monotonic() < end
        time.sleep(0.005)
