"""Bodies of the node socket: the reference's byte for byte, and what else a client may send."""

from __future__ import annotations

import base64
import json
from typing import Any

import pytest

from multus.errors import DecodingError, DelegateError, InvalidEnvironmentError, MultusError, UnknownContainerError
from multus.protocol import node_api, results
from multus.types.daemon import InterfaceAttributes, NodeRequest
from multus.types.invocation import Call, CNICommand, PodArgs

ADD_BODY = (
    b'{"env":{"CNI_ARGS":"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=77aa;K8S_POD_UID=5d3c",'
    b'"CNI_COMMAND":"ADD","CNI_CONTAINERID":"77aa","CNI_IFNAME":"eth0","CNI_NETNS":"/var/run/netns/cni-77","CNI_PATH":"/opt/cni/bin"},'
    b'"config":"eyJjbmlWZXJzaW9uIjoiMS4wLjAiLCJuYW1lIjoibXVsdHVzLWNuaS1uZXR3b3JrIiwidHlwZSI6Im11bHR1cy1zaGltIn0="}'
)
ADD_ENV = {
    "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_INFRA_CONTAINER_ID=77aa;K8S_POD_UID=5d3c",
    "CNI_COMMAND": "ADD",
    "CNI_CONTAINERID": "77aa",
    "CNI_IFNAME": "eth0",
    "CNI_NETNS": "/var/run/netns/cni-77",
    "CNI_PATH": "/opt/cni/bin",
}
BLUE = b'{"cniVersion":"1.0.0","name":"blue","type":"macvlan","master":"eth1"}'
PLUG_BODY = (
    b'{"env":{"CNI_ARGS":"K8S_POD_NAMESPACE=shop;K8S_POD_NAME=cart-0;K8S_POD_UID=5d3c","CNI_COMMAND":"ADD",'
    b'"CNI_CONTAINERID":"77aa","CNI_IFNAME":"net5","CNI_NETNS":"/var/run/netns/cni-77"},"config":"' + base64.b64encode(BLUE) + b'",'
    b'"interfaceAttributes":{"ips":["10.9.0.5/24"],"mac":"02:00:00:00:09:05","cni-args":null}}'
)
INTERFACE = {"name": "eth0", "mac": "02:00:0a:01:02:03", "sandbox": "/var/run/netns/cni-77"}
ADDRESS = {"address": "10.1.2.3/24", "gateway": "10.1.2.1", "interface": 0}
RESULT_BODY = (
    b'{"Result":{"cniVersion":"1.1.0","interfaces":[{"mac":"02:00:0a:01:02:03","name":"eth0","sandbox":"/var/run/netns/cni-77"}],'
    b'"ips":[{"address":"10.1.2.3/24","gateway":"10.1.2.1","interface":0}]}}'
)


def body(**members: object) -> bytes:
    return json.dumps(members).encode()


def problem(content: bytes) -> str:
    with pytest.raises(DecodingError) as caught:
        node_api.decode_request(content)
    return caught.value.msg


# --- Requests ---


def test_the_body_of_an_add_is_the_references_in_both_directions() -> None:
    expected = NodeRequest(ADD_ENV, b'{"cniVersion":"1.0.0","name":"multus-cni-network","type":"multus-shim"}')
    assert node_api.decode_request(ADD_BODY) == expected
    assert node_api.encode_request(expected) == ADD_BODY


def test_the_body_of_a_hot_plug_is_the_references_in_both_directions() -> None:
    request = node_api.decode_request(PLUG_BODY)
    assert (request.config, request.attributes) == (BLUE, InterfaceAttributes(("10.9.0.5/24",), "02:00:00:00:09:05", None))
    assert node_api.encode_request(request) == PLUG_BODY


def test_the_environment_is_written_by_name() -> None:
    assert node_api.encode_request(NodeRequest({"b": "2", "a": "1"}, b"")) == b'{"env":{"a":"1","b":"2"}}'


def test_empty_attributes_are_written_as_the_reference_does_it() -> None:
    assert node_api.encode_request(NodeRequest({}, b"", InterfaceAttributes())) == b'{"interfaceAttributes":{"cni-args":null}}'


def test_the_network_of_a_hot_plug_is_a_member_of_its_own() -> None:
    request = NodeRequest({}, b"x", None, "shop/blue")
    assert node_api.encode_request(request) == b'{"config":"eA==","network":"shop/blue"}'
    assert node_api.decode_request(node_api.encode_request(request)) == request


