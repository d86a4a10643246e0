"""Delegates as child processes: found, fed, read, waited for.  The children are shell scripts."""

from __future__ import annotations

import errno
import os
import time
from typing import TYPE_CHECKING

import pytest

from multus.adapters.process import OUTPUT_MAX, Processes
from multus.errors import IOFailureError, TryAgainLaterError
from multus.types.invocation import Completed

if TYPE_CHECKING:
    from pathlib import Path

ENVIRON = {"PATH": os.defpath}
PATIENCE_S = 20.0


def script(folder: Path, text: str, name: str = "plugin") -> str:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return str(path)


def never(seconds: float) -> None:
    pytest.fail(f"slept {seconds} s")


def test_find_takes_the_first_file_of_the_name(tmp_path: Path) -> None:
    for folder in ("a", "b", "c"):
        (tmp_path / folder).mkdir()
    script(tmp_path / "b", "", "plugin")
    script(tmp_path / "c", "", "plugin")
    folders = tuple(str(tmp_path / folder) for folder in ("none", "a", "b", "c"))
    assert [Processes().find("plugin", folders), Processes().find("other", folders)] == [str(tmp_path / "b" / "plugin"), None]


def test_find_passes_folders_by_and_follows_links(tmp_path: Path) -> None:
    (tmp_path / "a" / "plugin").mkdir(parents=True)
    (tmp_path / "b").mkdir()
    (tmp_path / "b" / "plugin").symlink_to(script(tmp_path, "", "real"))
    assert Processes().find("plugin", (str(tmp_path / "a"), str(tmp_path / "b"))) == str(tmp_path / "b" / "plugin")


@pytest.mark.parametrize("name", ["a\0b", "a\ud800"])
def test_find_finds_nothing_by_a_name_that_no_file_can_have(tmp_path: Path, name: str) -> None:
    assert Processes().find(name, (str(tmp_path),)) is None


def test_a_child_gets_standard_input_and_environment_and_nothing_else(tmp_path: Path) -> None:
    path = script(tmp_path, 'cat; echo "$CNI_COMMAND:$HOME" >&2; exit 3')
    completed = Processes(never).run(path, {**ENVIRON, "CNI_COMMAND": "ADD"}, b"config")
    assert completed == Completed(3, b"config", b"ADD:\n")


def test_a_large_input_and_a_large_output_do_not_block_each_other(tmp_path: Path) -> None:
    stdin = os.urandom(3 * 2**20)
    path = script(tmp_path, "tee /dev/stderr")
    assert Processes(never).run(path, ENVIRON, stdin) == Completed(0, stdin, stdin)


def test_a_child_that_does_not_read_its_input_is_no_failure(tmp_path: Path) -> None:
    path = script(tmp_path, "exec <&-; echo done")
    assert Processes(never).run(path, ENVIRON, b"x" * 2**20) == Completed(0, b"done\n", b"")


def test_an_empty_input_ends_at_once(tmp_path: Path) -> None:
    assert Processes(never).run(script(tmp_path, "cat"), ENVIRON, b"") == Completed(0, b"", b"")


def test_a_child_that_a_signal_ended_has_its_negative_number(tmp_path: Path) -> None:
    assert Processes(never).run(script(tmp_path, "kill -KILL $$"), ENVIRON, b"") == Completed(-9, b"", b"")


def test_no_pipe_is_left_open_when_there_are_too_few_descriptors(monkeypatch: pytest.MonkeyPatch) -> None:
    pipe2, made = os.pipe2, []

    def two(flags: int) -> tuple[int, int]:
        if len(made) == 2:
            raise OSError(errno.EMFILE, "Too many open files")
        made.append(pipe2(flags))
        return made[-1]

    monkeypatch.setattr(os, "pipe2", two)
    with pytest.raises(IOFailureError, match="/bin/true cannot be run: Too many open files") as caught:
        Processes().run("/bin/true", {}, b"")
    assert caught.value.attached_nothing
    for fd in (fd for pair in made for fd in pair):
        with pytest.raises(OSError, match="Bad file descriptor"):
            os.fstat(fd)


def test_a_child_ends_by_a_broken_pipe_as_under_a_shell(tmp_path: Path) -> None:
    """The interpreter ignores SIGPIPE; a delegate is not to inherit that."""
    assert Processes(never).run(script(tmp_path, "kill -PIPE $$; echo survived"), ENVIRON, b"").status == -13


def test_a_child_has_no_open_files_of_ours(tmp_path: Path) -> None:
    with (tmp_path / "plugin.lock").open("w"):
        completed = Processes(never).run(script(tmp_path, "ls -l /proc/$$/fd"), ENVIRON, b"")
    assert b"plugin.lock" not in completed.stdout


