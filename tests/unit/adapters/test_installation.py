"""Installations of small bundles in a folder: what is there afterwards, whatever happened before or in between."""

from __future__ import annotations

import errno
import hashlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from multus.adapters.installation import FOLDER, KEPT_S, Installation, host_path
from multus.errors import InvalidConfigError
from multus.protocol import bundles

NAMES = ("multus", "passthru")
HOST = "/opt/cni/bin"
START_S = 1_000_000.0
CALLS = ("open", "write", "fsync", "rename", "mkdir", "fchmod", "unlink", "rmdir", "utime", "listdir")
"""Of ``os``: those whose failure, or a death before them, can make a difference."""


def make_bundle(folder: Path, version: str) -> Path:
    """A bundle of four files; its interpreter can be placed and not run."""
    shutil.rmtree(folder, ignore_errors=True)
    contents = {
        "bin/python3": f"ELF{bundles.PLACEHOLDER}\0",
        "lib/ld.so": "loader",
        "lib/os.pyc": f"os of {version}",
        "lib/multus/errors.pyc": f"errors of {version}",
    }
    files = {}
    for name, text in contents.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        files[name] = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "mode": 0o755 if name == "bin/python3" else 0o644}
    launchers = {"multus": "multus.commands.cni", "multus-shim": "multus.commands.shim", "passthru": "multus_passthru.command"}
    described = {"version": version, "loader": "lib/ld.so", "launchers": launchers, "files": files}
    (folder / "bundle.json").write_text(json.dumps(described))
    return folder


@pytest.fixture
def bin_dir(tmp_path: Path) -> Path:
    path = tmp_path / "bin"
    path.mkdir()
    (path / "bridge").write_text("somebody else's")
    return path


def installation(bin_dir: Path, now: float = START_S) -> Installation:
    return Installation(str(bin_dir), HOST, lambda: now)


def tree(folder: Path) -> dict[str, str]:
    """Every file below, by its path, with its content; folders end in a slash."""
    paths = sorted(folder.rglob("*"))
    return {f"{path.relative_to(folder)}{'/' * path.is_dir()}": path.read_text() if path.is_file() else "" for path in paths}


def versions(bin_dir: Path) -> list[str]:
    return sorted(os.listdir(bin_dir / FOLDER))


def test_a_bundle_is_copied_and_its_launchers_name_it(bin_dir: Path, tmp_path: Path) -> None:
    made = installation(bin_dir).install(str(make_bundle(tmp_path / "one", "1")), NAMES)
    assert [str(bin_dir / name) for name in NAMES] == made
    assert f"#!{HOST}/.multus/1/bin/python3 -IS\nfrom multus.commands.cni import main\nmain()\n" == (bin_dir / "multus").read_text()
    home = bin_dir / FOLDER / "1"
    assert (home / "bin/python3").read_text().rstrip("\0") == f"ELF{HOST}/.multus/1/lib/ld.so"
    assert (home / "lib/os.pyc").read_text() == "os of 1"
    modes = {path.name: stat.S_IMODE(path.stat().st_mode) for path in (home / "bin/python3", home / "lib/ld.so", bin_dir / "multus", home)}
    assert {"python3": 0o755, "ld.so": 0o644, "multus": 0o755, "1": 0o755} == modes
    assert ["bridge", ".multus", "multus", "passthru"] == sorted(os.listdir(bin_dir), key=lambda name: (name != "bridge", name))


def test_modes_do_not_depend_on_the_umask(bin_dir: Path, tmp_path: Path) -> None:
    before = os.umask(0o077)
    try:
        installation(bin_dir).install(str(make_bundle(tmp_path / "one", "1")), NAMES)
    finally:
        os.umask(before)
    assert {0o755} == {stat.S_IMODE(path.stat().st_mode) for path in bin_dir.rglob("*") if path.is_dir()}


def test_what_is_there_already_is_not_written_again(bin_dir: Path, tmp_path: Path) -> None:
    source = str(make_bundle(tmp_path / "one", "1"))
    installation(bin_dir).install(source, NAMES)
    before = {path: path.stat().st_ino for path in bin_dir.rglob("*")}
    installation(bin_dir).install(source, NAMES)
    assert before == {path: path.stat().st_ino for path in bin_dir.rglob("*")}


