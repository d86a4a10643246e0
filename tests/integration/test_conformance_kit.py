"""The conformance kit itself: a delegate that keeps every law, and for each law one that breaks it and is found out."""

from __future__ import annotations

import json
import os
import subprocess
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import pytest
from hypothesis import strategies as st

from multus.errors import InvalidConfigError, IOFailureError
from multus.hooks.delegates import InProcessDelegate
from multus.netns import OWN, Entered
from multus.testing import conformance, laws
from multus.testing.laws import Trial, Violation
from multus.testing.pods import PLUGIN_FOLDER
from multus.types.invocation import Invocation
from multus.types.result import Result

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="network namespaces need root")
ADDRESS = "192.0.2.5/24"
LAWS = {law.__name__: (law, verb) for law, verb in laws.LAWS}


def ip(*arguments: str) -> None:
    done = subprocess.run(["ip", *arguments], check=False, capture_output=True, text=True)
    if done.returncode:
        raise IOFailureError(f"ip {' '.join(arguments)}: {done.stderr.strip()}")


def has_link(invocation: Invocation) -> bool:
    with Entered(invocation.netns):
        return subprocess.run(["ip", "link", "show", invocation.ifname], check=False, capture_output=True).returncode == 0


class Good(InProcessDelegate):
    """Both ends of a veth in the pod, and a file on the node for each attachment."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def path(self, invocation: Invocation) -> Path:
        return self.folder / f"{invocation.container_id}-{invocation.ifname}"

    def add(self, invocation: Invocation) -> Result:
        address = invocation.config.get("address", ADDRESS)
        if address != ADDRESS:
            raise InvalidConfigError(f"key address {address!r} is not {ADDRESS}")
        self.make(invocation)
        self.path(invocation).touch()
        return Result({
            "cniVersion": "1.1.0",
            "interfaces": [{"name": invocation.ifname, "sandbox": invocation.netns}],
            "ips": [{"address": ADDRESS, "interface": 0}],
        })  # fmt: skip

    def make(self, invocation: Invocation) -> None:
        with Entered(invocation.netns):
            ip("link", "add", invocation.ifname, "type", "veth", "peer", "name", "inner")
            ip("address", "add", ADDRESS, "dev", invocation.ifname)
            ip("link", "set", invocation.ifname, "up")

    def delete(self, invocation: Invocation) -> None:
        self.path(invocation).unlink(missing_ok=True)
        if os.path.exists(invocation.netns) and has_link(invocation):
            with Entered(invocation.netns):
                ip("link", "del", invocation.ifname)

    def check(self, invocation: Invocation) -> None:
        if not has_link(invocation):
            raise IOFailureError(f"interface {invocation.ifname} is gone")

    def gc(self, invocation: Invocation) -> None:
        valid: Any = invocation.config["cni.dev/valid-attachments"]
        for name in set(os.listdir(self.folder)) - {f"{each['containerID']}-{each['ifname']}" for each in valid}:
            (self.folder / name).unlink()


class Invalid(Good):
    def add(self, invocation: Invocation) -> Result:
        super().add(invocation)
        return Result({"ips": [{"address": "x"}]})


class Lies(Good):
    def add(self, invocation: Invocation) -> Result:
        text = json.dumps(super().add(invocation).document)
        return Result(json.loads(text.replace(ADDRESS, "192.0.2.6/24")))


class Takes(Good):
    def make(self, invocation: Invocation) -> None:
        if has_link(invocation):
            with Entered(invocation.netns):
                ip("link", "del", invocation.ifname)
        super().make(invocation)


class Keeps(Good):
    def delete(self, invocation: Invocation) -> None:
        super().delete(invocation)
        self.path(invocation).touch()


class WantsItsFile(Good):
    def delete(self, invocation: Invocation) -> None:
        if not self.path(invocation).exists():
            raise IOFailureError(f"there is no file {self.path(invocation)}")
        super().delete(invocation)


class WantsResult(Good):
    def delete(self, invocation: Invocation) -> None:
        if not invocation.config.get("prevResult"):
            raise InvalidConfigError("prevResult is missing")
        super().delete(invocation)


class WantsNamespace(Good):
    def delete(self, invocation: Invocation) -> None:
        with Entered(invocation.netns):
            super().delete(invocation)


class Complains(Good):
    def check(self, invocation: Invocation) -> None:
        raise IOFailureError("something is wrong")


class Blind(Good):
    def check(self, invocation: Invocation) -> None: ...


class Notes(Good):
    def status(self, invocation: Invocation) -> None:
        (self.folder / "asked").touch()


class Sweeps(Good):
    def gc(self, invocation: Invocation) -> None:
        for name in os.listdir(self.folder):
            (self.folder / name).unlink()


class Hoards(Good):
    def gc(self, invocation: Invocation) -> None: ...


class LeavesHalf(Good):
    def add(self, invocation: Invocation) -> Result:
        self.make(invocation)
        return super().add(invocation)


class Crashes(Good):
    def add(self, invocation: Invocation) -> Result:
        assert invocation.config.get("address", ADDRESS) == ADDRESS
        return super().add(invocation)


class Stays(Good):
    def status(self, invocation: Invocation) -> None:
        os.chdir("/proc")


class Scribbles(Good):
    def status(self, invocation: Invocation) -> None:
        invocation.config["mine"] = True  # type: ignore[index]


BROKEN = [
    ("add_answers_a_valid_result", Invalid, "a result that is not valid"),
    ("add_makes_what_its_result_says", Lies, "address 192.0.2.6/24 of the result is on no interface of the pod"),
    ("add_refuses_a_name_that_is_taken", Takes, "ADD succeeded, and net1 was there already"),
    ("del_leaves_nothing", Keeps, "ADD and DEL succeeded, and this differs"),
    ("del_may_come_again", WantsItsFile, "DEL failed: there is no file"),
    ("del_may_come_without_add", WantsItsFile, "DEL failed: there is no file"),
    ("del_needs_no_previous_result", WantsResult, "DEL failed: prevResult is missing"),
    ("del_needs_no_namespace", WantsNamespace, "DEL failed: network namespace '/run/netns/gone-with-its-pod' cannot be opened"),
    ("check_finds_what_add_made", Complains, "CHECK failed: something is wrong"),
    ("check_notices_a_lost_interface", Blind, "CHECK succeeded, and interface net1 was gone"),
    ("status_changes_nothing", Notes, "STATUS succeeded, and this differs"),
    ("gc_keeps_what_is_valid", Sweeps, "GC succeeded, and this differs"),
    ("gc_leaves_nothing_of_what_is_gone", Hoards, "the namespace ended, and GC succeeded, and this differs"),
    ("a_damaged_configuration_does_no_damage", Crashes, "ADD raised AssertionError, which is no error of CNI"),
    ("status_changes_nothing", Stays, "STATUS left something changed: .*the working folder"),
    ("status_changes_nothing", Scribbles, "STATUS changed the configuration that it was given"),
]


def try_law(name: str, delegate: object, folder: Path, **keys: object) -> None:
    law, _ = LAWS[name]
    config = {"cniVersion": "1.1.0", "name": "lan", "type": "good", **keys}
    with Trial(conformance.InProcess("good", delegate), config, also=lambda: sorted(os.listdir(folder))) as trial:
        law(trial)


@pytest.mark.parametrize("name", LAWS)
def test_a_good_delegate_keeps_each_law(name: str, tmp_path: Path) -> None:
    try_law(name, Good(tmp_path), tmp_path)


@pytest.mark.parametrize(("name", "delegate", "message"), BROKEN, ids=[f"{name}-{each.__name__}" for name, each, _ in BROKEN])
def test_who_breaks_a_law_is_found_out(name: str, delegate: type[Good], message: str, tmp_path: Path) -> None:
    keys = {"address": 5} if name.startswith("a_damaged") else {}
    with pytest.raises(Violation, match=message):
        try_law(name, delegate(tmp_path), tmp_path, **keys)


def test_each_law_is_broken_by_somebody() -> None:
    assert LAWS.keys() == {name for name, *_ in BROKEN}


def test_an_add_that_fails_and_leaves_something_is_found_out(tmp_path: Path) -> None:
    with pytest.raises(Violation, match="ADD failed, DEL came, and this differs"):
        try_law("a_damaged_configuration_does_no_damage", LeavesHalfOnTheNode(tmp_path), tmp_path, address=5)


class LeavesHalfOnTheNode(Keeps):
    def add(self, invocation: Invocation) -> Result:
        self.path(invocation).touch()
        return super().add(invocation)


def test_a_failure_that_is_no_error_object_is_found_out(tmp_path: Path) -> None:
    binary = tmp_path / "mute"
    binary.write_text("#!/bin/sh\nexit 1\n")
    binary.chmod(0o755)
    config = {"cniVersion": "1.0.0", "name": "lan", "type": "mute"}
    with Trial(conformance.Binary(str(binary)), config) as trial, pytest.raises(Violation, match="failed without an error object"):
        trial.call("ADD")


TestGood = conformance.suite(
    conformance.InProcess("good", Good(Path("/nowhere"))), st.just({}), without=[law for law, verb in laws.LAWS if verb != "STATUS"]
)
"""The suite as an author has it, cut to the law that needs no folder."""


def test_a_suite_has_a_test_for_each_law_that_its_versions_know() -> None:
    subject = conformance.InProcess("good", None)
    names = {name for name in vars(conformance.suite(subject, st.just({}))) if name.startswith("test_")}
    assert {f"test_{name}" for name in LAWS} == names
    old = {name for name in vars(conformance.suite(subject, st.just({}), cni_versions=("0.3.1",))) if name.startswith("test_")}
    assert {f"test_{name}" for name, (_, verb) in LAWS.items() if verb in ("ADD", "DEL")} == old


def test_damaged_configurations_are_drawn(tmp_path: Path) -> None:
    """What the suite hands to the last law is mostly not what the strategy draws."""
    seen: list[Mapping[str, Any]] = []

    class Sees(Good):
        def add(self, invocation: Invocation) -> Result:
            seen.append(invocation.config)
            raise InvalidConfigError("seen")

    others = [law for law, _ in laws.LAWS if law is not laws.a_damaged_configuration_does_no_damage]
    made = conformance.suite(conformance.InProcess("good", Sees(tmp_path)), st.just({"address": ADDRESS}), without=others, examples=10)
    made().test_a_damaged_configuration_does_no_damage()  # type: ignore[attr-defined]
    assert any(config.get("address") != ADDRESS for config in seen)
    assert {config["type"] for config in seen} == {"good"}


def test_the_first_delegate_of_the_documentation_breaks_the_laws_that_it_says(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """The page shows what this prints; not every kernel has the kind dummy, so it makes a veth."""
    page = (Path(__file__).parents[2] / "docs" / "writing-delegates.md").read_text(encoding="utf-8")
    source, shown = page.partition("```python\n")[2].partition("```")[0], page.partition("dummy.json\n")[2].partition("```")[0]
    assert 'kind="dummy"' in source
    (tmp_path / "multus_dummy_of_the_page.py").write_text(source.replace('kind="dummy"', 'kind="veth", peer="other"'))
    (tmp_path / "dummy.json").write_text('{"cniVersion": "1.0.0"}')
    monkeypatch.syspath_prepend(tmp_path)
    assert conformance.main(["multus_dummy_of_the_page:Dummy", str(tmp_path / "dummy.json")]) == 1
    assert capsys.readouterr().out == shown


@pytest.mark.skipif(not os.path.exists(os.path.join(PLUGIN_FOLDER, "macvlan")), reason="the reference plugins are not installed")
def test_from_a_shell_a_binary_is_tried_with_one_configuration(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    ipam = {"type": "static", "addresses": [{"address": ADDRESS}]}
    config = tmp_path / "config.json"
    config.write_text(json.dumps({"cniVersion": "1.0.0", "master": "up0", "ipam": ipam}))
    here = os.stat(OWN).st_ino
    prepare = "ip link add up0 type veth peer name up1; ip link set up0 up"
    assert conformance.main([os.path.join(PLUGIN_FOLDER, "macvlan"), str(config), "--prepare", prepare]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.split("  ")[0] for line in lines] == [
        name.replace("_", " ") for name, (_, verb) in LAWS.items() if verb in ("ADD", "DEL", "CHECK") and not name.startswith("a_damaged")
    ]
    assert conformance.main([os.path.join(PLUGIN_FOLDER, "macvlan"), str(config)]) == 1
    assert "BROKEN: ADD failed: " in capsys.readouterr().out
    assert os.stat(OWN).st_ino == here
