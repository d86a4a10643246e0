"""Which configuration is the primary one, which are our own, and what ours says."""

from __future__ import annotations

import json
from typing import Any

import pytest

from multus.core import primary
from multus.errors import DecodingError, IncompatibleVersionError, InvalidConfigError
from multus.protocol import conflists, documents
from multus.types.config import ConfList
from multus.types.primary import Candidate, PrimarySettings

FOLDER = "/host/etc/cni/net.d"
SINGLE = {"cniVersion": "1.0.0", "name": "demo", "type": "bridge"}


def conf_of(**members: object) -> ConfList:
    return conflists.parse({**SINGLE, **members}, where="x")


def list_of(*plugins: dict[str, object], version: str = "1.0.0") -> ConfList:
    return conflists.parse({"cniVersion": version, "name": "demo", "plugins": list(plugins)}, where="x")


def plugin(plugin_type: str, **capabilities: object) -> dict[str, object]:
    return {"type": plugin_type, "capabilities": capabilities} if capabilities else {"type": plugin_type}


def valid(name: str) -> Candidate:
    return Candidate(f"{FOLDER}/{name}", conf_of(name=name.partition(".")[0]))


def own(name: str) -> Candidate:
    return Candidate(f"{FOLDER}/{name}", is_own=True)


def broken(name: str) -> Candidate:
    return Candidate(f"{FOLDER}/{name}", problem=f"{FOLDER}/{name} is not JSON")


@pytest.mark.parametrize(
    ("names", "expected"),
    [
        (["00-multus.conf", "10-calico.conflist", "05-x.json"], ("00-multus.conf", "10-calico.conflist")),
        (["00-multus.conflist.bak", "99-loop.conf", "20-a.conf"], ("20-a.conf", "99-loop.conf")),
        (["10-a.conf", "10-A.conf"], ("10-A.conf", "10-a.conf")),
        (["a\udcff.conf", "a\U0001f600.conf"], ("a\U0001f600.conf", "a\udcff.conf")),
        (["x.CONF", "conf", "x.conf.bak", ".00-multus.conf.1.2.tmp"], ()),
    ],
)
def test_candidates_are_by_extension_in_byte_order(names: list[str], expected: tuple[str, ...]) -> None:
    assert primary.candidates(names) == expected


@pytest.mark.parametrize(
    "document",
    [
        {"type": "multus"},
        {"type": "multus-shim", "clusterNetwork": "/x"},
        {"Type": "multus-shim"},
        {"plugins": [{"type": "bridge"}, {"type": "multus"}]},
        {"type": "meta", "delegates": [{"plugins": [{"type": "multus-shim"}]}]},
        {"type": "flannel", "delegate": {"type": "multus"}},
        {"type": "node-plugin", "clusterNetwork": "/x"},
    ],
)
def test_what_leads_to_multus_at_any_depth_is_our_own(document: dict[str, object]) -> None:
    assert primary.is_own(document, "node-plugin")


@pytest.mark.parametrize(
    "document",
    [
        {},
        {"type": "bridge", "name": "multus"},
        {"type": "multus-like"},
        {"type": "node-plugin"},
        {"type": ["multus"]},
        {"type": "bridge", "args": {"type": "multus"}},
        {"type": "bridge", "delegates": "multus"},
    ],
)
def test_what_does_not_is_not(document: dict[str, object]) -> None:
    assert not primary.is_own(document, "node-plugin")


def test_nesting_deeper_than_the_stack_is_looked_through() -> None:
    document: dict[str, Any] = {"type": "multus"}
    for _ in range(5000):
        document = {"delegates": [document]}
    assert primary.is_own(document)


def test_the_first_file_that_is_not_ours_is_the_primary_configuration() -> None:
    choice = primary.choose([own("00-multus.conf"), valid("10-a.conf"), valid("20-b.conf")], "", FOLDER)
    assert (choice.path, choice.conf.name, choice.warning) == (f"{FOLDER}/10-a.conf", "10-a", "")
    assert choice.reason == f"first by name of 2 in {FOLDER}"


def test_an_earlier_file_takes_the_place_of_the_present_one() -> None:
    choice = primary.choose([valid("05-new.conf"), valid("10-a.conf")], f"{FOLDER}/10-a.conf", FOLDER)
    assert choice.path == f"{FOLDER}/05-new.conf"


def test_nothing_takes_the_place_of_an_invalid_one() -> None:
    with pytest.raises(InvalidConfigError, match=r"10-a.conf is not JSON"):
        primary.choose([broken("10-a.conf"), valid("20-b.conf")], f"{FOLDER}/10-a.conf", FOLDER)


