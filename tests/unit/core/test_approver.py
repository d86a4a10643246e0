"""The approver against an API server in memory: what it answers, in which order, and what it does when that fails."""

from __future__ import annotations

from typing import Any

import pytest

from multus.core.approver import ATTEMPTS, RESYNC_S, Approver
from multus.errors import DecodingError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol import signing_requests
from multus.testing.fakes import FakeClock, RecordingLog
from multus.types.certificates import RequestContent, SigningRequest

GOOD = RequestContent(("system:multus:w1",), ("system:multus",))


class World:
    """Requests by name, what was done to them, and failures that are due."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.log = RecordingLog()
        self.documents: dict[str, dict[str, Any]] = {}
        self.done: list[tuple[str, ...]] = []
        self.failures: dict[str, list[MultusError]] = {}
        self.content: dict[bytes, RequestContent] = {}
        self.approver = Approver(self, self._parse, self.clock, self.log)
        self._version = 0

    def add(self, name: str = "csr-1", content: RequestContent | None = GOOD, **spec: Any) -> None:
        """A request that is approved as it is; ``content`` None: its PKCS #10 cannot be read."""
        document = signing_requests.new(name.encode(), 600)
        metadata = {"name": name, "uid": f"uid-{name}"}
        given = {"username": "system:node:w1", "groups": ["system:nodes"], **spec}
        self.documents[name] = {**document, "metadata": metadata, "spec": {**document["spec"], **given}}  # type: ignore[dict-item]
        if content is not None:
            self.content[name.encode()] = content
        self.touch(name)

    def touch(self, name: str) -> None:
        self._version += 1
        self.documents[name]["metadata"]["resourceVersion"] = str(self._version)

    def sweep(self) -> float:
        return self.approver.sweep([signing_requests.from_document(document) for document in self.documents.values()])

    def conditions(self, name: str = "csr-1") -> list[tuple[str, str]]:
        found = self.documents[name].get("status", {}).get("conditions", [])
        return [(condition["type"], condition["reason"]) for condition in found]

    def fail(self, what: str, *errors: MultusError) -> None:
        self.failures.setdefault(what, []).extend(errors)

    # the calls

    def read(self, name: str) -> dict[str, Any]:
        self._call("read", name)
        if name not in self.documents:
            raise ObjectNotFoundError(f"{name} not found")
        return self.documents[name]

    def update_approval(self, name: str, document: Any) -> None:
        self._call("approval", name)
        if document["metadata"]["resourceVersion"] != self.documents[name]["metadata"]["resourceVersion"]:
            raise TryAgainLaterError("conflict")
        self.documents[name] = {**document, "metadata": dict(document["metadata"])}
        self.touch(name)

    def create_event(self, about: SigningRequest, kind: str, reason: str, message: str) -> None:
        self._call("event", about.name, kind, reason)

    def _call(self, *what: str) -> None:
        self.done.append(what)
        if self.failures.get(what[0]):
            raise self.failures[what[0]].pop(0)

    def _parse(self, request: bytes) -> RequestContent:
        if request not in self.content:
            raise DecodingError("no PKCS #10")
        return self.content[request]


@pytest.fixture
def world() -> World:
    return World()


def test_a_good_request_is_approved_and_then_told(world: World) -> None:
    world.add()
    world.sweep()
    assert world.conditions() == [("Approved", "AutoApproved")]
    assert world.done == [("read", "csr-1"), ("approval", "csr-1"), ("event", "csr-1", "Normal", "CSRApproved")]


def test_a_bad_request_is_denied_by_the_same_way(world: World) -> None:
    world.add(groups=["system:masters"])
    world.sweep()
    assert world.conditions() == [("Denied", "CSRDenied")]
    assert world.done == [("read", "csr-1"), ("approval", "csr-1"), ("event", "csr-1", "Warning", "CSRDenied")]
    message = world.documents["csr-1"]["status"]["conditions"][0]["message"]
    assert message.startswith('group "system:masters" of the user')


def test_what_is_decided_is_left_alone(world: World) -> None:
    world.add()
    for _ in range(3):
        world.sweep()
    assert len(world.done) == 3


