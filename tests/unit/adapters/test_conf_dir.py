"""Configurations in files: which one is found, what is put together, what is refused."""

from __future__ import annotations

import json
import os
from pathlib import Path

import pytest

from multus.adapters.conf_dir import ConfDir
from multus.errors import InvalidConfigError, IOFailureError
from multus.types.config import ConfList


class Warnings:
    def __init__(self) -> None:
        self.reasons: list[object] = []

    def error(self, event: str, **fields: object) -> None: ...

    def warning(self, event: str, **fields: object) -> None:
        self.reasons.append(fields["reason"])

    def verbose(self, event: str, **fields: object) -> None: ...

    def debug(self, event: str, **fields: object) -> None: ...

    def bind(self, **fields: object) -> Warnings:
        return self


def put(path: Path, document: object) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))


def single(name: str, plugin_type: str = "bridge") -> dict[str, object]:
    return {"cniVersion": "1.0.0", "name": name, "type": plugin_type}


def plugin_list(name: str, *types: str, **more: object) -> dict[str, object]:
    return {"cniVersion": "1.0.0", "name": name, "plugins": [{"type": each} for each in types], **more}


def types_of(conf: ConfList | None) -> list[str] | None:
    return None if conf is None else [plugin.type for plugin in conf.plugins]


def test_lists_are_searched_before_single_plugins_each_by_file_name(tmp_path: Path) -> None:
    put(tmp_path / "00.conf", single("blue", "single-first"))
    put(tmp_path / "01.json", single("blue", "single-second"))
    conf_dir = ConfDir(str(tmp_path))
    assert types_of(conf_dir.by_name("blue")) == ["single-first"]
    put(tmp_path / "98.conflist", plugin_list("blue", "list-first"))
    put(tmp_path / "99.conflist", plugin_list("blue", "list-second"))
    put(tmp_path / "97.conflist", plugin_list("red", "other"))
    assert types_of(conf_dir.by_name("blue")) == ["list-first"]


def test_what_is_not_there_is_none(tmp_path: Path) -> None:
    put(tmp_path / "a.conf", single("red"))
    put(tmp_path / "blue.txt", single("blue"))
    put(tmp_path / "sub" / "a.conf", single("blue"))
    (tmp_path / "blue.conf").mkdir()
    assert ConfDir(str(tmp_path)).by_name("blue") is None
    assert ConfDir(str(tmp_path / "missing")).by_name("blue") is None


@pytest.mark.parametrize(
    "content", ["{oops", "[]", "null", "", '{"name": "blue"} x', '{"name": "blue", "x": NaN}', '{"name": "blue", "x": 1e999}'],
)
def test_a_broken_file_does_not_hide_another(tmp_path: Path, content: str) -> None:
    log = Warnings()
    put(tmp_path / "00.conf", content)
    put(tmp_path / "01.conf", single("red"))
    assert types_of(ConfDir(str(tmp_path), log).by_name("red")) == ["bridge"]
    assert [str(tmp_path / "00.conf") in str(reason) for reason in log.reasons] == [True]
    with pytest.raises(InvalidConfigError, match=r'named "blue".*1 files were skipped') as caught:
        ConfDir(str(tmp_path)).by_name("blue")
    assert str(tmp_path / "00.conf") in caught.value.details


def test_a_file_that_cannot_be_read_is_skipped_and_named(tmp_path: Path) -> None:
    (tmp_path / "00.conf").symlink_to(tmp_path / "nowhere")
    os.mkfifo(tmp_path / "01.conf")
    (tmp_path / "02.conf").symlink_to("02.conf")
    put(tmp_path / "03.conf", single("red"))
    log = Warnings()
    assert types_of(ConfDir(str(tmp_path), log).by_name("red")) == ["bridge"]
    assert log.reasons == [
        f"{tmp_path}/00.conf does not exist", f"cannot read {tmp_path}/02.conf: Too many levels of symbolic links",
    ]


def test_the_wanted_file_is_an_error_when_it_is_invalid(tmp_path: Path) -> None:
    put(tmp_path / "a.conf", {"name": "blue", "type": ""})
    with pytest.raises(InvalidConfigError, match=r"a.conf has no `type`"):
        ConfDir(str(tmp_path)).by_name("blue")


