"""The journal on a real folder: written, read, rebuilt, removed."""

from __future__ import annotations

import base64
import json
import os
import stat
import threading
from pathlib import Path

import pytest

from multus.adapters import journal as journal_module
from multus.adapters.journal import Journal
from multus.errors import InvalidConfigError, InvalidEnvironmentError, IOFailureError, TryAgainLaterError
from multus.protocol import conflists
from multus.types.delegate import Attachment, Delegate
from multus.types.invocation import Call, CNICommand
from multus.types.result import Result


class RecordingLog:
    def __init__(self) -> None:
        self.lines: list[tuple[str, str, dict[str, object]]] = []

    def error(self, event: str, **fields: object) -> None:
        self.lines.append(("error", event, fields))

    def warning(self, event: str, **fields: object) -> None:
        self.lines.append(("warning", event, fields))

    def verbose(self, event: str, **fields: object) -> None:
        self.lines.append(("verbose", event, fields))

    def debug(self, event: str, **fields: object) -> None:
        self.lines.append(("debug", event, fields))

    def bind(self, **fields: object) -> RecordingLog:
        return self


def attachment(network: str, ifname: str, *, cid: str = "c1", cluster: bool = False, auxiliary: bool = False) -> Attachment:
    conf = conflists.parse({"cniVersion": "1.0.0", "name": network, "type": "bridge"}, where="a test")
    delegate = Delegate(network, conf, is_cluster_network=cluster, is_auxiliary=auxiliary)
    result = Result({"cniVersion": "1.0.0", "ips": []})
    return Attachment(delegate, cid, "/run/netns/p", ifname, (("K", "v"),), {"ips": ["10.0.0.1"]}, result)


def call(cid: str = "c1", ifname: str = "eth0") -> Call:
    return Call(CNICommand.DEL, cid, netns="/run/netns/called", ifname=ifname, generic_args=(("C", "d"),))


def of_reference(network: str, **more: object) -> dict[str, object]:
    conf = base64.b64encode(json.dumps({"cniVersion": "1.0.0", "name": network, "type": "bridge"}).encode()).decode()
    return {"Conf": {}, "ConfList": {}, "Name": network, "IsFilterV4Gateway": False, "IsFilterV6Gateway": False, "Bytes": conf, **more}


def result_of_reference(folder: Path, network: str, ifname: str, cid: str = "c1", **more: object) -> None:
    conf = base64.b64encode(json.dumps({"cniVersion": "1.0.0", "type": "bridge"}).encode()).decode()
    document = {
        "kind": "cniCacheV1", "containerId": cid, "config": conf, "ifName": ifname, "networkName": network, "netns": "/run/netns/add",
        "cniArgs": [["A", "b"]], "capabilityArgs": {"mac": "m"}, "result": {"cniVersion": "1.0.0"}, **more,
    }
    (folder / "results").mkdir(exist_ok=True)
    (folder / "results" / f"{network}-{cid}-{ifname}").write_text(json.dumps(document))


def names(attachments: tuple[Attachment, ...] | None) -> list[str] | None:
    return None if attachments is None else [each.network for each in attachments]


def test_attachments_are_read_as_written_with_their_results(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    attached, failed = attachment("a", "eth0", cluster=True), attachment("b", "net1")
    journal.write("c1", (attached, failed))
    journal.write_result(attached)
    assert (attached, failed._replace(result=None)) == journal.read(call())


@pytest.mark.parametrize(("listed", "expected"), [(["in-process"], ("in-process",)), (5, ()), ([5], ()), (None, ())])
def test_who_has_run_an_add_is_read_with_its_result(tmp_path: Path, listed: object, expected: tuple[str, ...]) -> None:
    journal, made = Journal(str(tmp_path)), attachment("blue", "net1")
    journal.write("c1", (made,))
    journal.write_result(made._replace(runners=("in-process",)))
    path = tmp_path / "results" / "blue-c1-net1"
    document = json.loads(path.read_bytes())
    document["attachment"]["runners"] = listed
    path.write_text(json.dumps(document))
    (read,) = journal.read(call()) or ()
    assert (read.runners, read.result) == (expected, made.result)


def test_folders_and_files_are_for_root_alone(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "lib" / "multus"))
    journal.write("c1", (attachment("a", "eth0"),))
    journal.write_result(attachment("a", "eth0"))
    modes = {
        path: stat.S_IMODE((tmp_path / path).stat().st_mode)
        for path in ("lib", "lib/multus", "lib/multus/results", "lib/multus/c1", "lib/multus/results/a-c1-eth0")
    }
    assert list(modes.values()) == [0o700, 0o700, 0o700, 0o600, 0o600]


