"""One certificate that never runs out: when it is renewed, as whom, and what happens when that fails."""

from __future__ import annotations

import base64
from typing import Any

import pytest

from multus.core.certificates import SIGNING_LIMIT_S, CertificateManager
from multus.errors import ForbiddenError, InvalidConfigError, IOFailureError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.testing.fakes import FakeClock, RecordingLog
from multus.types.certificates import Certificate, Identity, SigningRequest, node_identity

W1 = node_identity("w1")


class World:
    """A store, an API server and a clock in memory.  A pair is ``<common name> <from> <to>``, and its key."""

    def __init__(self, fraction: float = 0.5) -> None:
        self.clock = FakeClock(1_000_000.0)
        self.log = RecordingLog()
        self.stored: list[bytes | MultusError] = []
        self.calls: list[str] = []
        self.lifetime_s = 1000.0
        self.statuses: list[dict[str, Any] | MultusError] = []
        """What a request's status is, look by look; after that it is signed."""
        self.refusals: dict[str, MultusError] = {}
        """By identity: why it may not create a request."""
        self.signed_name = W1.common_name
        self.renewals = 0
        self.told: list[str] = []
        self.is_stopping = False
        self.opened = 0
        self.manager = CertificateManager(
            W1, 600, self, self, lambda: Calls(self, "own"), lambda: Calls(self, "bootstrap"), self._pause, self.clock, self.log,
            on_renewed=self._renewed, on_failed=self.told.append, fraction=lambda: fraction,
        )  # fmt: skip

    def put(self, start: float, end: float, name: str = W1.common_name) -> None:
        """Store a certificate; times are seconds from now."""
        self.stored.append(f"{name} {self.clock.now + start} {self.clock.now + end}\nKEY".encode())

    # store

    def read(self) -> bytes:
        if not self.stored:
            raise TryAgainLaterError("there is none yet")
        last = self.stored[-1]
        if isinstance(last, MultusError):
            raise last
        return last

    def replace(self, pair: bytes) -> None:
        self.stored.append(pair)

    # keys

    def new_request(self, identity: Identity) -> tuple[bytes, bytes]:
        assert identity == W1
        return b"KEY", b"REQUEST"

    def certificate(self, pair: bytes) -> Certificate:
        text, _, key = pair.decode().partition("\n")
        if key != "KEY":
            raise InvalidConfigError("its key is that of another certificate")
        name, start, end = text.split()
        return Certificate(Identity(name), float(start), float(end))

    def _pause(self, seconds: float) -> bool:
        self.clock.sleep(seconds)
        return self.is_stopping

    def _renewed(self) -> None:
        self.renewals += 1


class Calls:
    def __init__(self, world: World, who: str) -> None:
        self.world = world
        self.who = who
        world.opened += 1

    def create(self, request: bytes, expiration_s: int) -> SigningRequest:
        self.world.calls.append(f"{self.who} create")
        assert (request, expiration_s) == (b"REQUEST", 600)
        if self.who in self.world.refusals:
            raise self.world.refusals[self.who]
        return SigningRequest("csr-1")

    def read(self, name: str) -> dict[str, Any]:
        world = self.world
        world.calls.append(f"{self.who} read")
        status = world.statuses.pop(0) if world.statuses else signed(world)
        if isinstance(status, MultusError):
            raise status
        return {"metadata": {"name": name}, "status": status}

    def close(self) -> None:
        self.world.opened -= 1


def signed(world: World) -> dict[str, Any]:
    text = f"{world.signed_name} {world.clock.now} {world.clock.now + world.lifetime_s}\n"
    return {"certificate": base64.b64encode(text.encode()).decode()}


def condition(kind: str, reason: str = "", message: str = "") -> dict[str, Any]:
    return {"conditions": [{"type": kind, "reason": reason, "message": message}]}


@pytest.fixture
def world() -> World:
    return World()


# --- When ---


def test_without_one_it_is_asked_for_at_once_with_the_bootstrap_identity(world: World) -> None:
    assert world.manager.seconds_left() == 0.0
    due_s = world.manager.step()
    assert world.calls == ["bootstrap create", "bootstrap read"]
    assert (due_s, world.manager.seconds_left(), world.renewals, world.manager.problem) == (800.0, 1000.0, 1, "")
    assert world.stored[-1] == f"{W1.common_name} 1000000.0 1001000.0\nKEY".encode()


