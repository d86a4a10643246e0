"""The configuration manager on a real file system: replaced folders, links, the kernel's limits, competing writers, time."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from multus import files
from multus.adapters.conf_dir import ConfDir
from multus.adapters.conf_watch import ConfigurationManager
from multus.adapters.primary_files import source
from multus.errors import IOFailureError
from multus.testing.fakes import RecordingLog
from multus.types.primary import PrimarySettings
from multus.watch import FolderWatch

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

OWN = {"cniVersion": "1.0.0", "name": "mine", "type": "multus-shim", "clusterNetwork": "/etc/cni/net.d/10-a.conf"}


class CountingWatch(FolderWatch):
    """Counts the checks: one follows each ``follow``."""

    rounds = 0

    def follow(self, folders: Iterable[str]) -> bool:
        self.rounds += 1
        return super().follow(folders)


class Node:
    def __init__(self, folder: Path, **settings: Any) -> None:
        self.own = folder / "00-multus.conf"
        self.events: list[tuple[str, str]] = []
        self.log = RecordingLog()
        self.watch = CountingWatch()
        self.manager = ConfigurationManager(
            source(PrimarySettings(cni_config_dir=str(folder), **settings), ConfDir(str(folder))),
            self.log,
            lambda kind, message: self.events.append((kind, message)),
            watch=self.watch,
        )

    def start(self) -> None:
        self.manager.wait_for_primary(5)
        self.manager.write_once()
        self.manager.start()

    def cluster_network(self) -> object:
        try:
            return json.loads(self.own.read_bytes())["clusterNetwork"]
        except FileNotFoundError:
            return None

    @property
    def kinds(self) -> list[str]:
        return [kind for kind, _ in self.events]


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.manager.stop()


def eventually(fact: Callable[[], object], within_s: float = 10.0) -> bool:
    end = time.monotonic() + within_s
    while not fact():
        if time.monotonic() > end:
            return False
        time.sleep(0.005)
    return True


def put(path: Path, name: str) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    files.replace(str(path), json.dumps({"cniVersion": "1.0.0", "name": name, "type": "bridge"}).encode())  # in one change
    return str(path)


def test_waiting_for_a_primary_ends_when_it_appears(tmp_path: Path, nodes: list[Node]) -> None:
    nodes.append(node := Node(tmp_path / "net.d"))
    threading.Timer(0.2, put, (tmp_path / "net.d" / "10-a.conf", "a")).start()
    assert node.manager.wait_for_primary(20) == str(tmp_path / "net.d" / "10-a.conf")


def test_our_own_writes_wake_us_once_and_then_there_is_silence(tmp_path: Path, nodes: list[Node]) -> None:
    put(tmp_path / "10-a.conf", "a")
    nodes.append(node := Node(tmp_path))
    node.start()
    time.sleep(0.5)
    put(tmp_path / "05-b.conf", "b")
    assert eventually(lambda: node.kinds == ["followed"])
    time.sleep(0.6)
    settled, before = node.watch.rounds, node.own.stat()
    time.sleep(1.0)
    assert (node.watch.rounds, node.own.stat()) == (settled, before)
    assert settled <= 6


@pytest.mark.parametrize("by_rename", [True, False])
def test_a_replaced_folder_is_watched_again(tmp_path: Path, nodes: list[Node], by_rename: bool) -> None:
    folder = tmp_path / "net.d"
    put(folder / "10-a.conf", "a")
    nodes.append(node := Node(folder))
    node.start()
    if by_rename:
        folder.rename(tmp_path / "before")
    while folder.exists():  # it is not empty for long
        shutil.rmtree(folder, ignore_errors=True)
    time.sleep(0.4)
    assert node.manager.problem() != ""
    put(folder / "10-a.conf", "a")
    assert eventually(lambda: node.own.exists() and node.manager.problem() == "")
    time.sleep(0.4)
    newer = put(folder / "05-b.conf", "b")
    assert eventually(lambda: node.cluster_network() == newer, within_s=2.0)


def test_a_primary_that_is_replaced_by_rename_or_through_a_link_is_followed(tmp_path: Path, nodes: list[Node]) -> None:
    put(tmp_path / "10-a.conf", "a")
    nodes.append(node := Node(tmp_path, override_network_name=True))
    node.start()
    put(tmp_path / "new", "b")
    (tmp_path / "new").rename(tmp_path / "10-a.conf")
    assert eventually(lambda: json.loads(node.own.read_bytes())["name"] == "b")
    put(tmp_path / "elsewhere" / "c", "c")
    (tmp_path / "link").symlink_to("elsewhere/c")
    (tmp_path / "link").rename(tmp_path / "10-a.conf")
    assert eventually(lambda: json.loads(node.own.read_bytes())["name"] == "c")


def test_a_removed_primary_gives_way_to_the_next_one(tmp_path: Path, nodes: list[Node]) -> None:
    put(tmp_path / "10-a.conf", "a")
    later = put(tmp_path / "20-b.conf", "b")
    nodes.append(node := Node(tmp_path))
    node.start()
    (tmp_path / "10-a.conf").unlink()
    assert eventually(lambda: node.kinds == ["followed"])
    assert node.cluster_network() == later


def test_a_config_map_that_flips_its_link_is_copied_anew(tmp_path: Path, nodes: list[Node]) -> None:
    for version, name in (("v1", "mine"), ("v2", "mine-too")):
        (tmp_path / "cm" / version).mkdir(parents=True)
        (tmp_path / "cm" / version / "my.conf").write_text(json.dumps({**OWN, "name": name}))
    (tmp_path / "cm" / "..data").symlink_to("v1")
    (tmp_path / "cm" / "my.conf").symlink_to("..data/my.conf")
    (tmp_path / "net.d").mkdir()
    nodes.append(node := Node(tmp_path / "net.d", config_file=str(tmp_path / "cm" / "my.conf")))
    node.start()
    (tmp_path / "cm" / "next").symlink_to("v2")
    (tmp_path / "cm" / "next").rename(tmp_path / "cm" / "..data")
    assert eventually(lambda: json.loads((tmp_path / "net.d" / "my.conf").read_bytes())["name"] == "mine-too")


def test_a_vanished_indicator_removes_our_file_and_is_told(tmp_path: Path, nodes: list[Node]) -> None:
    put(tmp_path / "net.d" / "10-a.conf", "a")
    put(tmp_path / "run" / "ready", "x")
    nodes.append(node := Node(tmp_path / "net.d", readiness_indicator_file=str(tmp_path / "run" / "ready")))
    node.start()
    put(tmp_path / "run" / "ready", "changed")
    time.sleep(0.4)
    assert (node.kinds, node.own.exists()) == ([], True)
    (tmp_path / "run" / "ready").rename(tmp_path / "run" / "away")
    assert eventually(lambda: node.kinds == ["indicator-gone"])
    assert not node.own.exists()


def test_an_indicator_that_vanished_before_the_watch_is_noticed(tmp_path: Path, nodes: list[Node]) -> None:
    put(tmp_path / "10-a.conf", "a")
    nodes.append(node := Node(tmp_path, readiness_indicator_file=str(tmp_path / "ready")))
    node.start()
    assert eventually(lambda: node.kinds == ["indicator-gone"])


def test_a_primary_that_is_the_indicator_too_is_followed_and_its_removal_told(tmp_path: Path, nodes: list[Node]) -> None:
    path = tmp_path / "10-a.conf"
    put(path, "a")
    nodes.append(node := Node(tmp_path, readiness_indicator_file=str(path), override_network_name=True))
    node.start()
    put(path, "b")
    assert eventually(lambda: json.loads(node.own.read_bytes())["name"] == "b")
    path.unlink()
    assert eventually(lambda: "indicator-gone" in node.kinds)
    assert not node.own.exists()


def test_readers_see_whole_files_while_the_primary_is_rewritten_in_steps(tmp_path: Path, nodes: list[Node]) -> None:
    primary = tmp_path / "10-a.conf"
    put(primary, "a0")
    nodes.append(node := Node(tmp_path, override_network_name=True))
    node.start()
    faults: list[Exception] = []
    names: set[str] = set()
    end = threading.Event()

    def read() -> None:
        while not end.is_set():
            try:
                names.add(json.loads(node.own.read_bytes())["name"])
            except (OSError, ValueError) as exc:
                faults.append(exc)

    reader = threading.Thread(target=read)
    reader.start()
    for number in range(1, 30):
        text = json.dumps({"cniVersion": "1.0.0", "name": f"a{number}", "type": "bridge"})
        with primary.open("w") as file:
            file.write(text[:20])
            file.flush()
            time.sleep(0.03)
            file.write(text[20:])
        time.sleep(0.02)
    assert eventually(lambda: "a29" in names)
    end.set()
    reader.join()
    assert faults == []


def test_two_managers_that_disagree_do_not_spin(tmp_path: Path, nodes: list[Node]) -> None:
    put(tmp_path / "10-a.conf", "a")
    nodes.extend((Node(tmp_path), Node(tmp_path, override_network_name=True)))
    for node in nodes:
        node.start()
    assert eventually(lambda: any("backed-off" in node.kinds for node in nodes), within_s=20)
    before = sum(node.kinds.count("repaired") for node in nodes)
    time.sleep(2.0)
    assert sum(node.kinds.count("repaired") for node in nodes) - before <= 6


def test_stopping_is_prompt_and_gives_every_thread_and_descriptor_back(tmp_path: Path) -> None:
    put(tmp_path / "10-a.conf", "a")
    threads, fds = threading.active_count(), len(os.listdir("/proc/self/fd"))
    for _ in range(20):
        node = Node(tmp_path)
        node.start()
        put(tmp_path / "10-a.conf", "a")
        began = time.monotonic()
        node.manager.stop()
        assert time.monotonic() - began < 5
    assert threading.active_count() <= threads  # what earlier tests had may end meanwhile
    assert len(os.listdir("/proc/self/fd")) <= fds


@contextlib.contextmanager
def as_nobody() -> Iterator[None]:
    os.seteuid(65534)
    try:
        yield
    finally:
        os.seteuid(0)


@pytest.fixture
def public_folder() -> Iterator[Path]:
    """A folder that anybody may read and root alone may write."""
    if os.geteuid() != 0:
        pytest.skip("only root can become somebody else")
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        folder.chmod(0o755)
        with as_nobody():
            is_reachable = os.access(folder, os.R_OK, effective_ids=True)
        if not is_reachable:
            pytest.skip("others than root cannot reach temporary files here")
        yield folder


def test_a_file_that_cannot_be_removed_is_an_error_at_the_end_that_names_it(public_folder: Path) -> None:
    put(public_folder / "10-a.conf", "a")
    node = Node(public_folder)
    node.start()
    node.own.chmod(0o644)
    with as_nobody(), pytest.raises(IOFailureError, match=rf"cannot remove {node.own}: Permission denied"):
        node.manager.stop(cleanup=True)


def test_a_vanished_indicator_is_told_though_our_file_cannot_be_removed(public_folder: Path, nodes: list[Node]) -> None:
    put(public_folder / "10-a.conf", "a")
    nodes.append(node := Node(public_folder, readiness_indicator_file=str(public_folder / "ready")))
    node.manager.write_once()
    node.own.chmod(0o644)
    with as_nobody():
        node.manager.check()
    assert (node.kinds, node.log.events("error")) == (["indicator-gone"], ["configuration.not_removed"])


POLLED = """
import json, os, resource, sys, time
from multus import files
from multus.adapters.conf_dir import ConfDir
from multus.adapters.conf_watch import ConfigurationManager
from multus.adapters.primary_files import source
from multus.testing.fakes import RecordingLog
from multus.types.primary import PrimarySettings

