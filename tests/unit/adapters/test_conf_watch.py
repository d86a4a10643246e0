"""Our file: written, kept, followed, restored; each check by hand, on a clock that stands still."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from multus import files
from multus.adapters.conf_watch import ConfigurationManager
from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError, TryAgainLaterError
from multus.testing.fakes import FakeClock, RecordingLog
from multus.types.primary import Wanted
from multus.watch import FolderWatch

GOOD = b'{"type":"multus-shim","name":"a"}'
NEWER = b'{"type":"multus-shim","name":"b"}'


class FakeSource:
    """What our file is to say, as the test says it."""

    def __init__(self, folder: Path) -> None:
        self.target = str(folder / "00-multus.conf")
        self.targets: tuple[str, ...] = (self.target,)
        self.folders: tuple[str, ...] = (str(folder),)
        self.indicator = "/run/ready"
        self.is_in_place = False
        self.may_appear = True
        self.path = str(folder / "10-a.conf")
        self.content = GOOD
        self.wanted_target = ""
        self.warning = self.note = ""
        self.error: MultusError | None = None
        self.prepared: list[str] = []
        self.after: list[tuple[str, bool]] = []
        self.is_gone = False
        self.prepare_error: OSError | None = None

    def wanted(self, current: str) -> Wanted:
        if self.error is not None:
            raise self.error
        return Wanted(self.content, self.path, "by choice", self.warning, self.note, self.wanted_target)

    def prepare(self, path: str) -> None:
        self.prepared.append(path)
        if self.prepare_error is not None:
            raise self.prepare_error

    def written(self, path: str) -> None:
        self.after.append((path, Path(self.target).exists()))

    def is_indicator_gone(self) -> bool:
        return self.is_gone


class FakeWatch(FolderWatch):
    """Nothing happens while it waits, but time passes, or what the test lets happen."""

    def __init__(self, clock: FakeClock) -> None:
        self._clock = clock
        self.steps: list[object] = []
        self.problem = ""
        self.closed = self.cancelled = 0

    def follow(self, folders: object) -> bool:
        return not self.problem

    def wait(self, timeout_s: float, settle_s: float = 0.0) -> bool:
        self._clock.sleep(timeout_s)
        if self.steps:
            step = self.steps.pop(0)
            if callable(step):
                step()
        return False

    def cancel(self) -> None:
        self.cancelled += 1

    def close(self) -> None:
        self.closed += 1


class Node:
    """A manager and what is around it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.own = folder / "00-multus.conf"
        self.primary = folder / "10-a.conf"
        self.primary.write_text("{}")
        self.source = FakeSource(folder)
        self.clock = FakeClock()
        self.watch = FakeWatch(self.clock)
        self.log = RecordingLog()
        self.events: list[tuple[str, str]] = []
        self.manager = ConfigurationManager(
            self.source, self.log, lambda kind, message: self.events.append((kind, message)), watch=self.watch, clock=self.clock,
        )

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]

    def check(self, later_s: float = 0.0) -> float:
        self.clock.now += later_s
        return self.manager.check()


@pytest.fixture
def new(tmp_path: Path) -> Node:
    return Node(tmp_path)


@pytest.fixture
def node(new: Node) -> Node:
    """Its file is written."""
    new.manager.wait_for_primary(0)
    new.manager.write_once()
    return new


def inode(path: Path) -> int:
    return path.stat().st_ino


# --- Start ---


def test_waiting_ends_with_the_primary_that_appears(new: Node) -> None:
    new.source.error = InvalidConfigError("there is none")
    new.watch.steps = [None, None, lambda: setattr(new.source, "error", None)]
    assert new.manager.wait_for_primary(120) == str(new.primary)
    assert new.clock.sleeps == [1.0, 1.0, 1.0]
    assert new.log.events() == ["configuration.awaited", "configuration.chosen"]
    assert not new.own.exists()


def test_waiting_is_limited_and_says_what_was_found(new: Node) -> None:
    new.source.error = DecodingError("10-a.conf is not JSON")
    with pytest.raises(InvalidConfigError, match=r"no primary configuration within 2.5 s: 10-a.conf is not JSON"):
        new.manager.wait_for_primary(2.5)
    assert new.clock.sleeps == [1.0, 1.0, 0.5]


