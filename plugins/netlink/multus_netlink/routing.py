"""Which routing table a packet is looked up in, and routes as they are, to be put into another table.

Spec: the kernel's ``linux/fib_rules.h`` and ``linux/rtnetlink.h``.
"""

from __future__ import annotations

import errno
from ipaddress import ip_address
from typing import TYPE_CHECKING, NamedTuple

from multus import rtnetlink
from multus.rtnetlink import CREATE, EXCLUSIVE, REPLACE, attribute, u32, whole
from multus_netlink.links import Links
from multus_netlink.route_messages import AF, MAIN_TABLE

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multus.rtnetlink import Message

_RULE_SOURCE, _RULE_PRIORITY, _RULE_TABLE = 2, 6, 15
_TO_TABLE = 1
_DST, _OIF, _GATEWAY, _PREFSRC, _TABLE, _CACHE_INFO, _EXPIRES = 1, 4, 5, 7, 15, 12, 23
_UNICAST = 1
_SCOPE_LINK = 253
_BITS = {4: 32, 6: 128}


class SourceRule(NamedTuple):
    """A rule that sends what comes from one address to a table; ``priority`` 0: the kernel's choice."""

    source: str
    table: int
    priority: int = 0


class ListedRoute(NamedTuple):
    """A unicast route of the main table, as the kernel tells it."""

    message: Message

    @property
    def is_of_the_link(self) -> bool:
        """Whether it leads to what is on the link itself."""
        return self.message.fields[6] == _SCOPE_LINK

    @property
    def source(self) -> str:
        """The source that it prefers; empty: none."""
        return self._address(_PREFSRC)

    @property
    def gateway(self) -> str:
        return self._address(_GATEWAY)

    def __str__(self) -> str:
        return f"{self._address(_DST) or 'default'}/{self.message.fields[1]}"

    def _address(self, kind: int) -> str:
        packed = self.message.attributes.get(kind)
        return str(ip_address(packed)) if packed else ""


class RoutingLinks(Links):
    """Links with rules, and with the routes of every table."""

    def device_to(self, address: str) -> str:
        """The name of the link by which an address is reached; empty: by none."""
        ip = ip_address(address)
        fixed = (AF[ip.version], _BITS[ip.version], 0, 0, 0, 0, 0, 0, 0)
        what = f"cannot look for the route to {address}"
        found = self._request(what, rtnetlink.GETROUTE, fixed, attribute(_DST, ip.packed), tolerated=errno.ENETUNREACH)
        link = self.at(whole(found[0].attributes[_OIF])) if found and _OIF in found[0].attributes else None
        return link.name if link else ""

    def source_rules(self) -> list[SourceRule]:
        """The rules of both families for one source address each."""
        found = []
        for message in self._listed(rtnetlink.GETRULE):
            source = message.attributes.get(_RULE_SOURCE, b"")
            if source and message.fields[2] == len(source) * 8:
                priority = whole(message.attributes.get(_RULE_PRIORITY, b""))
                found.append(SourceRule(str(ip_address(source)), _table(message, _RULE_TABLE), priority))
        return found

    def tables(self) -> set[int]:
        """The tables that a rule names or a route is in."""
        named = {_table(message, _RULE_TABLE) for message in self._listed(rtnetlink.GETRULE)}
        return named | {_table(message, _TABLE) for message in self._listed(rtnetlink.GETROUTE)}

    def add_rule(self, rule: SourceRule) -> None:
        what = f"cannot add the rule from {rule.source} to table {rule.table}"
        self._request(what, rtnetlink.NEWRULE, *_rule_request(rule), flags=CREATE | EXCLUSIVE)

    def remove_rule(self, rule: SourceRule) -> None:
        """Remove a rule, if it is there."""
        what = f"cannot remove the rule from {rule.source} to table {rule.table}"
        self._request(what, rtnetlink.DELRULE, *_rule_request(rule), tolerated=errno.ENOENT)

    def routes_by(self, index: int) -> list[ListedRoute]:
        """The main table's unicast routes by the link of an index, of both families."""
        return [
            ListedRoute(message) for message in self._listed(rtnetlink.GETROUTE)
            if whole(message.attributes.get(_OIF, b"")) == index and message.fields[7] == _UNICAST and _table(message, _TABLE) == MAIN_TABLE
        ]  # fmt: skip

    def copy_route(self, route: ListedRoute, table: int) -> None:
        """A route in a table, in place of another to the same destination."""
        what = f"cannot put the route to {route} into table {table}"
        self._request(what, rtnetlink.NEWROUTE, *_route_request(route.message, table), flags=CREATE | REPLACE)

    def take_route(self, route: ListedRoute, table: int = MAIN_TABLE) -> None:
        """Remove a route from a table, if it is there."""
        what = f"cannot remove the route to {route} from table {table}"
        self._request(what, rtnetlink.DELROUTE, *_route_request(route.message, table), tolerated=errno.ESRCH)

    def empty_table(self, table: int) -> None:
        """Remove every route of a table."""
        for message in list(self._listed(rtnetlink.GETROUTE)):
            if _table(message, _TABLE) == table:
                self.take_route(ListedRoute(message), table)

    def _listed(self, kind: int) -> Iterator[Message]:
        """Rules or routes of both families."""
        for family in AF.values():
            yield from self._request("cannot list rules and routes", kind, (family, *(0,) * 8), flags=rtnetlink.DUMP) or ()


def _table(message: Message, kind: int) -> int:
    return whole(message.attributes[kind]) if kind in message.attributes else message.fields[4]


def _rule_request(rule: SourceRule) -> tuple[tuple[int, ...], bytes]:
    source = ip_address(rule.source)
    attributes = attribute(_RULE_SOURCE, source.packed) + attribute(_RULE_TABLE, u32(rule.table))
    if rule.priority:
        attributes += attribute(_RULE_PRIORITY, u32(rule.priority))
    return (AF[source.version], 0, _BITS[source.version], 0, 0, 0, 0, _TO_TABLE, 0), attributes


def _route_request(message: Message, table: int) -> tuple[tuple[int, ...], bytes]:
    """The route as it is, but for its table, and what the kernel says of its age and state."""
    kept = [attribute(kind, value) for kind, value in message.attributes.items() if kind not in (_TABLE, _CACHE_INFO, _EXPIRES)]
    family, length, source_length, tos, _, protocol, scope, kind, _ = message.fields
    fixed = (family, length, source_length, tos, table if table < 256 else 0, protocol, scope, kind, 0)
    return fixed, b"".join(kept) + attribute(_TABLE, u32(table))
