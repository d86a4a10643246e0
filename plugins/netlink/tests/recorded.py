"""A kernel that plays exchanges back: for kinds of links that the kernel at hand does not have.

A recording is a list of exchanges, as the kernel's documentation of rtnetlink has them (rtnetlink(7), linux/if_link.h): the
namespace, the request, the answers.  The request that our code sends must be the next one of the recording, to the last
attribute; pyroute2, whose code is not ours, reads it and writes the answers.  Namespaces, and settings below /proc/sys, are
real.  Descriptors of namespaces are told by the namespace they are of, and made-up names of links by ``MADE_UP``.

A recording for a kind that the kernel has can be played *beside* it: then its answers must hold what the recording says.
"""

from __future__ import annotations

import os
import re
import socket
import struct
from typing import TYPE_CHECKING, Any, NamedTuple

from pyroute2.netlink.rtnl.ifaddrmsg import ifaddrmsg
from pyroute2.netlink.rtnl.ifinfmsg import ifinfmsg
from pyroute2.netlink.rtnl.rtmsg import rtmsg

from multus import rtnetlink

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    import pytest
    from kinds import Site

MADE_UP = "MADE-UP"
UP = 1
INET, INET6 = 2, 10
MAIN, BOOT, UNICAST, KERNEL, LINK_SCOPE, PERMANENT = 254, 3, 1, 2, 253, 0x80
NEW = frozenset(("create", "exclusive"))
DUMP = frozenset(("dump",))
WITHOUT_STATISTICS = {"IFLA_EXT_MASK": 8}
_NAME = re.compile(r"^veth[0-9a-f]{8}$")
_HEADER = struct.Struct("=IHHII")
_TYPES = {
    "new link": (16, ifinfmsg), "del link": (17, ifinfmsg), "get link": (18, ifinfmsg),
    "new address": (20, ifaddrmsg), "del address": (21, ifaddrmsg), "get address": (22, ifaddrmsg),
    "new route": (24, rtmsg), "del route": (25, rtmsg), "get route": (26, rtmsg),
}  # fmt: skip
_ERROR, _DONE = 2, 3
_REQUEST, _ACK, _ROOT, _MATCH, _EXCLUSIVE, _CREATE = 1, 4, 0x100, 0x200, 0x200, 0x400
_REPLACE = _ROOT
_DUMP = _ROOT | _MATCH


class Message(NamedTuple):
    """A message of one of the kinds above, ``new`` for those that answers hold.

    ``fields`` are those of the fixed part that are not 0, ``attributes`` by the kernel's names, nested ones as dictionaries.
    """

    kind: str
    fields: dict[str, Any]
    attributes: dict[str, Any]
    flags: frozenset[str] = frozenset()


class Exchange(NamedTuple):
    """A request in the ``pod`` or on the ``host``, and its answer: messages, or the number of an error."""

    where: str
    request: Message
    answer: Sequence[Message] | int = ()


def get(where: str, name: str, answer: Message | int) -> Exchange:
    """The look for a link."""
    request = Message("get link", {}, {"IFLA_IFNAME": name, **WITHOUT_STATISTICS})
    return Exchange(where, request, answer if isinstance(answer, int) else [answer])


class Recording:
    """Played to the code of a test, one exchange after the other; ``rest`` is what nobody has asked for yet.

    Args:
        beside_kernel: The kernel is asked, too, and answers.
    """

    def __init__(self, site: Site, exchanges: Iterable[Exchange], *, beside_kernel: bool = False) -> None:
        self.rest = list(exchanges)
        self.beside_kernel = beside_kernel
        self._namespaces = {_inode(site.pod.path): "pod", _inode("/proc/thread-self/ns/net"): "host"}

    def play(self, monkeypatch: pytest.MonkeyPatch) -> None:
        """Take the kernel's place."""
        monkeypatch.setattr(rtnetlink, "socket", lambda *_: _Socket(self))

    def where(self, path: str) -> str:
        """Which namespace a path is of."""
        return self._namespaces.get(_inode(path), "elsewhere")

    def answer(self, where: str, request: Message) -> Sequence[Message] | int:
        assert self.rest, f"the recording is at its end, and {where} is asked: {request}"
        expected = self.rest.pop(0)
        assert (where, request) == expected[:2]
        return expected.answer


