"""The CNI environment, from a runtime and for a delegate."""

from __future__ import annotations

import pytest

from multus.errors import InvalidEnvironmentError, UnknownContainerError
from multus.protocol import environment
from multus.types.invocation import Call, CNICommand, Invocation, PodArgs

POD_ARGS = (
    ("IgnoreUnknown", "1"),
    ("K8S_POD_NAMESPACE", "team-kestrel"),
    ("K8S_POD_NAME", "lantern-0"),
    ("K8S_POD_INFRA_CONTAINER_ID", "c0ffee01"),
    ("K8S_POD_UID", "7b1c2d30"),
)
POD = PodArgs("team-kestrel", "lantern-0", "7b1c2d30", "c0ffee01")


def environ(command: str = "ADD", **changes: str | None) -> dict[str, str]:
    """A runtime's environment; a change to None takes the variable out."""
    variables: dict[str, str | None] = {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "c0ffee01",
        "CNI_NETNS": "/run/netns/t1",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin:/usr/lib/cni",
        "CNI_ARGS": ";".join(f"{key}={value}" for key, value in POD_ARGS),
        **changes,
    }
    return {name: value for name, value in variables.items() if value is not None}


def test_a_call_holds_the_attachment_parameters_and_the_pod() -> None:
    assert environment.parse_call(environ()) == Call(
        CNICommand.ADD, "c0ffee01", "/run/netns/t1", "eth0", POD_ARGS, ("/opt/cni/bin", "/usr/lib/cni"), POD
    )


def test_del_needs_no_namespace() -> None:
    assert environment.parse_call(environ("DEL", CNI_NETNS=None)).netns == ""


@pytest.mark.parametrize("command", ["GC", "STATUS"])
def test_a_call_for_no_container_has_no_attachment_parameters(command: str) -> None:
    assert environment.parse_call(environ(command)) == Call(CNICommand(command), path=("/opt/cni/bin", "/usr/lib/cni"))


def test_version_needs_nothing() -> None:
    assert environment.parse_call({"CNI_COMMAND": "VERSION"}) == Call(CNICommand.VERSION)


@pytest.mark.parametrize("command", ["", "add", "FLY", "__class__"])
def test_an_unknown_command_is_refused_and_named(command: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match=f"CNI_COMMAND '{command}' is unknown, one of ADD, DEL, CHECK, GC, STATUS, VERSION"):
        environment.parse_call({"CNI_COMMAND": command})


@pytest.mark.parametrize(
    ("command", "needed"),
    [
        ("ADD", "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_PATH"),
        ("CHECK", "CNI_CONTAINERID, CNI_NETNS, CNI_IFNAME, CNI_PATH"),
        ("DEL", "CNI_CONTAINERID, CNI_IFNAME, CNI_PATH"),
        ("GC", "CNI_PATH"),
        ("STATUS", "CNI_PATH"),
    ],
)
def test_every_missing_variable_is_named(command: str, needed: str) -> None:
    with pytest.raises(InvalidEnvironmentError) as caught:
        environment.parse_call({"CNI_COMMAND": command})
    assert (caught.value.msg, caught.value.code) == (f"{needed} missing from the environment of {command}", 4)


def test_an_empty_variable_is_a_missing_one() -> None:
    with pytest.raises(InvalidEnvironmentError, match=r"^CNI_NETNS missing from the environment of ADD$"):
        environment.parse_call(environ(CNI_NETNS=""))


def test_an_empty_container_id_is_an_unknown_container() -> None:
    with pytest.raises(UnknownContainerError):
        environment.parse_call(environ("DEL", CNI_CONTAINERID=""))


@pytest.mark.parametrize("container_id", ["../x", "-a", "a b", "é", "a/b", "."])
def test_a_container_id_is_checked_before_it_can_become_a_path(container_id: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match=r"CNI_CONTAINERID .* is invalid: letters, digits"):
        environment.parse_call(environ(CNI_CONTAINERID=container_id))


def test_an_invalid_interface_name_is_refused_and_named() -> None:
    with pytest.raises(InvalidEnvironmentError, match="CNI_IFNAME 'a/b' is invalid: has '/'"):
        environment.parse_call(environ(CNI_IFNAME="a/b"))


@pytest.mark.parametrize(("value", "override"), [("true", True), ("TRUE", True), ("1", True), ("0", False), ("yes", False), (None, False)])
def test_the_own_namespace_may_be_allowed(value: str | None, override: bool) -> None:
    assert environment.parse_call(environ(CNI_NETNS_OVERRIDE=value)).netns_override is override