def test_waiting_ends_when_it_is_cancelled(new: Node) -> None:
    new.source.error = InvalidConfigError("there is none")
    new.watch.steps = [new.manager.cancel]
    with pytest.raises(TryAgainLaterError, match="stopped while waiting"):
        new.manager.wait_for_primary(120)


def test_what_cannot_be_read_is_not_waited_for(new: Node) -> None:
    new.source.error = IOFailureError("cannot list x")
    with pytest.raises(IOFailureError):
        new.manager.wait_for_primary(120)
    assert new.clock.sleeps == []


def test_a_ready_made_file_is_not_waited_for(new: Node) -> None:
    new.source.may_appear = False
    new.source.error = DecodingError("my.conf is not JSON")
    with pytest.raises(DecodingError):
        new.manager.wait_for_primary(120)


def test_the_first_write_is_private_and_no_event(new: Node) -> None:
    assert new.manager.problem() == f"{new.own} is not written yet"
    new.manager.write_once()
    assert (new.own.read_bytes(), stat.S_IMODE(new.own.stat().st_mode)) == (GOOD, 0o600)
    assert (new.events, new.source.prepared, new.manager.problem()) == ([], [str(new.primary)], "")
    assert sorted(os.listdir(new.folder)) == ["00-multus.conf", "10-a.conf"]


def test_a_first_check_is_the_first_write(new: Node) -> None:
    assert new.check() == 10.0
    assert (new.own.read_bytes(), new.events) == (GOOD, [])


def test_a_file_of_an_earlier_run_that_is_right_is_left_alone(new: Node) -> None:
    new.own.write_bytes(GOOD)
    new.own.chmod(0o600)
    before = inode(new.own)
    new.manager.write_once()
    assert inode(new.own) == before


@pytest.mark.parametrize(("content", "mode"), [(GOOD, 0o644), (b"", 0o600)])
def test_a_file_of_an_earlier_run_that_is_not_is_replaced(new: Node, content: bytes, mode: int) -> None:
    new.own.write_bytes(content)
    new.own.chmod(mode)
    new.manager.write_once()
    assert (new.own.read_bytes(), stat.S_IMODE(new.own.stat().st_mode)) == (GOOD, 0o600)


def test_the_first_write_removes_what_a_killed_one_left_and_nothing_else(new: Node) -> None:
    left, others = (new.own.parent / name for name in (f".{new.own.name}.4711.0a1b2c3d.tmp", ".other.conf.1.2.tmp"))
    left.write_text("half")
    others.write_text("of others")
    new.manager.write_once()
    assert (new.own.exists(), left.exists(), others.exists()) == (True, False, True)


def test_a_first_write_that_fails_is_an_error_that_names_the_file(new: Node) -> None:
    new.own.mkdir()
    with pytest.raises(IOFailureError, match=r"cannot write .*00-multus.conf"):
        new.manager.write_once()
    new.source.prepare_error = PermissionError(13, "Permission denied", str(new.primary))
    with pytest.raises(IOFailureError, match=r"cannot write .*10-a.conf: Permission denied"):
        new.manager.write_once()


def test_what_the_operator_should_know_is_said_once(new: Node) -> None:
    new.source.note = "it is old"
    new.manager.write_once()
    new.check()
    new.source.content = NEWER
    new.check()
    assert new.log.events("warning") == ["configuration.note"]


# --- Keep and follow ---


def test_a_check_without_changes_writes_nothing(node: Node) -> None:
    before = inode(node.own)
    assert [node.check(10) for _ in range(3)] == [10.0] * 3
    assert (inode(node.own), node.events) == (before, [])


@pytest.mark.parametrize("error", [InvalidConfigError("10-a.conf is empty"), IOFailureError("cannot read 10-a.conf")])
def test_the_last_good_file_stays_while_the_primary_is_not_usable(node: Node, error: MultusError) -> None:
    before = inode(node.own)
    node.source.error = error
    for _ in range(3):
        node.check(10)
    assert (inode(node.own), node.own.read_bytes()) == (before, GOOD)
    assert node.events == [("kept", f"{error.msg}; {node.own} stays as it is")]
    assert node.manager.problem() == error.msg
    node.source.error = None
    node.check()
    assert (node.manager.problem(), node.kinds) == ("", ["kept"])


def test_a_primary_that_is_gone_is_named(node: Node) -> None:
    node.primary.unlink()
    node.source.error = InvalidConfigError("there is none")
    node.check()
    assert node.manager.problem() == f"{node.primary} is gone; there is none"


