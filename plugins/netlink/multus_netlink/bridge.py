"""The network ``bridge``: a pod's interface on a bridge of the host, which may be the pod's gateway."""

from __future__ import annotations

import time
from ipaddress import ip_interface
from typing import TYPE_CHECKING, NamedTuple

from multus.errors import InvalidConfigError, IOFailureError
from multus.types.result import IPConfig, Route
from multus_netlink.allocation import read_dns, result_of
from multus_netlink.configuration import Section, requested_mac
from multus_netlink.interface import Adding, Checking, configure
from multus_netlink.links import FORWARDING, wish_setting, write_setting
from multus_netlink.made import MadeInterface
from multus_netlink.masquerade import Masquerade
from multus_netlink.spoofing import SpoofCheck
from multus_netlink.veth import make_pair

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result, ResultView
    from multus_netlink.allocation import Allocation
    from multus_netlink.links import Link, Links

_MASQUERADE = Masquerade()
_SPOOF_CHECK = SpoofCheck()
_DEFAULT_NAME = "cni0"
_POD = 2
"""The pod's interface in the list of a result's interfaces."""
_NO_MAC = "00:00:00:00:00:00"
_PORT_WAIT_S = 2.5
_PORT_FIRST_STEP_S, _PORT_LONGEST_STEP_S = 0.0002, 0.02
_DEFAULT = {4: "0.0.0.0/0", 6: "::/0"}


class _Settings(NamedTuple):
    """The configuration, read."""

    bridge: str
    is_gateway: bool
    is_default_gateway: bool
    force_address: bool
    hairpin: bool
    isolated: bool
    leaves_down: bool
    promiscuous: bool
    detects_duplicates: bool
    mtu: int


class Bridge(MadeInterface):
    """Implements ``multus.hooks.delegates.LinkDelegate``.  Declines VLANs."""

    keys = frozenset(
        (
            "bridge", "isGateway", "isDefaultGateway", "forceAddress", "mtu", "hairpinMode", "promiscMode", "enabledad",
            "portIsolation", "disableContainerInterface",
            "preserveDefaultVlan",  # of no effect without vlan and vlanTrunk, which are declined
        )
    )  # fmt: skip
    rules = (_MASQUERADE, _SPOOF_CHECK)

    def add(self, invocation: Invocation) -> Result:
        """Make the bridge if there is none, and the interface on it; give it addresses if there is an ``ipam``.

        Raises:
            InvalidConfigError: A value is not valid, or the bridge has another address and ``forceAddress`` is not set.
            IOFailureError: The kernel refuses.
            MultusError: What the IPAM plugin raises.
        """
        config = Section.of(invocation)
        settings = _read(config)
        mac = requested_mac(invocation, conventions=config.section("args").section("cni"))
        dns = read_dns(config.section("dns"))
        with Adding(invocation) as adding:
            host = adding.host
            bridge = _ensure_bridge(host, invocation, settings)
            pair = make_pair(adding, settings.mtu, mac, bridge)
            adding.undo_by(lambda: _SPOOF_CHECK.stop(invocation))
            _SPOOF_CHECK.start(invocation, pair.host.name, pair.pod.mac)  # while the pod's end is down
            if settings.hairpin:
                host.change(pair.host, "set hairpin mode of", kind="bridge_slave", mode=1)
            if settings.isolated:
                host.change(pair.host, "isolate", kind="bridge_slave", isolated=1)
            allocation = _with_gateways(adding.allocate(_POD), settings)
            if not settings.leaves_down:
                configure(adding.pod, pair.pod, invocation, allocation, _announce(settings))
            if allocation.ips:
                _wait_for_port(host, invocation, pair.host)
                _be_gateway(host, invocation, settings, allocation, bridge)
            made = [
                {"name": bridge.name, "mac": host.get(bridge.name).mac},  # it may have taken the MAC of a port
                {"name": pair.host.name, "mac": pair.host.mac},
                {"name": invocation.ifname, "mac": pair.pod.mac, "sandbox": invocation.netns},
            ]
            result = result_of(invocation, allocation._replace(dns=dns or allocation.dns), made)
            _MASQUERADE.start(invocation, allocation.ips)
            return result

    def check(self, invocation: Invocation) -> None:
        """The bridge and both ends are there, up and joined, with the MACs, addresses and routes of the previous result.

        Raises:
            IOFailureError: They are not.
            InvalidConfigError: There is no previous result, or it is another interface's.
        """
        settings = _read(Section.of(invocation))
        with Checking(invocation, "veth", may_be_down=settings.leaves_down) as checking:
            previous = checking.previous
            bridge = _check_bridge(checking.host, invocation, settings, previous)
            end = checking.host.at(checking.link.peer)
            if end is None or end.kind != "veth" or end.master != bridge.ifindex:
                raise IOFailureError(f"interface {invocation.ifname}: its other end is not on bridge {bridge.name}")
            if not end.is_up:
                raise IOFailureError(f"interface {invocation.ifname}: its other end, {end.name}, is down")
            mac = next((each.mac for each in previous.interfaces if each.name == end.name and not each.sandbox), "")
            if mac and mac.lower() != end.mac:
                raise IOFailureError(f"interface {invocation.ifname}: the MAC of its other end {end.name} is {end.mac}, not {mac}")
            _SPOOF_CHECK.check(invocation, end.name, checking.link.mac)
            _MASQUERADE.check(invocation, previous.ips)


