"""A crash between any two system calls leaves the old state or the new one.

A child process does the work and ends, as by a power cut, at the n-th call that changes a file or folder; for every n.
"""

from __future__ import annotations

import os
import shutil
import stat
from collections.abc import Callable
from functools import partial
from pathlib import Path

import pytest

from multus.adapters.journal import Journal
from multus.protocol import conflists
from multus.types.delegate import Attachment, Delegate
from multus.types.invocation import Call, CNICommand
from multus.types.result import Result

CHANGING = ("open", "write", "fchmod", "fsync", "close", "rename", "unlink", "mkdir")
CALL = Call(CNICommand.DEL, "c1", ifname="eth0")
SURVIVED, CRASHED = 0, 9


def attachment(network: str, ifname: str, version: str = "1.0.0") -> Attachment:
    conf = conflists.parse({"cniVersion": "1.0.0", "name": network, "type": "bridge"}, where="a test")
    delegate = Delegate(network, conf, is_cluster_network=ifname == "eth0")
    return Attachment(delegate, "c1", "/run/netns/p", ifname, result=Result({"cniVersion": version}))


ETH0, NET1 = attachment("a", "eth0"), attachment("b", "net1")


def without_results(*attachments: Attachment) -> tuple[Attachment, ...]:
    return tuple(each._replace(result=None) for each in attachments)


def crash_at(n: int, work: Callable[[], object], *, in_the_middle: bool) -> bool:
    """Do the work in a child that ends at the n-th changing call; whether it got to the end."""
    child = os.fork()
    if child:
        code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
        assert code in (SURVIVED, CRASHED)
        return code == SURVIVED
    count = 0

    def counted(name: str, call: Callable[..., object]) -> Callable[..., object]:
        def counting(*args: object, **kwargs: object) -> object:
            nonlocal count
            count += 1
            if count == n:
                if name == "write" and in_the_middle:
                    call(args[0], bytes(args[1])[:len(bytes(args[1])) // 2])  # type: ignore[call-overload]
                os._exit(CRASHED)
            return call(*args, **kwargs)

        return counting

    try:
        for name in CHANGING:
            setattr(os, name, counted(name, getattr(os, name)))
        work()
        os._exit(SURVIVED)
    finally:
        os._exit(1)


@pytest.mark.parametrize("in_the_middle", [False, True], ids=["before a call", "in the middle of a write"])
@pytest.mark.parametrize(
    ("prepare", "work", "old", "new"),
    [
        pytest.param(
            lambda _journal: None,
            lambda journal: journal.write("c1", (ETH0, NET1)),
            None, without_results(ETH0, NET1),
            id="first record, folders missing",
        ),
        pytest.param(
            lambda journal: journal.write("c1", (ETH0, NET1)),
            lambda journal: journal.write("c1", (ETH0,)),
            without_results(ETH0, NET1), without_results(ETH0),
            id="record shortened",
        ),
        pytest.param(
            lambda journal: journal.write("c1", (ETH0,)),
            lambda journal: journal.write("c1", ()),
            without_results(ETH0), None,
            id="record removed",
        ),
        pytest.param(
            lambda journal: journal.write("c1", (ETH0,)),
            lambda journal: journal.write_result(ETH0),
            without_results(ETH0), (ETH0,),
            id="result written, folder missing",
        ),
        pytest.param(
            lambda journal: (journal.write("c1", (ETH0,)), journal.write_result(ETH0)),
            lambda journal: journal.write_result(attachment("a", "eth0", "1.1.0")),
            (ETH0,), (attachment("a", "eth0", "1.1.0"),),
            id="result replaced",
        ),
        pytest.param(
            lambda journal: (journal.write("c1", (ETH0,)), journal.write_result(ETH0)),
            lambda journal: journal.remove_result(ETH0),
            (ETH0,), without_results(ETH0),
            id="result removed",
        ),
    ],
)
def test_a_crash_leaves_the_old_state_or_the_new(
    tmp_path: Path,
    prepare: Callable[[Journal], object],
    work: Callable[[Journal], object],
    old: tuple[Attachment, ...] | None,
    new: tuple[Attachment, ...] | None,
    in_the_middle: bool,
) -> None:
    n, states = 0, []
    survived = False
    while not survived:
        n += 1
        folder = tmp_path / str(n) / "multus"
        journal = Journal(str(folder))
        prepare(journal)
        survived = crash_at(n, partial(work, Journal(str(folder))), in_the_middle=in_the_middle)
        states.append(journal.read(CALL))
        assert not list(folder.rglob(".damaged*"))
        assert journal.containers() == (("c1",) if states[-1] or journal.results() else ())
        work(journal)  # what a crash leaves behind is in nobody's way
        assert journal.read(CALL) == new
    assert states == sorted(states, key=lambda state: state == new)
    assert (states[0], states[-1]) == (old, new)
    assert [state for state in states if state not in (old, new)] == []


def test_content_is_on_disk_before_its_name_and_the_name_before_the_return(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a power cut would show: the order of the calls that make a change durable."""
    journal = Journal(str(tmp_path / "multus"))
    journal.write_result(ETH0)
    calls: list[str] = []
    fsync, rename, unlink = os.fsync, os.rename, os.unlink

    def recorded_fsync(fd: int) -> None:
        calls.append(f"fsync {'folder' if stat.S_ISDIR(os.fstat(fd).st_mode) else 'file'}")
        fsync(fd)

    def recorded_rename(source: str, target: str) -> None:
        calls.append("rename")
        rename(source, target)

    def recorded_unlink(path: str) -> None:
        calls.append("unlink")
        unlink(path)

    for name, recorded in (("fsync", recorded_fsync), ("rename", recorded_rename), ("unlink", recorded_unlink)):
        monkeypatch.setattr(os, name, recorded)
    sequences = []
    (tmp_path / "multus" / "c1").write_text("{oops")
    for work in (
        partial(journal.read, CALL),
        partial(journal.write, "c1", (ETH0,)),
        partial(journal.write_result, ETH0),
        partial(journal.write, "c1", ()),
    ):
        calls.clear()
        work()
        sequences.append(list(calls))
    written = ["fsync file", "rename", "fsync folder"]
    # No interface outlives a power loss, so results need not either.
    assert sequences == [["rename", "fsync folder"], written, ["rename"], ["unlink", "unlink", "fsync folder"]]


@pytest.mark.parametrize("content", ["{oops", ""])
def test_a_crash_while_a_damaged_record_is_put_aside_loses_nothing(tmp_path: Path, content: str) -> None:
    prepared = Journal(str(tmp_path / "prepared"))
    for each in (ETH0, NET1):
        prepared.write_result(each)
    (tmp_path / "prepared" / "c1").write_text(content)
    n, survived = 0, False
    while not survived:
        n += 1
        folder = tmp_path / str(n)
        shutil.copytree(tmp_path / "prepared", folder)
        survived = crash_at(n, partial(Journal(str(folder)).read, CALL), in_the_middle=False)
        assert Journal(str(folder)).read(CALL) == (ETH0, NET1)
        assert [path.read_text() for path in folder.glob(".damaged-c1-*")] == [content]
    assert n > 2
