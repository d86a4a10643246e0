"""The IPAM plugin that a network's ``ipam.type`` names: one of this package's, or none for an interface without addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import InvalidConfigError
from multus_netlink.allocation import Allocation
from multus_netlink.configuration import Section, unserved
from multus_netlink.host_local import HostLocal
from multus_netlink.static import Static

if TYPE_CHECKING:
    from multus.types.invocation import Invocation

_PLUGINS: dict[str, HostLocal | Static] = {"host-local": HostLocal(), "static": Static()}


def is_wanted(invocation: Invocation) -> bool:
    """Whether the interface is to have addresses."""
    return bool(Section.of(invocation).section("ipam").text("type"))


def require(invocation: Invocation) -> None:
    """Raise InvalidConfigError if the interface is to have no addresses, or by a plugin that is not of this package."""
    _plugin(invocation)


def require_served(invocation: Invocation) -> None:
    """Raise UnsupportedFieldError if there is an ``ipam`` that this package does not serve."""
    ipam = invocation.config.get("ipam")
    if not ipam or (isinstance(ipam, dict) and not ipam.get("type")):
        return
    kind = ipam.get("type") if isinstance(ipam, dict) else ipam
    plugin = _PLUGINS.get(kind) if isinstance(kind, str) else None
    if plugin is None:
        raise unserved("ipam.type" if isinstance(ipam, dict) else "ipam", kind)
    plugin.accepts(invocation)


def allocate(invocation: Invocation) -> Allocation:
    """Addresses for the interface.

    Raises:
        InvalidConfigError: The plugin has none to give.
        MultusError: What else the plugin raises.
    """
    allocation = _plugin(invocation).allocate(invocation)
    if not allocation.ips:
        raise InvalidConfigError(f"interface {invocation.ifname}: ipam gives no address")
    return allocation


def release(invocation: Invocation) -> None:
    """Take the interface's addresses back, if it is one with addresses."""
    if is_wanted(invocation):
        _plugin(invocation).delete(invocation)


def check(invocation: Invocation) -> None:
    """Raise if the interface's addresses are not on record any more."""
    if is_wanted(invocation):
        _plugin(invocation).check(invocation)


def gc(invocation: Invocation) -> None:
    """Take addresses back that belong to no valid attachment."""
    if is_wanted(invocation):
        _plugin(invocation).gc(invocation)


def status(invocation: Invocation) -> None:
    """Raise NotAvailableError if there are no addresses to give."""
    if is_wanted(invocation):
        _plugin(invocation).status(invocation)


def _plugin(invocation: Invocation) -> HostLocal | Static:
    ipam = Section.of(invocation).section("ipam")
    plugin = _PLUGINS.get(ipam.text("type"))
    if plugin is None:
        raise ipam.refusal("type", " or ".join(_PLUGINS))
    return plugin
