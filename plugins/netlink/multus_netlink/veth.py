"""A veth pair between a pod and the host."""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from multus_netlink.interface import random_name
from multus_netlink.links import UP, wish_setting
from multus_netlink.opened import opened

if TYPE_CHECKING:
    from multus_netlink.interface import Adding
    from multus_netlink.links import Link


class Pair(NamedTuple):
    """The two ends."""

    host: Link
    pod: Link


def make_pair(adding: Adding, mtu: int, mac: str = "", bridge: Link | None = None) -> Pair:
    """Make the pod's interface, down, and its other end on the host, up, under a random name, as a port of ``bridge`` if given.

    Raises:
        IOFailureError: The kernel refuses; that it exists already, for one.
    """
    host = adding.host
    name = random_name()
    with opened() as own:
        peer = {"ifname": name, "net_ns_fd": own, **({"mtu": mtu} if mtu else {})}
        link = adding.make("veth", peer=peer, mtu=mtu, address=mac)
    end = host.get(name)
    if bridge is None:
        host.set_up(end)
    else:
        host.change(end, f"bring up on {bridge.name} the", master=bridge.ifindex, flags=UP, change=UP)
    wish_setting(f"ipv6/conf/{name}/accept_ra", "0")
    return Pair(end, link)
