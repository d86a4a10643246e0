"""The network ``macvlan``: a pod's interface with a MAC of its own on another interface, its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink.configuration import Section, requested_mac
from multus_netlink.interface import Checking
from multus_netlink.masters import KEYS, OnMaster, attach, check_master, find_master

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_MODES = ("bridge", "private", "vepa", "passthru")
_LONGEST_QUEUE = 2**32 - 1


class Macvlan(OnMaster):
    """Implements ``multus.hooks.delegates.LinkDelegate``."""

    keys = KEYS | {"mode", "mac", "bcqueuelen"}

    def add(self, invocation: Invocation) -> Result:
        """Make the interface, and give it addresses if there is an ``ipam``.

        Raises:
            InvalidConfigError: A value is not valid.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        mode = config.choice("mode", _MODES)
        queue = config.whole("bcqueuelen")
        if not 0 <= queue <= _LONGEST_QUEUE:
            raise config.refusal("bcqueuelen", f"from 0 to {_LONGEST_QUEUE}")
        mac = requested_mac(invocation, config)
        return attach(invocation, "macvlan", macvlan_mode=mode, macvlan_bc_queue_len=queue, address=mac)

    def check(self, invocation: Invocation) -> None:
        """The interface is up, on its master, of its mode, with the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        config = Section.of(invocation)
        mode = config.choice("mode", _MODES)
        with Checking(invocation, "macvlan") as checking:
            check_master(invocation, checking.link, find_master(checking.host, checking.pod, config))
            if checking.link.mode != mode:
                raise IOFailureError(f"interface {invocation.ifname}: its mode is {checking.link.mode}, not {mode}")
