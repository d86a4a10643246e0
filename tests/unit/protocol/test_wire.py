"""HTTP/1.1 by hand: what is written, what is read, what is refused."""

from __future__ import annotations

import contextlib
import itertools
import subprocess
import sys

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multus.errors import DecodingError, IOFailureError
from multus.protocol import wire

LIMIT = 1000


class Peer:
    """Answers ``recv`` with the given pieces, then with the end of the connection."""

    def __init__(self, *pieces: bytes) -> None:
        self.pieces = [piece for piece in pieces if piece]

    def receive(self, size: int) -> bytes:
        if not self.pieces:
            return b""
        piece = self.pieces.pop(0)
        if len(piece) > size:
            self.pieces.insert(0, piece[size:])
        return piece[:size]


def read(*pieces: bytes, method: str = "GET", limit: int = LIMIT) -> wire.Response:
    return wire.read_response(Peer(*pieces).receive, method, limit)


# requests, as they are written


def test_request_has_line_headers_and_blank_line() -> None:
    assert wire.request("GET", "/a?b=c", [("Host", "h:1"), ("X-Y", "")]) == b"GET /a?b=c HTTP/1.1\r\nHost: h:1\r\nX-Y: \r\n\r\n"


def test_request_with_a_body_tells_its_length() -> None:
    assert wire.request("PATCH", "/", [], b"abc") == b"PATCH / HTTP/1.1\r\nContent-Length: 3\r\n\r\nabc"


@pytest.mark.parametrize("method", ["POST", "PUT", "PATCH"])
def test_request_that_may_have_a_body_tells_that_it_has_none(method: str) -> None:
    assert b"\r\nContent-Length: 0\r\n" in wire.request(method, "/", [])


@pytest.mark.parametrize(
    ("method", "target", "headers"),
    [
        ("GET\r\n", "/", []),
        ("", "/", []),
        ("GÉT", "/", []),
        ("GET", "", []),
        ("GET", "/a b", []),
        ("GET", "/a\r\nX: y", []),
        ("GET", "/é", []),
        ("GET", "/", [("X\r\nY", "z")]),
        ("GET", "/", [("", "z")]),
        ("GET", "/", [("X:", "z")]),
        ("GET", "/", [("X", "y\r\nZ: 1")]),
        ("GET", "/", [("X", "y\n")]),
        ("GET", "/", [("X", "é")]),
    ],
)
def test_request_refuses_what_would_break_its_frame(method: str, target: str, headers: list[tuple[str, str]]) -> None:
    with pytest.raises(DecodingError):
        wire.request(method, target, headers)


def test_refusal_does_not_show_a_header_value() -> None:
    with pytest.raises(DecodingError) as caught:
        wire.request("GET", "/", [("Authorization", "Bearer secret\n")])
    assert str(caught.value) == "request header Authorization has a control character or one outside ASCII"


# responses, as they are read


