"""The informer against a scripted source: what it asks for, what it keeps, and how it goes on after each kind of end.

What a real connection adds, see tests/integration/test_kube_cache.py.
"""

from __future__ import annotations

import json
import threading
import time
import tracemalloc
from collections import deque
from collections.abc import Callable, Iterator
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest

from multus.adapters.kube_informer import Informer, Limits
from multus.errors import DecodingError, IOFailureError, MultusError, TryAgainLaterError
from multus.protocol import watches
from multus.testing.fakes import RecordingLog

PATIENCE_S = 10.0


class FakeStream:
    """Scripted chunks; then its end, an error, or silence until it is cut."""

    def __init__(
        self, *chunks: bytes, status: int = 200, retry_after: str = "", end: MultusError | None = None, open_end: bool = False
    ) -> None:
        self.status = status
        self.retry_after = retry_after
        self._chunks = chunks
        self._end = end
        self._open_end = open_end
        self.was_cut = threading.Event()
        self.is_closed = False

    def chunks(self) -> Iterator[bytes]:
        yield from self._chunks
        if self._open_end:
            self.was_cut.wait()
        if self._end is not None:
            raise self._end

    def cut(self) -> None:
        self.was_cut.set()

    def close(self) -> None:
        self.is_closed = True


class FakeSource:
    """Answers with what was scripted, in turn; after that, watches that stay silent."""

    def __init__(self, *script: FakeStream | MultusError) -> None:
        self.script = deque(script)
        self.asked: list[tuple[dict[str, str], float, float]] = []
        self.streams: list[FakeStream] = []
        self.renewals = 0
        self.is_closed = False

    def stream(self, target: str, limit_s: float, silence_s: float) -> FakeStream:
        self.asked.append((dict(parse_qsl(urlsplit(target).query)), limit_s, silence_s))
        each = self.script.popleft() if self.script else FakeStream(open_end=True)
        if isinstance(each, MultusError):
            raise each
        self.streams.append(each)
        return each

    def renew(self) -> None:
        self.renewals += 1

    def close(self) -> None:
        self.is_closed = True


class World:
    """One informer, its script, and its log."""

    def __init__(self, *script: FakeStream | MultusError, node: str = "n1", **limits: Any) -> None:
        self.source = FakeSource(*script)
        self.log = RecordingLog()
        limits = {"delay_factor": 0.001, "healthy_s": 60.0, **limits}
        self.informer = Informer(watches.pods(node), self.source, time, self.log, limits=Limits(**limits), fraction=lambda: 0.0)

    def __enter__(self) -> World:
        self.informer.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        self.informer.ask_to_stop()
        self.informer.join(PATIENCE_S)
        assert [thread.name for thread in threading.enumerate() if thread.name.startswith("informer")] == []
        assert all(stream.is_closed for stream in self.source.streams)

    def until(self, condition: Callable[[], bool], limit_s: float = PATIENCE_S) -> None:
        end = time.monotonic() + limit_s
        while not condition():
            assert time.monotonic() < end, (self.source.asked, self.log.lines)
            time.sleep(0.002)

    def until_idle(self) -> None:
        """Until the script has run out and the last, silent watch is on."""
        self.until(lambda: not self.source.script and bool(self.source.streams) and self.source.streams[-1]._open_end)

    def queries(self) -> list[dict[str, str]]:
        return [query for query, _, _ in self.source.asked]

    def versions(self) -> list[str]:
        """``list`` or ``watch`` of each request, with the version it asks for."""
        return [f"{'watch' if 'watch' in query else 'list'} {query.get('resourceVersion', '')}" for query in self.queries()]

    def uid(self, name: str = "web") -> str:
        document = self.informer.get("shop", name)
        return watches.uid_of(document) if document is not None else ""


def pod(version: int, uid: str = "u1", name: str = "web", node: str = "n1") -> dict[str, Any]:
    return {"metadata": {"namespace": "shop", "name": name, "uid": uid, "resourceVersion": str(version)}, "spec": {"nodeName": node}}


