"""Plugins become hooks: order, blocking, refusals at load, errors of third parties, and two relays that answer alike."""

from __future__ import annotations

import subprocess
import sys
from typing import Any

import pytest

from multus.errors import DelegateNotFoundError, ForbiddenError, InvalidConfigError, MultusError
from multus.hooks import manager
from multus.hooks.spec import hookimpl
from multus.types.config import MultusConfig
from multus.types.delegate import Attachment, Delegate
from multus.types.invocation import CNICommand, Invocation, Outcome
from multus.types.pod import NetworkStatus, Pod
from multus.types.result import Result
from multus.types.selection import NetworkSelectionElement

CONFIG = MultusConfig("meta-net")
POD = Pod("team", "web", "u1")
CONF: Any = None
DELEGATE = Delegate("trunk", CONF)
ATTACHMENT = Attachment(DELEGATE, "c1", "/run/netns/t1", "eth0")
INVOCATION = Invocation(CNICommand.ADD, "bridge", {}, path=("/a", "/b"))
RESULT = Result({"cniVersion": "1.1.0"})
SELECTION = NetworkSelectionElement("lan-a", "team")
STATUSES = (NetworkStatus("trunk"),)
PROBLEM = InvalidConfigError("no")


class Builtin:
    """A built-in plugin with every hook, as built-ins are: no decorator."""

    def __init__(self, name: str = "builtin", calls: list[object] | None = None, answer: bool = True) -> None:
        self.name = name
        self.calls = [] if calls is None else calls
        self.answer = answer

    def note(self, hook: str, *arguments: object) -> bool:
        self.calls.append((self.name, hook, *arguments))
        return self.answer

    def multus_select_networks(self, pod, config):
        return (SELECTION,) if self.note("select_networks", pod, config) else None

    def multus_resolve_delegate(self, selection, pod, config):
        return DELEGATE if self.note("resolve_delegate", selection, pod, config) else None

    def multus_invoke_delegate(self, invocation, delegate, config):
        return Outcome(RESULT) if self.note("invoke_delegate", invocation, delegate, config) else None

    def multus_merge_results(self, attachments, config):
        return RESULT if self.note("merge_results", attachments, config) else None

    def multus_report_status(self, statuses, pod, config):
        self.note("report_status", statuses, pod, config)

    def multus_report_attachment(self, attachment, pod):
        self.note("report_attachment", attachment, pod)

    def multus_report_problem(self, reason, error, pod):
        self.note("report_problem", reason, error, pod)

    def helper(self) -> None:
        """No hook."""


def ask_everything(hooks: manager.Hooks) -> list[object]:
    """Every hook once; the answers."""
    return [
        hooks.select_networks(POD, CONFIG),
        hooks.resolve_delegate(SELECTION, None, CONFIG),
        hooks.invoke_delegate(INVOCATION, DELEGATE, CONFIG),
        hooks.merge_results((ATTACHMENT,), CONFIG),
        hooks.report_status(STATUSES, POD, CONFIG),
        hooks.report_attachment(ATTACHMENT, POD),
        hooks.report_problem("FailedAddNetworks", PROBLEM, POD),
    ]


def reporter(name: str, calls: list[str], *, trylast: bool = False, tryfirst: bool = False) -> object:
    class Reporter:
        @hookimpl(trylast=trylast, tryfirst=tryfirst)
        def multus_report_attachment(self, attachment, pod):
            calls.append(name)

        @hookimpl(trylast=trylast, tryfirst=tryfirst)
        def multus_select_networks(self, pod, config):
            calls.append(name)

    return Reporter()


class BuiltinReporter:
    def __init__(self, name: str, calls: list[str]) -> None:
        self.name = name
        self.calls = calls

    def multus_report_attachment(self, attachment, pod):
        self.calls.append(self.name)

    def multus_select_networks(self, pod, config):
        self.calls.append(self.name)