def test_each_new_trouble_is_said_and_an_old_one_again_after_it_was_over(node: Node) -> None:
    for trouble in ("a", "a", "b", "", "b"):
        node.source.error = InvalidConfigError(trouble) if trouble else None
        node.check()
    assert [message[0] for _, message in node.events] == ["a", "b", "b"]


def test_a_changed_primary_is_followed(node: Node) -> None:
    node.source.content = NEWER
    node.check()
    assert node.own.read_bytes() == NEWER
    assert node.events == [("followed", f"{node.primary} has changed, and {node.own} with it")]
    assert node.log.events("warning") == []


def test_an_earlier_primary_is_followed_at_once_with_the_reason(node: Node) -> None:
    node.source.path = str(node.folder / "05-new.conf")
    node.source.content = NEWER
    node.check()
    assert node.own.read_bytes() == NEWER
    assert node.events == [("followed", f"{node.source.path} is the primary configuration now, by choice; before it was {node.primary}")]


def test_a_later_file_takes_over_only_when_the_primary_stays_away(node: Node) -> None:
    node.primary.unlink()
    node.source.path = str(node.folder / "20-b.conf")
    node.source.content = NEWER
    assert node.check() == 1.0
    assert (node.own.read_bytes(), node.manager.problem()) == (GOOD, f"{node.primary} is no longer the primary configuration")
    assert node.check(0.75) == 0.25
    assert node.check(0.25) == 10.0
    assert (node.own.read_bytes(), node.kinds, node.manager.problem()) == (NEWER, ["followed"], "")


def test_a_primary_that_comes_back_in_time_stays_it(node: Node) -> None:
    node.source.path = str(node.folder / "20-b.conf")
    node.check()
    node.source.path = str(node.primary)
    node.check(0.5)
    node.source.path = str(node.folder / "20-b.conf")
    assert node.check(5) == 1.0
    assert node.events == []


def test_an_invalid_file_before_the_primary_is_a_warning_and_no_trouble(node: Node) -> None:
    node.source.warning = "05-x.conf is not JSON"
    node.check()
    node.check()
    assert node.events == [("kept", f"05-x.conf is not JSON; {node.primary} stays the primary configuration")]
    assert node.manager.problem() == ""


# --- Restore ---


def test_a_renamed_file_is_restored_and_the_event_names_the_rename(node: Node) -> None:
    node.own.rename(node.folder / "00-multus.conf.cilium_bak")
    for number in range(20):
        (node.folder / f"copy{number}").write_bytes(GOOD)
    assert node.manager.problem() == f"{node.own} was changed by others"
    node.check()
    assert (node.own.read_bytes(), node.manager.problem()) == (GOOD, "")
    assert node.events == [("repaired", f"{node.own} was renamed to {node.own}.cilium_bak by others and is restored")]


def test_a_file_that_is_renamed_while_it_is_looked_at_is_found_under_its_new_name(node: Node, monkeypatch: pytest.MonkeyPatch) -> None:
    def rename_after_reading(path: str) -> bytes:
        content = Path(path).read_bytes()
        node.own.rename(node.folder / "00-multus.conf.cilium_bak")
        return content

    with monkeypatch.context() as during:
        during.setattr(files, "read", rename_after_reading)
        node.check()
    assert node.events == []
    node.check()
    assert node.events == [("repaired", f"{node.own} was renamed to {node.own}.cilium_bak by others and is restored")]


@pytest.mark.parametrize(("content", "said"), [(b"{}", "edited"), (b"", "emptied"), (None, "removed or replaced")])
def test_a_file_that_others_changed_is_restored(node: Node, content: bytes | None, said: str) -> None:
    node.own.unlink()
    if content is not None:
        node.own.write_bytes(content)
    node.check()
    assert node.own.read_bytes() == GOOD
    assert node.events == [("repaired", f"{node.own} was {said} by others and is restored")]


def test_a_link_in_the_files_place_is_replaced_by_the_file(node: Node) -> None:
    (node.folder / "other").write_bytes(GOOD)
    node.own.unlink()
    node.own.symlink_to("other")
    node.check()
    assert (node.own.is_symlink(), node.own.read_bytes(), node.kinds) == (False, GOOD, ["repaired"])


def test_a_pipe_in_the_files_place_does_not_hang(node: Node) -> None:
    node.own.unlink()
    os.mkfifo(node.own)
    assert node.manager.problem() != ""
    node.check()
    assert node.own.read_bytes() == GOOD