def test_response_with_a_length() -> None:
    response = read(b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\nRetry-AFTER:  7 \r\n\r\nabc")
    assert (response.status, response.body, response.keep_alive) == (200, b"abc", True)
    assert response.headers == {"content-length": "3", "retry-after": "7"}


def test_repeated_headers_are_joined() -> None:
    assert read(b"HTTP/1.1 204 \r\nA: 1\r\na: 2\r\n\r\n").headers == {"a": "1, 2"}


def test_status_line_without_a_reason_is_read() -> None:
    assert read(b"HTTP/1.1 204\r\n\r\n").status == 204


def test_chunked_response_with_extension_and_trailer() -> None:
    response = read(b"HTTP/1.1 200 OK\r\nTransfer-Encoding: Chunked\r\n\r\n3;x=y\r\nabc\r\nA \r\n0123456789\r\n0\r\nT: 1\r\n\r\n")
    assert (response.body, response.keep_alive) == (b"abc0123456789", True)


def test_response_without_a_length_ends_with_the_connection() -> None:
    response = read(b"HTTP/1.1 200 OK\r\n\r\nab", b"c")
    assert (response.body, response.keep_alive) == (b"abc", False)


def test_interim_responses_are_skipped() -> None:
    head = b"HTTP/1.1 100 Continue\r\n\r\nHTTP/1.1 103 Early Hints\r\nLink: x\r\n\r\n"
    assert read(head + b"HTTP/1.1 200 OK\r\nContent-Length: 1\r\n\r\nx").body == b"x"


def test_switching_protocols_is_refused() -> None:
    with pytest.raises(DecodingError):
        read(b"HTTP/1.1 101 Switching Protocols\r\n\r\n")


@pytest.mark.parametrize(("status", "method"), [(b"204", "GET"), (b"304", "GET"), (b"200", "HEAD")])
def test_some_responses_have_no_body(status: bytes, method: str) -> None:
    response = read(b"HTTP/1.1 " + status + b" X\r\nContent-Length: 5\r\n\r\n", method=method)
    assert (response.body, response.keep_alive) == (b"", True)


@pytest.mark.parametrize(
    ("version", "connection", "keep_alive"),
    [
        (b"1.1", b"", True),
        (b"1.1", b"Connection: Close\r\n", False),
        (b"1.1", b"Connection: x, close\r\n", False),
        (b"1.0", b"", False),
        (b"1.0", b"Connection: Keep-Alive\r\n", True),
    ],
)
def test_connection_lives_on_as_its_version_and_header_say(version: bytes, connection: bytes, keep_alive: bool) -> None:
    assert read(b"HTTP/" + version + b" 204 X\r\n" + connection + b"\r\n").keep_alive == keep_alive


def test_connection_with_bytes_nobody_asked_for_is_not_kept() -> None:
    assert not read(b"HTTP/1.1 204 X\r\n\r\nHTTP").keep_alive


@pytest.mark.parametrize(
    "content",
    [
        b"SSH-2.0-x\r\n\r\n",
        b"HTTP/2 200 OK\r\n\r\n",
        b"HTTP/1.1 20 OK\r\n\r\n",
        b"HTTP/1.1 2000 OK\r\n\r\n",
        b"HTTP/1.1 099 OK\r\n\r\n",
        b"HTTP/1.1 abc OK\r\n\r\n",
        b"HTTP/1.1 \xb2\xb2\xb2 OK\r\n\r\n",
        b"HTTP/1.1 204 X\r\nno colon\r\n\r\n",
        b"HTTP/1.1 204 X\r\nA: b\r\n folded\r\n\r\n",
        b"HTTP/1.1 204 X\r\nA : b\r\n\r\n",
        b"HTTP/1.1 204 X\r\nA: b\nC: d\r\n\r\n",
        b"HTTP/1.1 200 X\r\nContent-Length: -1\r\n\r\n",
        b"HTTP/1.1 200 X\r\nContent-Length: 1\r\nContent-Length: 1\r\n\r\nx",
        b"HTTP/1.1 200 X\r\nContent-Length: 9999999999999999999999\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: gzip\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n-1\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1_0\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\nffffffffffffffff\r\n",
        b"HTTP/1.1 200 X\r\nTransfer-Encoding: chunked\r\n\r\n1\r\nabc",
    ],
)
def test_malformed_response_is_a_decoding_error(content: bytes) -> None:
    with pytest.raises(DecodingError):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"",
        b"HTTP/1.1 200 OK\r\n",
        b"HTTP/1.1 200 OK\r\nContent-Length: 3\r\n\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nab",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n",
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n",
    ],
)
def test_connection_that_ends_early_is_told_apart_from_a_malformed_response(content: bytes) -> None:
    with pytest.raises(IOFailureError):
        read(content)


@pytest.mark.parametrize(
    "content",
    [
        b"HTTP/1.1 200 OK\r\nContent-Length: 1001\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * 1001,
        b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n3e8\r\n" + b"x" * 1000 + b"\r\n1\r\nx\r\n0\r\n\r\n",
    ],
)
def test_body_over_the_limit_is_refused(content: bytes) -> None:
    with pytest.raises(DecodingError) as caught:
        read(content)
    assert caught.value.msg == "HTTP body is longer than 1000 bytes"


