"""Case E1 of the public bug reports: the service account's token rotates under ``thin_entrypoint``, a process.

The mounted folder is as the kubelet makes it: files that are links through ``..data``, which is flipped to a new folder.
"""

from __future__ import annotations

import base64
import json
import os
import signal
import stat
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

PATIENCE_S = 30.0
"""The case allows 5 s on a machine that does nothing else."""
PROGRAM = """
import os, sys
from multus.commands import entrypoint
entrypoint.REFRESH_S = float(sys.argv[2])
sys.exit(entrypoint.run(sys.argv[3:], os.environ, sys.argv[1]))
"""


class Mount:
    """A service account's folder."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        folder.mkdir()
        self._count = 0
        for name in ("token", "ca.crt"):
            (folder / name).symlink_to(f"..data/{name}")

    def flip(self, token: str, authority: str, gap_s: float = 0.0) -> None:
        """Replace both files at once; the link is missing for a while before."""
        self._count += 1
        version = self.folder / f"..version-{self._count}"
        version.mkdir()
        (version / "token").write_text(token)
        (version / "ca.crt").write_text(authority)
        new = self.folder / "..data_tmp"
        new.symlink_to(version.name)
        if gap_s:
            (self.folder / "..data").unlink()
            time.sleep(gap_s)
        new.rename(self.folder / "..data")


class Reader(threading.Thread):
    """Reads the kubeconfig all the time, as many runtimes do; keeps every pair of token and authority that it saw."""

    def __init__(self, path: Path) -> None:
        super().__init__()
        self._path = path
        self._ends = threading.Event()
        self.seen: list[tuple[str, str]] = []
        self.modes: set[int] = set()
        self.unreadable: list[str] = []

    def run(self) -> None:
        while not self._ends.is_set():
            try:
                with open(self._path, encoding="utf-8") as file:
                    self.modes.add(stat.S_IMODE(os.fstat(file.fileno()).st_mode))
                    pair = credentials(file.read())
            except (OSError, ValueError) as exc:
                self.unreadable.append(str(exc))
                continue
            if not self.seen or self.seen[-1] != pair:
                self.seen.append(pair)
            time.sleep(0.001)

    def end(self) -> None:
        self._ends.set()
        self.join()


def credentials(text: str) -> tuple[str, str]:
    document = json.loads(text)
    authority = base64.b64decode(document["clusters"][0]["cluster"]["certificate-authority-data"]).decode()
    return document["users"][0]["user"]["token"], authority


def until(fact: Callable[[], bool], what: str) -> None:
    end = time.monotonic() + PATIENCE_S
    while not fact():
        assert time.monotonic() < end, what
        time.sleep(0.01)


@pytest.fixture
def mount(tmp_path: Path) -> Mount:
    mount = Mount(tmp_path / "serviceaccount")
    mount.flip("tok-1", "authority-1")
    return mount


@pytest.fixture
def start(tmp_path: Path, mount: Mount) -> Iterator[Callable[[float], tuple[subprocess.Popen[bytes], Path]]]:
    """The process, and its kubeconfig once it is there; neither clean-up nor a generated configuration is asked for."""
    conf_dir, bin_dir, own = tmp_path / "net.d", tmp_path / "bin", tmp_path / "70-own.conf"
    for folder in (conf_dir, bin_dir):
        folder.mkdir()
    delegate = {"cniVersion": "1.0.0", "name": "main", "type": "bridge"}
    own.write_text(json.dumps({"cniVersion": "1.0.0", "name": "own", "type": "multus", "delegates": [delegate]}))
    started: list[subprocess.Popen[bytes]] = []

    def start(refresh_s: float) -> tuple[subprocess.Popen[bytes], Path]:
        arguments = (
            f"--multus-conf-file={own}", f"--cni-conf-dir={conf_dir}", f"--cni-bin-dir={bin_dir}",
            f"--multus-cni-conf-dir={tmp_path}/multus", "--skip-multus-binary-copy",
        )  # fmt: skip
        environment = {"PATH": os.environ["PATH"], "KUBERNETES_SERVICE_HOST": "127.0.0.1", "KUBERNETES_SERVICE_PORT": "6443"}
        command = (sys.executable, "-c", PROGRAM, str(mount.folder), str(refresh_s), *arguments)
        quiet = {"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
        started.append(subprocess.Popen(command, env=environment, **quiet))
        path = conf_dir / "multus.d" / "multus.kubeconfig"
        until(path.exists, "the kubeconfig is written")
        return started[-1], path

    yield start
    for process in started:
        process.kill()
        process.communicate()


def test_e1_token_and_authority_that_rotate_are_in_the_kubeconfig_within_seconds(
    mount: Mount, start: Callable[[float], tuple[subprocess.Popen[bytes], Path]]
) -> None:
    process, path = start(0.05)
    reader = Reader(path)
    reader.start()
    try:
        before = path.stat()
        time.sleep(0.3)  # some rounds
        assert (path.stat().st_mtime_ns, path.stat().st_ino) == (before.st_mtime_ns, before.st_ino), "nothing new, nothing written"
        mount.flip("tok-2", "authority-2")
        until(lambda: reader.seen[-1] == ("tok-2", "authority-2"), "both are followed")
        assert path.stat().st_ino != before.st_ino, "replaced by a rename"
        mount.flip("tok-3", "authority-3", gap_s=0.2)
        assert process.poll() is None
        until(lambda: reader.seen[-1] == ("tok-3", "authority-3"), "it goes on after a gap")
    finally:
        reader.end()
    assert reader.seen == [(f"tok-{number}", f"authority-{number}") for number in (1, 2, 3)]
    assert (reader.modes, reader.unreadable) == ({0o600}, [])
    process.send_signal(signal.SIGTERM)
    process.communicate(timeout=PATIENCE_S)
    assert process.returncode == 0
    assert credentials(path.read_text()) == ("tok-3", "authority-3"), "clean-up was not asked for"


def test_e1_no_reader_sees_the_token_of_one_rotation_with_the_authority_of_another(
    mount: Mount, start: Callable[[float], tuple[subprocess.Popen[bytes], Path]]
) -> None:
    """A flip may come between the two readings; many of them make one that does."""
    _, path = start(0.0001)
    reader = Reader(path)
    reader.start()
    try:
        for number in range(2, 400):
            mount.flip(f"tok-{number}", f"authority-{number}")
            time.sleep(0.001)
        until(lambda: credentials(path.read_text()) == ("tok-399", "authority-399"), "the last one is followed")
    finally:
        reader.end()
    assert len(reader.seen) > 10
    assert [pair for pair in reader.seen if pair[0].partition("-")[2] != pair[1].partition("-")[2]] == []
