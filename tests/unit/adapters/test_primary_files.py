"""What our configuration is to say, from the files that are there."""

from __future__ import annotations

import json
import os
import stat
from typing import TYPE_CHECKING, Any

import pytest

from multus.adapters.conf_dir import ConfDir
from multus.adapters.primary_files import Embedded, source
from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError
from multus.types.primary import PrimarySettings

if TYPE_CHECKING:
    from pathlib import Path

    from multus.adapters.primary_files import Generated, ReadyMade
    from multus.types.primary import Wanted

OWN = {"cniVersion": "1.0.0", "name": "multus-cni-network", "type": "multus-shim", "clusterNetwork": "/x"}


def single(name: str, **more: object) -> dict[str, object]:
    return {"cniVersion": "1.0.0", "name": name, "type": "bridge", **more}


def put(path: Path, document: object) -> str:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(document if isinstance(document, str) else json.dumps(document))
    return str(path)


def source_of(folder: Path, **settings: Any) -> Generated | ReadyMade:
    return source(PrimarySettings(cni_config_dir=str(folder), **settings), ConfDir(str(folder)))


def said_by(made: Generated | ReadyMade, current: str = "") -> dict[str, Any]:
    document = json.loads(made.wanted(current).content)
    assert isinstance(document, dict)
    return document


def test_the_first_file_by_name_is_wrapped(tmp_path: Path) -> None:
    put(tmp_path / "05-x.json", single("json"))
    put(tmp_path / "99-loop.conf", single("loop"))
    path = put(tmp_path / "20-a.conf", single("a"))
    wanted = source_of(tmp_path).wanted("")
    assert (wanted.source, wanted.reason, wanted.note, wanted.warning) == (path, f"first by name of 2 in {tmp_path}", "", "")
    assert json.loads(wanted.content) == {
        "cniVersion": "1.0.0", "name": "multus-cni-network", "clusterNetwork": path, "type": "multus-shim",
    }  # fmt: skip


def test_our_own_are_never_the_primary_whatever_their_names(tmp_path: Path) -> None:
    put(tmp_path / "00-multus-custom.conf", OWN)
    put(tmp_path / "01-copy.conflist", {"name": "x", "cniVersion": "1.0.0", "plugins": [{"type": "multus"}]})
    put(tmp_path / "00-multus.conf", '{"half')
    with pytest.raises(InvalidConfigError, match="but 3 of multus itself"):
        source_of(tmp_path).wanted("")
    path = put(tmp_path / "00-multus-like.conf", single("not-ours-by-content"))
    assert source_of(tmp_path).wanted("").source == path


def test_folders_dangling_links_and_pipes_are_no_candidates_and_links_to_files_are(tmp_path: Path) -> None:
    (tmp_path / "01.conf").mkdir()
    (tmp_path / "02.conf").symlink_to("nowhere")
    (tmp_path / "03.conf").symlink_to("03.conf")
    os.mkfifo(tmp_path / "04.conf")
    put(tmp_path / "elsewhere" / "file", single("a"))
    (tmp_path / "05.conf").symlink_to("elsewhere/file")
    assert source_of(tmp_path).wanted("").source == str(tmp_path / "05.conf")


def test_the_primary_is_looked_for_in_its_own_folder(tmp_path: Path) -> None:
    path = put(tmp_path / "auto" / "10-a.conf", single("a"))
    put(tmp_path / "net.d" / "05-b.conf", single("b"))
    made = source_of(tmp_path / "net.d", autoconfig_dir=str(tmp_path / "auto"), readiness_indicator_file=str(tmp_path / "run" / "ready"))
    assert made.wanted("").source == path
    assert made.folders == (str(tmp_path / "auto"), str(tmp_path / "net.d"), str(tmp_path / "run"))
    assert made.target == str(tmp_path / "net.d" / "00-multus.conf")


