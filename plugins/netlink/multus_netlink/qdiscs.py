"""Queueing of what leaves a link, and the link that lets what comes in queue too.  Spec: the kernel's ``linux/pkt_sched.h``."""

from __future__ import annotations

import errno
import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from multus import rtnetlink
from multus.rtnetlink import CREATE, EXCLUSIVE, attribute, parsed, plain, text, u32
from multus_netlink.links import UP, Links

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multus_netlink.links import Link

_KIND, _OPTIONS = 1, 2
_PARAMETERS, _RATE_64 = 1, 4
_BUCKET = struct.Struct("=8xI12xIII")
"""Rate, limit, buffer, MTU; what a link's framing and peaks would be is left out."""
_ROOT, _ROOT_HANDLE = 0xFFFFFFFF, 0x10000
_INGRESS, _INGRESS_HANDLE = 0xFFFFFFF1, 0xFFFF0000
_CLASS = 0x10001
_U32_CLASS, _U32_SELECTOR, _U32_ACTIONS = 1, 5, 7
_EVERYTHING = struct.pack("=BBBxHHhhI16x", 1, 0, 1, 0, 0, 0, 0, 0)
"""A selector that ends the search, with one key that fits every packet."""
_FIRST_FOR_EVERY_PROTOCOL = (1 << 16) | socket.htons(3)
_ACTION_KIND, _ACTION_OPTIONS, _MIRRED_PARAMETERS = 1, 2, 2
_STOLEN, _REDIRECT_TO_EGRESS = 4, 1
_LATENCY_S = 0.025
_LARGEST = (1 << 32) - 1
_TICKS_PER_S = 15_625_000
"""``/proc/net/psched`` tells it, and the same since Linux 2.6.31."""


class Shape(NamedTuple):
    """A token bucket: its rate in bytes per second, the bytes that may wait, and the time of a burst in ticks."""

    rate: int
    limit: int
    buffer: int

    @classmethod
    def of(cls, rate: int, burst: int) -> Shape:
        """For a rate in bits per second and a burst in bits, with 25 ms of waiting.

        What the kernel cannot count so far is cut off: bursts of more than 274 s, limits of more than 4 GiB.
        """
        rate, burst = rate // 8, burst // 8
        buffer = int(burst * 1_000_000 / rate) * _TICKS_PER_S // 1_000_000
        return cls(rate, min(int(rate * _LATENCY_S) + burst, _LARGEST), min(buffer, _LARGEST))


class QdiscLinks(Links):
    """Links with queues."""

    def add_ifb(self, name: str, mtu: int) -> Link:
        """Make a link, up, that sends back what is redirected to it; its own queue has no length."""
        fields = {"ifname": name, "mtu": mtu, "txqlen": 0, "flags": UP, "change": UP}
        self._change_links(f"cannot make ifb {name}", "add", "ifb", fields)
        return self.get(name)

    def shape(self, link: Link, shape: Shape) -> None:
        """Let what leaves a link wait for tokens."""
        options = attribute(_PARAMETERS, _BUCKET.pack(min(shape.rate, _LARGEST), shape.limit, shape.buffer, 0))
        if shape.rate > _LARGEST:
            options += attribute(_RATE_64, struct.pack("=Q", shape.rate))
        self._add_queue(f"cannot limit the rate of {link.name}", link, _ROOT_HANDLE, _ROOT, "tbf", options)

    def redirect(self, link: Link, to: Link) -> None:
        """Send what comes in by a link out of another one."""
        what = f"cannot redirect what {link.name} receives to {to.name}"
        self._add_queue(what, link, _INGRESS_HANDLE, _INGRESS, "ingress", b"")
        mirred = struct.pack("=IIiiiiI", 0, 0, _STOLEN, 0, 0, _REDIRECT_TO_EGRESS, to.ifindex)
        action = attribute(_ACTION_KIND, text("mirred")) + attribute(_ACTION_OPTIONS, attribute(_MIRRED_PARAMETERS, mirred))
        options = attribute(_U32_CLASS, u32(_CLASS)) + attribute(_U32_SELECTOR, _EVERYTHING)
        options += attribute(_U32_ACTIONS, attribute(1, action))
        attributes = attribute(_KIND, text("u32")) + attribute(_OPTIONS, options)
        fixed = (0, link.ifindex, 0, _INGRESS_HANDLE, _FIRST_FOR_EVERY_PROTOCOL)
        self._request(what, rtnetlink.NEWFILTER, fixed, attributes, flags=CREATE | EXCLUSIVE)

    def shape_of(self, link: Link) -> Shape | None:
        """The token bucket at a link's root; None: there is none."""
        for kind, parent, options in self._queues(link):
            if (kind, parent) == ("tbf", _ROOT):
                found = parsed(options)
                rate, limit, buffer, _ = _BUCKET.unpack_from(found[_PARAMETERS])
                return Shape(rtnetlink.whole(found[_RATE_64]) if _RATE_64 in found else rate, limit, buffer)
        return None

    def is_redirected(self, link: Link) -> bool:
        """Whether there is a queue for what a link receives."""
        return any(kind == "ingress" for kind, _, _ in self._queues(link))

    def free(self, link: Link) -> None:
        """Remove what ``shape`` and ``redirect`` have made, as far as it is there."""
        for parent in (_ROOT, _INGRESS):
            fixed = (0, link.ifindex, 0, parent, 0)
            self._request(f"cannot remove the limits of {link.name}", rtnetlink.DELQDISC, fixed, tolerated=errno.ENOENT)

    def _add_queue(self, what: str, link: Link, handle: int, parent: int, kind: str, options: bytes) -> None:
        attributes = attribute(_KIND, text(kind)) + (attribute(_OPTIONS, options) if options else b"")
        fixed = (0, link.ifindex, handle, parent, 0)
        self._request(what, rtnetlink.NEWQDISC, fixed, attributes, flags=CREATE | EXCLUSIVE)

    def _queues(self, link: Link) -> Iterator[tuple[str, int, bytes]]:
        """The kind, the parent and the options of each queue of a link."""
        what = f"cannot list the queues of {link.name}"
        for message in self._request(what, rtnetlink.GETQDISC, (0, link.ifindex, 0, 0, 0), flags=rtnetlink.DUMP) or ():
            if message.fields[1] == link.ifindex:
                yield plain(message.attributes[_KIND]), message.fields[3], message.attributes.get(_OPTIONS, b"")
