"""The network ``host-device``: a link of the host, moved into the pod, and back at the end.

While it is in the pod its alias is the name that it had on the host.
A device whose driver hands it to programs, as DPDK wants it, is no link: it gets addresses in the result and stays where it is.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, NamedTuple

from multus.errors import InvalidNetnsError, IOFailureError, MultusError
from multus_netlink import ipam
from multus_netlink.allocation import read_dns, result_of
from multus_netlink.configuration import Section, require_served
from multus_netlink.interface import Adding, Checking, configure, previous_result, require_absent
from multus_netlink.links import Links
from multus_netlink.opened import opened
from multus_netlink.sysfs import Sysfs

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result
    from multus_netlink.links import Link

_KEYS = frozenset(("device", "hwaddr", "kernelpath", "pciBusID"))
_MAC_LENGTHS = (6, 8, 20)
_USERSPACE_DRIVERS = frozenset(("vfio-pci", "uio_pci_generic", "igb_uio"))


class _Wanted(NamedTuple):
    """What names the device: the first of these that is not empty.  A PCI device may be one for programs whatever names it."""

    name: str
    mac: str
    folder: str
    """In sysfs."""
    is_for_userspace: bool


class HostDevice:
    """Implements ``multus.hooks.delegates.InProcessDelegate``."""

    def __init__(self, sysfs: Sysfs | None = None) -> None:
        self._sysfs = sysfs or Sysfs()

    def accepts(self, invocation: Invocation) -> bool:
        """Declines what the IPAM plugin declines."""
        require_served(invocation.config, _KEYS)
        ipam.require_served(invocation)
        return True

    def add(self, invocation: Invocation) -> Result:
        """Move the device into the pod, and give it addresses if there is an ``ipam``; without, ``dns`` is of no effect.

        Raises:
            InvalidConfigError: A value is not valid, or names no device.
            IOFailureError: There is no such link, or the kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        wanted = self._read(config)
        dns = read_dns(config.section("dns")) if ipam.is_wanted(invocation) else {}
        made = {"name": invocation.ifname, "mac": "", "sandbox": invocation.netns}
        with Adding(invocation) as adding:
            if wanted.is_for_userspace:
                return result_of(invocation, adding.allocate(interface=0)._replace(dns=dns), [made])
            device = self._device(adding.host, config, wanted)
            link = _take(adding.host, adding.pod, invocation, device)
            try:
                allocation = adding.allocate(interface=0)
                configure(adding.pod, link, invocation, allocation, settings=())
                return result_of(invocation, allocation._replace(dns=dns), [{**made, "mac": link.mac}])
            except BaseException:
                _undo(adding.host, adding.pod, link, device)
                raise

    def delete(self, invocation: Invocation) -> None:
        """Take the addresses back, and the device to the host, down; each is done whatever happens to the other.

        Raises:
            IOFailureError: The interface has no alias, so is none of ours, or the host has another link of the device's name.
        """
        try:
            ipam.release(invocation)
        finally:
            if invocation.netns:
                self._return(invocation)

    def check(self, invocation: Invocation) -> None:
        """The interface is up, with the MAC, addresses and routes of the previous result.

        Raises:
            IOFailureError: It is not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        wanted = self._read(Section.of(invocation))
        if wanted.is_for_userspace:  # there may be no link
            ipam.check(invocation)
            previous_result(invocation)
            return
        with Checking(invocation, ""):
            pass

    def gc(self, invocation: Invocation) -> None:
        """Take addresses back that belong to no valid attachment."""
        ipam.gc(invocation)

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if there are no addresses to give.  The device may be in a pod, and is not looked for."""
        ipam.status(invocation)

    def _read(self, config: Section) -> _Wanted:
        """What names the device.  A device ID of the runtime comes before ``pciBusID``; a key that is not used need not be valid.

        Raises:
            InvalidConfigError: A value is not valid, or there is none.
        """
        runtime = config.section("runtimeConfig")
        device_id, pci_id = runtime.text("deviceID"), config.text("pciBusID")
        pci = self._sysfs.on_bus("pci", device_id or pci_id)
        auxiliary = "" if pci else self._sysfs.on_bus("auxiliary", device_id)
        if device_id and not pci and not auxiliary:
            raise runtime.refusal("deviceID", "a PCI or auxiliary device of this node")
        if pci_id and not device_id and not pci:
            raise config.refusal("pciBusID", "a PCI device of this node")
        driver = self._sysfs.driver(pci) if pci else ""
        if pci and not driver:
            raise config.invalid(f"PCI device {device_id or pci_id} has no driver")
        name = config.text("device")
        mac = "" if name else config.mac("hwaddr", _MAC_LENGTHS)
        path = "" if name or mac else config.text("kernelpath")
        if path and not self._sysfs.at(path):
            raise config.refusal("kernelpath", "the path of a device below /sys/devices")
        folder = self._sysfs.at(path) or pci or auxiliary
        if not (name or mac or folder):
            raise config.invalid("no key says which device: device, hwaddr, kernelpath, pciBusID, or runtimeConfig.deviceID")
        return _Wanted(name, mac, folder, driver in _USERSPACE_DRIVERS)

    def _device(self, host: Links, config: Section, wanted: _Wanted) -> Link:
        """The link to move."""
        if wanted.name:
            return host.get(wanted.name)
        if wanted.mac:
            found = next((link for link in host.every() if link.mac == wanted.mac), None)
            if found is None:
                raise config.invalid(f"no link of the host has the hwaddr {wanted.mac}")
            return found
        name = self._sysfs.link_name(wanted.folder)
        if not name:
            raise config.invalid(f"the device {wanted.folder} has no link")
        return host.get(name)

    def _is_for_userspace(self, invocation: Invocation) -> bool:
        try:
            return self._read(Section.of(invocation)).is_for_userspace
        except MultusError:
            return False  # it may be gone from the node

    def _return(self, invocation: Invocation) -> None:
        """Move the device to the host, if it is in the pod.  A namespace that is gone has given a physical one back already."""
        try:
            with Links(ifname=invocation.ifname) as host, Links(invocation.netns, invocation.ifname) as pod:
                link = pod.find(invocation.ifname)
                if link is None:
                    return
                name = link.alias
                if not name and self._is_for_userspace(invocation):
                    return  # the link is made by a program of the pod
                if not name:
                    raise IOFailureError(f"interface {invocation.ifname}: it has no alias that tells its name on the host")
                if host.find(name) is not None:
                    raise IOFailureError(f"interface {invocation.ifname}: it is {name} of the host, which has another link of that name")
                _move_out(pod, link, name)
        except InvalidNetnsError:
            pass


