"""Cases from public bug reports about the generated configuration: C1, C3, C4, C6.

The real manager with its thread, on real files; what a delegate is sent (C4) and the daemon around it (C6) are tested elsewhere.
"""

from __future__ import annotations

import functools
import json
import os
import stat
import threading
import time
from typing import TYPE_CHECKING, Any

import pytest

from multus import files
from multus.adapters.conf_dir import ConfDir
from multus.adapters.conf_watch import ConfigurationManager
from multus.adapters.primary_files import source
from multus.errors import IOFailureError
from multus.testing.fakes import RecordingLog
from multus.types.primary import PrimarySettings

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

HEALED_WITHIN_S = 2.0
UNCHANGED_FOR_S = 0.6


def eventually(fact: Callable[[], bool], within_s: float = HEALED_WITHIN_S) -> bool:
    """Whether it becomes true in time."""
    end = time.monotonic() + within_s
    while time.monotonic() < end:
        if fact():
            return True
        time.sleep(0.005)
    return fact()


class Node:
    """A running manager over a folder of its own."""

    def __init__(self, folder: Path, **settings: Any) -> None:
        self.own = folder / "00-multus.conf"
        self.events: list[tuple[str, str]] = []
        self.log = RecordingLog()
        self.manager = ConfigurationManager(
            source(PrimarySettings(cni_config_dir=str(folder), **settings), ConfDir(str(folder))),
            self.log,
            lambda kind, message: self.events.append((kind, message)),
        )

    def start(self) -> None:
        self.manager.wait_for_primary(5)
        self.manager.write_once()
        self.manager.start()

    def has_said(self, kind: str, times: int) -> bool:
        return len(self.said(kind)) == times

    def said(self, kind: str) -> list[str]:
        return [message for each, message in self.events if each == kind]


class Reader(threading.Thread):
    """Reads a file every 5 ms, as a container runtime might, and counts what it must never see."""

    def __init__(self, path: Path) -> None:
        super().__init__(daemon=True)
        self._path = path
        self._end = threading.Event()
        self.reads = 0
        self.faults: list[str] = []

    def run(self) -> None:
        while not self._end.wait(0.005):
            self.reads += 1
            try:
                json.loads(self._path.read_bytes())
            except (OSError, ValueError) as exc:
                self.faults.append(repr(exc))

    def stop(self) -> None:
        self._end.set()
        self.join()


@pytest.fixture
def nodes() -> Iterator[list[Node]]:
    made: list[Node] = []
    yield made
    for node in made:
        node.manager.stop()


def rewrite(path: Path, text: str) -> None:
    """In one change, which nobody sees half of."""
    files.replace(str(path), text.encode())


def primary(name: str, version: str = "1.0.0") -> str:
    return json.dumps({"cniVersion": version, "name": name, "plugins": [{"type": "bridge"}]})


def test_c1_a_half_written_primary_leaves_the_good_file(tmp_path: Path, nodes: list[Node]) -> None:
    trunk = tmp_path / "10-trunk.conflist"
    trunk.write_text(primary("trunk"))
    nodes.append(node := Node(tmp_path, override_network_name=True))
    node.start()
    good, inode = node.own.read_bytes(), node.own.stat().st_ino
    assert json.loads(good)["name"] == "trunk"
    reader = Reader(node.own)
    reader.start()

    def truncate(size: int) -> None:
        with trunk.open("r+b") as file:  # one change: a rewrite would be two, and the manager might see both
            file.truncate(size)

    for number, step in enumerate((functools.partial(truncate, 9), functools.partial(truncate, 0), trunk.unlink), 1):
        step()
        assert eventually(functools.partial(node.has_said, "kept", number))
        assert str(trunk) in node.said("kept")[-1]
        assert eventually(lambda: node.manager.problem() != "")
        time.sleep(UNCHANGED_FOR_S)
        assert (node.own.read_bytes(), node.own.stat().st_ino) == (good, inode)
        assert len(node.said("kept")) == number
    rewrite(trunk, primary("trunk-two"))
    assert eventually(lambda: json.loads(node.own.read_bytes())["name"] == "trunk-two")
    assert eventually(lambda: node.manager.problem() == "")
    reader.stop()
    assert (reader.faults, reader.reads > 100) == ([], True)
    assert len(node.said("followed")) == 1


