"""``install_multus`` with real bundles: two versions take turns under calls that run, and installations are killed."""

from __future__ import annotations

import json
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

from multus.adapters.installation import FOLDER
from multus.protocol import bundles

_TURNS = 6
_CALLERS = 2


@pytest.fixture
def both(bundle: Path, tmp_path: Path) -> tuple[Path, Path]:
    """The bundle, and one of another version that says so."""
    other = tmp_path / "other"
    shutil.copytree(bundle, other, copy_function=os.link)
    described = json.loads((bundle / bundles.DESCRIPTION).read_text())
    (other / bundles.DESCRIPTION).unlink()
    (other / bundles.DESCRIPTION).write_text(json.dumps({**described, "version": f"{described['version']}-other"}))
    return bundle, other


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    path = tmp_path / "bin"
    path.mkdir()
    return path


def command(source: Path, dest: Path) -> list[str]:
    return [sys.executable, "-m", "multus.commands.install", "-t", "thick", "-d", str(dest), "--bundle", str(source)]


def test_no_call_fails_while_versions_take_turns(both: tuple[Path, Path], dest: Path) -> None:
    """The launcher is replaced while it is started, and the version before it is still there for those that it started."""
    subprocess.run(command(both[0], dest), check=True, capture_output=True)
    with _Calls(dest / "multus-shim") as calls:
        for turn in range(_TURNS):
            subprocess.run(command(both[turn % 2], dest), check=True, capture_output=True)
        calls.wait_for(calls.made + _CALLERS)
    assert [] == calls.failures
    assert calls.made > _TURNS
    assert len(os.listdir(dest / FOLDER)) == 2


def test_a_call_that_runs_keeps_its_version_to_its_end(both: tuple[Path, Path], dest: Path) -> None:
    """It loads from it when it fails: here it waits for its configuration while its launcher is replaced."""
    subprocess.run(command(both[0], dest), check=True, capture_output=True)
    environment = {"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_NETNS": "/nowhere", "CNI_IFNAME": "eth0", "CNI_PATH": str(dest)}
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
    with subprocess.Popen([dest / "multus-shim"], env=environment, **pipes) as call:
        subprocess.run(command(both[1], dest), check=True, capture_output=True)
        assert "-other/" in (dest / "multus-shim").read_text()
        out, _ = call.communicate(b"no json", timeout=60)
    assert (call.returncode, json.loads(out)["code"]) == (1, 6)


@pytest.mark.parametrize("after_s", [0.1, 0.2, 0.3, 0.5])
def test_a_killed_installation_is_completed_by_the_next_one(bundle: Path, dest: Path, after_s: float) -> None:
    with subprocess.Popen(command(bundle, dest), stdout=subprocess.DEVNULL) as installing:
        time.sleep(after_s)
        installing.send_signal(signal.SIGKILL)
    subprocess.run(command(bundle, dest), check=True, capture_output=True)
    assert [".multus", "multus-shim", "passthru"] == sorted(os.listdir(dest))
    (home,) = (dest / FOLDER).iterdir()
    described = bundles.parse((bundle / bundles.DESCRIPTION).read_bytes(), "bundle")
    assert set(described.files) == {path.relative_to(home).as_posix() for path in home.rglob("*") if path.is_file()}
    subprocess.run([dest / "multus-shim", "-version"], check=True, env={}, capture_output=True)


class _Calls:
    """Threads that call an executable again and again, in a ``with`` block."""

    def __init__(self, executable: Path) -> None:
        self.failures: list[str] = []
        self.made = 0
        self._executable = executable
        self._ends = threading.Event()
        self._threads = [threading.Thread(target=self._run) for _ in range(_CALLERS)]

    def __enter__(self) -> _Calls:
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._ends.set()
        for thread in self._threads:
            thread.join()

    def wait_for(self, count: int) -> None:
        """Until so many calls are made, or one failed."""
        while self.made < count and not self.failures:
            time.sleep(0.01)

    def _run(self) -> None:
        while not self._ends.is_set():
            try:
                done = subprocess.run([self._executable], env={"CNI_COMMAND": "VERSION"}, capture_output=True, text=True, check=False)
            except OSError as exc:
                self.failures.append(str(exc))
                return
            if done.returncode or "1.1.0" not in done.stdout:
                self.failures.append(done.stderr)
            self.made += 1

