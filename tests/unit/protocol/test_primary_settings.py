"""The daemon's configuration file to the settings of the configuration manager."""

from __future__ import annotations

import pytest

from multus.errors import IncompatibleVersionError, InvalidConfigError
from multus.protocol.primary_settings import capabilities_of, from_document
from multus.types.primary import PrimarySettings

EVERYTHING = {
    "CNIConfigDir": "/host/etc/cni/net.d",
    "multusAutoconfigDir": "/host/auto",
    "multusMasterCNI": "10-a.conf",
    "multusConfigFile": "auto",
    "cniVersion": "1.1.0",
    "forceCNIVersion": True,
    "overrideNetworkName": True,
    "cleanupConfigOnExit": True,
    "readinessindicatorfile": "/run/ready",
    "type": "node-plugin",
    "capabilities": {"mac": True},
    "BINDIR": "/opt/cni/bin",
    "logToStderr": False,
    "shimDeadline": 2.5,
    "socketDir": "/run/multus",
}


def test_every_key_is_read_in_any_case() -> None:
    assert from_document(EVERYTHING, "d.json") == PrimarySettings(
        "/host/etc/cni/net.d", "/host/auto", "10-a.conf", "auto", "1.1.0", True, True, True, "/run/ready", "node-plugin", {"mac": True},
        {"binDir": "/opt/cni/bin", "logToStderr": False, "shimDeadline": 2.5},
    )  # fmt: skip


def test_without_keys_there_are_defaults_and_one_folder() -> None:
    settings = from_document({"cniConfigDir": "", "type": None, "capabilities": None}, "d.json")
    assert settings == PrimarySettings()
    assert (settings.primary_folder, settings.is_automatic) == ("/etc/cni/net.d", True)


def test_a_path_in_place_of_auto_is_a_ready_made_file() -> None:
    assert not from_document({"multusConfigFile": "/tmp/my.conf"}, "d.json").is_automatic


@pytest.mark.parametrize(
    ("key", "value", "said"),
    [
        ("cniConfigDir", 5, "a string is expected"),
        ("cniConfigDir", "net.d", "no absolute path"),
        ("multusAutoconfigDir", "net.d", "no absolute path"),
        ("forceCNIVersion", "true", "true or false is expected"),
        ("forceCNIVersion", True, "does not say which"),
        ("multusConfigFile", "my.conf", "neither auto nor an absolute path"),
        ("multusMasterCNI", "a\0b", "it has NUL"),
        ("type", "bin/multus", "no file name"),
        ("binDir", False, "a string is expected"),
        ("logOptions", [], "an object is expected"),
        ("shimDeadline", True, "a number is expected"),
        ("capabilities", {"mac": 1}, '"mac" as a number'),
        ("capabilities", "mac", "an object of booleans"),
    ],
)
def test_a_value_of_the_wrong_kind_is_an_error_that_names_file_and_key(key: str, value: object, said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said) as caught:
        from_document({key: value}, "d.json")
    assert caught.value.msg.startswith(f'd.json: key "{key}"')


def test_an_unknown_version_is_refused() -> None:
    with pytest.raises(IncompatibleVersionError, match=r"d.json: .*0.9"):
        from_document({"cniVersion": "0.9"}, "d.json")


def test_no_capabilities_are_none() -> None:
    assert capabilities_of(None, "x") == {}
