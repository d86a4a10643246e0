"""Network configurations: checked where they are read, edited on copies."""

from __future__ import annotations

from typing import Any

import pytest

from multus.errors import IncompatibleVersionError, InvalidConfigError
from multus.protocol import conflists
from multus.types.config import ConfList, PluginConf


def parse(document: dict[str, Any], default_name: str = "") -> ConfList:
    return conflists.parse(document, where="the file", default_name=default_name)


def refusal(document: dict[str, Any]) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        parse(document)
    return caught.value.msg


def test_a_single_plugin_is_a_list_of_one() -> None:
    document = {"cniVersion": "0.4.0", "name": "lan-a", "type": "bridge", "mtu": 2**80}
    assert parse(document) == ConfList(document, "lan-a", "0.4.0", (PluginConf(document, "bridge"),), is_list=False)


def test_a_list_keeps_its_plugins_as_they_were_written() -> None:
    plugins = [{"type": "bridge", "x-own": [1, {"b": None}]}, {"type": "tuning"}]
    document = {"cniVersion": "1.0.0", "name": "lan-a", "plugins": plugins, "disableCheck": True}
    views = (PluginConf(plugins[0], "bridge"), PluginConf(plugins[1], "tuning"))
    assert parse(document) == ConfList(document, "lan-a", "1.0.0", views, is_list=True, disable_check=True)


def test_a_document_with_a_type_is_a_plugin_whatever_else_it_holds() -> None:
    assert not parse({"name": "lan-a", "type": "bridge", "plugins": "mine"}).is_list


def test_a_document_with_an_empty_type_and_plugins_is_a_list() -> None:
    assert parse({"name": "lan-a", "type": "", "plugins": [{"type": "bridge"}]}).is_list


def test_keys_match_in_another_case() -> None:
    conf = parse({"CNIVersion": "0.4.0", "NAME": "lan-a", "Plugins": [{"Type": "bridge"}], "disablegc": True})
    assert (conf.cni_version, conf.name, conf.plugins[0].type, conf.disable_gc) == ("0.4.0", "lan-a", "bridge", True)


@pytest.mark.parametrize("document", [{"type": "bridge"}, {"type": "bridge", "name": ""}, {"type": "bridge", "name": None}])
def test_a_document_without_a_name_takes_the_default(document: dict[str, Any]) -> None:
    assert parse(document, default_name="lan-a").name == "lan-a"


def test_its_own_name_wins_over_the_default() -> None:
    assert parse({"type": "bridge", "name": "own"}, default_name="lan-a").name == "own"


def test_a_list_is_used_in_the_highest_version_that_it_lists_and_we_know() -> None:
    document = {"name": "a", "cniVersion": "0.4.0", "cniVersions": ["0.3.1", "1.0.0", "2.0.0"], "plugins": [{"type": "bridge"}]}
    assert parse(document).cni_version == "1.0.0"


def test_a_document_without_a_version_keeps_none() -> None:
    assert parse({"name": "a", "type": "bridge"}).cni_version == ""


@pytest.mark.parametrize("value", [True, "true", "True"])
def test_a_flag_may_be_written_as_text(value: object) -> None:
    assert parse({"name": "a", "plugins": [{"type": "b"}], "disableCheck": value}).disable_check


