"""Device information files: published, read, removed, pruned."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import pytest

from multus.adapters.device_info import DeviceInfo
from multus.errors import DecodingError, IOFailureError

INFO = {"type": "pci", "version": "1.1.0", "pci": {"pci-address": "0000:03:02.3"}}


def device_plugin_file(base: Path, text: str) -> None:
    (base / "dp").mkdir(exist_ok=True)
    (base / "dp" / "ex.com-nic-0000:03:02.3-device.json").write_text(text)


def test_the_file_of_an_attachment_is_named_as_the_reference_names_it() -> None:
    assert DeviceInfo().path("team/sr", "c1", "net1") == "/var/run/k8s.cni.cncf.io/devinfo/cni/team-sr-c1_net1"


@pytest.mark.parametrize("name", ["../../etc/passwd", "..", "/abs", "a/../b", "a\0b"])
def test_no_name_leads_out_of_the_folder(name: str) -> None:
    path = DeviceInfo("/base").path(name, "c1", "net1")
    assert os.path.dirname(os.path.normpath(path)) == "/base/cni"
    assert "\0" not in path


def test_the_device_plugins_file_is_published_readable_for_all(tmp_path: Path) -> None:
    info = DeviceInfo(str(tmp_path))
    device_plugin_file(tmp_path, json.dumps(INFO))
    path = info.path("team/sr", "c1", "net1")
    info.publish("ex.com/nic", "0000:03:02.3", path)
    assert info.read(path) == INFO
    assert (stat.S_IMODE(os.stat(path).st_mode), stat.S_IMODE((tmp_path / "cni").stat().st_mode)) == (0o444, 0o755)


def test_a_published_file_is_replaced(tmp_path: Path) -> None:
    info = DeviceInfo(str(tmp_path))
    path = info.path("sr", "c1", "net1")
    for version in ("1.0.0", "1.1.0"):
        device_plugin_file(tmp_path, json.dumps({**INFO, "version": version}))
        info.publish("ex.com/nic", "0000:03:02.3", path)
    assert info.read(path) == INFO


def test_a_device_without_a_file_publishes_nothing(tmp_path: Path) -> None:
    info = DeviceInfo(str(tmp_path))
    info.publish("ex.com/nic", "none", info.path("sr", "c1", "net1"))
    assert info.read(info.path("sr", "c1", "net1")) is None
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("{oops", "is not JSON"),
        ("[]", "a list, an object is expected"),
        ('{"version": "1"}', 'key "type" is null'),
        ('{"type": "pci", "version": 1}', 'key "version" is a number'),
    ],
)
def test_what_is_no_device_information_is_an_error_and_not_published(tmp_path: Path, content: str, message: str) -> None:
    info = DeviceInfo(str(tmp_path))
    device_plugin_file(tmp_path, content)
    path = info.path("sr", "c1", "net1")
    with pytest.raises(DecodingError, match=message):
        info.publish("ex.com/nic", "0000:03:02.3", path)
    assert not os.path.exists(path)
    with pytest.raises(DecodingError, match=message):
        info.read(str(tmp_path / "dp" / "ex.com-nic-0000:03:02.3-device.json"))


def test_a_file_is_removed_if_it_is_there(tmp_path: Path) -> None:
    info = DeviceInfo(str(tmp_path))
    device_plugin_file(tmp_path, json.dumps(INFO))
    path = info.path("sr", "c1", "net1")
    info.publish("ex.com/nic", "0000:03:02.3", path)
    for _ in range(2):
        info.remove(path)
        assert not os.path.exists(path)
    (tmp_path / "file").write_text("x")
    info.remove(str(tmp_path / "file" / "below"))


def test_prune_removes_the_files_of_other_containers(tmp_path: Path) -> None:
    kept = (
        "sr-c1_net1", "team-sr-c1_net_2", "a-b-c1_x", "sr-c-1_a_b",
        "foreign", "foreign_net1", "sr-c9_name-of-over-15-bytes", ".sr-c9_net1", "-c9_net1",
    )
    gone = ("sr-c2_net1", "sr-c11_net1", "sr-xc1_net1", "sr-c1x_net1", "sr-c1_-c2_net1")
    (tmp_path / "cni").mkdir()
    for name in kept + gone:
        (tmp_path / "cni" / name).write_text("x")
    DeviceInfo(str(tmp_path)).prune(frozenset(("c1", "c-1")))
    # The last of the others can be read as delegate "sr", container c1, interface "-c2_net1": it stays.
    assert sorted(os.listdir(tmp_path / "cni")) == sorted((*kept, "sr-c1_-c2_net1"))


def test_prune_without_a_folder_does_nothing(tmp_path: Path) -> None:
    DeviceInfo(str(tmp_path)).prune(frozenset())
    assert os.listdir(tmp_path) == []


def test_what_cannot_be_done_is_an_error(tmp_path: Path) -> None:
    info = DeviceInfo(str(tmp_path))
    device_plugin_file(tmp_path, json.dumps(INFO))
    path = info.path("sr", "c1", "net1")
    os.makedirs(path)
    for attempt, message in (
        (lambda: info.publish("ex.com/nic", "0000:03:02.3", path), "cannot write"),
        (lambda: info.read(path), "cannot read"),
        (lambda: info.remove(path), "cannot remove"),
    ):
        with pytest.raises(IOFailureError, match=message):
            attempt()
    (tmp_path / "other").mkdir()
    (tmp_path / "other" / "cni").write_text("x")
    with pytest.raises(IOFailureError, match="cannot list"):
        DeviceInfo(str(tmp_path / "other")).prune(frozenset())
