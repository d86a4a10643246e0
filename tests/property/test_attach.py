"""Whatever a pod asks for and whatever fails, ADD then DEL leaves nothing; and one call prints one JSON document."""

from __future__ import annotations

import copy
import functools
import io
import json
import os
import shutil
import tempfile
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st

from multus.commands import cni
from multus.core import attach
from multus.errors import DelegateError, IOFailureError, MultusError
from multus.testing import strategies
from multus.testing.fakes import NETNS, ProgramCall
from multus.testing.pods import Namespace
from multus.testing.scriptable import Answer, ScriptedDelegates
from multus.testing.world import World

TYPES = ("fake-a", "fake-b", "fake-c")
MAX_DELS = 40
"""More than there are failures to come."""


@st.composite
def worlds(draw: st.DrawFn) -> World:
    """A pod with any valid networks annotation, each network a list of one to three plugins, all of them to be had."""
    text, elements = draw(strategies.network_annotations())
    world = World("fake-primary", *TYPES)
    world.add_pod(text)
    for element in elements:
        types = draw(st.lists(st.sampled_from(TYPES), min_size=1, max_size=3))
        config = {"cniVersion": draw(strategies.cni_versions("0.3.0")), "plugins": [{"type": each} for each in types]}
        namespace = element.get("namespace") or "shop"
        world.add_network(element["name"], config, namespace=namespace)
    return world


def failing(world: World, command: str, at: set[int]) -> None:
    """Make calls of a verb fail by their number, counted over all delegates."""
    count = iter(range(10_000))

    def answer(call: ProgramCall) -> Any:
        if next(count) in at:
            return DelegateError("scripted", code=57)
        return own(call)

    own = world.programs.own_answer
    for each in world.programs.installed:
        world.programs.answer(each, command, answer)


def add(world: World) -> MultusError | None:
    try:
        attach.add(world.context("ADD"))
    except MultusError as exc:
        return exc
    return None


def leftovers(world: World) -> tuple[set[tuple[str, str, str]], int]:
    """What is attached, and how many records and results there are.

    A network whose ADD and two DELs failed has been given up, with a line in the log.
    """
    given_up = {fields["ifname"] for _, event, fields in world.log.lines if event == "del.given_up"}
    attached = {each for each in world.programs.attached if each[2] not in given_up}
    return attached, len(world.journal.records) + len(world.journal.results)


NOTHING: tuple[set[tuple[str, str, str]], int] = (set(), 0)


def delete_until_it_succeeds(world: World) -> None:
    for _ in range(MAX_DELS):
        try:
            attach.delete(world.context("DEL"))
        except MultusError:
            continue
        return
    pytest.fail("DEL does not come to an end")


@given(worlds(), st.sets(st.integers(0, 12), max_size=2), st.sets(st.integers(0, 12), max_size=4))
def test_add_then_del_leaves_nothing(world: World, failing_adds: set[int], failing_dels: set[int]) -> None:
    failing(world, "ADD", failing_adds)
    failing(world, "DEL", failing_dels)
    error = add(world)
    if error is None:
        world.kube.pods.clear()  # what was recorded is enough
    delete_until_it_succeeds(world)
    assert leftovers(world) == NOTHING


@given(worlds(), st.integers(0, 60), st.integers(0, 60))
def test_any_call_of_any_port_may_fail_in_add_and_del(world: World, in_add: int, in_del: int) -> None:
    world.calls.fail_at(in_add, IOFailureError("injected"))
    add(world)
    world.calls.fail_at(len(world.calls.made) + in_del, IOFailureError("injected"))
    delete_until_it_succeeds(world)
    assert leftovers(world) == NOTHING


@given(worlds(), st.sets(st.integers(0, 12), min_size=1, max_size=2))
def test_add_after_a_failed_one_attaches_everything_once(world: World, failing_adds: set[int]) -> None:
    failing(world, "ADD", failing_adds)
    if add(world) is None or not world.programs.made:
        return  # nothing failed, or the request itself is impossible
    failing(world, "ADD", set())
    world.programs.made.clear()
    if add(world) is not None:
        return  # the request is impossible in a way that shows on the way
    attached = [(call.type, call.ifname) for call in world.programs.of("ADD")]
    assert {(delegate_type, ifname) for delegate_type, _, ifname in world.programs.attached} == set(attached)
    assert len(world.journal.results) == len({ifname for _, ifname in attached})


def failing_of(world: World, ifnames: set[str]) -> None:
    """Make the ADDs for these interfaces fail."""

    def answer(call: ProgramCall) -> Any:
        return DelegateError("scripted", code=57) if call.ifname in ifnames else world.programs.own_answer(call)

    for each in world.programs.installed:
        world.programs.answer(each, "ADD", answer)


