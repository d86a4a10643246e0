"""One verb on one network: its plugins in the order of the CNI specification."""

from __future__ import annotations

import pytest

from multus.core import networks
from multus.errors import DelegateError, DelegateNotFoundError, MultusError, NotAvailableError, UnknownContainerError
from multus.protocol import conflists, results
from multus.testing.fakes import NETNS, ProgramCall
from multus.testing.world import BIN, World
from multus.types.config import ConfList
from multus.types.delegate import Attachment, Delegate
from multus.types.invocation import Completed, Invocation, Outcome
from multus.types.result import Result

VALID = [{"containerID": "c1", "ifname": "eth0"}]


def conf_of(version: str = "1.1.0", *types: str, **more: object) -> ConfList:
    plugins = [{"type": each} for each in types or ("a", "b", "c")]
    return conflists.parse({"cniVersion": version, "name": "blue", "plugins": plugins, **more}, where="a test")


def attachment(version: str = "1.1.0", *types: str, result: Result | None = None, **more: object) -> Attachment:
    return Attachment(Delegate("shop/blue", conf_of(version, *types, **more)), "c1", NETNS, "net1", (("K", "v"),), result=result)


def a_result(version: str = "1.1.0") -> Result:
    made = results.parse({"cniVersion": "1.1.0", "ips": [{"address": "192.0.2.5/24"}]}, "")
    return results.convert(made, version)


def a_world() -> World:
    return World("a", "b", "c")


def ran(world: World) -> list[tuple[str, str]]:
    return [(call.command, call.type) for call in world.programs.made]


def asked(world: World) -> list[tuple[str, str, str]]:
    """Verb, type and preference of each call of a plugin."""
    seen: list[tuple[str, str, str]] = []

    class Watching:
        def multus_invoke_delegate(self, invocation: Invocation, delegate: Delegate, config: object) -> None:
            seen.append((str(invocation.command), invocation.type, delegate.preference))

    world.plugins.append(Watching())
    return seen


# --- ADD ---


def test_add_runs_in_order_and_each_plugin_gets_the_result_before_it() -> None:
    world = a_world()
    world.programs.answer("b", "ADD", a_result().document)
    networks.add(attachment(), world.context())
    assert ran(world) == [("ADD", "a"), ("ADD", "b"), ("ADD", "c")]
    first, second, third = world.programs.made
    assert "prevResult" not in first.config
    assert second.config["prevResult"]["interfaces"][0]["name"] == "net1"
    assert third.config["prevResult"] == a_result().document


def test_last_result_is_the_networks() -> None:
    world = a_world()
    world.programs.answer("c", "ADD", a_result().document)
    assert networks.add(attachment(), world.context()) == (a_result(), ("binary", "binary", "binary"))


def test_result_of_another_version_is_handed_on_in_the_lists_version() -> None:
    world = a_world()
    world.programs.answer("a", "ADD", {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "192.0.2.5/24"}]})
    networks.add(attachment("1.0.0"), world.context())
    assert world.programs.made[1].config["prevResult"] == {"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.5/24"}]}


def test_given_prev_result_goes_to_the_first_plugin() -> None:
    world = a_world()
    networks.add(attachment("1.0.0"), world.context(), a_result())
    assert world.programs.made[0].config["prevResult"] == a_result("1.0.0").document


def test_every_plugin_gets_the_attachment_parameters() -> None:
    world = a_world()
    networks.add(attachment(), world.context("ADD", {"binDir": "/own"}))
    expected = {
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": NETNS,
        "CNI_IFNAME": "net1",
        "CNI_ARGS": "K=v",
        "CNI_PATH": f"/own:{BIN}",
    }
    assert [call.environment for call in world.programs.made] == [expected] * 3


def test_first_failure_ends_add_and_names_its_plugin_with_the_code_kept() -> None:
    world = a_world()
    world.programs.answer("b", "ADD", DelegateError("no lease", "d", 57))
    with pytest.raises(DelegateError) as caught:
        networks.add(attachment(), world.context())
    assert (caught.value.msg, caught.value.details, caught.value.code) == ("plugin 'b': no lease", "d", 57)
    assert ran(world) == [("ADD", "a"), ("ADD", "b")]
    assert world.log.events("error") == ["delegate.add.failed"]


@pytest.mark.parametrize("stdout", [b"", b"{", b"[]", b'{"cniVersion":"9.9.9"}', b'{"ips":"x"}', b"\xff\xfe", b"NaN"])
def test_answer_that_is_no_result_is_the_plugins_failure(stdout: bytes) -> None:
    world = a_world()
    world.programs.answer("a", "ADD", Completed(0, stdout, b""))
    with pytest.raises(DelegateError, match="plugin 'a': it answered"):
        networks.add(attachment(), world.context())