def test_the_present_one_stays_while_an_earlier_one_is_invalid() -> None:
    choice = primary.choose([broken("05-new.conf"), valid("10-a.conf"), valid("20-b.conf")], f"{FOLDER}/20-b.conf", FOLDER)
    assert (choice.path, choice.warning) == (f"{FOLDER}/20-b.conf", f"{FOLDER}/05-new.conf is not JSON")


@pytest.mark.parametrize(("found", "said"), [([], r"folder /host/etc/cni/net.d$"), ([own("x.conf")], "but 1 of multus itself")])
def test_a_folder_without_any_other_has_none(found: list[Candidate], said: str) -> None:
    with pytest.raises(InvalidConfigError, match=said):
        primary.choose(found, "", FOLDER)


def test_a_named_one_is_the_primary_configuration_unless_it_is_ours_or_invalid() -> None:
    assert primary.choose_named(valid("99-z.conf")).path == f"{FOLDER}/99-z.conf"
    with pytest.raises(InvalidConfigError, match=r"multusMasterCNI.*00-multus.conf.cilium_bak is a configuration of multus"):
        primary.choose_named(own("00-multus.conf.cilium_bak"))
    with pytest.raises(InvalidConfigError, match="is not JSON"):
        primary.choose_named(broken("99-z.conf"))


def test_the_generated_text_is_the_references_byte_for_byte() -> None:
    passed = {"logLevel": "verbose", "logToStderr": True, "binDir": "/opt/cni/bin", "socketDir": "/host/run/multus/"}
    settings = PrimarySettings(cni_version="1.0.0", passed=passed)
    conf = list_of(plugin("bridge"), plugin("portmap", portMappings=True))
    assert documents.dumps(primary.generate(conf, settings, f"{FOLDER}/10-demo.conflist")) == (
        '{"binDir":"/opt/cni/bin","capabilities":{"portMappings":true},"cniVersion":"1.0.0","logLevel":"verbose","logToStderr":true,'
        '"name":"multus-cni-network","clusterNetwork":"/host/etc/cni/net.d/10-demo.conflist","type":"multus-shim"}'
    )


def test_every_member_has_its_place() -> None:
    passed = {
        "daemonSocketDir": "/run/multus", "shimDeadline": 30, "auxiliaryCNIChainName": "aux", "cniDir": "/c", "globalNamespaces": "default",
        "namespaceIsolation": True, "logOptions": {"maxAge": 1}, "logToStderr": True, "logLevel": "error", "logFile": "/l", "binDir": "/b",
    }  # fmt: skip
    document = primary.generate(conf_of(capabilities={"ips": True}), PrimarySettings(passed=passed, plugin_type="node-plugin"), "/p")
    assert list(document) == [
        "binDir", "capabilities", "cniVersion", "logFile", "logLevel", "logToStderr", "logOptions", "name", "clusterNetwork",
        "namespaceIsolation", "globalNamespaces", "type", "cniDir", "auxiliaryCNIChainName", "daemonSocketDir", "shimDeadline",
    ]  # fmt: skip
    assert (document["type"], document["clusterNetwork"]) == ("node-plugin", "/p")


def test_what_is_off_or_empty_is_left_out() -> None:
    passed = {"logToStderr": False, "namespaceIsolation": False, "binDir": "", "logOptions": {}, "overrideNetworkName": True}
    assert list(primary.generate(conf_of(), PrimarySettings(passed=passed), "/p")) == ["cniVersion", "name", "clusterNetwork", "type"]


@pytest.mark.parametrize(
    ("ours", "conf", "expected"),
    [
        ({}, conf_of(), None),
        ({}, conf_of(capabilities={"bandwidth": True, "ips": False}), {"bandwidth": True}),
        ({}, conf_of(capabilities={"bandwidth": True, "ips": True}), {"bandwidth": True, "ips": True}),
        ({}, list_of(plugin("a", portMappings=True)), {"portMappings": True}),
        ({}, list_of(plugin("a", portMappings=True), plugin("b", bandwidth=True)), {"bandwidth": True, "portMappings": True}),
        ({}, list_of(plugin("a", portMappings=False), plugin("b", bandwidth=True)), {"bandwidth": True}),
        (
            {"mac": True, "bandwidth": False},
            list_of(plugin("a", portMappings=True), plugin("b", bandwidth=True)),
            {"bandwidth": True, "mac": True, "portMappings": True},
        ),
    ],
)
def test_capabilities_are_those_of_all_plugins_over_ours(ours: dict[str, bool], conf: ConfList, expected: dict[str, bool] | None) -> None:
    document = primary.generate(conf, PrimarySettings(capabilities=ours), "/p")
    assert json.dumps(document.get("capabilities")) == json.dumps(expected)