def _take(host: Links, pod: Links, invocation: Invocation, device: Link) -> Link:
    """The device in the pod, down, as the pod's interface."""
    require_absent(pod, invocation)
    try:
        with opened(invocation.netns) as netns:
            host.change(device, f"move to {invocation.netns} the", net_ns_fd=netns, ifname=invocation.ifname, ifalias=device.name)
        return pod.get(invocation.ifname)
    except MultusError:
        moved = pod.find(device.name)  # the kernel moves a link before it renames it
        if moved is not None and moved.mac == device.mac and host.find(device.name) is None:
            _undo(host, pod, moved, device)
        raise


def _undo(host: Links, pod: Links, link: Link, device: Link) -> None:
    """After a failed ADD: give the device back as it was, as far as that goes."""
    try:
        _move_out(pod, link, device.name)
        if device.is_up:
            host.set_up(host.get(device.name))
    except MultusError:
        pass  # the failure that is being undone says more


def _move_out(pod: Links, link: Link, name: str) -> None:
    """Move a link to the thread's own namespace, under a name that is free there.

    It is renamed before, if the pod has no other link of that name: the host's device manager is to see one name alone.
    """
    pod.set_down(link)
    if pod.find(name) is None:
        pod.change(link, f"rename to {name} the", ifname=name)
    try:
        with opened() as own:
            pod.change(link, "give back to the host the", net_ns_fd=own, ifname=name, ifalias="")
    except MultusError:
        pod.change(link, f"rename to {link.name} again the", ifname=link.name)  # so that another DEL finds it
        raise