@pytest.mark.parametrize(
    ("document", "message"),
    [
        ({"name": "a"}, "the file has no `type`"),
        ({"name": "a", "type": None}, "the file has no `type`"),
        ({"name": "a", "TYPE": ""}, "the file has no `type`"),
        ({"name": "a", "type:": "b"}, 'the file has no `type`, did you mean the key "type:"'),
        ({"name": "a", "type": 1}, 'the file: key "type" is a number, a string is expected'),
        ({"name": "a", "type": "../b"}, 'the file: key "type" "../b" is no file name'),
        ({"name": "a", "type": "a\0"}, 'the file: key "type" "a\\u0000" is no file name'),
        ({"name": "a", "type": "a\ud800"}, 'the file: key "type" "a\\ud800" is no file name'),
        ({"name": "a", "type": ".."}, 'the file: key "type" ".." is no file name'),
        ({"name": "a", "type": "multus"}, 'the file: key "type" "multus" leads back to multus'),
        ({"name": "a", "type": "multus-shim"}, 'the file: key "type" "multus-shim" leads back to multus'),
        ({"name": "a", "type": "b", "capabilities": ["ips"]}, 'the file: key "capabilities" is a list, an object of booleans is expected'),
        ({"name": "a", "plugins": {}}, 'the file: key "plugins" is an object, a list is expected'),
        ({"name": "a", "plugins": []}, 'the file: key "plugins" is empty'),
        ({"name": "a", "plugins": [{"type": "b"}, None]}, "the file: plugin 1 is null, an object is expected"),
        ({"name": "a", "plugins": [{"type": "b"}, {"Type ": "c"}]}, 'the file: plugin 1 has no `type`, did you mean the key "Type "'),
        ({"name": "a", "plugins": [{"type": []}]}, 'the file: plugin 0: key "type" is a list, a string is expected'),
        ({"name": 1, "type": "b"}, 'the file: key "name" is a number, a string is expected'),
        ({"name": "a", "type": "b", "cniVersion": 1}, 'the file: key "cniVersion" is a number, a string is expected'),
        ({"name": "a", "plugins": [{"type": "b"}], "cniVersions": "1.0.0"}, 'the file: key "cniVersions" is a string, a list is expected'),
        ({"name": "a", "plugins": [{"type": "b"}], "cniVersions": ["1.0.0", 1]}, "the file: cniVersions[1] is not a string"),
        ({"name": "a", "type": "b", "disableGC": "no"}, 'the file: key "disableGC" "no" is invalid, true or false is expected'),
    ],
)
def test_what_is_wrong_is_named_with_its_place(document: dict[str, Any], message: str) -> None:
    assert refusal(document) == message


@pytest.mark.parametrize("name", ["", "../a", "a b", "a/b", "-a", "é"])
def test_a_name_that_could_not_be_a_file_is_refused(name: str) -> None:
    assert refusal({"name": name, "type": "b"}).startswith(f'the file: key "name" "{name}" is no network name')


def test_an_unknown_version_is_refused_with_the_known_ones() -> None:
    with pytest.raises(IncompatibleVersionError) as caught:
        parse({"name": "a", "type": "b", "cniVersion": "3.0.0"})
    assert (caught.value.code, caught.value.msg) == (1, "the file: key \"cniVersion\" '3.0.0' is not supported")


def test_a_refusal_never_shows_the_other_keys() -> None:
    assert "hunter-7" not in refusal({"name": "a", "plugins": [{"type:": "tuning", "secretToken": "hunter-7"}]})


@pytest.mark.parametrize(
    ("capabilities", "declared"),
    [({"ips": True, "mac": False, "bandwidth": "true"}, {"ips"}), ({}, set()), (None, set())],
)
def test_only_a_capability_that_is_true_is_declared(capabilities: object, declared: set[str]) -> None:
    assert parse({"name": "a", "type": "b", "capabilities": capabilities}).capabilities == declared


def test_a_list_declares_what_any_of_its_plugins_declares() -> None:
    plugins = [{"type": "a", "capabilities": {"ips": True}}, {"type": "b", "capabilities": {"mac": True}}]
    assert parse({"name": "a", "plugins": plugins}).capabilities == {"ips", "mac"}


def test_the_subfolder_is_left_out_where_the_list_says_so() -> None:
    assert [conflists.load_only_inlined(document, "x") for document in ({"loadOnlyInlinedPlugins": "true"}, {})] == [True, False]


@pytest.mark.parametrize(
    "document",
    [{"name": "a", "type": "b", "x": 1}, {"name": "a", "x": 1, "plugins": [{"type": "b", "x": 1}, {"type": "c"}]}],
)
def test_an_edit_reaches_every_plugin_and_leaves_what_was_read_untouched(document: dict[str, Any]) -> None:
    before = repr(document)
    edited = conflists.with_edited(parse(document), lambda plugin: {**plugin, "deviceID": "d"})
    assert repr(document) == before
    assert [plugin.document["deviceID"] for plugin in edited.plugins] == ["d"] * len(edited.plugins)
    assert conflists.parse(edited.document, where="x") == edited


def test_the_named_document_can_be_read_again_anywhere() -> None:
    conf = parse({"plugins": [{"type": "b"}], "cniVersions": ["0.4.0", "1.0.0"]}, default_name="lan-a")
    again = parse(conflists.named(conf))
    assert (again.name, again.cni_version) == ("lan-a", "1.0.0")


def test_the_named_document_says_no_version_that_was_not_said() -> None:
    assert conflists.named(parse({"type": "b", "name": "a"})) == {"type": "b", "name": "a"}