@pytest.mark.parametrize(("fraction", "due_s"), [(0.0, 700.0), (0.5, 800.0), (1.0, 900.0)])
def test_it_is_due_between_70_and_90_percent_of_its_life(fraction: float, due_s: float) -> None:
    world = World(fraction)
    world.put(0, 1000)
    assert (world.manager.step(), world.calls) == (pytest.approx(due_s), [])


def test_a_life_that_began_before_counts_from_its_beginning(world: World) -> None:
    world.put(-300, 700)
    assert (world.manager.step(), world.manager.seconds_left()) == (pytest.approx(500.0), 700.0)


def test_the_time_is_drawn_once_for_a_certificate() -> None:
    drawn = iter([0.0, 1.0])
    world = World()
    world.manager._fraction = lambda: next(drawn)
    world.put(0, 1000)
    assert [round(world.manager.step()), round(world.manager.step())] == [700, 700]


def test_when_it_is_due_it_is_renewed_with_itself(world: World) -> None:
    world.put(-850, 150)
    world.manager.step()
    assert world.calls == ["own create", "own read"]
    assert world.manager.seconds_left() == 1000.0


def test_one_that_is_over_is_renewed_by_the_bootstrap_identity(world: World) -> None:
    world.put(-1000, 0)
    world.manager.step()
    assert world.calls[0] == "bootstrap create"


def test_one_of_another_name_is_renewed_at_once(world: World) -> None:
    world.put(0, 1000, "system:multus:w2")
    world.manager.step()
    assert (world.calls[0], world.manager.seconds_left()) == ("bootstrap create", 1000.0)


def test_one_that_others_put_there_is_taken(world: World) -> None:
    world.manager.step()
    world.put(0, 5000)
    assert world.manager.step() == pytest.approx(4000.0)
    assert world.manager.seconds_left() == 5000.0


# --- As whom ---


@pytest.mark.parametrize("refusal", [ForbiddenError("401"), MultusError("the server's certificate is not trusted"), IOFailureError("gone")])
def test_the_bootstrap_identity_asks_where_the_own_one_is_refused(world: World, refusal: MultusError) -> None:
    world.put(-850, 150)
    world.refusals["own"] = refusal
    world.manager.step()
    assert world.calls == ["own create", "bootstrap create", "bootstrap read"]
    assert (world.renewals, world.log.events("warning")) == (1, ["certificate.own.refused"])


def test_a_server_that_does_not_answer_is_not_asked_as_another(world: World) -> None:
    world.put(-850, 150)
    world.refusals["own"] = TryAgainLaterError("down")
    world.manager.step()
    assert world.calls == ["own create"]


def test_connections_are_closed_whatever_happens(world: World) -> None:
    world.put(-850, 150)
    world.refusals["own"] = ForbiddenError("no")
    world.manager.step()
    world.put(-850, 150)
    world.statuses = [condition("Denied")]
    world.manager.step()
    assert world.opened == 0


# --- Waiting ---


def test_a_request_is_looked_at_until_it_is_signed(world: World) -> None:
    world.statuses = [{}, condition("Approved"), TryAgainLaterError("busy"), {}]
    world.manager.step()
    assert world.clock.sleeps == pytest.approx([0.2, 0.4, 0.8, 1.6])
    assert world.renewals == 1


def test_looks_become_rare(world: World) -> None:
    world.statuses = [{}] * 8
    world.manager.step()
    assert world.clock.sleeps[-2:] == [5.0, 5.0]


def test_what_it_waits_for_is_told_meanwhile(world: World) -> None:
    seen = []
    world.manager._pause = lambda _: seen.append(world.manager.problem)
    world.statuses = [{}, condition("Approved")]
    world.manager.step()
    what = "certificate signing request csr-1"
    assert seen == [f"{what} waits for approval", f"{what} was approved, and waits to be signed"]


def test_a_request_that_nobody_answers_is_given_up(world: World) -> None:
    world.statuses = [{}] * 1000
    world.manager.step()
    assert world.manager.problem == "certificate signing request csr-1 waits for approval, for 900 s now"
    assert sum(world.clock.sleeps) == pytest.approx(SIGNING_LIMIT_S, abs=6)