def test_no_open_files_and_no_children_stay(tmp_path: Path) -> None:
    before = set(os.listdir("/proc/self/fd"))
    Processes(never).run(script(tmp_path, "cat"), ENVIRON, b"x")
    with pytest.raises(IOFailureError):
        Processes(never).run(str(tmp_path / "none"), ENVIRON, b"x")
    assert before.issuperset(os.listdir("/proc/self/fd"))  # what earlier tests had open may close meanwhile
    with pytest.raises(ChildProcessError):
        os.waitpid(-1, os.WNOHANG)


@pytest.mark.parametrize(
    ("mode", "content", "cause"),
    [
        (0o755, b"no program", "Exec format error"),
        (0o755, b"#!/no/such/shell\n", "No such file or directory"),
        (0o644, b"", "Permission denied"),
    ],
)
def test_what_cannot_be_started_is_an_error_that_names_path_and_cause(tmp_path: Path, mode: int, content: bytes, cause: str) -> None:
    path = tmp_path / "plugin"
    path.write_bytes(content)
    path.chmod(mode)
    with pytest.raises(IOFailureError) as caught:
        Processes(never).run(str(path), ENVIRON, b"")
    assert (caught.value.msg, caught.value.code) == (f"{path} cannot be run: {cause}", 5)


def test_a_binary_that_is_being_replaced_is_tried_again(tmp_path: Path) -> None:
    path = script(tmp_path, "echo done")
    writer = open(path, "ab")  # noqa: SIM115  closed while the other side waits
    waited: list[float] = []

    def finish_replacing(seconds: float) -> None:
        waited.append(seconds)
        if len(waited) == 2:
            writer.close()

    assert Processes(finish_replacing).run(path, ENVIRON, b"") == Completed(0, b"done\n", b"")
    assert waited == [1.0, 1.0]


def test_a_binary_that_stays_busy_is_an_error_after_five_seconds(tmp_path: Path) -> None:
    path = script(tmp_path, "echo done")
    waited: list[float] = []
    with open(path, "ab"), pytest.raises(IOFailureError, match=r"cannot be run: Text file busy$"):
        Processes(waited.append).run(path, ENVIRON, b"")
    assert sum(waited) == 5.0


def test_a_child_that_prints_without_end_is_stopped(tmp_path: Path) -> None:
    path = script(tmp_path, f"echo $$ > {tmp_path}/pid; exec cat /dev/zero")
    with pytest.raises(IOFailureError) as caught:
        Processes(never).run(path, ENVIRON, b"")
    assert caught.value.msg == f"{path}: it printed more than 16 MiB and was stopped"
    assert not os.path.exists(f"/proc/{(tmp_path / 'pid').read_text().strip()}")


def test_a_child_that_takes_too_long_is_killed_with_all_that_it_started(tmp_path: Path) -> None:
    path = script(tmp_path, f"sleep 60 & echo $$ $! > {tmp_path}/pids; wait")
    with pytest.raises(TryAgainLaterError) as caught:
        Processes(never, timeout_s=0.5).run(path, ENVIRON, b"")
    assert (caught.value.msg, caught.value.code) == (f"{path}: it did not end within 0.5 s and was killed", 11)
    pids, end = (tmp_path / "pids").read_text().split(), time.monotonic() + PATIENCE_S
    while any(map(is_running, pids)):  # a grandchild is not ours to wait for, and dies in its own time
        assert time.monotonic() < end, f"still running: {pids}"
        time.sleep(0.01)


def is_running(pid: str) -> bool:
    """Whether a process is there and no zombie that its new parent has yet to reap."""
    try:
        with open(f"/proc/{pid}/stat", encoding="utf-8") as file:
            return file.read().rpartition(")")[2].split()[0] != "Z"
    except (FileNotFoundError, ProcessLookupError):
        return False


def test_a_child_that_ends_in_its_time_is_not_disturbed_by_a_limit(tmp_path: Path) -> None:
    assert Processes(never, timeout_s=30).run(script(tmp_path, "cat"), ENVIRON, b"x") == Completed(0, b"x", b"")


def test_what_a_child_may_print_is_kept_whole(tmp_path: Path) -> None:
    path = script(tmp_path, f"head -c {OUTPUT_MAX} /dev/zero")
    assert Processes(never).run(path, ENVIRON, b"") == Completed(0, b"\0" * OUTPUT_MAX, b"")


def test_forward_writes_to_our_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    Processes().forward(b"a hint\n")
    assert capfd.readouterr().err == "a hint\n"


def test_forward_does_without_a_standard_error(capfd: pytest.CaptureFixture[str]) -> None:
    kept = os.dup(2)
    os.close(2)
    try:
        Processes().forward(b"lost")
    finally:
        os.dup2(kept, 2)
        os.close(kept)
    assert capfd.readouterr().err == ""