def _read(config: Section) -> _Settings:
    is_default_gateway = config.flag("isDefaultGateway")
    settings = _Settings(
        bridge=config.text("bridge") or _DEFAULT_NAME,
        is_gateway=config.flag("isGateway") or is_default_gateway,
        is_default_gateway=is_default_gateway,
        force_address=config.flag("forceAddress"),
        hairpin=config.flag("hairpinMode"),
        isolated=config.flag("portIsolation"),
        leaves_down=config.flag("disableContainerInterface"),
        promiscuous=config.flag("promiscMode"),
        detects_duplicates=config.flag("enabledad"),
        mtu=config.mtu(),
    )
    if settings.hairpin and settings.promiscuous:
        raise config.refusal("hairpinMode", "possible together with promiscMode")
    if settings.leaves_down and config.section("ipam").text("type"):
        raise config.refusal("disableContainerInterface", "possible together with ipam")
    return settings


def _ensure_bridge(host: Links, invocation: Invocation, settings: _Settings) -> Link:
    """The bridge, up; made if there is none."""
    bridge = host.find(settings.bridge)
    if bridge is None:
        host.add(settings.bridge, "bridge", may_exist=True, mtu=settings.mtu)  # another pod's ADD may be as far
        bridge = host.get(settings.bridge)
    if bridge.kind != "bridge":
        raise Section.of(invocation).refusal("bridge", f"a bridge, but of kind {bridge.kind!r}")
    if settings.promiscuous:
        host.set_promiscuous(bridge)
    wish_setting(f"ipv6/conf/{bridge.name}/accept_ra", "0")
    if not bridge.is_up:
        host.set_up(bridge)
    return bridge


def _with_gateways(allocation: Allocation, settings: _Settings) -> Allocation:
    """The allocation with gateways calculated where there are none, and a default route by them if there is to be one."""
    ips: list[IPConfig] = []
    routes = list(allocation.routes)
    routed: set[int] = set()
    for ip in allocation.ips:
        address = ip_interface(ip.address)
        gateway = ip.gateway or (str(address.network.network_address + 1) if settings.is_gateway else "")
        ips.append(ip._replace(gateway=gateway))
        if settings.is_default_gateway and address.version not in routed:
            routed.add(address.version)
            if not any(route.gw and route.dst == _DEFAULT[address.version] for route in routes):
                routes.append(Route(_DEFAULT[address.version], gateway))
    return allocation._replace(ips=tuple(ips), routes=tuple(routes))