def test_body_as_long_as_the_limit_is_read() -> None:
    assert len(read(b"HTTP/1.1 200 OK\r\n\r\n" + b"x" * LIMIT).body) == LIMIT


def endless(line: bytes) -> Peer:
    return Peer(*[line] * 10_000)


def test_endless_head_is_refused() -> None:
    with pytest.raises(DecodingError) as caught:
        wire.read_response(Peer(b"HTTP/1.1 200 OK\r\n", *endless(b"A: b\r\n" * 10).pieces).receive, "GET", LIMIT)
    assert caught.value.msg == f"HTTP head is longer than {wire.MAX_HEAD_BYTES} bytes"


def test_endless_trailers_are_refused() -> None:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n"
    with pytest.raises(DecodingError):
        wire.read_response(Peer(head, *endless(b"A: b\r\n" * 10).pieces).receive, "GET", LIMIT)


def test_errors_of_the_connection_pass_through() -> None:
    def receive(size: int) -> bytes:
        raise TimeoutError(f"no {size} bytes")

    with pytest.raises(TimeoutError):
        wire.read_response(receive, "GET", LIMIT)


@given(st.lists(st.binary(min_size=1, max_size=40), max_size=6), st.lists(st.integers(0, 400), max_size=8), st.booleans())
def test_response_reads_the_same_however_it_is_cut(chunks: list[bytes], cuts: list[int], chunked: bool) -> None:
    """Neither the pieces of the network nor the framing of the body show in what is read."""
    body = b"".join(chunks)
    if chunked:
        framed = b"".join(b"%x\r\n%s\r\n" % (len(chunk), chunk) for chunk in chunks) + b"0\r\n\r\n"
        content = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n" + framed
    else:
        content = b"HTTP/1.1 200 OK\r\nContent-Length: %d\r\n\r\n%s" % (len(body), body)
    edges = [0, *sorted(cuts), len(content)]
    response = read(*(content[start:end] for start, end in itertools.pairwise(edges)))
    assert (response.body, response.keep_alive) == (body, True)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_response_or_one_of_our_errors(content: bytes) -> None:
    for start in (b"", b"HTTP/1.1 200 OK\r\n", b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(DecodingError, IOFailureError):
            read(start + content)


# requests, as they are read


def read_request(*pieces: bytes, limit: int = LIMIT) -> tuple[str, str, dict[str, str], bytes]:
    request = wire.read_request(Peer(*pieces).receive, limit)
    return request.method, request.target, dict(request.headers), request.body


def test_request_of_the_reference_is_read() -> None:
    """Byte for byte what its shim sends."""
    head = (
        b"POST /cni HTTP/1.1\r\nHost: dummy\r\nUser-Agent: Go-http-client/1.1\r\nContent-Length: 4\r\n"
        b"Content-Type: application/json\r\nAccept-Encoding: gzip\r\n\r\n"
    )
    headers = {
        "host": "dummy",
        "user-agent": "Go-http-client/1.1",
        "content-length": "4",
        "content-type": "application/json",
        "accept-encoding": "gzip",
    }
    assert ("POST", "/cni", headers, b"null") == read_request(head, b"null")


@pytest.mark.parametrize("version", [b"1.1", b"1.0"])
def test_request_without_a_length_has_no_body(version: bytes) -> None:
    assert ("GET", "/healthz", {}, b"") == read_request(b"GET /healthz HTTP/" + version + b"\r\n\r\nmore")


def test_chunked_request_is_read() -> None:
    assert b"abc" == read_request(b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n")[3]


def test_request_reads_the_same_byte_by_byte() -> None:
    content = wire.request("POST", "/cni", [("Host", "dummy")], b"abc")
    assert read_request(content) == read_request(*(bytes([byte]) for byte in content))


@pytest.mark.parametrize(
    "content",
    [
        b"\r\n\r\n",
        b"GET /\r\n\r\n",
        b"GET  HTTP/1.1\r\n\r\n",
        b"GET / HTTP/2\r\n\r\n",
        b"GET / x HTTP/1.1\r\n\r\n",
        b"G(T / HTTP/1.1\r\n\r\n",
        b" / HTTP/1.1\r\n\r\n",
        b"GET /\0 HTTP/1.1\r\n\r\n",
        b"GET / HTTP/1.1\r\nno colon\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: x\r\n\r\n",
        b"POST / HTTP/1.1\r\nContent-Length: 1001\r\n\r\n",
        b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\nContent-Length: 1\r\n\r\n0\r\n\r\n",
    ],
)
def test_malformed_request_is_a_decoding_error(content: bytes) -> None:
    with pytest.raises(DecodingError):
        read_request(content)


@pytest.mark.parametrize("content", [b"", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nContent-Length: 3\r\n\r\nab"])
def test_request_that_ends_early_is_told_apart_from_a_malformed_one(content: bytes) -> None:
    with pytest.raises(IOFailureError):
        read_request(content)


def test_endless_request_head_is_refused() -> None:
    with pytest.raises(DecodingError):
        wire.read_request(Peer(b"GET / HTTP/1.1\r\n", *endless(b"A: b\r\n" * 10).pieces).receive, LIMIT)


@given(st.binary(max_size=300))
def test_any_bytes_are_a_request_or_one_of_our_errors(content: bytes) -> None:
    for start in (b"", b"POST / HTTP/1.1\r\n", b"POST / HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n"):
        with contextlib.suppress(DecodingError, IOFailureError):
            read_request(start + content)


@given(st.sampled_from(["GET", "POST", "PUT"]), st.binary(max_size=LIMIT))
def test_request_that_was_written_is_read(method: str, body: bytes) -> None:
    length = {"content-length": str(len(body))} if body or method != "GET" else {}
    assert (method, "/cni", {"host": "dummy", **length}, body) == read_request(wire.request(method, "/cni", [("Host", "dummy")], body))


# responses, as they are written


def test_response_has_line_headers_length_and_body() -> None:
    expected = b"HTTP/1.1 200 OK\r\nConnection: close\r\nContent-Length: 2\r\n\r\n{}"
    assert expected == wire.response(200, [("Connection", "close")], b"{}")


def test_response_without_a_body_says_so() -> None:
    assert b"HTTP/1.1 500 Internal Server Error\r\nContent-Length: 0\r\n\r\n" == wire.response(500, [])


def test_response_that_may_have_no_body_has_no_length() -> None:
    assert b"HTTP/1.1 204 \r\n\r\n" == wire.response(204, [])


def test_response_says_the_reason_that_is_given() -> None:
    assert wire.response(503, [], reason="Stopping").startswith(b"HTTP/1.1 503 Stopping\r\n")


@pytest.mark.parametrize(
    ("status", "headers", "body", "reason"),
    [
        (199, [], b"", ""),
        (600, [], b"", ""),
        (204, [], b"x", ""),
        (200, [], b"", "a\r\nX: y"),
        (200, [], b"", "é"),
        (200, [("X\r\nY", "z")], b"", ""),
        (200, [("X", "y\r\nZ: 1")], b"", ""),
    ],
)
def test_response_refuses_what_would_break_its_frame(status: int, headers: list[tuple[str, str]], body: bytes, reason: str) -> None:
    with pytest.raises(DecodingError):
        wire.response(status, headers, body, reason=reason)


@given(st.integers(200, 599).filter(lambda status: status not in (204, 304)), st.binary(max_size=LIMIT))
def test_response_that_was_written_is_read(status: int, body: bytes) -> None:
    response = read(wire.response(status, [("Content-Type", "application/json")], body), method="POST")
    assert (status, body, True) == (response.status, response.body, response.keep_alive)


def test_import_costs_nothing_but_our_errors() -> None:
    code = "import sys; before = set(sys.modules); import multus.protocol.wire; print(*sorted(set(sys.modules) - before))"
    done = subprocess.run([sys.executable, "-S", "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["__future__", "multus", "multus.errors", "multus.protocol", "multus.protocol.wire"]