folder = sys.argv[1]
used = len(os.listdir("/proc/self/fd")) - 1  # but for the one that lists them
resource.setrlimit(resource.RLIMIT_NOFILE, (used + 1, 4096))  # room for the cancelling descriptor and no more
events, log = [], RecordingLog()
manager = ConfigurationManager(
    source(PrimarySettings(cni_config_dir=folder), ConfDir(folder)), log, lambda kind, message: events.append(kind)
)
resource.setrlimit(resource.RLIMIT_NOFILE, (4096, 4096))
manager.write_once()
manager.start()
time.sleep(0.3)
os.unlink(folder + "/00-multus.conf")
began = time.monotonic()
while not os.path.exists(folder + "/00-multus.conf"):
    time.sleep(0.01)
took = time.monotonic() - began
manager.stop()
print(json.dumps({"events": events, "took": took, "said": [fields["reason"] for _, event, fields in log.lines if "polled" in event]}))
"""


def test_without_inotify_the_file_is_restored_within_two_seconds_all_the_same(tmp_path: Path) -> None:
    put(tmp_path / "10-a.conf", "a")
    child = subprocess.run([sys.executable, "-c", POLLED, str(tmp_path)], capture_output=True, text=True, timeout=30, check=True)
    outcome = json.loads(child.stdout)
    assert (outcome["events"], outcome["said"]) == (["repaired"], ["no inotify: Too many open files"])
    assert outcome["took"] < 2.0
