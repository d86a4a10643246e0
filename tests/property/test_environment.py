"""Any environment is a call or an error of ours, and a delegate is given what we were given."""

from __future__ import annotations

import os
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from multus.errors import MultusError
from multus.protocol import environment
from multus.testing import strategies
from multus.types.invocation import CNICommand, Invocation

VARIABLES = ("CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_NETNS_OVERRIDE")
FOR_CONTAINER = (CNICommand.ADD, CNICommand.DEL, CNICommand.CHECK)
VALUES = strategies.any_text() | st.sampled_from([*CNICommand, "a=b;c", ";;=", "/"])
REPLACED = st.dictionaries(st.sampled_from(VARIABLES), VALUES, max_size=3)


def outcome(function: Any, *arguments: object) -> Any:
    """What it answers, or its error of our classes; any other exception passes."""
    try:
        return function(*arguments)
    except MultusError as exc:
        return exc


@given(strategies.environments(), REPLACED)
@example({"CNI_COMMAND": "ADD", "CNI_CONTAINERID": "c", "CNI_NETNS": "n", "CNI_IFNAME": "\ud800", "CNI_PATH": "/"}, {})
def test_any_environment_is_a_call_or_an_error_that_names_a_variable(environ: dict[str, str], replaced: dict[str, str]) -> None:
    call = outcome(environment.parse_call, {**environ, **replaced})
    if isinstance(call, MultusError):
        assert call.msg.startswith("CNI_")
        assert call.code in (3, 4)
    else:
        names = [name for name in (call.container_id, call.ifname) if name]
        assert [name for name in names if "/" in name or b"\0" in os.fsencode(name)] == []


@given(strategies.environments())
def test_what_a_runtime_sends_is_understood(environ: dict[str, str]) -> None:
    call = environment.parse_call(environ)
    assert call.command == environ["CNI_COMMAND"]
    if call.command in FOR_CONTAINER:
        assert (call.container_id, call.netns, call.ifname) == tuple(environ[f"CNI_{name}"] for name in ("CONTAINERID", "NETNS", "IFNAME"))
        assert environment.format_generic_args(call.generic_args) == environ["CNI_ARGS"]
        assert f"K8S_POD_NAME={call.pod.name}" in environ["CNI_ARGS"].split(";")


@given(strategies.environments(FOR_CONTAINER))
def test_a_delegate_understands_its_environment_as_we_understood_ours(environ: dict[str, str]) -> None:
    call = environment.parse_call(environ)
    text = environment.format_generic_args(call.generic_args)
    invocation = Invocation(call.command, "bridge", {}, call.container_id, call.netns, call.ifname, text, call.path)
    made = environment.delegate_environment(invocation, environ)
    assert environment.parse_call(made) == call
    assert made.keys() == environ.keys()


@given(strategies.any_text() | st.text("K8S_POD_NAME=;IgnoreUnknown"), st.booleans())
def test_any_arguments_are_pairs_or_an_error_and_never_an_error_for_del(text: str, lenient: bool) -> None:
    found = outcome(lambda: environment.parse_generic_args(text, lenient=lenient))
    if isinstance(found, MultusError):
        assert (lenient, found.code) == (False, 4)
    else:
        again = environment.parse_generic_args(environment.format_generic_args(found[0]), lenient=True)
        assert again == found


@given(strategies.any_text())
def test_an_interface_name_without_a_problem_is_one_that_the_kernel_can_be_given(name: str) -> None:
    if not environment.ifname_problem(name):
        assert 0 < len(os.fsencode(name)) <= 15
        assert not {"/", ":", "\0"} & set(name)


@given(strategies.interface_names(), strategies.container_ids())
def test_valid_names_have_no_problem(ifname: str, container_id: str) -> None:
    assert (environment.ifname_problem(ifname), environment.is_identifier(container_id)) == ("", True)
