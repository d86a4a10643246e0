"""One TCP connection as a client, with or without TLS, on the C halves of ``socket`` and ``ssl``.

The modules around those halves cost 9 ms at import, a tenth of what a whole call of the thin binary costs; all that is
left out with them is convenience.  Verification is OpenSSL's either way (``docs/decisions/0012-tls-by-the-c-half.md``).
"""

from __future__ import annotations

import io
from _socket import (
    IPPROTO_TCP,
    SHUT_RDWR,
    SO_KEEPALIVE,
    SOCK_STREAM,
    SOL_SOCKET,
    TCP_KEEPCNT,
    TCP_KEEPIDLE,
    TCP_KEEPINTVL,
    TCP_NODELAY,
    getaddrinfo,
)
from _socket import socket as Socket  # noqa: N812  # of the socket module, which costs 3 ms more
from select import POLLIN, poll

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

_KEEP_ALIVE = (
    (SOL_SOCKET, SO_KEEPALIVE, 1),
    (IPPROTO_TCP, TCP_KEEPIDLE, 30),
    (IPPROTO_TCP, TCP_KEEPINTVL, 10),
    (IPPROTO_TCP, TCP_KEEPCNT, 3),
)


def keep_alive(plain: Socket) -> None:
    """Have the kernel ask a silent peer whether it is there: one that is gone without a word ends a stream after a minute."""
    for option in _KEEP_ALIVE:
        plain.setsockopt(*option)


def cut(plain: Socket) -> None:
    """End a connection both ways, so that whoever receives wakes up; from any thread."""
    try:
        Socket.shutdown(plain, SHUT_RDWR)  # not that of ssl.SSLSocket, which the reader would stumble over
    except OSError:
        pass  # ended already


class Channel:
    """A connection from ``connect`` to ``close``.  Each call waits up to the time limit set last, then raises TimeoutError."""

    def __init__(self, plain: Socket, secured: Any = None) -> None:
        self._plain = plain
        self._secured = secured

    @classmethod
    def connect(cls, host: bytes, port: int, tls: Any, tls_name: str, left: Callable[[], float]) -> Channel:
        """Connect to the first address of a host that answers.

        Args:
            tls: A context of ``multus.tls``, or None for none.
            tls_name: What the server's certificate is to be for.
            left: Seconds that are left; raises TimeoutError when none are.

        Raises:
            OSError: Nobody answers, or the handshake fails.
            ValueError: The host or the TLS name cannot be a name.
        """
        plain = _connected(host, port, left)
        try:
            plain.setsockopt(IPPROTO_TCP, TCP_NODELAY, 1)
            if tls is None:
                return cls(plain)
            plain.settimeout(left())
            secured = tls._wrap_socket(plain, False, tls_name)
            secured.do_handshake()
            return cls(plain, secured)
        except BaseException:
            plain.close()
            raise

    def keep_alive(self) -> None:
        keep_alive(self._plain)

    def settimeout(self, seconds: float) -> None:
        self._plain.settimeout(seconds)

    def sendall(self, content: bytes) -> None:
        if self._secured is None:
            self._plain.sendall(content)
            return
        rest = memoryview(content)
        while rest:
            rest = rest[self._secured.write(rest) :]

    def recv(self, size: int) -> bytes:
        """Up to ``size`` bytes; none at the end."""
        if self._secured is None:
            return self._plain.recv(size)
        from _ssl import SSLEOFError  # loaded with the context

        try:
            received: bytes = self._secured.read(size)
        except SSLEOFError:
            return b""  # the peer has closed the connection without taking leave, as many do
        return received

    def is_readable(self) -> bool:
        """Whether there is something to receive, or the end."""
        waiting = poll()
        waiting.register(self._plain.fileno(), POLLIN)
        return bool(waiting.poll(0))

    def makefile(self, mode: str) -> io.BufferedReader:
        """A file to read from, for ``http.client``; closing it leaves the connection open."""
        return io.BufferedReader(_Received(self.recv))

    def cut(self) -> None:
        cut(self._plain)

    def close(self) -> None:
        self._plain.close()


class _Plain(Socket):
    __slots__ = ("__weakref__",)  # TLS refers to it weakly


class _Received(io.RawIOBase):
    def __init__(self, receive: Callable[[int], bytes]) -> None:
        self._receive = receive

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any) -> int:
        received = self._receive(len(buffer))
        buffer[: len(received)] = received
        return len(received)


def _connected(host: bytes, port: int, left: Callable[[], float]) -> Socket:
    """Raises the error of the last address."""
    failure = OSError("host has no address")
    for family, kind, protocol, _, address in getaddrinfo(host, port, 0, SOCK_STREAM):
        plain = _Plain(family, kind, protocol)
        try:
            plain.settimeout(left())
            plain.connect(address)
            return plain
        except OSError as exc:
            failure = exc
            plain.close()
        except BaseException:
            plain.close()
            raise
    raise failure
