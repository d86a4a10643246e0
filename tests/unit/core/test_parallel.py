"""Networks attached side by side: so many at a time, begun in order, and failing as in sequence."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multus.core import attach
from multus.core.parallel import side_by_side
from multus.errors import DelegateError, MultusError
from multus.protocol import conflists
from multus.testing.fakes import NETNS
from multus.testing.world import World
from multus.types.config import PluginConf
from multus.types.invocation import Completed

if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from multus.testing.fakes import ProgramCall

PATIENCE_S = 20


class Gauge:
    """Counts those who are inside at the same time."""

    def __init__(self) -> None:
        self.inside = self.most = 0
        self._lock = threading.Lock()

    def __enter__(self) -> None:
        with self._lock:
            self.inside += 1
            self.most = max(self.most, self.inside)

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self.inside -= 1


@given(st.integers(0, 12), st.integers(1, 5), st.sets(st.integers(0, 11), max_size=3))
def test_steps_begin_in_order_and_the_first_failure_by_position_is_raised(count: int, limit: int, failing: set[int]) -> None:
    begun: list[int] = []
    gauge = Gauge()

    def step(number: int) -> Callable[[], None]:
        def run() -> None:
            begun.append(number)
            with gauge:
                if number in failing:
                    raise MultusError(str(number))

        return run

    expected = min((number for number in failing if number < count), default=None)
    steps = [step(number) for number in range(count)]
    if expected is None:
        side_by_side(steps, limit)
        assert sorted(begun) == list(range(count))
    else:
        with pytest.raises(MultusError) as caught:
            side_by_side(steps, limit)
        assert caught.value.msg == str(expected)
        assert set(range(expected + 1)) <= set(begun)
    assert gauge.most <= limit
    assert set(begun) == set(range(len(begun)))  # nothing was passed over


def test_any_fault_of_a_helper_is_raised_in_the_thread_of_the_call() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def interrupted() -> None:
        both.wait()
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        side_by_side([interrupted, interrupted], 2)
    assert not [thread for thread in threading.enumerate() if thread.name.startswith("attach-")]


def test_helpers_that_cannot_start_leave_the_work_to_those_that_can(monkeypatch: pytest.MonkeyPatch) -> None:
    begun: list[int] = []
    start = threading.Thread.start

    def start_one(thread: threading.Thread) -> None:
        if thread.name != "attach-0":
            raise RuntimeError("can't start new thread")
        start(thread)

    monkeypatch.setattr(threading.Thread, "start", start_one)
    side_by_side([lambda number=number: begun.append(number) for number in range(6)], 4)
    assert sorted(begun) == list(range(6))


def a_world(answer: Callable[[ProgramCall], Any]) -> World:
    """A pod with four secondary networks; ``answer`` answers their ADDs, and may raise nothing."""
    world = World("trunk", "plain")
    for name in "abcd":
        world.add_network(name, {"cniVersion": "1.0.0", "name": name, "type": "plain"})
    world.add_pod("a,b,c,d")
    world.programs.answer("plain", "ADD", answer)
    return world


def test_as_many_as_are_allowed_are_attached_at_a_time() -> None:
    gauge, all_three = Gauge(), threading.Barrier(3, timeout=PATIENCE_S)
    met: list[str] = []

    def answer(call: ProgramCall) -> Any:
        with gauge:
            if call.ifname != "net4":
                all_three.wait()  # ends only if three are attached at the same time
                met.append(call.ifname)
            return world.programs.own_answer(call)

    world = a_world(answer)
    attached = attach.add(world.context("ADD", {"maxParallelAttachments": 3}))
    assert [each.ifname for each in attached.attachments] == ["eth0", "net1", "net2", "net3", "net4"]
    assert (sorted(met), gauge.most) == (["net1", "net2", "net3"], 3)


def test_the_cluster_network_comes_first_and_the_auxiliary_chain_last() -> None:
    gauge = Gauge()

    def answer(call: ProgramCall) -> Any:
        with gauge:
            time.sleep(0.01)
            return world.programs.own_answer(call)

    def alone(call: ProgramCall) -> Any:
        return world.programs.own_answer(call) if gauge.inside == 0 else DelegateError("beside others")

    world = a_world(answer)
    path = "/etc/cni/net.d/10-trunk.conf"
    world.programs.installed |= {"passthru", "last"}
    for kind in ("trunk", "passthru", "last"):
        world.programs.answer(kind, "ADD", alone)
    world.conf_dir.paths[path] = conflists.parse({"cniVersion": "1.0.0", "name": "trunk", "type": "trunk"}, where="a test")
    world.conf_dir.chains[path, "chain"] = (PluginConf({"type": "last"}, "last"),)
    attach.add(world.context("ADD", {"maxParallelAttachments": 8, "clusterNetwork": path, "auxiliaryCNIChainName": "chain"}))
    order = [call.type for call in world.programs.of("ADD")]
    assert (order[0], order[-1], len(order)) == ("trunk", "last", 7)


def test_one_at_a_time_is_the_default() -> None:
    threads = set()

    def answer(call: ProgramCall) -> Any:
        threads.add(threading.get_ident())
        return world.programs.own_answer(call)

    world = a_world(answer)
    attach.add(world.context("ADD"))
    assert threads == {threading.get_ident()}


def test_all_that_had_begun_when_a_network_failed_is_undone_in_reverse() -> None:
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def answer(call: ProgramCall) -> Any:
        if call.ifname in ("net1", "net2"):
            both.wait()
        return DelegateError("scripted", code=57) if call.ifname == "net1" else world.programs.own_answer(call)

    world = a_world(answer)
    with pytest.raises(DelegateError, match=r"\[shop/web/u1:a\]: cannot attach 'net1': plugin 'plain': scripted"):
        attach.add(world.context("ADD", {"maxParallelAttachments": 2}))
    begun = sorted(call.ifname for call in world.programs.of("ADD"))
    assert begun[:3] == ["eth0", "net1", "net2"]
    assert [call.ifname for call in world.programs.of("DEL")] == begun[::-1]
    assert {each.ifname: each.has_failed for each in world.journal.records["c1"]}["net1"]
    assert (world.programs.attached, world.netns.namespaces[NETNS].links) == (set(), set())


def test_each_network_that_failed_is_told_apart() -> None:
    """Two fail: one says that nothing is attached, of the other nobody knows; its DEL must not be given up."""
    both = threading.Barrier(2, timeout=PATIENCE_S)

    def answer(call: ProgramCall) -> Any:
        both.wait()
        return DelegateError("no room", code=57) if call.ifname == "net1" else Completed(-9, b"", b"")

    world = a_world(answer)
    world.add_pod("a,b")
    with pytest.raises(DelegateError, match="no room"):
        attach.add(world.context("ADD", {"maxParallelAttachments": 2}))
    assert [(each.ifname, each.has_failed) for each in world.journal.records["c1"]] == [("eth0", False), ("net1", True), ("net2", False)]
