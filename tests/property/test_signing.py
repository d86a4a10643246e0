"""Requests for certificates: no bytes and no document crash the approver, and none but a node's own is approved."""

from __future__ import annotations

import base64
from functools import cache

from hypothesis import example, given
from hypothesis import strategies as st

from multus.adapters import x509
from multus.core import approval
from multus.errors import DecodingError, InvalidConfigError, MultusError
from multus.protocol import signing_requests
from multus.protocol.durations import parse_duration
from multus.testing import strategies
from multus.types.certificates import Condition, RequestContent, SigningRequest, node_identity

TEXT = strategies.any_text()
LABEL = st.sampled_from(["CERTIFICATE REQUEST", "NEW CERTIFICATE REQUEST", "CERTIFICATE"])
NAMES = st.sampled_from(["system:multus:w1", "system:multus", "system:multus:w2", "admin"])
USERS = st.sampled_from(["system:node:w1", "system:multus:w1", "system:node:W1", "system:node:", "admin"]) | TEXT
GROUPS = st.lists(st.sampled_from(["system:nodes", "system:multus", "system:authenticated", "system:masters"]), max_size=4)
USAGES = st.lists(st.sampled_from(["digital signature", "client auth", "key encipherment"]), max_size=4)
REQUESTS = st.builds(
    SigningRequest,
    st.just("csr-1"),
    signer=st.just(signing_requests.SIGNER),
    username=USERS,
    groups=GROUPS.map(tuple),
    usages=USAGES.map(tuple),
    expiration_s=st.none() | st.integers(0, 2**31),
    conditions=st.lists(st.builds(Condition, st.sampled_from(["Approved", "Denied", "Failed"])), max_size=1).map(tuple),
)
CONTENTS = st.builds(
    RequestContent,
    st.lists(NAMES, max_size=2).map(tuple),
    st.lists(st.sampled_from(["system:multus", "system:masters"]), max_size=2).map(tuple),
    st.sampled_from([(), ("DNSName x",)]),
    st.booleans(),
)


GOOD = SigningRequest(
    "csr-1", signer=signing_requests.SIGNER, username="system:node:w1", usages=signing_requests.USAGES, expiration_s=600
)


@cache
def a_request() -> bytes:
    return x509.new_request(node_identity("w1"))[1]


def pem(der: bytes, label: str) -> bytes:
    return f"-----BEGIN {label}-----\n{base64.encodebytes(der).decode()}-----END {label}-----\n".encode()


def damaged(places: list[tuple[int, int]]) -> bytes:
    der = bytearray(base64.b64decode(b"".join(a_request().splitlines()[1:-1])))
    for position, value in places:
        der[position % len(der)] = value
    return bytes(der)


PLACES = st.lists(st.tuples(st.integers(0, 400), st.integers(0, 255)), min_size=1, max_size=4)
BYTES = st.binary(max_size=300) | st.builds(pem, st.binary(max_size=200), LABEL) | st.builds(pem, PLACES.map(damaged), LABEL)


@given(BYTES)
@example(b"-----BEGIN CERTIFICATE REQUEST-----\n-----END CERTIFICATE REQUEST-----\n")
def test_any_bytes_are_a_request_or_a_decoding_error(content: bytes) -> None:
    problem = ""
    try:
        x509.request_content(content)
    except DecodingError as exc:
        problem = exc.msg
    assert problem == "" or problem.startswith("request for a certificate cannot be read: ")


@given(BYTES | st.builds(bytes.__add__, BYTES, BYTES))
def test_any_bytes_are_a_certificate_or_an_error_of_ours(content: bytes) -> None:
    """And that of a request is none."""
    error: MultusError | None = None
    try:
        x509.certificate(content)
    except MultusError as exc:
        error = exc
    assert error is not None


@given(strategies.json_values() | st.dictionaries(st.sampled_from(["metadata", "spec", "status"]), strategies.json_values()))
@example({"spec": {"request": "é", "groups": [1], "expirationSeconds": True}, "status": {"conditions": [7, {}]}})
@example({"spec": {"username": "\ud800:\ud800", "request": "QQ=="}})
def test_any_document_is_a_request_that_is_decided_or_refused(document: object) -> None:
    request = signing_requests.from_document(document if isinstance(document, dict) else {})
    try:
        verdict = approval.decide(request, x509.request_content)
    except (DecodingError, InvalidConfigError):
        return
    assert verdict is None or not verdict.is_approval


@given(REQUESTS, CONTENTS)
@example(GOOD, RequestContent(("system:multus:w1",), ("system:multus",)))
def test_what_is_approved_is_a_nodes_own_certificate(request: SigningRequest, content: RequestContent) -> None:
    try:
        verdict = approval.decide(request, lambda _: content)
    except InvalidConfigError:
        assert request.username.rpartition(":")[1:] in ((":", ""), ("", request.username))
        return
    assert (verdict is None) == request.is_decided
    if verdict is not None and verdict.is_approval:
        node = request.username.removeprefix("system:node:").removeprefix("system:multus:")
        assert request.username in (f"system:node:{node}", f"system:multus:{node}")
        assert content == RequestContent((f"system:multus:{node}",), ("system:multus",))
        assert "system:masters" not in request.groups
        assert (set(request.usages), request.expiration_s) == (set(signing_requests.USAGES), min(request.expiration_s or 0, 31_536_000))


@given(st.lists(st.tuples(st.integers(0, 1000), st.sampled_from(["h", "m", "s", "ms"])), min_size=1, max_size=4))
def test_a_duration_is_the_sum_of_its_parts(parts: list[tuple[int, str]]) -> None:
    seconds = {"h": 3600, "m": 60, "s": 1, "ms": 0.001}
    total = sum(number * seconds[unit] for number, unit in parts)
    assert abs(parse_duration("".join(f"{number}{unit}" for number, unit in parts)) - total) < 1e-6


@given(TEXT)
def test_any_text_is_a_duration_or_an_error(text: str) -> None:
    try:
        seconds = parse_duration(text)
    except InvalidConfigError:
        return
    assert abs(seconds) < 2**63 / 1e9