@given(worlds(), st.sets(st.sampled_from(["eth0", "net1", "net2", "net3"]), max_size=2), st.integers(2, 8))
def test_side_by_side_is_as_in_sequence(world: World, failing_ifnames: set[str], limit: int) -> None:
    twin = copy.deepcopy(world)
    told: list[Any] = []
    for each, config in ((world, {}), (twin, {"maxParallelAttachments": limit})):
        failing_of(each, failing_ifnames)
        try:
            attached = attach.add(each.context("ADD", config))
        except MultusError as exc:
            told.append((type(exc), exc.code, exc.msg, exc.details))
            assert (each.programs.attached, each.journal.results, each.netns.namespaces[NETNS].links) == (set(), {}, set())
        else:
            told.append((attached.result, [(one.ifname, one.result) for one in attached.attachments]))
        statuses = [(key, json.loads(value)) for _, key, value in each.kube.statuses]
        told[-1] = (*told[-1], statuses, each.netns.namespaces[NETNS].routes)
    assert told[0] == told[1]
    if not failing_ifnames:
        assert (world.journal.records, world.journal.results) == (twin.journal.records, twin.journal.results)
    delete_until_it_succeeds(twin)
    assert leftovers(twin) == NOTHING


@given(worlds())
def test_interface_names_are_unique(world: World) -> None:
    if add(world) is not None:
        return
    names = [attachment.ifname for attachment in world.journal.records["c1"]]
    assert len(names) == len(set(names))
    assert names[0] == "eth0"


@given(worlds(), st.integers(0, 12))
def test_failed_add_touches_no_network_behind_the_failing_one(world: World, failing_add: int) -> None:
    failing(world, "ADD", {failing_add})
    add(world)
    begun = list(dict.fromkeys(call.ifname for call in world.programs.of("ADD")))
    undone = list(dict.fromkeys(call.ifname for call in world.programs.of("DEL")))
    assert undone in ([], begun[::-1])


@given(worlds(), st.sets(st.integers(0, 12), max_size=4))
def test_network_that_was_attached_is_never_given_up(world: World, failing_dels: set[int]) -> None:
    failing(world, "DEL", failing_dels)
    add(world)
    delete_until_it_succeeds(world)
    assert "del.given_up" not in world.log.events()
    assert (world.programs.attached, world.journal.records) == (set(), {})


# --- One call, one document: the real thing, with real processes ---


@functools.cache
def _folder() -> str:
    return tempfile.mkdtemp(prefix="multus-property-")


@pytest.fixture(scope="module")
def folder() -> Iterator[str]:
    yield _folder()
    shutil.rmtree(_folder())
    _folder.cache_clear()


def run(folder: str, command: str, netns: str) -> tuple[int, bytes]:
    config = {"cniVersion": "1.1.0", "name": "meta", "type": "multus", "cniDir": f"{folder}/cni", "binDir": f"{folder}/bin"}
    delegate = {"cniVersion": "1.1.0", "name": "trunk", "type": "scripted"}
    environ = {"CNI_COMMAND": command, "CNI_CONTAINERID": "c1", "CNI_NETNS": netns, "CNI_IFNAME": "eth0", "CNI_PATH": "/nowhere"}
    stdout = io.BytesIO()
    status = cni.run(environ, io.BytesIO(json.dumps({**config, "delegates": [delegate]}).encode()), stdout)
    return status, stdout.getvalue()


def nested(depth: int) -> bytes:
    return b'{"cniVersion":"1.1.0","x":' + b"[" * depth + b"]" * depth + b"}"


outputs = st.binary(max_size=40) | strategies.json_values().map(lambda value: json.dumps(value).encode())
statuses = st.sampled_from((0, 0, 1, 2, 255))


def check(folder: str, command: str, netns: str, answer: Answer) -> None:
    delegates = ScriptedDelegates(folder, "scripted")
    delegates.answer("scripted", command, answer)
    status, printed = run(folder, command, netns)
    if status == 0:
        assert printed == b"" or (command == "ADD" and isinstance(json.loads(printed), dict))
    else:
        document = json.loads(printed)
        assert document["code"] != 0
        assert isinstance(document["msg"], str)


@pytest.mark.parametrize("command", ["DEL", "GC", "STATUS"])
@settings(max_examples=20)
@given(outputs, statuses, st.binary(max_size=20))
def test_no_answer_of_a_delegate_spoils_ours(folder: str, command: str, stdout: bytes, status: int, stderr: bytes) -> None:
    check(folder, command, "", Answer(stdout=stdout, exit=status, stderr=stderr))


@pytest.mark.skipif(os.geteuid() != 0, reason="needs root: makes a network namespace")
@settings(max_examples=25)
@given(outputs, statuses)
@example(nested(500), 0)
@example(nested(900), 0)
@example(nested(3000), 0)
@example(b'{"cniVersion":"1.1.0"}' * 2, 0)
@example(b'{"code":' + b"9" * 5000 + b',"msg":"x"}', 1)
def test_no_result_of_a_delegate_spoils_ours(folder: str, stdout: bytes, status: int) -> None:
    with Namespace() as namespace:
        check(folder, "ADD", namespace.path, Answer(stdout=stdout, exit=status))
        ScriptedDelegates(folder).answer("scripted", "DEL", Answer())
        assert run(folder, "DEL", namespace.path) == (0, b"")
