"""What describes a bundle, and what depends on where it is."""

from __future__ import annotations

import json

import pytest

from multus.errors import DecodingError, InvalidConfigError
from multus.protocol import bundles
from multus.types.bundle import Bundle, BundleFile

DESCRIBED = {
    "version": "0.1.0-abc",
    "loader": "lib/ld.so",
    "launchers": {"multus": "multus.commands.cni"},
    "files": {"bin/python3": {"sha256": "00", "mode": 0o755}, "lib/ld.so": {"sha256": "11", "mode": 0o4755}},
}


def described(**changes: object) -> bytes:
    return json.dumps({**DESCRIBED, **changes}).encode()


def test_a_description_is_read_without_setuid_bits() -> None:
    files = {"bin/python3": BundleFile("00", 0o755), "lib/ld.so": BundleFile("11", 0o755)}
    assert Bundle("0.1.0-abc", "lib/ld.so", {"multus": "multus.commands.cni"}, files) == bundles.parse(described(), "bundle.json")


@pytest.mark.parametrize(
    ("changes", "key"),
    [
        ({"files": None}, "files"),
        ({"files": {**DESCRIBED["files"], "../escape": {"sha256": "00", "mode": 0o644}}}, "../escape"),
        ({"files": {**DESCRIBED["files"], "/etc/passwd": {"sha256": "00", "mode": 0o644}}}, "/etc/passwd"),
        ({"files": {**DESCRIBED["files"], "a": {"sha256": "00", "mode": True}}}, "a"),
        ({"files": {"bin/python3": {"sha256": "00", "mode": 0o755}}}, "loader"),
        ({"launchers": ["multus"]}, "launchers"),
        ({"launchers": {"../multus": "multus"}}, "launcher"),
        ({"version": ".hidden"}, "version"),
        ({"version": "a/b"}, "version"),
        ({"version": 3}, "version"),
    ],
)
def test_what_is_no_bundle_is_refused_by_the_key(changes: dict[str, object], key: str) -> None:
    with pytest.raises(InvalidConfigError, match=rf"^bundle\.json: .*{key}"):
        bundles.parse(described(**changes), "bundle.json")


def test_a_description_that_is_no_json_is_refused() -> None:
    with pytest.raises(DecodingError):
        bundles.parse(b"{", "bundle.json")


def test_the_loaders_path_takes_the_placeholders_place_and_nothing_moves() -> None:
    before = b"\x7fELF" + bundles.PLACEHOLDER.encode() + b"\0" + b"rest"
    after = bundles.placed(before, "/opt/cni/bin/ld.so", "python3")
    assert len(before) == len(after)
    assert after.startswith(b"\x7fELF/opt/cni/bin/ld.so\0\0")
    assert after.endswith(b"\0rest")


@pytest.mark.parametrize(("content", "loader"), [(b"no placeholder", "/ld.so"), (bundles.PLACEHOLDER.encode() + b"\0", "/" + "x" * 600)])
def test_an_interpreter_that_cannot_be_placed_is_refused(content: bytes, loader: str) -> None:
    with pytest.raises(InvalidConfigError, match="python3"):
        bundles.placed(content, loader, "python3")


def test_a_launcher_names_its_interpreter_and_nothing_else_does() -> None:
    interpreter = "/opt/cni/bin/.multus/1/bin/python3"
    assert interpreter == bundles.interpreter_of(bundles.launcher("multus.commands.cni", interpreter, 255))
    others = (b"", b"\x7fELF", b"#!/bin/sh\n", b"#!/opt/python3 -IS\n", b"#!/usr/bin/python3 -I\n", b"#!bin/python3 -IS\n")
    assert {""} == {bundles.interpreter_of(each) for each in others}


@pytest.mark.parametrize("folder", ["/" + "x" * 109, "/with space", "/new\nline"])
def test_a_path_that_no_first_line_takes_is_refused(folder: str) -> None:
    with pytest.raises(InvalidConfigError, match="the kernel takes no path of over 121 bytes"):
        bundles.launcher("multus.commands.cni", f"{folder}/bin/python3", 127)


def test_the_longest_path_is_taken() -> None:
    made = bundles.launcher("multus.commands.cni", f"/{'x' * 108}/bin/python3", 127)
    assert len(made.partition(b"\n")[0]) == 127
