"""DELs that shims left: taken up once at a time, dropped after success, kept and retried after failure."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from multus.core.intents import Replay
from multus.errors import DecodingError, IOFailureError
from multus.testing.fakes import FakeClock, FakeIntentStore, RecordingLog


class Node:
    """A store, a clock, and a server that serves when it is told to."""

    def __init__(self, **intents: bytes) -> None:
        self.store = FakeIntentStore(intents=intents)
        self.clock = FakeClock()
        self.log = RecordingLog()
        self.taken: list[bytes] = []
        self.pending: dict[bytes, Callable[[str], None]] = {}
        self.damaged: set[bytes] = set()
        self.replay = Replay(self.store, self._serve, self.clock, self.log)

    def _serve(self, body: bytes, served: Callable[[str], None]) -> None:
        if body in self.damaged:
            raise DecodingError("no request")
        self.taken.append(body)
        self.pending[body] = served

    def finish(self, body: bytes, problem: str = "") -> None:
        self.pending.pop(body)(problem)

    def sweep(self, after_s: float = 0) -> list[bytes]:
        """What a sweep takes up, some time later."""
        self.clock.now += after_s
        before = len(self.taken)
        self.replay.sweep()
        return self.taken[before:]


def test_every_intent_is_taken_up_in_order() -> None:
    node = Node(b=b"1", a=b"2")
    assert node.sweep() == [b"1", b"2"]


def test_an_intent_is_not_taken_up_again_while_it_is_served() -> None:
    node = Node(a=b"1")
    assert [node.sweep(), node.sweep(100)] == [[b"1"], []]


def test_an_intent_is_dropped_after_success_and_never_served_again() -> None:
    node = Node(a=b"1")
    node.sweep()
    assert node.store.waiting == {"a": b"1"}
    node.finish(b"1")
    assert (node.store.waiting, node.sweep(100), node.replay.pending()) == ({}, [], 0)
    assert node.log.lines == [("verbose", "intent.replayed", {"intent": "a"})]


def test_an_intent_that_is_served_while_the_folder_is_read_is_not_taken_up_again() -> None:
    """The names may be older than the end of the job."""
    node = Node(a=b"1")
    node.sweep()
    names = node.store.names

    def finish_meanwhile() -> list[str]:
        found = names()
        node.finish(b"1")
        return found

    node.store.names = finish_meanwhile  # type: ignore[method-assign]
    assert node.sweep() == []
    assert node.log.events("error") == []


def test_an_intent_that_failed_is_kept_and_retried_after_a_delay_that_grows_to_a_minute() -> None:
    node = Node(a=b"1")
    node.sweep()
    delays = []
    for _ in range(8):
        node.finish(b"1", "busy")
        waited = 0.0
        while node.sweep(1) == []:
            waited += 1
        delays.append(waited + 1)
    assert delays == [2, 4, 8, 16, 32, 60, 60, 60]
    assert node.log.lines[0] == ("error", "intent.failed", {"intent": "a", "times": 1, "error": "busy"})
    assert node.store.waiting == {"a": b"1"}


def test_an_intent_may_fail_for_months() -> None:
    node = Node(a=b"1")
    node.sweep()
    for _ in range(2000):
        node.finish(b"1", "busy")
        assert node.sweep(61) == [b"1"]


def test_success_after_failures_drops_the_intent() -> None:
    node = Node(a=b"1")
    node.sweep()
    node.finish(b"1", "busy")
    node.sweep(10)
    node.finish(b"1")
    assert (node.store.waiting, node.sweep(100)) == ({}, [])


def test_one_that_fails_holds_no_other_up() -> None:
    node = Node(a=b"1", b=b"2")
    node.sweep()
    node.finish(b"1", "busy")
    node.finish(b"2")
    assert node.store.waiting == {"a": b"1"}


def test_an_intent_that_cannot_be_dropped_is_served_again() -> None:
    node = Node(a=b"1")
    node.store.calls.fail("intents.drop", IOFailureError("read-only"))
    node.sweep()
    node.finish(b"1")
    assert node.log.lines == [("error", "intent.failed", {"intent": "a", "times": 1, "error": "read-only"})]
    assert [node.sweep(), node.sweep(3)] == [[], [b"1"]]


def test_an_intent_that_cannot_be_read_is_tried_later() -> None:
    node = Node(a=b"1")
    node.store.calls.fail("intents.read", IOFailureError("disk"))
    assert [node.sweep(), node.sweep(1), node.sweep(1)] == [[], [], [b"1"]]


def test_a_damaged_intent_is_put_aside_and_the_others_are_served() -> None:
    node = Node(a=b"x", b=b"2")
    node.damaged.add(b"x")
    assert node.sweep() == [b"2"]
    assert (node.store.aside, node.log.events("error")) == ({"a": b"x"}, ["intent.damaged"])


def test_a_damaged_intent_that_cannot_be_put_aside_is_not_tried_with_every_sweep() -> None:
    node = Node(a=b"x")
    node.damaged.add(b"x")
    node.store.calls.fail("intents.put_aside", IOFailureError("read-only"))
    node.sweep()
    node.sweep(1)
    assert node.log.events("error") == ["intent.damaged", "intent.failed"]
    node.sweep(1)
    assert node.store.aside == {"a": b"x"}


def test_a_folder_that_cannot_be_read_is_logged_once_until_it_can() -> None:
    node = Node(a=b"1")
    unreadable = IOFailureError("no such disk")
    node.store.calls.fail("intents.names", unreadable, unreadable, None, unreadable)
    assert [node.sweep(), node.sweep(), node.sweep(), node.sweep()] == [[], [], [b"1"], []]
    assert node.log.events("error") == ["intents.unreadable", "intents.unreadable"]


@pytest.mark.parametrize(("error", "expected"), [(None, 2), (IOFailureError("no such disk"), 0)])
def test_what_waits_is_counted_as_far_as_it_can_be_seen(error: IOFailureError | None, expected: int) -> None:
    node = Node(a=b"1", b=b"2")
    node.store.calls.fail("intents.names", error)
    assert node.replay.pending() == expected
