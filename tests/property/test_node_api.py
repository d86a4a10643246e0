"""Bodies of the node socket: what is encoded comes back, and whatever a client sends is a request or an error of ours."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from multus.errors import DecodingError, MultusError
from multus.protocol import node_api
from multus.testing import strategies
from multus.types.daemon import InterfaceAttributes, NodeRequest

TEXT = strategies.any_text()
CNI_ARGS = st.none() | st.dictionaries(TEXT, strategies.json_values(), max_size=3)
ATTRIBUTES = st.builds(InterfaceAttributes, st.lists(TEXT, max_size=3).map(tuple), TEXT, CNI_ARGS)
REQUESTS = st.builds(NodeRequest, st.dictionaries(TEXT, TEXT, max_size=4), st.binary(max_size=200), st.none() | ATTRIBUTES, TEXT)
VARIABLES = st.sampled_from(
    ["CNI_COMMAND", "CNI_CONTAINERID", "CNI_NETNS", "CNI_IFNAME", "CNI_ARGS", "CNI_PATH", "CNI_NETNS_OVERRIDE", "CNI_X"]
)
COMMANDS = st.sampled_from(["ADD", "DEL", "CHECK", "GC", "STATUS", "VERSION"])
ANY_VALUE = strategies.json_values() | TEXT | st.dictionaries(TEXT, TEXT, max_size=2)
BODIES = st.fixed_dictionaries(
    {},
    optional={
        "env": ANY_VALUE | st.dictionaries(VARIABLES, TEXT),
        "config": ANY_VALUE,
        "interfaceAttributes": ANY_VALUE | st.fixed_dictionaries({}, optional={"ips": ANY_VALUE, "mac": ANY_VALUE, "cni-args": ANY_VALUE}),
        "network": ANY_VALUE,
    },
)


@given(REQUESTS)
def test_a_request_comes_back(request: NodeRequest) -> None:
    assert node_api.decode_request(node_api.encode_request(request)) == request


@given(BODIES.map(lambda members: json.dumps(members).encode()) | st.binary())
@example(b'{"config":"\\ud800"}')
@example(b'{"env":{"\\ud800":"\\u0000"},"config":"eA=="}')
def test_any_body_is_a_request_or_a_decoding_error(body: bytes) -> None:
    problem = ""
    try:
        node_api.decode_request(body)
    except DecodingError as exc:
        problem = exc.msg
    assert problem == "" or problem.startswith("request")


@given(st.dictionaries(VARIABLES, TEXT), st.none() | COMMANDS)
@example({"CNI_\ud800": "\0"}, "STATUS")
def test_any_environment_is_a_call_or_an_error_that_can_be_told(environ: dict[str, str], command: str | None) -> None:
    asked = environ if command is None else {**environ, "CNI_COMMAND": command}
    error: MultusError | None = None
    try:
        call = node_api.call_of(asked)
    except MultusError as exc:
        error = exc
    if error is None:
        assert call.command == asked["CNI_COMMAND"]
    else:
        assert error.code in (3, 4)
        assert node_api.encode_error(error, "1.1.0", is_our_shim=True).isascii()
