"""The network ``vlan``: a pod's interface for one tag of another interface, its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink import ipam
from multus_netlink.configuration import Section
from multus_netlink.interface import Checking
from multus_netlink.masters import KEYS, OnMaster, attach, check_master, find_master

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_LAST_ID = 4094


class Vlan(OnMaster):
    """Implements ``multus.hooks.delegates.LinkDelegate``."""

    keys = KEYS | {"vlanId"}

    def add(self, invocation: Invocation) -> Result:
        """Make the interface and give it addresses.

        Raises:
            InvalidConfigError: A value is not valid.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        ipam.require(invocation)
        return attach(invocation, "vlan", settings=(), data={"vlan_id": _read(config)})

    def check(self, invocation: Invocation) -> None:
        """The interface is up, on its master, with its tag, MTU, and the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        config = Section.of(invocation)
        vlan_id, mtu = _read(config), config.mtu()
        with Checking(invocation, "vlan") as checking:
            link = checking.link
            check_master(invocation, link, find_master(checking.host, checking.pod, config))
            found = link.details.get("vlan_id")
            if found != vlan_id:
                raise IOFailureError(f"interface {invocation.ifname}: its VLAN is {found}, not {vlan_id}")
            if mtu and link.mtu != mtu:
                raise IOFailureError(f"interface {invocation.ifname}: its MTU is {link.mtu}, not {mtu}")


def _read(config: Section) -> int:
    """The VLAN's number; there is a ``master``."""
    vlan_id = config.whole("vlanId")
    if not 0 <= vlan_id <= _LAST_ID:
        raise config.refusal("vlanId", f"from 0 to {_LAST_ID}")
    if not config.text("master"):
        raise config.refusal("master", "the name of a link")
    return vlan_id
