"""The package's table of nftables, and the matches and statements that its rules are made of.

For IPv4 and IPv6 there is a table of this name, with the chains

- ``prerouting`` and ``output``, which send connections to the host's own addresses to ``hostports``;
- ``hostports``, with the rules that send them on to pods;
- ``postrouting``, with the rules that replace source addresses;

and one for what passes bridges, with the chain ``prerouting``.

A rule carries a comment, by which it is found again.  Spec: the kernel's ``linux/netfilter/nf_tables.h``.
"""

from __future__ import annotations

import errno
import socket
import struct
import threading
from typing import TYPE_CHECKING, NamedTuple, Self, TypeAlias

from multus.errors import IOFailureError
from multus.rtnetlink import CREATE, attribute, parsed
from multus_netlink.nfnetlink import APPEND, BRIDGE, FAMILIES, Netfilter, Request, named, nested, number

if TYPE_CHECKING:
    from collections.abc import Iterable
    from ipaddress import IPv4Address, IPv4Network, IPv6Address, IPv6Network
    from types import TracebackType

Statement: TypeAlias = bytes
"""A part of a rule, as the kernel takes it: a match, or what is to be done."""

TABLE = "multus"
HOSTPORTS = "hostports"
PREROUTING = "prerouting"
POSTROUTING = "postrouting"
PROTOCOLS = {"tcp": socket.IPPROTO_TCP, "udp": socket.IPPROTO_UDP, "sctp": socket.IPPROTO_SCTP}

_SUBSYSTEM = 10
_NEW_TABLE, _NEW_CHAIN, _NEW_RULE, _GET_RULE, _DELETE_RULE, _GET_GENERATION = 0, 3, 6, 7, 8, 16
_HOOKS = {PREROUTING: (0, -100), "output": (3, -100), POSTROUTING: (4, 100)}
"""The hook and the priority of each base chain: where nftables itself puts translation of destinations and sources."""
_BRIDGE_PRIORITY = -300
_TO_HOSTPORTS = "to hostports"
_JUMPS = ((PREROUTING, _TO_HOSTPORTS), ("output", _TO_HOSTPORTS))
_TRIES = 10
_changing = threading.Lock()
"""A change during a list makes it void: threads that attach at once would keep each other from ever getting one."""

_EQUAL, _NOT_EQUAL = 0, 1
_REGISTER, _SECOND_REGISTER = 1, 2
_LINK_HEADER, _NETWORK_HEADER, _TRANSPORT_HEADER = 0, 1, 2
_SOURCE_MAC = 6
_SOURCE = {4: (12, 4), 6: (8, 16)}  # offset and length in the header
_DESTINATION = {4: (16, 4), 6: (24, 16)}
_DESTINATION_PORT = 2
_META_IN_NAME, _META_PROTOCOL = 6, 16
_LONGEST_NAME = 16
_FIB_ADDRESS_TYPE, _FIB_OF_DESTINATION, _LOCAL = 3, 2, 2
_CT_STATUS, _CT_DESTINATION_PORT, _STATUS_DNAT = 2, 12, 0x20
_DROP, _JUMP = 0, -3
_DNAT = 1


class Rule(NamedTuple):
    """A rule to be: its chain, its statements in order, and its comment of at most 127 bytes."""

    chain: str
    statements: tuple[Statement, ...]
    comment: str


class KernelRule(NamedTuple):
    """A rule that is there; the handle is its number in the table."""

    chain: str
    handle: int
    comment: str


