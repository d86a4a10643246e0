"""The network ``ptp``: a pod's interface with the host as its other end and its gateway, and no bridge between."""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING

from multus.errors import IOFailureError
from multus_netlink.allocation import read_dns, result_of
from multus_netlink.configuration import Section
from multus_netlink.interface import Adding, Checking, configure
from multus_netlink.links import FORWARDING, write_setting
from multus_netlink.made import MadeInterface
from multus_netlink.masquerade import Masquerade
from multus_netlink.veth import make_pair

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import IPConfig, Result
    from multus_netlink.links import Link, Links

_MASQUERADE = Masquerade()
_POD = 1
"""The pod's interface in the list of a result's interfaces."""
_SCOPE_LINK = 253
_SCOPE_HOST = 254


class Ptp(MadeInterface):
    """Implements ``multus.hooks.delegates.LinkDelegate``."""

    keys = frozenset(("mtu",))
    rules = (_MASQUERADE,)

    def add(self, invocation: Invocation) -> Result:
        """Make the interface, give it addresses, and let the host's end be the gateway.

        Raises:
            InvalidConfigError: A value is not valid, or an address has no gateway.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        mtu = config.mtu()
        dns = read_dns(config.section("dns"))
        with Adding(invocation) as adding:
            host, pod = adding.host, adding.pod
            pair = make_pair(adding, mtu)
            allocation = adding.allocate(_POD)
            if not allocation.ips:
                raise config.invalid("ipam is missing, and without addresses there is nothing to route to")
            for ip in allocation.ips:
                if not ip.gateway:
                    raise config.invalid(f"ipam gives the address {ip.address} no gateway")
                write_setting(FORWARDING[ip_interface(ip.address).version], "1", invocation.ifname)
            configure(pod, pair.pod, invocation, allocation, settings=())
            for ip in allocation.ips:
                _route_by_gateway(pod, pair.pod, ip)
            for ip in allocation.ips:
                host.add_address(pair.host, _alone(ip.gateway))
                host.add_route(pair.host, _alone(ip.address), "", exclusive=True, may_exist=True, scope=_SCOPE_HOST)
            made = [
                {"name": pair.host.name, "mac": pair.host.mac},
                {"name": invocation.ifname, "mac": pair.pod.mac, "sandbox": invocation.netns},
            ]
            result = result_of(invocation, allocation._replace(dns=dns or allocation.dns), made)
            _MASQUERADE.start(invocation, allocation.ips)
            return result

    def check(self, invocation: Invocation) -> None:
        """Both ends are up, with the MAC, addresses and routes of the previous result, and the host has routes to the pod.

        Raises:
            IOFailureError: They are not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        with Checking(invocation, "veth") as checking:
            end = checking.host.at(checking.link.peer)
            if end is None or end.kind != "veth" or not end.is_up:
                raise IOFailureError(f"interface {invocation.ifname}: its other end is gone from the host, or down")
            routed = {route.dst for family in (4, 6) for route in checking.host.routes(family)}
            for ip in checking.previous.ips:
                if _alone(ip.address) not in routed:
                    raise IOFailureError(f"interface {invocation.ifname}: the host's route to {_alone(ip.address)} is gone")
            _MASQUERADE.check(invocation, checking.previous.ips)


def _route_by_gateway(pod: Links, link: Link, ip: IPConfig) -> None:
    """Send what is for the address's own network to the gateway too: nobody else is on the link."""
    interface = ip_interface(ip.address)
    network, source = str(interface.network), str(interface.ip)
    pod.remove_route(link, network)
    pod.add_route(link, _alone(ip.gateway), "", exclusive=True, scope=_SCOPE_LINK, prefsrc=source)
    pod.add_route(link, network, ip.gateway, exclusive=True, prefsrc=source)


def _alone(address: str) -> str:
    """The network of one address, given with or without a prefix length."""
    return str(ip_interface(address.partition("/")[0]))
