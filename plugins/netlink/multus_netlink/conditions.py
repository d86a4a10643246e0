"""Conditions on the connections that are sent on, as nftables writes them: the matches of addresses and interfaces.

Served is any number of ``ip saddr``, ``ip daddr`` (``ip6`` likewise) with an address or a network, and ``iifname`` with a
name, each with ``==``, ``!=`` or nothing between.
"""

from __future__ import annotations

import re
from ipaddress import ip_network
from typing import TYPE_CHECKING

from multus.protocol import addresses
from multus_netlink import nftables

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus_netlink.nftables import Statement

_HEADER = {4: "ip", 6: "ip6"}
_ADDRESS = {"saddr": nftables.source, "daddr": nftables.destination}
_OPERATORS = {"==": False, "eq": False, "!=": True, "ne": True}
_NAME = re.compile(r"[\w.:-]{1,15}", re.ASCII)  # with a star it would be a pattern


def parse(texts: Sequence[str], family: int) -> tuple[Statement, ...] | None:
    """The matches that a list of words, or of whole conditions, stands for; None: there is one that is not served."""
    words = " ".join(texts).split()
    statements: list[Statement] = []
    while words:
        statement = _next(words, family)
        if statement is None:
            return None
        statements.append(statement)
    return tuple(statements)


def _next(words: list[str], family: int) -> Statement | None:
    """The first match of ``words``, which it is taken off."""
    first = words.pop(0)
    if first == "meta" and words[:1] == ["iifname"]:
        first = words.pop(0)
    field = words.pop(0) if first == _HEADER[family] and words else ""
    negated = _OPERATORS.get(words[0]) if words else None
    if negated is not None:
        words.pop(0)
    value = words.pop(0) if words else ""
    if first == "iifname":
        name = value.removeprefix('"').removesuffix('"')
        return nftables.in_interface(name, negated=bool(negated)) if _NAME.fullmatch(name) else None
    parsed = addresses.parse_cidr(value if "/" in value else f"{value}/{32 if family == 4 else 128}")
    if field not in _ADDRESS or parsed is None or parsed[0] != family:
        return None
    return _ADDRESS[field](ip_network(parsed[1:], strict=False), negated=bool(negated))