def listed(version: int, *items: dict[str, Any], token: str = "") -> FakeStream:
    metadata = {"resourceVersion": str(version), **({"continue": token} if token else {})}
    return FakeStream(json.dumps({"metadata": metadata, "items": items}).encode())


def event(kind: str, document: dict[str, Any]) -> bytes:
    return json.dumps({"type": kind, "object": document}).encode() + b"\n"


def bookmark(version: int) -> bytes:
    return event("BOOKMARK", {"metadata": {"resourceVersion": str(version)}})


def status(code: int) -> FakeStream:
    return FakeStream(json.dumps({"kind": "Status", "message": "no", "code": code}).encode(), status=code)


ENDED = TryAgainLaterError("connection reset")


def test_lists_then_watches_from_the_version_of_the_list() -> None:
    with World(listed(7, pod(5))) as world:
        assert world.informer.wait_until_synced(PATIENCE_S)
        world.until_idle()
        assert world.uid() == "u1"
        assert world.informer.size() == 1
        first, second = world.source.asked
        assert first == ({"fieldSelector": "spec.nodeName=n1", "limit": "500", "resourceVersion": "0"}, 10.0, 30.0)
        assert (second[0]["resourceVersion"], second[0]["timeoutSeconds"], second[2]) == ("7", "300", 330.0)


def test_pages_are_one_list() -> None:
    with World(listed(7, pod(5), token="t"), listed(7, pod(6, name="b"))) as world:
        world.until_idle()
        assert world.queries()[1] == {"fieldSelector": "spec.nodeName=n1", "limit": "500", "continue": "t"}
        assert world.informer.size() == 2


def test_nothing_is_known_before_the_last_page() -> None:
    with World(listed(7, pod(5), token="t"), FakeStream(open_end=True)) as world:
        world.until_idle()
        assert not world.informer.wait_until_synced(0.0)
        assert world.informer.size() == 0


def test_events_are_taken_in_wherever_the_chunks_are_cut() -> None:
    script = event("ADDED", pod(8)) + event("ADDED", pod(9, name="b")) + event("MODIFIED", pod(10, name="c")) + event("DELETED", pod(11))
    pieces = [script[start : start + 7] for start in range(0, len(script), 7)]
    with World(listed(7), FakeStream(*pieces, b"\n")) as world:
        world.until_idle()
        assert [world.uid(name) for name in ("web", "b", "c")] == ["", "u1", "u1"]
        assert world.versions() == ["list 0", "watch 7", "watch 11"]


def test_a_bookmark_moves_the_version_only() -> None:
    with World(listed(7, pod(5)), FakeStream(bookmark(20))) as world:
        world.until_idle()
        assert world.versions()[-1] == "watch 20"
        assert world.informer.size() == 1


@pytest.mark.parametrize("kind", ["ADDED", "MODIFIED"])
def test_an_older_event_does_not_undo_a_newer_object(kind: str) -> None:
    with World(listed(7, pod(7, "new")), FakeStream(event(kind, pod(6, "old")))) as world:
        world.until_idle()
        assert world.uid() == "new"


def test_the_end_of_a_pod_does_not_take_its_successor() -> None:
    with World(listed(7, pod(9, "new")), FakeStream(event("DELETED", pod(8, "old")), event("DELETED", pod(8, name="none")))) as world:
        world.until_idle()
        assert world.uid() == "new"


def test_deleted_and_created_again_is_another_pod() -> None:
    with World(listed(7, pod(5, "old")), FakeStream(event("DELETED", pod(8, "old")), event("ADDED", pod(9, "new")))) as world:
        world.until_idle()
        assert world.uid() == "new"


def test_an_unknown_kind_of_event_is_passed_over() -> None:
    with World(listed(7), FakeStream(event("CHANGED", pod(8)))) as world:
        world.until_idle()
        assert (world.informer.size(), world.versions()[-1]) == (0, "watch 8")


@pytest.mark.parametrize("end", [FakeStream(end=ENDED), ENDED, IOFailureError("no key"), status(500), status(429), status(403)])
def test_a_watch_that_fails_is_renewed_from_where_it_was_and_the_objects_stay(end: FakeStream | MultusError) -> None:
    with World(listed(7, pod(5)), end, status(503)) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "watch 7", "watch 7"]
        assert world.uid() == "u1"