class _Socket:
    """A netlink socket, in the namespace in which the thread is that makes it."""

    def __init__(self, recording: Recording) -> None:
        self._recording = recording
        self._where = recording.where("/proc/thread-self/ns/net")
        self._answers: list[bytes] = []
        self._kernel = socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, socket.NETLINK_ROUTE) if recording.beside_kernel else None

    def setsockopt(self, *option: int) -> None:
        """The kernel's extended acknowledgements and strict checks make no difference to what is played."""
        if self._kernel:
            self._kernel.setsockopt(*option)

    def send(self, data: bytes) -> None:
        assert not self._answers, "the last answer was not read to its end"
        length, number, flags, sequence, _ = _HEADER.unpack_from(data)
        assert length == len(data)
        answer = self._recording.answer(self._where, _read(data, self._recording, is_request=True))
        if self._kernel:
            self._kernel.send(data)
            self._answers = list(_received(self._kernel))
            *told, end = self._answers
            (code,) = struct.unpack_from("=i", end, _HEADER.size)
            assert -code == (answer if isinstance(answer, int) else 0)
            assert isinstance(answer, int) or _holds([_read(each, self._recording) for each in told], list(answer))
            return
        messages = () if isinstance(answer, int) else answer
        code = struct.pack("=i", -answer if isinstance(answer, int) else 0)
        done, acknowledgement = (20, _DONE, 2, sequence, 0), (36, _ERROR, 0, sequence, 0)
        is_dump = number % 4 == 2 and flags & _DUMP == _DUMP  # each object's third kind asks for it
        end = _HEADER.pack(*done) + code if is_dump else _HEADER.pack(*acknowledgement) + code + data[:_HEADER.size]
        self._answers = [*(_written(message, sequence) for message in messages), end]

    def recv(self, size: int) -> bytes:
        return self._answers.pop(0)

    def close(self) -> None:
        if self._kernel:
            self._kernel.close()


def _received(kernel: socket.socket) -> Iterator[bytes]:
    """The messages of an answer, one by one."""
    while True:
        data = kernel.recv(1 << 16)
        while data:
            length, number = _HEADER.unpack_from(data)[:2]
            yield data[:length]
            if number in (_ERROR, _DONE):
                return
            data = data[length + -length % 4:]


def _holds(told: Any, recorded: Any) -> bool:
    """Whether the kernel told all that is recorded: of messages, attributes and flags at least these."""
    if isinstance(recorded, Message):
        return told.kind == recorded.kind and _holds(told.fields, recorded.fields) and _holds(told.attributes, recorded.attributes)
    if isinstance(recorded, list):
        return all(any(_holds(each, message) for each in told) for message in recorded)
    if not isinstance(recorded, dict):
        return bool(told == recorded)
    flags = {key for key in recorded if key.lower().endswith("flags")}
    return recorded.keys() <= told.keys() and all(
        told[key] & value == value if key in flags else _holds(told[key], value) for key, value in recorded.items()
    )


def _read(data: bytes, recording: Recording, *, is_request: bool = False) -> Message:
    _, number, flags, *_ = _HEADER.unpack_from(data)
    kind, parser = next((kind, parser) for kind, (known, parser) in _TYPES.items() if known == number)
    message = parser(data)
    message.decode()
    fields = {name: message[name] for name, _ in parser.fields if message[name]}
    attributes = _plain(message, recording, is_request)
    if not is_request:
        return Message(kind, fields, attributes)
    assert flags & _REQUEST
    assert flags & _ACK
    names = {"dump": _DUMP} if kind.startswith("get") else {"create": _CREATE, "exclusive": _EXCLUSIVE, "replace": _REPLACE}
    return Message(kind, fields, attributes, frozenset(name for name, bits in names.items() if flags & bits == bits))


def _plain(message: Any, recording: Recording, is_request: bool) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, value, *_ in message["attrs"]:
        assert not is_request or (name not in found and name != "UNKNOWN"), f"{name} is said twice, or pyroute2 does not know it"
        found[name] = _plain(value, recording, is_request) if isinstance(value, dict) and "attrs" in value else value
        if name == "IFLA_IFNAME" and _NAME.match(value):
            found[name] = MADE_UP
        if name == "IFLA_NET_NS_FD":
            found[name] = recording.where(f"/proc/self/fd/{value}")
    return found


def _written(message: Message, sequence: int) -> bytes:
    number, parser = _TYPES[message.kind]
    written = parser()
    for name, value in message.fields.items():
        written[name] = value
    written["attrs"] = _nested(message.attributes)
    written["header"]["type"] = number
    written["header"]["sequence_number"] = sequence
    written.encode()
    return bytes(written.data)


def _nested(attributes: dict[str, Any]) -> list[tuple[str, Any]]:
    return [(name, {"attrs": _nested(value)} if isinstance(value, dict) else value) for name, value in attributes.items()]


def _inode(path: str) -> int:
    return os.stat(path).st_ino
