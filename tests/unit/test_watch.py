"""Waiting for changes in folders."""

from __future__ import annotations

import ctypes
import errno
import os
import threading
import time
from typing import TYPE_CHECKING

import pytest

from multus.watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

LONG_S = 20.0
SHORT_S = 0.05


class Libc:
    """A C library whose inotify fails."""

    def __init__(self, init: int = 0, add: int = 0) -> None:
        self._init = init
        self._add = add
        self._real = ctypes.CDLL(None, use_errno=True)

    def inotify_init1(self, flags: int) -> int:
        if self._init:
            ctypes.set_errno(self._init)
            return -1
        return int(self._real.inotify_init1(flags))

    def inotify_add_watch(self, fd: int, path: bytes, mask: int) -> int:
        ctypes.set_errno(self._add)
        return -1


@pytest.fixture
def watch() -> Iterator[FolderWatch]:
    made = FolderWatch()
    yield made
    made.close()


def write(path: Path) -> None:
    path.write_text("new")


def append(path: Path) -> None:
    with path.open("a") as file:
        file.write("more")


CHANGES: list[Callable[[Path], object]] = [
    lambda folder: write(folder / "new"),
    lambda folder: append(folder / "old"),
    lambda folder: (folder / "old").unlink(),
    lambda folder: (folder / "old").rename(folder / "other"),
    lambda folder: (folder / "old").rename(folder.parent / "away"),
    lambda folder: (folder.parent / "outside").rename(folder / "old"),
    lambda folder: (folder / "link").symlink_to("old"),
    lambda folder: folder.rename(folder.parent / "moved"),
]


@pytest.mark.parametrize("change", CHANGES)
def test_a_change_of_content_or_name_ends_the_wait(tmp_path: Path, watch: FolderWatch, change: Callable[[Path], object]) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    write(folder / "old")
    write(tmp_path / "outside")
    assert watch.follow((str(folder),))
    change(folder)
    assert watch.wait(LONG_S)


def test_reading_is_no_change(tmp_path: Path, watch: FolderWatch) -> None:
    write(tmp_path / "old")
    watch.follow((str(tmp_path),))
    assert (tmp_path / "old").read_text() == "new"
    assert os.listdir(tmp_path) == ["old"]
    assert not watch.wait(SHORT_S)


def test_changes_that_come_together_are_one(tmp_path: Path, watch: FolderWatch) -> None:
    watch.follow((str(tmp_path),))
    write(tmp_path / "first")
    later = threading.Timer(0.02, write, (tmp_path / "second",))
    later.start()
    assert watch.wait(LONG_S, settle_s=0.3)
    later.join()
    assert not watch.wait(SHORT_S)


def test_what_happened_between_two_waits_is_not_lost(tmp_path: Path, watch: FolderWatch) -> None:
    watch.follow((str(tmp_path),))
    write(tmp_path / "a")
    assert watch.follow((str(tmp_path), str(tmp_path)))
    assert watch.wait(LONG_S)


def test_a_folder_that_is_missing_is_watched_when_it_comes(tmp_path: Path, watch: FolderWatch) -> None:
    folder = tmp_path / "folder"
    assert not watch.follow((str(folder), str(tmp_path)))
    assert watch.problem == f"cannot watch {folder}: No such file or directory"
    folder.mkdir()
    assert watch.wait(LONG_S)
    assert watch.follow((str(folder), str(tmp_path)))
    assert watch.problem == ""
    write(folder / "a")
    assert watch.wait(LONG_S)


def test_a_folder_that_was_replaced_is_watched_again(tmp_path: Path, watch: FolderWatch) -> None:
    folder = tmp_path / "folder"
    folder.mkdir()
    watch.follow((str(folder),))
    folder.rename(tmp_path / "before")
    folder.mkdir()
    assert watch.wait(LONG_S)
    watch.follow((str(folder),))
    watch.wait(SHORT_S)
    write(tmp_path / "before" / "a")
    assert not watch.wait(SHORT_S)
    write(folder / "a")
    assert watch.wait(LONG_S)


def test_a_removed_folder_of_the_same_inode_is_watched_again(tmp_path: Path, watch: FolderWatch) -> None:
    folder = tmp_path / "folder"
    for _ in range(20):
        folder.mkdir()
        watch.follow((str(folder),))
        watch.wait(0.0)
        write(folder / "a")
        assert watch.wait(LONG_S)
        (folder / "a").unlink()
        folder.rmdir()
        assert watch.wait(LONG_S)


def test_a_file_in_a_folders_place_is_not_watched(tmp_path: Path, watch: FolderWatch) -> None:
    write(tmp_path / "file")
    assert not watch.follow((str(tmp_path / "file"),))


def test_a_cancelled_wait_ends_at_once_and_so_do_all_later_ones(tmp_path: Path, watch: FolderWatch) -> None:
    watch.follow((str(tmp_path),))
    threading.Timer(0.05, watch.cancel).start()
    began = time.monotonic()
    assert not watch.wait(LONG_S)
    write(tmp_path / "a")
    assert [watch.wait(LONG_S, settle_s=LONG_S) for _ in range(3)] == [False] * 3
    assert time.monotonic() - began < LONG_S / 2


def test_cancelling_ends_the_settling_too(tmp_path: Path, watch: FolderWatch) -> None:
    watch.follow((str(tmp_path),))
    write(tmp_path / "a")
    threading.Timer(0.05, watch.cancel).start()
    began = time.monotonic()
    assert watch.wait(LONG_S, settle_s=LONG_S)
    assert time.monotonic() - began < LONG_S / 2


@pytest.mark.parametrize("number", [errno.EMFILE, errno.ENOSYS])
def test_without_inotify_nothing_is_watched_and_waits_last_their_time(tmp_path: Path, number: int) -> None:
    watch = FolderWatch(Libc(init=number))
    assert watch.problem == f"no inotify: {os.strerror(number)}"
    assert not watch.follow((str(tmp_path),))
    write(tmp_path / "a")
    assert not watch.wait(SHORT_S)
    watch.cancel()
    assert not watch.wait(LONG_S)
    watch.close()


def test_too_many_watches_leave_the_folder_unwatched(tmp_path: Path) -> None:
    watch = FolderWatch(Libc(add=errno.ENOSPC))
    assert not watch.follow((str(tmp_path),))
    assert watch.problem == f"cannot watch {tmp_path}: No space left on device"
    watch.close()


def test_closing_gives_every_descriptor_back_and_may_be_repeated() -> None:
    before = len(os.listdir("/proc/self/fd"))
    watch = FolderWatch()
    assert len(os.listdir("/proc/self/fd")) == before + 2
    watch.close()
    watch.close()
    assert len(os.listdir("/proc/self/fd")) == before
