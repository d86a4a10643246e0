"""HTTP/1.1 as bytes, for clients and servers.  Connections, TLS, deadlines and retries belong to the callers.

Imported by the shim, so it imports next to nothing: ``typing`` alone would cost more than the shim may.

Spec: RFC 9112.
"""

from __future__ import annotations

from multus.errors import DecodingError, IOFailureError

TYPE_CHECKING = False  # what type checkers take for true; typing's own would have to be imported
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    Receive = Callable[[int], bytes]

MAX_HEAD_BYTES = 64 * 1024
"""Of a start line with its headers, and of the trailers of a chunked body."""
_MAX_CHUNK_LINE_BYTES = 4096
_PIECE_BYTES = 64 * 1024
_VERSIONS = ("HTTP/1.1", "HTTP/1.0")
_REASONS = {
    200: "OK",
    400: "Bad Request",
    404: "Not Found",
    405: "Method Not Allowed",
    413: "Content Too Large",
    500: "Internal Server Error",
    503: "Service Unavailable",
}


class Response:
    """A complete response: ``headers`` by lower-case name, repeated ones joined by ``", "``.

    ``keep_alive`` says whether the connection may carry another request.
    """

    __slots__ = ("body", "headers", "keep_alive", "status")

    def __init__(self, status: int, headers: Mapping[str, str], body: bytes, keep_alive: bool) -> None:
        self.status = status
        self.headers = headers
        self.body = body
        self.keep_alive = keep_alive


class Request:
    """A complete request: ``headers`` by lower-case name, repeated ones joined by ``", "``; ``target`` as it was sent."""

    __slots__ = ("body", "headers", "method", "target")

    def __init__(self, method: str, target: str, headers: Mapping[str, str], body: bytes) -> None:
        self.method = method
        self.target = target
        self.headers = headers
        self.body = body


def request(method: str, target: str, headers: Iterable[tuple[str, str]], body: bytes = b"") -> bytes:
    """Encode a request; Content-Length is added where a body is, or could be, expected.

    Raises:
        DecodingError: The method, the target or a header cannot stand in a request; the value is not shown.
    """
    if not method.isalpha() or not method.isascii():
        raise DecodingError("request method is not a word of ASCII letters")
    if not target or not target.isascii() or not target.isprintable() or " " in target:
        raise DecodingError("request target has a blank, a control character or one outside ASCII")
    lines = [f"{method} {target} HTTP/1.1", *_header_lines(headers, "request")]
    if body or method in ("POST", "PUT", "PATCH"):
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode("ascii") + body


def response(status: int, headers: Iterable[tuple[str, str]], body: bytes = b"", *, reason: str = "") -> bytes:
    """Encode a response; Content-Length is added.

    Args:
        status: From 200 to 599; 204 and 304 have no body.
        reason: Of the status line; the usual one where it is empty.

    Raises:
        DecodingError: The status, the reason or a header cannot stand in a response; the value is not shown.
    """
    reason = reason or _REASONS.get(status, "")
    has_body = status not in (204, 304)
    if not 200 <= status <= 599 or (body and not has_body):
        raise DecodingError(f"response status {status} is none, or has no body")
    if not reason.isascii() or not reason.isprintable():
        raise DecodingError("response reason has a control character or one outside ASCII")
    lines = [f"HTTP/1.1 {status} {reason}", *_header_lines(headers, "response")]
    if has_body:
        lines.append(f"Content-Length: {len(body)}")
    return "\r\n".join((*lines, "", "")).encode("ascii") + body


def read_request(receive: Receive, max_body_bytes: int) -> Request:
    """Read one request, up to the end of its body; a request that tells no length has none.

    Args:
        receive: Answers up to so many bytes, as ``socket.recv`` does, and none at the end; whoever makes it sees to
            deadlines.  What it raises passes through.

    Raises:
        DecodingError: Code 6, the peer sent something that is not HTTP/1.1, or more than it may.
        IOFailureError: Code 5, the connection ended too early.
    """
    stream = _Stream(receive)
    lines = _read_head(stream)
    words = lines[0].split(" ")
    if len(words) != 3 or not _is_token(words[0]) or not words[1] or not words[1].isprintable() or words[2] not in _VERSIONS:
        raise DecodingError(f"HTTP request line {lines[0][:40]!r} is not one")
    headers = _parse_headers(lines[1:])
    has_body = "transfer-encoding" in headers or "content-length" in headers
    return Request(words[0], words[1], headers, _read_body(stream, headers, max_body_bytes) if has_body else b"")


def read_response(receive: Receive, method: str, max_body_bytes: int) -> Response:
    """Read the response to one request; interim (1xx) responses are skipped.

    Args:
        receive: Answers up to so many bytes, as ``socket.recv`` does, and none at the end; whoever makes it sees to
            deadlines.  What it raises passes through.
        method: Of the request: a response to HEAD has no body.

    Raises:
        DecodingError: Code 6, the peer sent something that is not HTTP/1.1, or more than it may.
        IOFailureError: Code 5, the connection ended too early.
    """
    stream = _Stream(receive)
    while True:
        version, status, headers = _read_response_head(stream)
        if status == 101:
            raise DecodingError("HTTP response switches protocols unasked")
        if status >= 200:
            break
    tokens = [token.strip().lower() for token in headers.get("connection", "").split(",")]
    keep_alive = "keep-alive" in tokens if version == "HTTP/1.0" else "close" not in tokens
    if method == "HEAD" or status in (204, 304):
        body = b""
    elif "transfer-encoding" in headers or "content-length" in headers:
        body = _read_body(stream, headers, max_body_bytes)
    else:
        body = stream.rest(max_body_bytes)
        keep_alive = False
    return Response(status, headers, body, keep_alive and not stream.buffer)


