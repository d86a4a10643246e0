"""The IPAM plugin ``host-local``: addresses of ranges, one node's worth, kept on disk beside the binary's and with its lock."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING

from multus import files
from multus.errors import InvalidConfigError, InvalidEnvironmentError, IOFailureError, MultusError, NotAvailableError, TryAgainLaterError
from multus.protocol import addresses, environment
from multus.types.result import IPConfig
from multus_netlink.allocation import Allocation, read_routes, require_one_per_family, result_of
from multus_netlink.configuration import Section, generic_args, require_all_served, require_served, unserved, valid_attachments
from multus_netlink.leases import DEFAULT_FOLDER, Leases, belongs
from multus_netlink.ranges import Address, Range, RangeSet, candidates, describe, parse_address, range_of, read_sets

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_KEYS = frozenset(("type", "name", "routes", "dataDir", "resolvConf", "ranges", "rangeStart", "rangeEnd", "subnet", "gateway"))
_RANGE_KEYS = frozenset(("rangeStart", "rangeEnd", "subnet", "gateway"))
_ROUTE_KEYS = frozenset(("dst", "gw"))


class HostLocal:
    """Implements ``multus.hooks.delegates.InProcessDelegate``, and ``allocate`` for the networks of this package."""

    def accepts(self, invocation: Invocation) -> bool:
        """Declines what it does not serve of ``ipam``, a route's metric, table and the like for one, by an UnsupportedFieldError."""
        ipam = invocation.config.get("ipam")
        if not isinstance(ipam, dict):
            raise unserved("ipam", ipam)
        require_served(ipam, _KEYS, (), where="ipam.")
        require_all_served(ipam.get("routes"), _ROUTE_KEYS, where="ipam.routes.")
        runtime = invocation.config.get("runtimeConfig")
        more = runtime.get("ipRanges") if isinstance(runtime, dict) else None
        for where, sets in (("ipam.ranges.", ipam.get("ranges")), ("runtimeConfig.ipRanges.", more)):
            for ranges in sets if isinstance(sets, list) else ():
                require_all_served(ranges, _RANGE_KEYS, where=where)
        return True

    def allocate(self, invocation: Invocation) -> Allocation:
        """One address of each range set, those that are asked for first of all.

        Raises:
            InvalidConfigError: The configuration is not valid, or an address that is asked for cannot be had.
            TryAgainLaterError: A range set has no address left.
            IOFailureError: The store cannot be written.
        """
        config = Section.of(invocation)
        sets = read_sets(config)
        require_one_per_family(config, [str(each[0].subnet) for each in sets])
        wanted = _requested(invocation, config)
        routes = read_routes(config.section("ipam"))
        dns = _read_resolv_conf(config.section("ipam").text("resolvConf"))
        reserved: list[Address] = []
        ips: list[IPConfig] = []
        with _leases(invocation) as leases:
            try:
                for number, ranges in enumerate(sets):
                    asked = next((address for address in wanted if range_of(ranges, address)), None)
                    if asked is None:
                        address, found = _next_free(leases, ranges, number, invocation)
                    else:
                        wanted.remove(asked)
                        address, found = asked, _reserve_asked(leases, ranges, asked, number, invocation)
                    reserved.append(address)
                    ips.append(IPConfig(f"{address}/{found.subnet.prefixlen}", str(found.gateway)))
                if wanted:
                    unmet = ", ".join(map(str, wanted))
                    raise InvalidConfigError(f"interface {invocation.ifname}: no range set is left for the requested addresses {unmet}")
            except MultusError:
                leases.release(reserved)
                raise
        return Allocation(tuple(ips), routes, dns)

    def add(self, invocation: Invocation) -> Result:
        """The allocation as a result without interfaces."""
        return result_of(invocation, self.allocate(invocation))

    def delete(self, invocation: Invocation) -> None:
        """Take the attachment's addresses back; that needs no more of the configuration than the network's name."""
        with _leases(invocation) as leases:
            leases.release_of(invocation.container_id, invocation.ifname)

    def check(self, invocation: Invocation) -> None:
        """The attachment still has an address in the store.

        Raises:
            IOFailureError: It has none.
        """
        with _leases(invocation) as leases:
            if not leases.of(invocation.container_id, invocation.ifname):
                what = f"container {invocation.container_id} has no address in {_folder(invocation)}"
                raise IOFailureError(f"interface {invocation.ifname}: {what}")

    def gc(self, invocation: Invocation) -> None:
        """Take back every address of this network that belongs to no valid attachment.

        Raises:
            InvalidConfigError: The configuration has no list of attachments.
        """
        valid = valid_attachments(invocation)
        with _leases(invocation) as leases:
            leases.release_all_but(valid)

    def status(self, invocation: Invocation) -> None:
        """Raise NotAvailableError if a range set is not valid or has no address left, or the store cannot be written."""
        try:
            sets = read_sets(Section.of(invocation))
            with _leases(invocation) as leases:
                taken = leases.owners()
        except MultusError as exc:
            raise NotAvailableError(exc.msg) from exc
        for ranges in sets:
            if all(address in taken for address, _ in candidates(ranges, None)):
                raise NotAvailableError(f"no address is left in range set {describe(ranges)}")