def test_no_folder_is_an_empty_one_and_a_file_in_its_place_an_error(tmp_path: Path) -> None:
    with pytest.raises(InvalidConfigError, match=f"no network configuration .* is in folder {tmp_path}/none"):
        source_of(tmp_path / "none").wanted("")
    put(tmp_path / "file", "")
    with pytest.raises(IOFailureError, match="cannot list"):
        source_of(tmp_path / "file").wanted("")


@pytest.mark.parametrize("content", ["", '{"cniVers', "[]", '{"name": "a"}', '{"name": "a", "type": "b", "cniVersion": "9.0.0"}'])
def test_an_invalid_file_is_named_and_keeps_later_ones_away(tmp_path: Path, content: str) -> None:
    put(tmp_path / "10-a.conf", content)
    put(tmp_path / "20-b.conf", single("b"))
    with pytest.raises(InvalidConfigError, match=r"10-a.conf"):
        source_of(tmp_path).wanted("")
    wanted = source_of(tmp_path).wanted(str(tmp_path / "20-b.conf"))
    assert wanted.source == str(tmp_path / "20-b.conf")
    assert str(tmp_path / "10-a.conf") in wanted.warning


def test_a_file_that_cannot_be_read_is_an_invalid_one(tmp_path: Path) -> None:
    class Unreadable(ConfDir):
        def from_file(self, path: str, name: str = "") -> Any:
            raise PermissionError(13, "Permission denied")

    put(tmp_path / "10-a.conf", single("a"))
    made = source(PrimarySettings(cni_config_dir=str(tmp_path)), Unreadable(str(tmp_path)))
    with pytest.raises(InvalidConfigError, match=r"cannot read .*10-a.conf: Permission denied"):
        made.wanted("")


def test_a_file_that_goes_while_it_is_looked_at_is_no_candidate(tmp_path: Path) -> None:
    class Racing(ConfDir):
        def from_file(self, path: str, name: str = "") -> Any:
            os.unlink(path)
            return super().from_file(path, name)

    put(tmp_path / "10-a.conf", single("a"))
    made = source(PrimarySettings(cni_config_dir=str(tmp_path)), Racing(str(tmp_path)))
    with pytest.raises(InvalidConfigError, match=rf"no network configuration .* is in folder {tmp_path}$"):
        made.wanted("")


def test_plugins_of_the_lists_sub_folder_count(tmp_path: Path) -> None:
    put(tmp_path / "10-a.conflist", {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}]})
    put(tmp_path / "a" / "10.conf", {"type": "portmap", "capabilities": {"portMappings": True}})
    assert said_by(source_of(tmp_path))["capabilities"] == {"portMappings": True}


def test_a_named_file_is_the_primary_and_must_not_be_ours(tmp_path: Path) -> None:
    put(tmp_path / "10-a.conf", single("a"))
    made = source_of(tmp_path, master_cni="20-b.json")
    with pytest.raises(InvalidConfigError, match=r"20-b.json does not exist"):
        made.wanted("")
    path = put(tmp_path / "20-b.json", single("b"))
    assert (made.wanted("").source, made.wanted("").reason) == (path, "named by multusMasterCNI")
    put(tmp_path / "20-b.json", OWN)
    with pytest.raises(InvalidConfigError, match="is a configuration of multus itself"):
        made.wanted("")


@pytest.mark.parametrize("name", ["00-multus.conf", "sub/../00-multus.conf", "link.conf"])
def test_naming_the_generated_file_as_primary_is_refused_at_once(tmp_path: Path, name: str) -> None:
    (tmp_path / "sub").mkdir()
    (tmp_path / "link.conf").symlink_to("00-multus.conf")
    with pytest.raises(InvalidConfigError, match="is the configuration that is generated"):
        source_of(tmp_path, master_cni=name)


def test_an_old_primary_is_a_note_and_no_error(tmp_path: Path) -> None:
    path = put(tmp_path / "10-a.conf", single("a") | {"cniVersion": "0.3.1"})
    made = source_of(tmp_path, cni_version="1.1.0")
    assert made.wanted("").note == f"{path} is of cniVersion 0.3.1: CHECK, GC, STATUS succeed without reaching it"
    assert said_by(made)["cniVersion"] == "1.1.0"