def _announce(settings: _Settings) -> list[tuple[str, str, str]]:
    """The kernel settings of the pod's interface."""
    detection = [("ipv6", "enhanced_dad", "1")] if settings.detects_duplicates else []
    return [*detection, ("ipv6", "accept_dad", str(int(settings.detects_duplicates))), ("ipv4", "arp_notify", "1")]


def _be_gateway(host: Links, invocation: Invocation, settings: _Settings, allocation: Allocation, bridge: Link) -> None:
    """Give the bridge the gateways' addresses, and let the host forward, if it is to be the gateway."""
    if settings.is_gateway:
        for ip in sorted(allocation.ips, key=lambda each: ":" in each.address):
            gateway = f"{ip.gateway}/{ip.address.partition('/')[2]}"
            _ensure_address(host, invocation, bridge, gateway, force=settings.force_address)
        for family in sorted({ip_interface(ip.address).version for ip in allocation.ips}):
            write_setting(FORWARDING[family], "1", invocation.ifname)


def _wait_for_port(host: Links, invocation: Invocation, port: Link) -> None:
    end = time.monotonic() + _PORT_WAIT_S
    step_s = _PORT_FIRST_STEP_S
    while not host.get(port.name).is_operational:
        if time.monotonic() >= end:
            raise IOFailureError(f"interface {invocation.ifname}: its bridge port {port.name} is not operational after {_PORT_WAIT_S:g} s")
        time.sleep(step_s)
        step_s = min(2 * step_s, _PORT_LONGEST_STEP_S)


def _ensure_address(host: Links, invocation: Invocation, bridge: Link, cidr: str, *, force: bool) -> None:
    """The bridge has this address; of IPv4 no other, of IPv6 none whose network overlaps.

    Raises:
        InvalidConfigError: It has such an address, and is not to lose it.
    """
    wanted = ip_interface(cidr)
    for address in host.addresses(bridge, wanted.version):
        had = ip_interface(address.cidr)
        if had == wanted:
            return
        if wanted.version == 4 or had.network.overlaps(wanted.network):
            if not force:
                what = f"bridge {bridge.name!r} has the address {address.cidr}, not {cidr}"
                raise Section.of(invocation).invalid(f"{what}, and forceAddress is not set")
            host.remove_address(bridge, address)
    host.add_address(bridge, str(wanted), may_exist=True)
    # A MAC that was set stays; else a bridge takes the lowest of its ports', which come and go, and zeros without a port.
    mac = bridge.mac if bridge.mac != _NO_MAC else host.get(bridge.name).mac
    host.change(bridge, "fix the MAC of", address=mac)


def _check_bridge(host: Links, invocation: Invocation, settings: _Settings, previous: ResultView) -> Link:
    bridge = host.get(settings.bridge)
    had = next((each for each in previous.interfaces if each.name == settings.bridge and not each.sandbox), None)
    if had is None:
        raise InvalidConfigError(f"interface {invocation.ifname}: prevResult has no bridge {settings.bridge!r}")
    if bridge.kind != "bridge":
        raise IOFailureError(f"interface {invocation.ifname}: {settings.bridge} is no bridge, but of kind {bridge.kind!r}")
    if not bridge.is_up:
        raise IOFailureError(f"interface {invocation.ifname}: bridge {settings.bridge} is down")
    if had.mac and had.mac.lower() != bridge.mac:
        raise IOFailureError(f"interface {invocation.ifname}: the MAC of bridge {settings.bridge} is {bridge.mac}, not {had.mac}")
    if bridge.is_promiscuous != settings.promiscuous:
        raise IOFailureError(f"interface {invocation.ifname}: promiscMode is {settings.promiscuous}, and bridge {settings.bridge} differs")
    return bridge