def test_c3_a_file_that_another_component_renames_comes_back_with_the_new_primary(tmp_path: Path, nodes: list[Node]) -> None:
    (tmp_path / "10-trunk.conflist").write_text(primary("trunk"))
    nodes.append(node := Node(tmp_path))
    node.start()
    copy = tmp_path / "00-multus.conf.cilium_bak"
    node.own.rename(copy)
    assert node.manager.problem() != ""
    rewrite(tmp_path / "05-cilium.conflist", primary("cilium"))
    cilium = str(tmp_path / "05-cilium.conflist")
    assert eventually(lambda: node.own.exists() and json.loads(node.own.read_bytes())["clusterNetwork"] == cilium)
    assert eventually(lambda: node.manager.problem() == "" and len(node.said("followed")) > 0)
    assert node.said("repaired") == [f"{node.own} was renamed to {copy} by others and is restored"]
    assert "first by name of 2" in node.said("followed")[-1]


def test_c3_a_renamed_copy_is_never_the_primary_even_under_a_primarys_name(tmp_path: Path, nodes: list[Node]) -> None:
    (tmp_path / "10-trunk.conflist").write_text(primary("trunk"))
    nodes.append(node := Node(tmp_path))
    node.start()
    good = node.own.read_bytes()
    node.own.rename(tmp_path / "01-first.conf")
    assert eventually(lambda: node.own.exists() and node.manager.problem() == "")
    time.sleep(UNCHANGED_FOR_S)
    assert (node.own.read_bytes(), node.said("followed"), len(node.said("repaired"))) == (good, [], 1)


def test_c3_five_times_within_a_minute_backs_off(tmp_path: Path, nodes: list[Node]) -> None:
    (tmp_path / "10-trunk.conflist").write_text(primary("trunk"))
    nodes.append(node := Node(tmp_path))
    node.start()
    for number in range(1, 6):
        node.own.rename(tmp_path / "00-multus.conf.cilium_bak")
        assert eventually(functools.partial(node.has_said, "repaired", number))
        assert node.own.exists()
    assert eventually(lambda: len(node.said("backed-off")) == 1)
    node.own.rename(tmp_path / "00-multus.conf.cilium_bak")
    time.sleep(1.0)
    assert (node.own.exists(), len(node.said("repaired"))) == (False, 5)
    assert "the repair waits" in node.manager.problem()
    assert eventually(node.own.exists, within_s=4.0)


def test_c4_an_old_primary_is_one_warning_and_our_version_is_kept(tmp_path: Path, nodes: list[Node]) -> None:
    (tmp_path / "10-trunk.conflist").write_text(primary("trunk", version="0.3.1"))
    nodes.append(node := Node(tmp_path, cni_version="1.1.0"))
    node.start()
    assert json.loads(node.own.read_bytes())["cniVersion"] == "1.1.0"
    rewrite(tmp_path / "10-trunk.conflist", primary("trunk-two", version="0.3.1"))
    time.sleep(UNCHANGED_FOR_S)
    warnings = [str(fields["reason"]) for level, _, fields in node.log.lines if level == "warning"]
    assert warnings == [f"{tmp_path}/10-trunk.conflist is of cniVersion 0.3.1: CHECK, GC, STATUS succeed without reaching it"]
    assert node.manager.problem() == ""


def test_c6_an_explicit_file_is_copied_and_followed_and_stays(tmp_path: Path, nodes: list[Node]) -> None:
    net_d = tmp_path / "net.d"
    net_d.mkdir()
    mine = tmp_path / "my-multus.conf"
    document = {"cniVersion": "1.0.0", "name": "mine", "type": "multus-shim", "clusterNetwork": "/etc/cni/net.d/10-a.conf"}
    mine.write_text(json.dumps(document))
    nodes.append(node := Node(net_d, config_file=str(mine)))
    node.start()
    copy = net_d / "my-multus.conf"
    assert (copy.read_bytes(), stat.S_IMODE(copy.stat().st_mode), os.listdir(net_d)) == (mine.read_bytes(), 0o600, ["my-multus.conf"])
    rewrite(mine, '{"cniVers')
    assert eventually(lambda: len(node.said("kept")) == 1)
    assert json.loads(copy.read_bytes()) == document
    rewrite(mine, json.dumps({**document, "name": "mine-too"}))
    assert eventually(lambda: json.loads(copy.read_bytes())["name"] == "mine-too")
    copy.unlink()
    assert eventually(copy.exists)
    node.manager.stop()
    assert copy.exists()


def test_c6_a_missing_explicit_file_is_an_error_that_names_it(tmp_path: Path, nodes: list[Node]) -> None:
    nodes.append(node := Node(tmp_path, config_file="/nowhere/my-multus.conf"))
    with pytest.raises(IOFailureError, match=r"/nowhere/my-multus.conf"):
        node.manager.wait_for_primary(120)