def test_symbolic_links_are_followed(tmp_path: Path) -> None:
    put(tmp_path / "elsewhere" / "x", single("blue"))
    (tmp_path / "a.conf").symlink_to(tmp_path / "elsewhere" / "x")
    assert types_of(ConfDir(str(tmp_path)).by_name("blue")) == ["bridge"]


def test_numbers_stay_exact(tmp_path: Path) -> None:
    put(tmp_path / "a.conf", '{"name": "blue", "type": "x", "big": 123456789012345678901234567890, "float": 0.30000000000000004}')
    conf = ConfDir(str(tmp_path)).by_name("blue")
    assert conf is not None
    assert (conf.document["big"], conf.document["float"]) == (123456789012345678901234567890, 0.30000000000000004)


def test_a_list_gets_the_plugins_of_its_sub_folder_in_file_name_order(tmp_path: Path) -> None:
    put(tmp_path / "a.conflist", plugin_list("blue", "inlined", unknown=1))
    put(tmp_path / "blue" / "20.conf", {"type": "second"})
    put(tmp_path / "blue" / "10.conf", {"type": "first"})
    put(tmp_path / "blue" / "05.json", {"type": "not looked at"})
    conf_dir = ConfDir(str(tmp_path))
    for conf in (conf_dir.by_name("blue"), conf_dir.from_file(str(tmp_path / "a.conflist")), conf_dir.first(str(tmp_path))):
        assert types_of(conf) == ["inlined", "first", "second"]
        assert conf is not None
        assert conf.document == plugin_list("blue", "inlined", "first", "second", unknown=1)


def test_a_list_may_have_the_plugins_of_its_sub_folder_alone(tmp_path: Path) -> None:
    put(tmp_path / "a.conflist", {"cniVersion": "1.1.0", "name": "blue"})
    with pytest.raises(InvalidConfigError, match=r"a.conflist"):
        ConfDir(str(tmp_path)).by_name("blue")
    put(tmp_path / "blue" / "10.conf", {"type": "first"})
    assert types_of(ConfDir(str(tmp_path)).by_name("blue")) == ["first"]


@pytest.mark.parametrize("flag", [True, "true", "TRUE"])
def test_a_list_may_refuse_its_sub_folder(tmp_path: Path, flag: object) -> None:
    put(tmp_path / "a.conflist", plugin_list("blue", "inlined", loadOnlyInlinedPlugins=flag))
    put(tmp_path / "blue" / "10.conf", "{oops")
    assert types_of(ConfDir(str(tmp_path)).by_name("blue")) == ["inlined"]


@pytest.mark.parametrize("flag", [False, "false", "False"])
def test_a_list_may_ask_for_its_sub_folder(tmp_path: Path, flag: object) -> None:
    put(tmp_path / "a.conflist", plugin_list("blue", "inlined", loadOnlyInlinedPlugins=flag))
    put(tmp_path / "blue" / "10.conf", {"type": "first"})
    assert types_of(ConfDir(str(tmp_path)).by_name("blue")) == ["inlined", "first"]


@pytest.mark.parametrize("name", ["../outside", "..", "", 5, None])
def test_a_name_that_is_none_leads_to_no_sub_folder(tmp_path: Path, name: object) -> None:
    put(tmp_path / "outside" / "10.conf", "{oops")
    put(tmp_path / "d" / "a.conflist", {**plugin_list("x", "inlined"), "name": name})
    with pytest.raises(InvalidConfigError, match=r'a.conflist: key "name"'):
        ConfDir(str(tmp_path)).from_file(str(tmp_path / "d" / "a.conflist"))


def test_a_broken_plugin_in_the_sub_folder_names_its_file(tmp_path: Path) -> None:
    put(tmp_path / "a.conflist", plugin_list("blue", "inlined"))
    put(tmp_path / "blue" / "10.conf", {"name": "no type"})
    with pytest.raises(InvalidConfigError, match=r"blue/10.conf has no `type`"):
        ConfDir(str(tmp_path)).by_name("blue")