def test_empty_elements_of_the_path_are_dropped_because_they_would_mean_the_working_folder() -> None:
    assert environment.parse_call(environ(CNI_PATH=":/a::/b:")).path == ("/a", "/b")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("K8S_POD_NAME", "CNI_ARGS part 'K8S_POD_NAME' is no KEY=VALUE"),
        ("=x", "CNI_ARGS part '=x' is no KEY=VALUE"),
        ("FOO=1;BAR=2", "CNI_ARGS has unknown keys 'FOO', 'BAR' and no IgnoreUnknown=true"),
        ("IgnoreUnknown=0;FOO=1", "CNI_ARGS has unknown keys 'FOO' and no IgnoreUnknown=true"),
        ("IgnoreUnknown=maybe", "CNI_ARGS IgnoreUnknown 'maybe' is invalid, true or false is expected"),
    ],
)
def test_arguments_that_cannot_be_understood_are_refused_and_named(text: str, message: str) -> None:
    with pytest.raises(InvalidEnvironmentError) as caught:
        environment.parse_generic_args(text)
    assert caught.value.msg == message


@pytest.mark.parametrize("text", ["K8S_POD_NAME=p;junk;=x;FOO=1", "K8S_POD_NAME=p;IgnoreUnknown=maybe;FOO=1"])
def test_del_is_never_blocked_by_arguments(text: str) -> None:
    assert environment.parse_call(environ("DEL", CNI_ARGS=text)).pod == PodArgs(name="p")


def test_arguments_are_pairs_in_order_and_the_later_duplicate_names_the_pod() -> None:
    pairs, pod = environment.parse_generic_args("K8S_POD_NAME=a;MAC=x;IP=y;;K8S_POD_NAME=b=c")
    assert (pairs, pod.name) == ((("K8S_POD_NAME", "a"), ("MAC", "x"), ("IP", "y"), ("K8S_POD_NAME", "b=c")), "b=c")


def test_no_arguments_are_no_pairs() -> None:
    assert environment.parse_generic_args("") == ((), PodArgs())


def test_the_last_ignore_unknown_counts() -> None:
    with pytest.raises(InvalidEnvironmentError, match="FOO"):
        environment.parse_generic_args("IgnoreUnknown=1;FOO=1;IgnoreUnknown=false")


def test_arguments_are_written_as_they_are_read() -> None:
    assert environment.parse_generic_args(environment.format_generic_args(POD_ARGS)) == (POD_ARGS, POD)


def test_a_delegate_inherits_the_environment_with_its_own_parameters() -> None:
    invocation = Invocation(CNICommand.CHECK, "bridge", {}, "c1", "/run/netns/t1", "net1", "A=1", ("/a", "/b"))
    assert environment.delegate_environment(invocation, {"HOME": "/root", "CNI_IFNAME": "eth0", "CNI_ARGS": "B=2"}) == {
        "HOME": "/root",
        "CNI_COMMAND": "CHECK",
        "CNI_CONTAINERID": "c1",
        "CNI_NETNS": "/run/netns/t1",
        "CNI_IFNAME": "net1",
        "CNI_ARGS": "A=1",
        "CNI_PATH": "/a:/b",
    }


def test_gc_sets_the_attachment_parameters_empty() -> None:
    made = environment.delegate_environment(Invocation(CNICommand.GC, "bridge", {}, path=("/a",)), {"CNI_CONTAINERID": "c1"})
    assert made == {"CNI_COMMAND": "GC", "CNI_CONTAINERID": "", "CNI_NETNS": "", "CNI_IFNAME": "", "CNI_ARGS": "", "CNI_PATH": "/a"}


def test_a_list_in_a_variable_has_no_blanks_and_no_empty_items() -> None:
    assert environment.split_list(" a, b ,,c,") == ("a", "b", "c")


@pytest.mark.parametrize(("text", "fits"), [("a", True), ("9_.-A", True), ("", False), (".a", False), ("_a", False), ("a²", False)])
def test_an_identifier_begins_with_a_letter_or_digit(text: str, fits: bool) -> None:
    assert environment.is_identifier(text) is fits


@pytest.mark.parametrize(
    ("name", "problem"),
    [
        ("eth0", ""),
        ("a" * 15, ""),
        ("caf\u00e9", ""),
        ("\udc80", ""),
        ("", "empty"),
        ("a" * 16, "longer than 15 bytes"),
        ("\u00e9" * 8, "longer than 15 bytes"),
        (".", "a folder's name"),
        ("..", "a folder's name"),
        ("a/b", "has '/', ':' or NUL"),
        ("a:1", "has '/', ':' or NUL"),
        ("a\0", "has '/', ':' or NUL"),
        ("a b", "has white space"),
        ("a\u2003", "has white space"),
        ("a\ud800", "has half a character"),
    ],
)
def test_an_interface_name_is_one_that_linux_takes(name: str, problem: str) -> None:
    assert environment.ifname_problem(name) == problem
