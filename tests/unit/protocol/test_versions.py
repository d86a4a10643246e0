"""multus.protocol.versions: comparing CNI versions and what each allows."""

from __future__ import annotations

import itertools

import pytest

from multus import errors
from multus.protocol import versions
from multus.types.invocation import CNICommand


@pytest.mark.parametrize(
    ("text", "expected"),
    [("1.1.0", (1, 1, 0)), ("0.3.1", (0, 3, 1)), ("1", (1, 0, 0)), ("0.4", (0, 4, 0)), ("", (0, 1, 0)), ("01.0.10", (1, 0, 10))],
)
def test_missing_parts_are_0_and_empty_is_0_1_0(text: str, expected: tuple[int, int, int]) -> None:
    assert versions.parse(text) == expected


@pytest.mark.parametrize(
    "text",
    ["1.0.0.0", "1.0.0.", ".", "1..0", "a", "1.x", "v1.0.0", "1.0.0-rc1", "-1.0.0", "+1.0",
     " 1.0.0", "1.0.0 ", "\u00b2", "\u0661", "9" * 5000],
)
def test_what_is_no_version_is_an_invalid_configuration(text: str) -> None:
    with pytest.raises(errors.InvalidConfigError) as caught:
        versions.parse(text)
    assert repr(text[:60]) in caught.value.msg


def test_the_supported_versions_are_in_order() -> None:
    assert sorted(versions.SUPPORTED, key=versions.parse) == list(versions.SUPPORTED)
    for (older_at, older), (newer_at, newer) in itertools.product(enumerate(versions.SUPPORTED), repeat=2):
        assert versions.at_least(newer, older) == (newer_at >= older_at)


def test_versions_compare_as_numbers() -> None:
    assert versions.at_least("0.10.0", "0.4.0")
    assert versions.at_least("1.0", "1.0.0")
    assert not versions.at_least("", "0.2.0")


@pytest.mark.parametrize(
    ("command", "since"),
    [
        (CNICommand.ADD, "0.1.0"),
        (CNICommand.DEL, "0.1.0"),
        (CNICommand.VERSION, "0.1.0"),
        (CNICommand.CHECK, "0.4.0"),
        (CNICommand.GC, "1.1.0"),
        (CNICommand.STATUS, "1.1.0"),
    ],
)
def test_a_command_is_allowed_from_the_version_that_brought_it(command: CNICommand, since: str) -> None:
    allowed = [version for version in versions.SUPPORTED if versions.allows(command, version)]
    assert allowed == list(versions.SUPPORTED[versions.SUPPORTED.index(since):])


def test_an_empty_version_allows_what_0_1_0_allows() -> None:
    assert versions.allows(CNICommand.ADD, "")
    assert not versions.allows(CNICommand.CHECK, "")


@pytest.mark.parametrize(
    ("version", "listed", "expected"),
    [
        ("0.4.0", (), "0.4.0"),
        ("", (), ""),
        ("", ("0.3.1", "1.0.0"), "1.0.0"),
        ("1.0.0", ("0.3.1",), "1.0.0"),
        ("0.3.1", ("0.4.0", "1.1.0", "1.0.0"), "1.1.0"),
        ("0.3.1", ("0.4.0", "1.2.0", "2.0.0"), "0.4.0"),
        ("2.0.0", ("0.4.0",), "0.4.0"),
        ("2.0.0", ("3.0.0",), "2.0.0"),
        ("2.0.0", (), "2.0.0"),
        ("", ("2.0.0",), ""),
    ],
)
def test_the_highest_known_version_of_a_conflist_is_used(version: str, listed: tuple[str, ...], expected: str) -> None:
    assert versions.highest(version, listed) == expected


def test_a_malformed_entry_of_cni_versions_is_an_error_even_beside_good_ones() -> None:
    with pytest.raises(errors.InvalidConfigError, match=r"'1\.x'"):
        versions.highest("1.0.0", ("1.1.0", "1.x"))
    with pytest.raises(errors.InvalidConfigError, match=r"cniVersions\[1\] is not a string"):
        versions.highest("1.0.0", ("1.1.0", 1.0))


def test_a_supported_version_is_required_literally() -> None:
    assert [versions.require_supported(version) for version in versions.SUPPORTED] == list(versions.SUPPORTED)
    assert versions.require_supported("") == "0.1.0"
    for version in ("1.0", "01.0.0", "1.2.0", "0.0.1", "x"):
        with pytest.raises(errors.IncompatibleVersionError):
            versions.require_supported(version)


def test_an_unsupported_version_is_named_with_the_supported_list() -> None:
    with pytest.raises(errors.IncompatibleVersionError) as caught:
        versions.require_supported("9.9.9", "net-attach-def team/blue")
    assert caught.value.code == 1
    assert caught.value.msg == "net-attach-def team/blue: key \"cniVersion\" '9.9.9' is not supported"
    assert caught.value.details == "config is '9.9.9', plugin supports 0.1.0, 0.2.0, 0.3.0, 0.3.1, 0.4.0, 1.0.0, 1.1.0"