class _Stream:
    """Bytes of one connection, received as needed; ``buffer`` holds those that were received and not yet taken."""

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self.buffer = bytearray()

    def until(self, mark: bytes, max_bytes: int, what: str) -> bytes:
        """Take up to the next ``mark`` and the mark itself; answer what stands before it."""
        searched = 0
        while (end := self.buffer.find(mark, searched)) < 0:
            searched = max(0, len(self.buffer) - len(mark) + 1)
            if len(self.buffer) > max_bytes:
                break
            self._more(what)
        if end < 0 or end > max_bytes:
            raise DecodingError(f"HTTP {what} is longer than {max_bytes} bytes")
        taken = bytes(self.buffer[:end])
        del self.buffer[: end + len(mark)]
        return taken

    def exactly(self, size: int, what: str) -> bytes:
        while len(self.buffer) < size:
            self._more(what)
        taken = bytes(self.buffer[:size])
        del self.buffer[:size]
        return taken

    def rest(self, max_bytes: int) -> bytes:
        while len(self.buffer) <= max_bytes:
            piece = self._receive(_PIECE_BYTES)
            if not piece:
                taken = bytes(self.buffer)
                self.buffer.clear()
                return taken
            self.buffer += piece
        raise _body_too_long(max_bytes)

    def _more(self, what: str) -> None:
        piece = self._receive(_PIECE_BYTES)
        if not piece:
            raise IOFailureError(f"connection ended within the HTTP {what}")
        self.buffer += piece


def _header_lines(headers: Iterable[tuple[str, str]], what: str) -> list[str]:
    lines = []
    for name, value in headers:
        if not _is_token(name):
            raise DecodingError(f"{what} header name {name!r} is not a token")
        if not value.isascii() or not value.isprintable():
            raise DecodingError(f"{what} header {name} has a control character or one outside ASCII")
        lines.append(f"{name}: {value}")
    return lines


def _read_response_head(stream: _Stream) -> tuple[str, int, dict[str, str]]:
    lines = _read_head(stream)
    version, _, rest = lines[0].partition(" ")
    status, _, _ = rest.partition(" ")
    if version not in _VERSIONS or len(status) != 3 or not _is_digits(status) or status < "100":
        raise DecodingError(f"HTTP status line {lines[0][:40]!r} is not one")
    return version, int(status), _parse_headers(lines[1:])


def _read_head(stream: _Stream) -> list[str]:
    return stream.until(b"\r\n\r\n", MAX_HEAD_BYTES, "head").decode("latin-1").split("\r\n")


def _parse_headers(lines: list[str]) -> dict[str, str]:
    headers: dict[str, str] = {}
    for line in lines:
        name, colon, value = line.partition(":")
        value = value.strip(" \t")
        if not colon or not _is_token(name) or "\r" in value or "\n" in value or "\0" in value:
            raise DecodingError(f"HTTP header line {name[:40]!r} is not one")
        name = name.lower()
        headers[name] = f"{headers[name]}, {value}" if name in headers else value
    return headers


def _read_body(stream: _Stream, headers: Mapping[str, str], max_bytes: int) -> bytes:
    coding = headers.get("transfer-encoding")
    length = headers.get("content-length", "")
    if coding is not None:
        if length or coding.lower() != "chunked":
            raise DecodingError(f"HTTP transfer-encoding {coding[:40]!r} is not understood" + (" with a length" if length else ""))
        return _read_chunks(stream, max_bytes)
    if not _is_digits(length) or len(length) > 18:
        raise DecodingError(f"HTTP content-length {length[:40]!r} is not a number")
    if int(length) > max_bytes:
        raise _body_too_long(max_bytes)
    return stream.exactly(int(length), "body")


def _read_chunks(stream: _Stream, max_bytes: int) -> bytes:
    body = bytearray()
    while True:
        line = stream.until(b"\r\n", _MAX_CHUNK_LINE_BYTES, "chunk size")
        digits = line.partition(b";")[0].strip(b" \t")
        if not digits or len(digits) > 15 or digits.strip(b"0123456789abcdefABCDEF"):
            raise DecodingError(f"HTTP chunk size {digits[:20]!r} is not a hexadecimal number")
        size = int(digits, 16)
        if size == 0:
            break
        if len(body) + size > max_bytes:
            raise _body_too_long(max_bytes)
        body += stream.exactly(size, "chunk")
        if stream.exactly(2, "chunk") != b"\r\n":
            raise DecodingError("HTTP chunk does not end where its size says")
    left = MAX_HEAD_BYTES
    while trailer := stream.until(b"\r\n", left, "trailer"):
        left = max(0, left - len(trailer))
    return bytes(body)


def _body_too_long(max_bytes: int) -> DecodingError:
    return DecodingError(f"HTTP body is longer than {max_bytes} bytes")


def _is_digits(text: str) -> bool:
    return text.isascii() and text.isdigit()


def _is_token(text: str) -> bool:
    return text.isascii() and text.replace("-", "").replace("_", "").replace(".", "").isalnum()