def test_capabilities_of_the_primary_do_not_stay_when_they_go() -> None:
    settings = PrimarySettings(capabilities={"mac": True})
    primary.generate(conf_of(capabilities={"ips": True}), settings, "/p")
    assert primary.generate(conf_of(), settings, "/p")["capabilities"] == {"mac": True}


@pytest.mark.parametrize("value", ["yes", 1, None, []])
def test_a_capability_that_is_no_boolean_makes_the_primary_invalid(value: object) -> None:
    with pytest.raises(InvalidConfigError, match=r'/p: key "capabilities" has "ips"'):
        primary.generate(list_of(plugin("a"), plugin("b", ips=value)), PrimarySettings(), "/p")


def test_the_name_is_the_primarys_where_that_is_asked_for() -> None:
    assert primary.generate(conf_of(), PrimarySettings(override_network_name=True), "/p")["name"] == "demo"


@pytest.mark.parametrize(("asked", "primarys", "expected"), [("1.1.0", "0.3.1", "1.1.0"), ("", "0.3.1", "0.3.1"), ("", "", "0.1.0")])
def test_the_version_is_ours_or_the_primarys(asked: str, primarys: str, expected: str) -> None:
    assert primary.generate(conf_of(cniVersion=primarys), PrimarySettings(cni_version=asked), "/p")["cniVersion"] == expected


def test_what_we_could_not_read_ourselves_is_not_generated() -> None:
    with pytest.raises(InvalidConfigError, match="logLevel"):
        primary.generate(conf_of(), PrimarySettings(passed={"logLevel": 5}), "/p")


@pytest.mark.parametrize(
    ("ours", "primarys", "expected"),
    [
        ("1.1.0", "0.3.1", ("CHECK", "GC", "STATUS")),
        ("1.1.0", "1.0.0", ("GC", "STATUS")),
        ("1.0.0", "0.3.1", ("CHECK",)),
        ("0.3.1", "0.1.0", ()),
        ("1.1.0", "1.1.0", ()),
        ("", "0.3.1", ()),
    ],
)
def test_commands_that_the_primary_is_too_old_for_are_told(ours: str, primarys: str, expected: tuple[str, ...]) -> None:
    assert primary.commands_not_sent(conf_of(cniVersion=primarys), PrimarySettings(cni_version=ours)) == expected


READY_MADE = {"cniVersion": "1.0.0", "name": "n", "type": "multus-shim", "clusterNetwork": "/x/10-a.conf"}


@pytest.mark.parametrize(
    "document",
    [READY_MADE, {"name": "n", "type": "multus"}, {"name": "n", "plugins": [{"type": "multus"}, {"type": "tuning"}]}],
)
def test_a_ready_made_configuration_that_leads_to_multus_is_valid(document: dict[str, object]) -> None:
    primary.check_ready_made(json.dumps(document).encode(), "/x/my.conf", "multus-shim")


@pytest.mark.parametrize(
    ("path", "change", "error", "said"),
    [
        ("/x/my.cfg", {}, InvalidConfigError, "no runtime would read it"),
        ("/x/my.conf", {"type": "bridge"}, InvalidConfigError, "no plugin of type multus or multus-shim"),
        ("/x/my.conf", {"name": "a b"}, InvalidConfigError, 'key "name" "a b"'),
        ("/x/my.conf", {"name": None}, InvalidConfigError, 'key "name" null'),
        ("/x/my.conf", {"cniVersion": 1}, InvalidConfigError, 'key "cniVersion" is a number'),
        ("/x/my.conf", {"cniVersion": "7.0.0"}, IncompatibleVersionError, "7.0.0"),
    ],
)
def test_another_one_is_refused_by_its_path(path: str, change: dict[str, object], error: type[Exception], said: str) -> None:
    with pytest.raises(error, match=said) as caught:
        primary.check_ready_made(json.dumps({**READY_MADE, **change}).encode(), path, "multus-shim")
    assert path in str(caught.value)


@pytest.mark.parametrize("content", [b"", b'{"cniVers', b"[]"])
def test_a_ready_made_configuration_that_is_no_object_is_refused(content: bytes) -> None:
    with pytest.raises(DecodingError, match=r"/x/my.conf"):
        primary.check_ready_made(content, "/x/my.conf", "multus-shim")
