"""Files that survive a crash: replaced whole or not at all."""

from __future__ import annotations

import os
import stat
from typing import TYPE_CHECKING

import pytest

from multus import files

if TYPE_CHECKING:
    from pathlib import Path


def test_a_replaced_file_has_the_new_content_and_mode_and_no_temporary_file_stays(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    path.chmod(0o644)
    files.replace(str(path), b"new")
    assert (path.read_bytes(), stat.S_IMODE(path.stat().st_mode), os.listdir(tmp_path)) == (b"new", 0o600, ["state"])


def test_the_mode_is_as_asked_whatever_the_umask(tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        files.replace(str(tmp_path / "state"), b"", mode=0o644)
    finally:
        os.umask(before)
    assert stat.S_IMODE((tmp_path / "state").stat().st_mode) == 0o644


def test_an_open_reader_keeps_the_old_content(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.write_bytes(b"old")
    with path.open("rb") as reader:
        files.replace(str(path), b"new")
        assert (reader.read(), path.read_bytes()) == (b"old", b"new")


def test_a_large_content_is_written_whole(tmp_path: Path) -> None:
    content = os.urandom(3 * 2**20)
    files.replace(str(tmp_path / "state"), content)
    assert files.read(str(tmp_path / "state")) == content


def test_a_failed_replacement_leaves_everything_as_it_was(tmp_path: Path) -> None:
    (tmp_path / "state").mkdir()
    with pytest.raises(IsADirectoryError):
        files.replace(str(tmp_path / "state"), b"new")
    assert (os.listdir(tmp_path), os.listdir(tmp_path / "state")) == (["state"], [])


def test_a_missing_folder_is_the_callers_to_make(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.replace(str(tmp_path / "none" / "state"), b"new")


def test_a_path_without_a_folder_is_in_the_working_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    files.replace("state", b"new")
    assert (tmp_path / "state").read_bytes() == b"new"


def test_remove_tells_whether_the_file_was_there(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    assert [files.remove(str(tmp_path / "state")), files.remove(str(tmp_path / "state"))] == [True, False]


def test_remove_of_what_is_no_file_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(OSError, match="directory"):
        files.remove(str(tmp_path))


def test_sync_folder_refuses_what_is_no_folder(tmp_path: Path) -> None:
    (tmp_path / "state").write_bytes(b"")
    with pytest.raises(NotADirectoryError):
        files.sync_folder(str(tmp_path / "state"))


def test_a_file_that_is_not_there_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(FileNotFoundError):
        files.read(str(tmp_path / "state"))


def test_what_a_killed_write_left_is_removed_and_nothing_else(tmp_path) -> None:
    path = tmp_path / "c1"
    kept = [path, tmp_path / ".c1.x.123.abcdef.tmp", tmp_path / ".c10.123.abcdef.tmp", tmp_path / ".damaged-c1"]
    for each in (*kept, tmp_path / ".c1.123.abcdef.tmp"):
        each.write_text("x")
    assert files.remove_temporaries(str(path))
    assert sorted(kept) == sorted(tmp_path.iterdir())
    assert not files.remove_temporaries(str(path))


def test_temporaries_of_a_missing_folder_are_none(tmp_path) -> None:
    assert not files.remove_temporaries(str(tmp_path / "none" / "c1"))