@pytest.mark.parametrize(
    "fields", [{"signerName": "kubernetes.io/kubelet-serving"}, {"content": RequestContent(("system:node:w1",), ())}, {"content": None}]
)
def test_requests_of_others_are_left_alone(world: World, fields: dict[str, Any]) -> None:
    world.add(**fields)
    world.sweep()
    assert world.done == []


def test_a_request_that_is_gone_is_done(world: World) -> None:
    world.add()
    world.fail("read", ObjectNotFoundError("gone"))
    world.sweep()
    assert (world.log.events("error"), world.done) == ([], [("read", "csr-1")])


def test_a_request_of_the_same_name_is_another_one(world: World) -> None:
    world.add()
    stale = signing_requests.from_document(world.documents["csr-1"])._replace(uid="before")
    world.approver.sweep([stale])
    assert world.done == [("read", "csr-1")]
    world.sweep()
    assert world.conditions() == [("Approved", "AutoApproved")]


def test_nothing_is_told_before_it_is_done(world: World) -> None:
    world.add()
    world.fail("approval", TryAgainLaterError("busy"))
    world.sweep()
    assert world.done == [("read", "csr-1"), ("approval", "csr-1")]


def test_a_failure_is_tried_again_on_the_object_as_it_is_then(world: World) -> None:
    """A conflict: somebody else has changed the object; in the meantime, he may even have denied it."""
    world.add()
    world.fail("approval", TryAgainLaterError("conflict"))
    assert world.sweep() == 1.0
    world.documents["csr-1"]["status"] = {"conditions": [{"type": "Denied", "reason": "ByHand"}]}
    world.touch("csr-1")
    world.clock.sleep(1.0)
    world.sweep()
    assert world.conditions() == [("Denied", "ByHand")]
    assert [what for what, *_ in world.done] == ["read", "approval"]


def test_tries_end_and_begin_again_with_the_resync(world: World) -> None:
    world.add()
    world.fail("read", *[TryAgainLaterError("busy")] * ATTEMPTS)
    delays = []
    for _ in range(ATTEMPTS):
        delays.append(world.sweep())
        world.clock.sleep(delays[-1] if delays[-1] < 60 else 60)
    assert delays[:-1] == [1.0, 2.0, 4.0, 8.0, 16.0]
    assert (world.log.events("error")[-1], len(world.done)) == ("request.given_up", ATTEMPTS)
    world.sweep()
    assert len(world.done) == ATTEMPTS
    world.clock.sleep(RESYNC_S)
    world.sweep()
    assert world.conditions() == [("Approved", "AutoApproved")]


def test_what_was_given_up_is_taken_up_when_it_changes(world: World) -> None:
    world.add(username="admin")
    for _ in range(ATTEMPTS):
        world.sweep()
        world.clock.sleep(16.0)
    assert len(world.done) == ATTEMPTS
    world.documents["csr-1"]["spec"]["username"] = "system:node:w1"
    world.touch("csr-1")
    world.sweep()
    assert world.conditions() == [("Approved", "AutoApproved")]


def test_an_event_that_fails_changes_nothing(world: World) -> None:
    world.add()
    world.fail("event", TryAgainLaterError("busy"))
    world.sweep()
    assert (world.conditions(), world.log.events("error")) == ([("Approved", "AutoApproved")], ["event.failed"])
    world.sweep()
    assert len(world.done) == 3


def test_one_failure_holds_up_nobody(world: World) -> None:
    world.add("csr-1")
    world.add("csr-2")
    world.fail("read", TryAgainLaterError("busy"))
    world.sweep()
    assert (world.conditions("csr-1"), world.conditions("csr-2")) == ([], [("Approved", "AutoApproved")])


def test_a_stop_is_seen_before_each_request(world: World) -> None:
    world.add("csr-1")
    world.add("csr-2")
    requests = [signing_requests.from_document(document) for document in world.documents.values()]
    world.approver.sweep(requests, lambda: bool(world.done))
    assert (world.conditions("csr-1"), world.conditions("csr-2")) == ([("Approved", "AutoApproved")], [])


def test_nothing_is_remembered_of_what_is_gone(world: World) -> None:
    world.add()
    world.fail("approval", TryAgainLaterError("busy"))
    world.sweep()
    del world.documents["csr-1"]
    assert world.sweep() == pytest.approx(RESYNC_S)