@pytest.mark.parametrize("make", [manager.hooks_for, lambda builtins: manager.load(builtins, {})], ids=["hooks_for", "load"])
def test_every_hook_reaches_the_plugin_with_its_arguments_and_brings_the_answer_back(make: Any) -> None:
    builtin = Builtin()
    assert ask_everything(make([builtin])) == [(SELECTION,), DELEGATE, Outcome(RESULT), RESULT, None, None, None]
    assert builtin.calls == [
        ("builtin", "select_networks", POD, CONFIG),
        ("builtin", "resolve_delegate", SELECTION, None, CONFIG),
        ("builtin", "invoke_delegate", INVOCATION, DELEGATE, CONFIG),
        ("builtin", "merge_results", (ATTACHMENT,), CONFIG),
        ("builtin", "report_status", STATUSES, POD, CONFIG),
        ("builtin", "report_attachment", ATTACHMENT, POD),
        ("builtin", "report_problem", "FailedAddNetworks", PROBLEM, POD),
    ]


def test_hooks_for_and_load_without_third_parties_call_the_same_plugins_in_the_same_order() -> None:
    seen = []
    for make in (manager.hooks_for, lambda builtins: manager.load(builtins, {})):
        calls: list[object] = []
        builtins = [Builtin("a", calls, answer=False), object(), Builtin("b", calls), Builtin("c", calls)]
        seen.append((ask_everything(make(builtins)), calls))
    assert seen[0] == seen[1]
    assert [name for name, hook, *_ in seen[0][1] if hook in ("select_networks", "report_attachment")] == ["a", "b", "a", "b", "c"]


def test_third_parties_are_called_by_name_then_built_ins_as_registered_then_those_that_try_last() -> None:
    """Pins what pluggy does with trylast: first in, first out, though its manual says the contrary."""
    calls: list[str] = []
    builtins = [BuiltinReporter(name, calls) for name in ("z-builtin", "a-builtin")]
    plugins = {
        "c": reporter("c", calls),
        "a": reporter("a", calls),
        "d-last": reporter("d-last", calls, trylast=True),
        "b": reporter("b", calls),
        "y-first": reporter("y-first", calls, tryfirst=True),
        "e-last": reporter("e-last", calls, trylast=True),
    }
    hooks = manager.load(builtins, plugins)
    order = ["y-first", "a", "b", "c", "z-builtin", "a-builtin", "e-last", "d-last"]
    hooks.report_attachment(ATTACHMENT, POD)
    assert calls == order
    calls.clear()
    assert hooks.select_networks(POD, CONFIG) == ()
    assert calls == order


def test_the_first_answer_wins() -> None:
    class Plugin:
        @hookimpl
        def multus_select_networks(self, pod, config):
            return ()

    builtin = Builtin()
    assert (manager.load([builtin], {"none": Plugin()}).select_networks(POD, CONFIG), builtin.calls) == ((), [])


@pytest.mark.parametrize("make", [manager.hooks_for, lambda builtins: manager.load(builtins, {})], ids=["hooks_for", "load"])
def test_what_no_plugin_answers(make: Any) -> None:
    hooks = make([Builtin(answer=False)])
    assert hooks.select_networks(POD, CONFIG) == ()
    with pytest.raises(InvalidConfigError, match="no plugin knows the network 'team/lan-a'; is a kubeconfig configured"):
        hooks.resolve_delegate(SELECTION, POD, CONFIG)
    with pytest.raises(DelegateNotFoundError, match="plugin type 'bridge' is not served: no such binary in /a, /b and no entry point"):
        hooks.invoke_delegate(INVOCATION, DELEGATE, CONFIG)
    with pytest.raises(MultusError, match="no plugin merged the results"):
        hooks.merge_results((ATTACHMENT,), CONFIG)


def test_a_wrapper_sees_every_call_and_may_change_the_answer() -> None:
    seen = []

    class Wrapper:
        @hookimpl(wrapper=True)
        def multus_invoke_delegate(self, invocation, config):
            seen.append(invocation.command)
            outcome = yield
            return outcome._replace(result=Result({"cniVersion": "0.4.0"}))

    hooks = manager.load([Builtin()], {"audit": Wrapper()})
    outcomes = [hooks.invoke_delegate(INVOCATION._replace(command=command), DELEGATE, CONFIG) for command in CNICommand]
    assert seen == list(CNICommand)
    assert {outcome.result.cni_version for outcome in outcomes if outcome.result} == {"0.4.0"}