def test_a_forced_version_is_in_the_file_from_the_start_and_in_memory_for_ever(tmp_path: Path) -> None:
    kept = {"plugins": [{"type": "b", "n": 2**70}], "name": "a"}
    path = put(tmp_path / "10-a.conflist", {**kept, "cniVersion": "0.3.1", "cniVersions": ["0.3.1"]})
    (tmp_path / "10-a.conflist").chmod(0o640)
    made = source_of(tmp_path, cni_version="1.0.0", force_cni_version=True)
    assert made.wanted("").note == ""
    made.prepare(path)
    assert json.loads((tmp_path / "10-a.conflist").read_text()) == {"cniVersion": "1.0.0", **kept}
    assert stat.S_IMODE(os.stat(path).st_mode) == 0o640
    before = os.stat(path).st_ino
    made.prepare(path)
    assert os.stat(path).st_ino == before
    put(tmp_path / "10-a.conflist", {**kept, "cniVersion": "0.3.1"})
    assert made.wanted("").note == ""


def test_without_force_the_primary_is_never_written(tmp_path: Path) -> None:
    path = put(tmp_path / "10-a.conf", single("a"))
    made = source_of(tmp_path, cni_version="1.1.0")
    before = os.stat(path)
    made.prepare(path)
    assert os.stat(path) == before


def test_an_indicator_is_gone_only_when_there_is_to_be_one_and_is_none(tmp_path: Path) -> None:
    assert not source_of(tmp_path).is_indicator_gone()
    made = source_of(tmp_path, readiness_indicator_file=str(tmp_path / "ready"))
    assert made.is_indicator_gone()
    put(tmp_path / "ready", "")
    assert not made.is_indicator_gone()
    assert source_of(tmp_path, readiness_indicator_file=str(tmp_path / "ready" / "x")).is_indicator_gone()
    (tmp_path / "loop").symlink_to("loop")
    assert not source_of(tmp_path, readiness_indicator_file=str(tmp_path / "loop")).is_indicator_gone()


def test_a_ready_made_file_is_copied_as_it_stands(tmp_path: Path) -> None:
    text = json.dumps(OWN, indent=3)
    path = put(tmp_path / "cm" / "my.conf", text)
    made = source_of(tmp_path / "net.d", config_file=path, readiness_indicator_file="/nowhere")
    assert (made.wanted("").content, made.target) == (text.encode(), str(tmp_path / "net.d" / "my.conf"))
    assert (made.may_appear, made.is_in_place, made.is_indicator_gone()) == (False, False, False)
    assert made.folders == (str(tmp_path / "cm"), str(tmp_path / "net.d"))
    made.prepare(path)
    assert (tmp_path / "cm" / "my.conf").read_text() == text


def test_a_ready_made_file_that_is_missing_or_invalid_is_named(tmp_path: Path) -> None:
    made = source_of(tmp_path / "net.d", config_file=str(tmp_path / "my.conf"))
    with pytest.raises(IOFailureError, match=rf'key "multusConfigFile": cannot read {tmp_path}/my.conf: No such file'):
        made.wanted("")
    put(tmp_path / "my.conf", '{"half')
    with pytest.raises(DecodingError, match=r"my.conf is not JSON"):
        made.wanted("")
    put(tmp_path / "my.conf", single("a"))
    with pytest.raises(MultusError, match="no plugin of type"):
        made.wanted("")


def test_a_ready_made_file_where_runtimes_look_is_used_in_place_whatever_it_says(tmp_path: Path) -> None:
    put(tmp_path / "net.d" / "my.conf", OWN)
    (tmp_path / "same").symlink_to("net.d")
    made = source_of(tmp_path / "net.d", config_file=str(tmp_path / "same" / "my.conf"))
    assert (made.is_in_place, made.wanted("").warning) == (True, "")
    put(tmp_path / "net.d" / "my.conf", single("a"))
    assert "no plugin of type" in made.wanted("").warning