@pytest.mark.parametrize(
    "content",
    [
        b"{}",
        body(env=None, config=None, interfaceAttributes=None, network=None),
        body(env={}, config="", more=[1], Another=None),
    ],
)
def test_members_may_be_missing_null_or_unknown(content: bytes) -> None:
    assert node_api.decode_request(content) == NodeRequest({}, b"")


def test_members_match_in_any_case_and_order() -> None:
    attributes = {"CNI-Args": {"a": 1}, "MAC": "02:00:00:00:00:01", "Ips": None}
    content = body(INTERFACEATTRIBUTES=attributes, Config="eA==", ENV={"a": "b"}, Network="n")
    expected = NodeRequest({"a": "b"}, b"x", InterfaceAttributes((), "02:00:00:00:00:01", {"a": 1}), "n")
    assert node_api.decode_request(content) == expected


def test_a_variable_that_is_null_is_empty() -> None:
    assert node_api.decode_request(body(env={"CNI_NETNS": None})).env == {"CNI_NETNS": ""}


def test_bytes_of_the_environment_that_are_no_text_come_through() -> None:
    assert node_api.decode_request(b'{"env":{"HOME":"\\udcff"}}').env == {"HOME": "\udcff"}


def test_blanks_within_base64_are_passed_over() -> None:
    encoded = base64.b64encode(BLUE).decode()
    assert node_api.decode_request(body(config=f" {encoded[:10]}\r\n{encoded[10:20]}\t{encoded[20:]}\n")).config == BLUE


@pytest.mark.parametrize("encoded", ["e", "eA", "eA=", "e_-=", "eA==eA==", "===", "eA==\0", "é", "\ud800"])
def test_what_is_not_base64_is_an_error_that_names_the_key(encoded: str) -> None:
    assert problem(body(config=encoded)).startswith('request: key "config" is not Base64: ')


@pytest.mark.parametrize(
    ("content", "expected"),
    [
        (b"", "request is not JSON: Expecting value at line 1 column 1"),
        (b"null", "request is null, an object is expected"),
        (b"[]", "request is a list, an object is expected"),
        (body(env=[]), 'request: key "env" is a list, an object is expected'),
        (body(env={"A": 1}), 'request: key "env" is no object of strings'),
        (body(config={}), 'request: key "config" is an object, a string is expected'),
        (body(network=1), 'request: key "network" is a number, a string is expected'),
        (body(interfaceAttributes=""), 'request: key "interfaceAttributes" is a string, an object is expected'),
        (body(interfaceAttributes={"ips": "10.0.0.1"}), 'request: key "interfaceAttributes.ips" is no list of strings'),
        (body(interfaceAttributes={"ips": [None]}), 'request: key "interfaceAttributes.ips" is no list of strings'),
        (body(interfaceAttributes={"mac": 1}), 'request: key "interfaceAttributes.mac" is a number, a string is expected'),
        (body(interfaceAttributes={"cni-args": []}), 'request: key "interfaceAttributes.cni-args" is a list, an object is expected'),
    ],
)
def test_a_member_of_the_wrong_kind_is_an_error_that_names_it(content: bytes, expected: str) -> None:
    assert problem(content) == expected


# --- Calls ---


def test_the_call_of_an_add_is_its_environment() -> None:
    pairs = tuple(tuple(part.split("=")) for part in ADD_ENV["CNI_ARGS"].split(";"))
    pod = PodArgs("shop", "cart-0", "5d3c", "77aa")
    expected = Call(CNICommand.ADD, "77aa", "/var/run/netns/cni-77", "eth0", pairs, ("/opt/cni/bin",), pod)  # type: ignore[arg-type]
    assert node_api.call_of(ADD_ENV) == expected


def without(*names: str, **more: str) -> dict[str, str]:
    return {**{name: value for name, value in ADD_ENV.items() if name not in names}, **more}


def test_the_interface_is_eth0_and_the_search_path_the_daemons_unless_told() -> None:
    call = node_api.call_of(without("CNI_IFNAME", "CNI_PATH"))
    assert (call.ifname, call.path) == ("eth0", ())


@pytest.mark.parametrize(
    ("missing", "command"),
    [
        ("CNI_COMMAND", ""),
        ("CNI_CONTAINERID", "ADD"),
        ("CNI_CONTAINERID", "DEL"),
        ("CNI_NETNS", "ADD"),
        ("CNI_NETNS", "CHECK"),
        ("CNI_ARGS", "ADD"),
        ("CNI_ARGS", "CHECK"),
    ],
)
def test_a_variable_that_is_missing_is_named(missing: str, command: str) -> None:
    environ = without(missing, "CNI_COMMAND", **({"CNI_COMMAND": command} if command else {}))
    with pytest.raises(InvalidEnvironmentError) as caught:
        node_api.call_of(environ)
    assert (caught.value.code, missing in caught.value.msg) == (4, True)