def test_a_stop_ends_the_wait(world: World) -> None:
    world.statuses = [{}] * 1000
    world.is_stopping = True
    assert (world.manager.step(), len(world.clock.sleeps), world.log.events("error"), world.opened) == (0.0, 1, [], 0)


# --- Failures ---


@pytest.mark.parametrize(
    ("status", "problem"),
    [
        (
            condition("Denied", "CSRDenied", "group x is none"),
            "certificate signing request csr-1 was denied: CSRDenied: group x is none",
        ),
        (condition("Failed", "SignerFailed", "no CA"), "signing of certificate signing request csr-1 failed: SignerFailed: no CA"),
        (ObjectNotFoundError("gone"), "certificate signing request csr-1 was deleted before it was signed"),
        (ForbiddenError("may not get"), "may not get"),
    ],
)
def test_a_failure_is_told_with_its_reason_and_tried_again(world: World, status: Any, problem: str) -> None:
    world.statuses = [status]
    assert world.manager.step() == pytest.approx(2.1)
    assert world.manager.problem == problem
    assert world.told == [f"no new certificate for system:multus:w1, there is none: {problem}"]
    level, event, fields = world.log.lines[-1]
    assert (level, event, fields["times"]) == ("error", "certificate.failed", 1)
    world.manager.step()
    assert (world.manager.problem, world.renewals) == ("", 1)


def test_tries_become_rare_and_the_first_failure_alone_is_told(world: World) -> None:
    world.refusals["bootstrap"] = TryAgainLaterError("down")
    assert [world.manager.step() for _ in range(7)] == pytest.approx([each * 1.05 for each in (2, 4, 8, 16, 32, 32, 32)])
    assert len(world.told) == 1


def test_after_a_success_counting_begins_anew(world: World) -> None:
    world.refusals["bootstrap"] = TryAgainLaterError("down")
    world.manager.step()
    world.manager.step()
    world.refusals.clear()
    world.manager.step()
    world.put(-850, 150)
    world.refusals["own"] = TryAgainLaterError("down")
    assert world.manager.step() == pytest.approx(2.1)
    assert world.told[-1] == "no new certificate for system:multus:w1, the present one ends in 150 s: down"


def test_the_present_one_stays_in_use_while_renewing_fails(world: World) -> None:
    world.put(-850, 150)
    world.statuses = [condition("Denied")]
    before = list(world.stored)
    world.manager.step()
    assert (world.stored, world.manager.seconds_left()) == (before, 150.0)


@pytest.mark.parametrize(
    ("change", "problem"),
    [
        ({"signed_name": "system:multus:w2"}, "system:multus:w2 of system:multus was signed, not system:multus:w1"),
        ({"lifetime_s": 0.0}, "a certificate was signed that is over already"),
    ],
)
def test_what_is_signed_wrongly_is_not_stored(world: World, change: dict[str, Any], problem: str) -> None:
    vars(world).update(change)
    world.manager.step()
    assert (world.manager.problem, world.stored) == (f"certificate signing request csr-1: {problem}", [])


def test_what_is_signed_for_another_key_is_not_stored(world: World) -> None:
    world.statuses = [{"certificate": base64.b64encode(f"{W1.common_name} 0 2000000\nOTHER\n".encode()).decode()}]
    world.manager.step()
    assert world.manager.problem == "certificate signing request csr-1: what was signed: its key is that of another certificate"
    assert world.stored == []


@pytest.mark.parametrize("error", [IOFailureError("no symbolic link"), InvalidConfigError("another key")])
def test_a_store_that_no_certificate_would_mend_is_an_error(world: World, error: MultusError) -> None:
    world.stored.append(error)
    with pytest.raises(type(error)):
        world.manager.step()
    assert world.calls == []


def test_a_store_that_cannot_be_written_is_tried_again(world: World) -> None:
    def refuse(_: bytes) -> None:
        raise IOFailureError("no space")

    world.replace = refuse  # type: ignore[method-assign]
    assert (world.manager.step(), world.manager.problem) == (pytest.approx(2.1), "no space")
