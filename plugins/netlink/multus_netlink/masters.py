"""The master of a pod's interface: the link that it is made on, of the host, or with ``linkInContainer`` of the pod itself."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from multus.errors import IOFailureError, MultusError, NotAvailableError
from multus_netlink.configuration import Section
from multus_netlink.links import Links

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus_netlink.interface import Adding
    from multus_netlink.links import Link

KEYS = frozenset(("master", "mtu", "linkInContainer"))
"""What is read here of a configuration."""


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


def make_on(adding: Adding, config: Section, master: Link, kind: str, **fields: Any) -> Link:
    """Make the pod's interface on its master, down.

    Raises:
        IOFailureError: The kernel refuses; that it exists already, for one.
    """
    if _is_in_pod(config):
        return adding.make(kind, link=master.ifindex, mtu=config.mtu(), **fields)
    return adding.make(kind, on=master, mtu=config.mtu(), **fields)


def check_master(invocation: Invocation, link: Link, master: Link) -> None:
    """Raise IOFailureError if the interface is not on its master."""
    if link.peer != master.ifindex:
        raise IOFailureError(f"interface {invocation.ifname}: it is not on {master.name}")


def master_status(invocation: Invocation) -> None:
    """Raise NotAvailableError if the master is missing from the host.  One in a pod is not looked for: STATUS has no pod."""
    config = Section.of(invocation)
    try:
        if not _is_in_pod(config):
            with Links() as host:
                find_master(host, host, config)
    except MultusError as exc:
        raise NotAvailableError(exc.msg) from exc


def _is_in_pod(config: Section) -> bool:
    return config.flag("linkInContainer")


def _by_default_route(links: Links, config: Section) -> Link:
    for family in (4, 6):
        for route in links.routes(family):
            link = links.at(route.oif) if route.dst.endswith("/0") and route.oif else None
            if link is not None:
                return link
    raise config.refusal("master", "given, and there is no default route to go by")