def test_the_worked_example_of_a_bad_request_names_the_missing_variable() -> None:
    request = node_api.decode_request(b'{"env":{"CNI_COMMAND":"ADD","CNI_CONTAINERID":"77aa","CNI_ARGS":"K8S_POD_NAME=x"},"config":"e30="}')
    with pytest.raises(InvalidEnvironmentError, match="CNI_NETNS"):
        node_api.call_of(request.env)


def test_del_needs_neither_namespace_nor_arguments() -> None:
    call = node_api.call_of({"CNI_COMMAND": "DEL", "CNI_CONTAINERID": "77aa"})
    assert (call.netns, call.generic_args, call.pod) == ("", (), PodArgs())
    assert node_api.call_of(without(CNI_COMMAND="DEL", CNI_ARGS=";nonsense;a=b=c;")).generic_args == (("a", "b=c"),)


@pytest.mark.parametrize("command", ["STATUS", "GC"])
@pytest.mark.parametrize("more", [{}, {"CNI_ARGS": ""}])
def test_status_and_gc_need_nothing(command: str, more: dict[str, str]) -> None:
    assert node_api.call_of({"CNI_COMMAND": command, **more}) == Call(CNICommand(command))


@pytest.mark.parametrize("command", ["VERSION", "PAUSE", "add"])
def test_other_commands_are_refused_by_name(command: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match=command):
        node_api.call_of(without(CNI_COMMAND=command))


def test_an_empty_container_id_is_an_unknown_container() -> None:
    with pytest.raises(UnknownContainerError):
        node_api.call_of(without(CNI_CONTAINERID=""))


@pytest.mark.parametrize(("name", "value"), [("CNI_NETNS", "a\0b"), ("CNI_X", "\ud800"), ("CNI_=", ""), ("CNI_\0", "")])
def test_a_variable_that_no_process_can_have_is_refused(name: str, value: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match="cannot be in an environment"):
        node_api.call_of({**ADD_ENV, name: value})


def test_a_path_that_is_no_text_is_no_obstacle() -> None:
    assert node_api.call_of({**ADD_ENV, "CNI_NETNS": "/run/\udcff"}).netns == "/run/\udcff"


# --- Answers ---


def result(version: str = "1.1.0") -> Any:
    made = results.parse({"cniVersion": "1.1.0", "interfaces": [INTERFACE], "ips": [ADDRESS], "routes": [], "dns": {"nameservers": []}}, "")
    return results.convert(made, version)


@pytest.mark.parametrize("version", ["1.1.0", "1.0.0", "0.4.0", "0.3.1"])
def test_the_answer_to_add_is_the_references_byte_for_byte(version: str) -> None:
    assert node_api.encode_result(result(version), version, is_our_shim=False) == RESULT_BODY


@pytest.mark.parametrize("version", ["0.2.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_our_shim_gets_beside_it_the_text_to_print_in_the_callers_version(version: str) -> None:
    encoded = node_api.encode_result(result(), version, is_our_shim=True)
    answer = json.loads(encoded)
    assert encoded.startswith(RESULT_BODY[:-1] + b',"Stdout":"{')
    assert list(answer) == ["Result", "Stdout"]
    expected = results.convert(result(), version).document
    assert answer["Stdout"] == json.dumps(expected, indent=4)
    assert expected["cniVersion"] == version


def test_an_error_is_the_references_byte_for_byte() -> None:
    error = DelegateError("bridge down", "br0", 50)
    assert node_api.encode_error(error, "1.0.0", is_our_shim=False) == b'{"code":50,"msg":"bridge down","details":"br0"}'
    assert node_api.encode_error(MultusError("x"), "1.0.0", is_our_shim=False) == b'{"code":999,"msg":"x"}'


def test_our_shim_gets_the_version_with_an_error() -> None:
    expected = b'{"cniVersion":"1.0.0","code":50,"msg":"bridge down","details":"br0"}'
    assert node_api.encode_error(DelegateError("bridge down", "br0", 50), "1.0.0", is_our_shim=True) == expected


def test_half_a_character_in_an_error_is_escaped() -> None:
    assert node_api.encode_error(MultusError("\ud800"), "", is_our_shim=False) == b'{"code":999,"msg":"\\ud800"}'