class Table:
    """The table of one family, 4, 6 or ``BRIDGE``, while in its ``with`` block; it comes into being with the first rule.

    Raises IOFailureError for what the kernel refuses.
    """

    def __init__(self, family: int, ifname: str = "") -> None:
        self._netfilter = Netfilter()
        self._family = family
        self._what = f"interface {ifname}: " if ifname else ""

    def __enter__(self) -> Self:
        try:
            self._netfilter.__enter__()
        except OSError as exc:
            raise IOFailureError(f"{self._what}cannot open a netlink socket: {exc.strerror}") from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        self._netfilter.__exit__(kind, exc, traceback)

    def require(self) -> None:
        """Raise IOFailureError if this kernel has no nftables for us."""
        try:
            self._netfilter.ask(self._request(_GET_GENERATION, b""))
        except OSError as exc:
            raise IOFailureError(f"{self._what}nftables cannot be used: {exc.strerror}") from exc

    def rules(self, *beginnings: str) -> list[KernelRule]:
        """The rules whose comments begin with one of these texts, of every chain; none as well if this kernel has no nftables."""
        try:
            listed = self._netfilter.listed(self._request(_GET_RULE, named(1, TABLE)))
        except OSError as exc:
            if exc.errno in (errno.ENOENT, errno.EINVAL):
                return []
            raise IOFailureError(f"{self._what}cannot list the rules of nftables: {exc.strerror}") from exc
        # Of many pods' rules few are looked for, and only those are taken apart.
        packed = [each.encode() for each in beginnings]
        found = [_rule(parsed(body)) for body in listed if any(each in body for each in packed)]
        return [rule for rule in found if rule.comment.startswith(beginnings)]

    def replace(self, beginning: str, rules: Iterable[Rule], keeping: tuple[str, ...] = ()) -> None:
        """Remove the rules whose comments begin with a text, but not with one of ``keeping``, and add others, in one transaction.

        The table is made, or mended, before.
        """
        added = [self._added(rule) for rule in rules]
        for left in reversed(range(_TRIES)):
            try:
                with _changing:
                    there = self.rules(beginning, _TO_HOSTPORTS)
                    missing = self._skeleton() if added and not self._is_ready(there) else []
                    stale = [each for each in there if each.comment.startswith(beginning) and not each.comment.startswith(keeping)]
                    self._netfilter.commit([*missing, *added, *map(self._removed, stale)])
                return
            except OSError as exc:
                # What was listed has changed: a stale rule is gone, or the whole table.
                if exc.errno != errno.ENOENT or not left:
                    raise IOFailureError(f"{self._what}cannot change the rules of nftables: {exc.strerror}") from exc

    def lacks(self, beginning: str, rules: Iterable[Rule]) -> str:
        """The comment of a rule that is missing, or what else is; empty: nothing.  The comments begin with that text."""
        found = {(each.chain, each.comment) for each in self.rules(beginning, _TO_HOSTPORTS)}
        own = [(each.chain, each.comment) for each in rules]
        wanted = [*self._jumps, *own] if own else []
        return next((f"{comment!r} in chain {chain}" for chain, comment in wanted if (chain, comment) not in found), "")

    def _skeleton(self) -> list[Request]:
        """The table and its chains; jumps are made anew, so that two calls at once make one."""
        requests = [self._request(_NEW_TABLE, named(1, TABLE), CREATE)]
        if self._family == BRIDGE:
            return [*requests, self._base_chain(PREROUTING, "filter", 0, _BRIDGE_PRIORITY)]
        jump = (local_destination(), _to_chain(HOSTPORTS))
        requests.append(self._request(_NEW_CHAIN, named(1, TABLE) + named(3, HOSTPORTS), CREATE))
        for chain, (hook, priority) in _HOOKS.items():
            requests.append(self._base_chain(chain, "nat", hook, priority))
            if chain != POSTROUTING:
                requests.append(self._request(_DELETE_RULE, named(1, TABLE) + named(2, chain)))
                requests.append(self._added(Rule(chain, jump, _TO_HOSTPORTS)))
        return requests

    def _base_chain(self, name: str, kind: str, hook: int, priority: int) -> Request:
        place = nested(4, number(1, hook), number(2, priority))
        return self._request(_NEW_CHAIN, named(1, TABLE) + named(3, name) + place + named(7, kind), CREATE)

    @property
    def _jumps(self) -> tuple[tuple[str, str], ...]:
        """The chain and the comment of the rules that bring packets to those of attachments."""
        return () if self._family == BRIDGE else _JUMPS

    def _is_ready(self, there: list[KernelRule]) -> bool:
        """Whether the rules that are there show the skeleton to be there; that of bridges is so small that it is always sent."""
        return self._family != BRIDGE and all(any((each.chain, each.comment) == jump for each in there) for jump in _JUMPS)

    def _added(self, rule: Rule) -> Request:
        comment = rule.comment.encode() + b"\0"
        content = [named(1, TABLE), named(2, rule.chain), nested(4, *rule.statements)]
        content.append(attribute(7, struct.pack("BB", 0, len(comment)) + comment))
        return self._request(_NEW_RULE, b"".join(content), CREATE | APPEND)

    def _removed(self, rule: KernelRule) -> Request:
        handle = attribute(3, struct.pack(">Q", rule.handle))
        return self._request(_DELETE_RULE, named(1, TABLE) + named(2, rule.chain) + handle)

    def _request(self, command: int, body: bytes, flags: int = 0) -> Request:
        return Request(_SUBSYSTEM, command, self._family, body, flags)


