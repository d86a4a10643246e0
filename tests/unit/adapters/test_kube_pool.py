"""Which transport an exchange of the pool is given."""

from __future__ import annotations

import pytest

from multus.adapters.kube_pool import TransportPool
from multus.errors import IOFailureError
from multus.protocol.api_errors import Answer
from multus.testing.fakes import FakeClock


class FakeTransport:
    def __init__(self, world: World) -> None:
        self.world = world
        self.uses = 0
        self.is_open = True

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        assert self.is_open
        self.uses += 1
        self.world.during()
        return Answer(200, f"{method} {target} {content_type} {body!r} {limit_s}".encode())

    def renew(self) -> None: ...

    def close(self) -> None:
        self.is_open = False


class World:
    def __init__(self) -> None:
        self.made: list[FakeTransport] = []
        self.clock = FakeClock()
        self.pool = TransportPool(self.connect, self.clock, max_idle=1, max_age_s=60)
        self.nested = 0
        self.error: Exception | None = None

    def connect(self) -> FakeTransport:
        self.made.append(FakeTransport(self))
        return self.made[-1]

    def during(self) -> None:
        """Other threads' exchanges, as nested ones; then what goes wrong."""
        if self.nested:
            self.nested -= 1
            self.ask()
        if self.error is not None:
            raise self.error

    def ask(self) -> Answer:
        return self.pool.exchange("GET", "/x", "t", b"b", 1.0)

    def uses(self) -> list[tuple[int, bool]]:
        return [(transport.uses, transport.is_open) for transport in self.made]


def test_one_after_the_other_uses_one_transport() -> None:
    world = World()
    assert world.ask() == Answer(200, b"GET /x t b'b' 1.0")
    world.ask()
    assert world.uses() == [(2, True)]


def test_at_once_uses_several_and_keeps_no_more_than_it_may() -> None:
    world = World()
    world.nested = 2
    world.ask()
    assert world.uses() == [(1, False), (1, False), (1, True)]


def test_a_transport_that_is_a_minute_old_is_replaced() -> None:
    world = World()
    world.ask()
    world.clock.sleep(59.9)
    world.ask()
    world.clock.sleep(0.1)
    world.ask()
    assert world.uses() == [(2, False), (1, True)]


def test_after_renewing_no_present_transport_is_used_again() -> None:
    world = World()
    world.ask()
    world.pool.renew()
    world.ask()
    assert world.uses() == [(1, False), (1, True)]


def test_a_transport_in_use_while_others_renew_is_not_kept() -> None:
    world = World()

    def renew() -> None:
        world.pool.renew()

    world.during = renew  # type: ignore[method-assign]
    world.ask()
    assert world.uses() == [(1, False)]


def test_a_failed_exchange_gives_its_transport_back() -> None:
    world = World()
    world.error = IOFailureError("x")
    with pytest.raises(IOFailureError):
        world.ask()
    world.error = None
    world.ask()
    assert world.uses() == [(2, True)]


def test_closing_closes_what_is_idle() -> None:
    world = World()
    world.ask()
    world.pool.close()
    assert world.uses() == [(1, False)]
