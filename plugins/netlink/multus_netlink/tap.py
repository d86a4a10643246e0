"""The network ``tap``: a pod's interface whose other end is a program of the pod, a virtual machine for one."""

from __future__ import annotations

import fcntl
import os
import struct
from typing import TYPE_CHECKING, Any

from multus.errors import IOFailureError
from multus.netns import Entered
from multus_netlink.allocation import read_dns, result_of
from multus_netlink.configuration import Section, requested_mac
from multus_netlink.interface import Adding, Checking, configure, require_absent
from multus_netlink.made import MadeInterface

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_DEVICE = "/dev/net/tun"
_LAST_ID = 2**32 - 2
_TAP = 0x0002
_NO_PACKET_INFORMATION = 0x1000
_MULTI_QUEUE = 0x0100
_EXCLUSIVE = 0x8000
# A request that writes an int: the kernel's _IOW('T', number, int), of which some machines have their own layout.
_WRITE = 0x80045400 if os.uname().machine.startswith(("ppc", "mips", "sparc", "alpha")) else 0x40045400
_SET_INTERFACE, _SET_PERSISTENT, _SET_OWNER, _SET_GROUP = (_WRITE | number for number in (202, 203, 204, 206))
_SETTINGS = (("ipv4", "arp_notify", "1"),)


class Tap(MadeInterface):
    """Implements ``multus.hooks.delegates.LinkDelegate``.  Declines ``selinuxContext``, which needs a process of that context."""

    keys = frozenset(("mac", "mtu", "multiQueue", "owner", "group", "bridge"))

    def add(self, invocation: Invocation) -> Result:
        """Make the interface, a port of ``bridge`` in the pod if that is given; give it addresses if there is an ``ipam``.

        Raises:
            InvalidConfigError: A value is not valid.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        mac = requested_mac(invocation, config)
        mtu = config.mtu()
        owner, group, queues = _id(config, "owner"), _id(config, "group"), config.flag("multiQueue")
        bridge = config.text("bridge")
        dns = read_dns(config.section("dns"))
        with Adding(invocation) as adding:
            pod = adding.pod
            require_absent(pod, invocation)
            fields: dict[str, Any] = {"address": mac, "mtu": mtu, "master": pod.get(bridge).ifindex if bridge else 0}
            _make(invocation, owner, group, queues)
            link = adding.own()
            given = {key: value for key, value in fields.items() if value}
            if given:
                pod.change(link, f"set {', '.join(given)} of", **given)
            allocation = adding.allocate(interface=0)
            configure(pod, link, invocation, allocation, _SETTINGS)
            made = {"name": invocation.ifname, "mac": mac or link.mac, "sandbox": invocation.netns}
            return result_of(invocation, allocation._replace(dns=dns), [made])

    def check(self, invocation: Invocation) -> None:
        """The interface is up, on its bridge if that is given, with the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        bridge = Section.of(invocation).text("bridge")
        with Checking(invocation, "tun") as checking:
            if bridge and checking.link.master != checking.pod.get(bridge).ifindex:
                raise IOFailureError(f"interface {invocation.ifname}: it is not on bridge {bridge}")


def _id(config: Section, key: str) -> int | None:
    """The number of a user or a group, of which 0 is one; None: not given."""
    if not config.has(key):
        return None
    value = config.whole(key)
    if not 0 <= value <= _LAST_ID:
        raise config.refusal(key, f"from 0 to {_LAST_ID}")
    return value


def _make(invocation: Invocation, owner: int | None, group: int | None, queues: bool) -> None:
    """Make the interface, which stays when nobody has it open.

    Whoever opens it says anew what its packets look like; only whether it has several queues is for good.
    """
    flags = _TAP | _NO_PACKET_INFORMATION | _EXCLUSIVE | (_MULTI_QUEUE if queues else 0)
    try:
        with Entered(invocation.netns):
            fd = os.open(_DEVICE, os.O_RDWR | os.O_CLOEXEC)  # stays in the namespace in which it was opened
        try:
            fcntl.ioctl(fd, _SET_INTERFACE, struct.pack("16sH22x", invocation.ifname.encode(), flags))
            for request, value in ((_SET_OWNER, owner), (_SET_GROUP, group), (_SET_PERSISTENT, 1)):
                if value is not None:
                    fcntl.ioctl(fd, request, value - 2**32 if value >= 2**31 else value)  # a C int, of which the kernel takes the bits
        finally:
            os.close(fd)
    except OSError as exc:
        raise IOFailureError(f"interface {invocation.ifname}: cannot make it by {_DEVICE} in {invocation.netns}: {exc.strerror}") from exc
