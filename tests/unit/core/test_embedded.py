"""The thin plugin's configuration: its text as the reference writes it, and that we read what we write."""

from __future__ import annotations

import json
from typing import Any

import pytest

from multus.core import embedded
from multus.errors import InvalidConfigError
from multus.protocol import conflists, multus_config
from multus.types.primary import PrimarySettings

PATH = "/host/etc/cni/net.d/10-demo.conf"
KUBECONFIG = "/etc/cni/net.d/multus.d/multus.kubeconfig"
USUAL = {"cniConf": "/host/etc/cni/multus/net.d", "kubeconfig": KUBECONFIG}
ALL = {
    "namespaceIsolation": True,
    "globalNamespaces": "default,infra",
    "logToStderr": False,
    "logLevel": "debug",
    "logFile": "/var/log/multus.log",
    "binDir": "/opt/extra/bin",
    **USUAL,
    "readinessindicatorfile": "/run/ready",
}
NOT_READ = {"cniConf"}
"""Written for those who look for it, as the reference does; it has never had an effect."""


def settings(passed: dict[str, object] = USUAL, **more: Any) -> PrimarySettings:
    return PrimarySettings(plugin_type="multus", passed=passed, **more)


def text_of(document: dict[str, object], made_by: PrimarySettings) -> str:
    return embedded.generate(conflists.parse(document, where=PATH), made_by, PATH)[1]


def single(version: str = "0.4.0", **more: object) -> dict[str, object]:
    return {"cniVersion": version, "name": "demo", "type": "bridge", **more}


def plugin_of(text: str) -> dict[str, Any]:
    """What a runtime hands to our plugin: name and version put in."""
    document = json.loads(text)
    top = {"cniVersion": document["cniVersion"], "name": document["name"]}
    return {**top, **document["plugins"][0]} if "plugins" in document else document


def test_a_single_plugin_is_laid_out_byte_for_byte() -> None:
    passed = {**USUAL, "logToStderr": False, "logLevel": "verbose"}
    assert text_of(single(capabilities={"ips": True}), settings(passed)) == """{
        "cniVersion": "0.4.0",
        "name": "multus-cni-network",
        "type": "multus",
        "capabilities": {"ips":true},
        "logToStderr": false,
        "logLevel": "verbose",
        "cniConf": "/host/etc/cni/multus/net.d",
        "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig",
        "delegates": [
                {"capabilities":{"ips":true},"cniVersion":"0.4.0","name":"demo","type":"bridge"}
        ]
}
"""


def test_a_list_is_laid_out_byte_for_byte() -> None:
    passed = {key: ALL[key] for key in ("namespaceIsolation", "globalNamespaces", "logFile", "binDir", "readinessindicatorfile")}
    document = {"name": "demo", "plugins": [{"type": "bridge"}], "cniVersion": "1.0.0"}
    assert text_of(document, settings({**passed, **USUAL}, override_network_name=True)) == """{
    "cniVersion": "1.0.0",
    "name": "demo",
    "plugins": [ {
        "type": "multus",
        "namespaceIsolation": true,
        "globalNamespaces": "default,infra",
        "logFile": "/var/log/multus.log",
        "binDir": "/opt/extra/bin",
        "cniConf": "/host/etc/cni/multus/net.d",
        "readinessindicatorfile": "/run/ready",
        "kubeconfig": "/etc/cni/net.d/multus.d/multus.kubeconfig",
        "delegates": [
            {"cniVersion":"1.0.0","name":"demo","plugins":[{"type":"bridge"}]}
        ]
    }]
}
"""


@pytest.mark.parametrize(
    ("version", "name"),
    [("0.3.1", "00-multus.conf"), ("0.4.0", "00-multus.conf"), ("1.0.0", "00-multus.conflist"), ("1.1.0", "00-multus.conflist")],
)
def test_the_form_and_the_files_name_go_by_the_version(version: str, name: str) -> None:
    made, text = embedded.generate(conflists.parse(single(version), where=PATH), settings(), PATH)
    assert (name, "plugins" in json.loads(text)) == (made, name.endswith("list"))


@pytest.mark.parametrize("version", ["0.4.0", "1.1.0"])
def test_all_that_is_written_is_read(version: str) -> None:
    """One schema: the loader of the plugin takes each member for what was meant."""
    document = plugin_of(text_of(single(version), settings(dict(ALL))))
    config = multus_config.from_document(document)
    assert (True, ("default", "infra"), "/opt/extra/bin", "/run/ready", KUBECONFIG) == (
        config.namespace_isolation, config.global_namespaces, config.bin_dir, config.readiness_indicator_file, config.kubeconfig,
    )  # fmt: skip
    assert ("debug", "/var/log/multus.log", False) == (config.log.level, config.log.file, config.log.to_stderr)
    assert [single(version)] == [delegate.document for delegate in config.delegates]
    read = {spelling for spelling, *_ in multus_config._FIELDS.values()} | multus_config._SPELLINGS
    assert NOT_READ == document.keys() - read - {"type", "capabilities"}


def test_capabilities_are_those_of_any_plugin_and_false_is_said() -> None:
    plugins = [
        {"type": "a", "capabilities": {"mac": False, "bandwidth": True, "ips": False}},
        {"type": "b", "capabilities": {"bandwidth": False, "ips": True}},
    ]
    text = text_of({"cniVersion": "1.0.0", "name": "demo", "plugins": plugins}, settings())
    assert '        "capabilities": {"bandwidth":true,"ips":true,"mac":false},\n' in text


def test_texts_are_json_strings() -> None:
    text = text_of(single(), settings({**USUAL, "logFile": "/var/log/\"multus\"\\.log"}))
    assert plugin_of(text)["logFile"] == "/var/log/\"multus\"\\.log"


def test_the_primary_is_whole_with_every_digit_and_sorted_at_any_depth() -> None:
    document = single(z=[{"b": 1, "a": 12345678901234567890}], a="é")
    line = next(line for line in text_of(document, settings()).splitlines() if line.startswith(" " * 16))
    assert line.strip() == '{"a":"\\u00e9","cniVersion":"0.4.0","name":"demo","type":"bridge","z":[{"a":12345678901234567890,"b":1}]}'


def test_a_version_that_was_asked_for_has_to_be_the_primarys() -> None:
    assert plugin_of(text_of(single("0.4.0"), settings(cni_version="0.4.0")))["cniVersion"] == "0.4.0"
    with pytest.raises(InvalidConfigError, match=r"10-demo\.conf: its cniVersion 0\.4\.0 is not 1\.0\.0, which was asked for"):
        text_of(single("0.4.0"), settings(cni_version="1.0.0"))


def test_a_forced_version_is_that_of_ours_and_of_the_copy() -> None:
    document = {"CNIVersion": "0.4.0", "name": "demo", "cniVersions": ["0.4.0"], "plugins": [{"type": "bridge"}]}
    made = plugin_of(text_of(document, settings(cni_version="1.0.0", force_cni_version=True)))
    assert made["cniVersion"] == "1.0.0"
    assert [{"cniVersion": "1.0.0", "name": "demo", "plugins": [{"type": "bridge"}]}] == made["delegates"]


@pytest.mark.parametrize(
    ("document", "said"),
    [
        ({"name": "demo", "type": "bridge"}, r'has no key "cniVersion"'),
        (single(capabilities={"ips": "yes"}), r'key "capabilities" has "ips" as a string'),
        (single(capabilities=["ips"]), r'key "capabilities" is a list'),
    ],
)
def test_what_cannot_be_wrapped_is_refused_by_the_key(document: dict[str, object], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        text_of(document, settings())