def _rule(found: dict[int, bytes]) -> KernelRule:
    data = found.get(7, b"")
    comment = data[2:2 + data[1]].rstrip(b"\0").decode(errors="replace") if len(data) > 2 and data[0] == 0 else ""
    return KernelRule(found[2].rstrip(b"\0").decode(), struct.unpack(">Q", found[3])[0], comment)


# --- Matches ---


def source(network: IPv4Network | IPv6Network, *, negated: bool = False) -> Statement:
    return _in_network(network, _SOURCE, negated)


def destination(network: IPv4Network | IPv6Network, *, negated: bool = False) -> Statement:
    return _in_network(network, _DESTINATION, negated)


def protocol(name: str) -> Statement:
    """A transport protocol of ``PROTOCOLS``."""
    return _meta(_META_PROTOCOL) + _compared(bytes((PROTOCOLS[name],)))


def destination_port(port: int) -> Statement:
    """Behind ``protocol``."""
    return _payload(_TRANSPORT_HEADER, _DESTINATION_PORT, 2) + _compared(struct.pack(">H", port))


def in_interface(name: str, *, negated: bool = False) -> Statement:
    return _meta(_META_IN_NAME) + _compared(name.encode().ljust(_LONGEST_NAME, b"\0"), negated)


def source_mac(mac: str, *, negated: bool = False) -> Statement:
    """Of a frame that passes a bridge."""
    return _payload(_LINK_HEADER, _SOURCE_MAC, 6) + _compared(bytes.fromhex(mac.replace(":", "")), negated)


def local_destination() -> Statement:
    """One of the host's own addresses."""
    looked_up = number(1, _REGISTER) + number(2, _FIB_ADDRESS_TYPE) + number(3, _FIB_OF_DESTINATION)
    return _expression("fib", looked_up) + _compared(struct.pack("=I", _LOCAL))


def sent_on_from(port: int) -> Statement:
    """Connections whose destination was replaced, and that were for this port at first."""
    status = _expression("ct", number(1, _REGISTER) + number(2, _CT_STATUS)) + _masked(struct.pack("=I", _STATUS_DNAT))
    first = _expression("ct", number(1, _REGISTER) + number(2, _CT_DESTINATION_PORT) + attribute(3, b"\0"))
    return status + _compared(bytes(4), negated=True) + first + _compared(struct.pack(">H", port))


# --- What is to be done ---


def send_to(address: IPv4Address | IPv6Address, port: int) -> Statement:
    """Replace the destination."""
    values = _immediate(_REGISTER, address.packed) + _immediate(_SECOND_REGISTER, struct.pack(">H", port))
    registers = number(3, _REGISTER) + number(5, _SECOND_REGISTER)
    return values + _expression("nat", number(1, _DNAT) + number(2, FAMILIES[address.version]) + registers)


def masquerade() -> Statement:
    """Replace the source by the host's address on the way out."""
    return _expression("masq", b"")


def drop() -> Statement:
    return _verdict(number(1, _DROP))


def _to_chain(chain: str) -> Statement:
    return _verdict(number(1, _JUMP), named(2, chain))


# --- How the kernel has them ---


def _expression(name: str, content: bytes) -> Statement:
    return nested(1, named(1, name), nested(2, content))


def _verdict(*parts: bytes) -> Statement:
    return _expression("immediate", number(1, 0) + nested(2, nested(2, *parts)))


def _meta(key: int) -> Statement:
    return _expression("meta", number(1, _REGISTER) + number(2, key))


def _payload(header: int, offset: int, length: int) -> Statement:
    return _expression("payload", number(1, _REGISTER) + number(2, header) + number(3, offset) + number(4, length))


def _compared(value: bytes, negated: bool = False) -> Statement:
    how = number(1, _REGISTER) + number(2, _NOT_EQUAL if negated else _EQUAL)
    return _expression("cmp", how + nested(3, attribute(1, value)))


def _masked(mask: bytes) -> Statement:
    registers = number(1, _REGISTER) + number(2, _REGISTER) + number(3, len(mask))
    return _expression("bitwise", registers + nested(4, attribute(1, mask)) + nested(5, attribute(1, bytes(len(mask)))))


def _immediate(register: int, value: bytes) -> Statement:
    return _expression("immediate", number(1, register) + nested(2, attribute(1, value)))


def _in_network(network: IPv4Network | IPv6Network, where: dict[int, tuple[int, int]], negated: bool) -> Statement:
    offset, length = where[network.version]
    masked = b"" if network.prefixlen == network.max_prefixlen else _masked(network.netmask.packed)
    return _payload(_NETWORK_HEADER, offset, length) + masked + _compared(network.network_address.packed, negated)