@pytest.mark.parametrize(
    ("completed", "code", "said"),
    [
        (Completed(1, b'{"code":11,"msg":"later","details":"d"}', b"noise"), 11, "later"),
        (Completed(1, b'{"code":0,"msg":"odd"}', b""), 999, "odd"),
        (Completed(2, b"", b"cannot open x\n"), 999, "it failed with exit status 2: cannot open x"),
        (Completed(3, b"not JSON", b""), 999, "it failed with exit status 3: not JSON"),
        (Completed(1, b'{"msg":"no code"}', b""), 999, 'it failed with exit status 1: {"msg":"no code"}'),
        (Completed(-9, b"", b""), 999, "it failed with signal 9 and said nothing"),
        (Completed(1, b"\xff", b""), 999, "it failed with exit status 1: \ufffd"),
    ],
)
def test_failure_says_what_the_plugin_said(completed: Completed, code: int, said: str) -> None:
    world = a_world()
    world.programs.answer("a", "ADD", completed)
    with pytest.raises(DelegateError) as caught:
        networks.add(attachment(), world.context())
    assert (caught.value.code, caught.value.msg) == (code, f"plugin 'a': {said}")


def test_plugin_that_answers_add_with_nothing_is_an_error() -> None:
    class Silent:
        def multus_invoke_delegate(self, invocation, delegate, config):
            return Outcome()

    world = a_world()
    world.plugins.append(Silent())
    with pytest.raises(MultusError, match="plugin 'a' answered ADD without a result"):
        networks.add(attachment(), world.context())


def test_network_without_plugins_is_an_error() -> None:
    empty = attachment()
    empty = empty._replace(delegate=empty.delegate._replace(conf=empty.delegate.conf._replace(plugins=())))
    with pytest.raises(MultusError, match="'blue' has no plugin"):
        networks.add(empty, a_world().context())


def test_time_a_plugin_took_is_logged() -> None:
    world = a_world()

    def slow(call: ProgramCall) -> dict[str, object]:
        world.clock.sleep(1.25)
        return {"cniVersion": "1.1.0"}

    world.programs.answer("a", "ADD", slow)
    networks.add(attachment("1.1.0", "a"), world.context())
    fields = {"network": "blue", "plugin": "a", "ifname": "net1", "seconds": "1.250"}
    assert world.log.lines == [("verbose", "delegate.add.complete", fields)]


def test_observer_is_told_of_each_call_also_of_one_that_fails() -> None:
    world = a_world()
    observed: list[tuple[str, str, str, float]] = []
    world.programs.answer("b", "ADD", DelegateError("no lease"))
    with pytest.raises(DelegateError):
        networks.add(attachment(), world.context()._replace(observe=lambda *told: observed.append(told)))
    assert observed == [("ADD", "a", "blue", 0.0), ("ADD", "b", "blue", 0.0)]


# --- DEL ---


def test_each_plugin_is_checked_and_detached_by_who_has_run_its_add() -> None:
    world = a_world()
    seen = asked(world)
    made = attachment(result=a_result())
    made = made._replace(delegate=made.delegate._replace(preference="binary"), runners=("in-process", "binary", ""))
    networks.check(made, world.context())
    networks.delete(made, world.context())
    checked = [("CHECK", "a", "in-process"), ("CHECK", "b", "binary"), ("CHECK", "c", "binary")]
    assert seen == [*checked, *(("DEL", plugin, runner) for _, plugin, runner in reversed(checked))]
    seen.clear()
    networks.delete(made._replace(runners=("in-process",)), world.context())
    assert {preference for _, _, preference in seen} == {"binary"}


def test_del_runs_in_reverse_each_with_the_result_of_the_add() -> None:
    world = a_world()
    networks.delete(attachment(result=a_result()), world.context("DEL"))
    assert ran(world) == [("DEL", "c"), ("DEL", "b"), ("DEL", "a")]
    assert [call.config["prevResult"] for call in world.programs.made] == [a_result().document] * 3


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0", "0.3.0", "0.3.1"])
def test_del_before_version_0_4_gets_no_result(version: str) -> None:
    world = a_world()
    networks.delete(attachment(version, result=a_result()), world.context("DEL"))
    assert [call for call in world.programs.made if "prevResult" in call.config] == []


def test_del_without_a_result_gets_none() -> None:
    world = a_world()
    networks.delete(attachment(), world.context("DEL"))
    assert [call for call in world.programs.made if "prevResult" in call.config] == []


def test_result_that_cannot_be_converted_does_not_stand_in_the_way_of_del() -> None:
    world = a_world()
    network = attachment(result=Result({"cniVersion": "1.0.0"}))
    odd = network._replace(delegate=network.delegate._replace(conf=network.delegate.conf._replace(cni_version="0.9.0")))
    networks.delete(odd, world.context("DEL"))
    assert [call for call in world.programs.made if "prevResult" in call.config] == []