@pytest.mark.parametrize("gone", [status(410), FakeStream(event("ERROR", {"kind": "Status", "code": 410, "metadata": {}}))])
def test_a_version_that_is_gone_leads_to_a_list_of_nothing_older(gone: FakeStream) -> None:
    with World(listed(7, pod(5)), gone, listed(30, pod(25, "new"))) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "list 7", "watch 30"]
        assert world.queries()[2]["resourceVersionMatch"] == "NotOlderThan"
        assert world.uid() == "new"


@pytest.mark.parametrize("code", [410, 504])
def test_a_list_of_that_version_that_cannot_be_had_is_asked_for_anew(code: int) -> None:
    with World(listed(7, pod(5)), status(410), status(code), listed(30)) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "list 7", "list ", "watch 30"]
        assert world.uid() == ""


def test_an_expired_page_starts_the_list_anew() -> None:
    with World(listed(7, pod(5), token="t"), status(410), listed(9, pod(8, "new"))) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "list ", "list ", "watch 9"]
        assert world.informer.size() == 1


def test_an_error_event_without_a_code_ends_the_watch_only() -> None:
    with World(listed(7), FakeStream(event("ERROR", {"message": "x"}))) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "watch 7"]


@pytest.mark.parametrize("line", [b"garbage\n", b'{"type": "ADDED"}\n'])
def test_garbage_leads_to_a_list(line: bytes) -> None:
    with World(listed(7), FakeStream(line), listed(9)) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "list 7", "watch 9"]


def test_a_list_that_is_no_list_is_tried_again() -> None:
    with World(FakeStream(b"<html>"), listed(9)) as world:
        assert world.informer.wait_until_synced(PATIENCE_S)
        assert world.log.events("warning")[0] == "kube.watch.failed"


def test_half_an_event_at_the_end_is_told_and_got_again() -> None:
    with World(listed(7), FakeStream(b'{"type": "ADD'), FakeStream(event("ADDED", pod(8)))) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "watch 7", "watch 8"]
        assert world.uid() == "u1"


def test_an_event_or_a_list_without_end_is_given_up() -> None:
    script = FakeStream(b" " * 300), listed(7), FakeStream(b"x" * 30), listed(8)
    with World(*script, max_event_bytes=20, max_list_bytes=200) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "list 0", "watch 7", "list 7", "watch 8"]


def test_credentials_are_read_again_after_a_401() -> None:
    with World(status(401), status(401), listed(7)) as world:
        world.until_idle()
        assert world.source.renewals == 2


def attempts(world: World) -> list[object]:
    return [fields["attempt"] for _, name, fields in world.log.lines if name == "kube.watch.failed"]


def test_failures_in_a_row_are_counted_and_the_first_alone_is_a_warning() -> None:
    with World(status(500), status(500), ENDED, listed(7), ENDED) as world:
        world.until_idle()
        assert attempts(world) == [1, 2, 3, 4]
        assert world.log.events("warning") == ["kube.watch.failed", "kube.watch.recovered"]
        assert len(world.log.events("verbose")) == 3


def test_lists_that_always_lead_to_a_version_that_is_gone_are_made_ever_more_seldom() -> None:
    with World(listed(7), status(410), listed(8), status(410), listed(9), status(410), listed(10)) as world:
        world.until_idle()
        assert attempts(world) == [1, 2, 3]


def test_a_watch_that_brought_news_ends_a_row_of_failures() -> None:
    with World(listed(7), ENDED, ENDED, FakeStream(bookmark(8), end=ENDED)) as world:
        world.until_idle()
        assert attempts(world) == [1, 2, 1]


def test_watches_that_end_at_once_with_nothing_are_no_busy_loop() -> None:
    ends = [FakeStream() for _ in range(6)]
    started = time.monotonic()
    with World(listed(7), *ends, delay_factor=0.01) as world:
        world.until_idle()
    assert time.monotonic() - started > 0.01 * (0.5 + 1 + 2 + 4 + 8 + 16)