def test_the_file_is_restored_while_the_primary_is_not_usable(node: Node) -> None:
    node.source.error = InvalidConfigError("10-a.conf is empty")
    node.own.unlink()
    node.check()
    assert (node.own.read_bytes(), node.kinds) == (GOOD, ["kept", "repaired"])
    assert node.manager.problem() == "10-a.conf is empty"


def test_a_file_that_is_renamed_while_another_primary_comes_is_restored_and_follows(node: Node) -> None:
    node.own.rename(node.folder / "00-multus.conf.cilium_bak")
    node.source.path, node.source.content = str(node.folder / "05-cilium.conflist"), NEWER
    node.check()
    assert (node.own.read_bytes(), node.kinds) == (NEWER, ["repaired", "followed"])


def test_a_file_that_others_changed_to_what_is_wanted_now_is_right(node: Node) -> None:
    node.source.content = NEWER
    node.own.write_bytes(NEWER)
    node.check()
    assert node.kinds == ["followed"]


def test_the_fifth_repair_within_a_minute_backs_off(node: Node) -> None:
    for _ in range(5):
        node.own.unlink()
        node.check(1)
    assert node.kinds == ["repaired"] * 5 + ["backed-off"]
    assert node.events[-1][1] == f"{node.own} was changed by others 5 times or more within 60 s; the next repair waits 2 s"
    node.own.unlink()
    assert node.check(1) == 2.0
    assert not node.own.exists()
    assert node.manager.problem().endswith("5 times or more within 60 s; the repair waits")
    assert (node.check(1.5), node.check(0.5)) == (0.5, 10.0)
    assert (node.own.read_bytes(), node.kinds[6:], node.manager.problem()) == (GOOD, ["repaired", "backed-off"], "")


def test_damage_that_others_undo_during_back_off_does_not_count_for_the_next(node: Node) -> None:
    for _ in range(5):
        node.own.unlink()
        node.check()
    node.own.unlink()
    node.check()
    node.own.write_bytes(GOOD)
    node.check(1)
    node.own.unlink()
    assert node.check(10) == 2.0


def test_an_undamaged_file_follows_during_back_off(node: Node) -> None:
    for _ in range(5):
        node.own.unlink()
        node.check()
    node.source.content = NEWER
    node.check()
    assert (node.own.read_bytes(), node.kinds[6:]) == (NEWER, ["followed"])


def test_a_file_that_cannot_be_written_is_trouble_until_it_can(node: Node) -> None:
    node.own.unlink()
    node.own.mkdir()
    (node.own / "x").touch()
    assert [node.check(1), node.check(1)] == [1.0, 1.0]
    assert node.manager.problem() == f"cannot write {node.own}: Is a directory"
    assert (node.log.events("error"), node.events) == (["configuration.not_written"], [])
    (node.own / "x").unlink()
    node.own.rmdir()
    node.check(1)
    assert (node.own.read_bytes(), node.manager.problem()) == (GOOD, "")


# --- The readiness indicator ---


def test_a_vanished_indicator_removes_our_file_and_is_told_once(node: Node) -> None:
    node.source.is_gone = True
    node.check()
    assert not node.own.exists()
    assert node.events == [("indicator-gone", f"the readiness indicator file /run/ready is gone, and {node.own} with it")]
    assert node.manager.problem() == "the readiness indicator file /run/ready is gone"


def test_a_vanished_indicator_is_told_though_our_file_cannot_be_removed(node: Node) -> None:
    node.source.is_gone = True
    node.source.folders = ()
    node.own.unlink()
    node.folder.joinpath("10-a.conf").unlink()
    node.folder.rmdir()
    node.check()
    assert node.kinds == ["indicator-gone"]


def test_another_file_in_our_files_place_is_not_removed(node: Node) -> None:
    node.own.write_text(json.dumps({"type": "bridge"}))
    node.source.is_gone = True
    node.check()
    assert node.own.exists()


# --- A file in place ---


def test_a_file_in_place_is_neither_written_nor_removed(new: Node) -> None:
    new.source.is_in_place = True
    new.own.write_bytes(GOOD)
    new.own.chmod(0o644)
    before = inode(new.own)
    new.manager.write_once()
    new.source.content = NEWER
    new.check()
    new.own.unlink()
    new.source.error = IOFailureError("cannot read it")
    new.check()
    assert (new.own.exists(), new.kinds, new.manager.problem()) == (False, ["followed", "kept"], "cannot read it")
    new.own.write_bytes(GOOD)
    new.manager.stop(cleanup=True)
    assert (new.own.exists(), before) == (True, before)


