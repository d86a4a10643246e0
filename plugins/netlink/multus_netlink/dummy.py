"""The network ``dummy``: a pod's interface that leads nowhere and has addresses."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus_netlink import ipam
from multus_netlink.allocation import result_of
from multus_netlink.interface import Adding, Checking, configure
from multus_netlink.made import MadeInterface

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result


class Dummy(MadeInterface):
    """Implements ``multus.hooks.delegates.LinkDelegate``."""

    def add(self, invocation: Invocation) -> Result:
        """Make the interface and give it addresses.  Name servers are the IPAM plugin's; ``dns`` is of no effect.

        Raises:
            InvalidConfigError: There is no ``ipam``.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        ipam.require(invocation)
        with Adding(invocation) as adding:
            link = adding.make("dummy")
            allocation = adding.allocate(interface=0)
            configure(adding.pod, link, invocation, allocation, settings=())
            made = {"name": invocation.ifname, "mac": link.mac, "sandbox": invocation.netns}
            return result_of(invocation, allocation, [made])

    def check(self, invocation: Invocation) -> None:
        """The interface is up, with the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no ``ipam`` or no previous result, or it is another interface's.
        """
        ipam.require(invocation)
        with Checking(invocation, "dummy"):
            pass