def test_a_watch_that_lasted_is_renewed_at_once() -> None:
    with World(listed(7), FakeStream(), FakeStream(), delay_factor=1000.0, healthy_s=0.0) as world:
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "watch 7", "watch 7"]


def test_the_delay_that_the_server_asks_for_is_kept() -> None:
    busy = FakeStream(status=429, retry_after="3")
    started = time.monotonic()
    with World(busy, listed(7), delay_factor=0.1) as world:
        assert world.informer.wait_until_synced(PATIENCE_S)
        assert time.monotonic() - started >= 0.3


def test_waiting_ends_when_the_object_arrives() -> None:
    held = FakeStream(open_end=True)
    with World(listed(7, pod(5, "old")), held) as world:
        world.until_idle()
        threading.Timer(0.05, world.informer.offer, (pod(8, "new"),)).start()
        found = world.informer.wait_for("shop", "web", lambda document: watches.uid_of(document) == "new", PATIENCE_S)
        assert found is not None
        assert watches.uid_of(found) == "new"


def test_waiting_ends_with_its_limit() -> None:
    with World(listed(7)) as world:
        world.until_idle()
        started = time.monotonic()
        assert world.informer.wait_for("shop", "web", lambda _: True, 0.1) is None
        assert 0.1 <= time.monotonic() - started < 5


def test_waiting_ends_with_the_watch() -> None:
    held = FakeStream(open_end=True, end=ENDED)
    with World(listed(7), held, delay_factor=1000.0) as world:
        world.until(lambda: len(world.source.streams) == 2)
        world.until_idle()
        threading.Timer(0.05, held.cut).start()
        started = time.monotonic()
        assert world.informer.wait_for("shop", "web", lambda _: True, PATIENCE_S) is None
        assert time.monotonic() - started < PATIENCE_S / 2


def test_nobody_waits_without_a_watch() -> None:
    started = time.monotonic()
    assert World().informer.wait_for("shop", "web", lambda _: True, PATIENCE_S) is None
    assert time.monotonic() - started < PATIENCE_S / 2


def test_a_live_object_is_taken_in_if_the_watch_will_tell_of_its_end() -> None:
    with World(listed(7, pod(5, "old"))) as world:
        world.until_idle()
        world.informer.offer(pod(7, "not newer than what the watch has told"))
        world.informer.offer(pod(8, "of another node", node="n2"))
        assert world.uid() == "old"
        world.informer.offer({**pod(8, "new"), "status": {"phase": "Running", "conditions": []}})
        assert world.informer.get("shop", "web") == {**pod(8, "new"), "status": {"phase": "Running"}}


def test_a_live_object_of_another_node_is_told_because_it_costs_every_request_a_second() -> None:
    world = World(node="n1")
    world.informer.offer(pod(8, node="n2"))
    level, event, fields = world.log.lines[-1]
    assert (level, event, fields["of"], fields["cached"]) == ("warning", "kube.cache.other_node", "n2", "n1")
    assert "MULTUS_NODE_NAME" in str(fields["problem"])


def test_a_live_object_is_not_taken_in_before_the_first_list() -> None:
    world = World()
    world.informer.offer(pod(8))
    assert world.informer.size() == 0


def test_age_counts_from_the_last_sign_of_life() -> None:
    with World(listed(7), FakeStream(bookmark(8))) as world:
        world.until_idle()
        young = world.informer.age_s()
        time.sleep(0.05)
        assert 0.0 <= young < world.informer.age_s() < PATIENCE_S


def test_stop_cuts_a_silent_watch_and_closes_the_source() -> None:
    with World(listed(7, pod(5))) as world:
        world.until_idle()
        started = time.monotonic()
        world.stop()
        assert time.monotonic() - started < 5
        assert world.source.is_closed
        assert (world.uid(), world.log.events("warning")) == ("u1", [])


def test_stop_interrupts_the_delay_after_a_failure() -> None:
    with World(ENDED, delay_factor=1000.0) as world:
        world.until(lambda: "kube.watch.failed" in world.log.events())
        started = time.monotonic()
        world.stop()
        assert time.monotonic() - started < 5