# --- The end ---


def test_stopping_leaves_the_file(node: Node) -> None:
    node.manager.stop()
    node.manager.stop(cleanup=True)
    node.manager.cancel()
    assert (node.own.read_bytes(), node.watch.closed, node.watch.cancelled) == (GOOD, 1, 1)


@pytest.mark.parametrize("content", [GOOD, b'{"type":"multus","clusterNetwork":"/x"}'])
def test_cleaning_up_removes_what_is_ours(node: Node, content: bytes) -> None:
    node.own.write_bytes(content)
    node.manager.stop(cleanup=True)
    assert not node.own.exists()


@pytest.mark.parametrize("content", [b'{"type":"bridge"}', b"", b"[]"])
def test_cleaning_up_leaves_what_is_not_ours(node: Node, content: bytes) -> None:
    node.own.write_bytes(content)
    node.manager.stop(cleanup=True)
    assert node.own.read_bytes() == content


def test_cleaning_up_removes_the_file_of_an_earlier_run(new: Node) -> None:
    new.own.write_bytes(b'{"type":"multus-shim","clusterNetwork":"/x"}')
    new.manager.stop(cleanup=True)
    assert not new.own.exists()


def test_the_thread_watches_from_start_to_stop(new: Node) -> None:
    new.watch.problem = "no inotify: Too many open files"
    new.watch.steps = [None, new.own.unlink, None, None, new.manager.cancel]
    new.manager.start()
    new.manager._thread.join(10)
    new.manager.stop()
    assert (new.own.read_bytes(), new.kinds) == (GOOD, ["repaired"])
    assert new.clock.sleeps == [1.0] * 5
    assert new.log.events("warning") == ["configuration.polled", "configuration.repaired"]


def test_a_thread_that_has_ended_is_a_problem(node: Node) -> None:
    node.watch.steps = [node.manager.cancel]
    node.manager.start()
    node.manager._thread.join(10)
    assert node.manager.problem() == f"nobody watches {node.own} any more"
    node.manager.stop()


def test_the_thread_ends_when_the_indicator_is_gone(node: Node) -> None:
    node.source.is_gone = True
    node.manager.start()
    node.manager._thread.join(10)
    assert (node.manager._thread.is_alive(), node.kinds) == (False, ["indicator-gone"])
    node.manager.stop()


# --- A file of two names, and what comes after writing ---


def two_names(node: Node) -> Path:
    other = node.folder / "00-multus.conflist"
    node.source.targets = (str(node.own), str(other))
    return other


def test_a_file_that_gets_another_name_is_not_left_behind(node: Node) -> None:
    other = two_names(node)
    node.source.wanted_target, node.source.content = str(other), NEWER
    node.check()
    assert (False, NEWER, ["followed"], "") == (node.own.exists(), other.read_bytes(), node.kinds, node.manager.problem())
    node.source.wanted_target, node.source.content = "", GOOD
    node.check()
    assert (False, GOOD) == (other.exists(), node.own.read_bytes())


def test_the_other_name_of_an_earlier_run_is_removed_if_it_is_ours(new: Node) -> None:
    other = two_names(new)
    other.write_bytes(b'{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"multus"}]}')
    new.check()
    assert (GOOD, False) == (new.own.read_bytes(), other.exists())


def test_a_file_of_somebody_else_by_the_other_name_stays(new: Node) -> None:
    other = two_names(new)
    other.write_bytes(b'{"cniVersion":"1.0.0","name":"x","plugins":[{"type":"bridge"}]}')
    new.check()
    new.manager.stop(cleanup=True)
    assert (False, True) == (new.own.exists(), other.exists())


def test_cleaning_up_removes_both_names(node: Node) -> None:
    other = two_names(node)
    other.write_bytes(NEWER)
    node.manager.stop(cleanup=True)
    assert (False, False) == (node.own.exists(), other.exists())


def test_what_comes_after_writing_comes_when_our_file_is_there_and_not_in_trouble(new: Node) -> None:
    new.check()
    new.source.error = InvalidConfigError("half written")
    new.check()
    assert [(new.source.path, True)] == new.source.after
    new.source.error = None
    new.check()
    assert [(new.source.path, True)] * 2 == new.source.after