# --- Of the thin plugin ---


def embedded_in(folder: Path, **settings: Any) -> Embedded:
    return Embedded(PrimarySettings(cni_config_dir=str(folder), plugin_type="multus", **settings), ConfDir(str(folder)))


def delegate_of(wanted: Wanted) -> Any:
    document = json.loads(wanted.content)
    return document.get("plugins", [document])[0]["delegates"][0]


@pytest.mark.parametrize(("version", "name"), [("0.4.0", "00-multus.conf"), ("1.0.0", "00-multus.conflist")])
def test_the_thin_plugins_file_holds_the_primary_and_its_name_goes_by_the_version(tmp_path: Path, version: str, name: str) -> None:
    path = put(tmp_path / "10-a.conf", {**single("a"), "cniVersion": version})
    wanted = embedded_in(tmp_path).wanted("")
    assert (path, str(tmp_path / name), "a") == (wanted.source, wanted.target, delegate_of(wanted)["name"])


def test_a_forced_version_does_not_touch_the_primarys_file(tmp_path: Path) -> None:
    path = put(tmp_path / "10-a.conf", single("a"))
    made = embedded_in(tmp_path, cni_version="0.4.0", force_cni_version=True)
    wanted = made.wanted("")
    made.prepare(path)
    made.written(path)
    assert ("0.4.0", single("a")) == (delegate_of(wanted)["cniVersion"], json.loads((tmp_path / "10-a.conf").read_text()))


def test_a_primary_is_renamed_once_ours_is_written_and_found_again_under_both_names(tmp_path: Path) -> None:
    path = put(tmp_path / "10-a.conflist", {"cniVersion": "1.0.0", "name": "a", "plugins": [{"type": "bridge"}]})
    made = embedded_in(tmp_path, rename_primary=True)
    before = made.wanted("")
    made.written(before.source)
    assert ["10-a.conflist.old"] == os.listdir(tmp_path)
    assert before.content == made.wanted(before.source).content == embedded_in(tmp_path, rename_primary=True).wanted("").content
    assert before.source == made.wanted("").source == path
    made.written(before.source)
    put(tmp_path / "10-a.conflist", {"cniVersion": "1.0.0", "name": "new", "plugins": [{"type": "bridge"}]})
    assert delegate_of(made.wanted(path))["name"] == "new"
    made.written(path)
    assert ["10-a.conflist.old"] == os.listdir(tmp_path)
    assert delegate_of(made.wanted(path))["name"] == "new"


def test_renamed_files_count_only_where_primaries_are_renamed_and_none_has_its_own_name(tmp_path: Path) -> None:
    put(tmp_path / "10-a.conf.old", single("old"))
    with pytest.raises(InvalidConfigError, match="no network configuration"):
        embedded_in(tmp_path).wanted("")
    put(tmp_path / "20-b.conf", '{"half')
    with pytest.raises(InvalidConfigError, match=r"20-b\.conf"):
        embedded_in(tmp_path, rename_primary=True).wanted("")
    put(tmp_path / "20-b.conf", single("b"))
    assert delegate_of(embedded_in(tmp_path, rename_primary=True).wanted(""))["name"] == "b"


def test_a_renamed_file_of_ours_is_no_primary(tmp_path: Path) -> None:
    put(tmp_path / "00-multus.conf.old", {**OWN, "type": "multus"})
    put(tmp_path / "10-a.conf.old", single("a"))
    put(tmp_path / "20-b.conf.old", single("b"))
    assert delegate_of(embedded_in(tmp_path, rename_primary=True).wanted(""))["name"] == "a"


def test_a_named_primary_is_found_under_its_other_name(tmp_path: Path) -> None:
    put(tmp_path / "10-a.conf", single("a"))
    put(tmp_path / "20-b.conf.old", single("b"))
    assert delegate_of(embedded_in(tmp_path, rename_primary=True, master_cni="20-b.conf").wanted(""))["name"] == "b"
