"""``install_multus`` as a function: arguments in, messages and an exit status out."""

from __future__ import annotations

import hashlib
import json
import os
import stat
from pathlib import Path

import pytest

from multus.commands import install
from multus.protocol import bundles


@pytest.fixture
def bundle(tmp_path: Path) -> Path:
    folder = tmp_path / "bundle"
    files = {}
    for name, text in (("bin/python3", f"{bundles.PLACEHOLDER}\0"), ("lib/ld.so", "loader")):
        (folder / name).parent.mkdir(parents=True)
        (folder / name).write_text(text)
        files[name] = {"sha256": hashlib.sha256(text.encode()).hexdigest(), "mode": 0o755}
    launchers = {"multus": "multus.commands.cni", "multus-shim": "multus.commands.shim", "passthru": "multus_passthru.command"}
    described = {"version": "1", "loader": "lib/ld.so", "launchers": launchers, "files": files}
    (folder / "bundle.json").write_text(json.dumps(described))
    return folder


@pytest.fixture
def dest(tmp_path: Path) -> Path:
    path = tmp_path / "bin"
    path.mkdir()
    return path


@pytest.mark.parametrize(
    ("flag", "names"),
    [
        (("-t", "thick"), ["multus-shim", "passthru"]),
        (("--type=thin",), ["multus", "passthru"]),
        (("--type", "thin"), ["multus", "passthru"]),
    ],
)
@pytest.mark.parametrize("folder_flag", ["-d", "--dest-dir"])
def test_a_type_installs_its_executable_and_passthru_and_tells_each(flag, names, folder_flag, bundle, dest, capsys) -> None:
    assert install.run([*flag, folder_flag, str(dest), "--bundle", str(bundle)]) == 0
    assert sorted([".multus", *names]) == sorted(os.listdir(dest))
    assert [f"{dest}/{name} is installed" for name in names] == capsys.readouterr().out.splitlines()
    assert (dest / "passthru").read_text().startswith(f"#!{dest}/.multus/1/bin/python3 ")


def test_the_hosts_own_path_can_be_told(bundle: Path, dest: Path) -> None:
    assert install.run(["-t", "thin", "-d", str(dest), "--bundle", str(bundle), "--host-dir", "/usr/libexec/cni"]) == 0
    assert (dest / "multus").read_text().startswith("#!/usr/libexec/cni/.multus/1/bin/python3 ")


@pytest.mark.parametrize("arguments", [[], ["-t", ""], ["-t", "fat"], ["--type=THICK"]])
def test_another_type_is_refused(arguments, bundle, dest, capsys) -> None:
    assert install.run([*arguments, "-d", str(dest), "--bundle", str(bundle)]) == 1
    captured = capsys.readouterr()
    assert captured.out == ""
    assert "is neither thick nor thin" in captured.err
    assert [] == os.listdir(dest)


@pytest.mark.parametrize("flag", ["-h", "--help"])
def test_help_is_usage_and_status_1(flag, capsys) -> None:
    assert install.run([flag]) == 1
    assert "--dest-dir" in capsys.readouterr().err


@pytest.mark.parametrize("arguments", [["--typ", "thin"], ["--unknown"], ["-x"], ["-t"]])
def test_unknown_arguments_are_status_2(arguments, capsys) -> None:
    with pytest.raises(SystemExit) as left:
        install.run(arguments)
    assert left.value.code == 2
    assert "usage: install_multus" in capsys.readouterr().err


def test_a_missing_folder_is_named(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install.run(["-t", "thin", "-d", str(tmp_path / "none"), "--bundle", str(bundle)]) == 1
    assert f"install_multus: {tmp_path}/none: No such file or directory\n" == capsys.readouterr().err


def test_a_folder_that_cannot_be_written_is_named(bundle: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """A file in a folder's place: root is refused, too."""
    (tmp_path / "bin").write_text("")
    assert install.run(["-t", "thin", "-d", str(tmp_path / "bin"), "--bundle", str(bundle)]) == 1
    assert f"{tmp_path}/bin" in capsys.readouterr().err


def test_the_file_that_cannot_be_installed_is_named(bundle: Path, dest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (dest / "passthru").mkdir()
    assert install.run(["-t", "thin", "-d", str(dest), "--bundle", str(bundle)]) == 1
    assert f"{dest}/passthru" in capsys.readouterr().err
    assert [] == [name for name in os.listdir(dest) if name.endswith(".tmp")]


def test_a_missing_bundle_is_named(dest: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert install.run(["-t", "thin", "-d", str(dest), "--bundle", str(tmp_path / "none")]) == 1
    assert f"{tmp_path}/none/bundle.json" in capsys.readouterr().err


def test_uninstall_needs_no_type_and_no_bundle(bundle: Path, dest: Path, capsys: pytest.CaptureFixture[str]) -> None:
    install.run(["-t", "thin", "-d", str(dest), "--bundle", str(bundle)])
    capsys.readouterr()
    assert install.run(["--uninstall", "-d", str(dest)]) == 0
    assert [] == os.listdir(dest)
    assert {f"{dest}/{name} is removed" for name in ("multus", "passthru", ".multus")} == set(capsys.readouterr().out.splitlines())


def test_the_mode_is_the_sources_without_setuid(bundle: Path, dest: Path) -> None:
    install.run(["-t", "thin", "-d", str(dest), "--bundle", str(bundle)])
    modes = {stat.S_IMODE((dest / path).stat().st_mode) for path in ("multus", "passthru", ".multus/1/bin/python3")}
    assert {0o755} == modes
