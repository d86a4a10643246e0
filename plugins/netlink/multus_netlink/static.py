"""The IPAM plugin ``static``: the addresses that the configuration, or the pod, names."""

from __future__ import annotations

from ipaddress import ip_interface
from typing import TYPE_CHECKING, NamedTuple

from multus.errors import InvalidConfigError, InvalidEnvironmentError, MultusError, NotAvailableError
from multus.protocol import addresses, results
from multus.types.result import IPConfig
from multus_netlink.allocation import DNS_KEYS, Allocation, read_dns, read_routes, require_one_per_family, result_of
from multus_netlink.configuration import Section, generic_args, require_all_served, require_served, unserved
from multus_netlink.ranges import parse_address

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_KEYS = {"addresses": frozenset(("address", "gateway")), "routes": frozenset(("dst", "gw"))}


class _Assigned(NamedTuple):
    address: str
    gateway: str = ""


class Static:
    """Implements ``multus.hooks.delegates.InProcessDelegate``, and ``allocate`` for the networks of this package."""

    def accepts(self, invocation: Invocation) -> bool:
        """Declines what it does not serve of ``ipam``, a route's metric, table and the like for one, by an UnsupportedFieldError."""
        ipam = invocation.config.get("ipam")
        if not isinstance(ipam, dict):
            raise unserved("ipam", ipam)
        require_served(ipam, ("type", "name", "dns", *_KEYS), (), where="ipam.")
        require_all_served([ipam.get("dns")], DNS_KEYS, where="ipam.dns.")
        for key, keys in _KEYS.items():
            require_all_served(ipam.get(key), keys, where=f"ipam.{key}.")
        return True

    def allocate(self, invocation: Invocation) -> Allocation:
        """The addresses of ``ipam`` and of CNI_ARGS, or those of ``args.cni.ips`` or ``runtimeConfig.ips`` instead.

        Raises:
            InvalidConfigError, InvalidEnvironmentError: One of them is not valid.
        """
        config = Section.of(invocation)
        ipam, assigned = config.section("ipam"), _assigned(invocation)
        require_one_per_family(config, [each.address for each in assigned])
        return Allocation(
            tuple(IPConfig(each.address, each.gateway) for each in assigned), read_routes(ipam), read_dns(ipam.section("dns"))
        )

    def add(self, invocation: Invocation) -> Result:
        """The allocation as a result without interfaces."""
        return result_of(invocation, self.allocate(invocation))

    def delete(self, invocation: Invocation) -> None:
        """Nothing is kept, so nothing is taken back."""

    def check(self, invocation: Invocation) -> None:
        """The addresses of the previous result have the gateways of the configuration.

        Raises:
            InvalidConfigError: One has another, or there is no previous result.
        """
        previous = invocation.config.get("prevResult")
        if previous is None:
            raise InvalidConfigError(f"interface {invocation.ifname}: prevResult is missing")
        had = results.view(results.parse(previous, str(invocation.config.get("cniVersion") or ""))).ips
        for each in _assigned(invocation):
            same = next((ip for ip in had if _host(ip.address) == _host(each.address)), None)
            if each.gateway and same is not None and same.gateway != each.gateway:
                what = f"{each.address} has the gateway {same.gateway!r}, not {each.gateway}"
                raise InvalidConfigError(f"interface {invocation.ifname}: {what}")

    def gc(self, invocation: Invocation) -> None:
        """Nothing is kept."""

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if the configuration is not valid."""
        try:
            self.allocate(invocation)
        except MultusError as exc:
            raise NotAvailableError(exc.msg) from exc


def _assigned(invocation: Invocation) -> list[_Assigned]:
    """The addresses of ``runtimeConfig.ips``, else of ``args.cni.ips``, else those of ``ipam`` and of CNI_ARGS."""
    config = Section.of(invocation)
    own = list(config.section("ipam").sections("addresses"))
    by_environment = _by_environment(invocation)
    asked = [_asked(owner) for owner in (config.section("args").section("cni"), config.section("runtimeConfig"))]
    for found in reversed(asked):
        if found:
            return found
    return [_Assigned(each.cidr("address"), each.ip("gateway")) for each in own] + by_environment


def _asked(owner: Section) -> list[_Assigned]:
    found = [_Assigned(addresses.canonical_cidr(text) or "") for text in owner.texts("ips")]
    if not all(each.address for each in found):
        raise owner.refusal("ips", f"a list of addresses with prefix lengths: {', '.join(owner.texts('ips'))}")
    return found


def _by_environment(invocation: Invocation) -> list[_Assigned]:
    """The addresses of CNI_ARGS; a gateway there is that of each of them whose network it is in."""
    args = generic_args(invocation, ("IP", "GATEWAY"))
    assigned = []
    for text in args["IP"].split(",") if args.get("IP") else ():
        cidr = addresses.canonical_cidr(text.strip())
        if cidr is None:
            raise InvalidEnvironmentError(f"interface {invocation.ifname}: CNI_ARGS IP {text!r} is no address with a prefix length")
        assigned.append(_Assigned(cidr))
    for text in args["GATEWAY"].split(",") if args.get("GATEWAY") else ():
        gateway = parse_address(text.strip())
        if gateway is None:
            raise InvalidEnvironmentError(f"interface {invocation.ifname}: CNI_ARGS GATEWAY {text!r} is not an IP address")
        assigned = [
            each._replace(gateway=str(gateway)) if gateway in ip_interface(each.address).network else each for each in assigned
        ]
    return assigned


def _host(cidr: str) -> str:
    return cidr.partition("/")[0]
