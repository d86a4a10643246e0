"""The kernel's netfilter by netlink: requests in one transaction, and listings.

Spec: the kernel's ``linux/netfilter/nfnetlink.h``; numbers in attributes are big-endian.
"""

from __future__ import annotations

import errno
import os
import socket
import struct
import time
from typing import TYPE_CHECKING, NamedTuple, Self

from multus.rtnetlink import ACK, DUMP, REQUEST, attribute, text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from types import TracebackType

BRIDGE = 7
FAMILIES = {4: socket.AF_INET, 6: socket.AF_INET6, BRIDGE: socket.AF_BRIDGE}
APPEND = 0x800
_NETFILTER = 12
_HEADER = struct.Struct("=IHHII")
_BEGIN, _END = 0x10, 0x11
_ERROR, _DONE = 2, 3
_INTERRUPTED = 0x10
_NESTED = 0x8000
_BUFFER = 1 << 16
_LIST_TRIES, _LIST_STEP_S = 50, 0.001


class Request(NamedTuple):
    """A request to one part of netfilter, the subsystem; ``family`` is 4, 6 or ``BRIDGE``."""

    subsystem: int
    command: int
    family: int
    body: bytes
    flags: int = 0


def nested(kind: int, *attributes: bytes) -> bytes:
    """An attribute of attributes."""
    return attribute(kind | _NESTED, b"".join(attributes))


def number(kind: int, value: int) -> bytes:
    """An attribute of 32 bits."""
    return attribute(kind, struct.pack(">I", value & 0xFFFFFFFF))


def named(kind: int, name: str) -> bytes:
    """An attribute of text."""
    return attribute(kind, text(name))


class Netfilter:
    """A socket in the thread's own namespace, while in its ``with`` block.  Raises OSError for what the kernel refuses."""

    def __enter__(self) -> Self:
        self._socket = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW | socket.SOCK_CLOEXEC, _NETFILTER)
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._socket.close()

    def commit(self, requests: Sequence[Request]) -> None:
        """All requests in one transaction: all are done, or none.  They are of one subsystem."""
        if requests:
            *most, last = requests
            begin, end = (_framing(kind, last.subsystem) for kind in (_BEGIN, _END))
            self._socket.send(b"".join((begin, *map(_message, most), _message(last, ACK), end)))
            self._raise_refusal()

    def ask(self, request: Request) -> None:
        """One request without a transaction."""
        self._socket.send(_message(request, ACK))
        self._raise_refusal()

    def listed(self, request: Request) -> list[bytes]:
        """The attributes of each answer to a request to list, as of one moment."""
        for tried in range(_LIST_TRIES):
            self._socket.send(_message(request, DUMP))
            bodies = self._answers()
            if bodies is not None:
                return bodies
            time.sleep(tried * _LIST_STEP_S)
        raise OSError(errno.EAGAIN, "it changes all the time")

    def _raise_refusal(self) -> None:
        """Raise OSError for the first request that was refused.  All answers are there when ``send`` comes back."""
        refused = 0
        try:
            while True:
                for kind, _, body in _split(self._socket.recv(_BUFFER, socket.MSG_DONTWAIT)):
                    if kind == _ERROR:
                        refused = refused or _code(body)
        except BlockingIOError:
            pass
        if refused:
            raise OSError(refused, os.strerror(refused))

    def _answers(self) -> list[bytes] | None:
        """The attributes of each answer up to the end of a list; None: what was being listed has changed meanwhile."""
        found: list[bytes] = []
        was_interrupted = False
        while True:
            for kind, flags, body in _split(self._socket.recv(_BUFFER)):
                was_interrupted |= bool(flags & _INTERRUPTED)
                if kind in (_ERROR, _DONE):
                    if _code(body):
                        raise OSError(_code(body), os.strerror(_code(body)))
                    return None if was_interrupted else found
                found.append(body[4:])


def _message(request: Request, flags: int = 0) -> bytes:
    kind = (request.subsystem << 8) | request.command
    return _packed(kind, request.flags | flags, struct.pack(">BBH", FAMILIES[request.family], 0, 0) + request.body)


def _framing(kind: int, subsystem: int) -> bytes:
    return _packed(kind, 0, struct.pack(">BBH", 0, 0, subsystem))


def _packed(kind: int, flags: int, body: bytes) -> bytes:
    return _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | flags, 0, 0) + body


def _split(received: bytes) -> Iterator[tuple[int, int, bytes]]:
    start = 0
    while start + _HEADER.size <= len(received):
        length, kind, flags, _, _ = _HEADER.unpack_from(received, start)
        yield kind, flags, received[start + _HEADER.size:start + length]
        start += max(length + -length % 4, _HEADER.size)


def _code(body: bytes) -> int:
    """The error number of an acknowledgement, or of the end of a list."""
    return -int(struct.unpack_from("=i", body)[0]) if len(body) >= 4 else 0
