"""Flows that the kernel keeps track of: those of UDP outlive a change of the rules, so they are forgotten.

Spec: the kernel's ``linux/netfilter/nfnetlink_conntrack.h``.
"""

from __future__ import annotations

import socket
import struct
from typing import TYPE_CHECKING, NamedTuple

from multus.rtnetlink import attribute, parsed
from multus_netlink.nfnetlink import Netfilter, Request, nested

if TYPE_CHECKING:
    from collections.abc import Callable

_SUBSYSTEM = 1
_GET, _DELETE = 1, 2
_FIRST_WAY, _ANSWER, _FILTER = 1, 2, 25
_ADDRESSES, _TRANSPORT = 1, 2
_SOURCE = {4: 1, 6: 3}
_PROTOCOL, _DESTINATION_PORT = 1, 3
_BY_PROTOCOL_AND_PORT = 0x28


class Flow(NamedTuple):
    """A flow: how the kernel tells it, the port that it was for at first, and who answers it (a packed address)."""

    first_way: bytes
    port: int
    answered_by: bytes


def forget_udp(family: int, port: int, is_stale: Callable[[Flow], bool]) -> None:
    """Forget the stale flows of a family (4 or 6) that were for this UDP port of any address, as far as that goes."""
    try:
        with Netfilter() as netfilter:
            for flow in _flows(netfilter, family, port):
                if flow.port == port and is_stale(flow):
                    netfilter.ask(Request(_SUBSYSTEM, _DELETE, family, nested(_FIRST_WAY, flow.first_way)))
    except OSError:
        pass  # they end by themselves, only later


def _flows(netfilter: Netfilter, family: int, port: int) -> list[Flow]:
    transport = attribute(_PROTOCOL, bytes((socket.IPPROTO_UDP,))) + attribute(_DESTINATION_PORT, struct.pack(">H", port))
    chosen = nested(_FIRST_WAY, nested(_TRANSPORT, transport))  # before Linux 5.8 nothing is chosen, and all are listed
    chosen += nested(_FILTER, attribute(1, struct.pack("=I", _BY_PROTOCOL_AND_PORT)), attribute(2, bytes(4)))
    return [_flow(parsed(body), family) for body in netfilter.listed(Request(_SUBSYSTEM, _GET, family, chosen))]


def _flow(found: dict[int, bytes], family: int) -> Flow:
    transport = parsed(parsed(found[_FIRST_WAY])[_TRANSPORT])
    is_udp = transport.get(_PROTOCOL) == bytes((socket.IPPROTO_UDP,))
    port = struct.unpack(">H", transport[_DESTINATION_PORT])[0] if is_udp and _DESTINATION_PORT in transport else 0
    answered_by = parsed(parsed(found[_ANSWER])[_ADDRESSES]).get(_SOURCE[family], b"")
    return Flow(found[_FIRST_WAY], port, answered_by)