def test_first_failure_ends_del() -> None:
    world = a_world()
    world.programs.answer("b", "DEL", DelegateError("busy", code=11))
    with pytest.raises(DelegateError, match="plugin 'b': busy"):
        networks.delete(attachment(result=a_result()), world.context("DEL"))
    assert ran(world) == [("DEL", "c"), ("DEL", "b")]


def test_plugin_that_never_ran_and_has_no_binary_is_passed_over() -> None:
    world = World("a", "c")
    networks.delete(attachment(), world.context("DEL"))
    assert ran(world) == [("DEL", "c"), ("DEL", "a")]
    assert "delegate.del.skipped" in world.log.events("verbose")


def test_plugin_that_ran_and_has_no_binary_any_more_fails_del() -> None:
    with pytest.raises(DelegateNotFoundError, match="'b'"):
        networks.delete(attachment(result=a_result()), World("a", "c").context("DEL"))


def test_cni_args_of_del_say_what_the_runtime_says_now() -> None:
    world = a_world()
    networks.delete(attachment("1.1.0", "a"), world.context("DEL", generic_args=(("K", "new"),)))
    assert world.programs.made[0].environment["CNI_ARGS"] == "K=new"


# --- CHECK ---


def test_check_runs_in_order_each_with_the_result_of_the_add() -> None:
    world = a_world()
    networks.check(attachment("0.4.0", result=a_result()), world.context("CHECK"))
    assert ran(world) == [("CHECK", "a"), ("CHECK", "b"), ("CHECK", "c")]
    assert [call.config["prevResult"] for call in world.programs.made] == [a_result("0.4.0").document] * 3


def test_check_is_not_sent_where_the_version_has_none_or_it_is_disabled() -> None:
    world = a_world()
    networks.check(attachment("0.3.1", result=a_result()), world.context("CHECK"))
    networks.check(attachment("1.1.0", result=a_result(), disableCheck=True), world.context("CHECK"))
    assert world.programs.made == []


def test_check_without_a_result_is_code_3() -> None:
    with pytest.raises(UnknownContainerError, match="'net1'"):
        networks.check(attachment(), a_world().context("CHECK"))


def test_first_complaint_ends_check() -> None:
    world = a_world()
    world.programs.answer("b", "CHECK", DelegateError("address is gone", code=57))
    with pytest.raises(DelegateError) as caught:
        networks.check(attachment(result=a_result()), world.context("CHECK"))
    assert (caught.value.code, ran(world)) == (57, [("CHECK", "a"), ("CHECK", "b")])


# --- STATUS ---


def test_status_runs_in_order_without_attachment_parameters() -> None:
    world = a_world()
    networks.status(attachment().delegate, world.context("STATUS"))
    assert ran(world) == [("STATUS", "a"), ("STATUS", "b"), ("STATUS", "c")]
    assert world.programs.made[0].config == {"type": "a", "name": "blue", "cniVersion": "1.1.0"}
    assert world.programs.made[0].environment == {
        "CNI_COMMAND": "STATUS", "CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_IFNAME": "", "CNI_ARGS": "", "CNI_PATH": BIN,
    }  # fmt: skip


def test_status_is_not_sent_where_the_version_has_none() -> None:
    world = a_world()
    networks.status(attachment("1.0.0").delegate, world.context("STATUS"))
    assert world.programs.made == []


def test_plugins_own_status_passes_unchanged() -> None:
    world = a_world()
    world.programs.answer("b", "STATUS", NotAvailableError("no uplink"))
    with pytest.raises(DelegateError) as caught:
        networks.status(attachment().delegate, world.context("STATUS"))
    assert (caught.value.code, caught.value.msg) == (50, "no uplink")


# --- GC ---


def test_gc_tells_every_plugin_what_is_valid_under_both_keys() -> None:
    world = a_world()
    assert networks.collect(attachment().delegate, VALID, world.context("GC")) == []
    assert ran(world) == [("GC", "a"), ("GC", "b"), ("GC", "c")]
    assert world.programs.made[0].config == {
        "type": "a", "name": "blue", "cniVersion": "1.1.0", "cni.dev/valid-attachments": VALID, "cni.dev/attachments": VALID,
    }  # fmt: skip


def test_gc_goes_on_after_a_failing_plugin() -> None:
    world = a_world()
    world.programs.answer("a", "GC", DelegateError("stuck", code=57))
    world.programs.answer("c", "GC", DelegateError("stuck too", code=58))
    failures = networks.collect(attachment().delegate, VALID, world.context("GC"))
    assert [(failure.code, failure.msg) for failure in failures] == [
        (57, "network 'blue': plugin 'a': stuck"), (58, "network 'blue': plugin 'c': stuck too"),
    ]  # fmt: skip


def test_gc_is_not_sent_where_the_version_has_none_or_it_is_disabled() -> None:
    world = a_world()
    assert networks.collect(attachment("1.0.0").delegate, VALID, world.context("GC")) == []
    assert networks.collect(attachment("1.1.0", disableGC=True).delegate, VALID, world.context("GC")) == []
    assert world.programs.made == []
