"""Delegates that run with another root folder, as a daemon's do; needs root."""

from __future__ import annotations

import os
import shutil
import subprocess
import threading
from typing import TYPE_CHECKING

import pytest

from multus.adapters.process import Processes
from multus.errors import IOFailureError

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

    from multus.types.invocation import Completed

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")

ENVIRON = {"PATH": os.defpath}


@pytest.fixture
def other_root(tmp_path: Path) -> Path:
    """A folder with a shell, a plugin, and a file by which the plugin proves where it is."""
    (tmp_path / "marker").write_text("inside")
    _copy_with_libraries("/bin/sh", tmp_path)
    plugin = tmp_path / "plugin"
    plugin.write_text("#!/bin/sh\nread line < /marker; echo $line; pwd\n")
    plugin.chmod(0o755)
    return tmp_path


def _copy_with_libraries(program: str, root: Path) -> None:
    listed = subprocess.run(["ldd", program], capture_output=True, text=True, check=True).stdout
    for path in [program, *(word for word in listed.split() if word.startswith("/"))]:
        target = root / path.removeprefix("/")
        target.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(os.path.realpath(path), target)


def in_a_thread_of_its_own(work: Callable[[], object]) -> object:
    """What ``work`` answers; its thread keeps a root of its own, which the test's thread is not to."""
    answers: list[object] = []
    thread = threading.Thread(target=lambda: answers.append(work()))
    thread.start()
    thread.join()
    return answers[0]


def test_a_child_has_the_root_and_the_thread_comes_back(other_root: Path) -> None:
    def work() -> tuple[Completed, str, bool]:
        completed = Processes(root=str(other_root)).run("/plugin", ENVIRON, b"")
        return completed, os.getcwd(), os.path.exists("/marker")

    completed, folder, has_marker = in_a_thread_of_its_own(work)  # type: ignore[misc]
    assert (completed.status, completed.stdout, folder, has_marker) == (0, b"inside\n/\n", "/", False)


def test_no_other_thread_notices(other_root: Path) -> None:
    before = os.getcwd()
    in_a_thread_of_its_own(lambda: Processes(root=str(other_root)).run("/plugin", ENVIRON, b""))
    assert (os.getcwd(), os.path.exists("/marker")) == (before, False)


def test_a_root_that_is_not_there_is_an_error_that_names_the_program(tmp_path: Path) -> None:
    def work() -> str:
        with pytest.raises(IOFailureError) as caught:
            Processes(root=str(tmp_path / "none")).run("/plugin", ENVIRON, b"")
        return caught.value.msg

    assert in_a_thread_of_its_own(work) == f"/plugin cannot be run: root folder {tmp_path / 'none'}: No such file or directory"
