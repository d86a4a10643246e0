"""How a process that runs for long is told to end."""

from __future__ import annotations

import os
import signal
import threading
import time
from collections.abc import Iterator

import pytest

from multus.commands.stop import Stop


@pytest.fixture
def heard() -> Iterator[list[int]]:
    """The signals that a handler was called for; what was set before is set again."""
    wakeup, handler = signal.set_wakeup_fd(-1), signal.getsignal(signal.SIGUSR1)
    yield []
    signal.set_wakeup_fd(wakeup)
    signal.signal(signal.SIGUSR1, handler)


def test_a_wait_ends_with_its_time() -> None:
    stop = Stop()
    assert (False, False) == (stop.wait(0.01), stop.is_set())


def test_once_set_no_wait_waits() -> None:
    stop = Stop()
    stop.set()
    stop.set()
    assert (True, True, True) == (stop.wait(60), stop.wait(60), stop.is_set())


def test_another_thread_ends_a_wait() -> None:
    stop = Stop()
    thread = threading.Thread(target=stop.set)
    thread.start()
    assert stop.wait(60)
    thread.join()


def test_a_handler_that_sets_it_ends_a_wait(heard: list[int]) -> None:
    stop = Stop()

    def handle(number: int, _: object) -> None:
        heard.append(number)
        stop.set()

    stop.listen(signal.SIGUSR1, handler=handle)
    sender = threading.Timer(0.05, os.kill, (os.getpid(), signal.SIGUSR1))
    sender.start()
    assert stop.wait(60)
    assert [signal.SIGUSR1] == heard
    sender.join()


def test_a_signal_in_the_middle_of_setting_it_does_no_harm(heard: list[int]) -> None:
    """As it would with a ``threading.Event``, whose lock the interrupted code may hold."""
    stop = Stop()
    stop.listen(signal.SIGUSR1, handler=lambda number, _: (heard.append(number), stop.set()))
    end = time.monotonic() + 0.2
    sender = threading.Thread(target=lambda: [os.kill(os.getpid(), signal.SIGUSR1) for _ in range(200)])
    sender.start()
    while time.monotonic() < end:
        stop.set()
        stop.wait(0)
    sender.join()
    assert stop.is_set()
    assert heard