def test_a_damaged_installation_is_repaired(bin_dir: Path, tmp_path: Path) -> None:
    source = str(make_bundle(tmp_path / "one", "1"))
    installation(bin_dir).install(source, NAMES)
    whole = tree(bin_dir)
    home = bin_dir / FOLDER / "1"
    (home / "bin/python3").write_text("torn")
    shutil.rmtree(home / "lib/multus")
    (home / "lib/ld.so").chmod(0o600)
    (bin_dir / "multus").unlink()
    (bin_dir / "passthru").write_bytes(b"\x7fELF of another implementation")
    installation(bin_dir).install(source, NAMES)
    assert whole == tree(bin_dir)
    assert stat.S_IMODE((home / "lib/ld.so").stat().st_mode) == 0o644


def test_a_link_in_a_launchers_place_is_replaced_and_not_followed(bin_dir: Path, tmp_path: Path) -> None:
    (tmp_path / "elsewhere").write_text("precious")
    (bin_dir / "multus").symlink_to(tmp_path / "elsewhere")
    installation(bin_dir).install(str(make_bundle(tmp_path / "one", "1")), NAMES)
    assert (tmp_path / "elsewhere").read_text() == "precious"
    assert not (bin_dir / "multus").is_symlink()


def test_the_version_before_is_kept_and_older_ones_go_when_no_call_can_run_them(bin_dir: Path, tmp_path: Path) -> None:
    sources = {version: str(make_bundle(tmp_path / version, version)) for version in "1234"}
    for version, hours in (("1", 0), ("2", 1), ("3", 1.5)):
        installation(bin_dir, START_S + hours * KEPT_S).install(sources[version], NAMES)
    assert ["1", "2", "3"] == versions(bin_dir)
    installation(bin_dir, START_S + 2.2 * KEPT_S).install(sources["4"], NAMES)
    assert ["2", "3", "4"] == versions(bin_dir)
    installation(bin_dir, START_S + 99 * KEPT_S).install(sources["4"], NAMES)
    assert ["3", "4"] == versions(bin_dir)


def test_a_version_that_the_other_type_runs_stays(bin_dir: Path, tmp_path: Path) -> None:
    for version, names in (("1", ("multus-shim", "passthru")), ("2", NAMES), ("3", NAMES), ("4", NAMES)):
        source = str(make_bundle(tmp_path / version, version))
        installation(bin_dir, START_S + int(version) * 2 * KEPT_S).install(source, names)
    assert {"1", "4"} < set(versions(bin_dir))
    assert "/1/" in (bin_dir / "multus-shim").read_text()


def test_uninstalling_leaves_what_is_not_ours(bin_dir: Path, tmp_path: Path) -> None:
    installation(bin_dir).install(str(make_bundle(tmp_path / "one", "1")), (*NAMES, "multus-shim"))
    (bin_dir / "passthru").write_bytes(b"\x7fELF of another implementation")
    removed = installation(bin_dir).uninstall()
    assert {str(bin_dir / name) for name in ("multus", "multus-shim", FOLDER)} == set(removed)
    assert ["bridge", "passthru"] == sorted(os.listdir(bin_dir))
    assert [] == installation(bin_dir).uninstall()


def test_a_damaged_bundle_is_not_installed(bin_dir: Path, tmp_path: Path) -> None:
    installation(bin_dir).install(str(make_bundle(tmp_path / "one", "1")), NAMES)
    source = make_bundle(tmp_path / "two", "2")
    (source / "lib/ld.so").write_text("other")
    before = (bin_dir / "multus").read_text()
    with pytest.raises(InvalidConfigError, match=r"lib/ld\.so is not what bundle\.json says"):
        installation(bin_dir).install(str(source), NAMES)
    assert before == (bin_dir / "multus").read_text()
    assert ["1"] == versions(bin_dir)