def test_a_wrapper_sees_the_failure() -> None:
    seen = []

    class Wrapper:
        @hookimpl(wrapper=True)
        def multus_merge_results(self):
            try:
                return (yield)
            except MultusError as exc:
                seen.append(exc.code)
                raise

    class Refusing:
        def multus_merge_results(self, attachments, config):
            raise ForbiddenError("no")

    with pytest.raises(ForbiddenError):
        manager.load([Refusing()], {"audit": Wrapper()}).merge_results((), CONFIG)
    assert seen == [100]


def test_a_disabled_plugin_is_never_called() -> None:
    calls: list[str] = []
    plugins = {"a": reporter("a", calls), "b": reporter("b", calls)}
    manager.load([], plugins, disabled=["a", "not-installed"]).report_attachment(ATTACHMENT, POD)
    assert calls == ["b"]


def test_a_disabled_plugin_is_not_even_checked() -> None:
    assert isinstance(manager.load([], {"bad": WrongArgument()}, disabled=["bad"]), manager.Hooks)


class WrongArgument:
    @hookimpl
    def multus_report_attachment(self, attachement):
        """The argument is misspelt."""


class UnknownHook:
    @hookimpl
    def multus_report_weather(self, pod):
        """There is no such hook."""


@pytest.mark.parametrize(
    ("plugin", "named"),
    [(WrongArgument(), ["multus_report_attachment", "attachement"]), (UnknownHook(), ["multus_report_weather"])],
)
def test_a_plugin_that_does_not_fit_fails_at_load_with_plugin_and_hook(plugin: object, named: list[str]) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        manager.load([Builtin()], {"good": reporter("good", []), "broken": plugin})
    assert caught.value.msg.startswith("hook plugin 'broken' cannot be used: ")
    assert [name for name in named if name not in caught.value.msg] == []


def test_one_object_under_two_names_is_refused() -> None:
    plugin = reporter("x", [])
    with pytest.raises(InvalidConfigError, match="hook plugin 'a' cannot be used"):
        manager.load([], {"a": plugin, "b": plugin})


def test_a_module_may_be_a_plugin() -> None:
    module = type(sys)("plugin")
    calls: list[object] = []
    module.multus_report_attachment = hookimpl(lambda attachment: calls.append(attachment))  # type: ignore[attr-defined]
    manager.load([], {"m": module}).report_attachment(ATTACHMENT, POD)
    assert calls == [ATTACHMENT]


@pytest.mark.parametrize("error", [KeyError("mtu"), RuntimeError("broken"), AssertionError("x"), SystemExit(0)])
def test_a_third_partys_exception_becomes_an_error_of_ours_that_names_hook_and_cause(error: Exception) -> None:
    class Failing:
        @hookimpl
        def multus_report_status(self):
            raise error

    with pytest.raises(MultusError) as caught:
        manager.load([], {"failing": Failing()}).report_status(STATUSES, POD, CONFIG)
    assert caught.value.msg == f"a plugin failed in multus_report_status: {type(error).__name__}: {error}"
    assert (caught.value.code, caught.value.__cause__) == (999, error)


def test_a_third_partys_error_of_our_classes_passes_as_it_is() -> None:
    class Refusing:
        @hookimpl
        def multus_select_networks(self):
            raise ForbiddenError("not on my watch")

    with pytest.raises(ForbiddenError, match=r"^not on my watch$"):
        manager.load([], {"refusing": Refusing()}).select_networks(POD, CONFIG)


def test_an_interrupt_is_not_an_error() -> None:
    class Interrupted:
        @hookimpl
        def multus_select_networks(self):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        manager.load([], {"interrupted": Interrupted()}).select_networks(POD, CONFIG)


def test_a_built_ins_method_is_a_hook_by_its_name_alone() -> None:
    class Misspelt:
        def multus_report_weather(self, pod):
            """There is no such hook."""

    with pytest.raises(InvalidConfigError, match="multus_report_weather"):
        manager.load([Misspelt()], {"good": reporter("good", [])})


def test_built_ins_alone_need_no_pluggy() -> None:
    code = "import sys; from multus.hooks import manager; manager.hooks_for([]).select_networks(None, None); print('pluggy' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout == "False\n"
