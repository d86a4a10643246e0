"""The network ``macvlan``: a pod's interface with a MAC of its own on another interface, its master."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink import ipam
from multus_netlink.allocation import read_dns, result_of
from multus_netlink.configuration import Section, requested_mac
from multus_netlink.interface import Adding, Checking, configure
from multus_netlink.made import MadeInterface
from multus_netlink.masters import KEYS, check_master, find_master, make_on, master_status

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_MODES = ("bridge", "private", "vepa", "passthru")
_LONGEST_QUEUE = 2**32 - 1


class Macvlan(MadeInterface):
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
        mode = _mode(config)
        queue = config.whole("bcqueuelen")
        if not 0 <= queue <= _LONGEST_QUEUE:
            raise config.refusal("bcqueuelen", f"from 0 to {_LONGEST_QUEUE}")
        mac = requested_mac(invocation, config)
        dns = read_dns(config.section("dns"))
        with Adding(invocation) as adding:
            master = find_master(adding.host, adding.pod, config)
            link = make_on(adding, config, master, "macvlan", macvlan_mode=mode, macvlan_bc_queue_len=queue, address=mac)
            allocation = adding.allocate(interface=0)
            configure(adding.pod, link, invocation, allocation)
            made = {"name": invocation.ifname, "mac": link.mac, "sandbox": invocation.netns}
            return result_of(invocation, allocation._replace(dns=dns), [made])

    def check(self, invocation: Invocation) -> None:
        """The interface is up, on its master, of its mode, with the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        config = Section.of(invocation)
        mode = _mode(config)
        with Checking(invocation, "macvlan") as checking:
            check_master(invocation, checking.link, find_master(checking.host, checking.pod, config))
            if checking.link.mode != mode:
                raise IOFailureError(f"interface {invocation.ifname}: its mode is {checking.link.mode}, not {mode}")

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if the master is missing or there are no addresses to give."""
        ipam.status(invocation)
        master_status(invocation)


def _mode(config: Section) -> str:
    mode = config.text("mode") or _MODES[0]
    if mode not in _MODES:
        raise config.refusal("mode", f"one of {', '.join(_MODES)}")
    return mode