def _leases(invocation: Invocation) -> Leases:
    return Leases(_folder(invocation), invocation.ifname)


def _folder(invocation: Invocation) -> str:
    config = Section.of(invocation)
    if not environment.is_identifier(config.text("name")):
        raise config.refusal("name", "a network's name")
    return os.path.join(config.section("ipam").text("dataDir") or DEFAULT_FOLDER, config.text("name"))


def _requested(invocation: Invocation, config: Section) -> list[Address]:
    """The addresses that are asked for by CNI_ARGS, ``args.cni.ips`` and ``runtimeConfig.ips``, each once."""
    by_environment = generic_args(invocation, ("IP",)).get("IP", "")
    found = []
    if by_environment:
        address = _parse_asked(by_environment)
        if address is None:
            raise InvalidEnvironmentError(f"interface {invocation.ifname}: CNI_ARGS IP {by_environment!r} is not an IP address")
        found.append(address)
    for owner in (config.section("args").section("cni"), config.section("runtimeConfig")):
        for text in owner.texts("ips"):
            address = _parse_asked(text)
            if address is None:
                raise owner.refusal("ips", f"a list of IP addresses: {text!r}")
            found.append(address)
    return list(dict.fromkeys(found))


def _parse_asked(text: str) -> Address | None:
    """An address with or without a prefix length, which says nothing but must be valid."""
    cidr = addresses.canonical_cidr(text) if "/" in text else text
    return parse_address(cidr.partition("/")[0]) if cidr else None


def _reserve_asked(leases: Leases, ranges: RangeSet, address: Address, number: int, invocation: Invocation) -> Range:
    found = range_of(ranges, address)
    what = f"interface {invocation.ifname}: the requested address {address}"
    if found is None or address == found.gateway:
        raise InvalidConfigError(f"{what} is the gateway of its subnet")
    if not leases.reserve(address, invocation.container_id, invocation.ifname, number):
        raise InvalidConfigError(f"{what} is not free in range set {describe(ranges)}")
    return found


def _next_free(leases: Leases, ranges: RangeSet, number: int, invocation: Invocation) -> tuple[Address, Range]:
    taken = leases.owners()
    for address, owner in taken.items():
        if belongs(owner, invocation.container_id, invocation.ifname) and range_of(ranges, address):
            raise InvalidConfigError(f"interface {invocation.ifname}: container {invocation.container_id} has {address} already")
    for address, found in candidates(ranges, leases.last(number)):
        if address not in taken and leases.reserve(address, invocation.container_id, invocation.ifname, number):
            return address, found
    raise TryAgainLaterError(f"interface {invocation.ifname}: no address is left in range set {describe(ranges)}")


def _read_resolv_conf(path: str) -> dict[str, object]:
    """Name servers of a file like resolv.conf; none without a path."""
    if not path:
        return {}
    try:
        lines = files.read(path).decode(errors="replace").splitlines()
    except OSError as exc:
        raise IOFailureError(f"cannot read resolvConf {path!r}: {exc.strerror}") from exc
    found: dict[str, list[str]] = {"nameserver": [], "domain": [], "search": [], "options": []}
    for line in lines:
        key, *values = line.split() or [""]
        if key in found and values:
            found[key] += values if key in ("search", "options") else values[:1]
    dns: dict[str, object] = {"nameservers": found["nameserver"], "search": found["search"], "options": found["options"]}
    dns["domain"] = found["domain"][-1] if found["domain"] else ""
    return {key: value for key, value in dns.items() if value}