def test_no_attachments_remove_the_record_and_what_was_put_aside_for_it(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    for name in (".damaged-c1-12345678", ".damaged-c1-x-12345678", "c1-x"):
        (tmp_path / name).write_text("x")
    journal.write("c1", (attachment("a", "eth0"),))
    journal.write("c1", ())
    journal.write("c1", ())
    assert sorted(os.listdir(tmp_path)) == [".damaged-c1-x-12345678", "c1-x"]


def test_nothing_is_known_without_record_and_results(tmp_path: Path) -> None:
    assert Journal(str(tmp_path / "missing")).read(call()) is None
    assert Journal(str(tmp_path / "missing")).containers() == ()
    Journal(str(tmp_path / "missing")).write("c1", ())
    Journal(str(tmp_path / "missing")).remove_result(attachment("a", "eth0"))


@pytest.mark.parametrize(
    "content", ["", "{oops", "null", "[]", "{}", "[null]", '[{"Name": 5}]', '[{"attachment": {}}]', '[{"Bytes": "e30="}]', "\x00"],
)
def test_a_damaged_record_is_put_aside_and_rebuilt_from_the_results(tmp_path: Path, content: str) -> None:
    log = RecordingLog()
    journal = Journal(str(tmp_path), log)
    attached = [attachment("a", "eth0", cluster=True), attachment("b", "net1")]
    for each in attached:
        journal.write_result(each)
    (tmp_path / "c1").write_text(content)
    assert tuple(attached) == journal.read(call())
    aside = [path for path in tmp_path.iterdir() if path.name.startswith(".damaged-c1-")]
    assert [path.read_text() for path in aside] == [content]
    assert not (tmp_path / "c1").exists()
    assert [(level, event) for level, event, _ in log.lines] == [("error", "journal.damaged"), ("warning", "journal.rebuilt")]
    assert tuple(attached) == journal.read(call())


def test_damaged_containers_are_those_with_a_record_put_aside_until_they_are_detached(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    assert journal.damaged() == frozenset()
    for container_id in ("c1", "c-2"):
        (tmp_path / container_id).write_text("{oops")
        journal.read(call(container_id))
    assert journal.damaged() == {"c1", "c-2"}
    journal.write("c1", ())
    assert journal.damaged() == {"c-2"}


def test_a_damaged_record_without_results_is_no_record(tmp_path: Path) -> None:
    (tmp_path / "c1").write_text("{oops")
    assert Journal(str(tmp_path)).read(call()) is None


def test_a_missing_record_is_rebuilt_in_the_order_of_add(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    expected = [
        attachment("z-cluster", "eth0", cluster=True), attachment("n2", "net2"), attachment("n10", "net10"), attachment("a", "blue0"),
        attachment("b", "netx"), attachment("c", "net99999999999"), attachment("aux", "eth0", auxiliary=True),
    ]
    for each in sorted(expected):
        journal.write_result(each)
    journal.write_result(attachment("other", "eth0", cid="c12"))
    rebuilt = journal.read(call())
    assert names(rebuilt) == ["z-cluster", "n2", "n10", "a", "c", "b", "aux"]
    assert rebuilt is not None
    assert set(map(str, expected)) == set(map(str, rebuilt))


def test_the_callers_interface_is_the_cluster_networks_when_the_results_do_not_say(tmp_path: Path) -> None:
    result_of_reference(tmp_path, "a", "eth0")
    result_of_reference(tmp_path, "b", "veth1")
    rebuilt = Journal(str(tmp_path)).read(call(ifname="veth1"))
    assert rebuilt is not None
    assert [(each.network, each.delegate.is_cluster_network) for each in rebuilt] == [("b", True), ("a", False)]


def test_results_of_a_container_whose_id_is_part_of_another_are_told_apart(tmp_path: Path) -> None:
    result_of_reference(tmp_path, "a", "eth0", cid="c1-c2")
    assert Journal(str(tmp_path)).read(call("c2")) is None
    assert Journal(str(tmp_path)).read(call("c1")) is None
    assert names(Journal(str(tmp_path)).read(call("c1-c2"))) == ["a"]


def test_a_record_of_the_reference_is_completed_from_its_results(tmp_path: Path) -> None:
    elements = [of_reference("a"), of_reference("b", Name="ns/b"), of_reference("c", ifnameRequest="web0", macRequest="x")]
    (tmp_path / "c1").write_text(json.dumps(elements))
    result_of_reference(tmp_path, "a", "eth0")
    read = Journal(str(tmp_path)).read(call())
    assert read is not None
    assert [(each.ifname, each.netns, each.generic_args, each.capability_args, each.result) for each in read] == [
        ("eth0", "/run/netns/add", (("A", "b"),), {"mac": "m"}, Result({"cniVersion": "1.0.0"})),
        ("net1", "/run/netns/called", (("C", "d"),), {}, None),
        ("web0", "/run/netns/called", (("C", "d"),), {"mac": "x"}, None),
    ]


@pytest.mark.parametrize(("cached", "expected"), [("veth7", "veth7"), (None, "eth0")])
def test_without_a_callers_interface_the_results_tell_the_cluster_networks(tmp_path: Path, cached: str | None, expected: str) -> None:
    (tmp_path / "c1").write_text(json.dumps([of_reference("a")]))
    result_of_reference(tmp_path, "b", "net1")
    if cached:
        result_of_reference(tmp_path, "a", cached)
    read = Journal(str(tmp_path)).read(call(ifname=""))
    assert read is not None
    assert read[0].ifname == expected


@pytest.mark.parametrize("content", ["{oops", "[]", '{"kind": "cniCacheV1", "cniArgs": 5}'])
def test_a_damaged_results_file_only_costs_the_result(tmp_path: Path, content: str) -> None:
    (tmp_path / "c1").write_text(json.dumps([of_reference("a")]))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a-c1-eth0").write_text(content)
    read = Journal(str(tmp_path)).read(call())
    assert read is not None
    assert (read[0].result, read[0].generic_args) == (None, (("C", "d"),))


def test_a_bare_result_is_a_result(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.write("c1", (attachment("a", "eth0"),))
    (tmp_path / "results").mkdir()
    (tmp_path / "results" / "a-c1-eth0").write_text('{"cniVersion": "0.2.0", "ip4": {}}')
    read = journal.read(call())
    assert read is not None
    assert read[0].result == Result({"cniVersion": "0.2.0", "ip4": {}})


def test_a_result_is_removed_alone(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    for each in (attachment("a", "eth0"), attachment("a", "net1")):
        journal.write_result(each)
    journal.remove_result(attachment("a", "eth0"))
    assert os.listdir(tmp_path / "results") == ["a-c1-net1"]


@pytest.mark.parametrize("bad", [attachment("a", "")._replace(ifname=""), attachment("a", "eth0", cid="a/b"), attachment("a", "x/../../y")])
def test_a_result_that_has_no_file_name_is_not_written_and_not_removed(tmp_path: Path, bad: Attachment) -> None:
    journal = Journal(str(tmp_path))
    with pytest.raises(InvalidConfigError, match=r"no part of a file name"):
        journal.write_result(bad)
    journal.remove_result(bad)
    assert os.listdir(tmp_path) == []


def test_an_attachment_whose_results_cannot_have_a_file_is_read_without(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.write("c1", (attachment("a", "x/y"),))
    read = journal.read(call())
    assert read is not None
    assert read[0].result is None


def test_containers_are_those_with_a_record_or_a_result(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.write("c2", (attachment("a", "eth0"),))
    journal.write_result(attachment("a", "eth0", cid="c1"))
    for name in (".c3.1.0.tmp", ".damaged-c4-0", "results/unreadable-c5-eth0", "results/.x.tmp", "not an id"):
        (tmp_path / name).write_text("{")
    (tmp_path / "results" / "odd-c6-eth0").write_text("{}")
    result_of_reference(tmp_path, "invalid", "eth0", cid="c7", config="e30=")
    (tmp_path / "folder").mkdir()
    assert journal.containers() == ("c1", "c2")
    assert (tmp_path / "results/unreadable-c5-eth0").exists()


def test_results_tell_each_file_and_its_attachment(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    journal.write_result(attachment("b", "eth0"))
    (tmp_path / "results" / "a-c5-eth0").write_text("{")
    assert journal.results() == (
        (str(tmp_path / "results" / "a-c5-eth0"), None),
        (str(tmp_path / "results" / "b-c1-eth0"), attachment("b", "eth0")),
    )


@pytest.mark.parametrize("cid", ["", ".", "..", ".hidden", "a/b", "/etc/passwd", "a\0b"])
def test_a_container_id_that_is_no_file_name_is_refused(tmp_path: Path, cid: str) -> None:
    journal = Journal(str(tmp_path))
    for attempt in (lambda: journal.read(call(cid)), lambda: journal.write(cid, ()), lambda: journal.write(cid, (attachment("a", "e"),))):
        with pytest.raises(InvalidEnvironmentError):
            attempt()


def test_what_cannot_be_read_is_an_error_and_never_missing(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    (tmp_path / "c1").mkdir()
    with pytest.raises(IOFailureError, match=r"cannot read .*c1: Is a directory"):
        journal.read(call())
    (tmp_path / "results").write_text("a file")
    for attempt in (
        journal.containers,
        lambda: journal.read(call("c2")),
        lambda: journal.write_result(attachment("a", "eth0")),
    ):
        with pytest.raises(IOFailureError, match=r"Not a directory"):
            attempt()
    journal.remove_result(attachment("a", "eth0"))


def test_what_cannot_be_changed_is_an_error(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path))
    (tmp_path / "c1").mkdir()
    (tmp_path / "results" / "a-c1-eth0").mkdir(parents=True)
    with pytest.raises(IOFailureError, match=r"cannot write .*c1"):
        journal.write("c1", (attachment("a", "eth0"),))
    with pytest.raises(IOFailureError, match=r"cannot remove .*c1"):
        journal.write("c1", ())
    with pytest.raises(IOFailureError, match=r"cannot remove .*a-c1-eth0"):
        journal.remove_result(attachment("a", "eth0"))


def test_a_failed_write_leaves_no_temporary_file(tmp_path: Path) -> None:
    (tmp_path / "c1").mkdir()
    with pytest.raises(IOFailureError):
        Journal(str(tmp_path)).write("c1", (attachment("a", "eth0"),))
    assert os.listdir(tmp_path) == ["c1"]


def test_a_damaged_record_that_cannot_be_put_aside_is_an_error(tmp_path: Path) -> None:
    name = "c" * 250  # with the prefix, longer than a file name may be
    (tmp_path / name).write_text("{oops")
    with pytest.raises(IOFailureError, match=r"aside"):
        Journal(str(tmp_path)).read(call(name))
    assert (tmp_path / name).read_text() == "{oops"


def test_sharers_of_the_lock_do_not_wait_for_each_other(tmp_path: Path) -> None:
    journal = Journal(str(tmp_path / "new"))
    with journal.locked(), Journal(str(tmp_path / "new")).locked():
        assert (tmp_path / "new").is_dir()


def test_the_exclusive_lock_waits_for_the_sharers(tmp_path: Path) -> None:
    order = []
    entered = threading.Event()

    def collect() -> None:
        entered.set()
        with Journal(str(tmp_path)).locked(exclusive=True):
            order.append("collected")

    with Journal(str(tmp_path)).locked():
        thread = threading.Thread(target=collect)
        thread.start()
        entered.wait()
        order.append("attached")
    thread.join()
    assert order == ["attached", "collected"]


def test_a_lock_that_cannot_be_had_is_an_error_to_try_again(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(journal_module, "_LOCK_TIMEOUT_S", 0.0)
    with Journal(str(tmp_path)).locked(), pytest.raises(TryAgainLaterError), Journal(str(tmp_path)).locked(exclusive=True):
        pass
    with Journal(str(tmp_path)).locked(exclusive=True):
        assert os.listdir(tmp_path) == []


def test_a_lock_on_what_is_no_folder_is_an_error(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("x")
    with pytest.raises(IOFailureError), Journal(str(tmp_path / "file")).locked():
        pass
