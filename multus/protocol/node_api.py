"""Requests and answers over the node socket: bodies to values and back.

Spec: Multus behaviour, "HTTP surface".  The shim that sends the header ``Multus-Shim`` gets an answer that it can print
as it stands; older ones and the reference's get theirs byte for byte.
"""

from __future__ import annotations

import binascii
import json

from multus.errors import DecodingError, InvalidEnvironmentError
from multus.protocol import results
from multus.protocol.documents import dumps, dumps_indented, kind, load_object, lookup, quote
from multus.protocol.environment import parse_call
from multus.types.daemon import InterfaceAttributes, NodeRequest
from multus.types.invocation import CNICommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.errors import MultusError
    from multus.types.invocation import Call
    from multus.types.result import Result

HANDSHAKE_HEADER = "multus-shim"
_BLANKS = b" \t\r\n"


def decode_request(body: bytes) -> NodeRequest:
    """Decode the body of ``/cni`` or ``/delegate``; members may be missing, null, unknown, and in any case.

    Raises:
        DecodingError: Code 6; it is not JSON, or a member is of the wrong kind.
    """
    document = load_object(body, "request")
    env = _object(lookup(document, "env"), "env")
    if not all(isinstance(value, str | None) for value in env.values()):
        raise DecodingError("request: key \"env\" is no object of strings")
    encoded = _text(lookup(document, "config"), "config")
    try:
        config = binascii.a2b_base64(encoded.encode().translate(None, _BLANKS), strict_mode=True) if encoded else b""
    except ValueError as exc:
        raise DecodingError(f"request: key \"config\" is not Base64: {exc}") from exc
    attributes = lookup(document, "interfaceAttributes")
    return NodeRequest(
        {name: str(value or "") for name, value in env.items()},
        config,
        None if attributes is None else _attributes(_object(attributes, "interfaceAttributes")),
        _text(lookup(document, "network"), "network"),
    )


def encode_request(request: NodeRequest) -> bytes:
    """The body that ``decode_request`` reads, in the reference's order of members."""
    encoded = binascii.b2a_base64(request.config, newline=False).decode()
    document: dict[str, object] = {"env": dict(sorted(request.env.items())), "config": encoded}
    if request.attributes is not None:
        attributes = {"ips": list(request.attributes.ips), "mac": request.attributes.mac}
        shown = {key: value for key, value in attributes.items() if value}
        document["interfaceAttributes"] = {**shown, "cni-args": request.attributes.cni_args}
    if request.network:
        document["network"] = request.network
    return dumps({key: value for key, value in document.items() if value}).encode()


def call_of(env: Mapping[str, str]) -> Call:
    """The call that a request's environment describes.

    Raises:
        InvalidEnvironmentError, UnknownContainerError: Codes 4 and 3; names the variable.
    """
    for name, value in env.items():
        if name.startswith("CNI_") and not _is_variable(name, value):
            raise InvalidEnvironmentError(f"{quote(name)} cannot be in an environment: it has '=', NUL or half a character")
    command = env.get("CNI_COMMAND", "")
    if command not in (CNICommand.DEL, CNICommand.GC, CNICommand.STATUS) and command in CNICommand.__members__ and "CNI_ARGS" not in env:
        raise InvalidEnvironmentError(f"CNI_ARGS missing from the environment of {command}")
    if command == CNICommand.VERSION:
        raise InvalidEnvironmentError("CNI_COMMAND 'VERSION' is answered by the shim")
    return parse_call({"CNI_IFNAME": "eth0", **env}, needs_path=False)


def encode_result(result: Result, cni_version: str, *, is_our_shim: bool) -> bytes:
    """The answer to ADD: ``Result`` in the newest shape, and for our shim the text to print beside it."""
    document: dict[str, object] = {"Result": _without_empty(results.convert(result, "1.1.0").document)}
    text = json.dumps(document, separators=(",", ":"), sort_keys=True)
    if is_our_shim:
        printed = dumps_indented(results.convert(result, cni_version).document)
        text = f"{text[:-1]},\"Stdout\":{dumps(printed)}}}"
    return text.encode()


def encode_error(error: MultusError, cni_version: str, *, is_our_shim: bool) -> bytes:
    """A CNI error object; with ``cniVersion`` for our shim, which prints it as it stands."""
    document = error.document(cni_version)
    if not is_our_shim:
        del document["cniVersion"]
    return dumps(document).encode()


def _without_empty(result: Mapping[str, object]) -> dict[str, object]:
    """The result without empty lists and an empty ``dns``, as the reference writes it."""
    dns = result.get("dns")
    shown = {**result, "dns": {key: value for key, value in dns.items() if value} if isinstance(dns, dict) else None}
    return {key: value for key, value in shown.items() if value not in (None, [], {}, ())}


def _is_variable(name: str, value: str) -> bool:
    """Whether a process could be given the variable: a delegate is to be."""
    try:
        (name + value).encode(errors="surrogateescape")
    except UnicodeEncodeError:
        return False
    return "=" not in name and "\0" not in name + value


def _attributes(document: Mapping[str, object]) -> InterfaceAttributes:
    ips = lookup(document, "ips")
    if not isinstance(ips, list | None) or not all(isinstance(ip, str) for ip in ips or ()):
        raise DecodingError("request: key \"interfaceAttributes.ips\" is no list of strings")
    cni_args = lookup(document, "cni-args")
    return InterfaceAttributes(
        tuple(ips or ()),
        _text(lookup(document, "mac"), "interfaceAttributes.mac"),
        None if cni_args is None else _object(cni_args, "interfaceAttributes.cni-args"),
    )


def _object(value: object, key: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise DecodingError(f"request: key \"{key}\" is {kind(value)}, an object is expected")
    return value


def _text(value: object, key: str) -> str:
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodingError(f"request: key \"{key}\" is {kind(value)}, a string is expected")
    return value
