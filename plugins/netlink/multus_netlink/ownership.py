"""Whose something on the host is: a plugin's, a network's, an attachment's.

The comment of a rule of nftables begins with two digests that say so, the alias of a link is the first of them.
"""

from __future__ import annotations

import hashlib
from typing import TYPE_CHECKING

from multus_netlink.configuration import Section, valid_attachments
from multus_netlink.nftables import Table

if TYPE_CHECKING:
    from multus.types.invocation import Invocation

_DIGITS = 12


def tag(invocation: Invocation, plugin: str) -> str:
    """What the comments of the attachment's rules begin with."""
    return _tag(invocation, plugin, invocation.container_id, invocation.ifname)


def remove(invocation: Invocation, plugin: str, families: tuple[int, ...] = (4, 6)) -> None:
    """Remove the attachment's rules, as many as there are."""
    _remove(invocation, tag(invocation, plugin), families)


def collect(invocation: Invocation, plugin: str, families: tuple[int, ...] = (4, 6)) -> None:
    """Remove the rules of the network that belong to no valid attachment.

    Raises:
        InvalidConfigError: The configuration has no list of attachments.
    """
    valid = tuple(_tag(invocation, plugin, *each) for each in valid_attachments(invocation))
    _remove(invocation, f"{network(invocation, plugin)} ", families, valid)


def network(invocation: Invocation, plugin: str) -> str:
    """What stands for a plugin on the call's network."""
    return _digest(f"{plugin} {Section.of(invocation).text('name')}")


def _remove(invocation: Invocation, beginning: str, families: tuple[int, ...], keeping: tuple[str, ...] = ()) -> None:
    for family in families:
        with Table(family, invocation.ifname) as table:
            table.replace(beginning, (), keeping)


def _tag(invocation: Invocation, plugin: str, container_id: str, ifname: str) -> str:
    return f"{network(invocation, plugin)} {_digest(f'{container_id} {ifname}')}"


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode(errors="replace")).hexdigest()[:_DIGITS]
