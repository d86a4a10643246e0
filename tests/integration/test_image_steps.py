"""The step of the image's build that makes its environment, as it runs in the builder; pip needs a package index."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
UNCHECKED = 0b01
"""Flags of bytecode that is never compared with its source.  Spec: PEP 552."""


def built() -> list[tuple[Path, int]]:
    """What builds have left among the sources, and when."""
    left = (path for folder in (ROOT, *ROOT.glob("plugins/*")) for path in (folder / "build").rglob("*"))
    return sorted((path, path.stat().st_mtime_ns) for path in left)


@pytest.fixture(scope="module")
def built_before() -> list[tuple[Path, int]]:
    return built()


@pytest.fixture(scope="module")
def environment(tmp_path_factory: pytest.TempPathFactory, built_before: list[tuple[Path, int]]) -> Path:
    """Without what others made: 12 s instead of a minute."""
    target = tmp_path_factory.mktemp("image") / "multus-cni"
    subprocess.run(
        [ROOT / "deployments" / "image" / "environment", ROOT, target],
        env={**os.environ, "SOURCE_DATE_EPOCH": "1700000000", "PIP_NO_DEPS": "1"}, check=True, timeout=300,
    )  # fmt: skip
    return target


def test_the_environment_runs_our_commands_and_has_no_pip(environment: Path) -> None:
    shim = subprocess.run([environment / "bin" / "multus-shim", "--version"], capture_output=True, text=True, check=True, timeout=30)
    assert shim.stdout.startswith("multus-shim: version:")
    assert {"multus", "multus-daemon", "multus-probe", "passthru-cni", "python3"} <= {path.name for path in (environment / "bin").iterdir()}
    assert list(environment.rglob("pip")) == []
    assert (environment / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()


def test_nothing_in_it_is_of_the_folder_that_it_was_built_in(environment: Path) -> None:
    assert list(environment.rglob("direct_url.json")) == []
    for record in environment.rglob("RECORD"):
        assert "direct_url" not in record.read_text()


def test_every_module_is_compiled_and_never_compared_with_its_source(environment: Path) -> None:
    sources = [path for path in environment.rglob("*.py") if "lib2to3" not in path.parts]
    assert len(sources) > 100
    for source in sources:
        (compiled,) = (source.parent / "__pycache__").glob(f"{source.stem}.cpython-*.pyc")
        assert int.from_bytes(compiled.read_bytes()[4:8], "little") == UNCHECKED, source


def test_the_sources_are_left_as_they_were(built_before: list[tuple[Path, int]], environment: Path) -> None:
    """Builds in the middle of a checkout leave folders that later installations would take for sources."""
    assert built() == built_before


def test_the_bundle_is_made_of_the_environment(tmp_path: Path) -> None:
    """Of the one at hand, which has what others made, too."""
    if sys.prefix == sys.base_prefix:
        pytest.skip("the tests do not run in an environment")
    for name in ("bin", "lib", "pyvenv.cfg"):
        (tmp_path / name).symlink_to(Path(sys.prefix, name))
    subprocess.run([ROOT / "deployments" / "image" / "bundle", ROOT, tmp_path], check=True, timeout=300)
    described = json.loads((tmp_path / "bundle" / "bundle.json").read_text())
    assert {"multus", "multus-shim"} <= described["launchers"].keys()
    assert all((tmp_path / "bundle" / name).is_file() for name in described["files"])
