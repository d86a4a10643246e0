"""The master of a pod's interface: the link that it is made on, of the host, or with ``linkInContainer`` of the pod itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multus.errors import IOFailureError, MultusError, NotAvailableError
from multus_netlink import ipam
from multus_netlink.allocation import read_dns, result_of
from multus_netlink.configuration import Section
from multus_netlink.interface import ANNOUNCE, Adding, configure
from multus_netlink.links import Links
from multus_netlink.made import MadeInterface

if TYPE_CHECKING:
    from collections.abc import Iterable

    from multus.types.invocation import Invocation
    from multus.types.result import Result
    from multus_netlink.allocation import Allocation
    from multus_netlink.links import Link

KEYS = frozenset(("master", "mtu", "linkInContainer"))
"""What is read here of a configuration."""


class OnMaster(MadeInterface):
    """All of ``multus.hooks.delegates.LinkDelegate`` but ``add`` and ``check``."""

    keys = KEYS

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if the master is missing from the host or there are no addresses to give.

        A master in a pod is not looked for: STATUS has no pod.
        """
        ipam.status(invocation)
        config = Section.of(invocation)
        try:
            if not _is_in_pod(config):
                with Links() as host:
                    find_master(host, host, config)
        except MultusError as exc:
            raise NotAvailableError(exc.msg) from exc


def attach(
    invocation: Invocation,
    kind: str,
    master: str = "",
    allocation: Allocation | None = None,
    settings: Iterable[tuple[str, str, str]] = ANNOUNCE,
    **fields: Any,
) -> Result:
    """Make the pod's interface, a link of that kind with these fields, and give it addresses.

    Args:
        master: The name of its master if the configuration has none; empty: the first default route tells.
        allocation: The addresses; without, those of the ``ipam``.
        settings: As ``interface.configure`` takes them.

    Raises:
        InvalidConfigError: A value is not valid, or there is no default route to go by.
        IOFailureError: The kernel refuses.
        MultusError: What the IPAM plugin raises.
    """
    config = Section.of(invocation)
    dns = read_dns(config.section("dns"))
    with Adding(invocation) as adding:
        on = find_master(adding.host, adding.pod, config, master)
        where: dict[str, Any] = {"link": on.ifindex} if _is_in_pod(config) else {"on": on}
        link = adding.make(kind, mtu=config.mtu(), **where, **fields)
        allocation = allocation or adding.allocate(interface=0)
        configure(adding.pod, link, invocation, allocation, settings)
        made = {"name": invocation.ifname, "mac": link.mac, "sandbox": invocation.netns}
        return result_of(invocation, allocation._replace(dns=dns), [made])


def find_master(host: Links, pod: Links, config: Section, name: str = "") -> Link:
    """The link that ``master`` names, else that of ``name``, else that of the first default route; ``mtu`` is not larger than its.

    Raises:
        InvalidConfigError: There is no default route to go by, or ``mtu`` is too large.
        IOFailureError: There is no such link.
    """
    links = pod if _is_in_pod(config) else host
    name = config.text("master") or name
    link = links.get(name) if name else _by_default_route(links, config)
    if not 0 <= config.mtu() <= link.mtu:
        raise config.refusal("mtu", f"from 0 to that of master {link.name}, {link.mtu}")
    return link


def check_master(invocation: Invocation, link: Link, master: Link) -> None:
    """Raise IOFailureError if the interface is not on its master."""
    if link.peer != master.ifindex:
        raise IOFailureError(f"interface {invocation.ifname}: it is not on {master.name}")


def _is_in_pod(config: Section) -> bool:
    return config.flag("linkInContainer")


def _by_default_route(links: Links, config: Section) -> Link:
    for family in (4, 6):
        for route in links.routes(family):
            link = links.at(route.oif) if route.dst.endswith("/0") and route.oif else None
            if link is not None:
                return link
    raise config.refusal("master", "given, and there is no default route to go by")