@pytest.mark.parametrize("plugins", [5, {}, "x"])
def test_plugins_that_are_no_list_are_an_error_with_a_sub_folder_too(tmp_path: Path, plugins: object) -> None:
    put(tmp_path / "a.conflist", {"name": "blue", "plugins": plugins})
    put(tmp_path / "blue" / "10.conf", {"type": "first"})
    with pytest.raises(InvalidConfigError, match=r'a.conflist: key "plugins"'):
        ConfDir(str(tmp_path)).by_name("blue")


def test_a_type_beside_the_plugins_of_a_list_means_nothing(tmp_path: Path) -> None:
    put(tmp_path / "a.conflist", plugin_list("blue", "inlined", type="odd"))
    conf = ConfDir(str(tmp_path)).from_file(str(tmp_path / "a.conflist"))
    assert (types_of(conf), conf.is_list) == (["inlined"], True)


def test_only_a_conflist_may_be_a_list(tmp_path: Path) -> None:
    put(tmp_path / "a.conf", plugin_list("blue", "inlined"))
    with pytest.raises(InvalidConfigError, match=r"a.conf: has no `type`"):
        ConfDir(str(tmp_path)).from_file(str(tmp_path / "a.conf"))


def test_a_single_plugin_has_no_sub_folder(tmp_path: Path) -> None:
    put(tmp_path / "a.conf", single("blue"))
    put(tmp_path / "blue" / "10.conf", {"type": "first"})
    assert types_of(ConfDir(str(tmp_path)).by_name("blue")) == ["bridge"]


@pytest.mark.parametrize("name", ["10.conf", "10.json", "10.conflist"])
def test_the_first_of_a_folder_is_by_file_name_whatever_its_extension(tmp_path: Path, name: str) -> None:
    put(tmp_path / name, plugin_list("blue", "bridge") if name.endswith("list") else single("blue"))
    for later in ("20.conf", "20.json"):
        put(tmp_path / later, single("red"))
    put(tmp_path / "05.txt", "x")
    assert ConfDir("/nowhere").from_path(str(tmp_path)).name == "blue"


def test_the_first_of_a_folder_counts_even_if_it_is_broken(tmp_path: Path) -> None:
    put(tmp_path / "10.conf", "{oops")
    put(tmp_path / "20.conf", single("red"))
    with pytest.raises(InvalidConfigError, match=r"10.conf is not JSON"):
        ConfDir("/nowhere").first(str(tmp_path))


def test_an_empty_folder_has_no_first(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=r"no network configuration"):
        ConfDir("/nowhere").first(str(tmp_path))


def test_a_path_is_a_file_or_an_error(tmp_path: Path) -> None:
    put(tmp_path / "a.conf", single("blue"))
    (tmp_path / "folder.conflist").mkdir()
    conf_dir = ConfDir("/nowhere")
    assert conf_dir.from_path(str(tmp_path / "a.conf")).name == "blue"
    with pytest.raises(InvalidConfigError, match=r"does not exist"):
        conf_dir.from_path(str(tmp_path / "b.conf"))
    with pytest.raises(InvalidConfigError, match=r"no regular file"):
        conf_dir.from_file(str(tmp_path / "folder.conflist"))


def test_a_folder_that_cannot_be_listed_is_an_error(tmp_path: Path) -> None:
    put(tmp_path / "file", "x")
    with pytest.raises(IOFailureError, match=r"cannot list"):
        ConfDir(str(tmp_path / "file")).by_name("blue")


def test_an_auxiliary_chain_is_beside_the_cluster_networks_file(tmp_path: Path) -> None:
    put(tmp_path / "chain" / "20.conf", {"type": "tuning", "sysctl": {}})
    put(tmp_path / "chain" / "10.conf", {"type": "sbr"})
    conf_dir = ConfDir("/nowhere")
    plugins = conf_dir.auxiliary_plugins(str(tmp_path / "main.conflist"), "chain")
    assert [plugin.type for plugin in plugins] == ["sbr", "tuning"]
    assert conf_dir.auxiliary_plugins(str(tmp_path / "main.conflist"), "missing") == ()
    with pytest.raises(InvalidConfigError, match=r"auxiliary chain"):
        conf_dir.auxiliary_plugins(str(tmp_path / "main.conflist"), "../chain")
