"""Attachments as entries of the network-status annotation.  Spec: multi-network CRD standard v1.3 §5; Multus behaviour."""

from __future__ import annotations

from multus.protocol import addresses, results
from multus.types.pod import NetworkStatus

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.types.delegate import Attachment
    from multus.types.result import Interface, ResultView


def entries(attachment: Attachment) -> tuple[NetworkStatus, ...]:
    """One entry per interface in the pod, in the order of the result; of an empty result none.

    The cluster network always has an entry, and exactly one of its entries is the default.
    """
    if attachment.result is None or attachment.delegate.is_auxiliary:
        return ()
    view = results.view(attachment.result)
    inside = _inside(view, attachment.ifname)
    common = _common(attachment, view)
    if not inside:
        if not view.interfaces and not view.ips and not attachment.delegate.is_cluster_network:
            return ()
        ips = tuple(_address(ip.address) for ip in view.ips if ip.interface is None)
        return (common._replace(interface=attachment.ifname, ips=ips, default=attachment.delegate.is_cluster_network),)
    default = _default_index(view, inside) if attachment.delegate.is_cluster_network else None
    last = max(inside)
    return tuple(
        common._replace(
            interface=interface.name,
            ips=tuple(_address(ip.address) for ip in view.ips if (last if ip.interface is None else ip.interface) == index),
            mac=interface.mac,
            mtu=interface.mtu,
            default=index == default,
        )
        for index, interface in inside.items()
    )


def _inside(view: ResultView, ifname: str) -> dict[int, Interface]:
    """The interfaces in the pod by their index: those with a sandbox; where none has one, the one of our name."""
    inside = {index: interface for index, interface in enumerate(view.interfaces) if interface.sandbox}
    return inside or {index: interface for index, interface in enumerate(view.interfaces) if interface.name == ifname}


def _default_index(view: ResultView, inside: dict[int, Interface]) -> int:
    """The interface of the first address with a gateway, else the first one."""
    for ip in view.ips:
        if ip.gateway and ip.interface is not None:
            return ip.interface if ip.interface in inside else min(inside)
    return min(inside)


def _common(attachment: Attachment, view: ResultView) -> NetworkStatus:
    """What every entry of an attachment says."""
    selection = attachment.delegate.selection
    default_route = selection.default_route if selection is not None else None
    return NetworkStatus(
        attachment.delegate.name,
        dns=view.dns,
        device_info=attachment.device_info,
        gateway=() if default_route else _gateways(view),
        default_route=default_route,
    )


def _gateways(view: ResultView) -> tuple[str, ...]:
    """The next hops of the default routes; for one without, the gateway of an address of its family, if there is one."""
    found = []
    for route in view.routes:
        if addresses.is_default(route.dst):
            parsed = addresses.parse_cidr(route.dst)
            found.append(route.gw or _address_gateway(view, parsed[0] if parsed else 4))
    return tuple(gateway for gateway in found if gateway)


def _address_gateway(view: ResultView, family: int) -> str:
    for ip in view.ips:
        parsed = addresses.parse_ip(ip.gateway) if ip.gateway else None
        if parsed is not None and parsed[0] == family:
            return ip.gateway
    return ""


def _address(cidr: str) -> str:
    return cidr.partition("/")[0]
