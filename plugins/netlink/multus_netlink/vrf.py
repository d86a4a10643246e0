"""The chained plugin ``vrf``: puts a pod's interface into a VRF of the pod, a routing domain of its own, made when it is first wanted."""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING

from multus.errors import InvalidNetnsError, IOFailureError, MultusError
from multus.protocol import results
from multus_netlink.configuration import Section, require_served
from multus_netlink.interface import previous_result, settle
from multus_netlink.links import Links

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result
    from multus_netlink.links import Link

_KEYS = frozenset(("vrfname", "table"))
_LAST_TABLE = 2**32 - 1
_SYSTEM_TABLES = frozenset((253, 254, 255))
"""The kernel's own: default, main, local."""


class Vrf:
    """Implements ``multus.hooks.delegates.LinkDelegate``."""

    def accepts(self, invocation: Invocation) -> bool:
        require_served(invocation.config, _KEYS)
        return True

    def add(self, invocation: Invocation) -> Result:
        """Put the interface into the VRF, with its addresses and routes, and pass the previous result on.

        Raises:
            InvalidConfigError: A value is not valid, there is no previous result, or the VRF has another table.
            IOFailureError: The interface is missing or has a master already, or the kernel refuses.
        """
        config = Section.of(invocation)
        name, table = _name(config), _table(config)
        previous_result(invocation)
        with Links(invocation.netns, invocation.ifname) as pod:
            link = pod.get(invocation.ifname)
            if link.master:
                master = pod.at(link.master)
                raise IOFailureError(f"interface {link.name}: it is in {master.name if master else 'another master'} already")
            vrf = pod.find(name)
            if vrf is not None and vrf.kind != "vrf":
                raise config.refusal("vrfname", f"a VRF, but a link of kind {vrf.kind!r}")
            if vrf is not None and table and _table_of(vrf) != table:
                raise config.refusal("table", f"that of VRF {name}, {_table_of(vrf)}")
            try:
                _move(pod, link, vrf or _make(pod, name, table))
            except BaseException:
                try:
                    if _take_out(pod, invocation.ifname, name):
                        pod.remove(name)
                except MultusError:
                    pass  # the failure that is being undone says more
                raise
        version = str(invocation.config.get("cniVersion") or "")
        return results.convert(results.parse(invocation.config["prevResult"], version), version)

    def delete(self, invocation: Invocation) -> None:
        """Take the interface out of the VRF, and remove a VRF that nothing is in any more."""
        for name in self.release(invocation):
            with Links(invocation.netns, invocation.ifname) as pod:
                pod.remove(name)

    def release(self, invocation: Invocation) -> tuple[str, ...]:
        """Take the interface out of the VRF, and leave a VRF that nothing is in any more to be removed with links of its pod."""
        name = _name(Section.of(invocation))
        if not invocation.netns:
            return ()
        try:
            with Links(invocation.netns, invocation.ifname) as pod:
                return (name,) if _take_out(pod, invocation.ifname, name) else ()
        except InvalidNetnsError:
            return ()  # it has taken its links with it

    def check(self, invocation: Invocation) -> None:
        """The VRF is there and up, of the table that is configured, and the interface is in it.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: A value is not valid, or there is no previous result.
        """
        config = Section.of(invocation)
        name, table = _name(config), _table(config)
        previous_result(invocation)
        with Links(invocation.netns, invocation.ifname) as pod:
            link, vrf = pod.get(invocation.ifname), pod.get(name)
            if vrf.kind != "vrf":
                raise IOFailureError(f"interface {link.name}: {name} is no VRF, but of kind {vrf.kind!r}")
            if not vrf.is_up:
                raise IOFailureError(f"interface {link.name}: VRF {name} is down")
            if link.master != vrf.ifindex:
                raise IOFailureError(f"interface {link.name}: it is not in VRF {name}")
            found = _table_of(vrf)
            if table and found != table:
                raise IOFailureError(f"interface {link.name}: the table of VRF {name} is {found}, not {table}")

    def gc(self, invocation: Invocation) -> None:
        """Nothing is kept outside the pods."""

    def status(self, invocation: Invocation) -> None:
        """It can always serve."""


def _name(config: Section) -> str:
    name = config.text("vrfname")
    if not name:
        raise config.refusal("vrfname", "the name of a VRF")
    return name


def _table(config: Section) -> int:
    """The number of the routing table; 0: any that is free."""
    table = config.whole("table")
    if not 0 <= table <= _LAST_TABLE:
        raise config.refusal("table", f"from 0 to {_LAST_TABLE}")
    return table


def _table_of(vrf: Link) -> int:
    return int(vrf.details.get("vrf_table", 0))


def _free_table(pod: Links) -> int:
    taken = {_table_of(each) for each in pod.every() if each.kind == "vrf"} | _SYSTEM_TABLES
    return next(table for table in range(1, _LAST_TABLE) if table not in taken)


def _make(pod: Links, name: str, table: int) -> Link:
    pod.add(name, "vrf", vrf_table=table or _free_table(pod))
    vrf = pod.get(name)
    pod.set_up(vrf)
    return vrf


def _move(pod: Links, link: Link, vrf: Link) -> None:
    """Put the interface into the VRF.

    The kernel takes it down and up for that: IPv6 addresses may go, and routes that it did not make itself.
    """
    addresses = [each for each in pod.addresses(link, 6) if not ip_interface(each.cidr).is_link_local]
    routes = pod.kept_routes(link)
    pod.change(link, f"put into VRF {vrf.name} the", master=vrf.ifindex)
    left = {each.cidr for each in pod.addresses(link, 6)}
    for address in addresses:
        if address.cidr not in left:
            pod.add_address(link, address.cidr)
    if any(route.wants_source for route in routes):
        settle(pod, link)
    table = _table_of(vrf)
    for route in routes:
        pod.put_route(route, table)


def _take_out(pod: Links, ifname: str, name: str) -> bool:
    """Take the interface out of the VRF, if it is in; whether there is that VRF and nothing is in it."""
    vrf = pod.find(name)
    if vrf is None or vrf.kind != "vrf":
        return False
    link = pod.find(ifname)
    if link is not None and link.master == vrf.ifindex:
        pod.change(link, f"take out of VRF {name} the", master=0)
    return not any(each.master == vrf.ifindex for each in pod.every())
