"""The kernel's routing netlink: requests packed, sent and answered, in the few forms that attachments need.

pyroute2 knows them all, at half a millisecond a request and 12 MiB; see docs/decisions/0013.  Numbers are those of the
kernel's headers linux/netlink.h and linux/rtnetlink.h, which do not change.  Standard library only.  Errors are ``OSError``.
"""

from __future__ import annotations

import os
import struct
from _socket import AF_NETLINK, NETLINK_ROUTE, SOCK_CLOEXEC, SOCK_RAW, socket

NEWLINK, DELLINK, GETLINK, SETLINK = 16, 17, 18, 19
NEWADDR, DELADDR, GETADDR = 20, 21, 22
NEWROUTE, DELROUTE, GETROUTE = 24, 25, 26
NEWRULE, DELRULE, GETRULE = 32, 33, 34
NEWQDISC, DELQDISC, GETQDISC = 36, 37, 38
NEWFILTER = 44

REQUEST = 0x1
ACK = 0x4
DUMP = 0x300
REPLACE = 0x100
EXCLUSIVE = 0x200
CREATE = 0x400

LINK = struct.Struct("=BxHiII")
"""The fixed part of messages about links: family, device type, index, flags, which flags change."""
ADDRESS = struct.Struct("=BBBBI")
"""Family, prefix length, flags, scope, index of the link."""
ROUTE = struct.Struct("=BBBBBBBBI")
"""Family, lengths of destination and source, TOS, table, protocol, scope, type, flags."""
RULE = ROUTE
"""Family, lengths of destination and source, TOS, table, two unused, action, flags."""
QUEUE = struct.Struct("=BxxxiIII")
"""Of queues and filters: family, index of the link, handle, parent, information."""
_FIXED = {NEWLINK: LINK, NEWADDR: ADDRESS, NEWROUTE: ROUTE, NEWRULE: RULE, NEWQDISC: QUEUE, NEWFILTER: QUEUE}

_HEADER = struct.Struct("=IHHII")
_ATTRIBUTE = struct.Struct("=HH")
_ERROR = 2
_DONE = 3
_INTERRUPTED = 0x10
_CAPPED = 0x100
_HAS_ATTRIBUTES = 0x200
_TYPE_MASK = 0x3FFF  # above it: that the attribute is nested, or in network byte order
_ERROR_TEXT = 1
_SOL_NETLINK = 270
_CAP_ACK, _EXT_ACK, _STRICT_CHECK = 10, 11, 12
_DUMP_TRIES = 10
_BUFFER = 32768  # what the kernel fills at most


class Message:
    """An answer: the family's fixed part, and its attributes by number."""

    __slots__ = ("attributes", "fields")

    def __init__(self, fields: tuple[int, ...], attributes: dict[int, bytes]) -> None:
        self.fields = fields
        self.attributes = attributes


class Netlink:
    """A socket in the network namespace in which the calling thread is when it is made; closed by ``close``."""

    def __init__(self) -> None:
        self._socket = socket(AF_NETLINK, SOCK_RAW | SOCK_CLOEXEC, NETLINK_ROUTE)
        self._sequence = 0
        for option in (_CAP_ACK, _EXT_ACK, _STRICT_CHECK):
            try:
                self._socket.setsockopt(_SOL_NETLINK, option, 1)
            except OSError:
                pass  # a kernel before 4.20: errors say less, and dumps hold more than was asked for

    def close(self) -> None:
        self._socket.close()

    def ask(self, kind: int, fields: tuple[int, ...], attributes: bytes = b"", flags: int = 0) -> list[Message]:
        """Send one request and wait for all of its answer; dumps that changed under way are asked for again.

        Args:
            fields: The fixed part of messages of that kind.

        Raises:
            OSError: The kernel refuses, with its number, and its reason if it gives one.
        """
        fixed = _FIXED[kind & ~0x3]  # kinds come in fours, the new one first
        body = fixed.pack(*fields) + attributes
        for _ in range(_DUMP_TRIES):
            self._sequence += 1
            header = _HEADER.pack(_HEADER.size + len(body), kind, REQUEST | ACK | flags, self._sequence, 0)
            self._socket.send(header + body)
            answers = self._answers(fixed)
            if answers is not None:
                return answers
        raise OSError(0, "it changes all the time")

    def _answers(self, fixed: struct.Struct) -> list[Message] | None:
        """All messages up to the acknowledgement or the end of a dump; None: what was being listed has changed meanwhile."""
        found: list[Message] = []
        was_interrupted = False
        while True:
            data = self._socket.recv(_BUFFER)
            start = 0
            while start < len(data):
                length, kind, flags, sequence, _ = _HEADER.unpack_from(data, start)
                message = data[start + _HEADER.size:start + length]
                start += length + -length % 4
                if sequence != self._sequence:
                    continue  # of a request that was given up
                was_interrupted |= bool(flags & _INTERRUPTED)
                if kind in (_ERROR, _DONE):
                    _raise_refusal(message, flags)
                    return None if was_interrupted else found
                found.append(Message(fixed.unpack_from(message), parsed(message[fixed.size:])))


def attribute(number: int, payload: bytes) -> bytes:
    """An attribute, padded; nested ones are the payload of theirs, one after the other."""
    length = _ATTRIBUTE.size + len(payload)
    return _ATTRIBUTE.pack(length, number) + payload + bytes(-length % 4)


def parsed(data: bytes) -> dict[int, bytes]:
    """Attributes by number.  A link has fifty, and an ADD looks at several."""
    found = {}
    unpack, size, end = _ATTRIBUTE.unpack_from, _ATTRIBUTE.size, len(data) - _ATTRIBUTE.size
    start = 0
    while start <= end:
        length, number = unpack(data, start)
        if length < size:
            break
        found[number & _TYPE_MASK] = data[start + size:start + length]
        start += length + -length % 4
    return found


def u8(value: int) -> bytes:
    return struct.pack("=B", value)


def u16(value: int) -> bytes:
    return struct.pack("=H", value)


def u32(value: int) -> bytes:
    return struct.pack("=I", value)


def text(value: str) -> bytes:
    return value.encode() + b"\0"


def whole(payload: bytes) -> int:
    """A number of the machine's byte order, whatever its width."""
    return int.from_bytes(payload, "little" if _IS_LITTLE else "big")


def plain(payload: bytes) -> str:
    """Text up to its end."""
    return payload.partition(b"\0")[0].decode(errors="surrogateescape")


_IS_LITTLE = struct.pack("=H", 1)[0] == 1


def _raise_refusal(message: bytes, flags: int) -> None:
    """Raise if an acknowledgement, or the end of a dump, tells an error."""
    (code,) = struct.unpack_from("=i", message)
    if not code:
        return
    start = 4 + _HEADER.size
    if len(message) >= start and not flags & _CAPPED:
        start = 4 + _HEADER.unpack_from(message, 4)[0]  # the request comes back whole
    reason = parsed(message[start:]).get(_ERROR_TEXT) if flags & _HAS_ATTRIBUTES else None
    why = os.strerror(-code)
    raise OSError(-code, f"{why} ({plain(reason)})" if reason else why)
