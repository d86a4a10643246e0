"""The pod's default route: moved to the network that asked for it, and read back.

Spec: multi-network CRD standard v1.3 §4.1.2.1.9.  A default route is one without destination or with prefix length 0.
"""

from __future__ import annotations

from multus.errors import MultusError
from multus.protocol import addresses, results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus.core.ports import Netns
    from multus.types.delegate import Attachment

_IPV6_METRIC = 1024
"""What the kernel takes when none is given; with 0 for IPv4, the first gateway's metric."""


def move(attachments: Sequence[Attachment], netns: Netns) -> tuple[Attachment, ...]:
    """Give the default route to the attachment that asked for it, and take it from the others.

    Per family: those of the gateways that were asked for; for an empty list, those in which the attachment's own
    plugin set a default route, which it keeps.  The attachments come back with results that say what is in force.

    Raises:
        MultusError: A route cannot be changed, or the table read back is not as asked.
    """
    chosen = _carrier(attachments)
    if chosen is None:
        return tuple(attachments)
    gateways = _by_family(chosen)
    for attachment in attachments:
        if attachment is not chosen or any(gateways.values()):
            for ifname in _interfaces(attachment, netns):
                for family in _families(chosen, gateways, netns):
                    netns.remove_default_routes(attachment.netns, ifname, family)
    for family, wanted in gateways.items():
        for position, gateway in enumerate(wanted):
            metric = position + _IPV6_METRIC if family == 6 else position
            netns.add_default_route(chosen.netns, chosen.ifname, gateway, metric if position else 0)
    verify(attachments, netns)
    families = _families(chosen, gateways, netns)
    return tuple(_with_result(attachment, attachment is chosen, gateways, families) for attachment in attachments)


def verify(attachments: Sequence[Attachment], netns: Netns) -> None:
    """Read the default routes back, per family that was moved.

    Raises:
        MultusError: Another attachment still has one, or the chosen one's are not those asked for; names interface and gateways.
    """
    chosen = _carrier(attachments)
    if chosen is None:
        return
    gateways = _by_family(chosen)
    for family in _families(chosen, gateways, netns):
        for attachment in attachments:
            wanted = gateways[family] if attachment is chosen else ()
            if attachment is chosen and not any(gateways.values()):
                continue
            for ifname in _interfaces(attachment, netns):
                found = netns.default_routes(attachment.netns, ifname, family)
                expected = wanted if ifname == chosen.ifname else ()
                if tuple(map(addresses.parse_ip, found)) != tuple(map(addresses.parse_ip, expected)):
                    raise MultusError(
                        f"default route: IPv{family} default routes by {ifname!r} are via {list(found)}, {list(expected)} was asked for"
                    )


def _carrier(attachments: Sequence[Attachment]) -> Attachment | None:
    for attachment in attachments:
        selection = attachment.delegate.selection
        if selection is not None and selection.default_route is not None:
            return attachment
    return None


def _by_family(chosen: Attachment) -> dict[int, tuple[str, ...]]:
    """The gateways that were asked for, by family."""
    gateways: dict[int, tuple[str, ...]] = {4: (), 6: ()}
    selection = chosen.delegate.selection
    for gateway in (selection.default_route or ()) if selection else ():
        parsed = addresses.parse_ip(gateway)
        if parsed is not None:
            gateways[parsed[0]] += (gateway,)
    return gateways


def _families(chosen: Attachment, gateways: dict[int, tuple[str, ...]], netns: Netns) -> tuple[int, ...]:
    """The families whose default route moves."""
    if any(gateways.values()):
        return tuple(family for family, wanted in gateways.items() if wanted)
    return tuple(family for family in gateways if netns.default_routes(chosen.netns, chosen.ifname, family))


def _interfaces(attachment: Attachment, netns: Netns) -> list[str]:
    """The attachment's interfaces that are there: its own, and those that its plugins put beside it."""
    names = [attachment.ifname]
    if attachment.result is not None:
        names += [interface.name for interface in results.view(attachment.result).interfaces if interface.sandbox]
    return [name for name in dict.fromkeys(names) if name and netns.has_link(attachment.netns, name)]


def _with_result(
    attachment: Attachment, is_chosen: bool, gateways: dict[int, tuple[str, ...]], families: tuple[int, ...]
) -> Attachment:
    if attachment.result is None or (is_chosen and not any(gateways.values())):
        return attachment
    result = results.with_routes_removed(attachment.result, families)
    if is_chosen:
        result = results.with_default_routes_added(result, [gateways[family][0] for family in families])
    return attachment._replace(result=result)