def test_a_bundle_without_the_launcher_is_not_installed(bin_dir: Path, tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match="has no 'other'"):
        installation(bin_dir).install(str(make_bundle(tmp_path / "one", "1")), ["other"])
    assert ["bridge"] == os.listdir(bin_dir)


@pytest.mark.parametrize(
    ("seen", "expected"),
    [("/host/opt/cni/bin", "/opt/cni/bin"), ("/host/opt/cni/bin/", "/opt/cni/bin"), ("/opt/cni/bin", "/opt/cni/bin"), ("/hosts", "/hosts")],
)
def test_the_hosts_path_is_without_its_mount(seen: str, expected: str) -> None:
    assert expected == host_path(seen)


@pytest.fixture(params=["first", "repair", "upgrade and removal", "uninstall"])
def scene(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Scene:
    """A folder as it is before, and what is to be done in it; the disk is never waited for."""
    monkeypatch.setattr(os, "fsync", lambda _: None)
    sources = [str(make_bundle(tmp_path / version, version)) for version in "123"]
    before = tmp_path / "before"
    before.mkdir()
    if request.param != "first":
        installation(before).install(sources[0], NAMES)
    if request.param == "repair":
        (before / FOLDER / "1" / "lib/ld.so").write_text("torn")
        return Scene(before, lambda bin_dir: installation(bin_dir).install(sources[0], NAMES))
    if request.param == "uninstall":
        return Scene(before, lambda bin_dir: installation(bin_dir).uninstall())
    if request.param == "first":
        return Scene(before, lambda bin_dir: installation(bin_dir).install(sources[0], NAMES))
    installation(before, START_S + KEPT_S).install(sources[1], NAMES)
    return Scene(before, lambda bin_dir: installation(bin_dir, START_S + 9 * KEPT_S).install(sources[2], NAMES))


class Scene(NamedTuple):
    before: Path
    act: Callable[[Path], object]

    def copy(self, number: int) -> Path:
        folder = self.before.with_name(f"turn{number}")
        shutil.copytree(self.before, folder)
        return folder


def test_after_every_call_that_fails_the_next_installation_completes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """And the error is told."""
    told = 0
    for outcome in _interrupted_at_each_call(scene, monkeypatch, is_fatal=False):
        assert outcome is None or isinstance(outcome, OSError)  # None: a look that failed and did not matter
        told += outcome is not None
    assert told > 5


def test_killed_at_every_call_the_next_installation_completes(scene: Scene, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing is cleaned up by the dead: all calls after the last one fail."""
    for outcome in _interrupted_at_each_call(scene, monkeypatch, is_fatal=True):
        assert outcome is not None


def _interrupted_at_each_call(scene: Scene, monkeypatch: pytest.MonkeyPatch, *, is_fatal: bool) -> Iterator[BaseException | None]:
    """A turn for each call of ``os`` that the scene makes: interrupted there, then done again; how the first attempt ended."""
    reference = scene.copy(0)
    scene.act(reference)
    expected = tree(reference)
    for number in itertools.count(1):
        folder = scene.copy(number)
        outcome: BaseException | None = None
        with monkeypatch.context() as patch:
            counter = _Interruption(number, is_fatal)
            for name in CALLS:
                patch.setattr(os, name, counter.wrapped(getattr(os, name)))
            try:
                scene.act(folder)
            except BaseException as exc:
                outcome = exc
        if counter.count < number:
            assert number > 20
            return
        scene.act(folder)
        assert expected == tree(folder)
        yield outcome


class _Interruption:
    """At the call of that number: a failure, or death, after which all calls fail; what is open is closed, as the kernel does it."""

    def __init__(self, number: int, is_fatal: bool) -> None:
        self.count = 0
        self._number = number
        self._is_fatal = is_fatal

    def wrapped(self, call: Callable[..., object]) -> Callable[..., object]:
        def counted(*args: object, **kwargs: object) -> object:
            self.count += 1
            if self.count == self._number or (self._is_fatal and self.count > self._number):
                raise _Killed if self._is_fatal else OSError(errno.EIO, "injected")
            return call(*args, **kwargs)

        return counted


class _Killed(BaseException):
    pass
