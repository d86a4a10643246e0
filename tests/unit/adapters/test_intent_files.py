"""Intents on disk: which files count, in which order, and how they go."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from multus.adapters.intent_files import IntentFiles
from multus.errors import IOFailureError


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "intents"
    made.mkdir()
    return made


@pytest.fixture
def store(tmp_path: Path) -> IntentFiles:
    return IntentFiles(str(tmp_path))


def write(folder: Path, name: str, age_s: int = 0) -> Path:
    path = folder / name
    path.write_bytes(name.encode())
    os.utime(path, (1_700_000_000 - age_s, 1_700_000_000 - age_s))
    return path


def test_without_a_folder_there_are_no_intents(store: IntentFiles) -> None:
    assert store.names() == []


def test_intents_are_listed_oldest_first(store: IntentFiles, folder: Path) -> None:
    for name, age_s in (("b", 5), ("c", 9), ("a", 1)):
        write(folder, name, age_s)
    assert store.names() == ["c", "b", "a"]


def test_intents_of_one_moment_are_listed_by_name(store: IntentFiles, folder: Path) -> None:
    for name in ("b", "a"):
        write(folder, name)
    assert store.names() == ["a", "b"]


def test_hidden_files_and_folders_are_no_intents(store: IntentFiles, folder: Path) -> None:
    """A shim that is about to write one uses a hidden name first."""
    write(folder, ".c1-eth0-0123abcd")
    (folder / "sub").mkdir()
    assert store.names() == []


def test_one_that_goes_while_the_folder_is_read_is_left_out(store: IntentFiles, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A worker drops what it has served at any moment; the others are still there."""
    gone = write(folder, "a")
    write(folder, "b")
    scandir = os.scandir

    class Entries:
        def __init__(self, path: str) -> None:
            self._entries = scandir(path)

        def __enter__(self) -> list[os.DirEntry[str]]:
            with self._entries as entries:
                found = list(entries)
            gone.unlink()
            return found

        def __exit__(self, *_: object) -> None: ...

    monkeypatch.setattr(os, "scandir", Entries)
    assert store.names() == ["b"]


def test_an_intent_is_read_whole(store: IntentFiles, folder: Path) -> None:
    write(folder, "a")
    assert store.read("a") == b"a"


def test_a_dropped_intent_is_gone_and_may_be_dropped_again(store: IntentFiles, folder: Path) -> None:
    write(folder, "a")
    store.drop("a")
    store.drop("a")
    assert list(folder.iterdir()) == []


def test_one_put_aside_is_kept_out_of_the_way(store: IntentFiles, folder: Path) -> None:
    write(folder, "a")
    store.put_aside("a")
    assert store.names() == []
    assert (folder / ".damaged-a").read_bytes() == b"a"


def test_what_the_disk_refuses_is_an_error_that_names_the_path(store: IntentFiles, folder: Path) -> None:
    (folder / "sub").mkdir()
    for action in (store.read, store.drop):
        with pytest.raises(IOFailureError) as caught:
            action("sub")
        assert (caught.value.code, f"{folder}/sub: Is a directory" in caught.value.msg) == (5, True)
    with pytest.raises(IOFailureError, match=f"cannot put {folder}/none aside: No such file or directory"):
        store.put_aside("none")


def test_a_folder_that_cannot_be_read_is_an_error_and_not_empty(tmp_path: Path) -> None:
    (tmp_path / "intents").write_bytes(b"")
    with pytest.raises(IOFailureError, match=f"cannot list {tmp_path}/intents: Not a directory"):
        IntentFiles(str(tmp_path)).names()
