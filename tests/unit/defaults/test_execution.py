"""How a delegate runs: who is asked, what its answers become, and three ways to swap it without touching the core."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest

from multus.adapters.process import Processes
from multus.core import attach
from multus.defaults.execution import BinaryExecution, InProcessExecution
from multus.defaults.merging import ClusterNetworkResult
from multus.errors import DecodingError, DelegateError, DelegateNotFoundError, NotAvailableError, TryAgainLaterError, UnsupportedFieldError
from multus.hooks import manager, manifest
from multus.hooks.delegates import InProcessDelegate, previous_result
from multus.hooks.spec import hookimpl
from multus.protocol import conflists
from multus.testing.fakes import FakeGuard, FakePrograms, FakeRegistry, RecordingLog
from multus.testing.world import World
from multus.types.config import MultusConfig
from multus.types.delegate import Delegate
from multus.types.invocation import CNICommand, Completed, Invocation, Outcome
from multus.types.result import Result

if TYPE_CHECKING:
    from pathlib import Path

    from multus.core.context import Context

BINARY_FIRST = MultusConfig("meta-net")
IN_PROCESS_FIRST = MultusConfig("meta-net", delegate_preference="in-process")
DELEGATE = Delegate("lan-a", conflists.parse({"name": "lan-a", "type": "fake-a"}, where="x"))
ADDRESS = {"cniVersion": "1.0.0", "ips": [{"address": "192.0.2.9/24"}]}


def invocation(command: str = "ADD", **config: object) -> Invocation:
    document = {"cniVersion": "1.0.0", "name": "lan-a", "type": "fake-a", **config}
    return Invocation(CNICommand(command), "fake-a", document, "c1", "/run/netns/t1", "net1", "A=1", ("/bin-a", "/bin-b"))


class Recording:
    """An in-process delegate that notes its calls."""

    def __init__(self, answer: object = None, accepted: bool = True) -> None:
        self.answer = Result(ADDRESS) if answer is None else answer
        self.accepted = accepted
        self.calls: list[tuple[str, Invocation]] = []

    def accepts(self, invocation: Invocation) -> bool:
        return self.accepted

    def add(self, invocation: Invocation) -> Any:
        self.calls.append(("add", invocation))
        if isinstance(self.answer, BaseException):
            raise self.answer
        return self.answer

    def __getattr__(self, name: str) -> Any:
        if name not in ("delete", "check", "gc", "status"):
            raise AttributeError(name)
        return lambda invocation: self.calls.append((name, invocation))


def binary(*answers: Any, command: str = "ADD") -> tuple[BinaryExecution, FakePrograms]:
    programs = FakePrograms("fake-a")
    if answers:
        programs.answer("fake-a", command, *answers)
    return BinaryExecution(programs, {"HOME": "/root", "CNI_COMMAND": "DEL"}), programs


def failure(completed: Completed) -> DelegateError:
    execution, _ = binary(completed)
    with pytest.raises(DelegateError) as caught:
        execution.multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)
    return caught.value


# --- Binaries ---


def test_invoke_delegate_runs_the_binary_with_parameters_and_configuration() -> None:
    execution, programs = binary(ADDRESS)
    outcome = execution.multus_invoke_delegate(invocation(vni=2**70), DELEGATE, BINARY_FIRST)
    assert outcome == Outcome(Result(ADDRESS), runner="binary")
    (call,) = programs.made
    assert call.config == invocation(vni=2**70).config
    assert call.environment == {
        "HOME": "/root",
        "CNI_COMMAND": "ADD",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/run/netns/t1",
        "CNI_IFNAME": "net1",
        "CNI_ARGS": "A=1",
        "CNI_PATH": "/bin-a:/bin-b",
    }


def test_invoke_delegate_leaves_a_type_without_a_binary_to_others() -> None:
    assert BinaryExecution(FakePrograms(), {}).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST) is None


@pytest.mark.parametrize("command", ["DEL", "CHECK", "GC", "STATUS"])
def test_invoke_delegate_takes_no_result_of_another_verb_than_add(command: str) -> None:
    execution, _ = binary(Completed(0, b"whatever", b""), command=command)
    assert execution.multus_invoke_delegate(invocation(command), DELEGATE, BINARY_FIRST) == Outcome()


def test_a_result_without_a_version_is_of_the_requests_version() -> None:
    execution, _ = binary({"ips": [{"address": "192.0.2.9/24"}]})
    outcome = execution.multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)
    assert outcome is not None
    assert outcome.result == Result({**ADDRESS, "cniVersion": "1.0.0"})


def test_what_a_delegate_says_on_standard_error_is_passed_on_also_when_it_succeeds() -> None:
    execution, programs = binary(Completed(0, json.dumps(ADDRESS).encode(), b"a hint"))
    execution.multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)
    assert programs.forwarded == [b"a hint"]


def test_an_error_object_without_a_message_keeps_its_code() -> None:
    error = failure(Completed(1, b'{"code": 7}', b""))
    assert (error.msg, error.code) == ("it failed with code 7 and said nothing", 7)


def test_only_a_delegate_that_ended_orderly_has_answered() -> None:
    """What is killed, or succeeds with garbage, may have attached the pod."""
    assert failure(Completed(1, b"", b"no master")).is_answer
    assert not failure(Completed(-9, b"", b"")).is_answer


def test_a_delegates_own_error_keeps_code_message_and_details() -> None:
    error = failure(Completed(1, b'{"code": 77, "msg": "link busy", "details": "in pool"}', b""))
    assert (error.code, error.msg, error.details) == (77, "link busy", "in pool")


@pytest.mark.parametrize(
    ("completed", "message"),
    [
        (Completed(2, b"", b""), "it failed with exit status 2 and said nothing"),
        (Completed(-9, b"", b" killed \n"), "it failed with signal 9: killed"),
        (Completed(1, b"oops\xff", b""), "it failed with exit status 1: oops\ufffd"),
        (Completed(1, b"oops", b"on stderr"), "it failed with exit status 1: on stderr"),
        (Completed(1, b'{"code": "7", "msg": "x"}', b""), 'it failed with exit status 1: {"code": "7", "msg": "x"}'),
        (Completed(1, b"[]", b""), "it failed with exit status 1: []"),
        (Completed(1, b'{"code": 0, "msg": "x"}', b""), "x"),
        (Completed(1, b"", b"a" * 1000), "it failed with exit status 1: " + "a" * 500),
    ],
)
def test_a_failure_without_an_error_object_tells_how_it_ended_and_what_it_said(completed: Completed, message: str) -> None:
    error = failure(completed)
    assert (error.msg, error.code) == (message, 999)


@pytest.mark.parametrize(
    ("stdout", "message"),
    [
        (b"", "it answered '', and its result is not JSON: Expecting value at line 1 column 1"),
        (b"hello", "it answered 'hello', and its result is not JSON: Expecting value at line 1 column 1"),
        (b"[]", "it answered '[]', and $ "),
        (b'{"ips":[{"address":"x"}]}', 'it answered \'{"ips":[{"address":"x"}]}\', and $.ips[0].address'),
    ],
)
def test_a_success_that_is_no_result_is_the_delegates_failure(stdout: bytes, message: str) -> None:
    assert failure(Completed(0, stdout, b"")).msg.startswith(message)


# --- Objects ---


def in_process(found: object, *types: str) -> InProcessExecution:
    return InProcessExecution(FakeRegistry({"fake-a": found}), FakePrograms(*types), FakeGuard, RecordingLog())


def test_invoke_delegate_calls_the_object_where_no_binary_has_the_name() -> None:
    found = Recording()
    assert in_process(found).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST) == Outcome(Result(ADDRESS), runner="in-process")
    assert found.calls == [("add", invocation())]


def test_invoke_delegate_prefers_the_binary_unless_told_otherwise() -> None:
    found = Recording()
    execution = in_process(found, "fake-a")
    assert execution.multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST) is None
    assert execution.multus_invoke_delegate(invocation(), DELEGATE, IN_PROCESS_FIRST) == Outcome(Result(ADDRESS), runner="in-process")


@pytest.mark.parametrize("command", ["CHECK", "DEL"])
def test_invoke_delegate_goes_by_the_preference_that_the_network_was_attached_with(command: str) -> None:
    execution = in_process(Recording(), "fake-a")
    by_binary, in_our_process = (DELEGATE._replace(preference=each) for each in ("binary", "in-process"))
    assert execution.multus_invoke_delegate(invocation(command), by_binary, IN_PROCESS_FIRST) is None
    assert execution.multus_invoke_delegate(invocation(command), in_our_process, BINARY_FIRST) == Outcome()


def test_invoke_delegate_leaves_it_to_the_binary_when_the_object_declines() -> None:
    found = Recording(accepted=False)
    assert in_process(found, "fake-a").multus_invoke_delegate(invocation(), DELEGATE, IN_PROCESS_FIRST) is None
    assert found.calls == []


def test_invoke_delegate_leaves_a_type_without_an_object_to_others() -> None:
    execution = InProcessExecution(FakeRegistry(), FakePrograms(), FakeGuard, RecordingLog())
    assert execution.multus_invoke_delegate(invocation(), DELEGATE, IN_PROCESS_FIRST) is None


@pytest.mark.parametrize(("command", "method"), [("DEL", "delete"), ("CHECK", "check"), ("GC", "gc"), ("STATUS", "status")])
def test_invoke_delegate_calls_the_method_of_the_verb(command: str, method: str) -> None:
    found = Recording()
    assert in_process(found).multus_invoke_delegate(invocation(command), DELEGATE, BINARY_FIRST) == Outcome()
    assert found.calls == [(method, invocation(command))]


class Releasing(Recording):
    """One that leaves its links."""

    def release(self, invocation: Invocation) -> Any:
        self.calls.append(("release", invocation))
        if isinstance(self.answer, Exception):
            raise self.answer
        return self.answer


def test_del_of_an_object_with_release_names_the_links_that_are_left() -> None:
    found = Releasing(["net1", "net1.5"])
    assert in_process(found).multus_invoke_delegate(invocation("DEL"), DELEGATE, BINARY_FIRST) == Outcome(links=("net1", "net1.5"))
    assert found.calls == [("release", invocation("DEL"))]


@pytest.mark.parametrize("answer", [TryAgainLaterError("busy"), RuntimeError("broken"), 5])
def test_a_release_that_fails_in_any_way_is_followed_by_the_whole_del(answer: object) -> None:
    found = Releasing(answer)
    assert in_process(found).multus_invoke_delegate(invocation("DEL"), DELEGATE, BINARY_FIRST) == Outcome()
    assert found.calls == [("release", invocation("DEL")), ("delete", invocation("DEL"))]


def test_an_objects_error_of_our_classes_passes_as_it_is() -> None:
    with pytest.raises(NotAvailableError, match=r"^full$"):
        in_process(Recording(NotAvailableError("full"))).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)


@pytest.mark.parametrize("answer", [RuntimeError("broken"), KeyError("mtu")])
def test_any_other_exception_of_an_object_is_the_delegates_failure(answer: Exception) -> None:
    with pytest.raises(DelegateError) as caught:
        in_process(Recording(answer)).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)
    assert (caught.value.msg, caught.value.__cause__) == (f"the in-process delegate failed: {type(answer).__name__}: {answer}", answer)


@pytest.mark.parametrize("answer", [SystemExit(3), KeyboardInterrupt(), GeneratorExit("x"), RecursionError("deep"), MemoryError()])
def test_nothing_that_an_object_raises_gets_any_further(answer: BaseException) -> None:
    """In the daemon it would end a worker, and in the thin plugin the process without an answer."""
    with pytest.raises(DelegateError, match=f"^the in-process delegate failed: {type(answer).__name__}: ") as caught:
        in_process(Recording(answer)).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)
    assert (caught.value.code, caught.value.is_answer) == (999, False)


def test_an_object_may_leave_out_what_is_optional() -> None:
    class Small:
        def add(self, invocation: Invocation) -> Result:
            return Result(ADDRESS)

        def delete(self, invocation: Invocation) -> None: ...

    execution = in_process(Small())
    assert execution.multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST) == Outcome(Result(ADDRESS), runner="in-process")
    for command in ("DEL", "GC", "STATUS"):
        assert execution.multus_invoke_delegate(invocation(command), DELEGATE, BINARY_FIRST) == Outcome()
    with pytest.raises(DelegateError, match=r"^the in-process delegate has no method 'check'$"):
        execution.multus_invoke_delegate(invocation("CHECK"), DELEGATE, BINARY_FIRST)


def test_an_object_that_derives_from_the_interface_is_asked_for_three_methods_alone() -> None:
    class Unfinished(InProcessDelegate):
        def add(self, invocation: Invocation) -> Result:
            return Result(ADDRESS)

    class Finished(Unfinished):
        def delete(self, invocation: Invocation) -> None: ...

        def check(self, invocation: Invocation) -> None: ...

    with pytest.raises(TypeError, match="check"):
        Unfinished()  # type: ignore[abstract]
    for command in ("ADD", "DEL", "CHECK", "GC", "STATUS"):
        assert in_process(Finished()).multus_invoke_delegate(invocation(command), DELEGATE, BINARY_FIRST) is not None


@pytest.mark.parametrize(
    ("answer", "message"),
    [
        ("no result", "answered ADD with str, not with a Result"),
        ({"ips": []}, "answered ADD with dict, not with a Result"),
        (Result("x"), "answered a result that is not valid: $ is 'x', not an object"),  # type: ignore[arg-type]
        (Result({"ips": [{"address": "x"}]}), "answered a result that is not valid: $.ips[0].address"),
        (Result({"cniVersion": "9.9.9"}), "answered a result that is not valid: $.cniVersion"),
    ],
)
def test_an_object_that_answers_no_result_is_the_delegates_failure(answer: object, message: str) -> None:
    with pytest.raises(DelegateError) as caught:
        in_process(Recording(answer)).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)
    assert caught.value.msg.startswith(f"the in-process delegate {message}")


def test_a_result_of_another_version_is_converted_to_the_configurations() -> None:
    document = {"cniVersion": "1.1.0", "interfaces": [{"name": "net1", "mtu": 9000}], "ips": [{"address": "192.0.2.9/24"}]}
    outcome = in_process(Recording(Result(document))).multus_invoke_delegate(invocation(cniVersion="0.4.0"), DELEGATE, BINARY_FIRST)
    assert outcome is not None
    assert outcome.result == Result(
        {"cniVersion": "0.4.0", "interfaces": [{"name": "net1"}], "ips": [{"version": "4", "address": "192.0.2.9/24"}], "dns": {}}
    )


def test_a_declined_configuration_is_logged_once_with_its_name() -> None:
    found, log = Recording(accepted=False), RecordingLog()
    execution = InProcessExecution(FakeRegistry({"fake-a": found}), FakePrograms("fake-a"), FakeGuard, log)
    for config in ({}, {}, {"name": "lan-b"}):
        for command in ("ADD", "DEL"):
            assert execution.multus_invoke_delegate(invocation(command, **config), DELEGATE, IN_PROCESS_FIRST) is None
    reason = "it does not serve this configuration"
    told = {"plugin": "fake-a", "reason": reason, "then": "the binary serves it"}
    assert log.lines == [("warning", "delegate.declined", {**told, "network": name}) for name in ("lan-a", "lan-b")]


def test_an_object_may_say_why_it_declines() -> None:
    class Picky(Recording):
        def accepts(self, invocation: Invocation) -> bool:
            raise UnsupportedFieldError("key ipMasq true is not served")

    log = RecordingLog()
    execution = InProcessExecution(FakeRegistry({"fake-a": Picky()}), FakePrograms("fake-a"), FakeGuard, log)
    assert execution.multus_invoke_delegate(invocation(), DELEGATE, IN_PROCESS_FIRST) is None
    assert [fields["reason"] for _, _, fields in log.lines] == ["key ipMasq true is not served"]
    with pytest.raises(DelegateNotFoundError) as caught:
        in_process(Picky()).multus_invoke_delegate(invocation(), DELEGATE, IN_PROCESS_FIRST)
    message = "the in-process delegate 'fake-a' declines network 'lan-a': key ipMasq true is not served, and there is no binary"
    assert caught.value.msg == message


def test_accepts_that_fails_is_the_delegates_failure() -> None:
    class Broken(Recording):
        def accepts(self, invocation: Invocation) -> bool:
            raise SystemExit("no")

    with pytest.raises(DelegateError, match="failed: SystemExit: no"):
        in_process(Broken()).multus_invoke_delegate(invocation(), DELEGATE, BINARY_FIRST)


def test_previous_result_is_read_whatever_its_version() -> None:
    assert previous_result(invocation()) is None
    old = {"cniVersion": "0.2.0", "ip4": {"ip": "192.0.2.9/24"}}
    view = previous_result(invocation("CHECK", cniVersion="0.2.0", prevResult=old))
    assert view is not None
    assert [ip.address for ip in view.ips] == ["192.0.2.9/24"]
    with pytest.raises(DecodingError):
        previous_result(invocation("CHECK", prevResult={"ips": [{"address": "x"}]}))


# --- Execution is swapped from outside ---

SCRIPT = """#!/bin/sh
cat >/dev/null
printf '{"cniVersion":"1.0.0","interfaces":[{"name":"%s"}],"ips":[{"address":"192.0.2.1/24"}]}' "$CNI_IFNAME"
"""


def add(context: Context) -> Result:
    return attach.add(context).result


def test_execution_is_swapped_three_ways_with_the_core_untouched(tmp_path: Path) -> None:
    """The same ``core.attach.add`` with a CNI binary, a Python object found by its entry point, and a hook plugin."""
    script = tmp_path / "trunk-plugin"
    script.write_text(SCRIPT)
    script.chmod(0o755)
    compiled = tmp_path / "plugins.json"
    compiled.write_text(json.dumps({"multus": {}, "multus.delegates": {"passthru": "multus_passthru.delegate:Passthru"}}))
    registry = manifest.Registry(str(compiled))

    class Invented:
        @hookimpl
        def multus_invoke_delegate(self, invocation):
            return Outcome(Result({"cniVersion": "1.0.0", "ips": [{"address": "203.0.113.1/24"}]}))

    def context(delegate_type: str, plugins: dict[str, object]) -> Context:
        programs = Processes()
        in_process = InProcessExecution(registry, programs, FakeGuard, RecordingLog())
        builtins = (in_process, BinaryExecution(programs, os.environ), ClusterNetworkResult())
        delegate = {"cniVersion": "1.0.0", "name": "trunk", "type": delegate_type}
        config: dict[str, object] = {"cniVersion": "1.0.0", "binDir": str(tmp_path), "delegates": [delegate]}
        if delegate_type == "passthru":
            config["prevResult"] = {"cniVersion": "1.0.0", "ips": [{"address": "198.51.100.1/24"}]}
        made = World(has_kube=False).context(config=config, path=())
        return made._replace(hooks=manager.load(builtins, plugins) if plugins else manager.hooks_for(builtins))

    found = [
        add(context("trunk-plugin", {})).document,
        add(context("passthru", {})).document,
        add(context("no-such-type", {"invented": Invented()})).document,
    ]
    assert found == [
        {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}], "ips": [{"address": "192.0.2.1/24"}]},
        {"cniVersion": "1.0.0", "ips": [{"address": "198.51.100.1/24"}]},
        {"cniVersion": "1.0.0", "ips": [{"address": "203.0.113.1/24"}]},
    ]