def test_stop_while_a_watch_is_opened_cuts_it() -> None:
    world = World(listed(7), FakeStream(b'{"half', open_end=True, end=ENDED))
    opened = world.source.stream

    def stop_meanwhile(target: str, limit_s: float, silence_s: float) -> FakeStream:
        stream = opened(target, limit_s, silence_s)
        if "watch" in target:
            world.informer.ask_to_stop()
        return stream

    world.source.stream = stop_meanwhile  # type: ignore[method-assign]
    with world:
        world.informer.join(PATIENCE_S)
        assert [world.source.is_closed, world.log.events("warning")] == [True, []]


def test_stopping_what_never_ran_is_fine() -> None:
    World().stop()


def test_five_thousand_updates_leave_memory_as_it_was() -> None:
    class Storm(FakeStream):
        def chunks(self) -> Iterator[bytes]:
            for version in range(100, 5100):
                document = pod(version, name=f"pod-{version % 50}")
                document["metadata"]["managedFields"] = [{"manager": f"{version}-{index}"} for index in range(5)]
                yield event("MODIFIED", document)
                if version == 200:
                    tracemalloc.start()
            weights.append(tracemalloc.get_traced_memory()[0])
            tracemalloc.stop()

    weights: list[int] = []
    with World(listed(7), Storm()) as world:
        world.until(lambda: bool(weights), 60.0)
        world.until_idle()
        assert world.informer.size() == 50
        assert world.versions()[-1] == "watch 5099"
    assert weights[0] < 500_000


def test_error_of_the_source_that_is_ours_is_told_in_its_words() -> None:
    with World(DecodingError("cannot read token"), listed(7)) as world:
        world.until_idle()
        assert world.log.lines[0][2]["error"] == "cannot read token"


def test_renewing_opens_the_watch_anew_without_a_word_and_goes_on_where_it_was() -> None:
    script = FakeStream(event("MODIFIED", pod(9, "u2")), open_end=True, end=ENDED)
    with World(listed(7, pod(5)), script) as world:
        world.until(lambda: world.uid() == "u2")
        world.informer.renew()
        world.until(lambda: len(world.source.asked) == 3)
        world.until_idle()
        assert world.versions() == ["list 0", "watch 7", "watch 9"]
        assert (world.uid(), world.log.events("warning"), world.log.events("verbose")) == ("u2", [], [])


def test_renewing_while_nothing_is_open_ends_what_was_opened_with_what_was_read_before() -> None:
    """The connection may have been made with the old credentials: it is not known when they were read."""
    world = World(listed(7, pod(5)))
    opening, opened = threading.Event(), threading.Event()
    stream = world.source.stream

    def slow(target: str, limit_s: float, silence_s: float) -> FakeStream:
        if len(world.source.asked) == 1:  # the first watch
            opening.set()
            opened.wait(PATIENCE_S)
        return stream(target, limit_s, silence_s)

    world.source.stream = slow  # type: ignore[method-assign]
    with world:
        assert opening.wait(PATIENCE_S)
        world.informer.renew()
        opened.set()
        world.until(lambda: len(world.source.asked) == 3)
        assert world.versions() == ["list 0", "watch 7", "watch 7"]


def test_renewing_ends_the_delay_after_a_failure() -> None:
    """The failure may be that of the credentials."""
    with World(status(401), delay_factor=1000.0) as world:
        world.until(lambda: len(world.source.asked) == 1 and "kube.watch.failed" in world.log.events())
        world.informer.renew()
        world.until_idle()
        assert len(world.source.asked) == 2


def test_changes_are_counted_for_those_who_wait_for_one() -> None:
    with World(listed(7, pod(5)), FakeStream(event("ADDED", pod(8, name="b")), open_end=True)) as world:
        world.until(lambda: world.informer.size() == 2)
        count = world.informer.wait_for_change(0, PATIENCE_S)
        assert count == world.informer.wait_for_change(1, PATIENCE_S) == 2
        assert world.informer.wait_for_change(count, 0.01) == count
        assert sorted(document["metadata"]["name"] for document in world.informer.objects()) == ["b", "web"]
