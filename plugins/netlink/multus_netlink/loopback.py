"""The network ``loopback``: a pod's ``lo``, up."""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import InvalidConfigError, InvalidNetnsError, IOFailureError
from multus.protocol import results
from multus.types.result import IPConfig
from multus_netlink.allocation import Allocation, read_dns, result_of
from multus_netlink.configuration import Section, require_served
from multus_netlink.links import Links

if TYPE_CHECKING:
    from multus.types.invocation import Invocation
    from multus.types.result import Result

_NAME = "lo"
_NO_MAC = "00:00:00:00:00:00"


class Loopback:
    """Implements ``multus.hooks.delegates.InProcessDelegate``.  The interface is ``lo`` whatever the call names."""

    def accepts(self, invocation: Invocation) -> bool:
        require_served(invocation.config, ())
        return True

    def add(self, invocation: Invocation) -> Result:
        """``lo`` with its addresses, the first of each family; or the previous result, if there is one.

        Raises:
            InvalidConfigError: ``lo`` has an address that is not a loopback one, or ``dns`` is not valid.
        """
        from ipaddress import ip_address  # loaded with the netlink library

        read_dns(Section(invocation.config, f"interface {_NAME}: ").section("dns"))  # not used, but to be valid
        with Links(invocation.netns, _NAME) as pod:
            link = pod.get(_NAME)
            pod.set_up(link)
            found = {family: pod.addresses(link, family) for family in (4, 6)}
        for address in (*found[4], *found[6]):
            if not ip_address(address.address).is_loopback:
                raise InvalidConfigError(f"interface {_NAME}: address {address.cidr} is not a loopback address")
        previous = invocation.config.get("prevResult")
        if previous is not None:
            version = str(invocation.config.get("cniVersion") or "")
            return results.convert(results.parse(previous, version), version)
        ips = tuple(IPConfig(each[0].cidr, interface=0) for each in found.values() if each)
        return result_of(invocation, Allocation(ips), [{"name": _NAME, "mac": _NO_MAC, "sandbox": invocation.netns}])

    def delete(self, invocation: Invocation) -> None:
        """Bring ``lo`` down, if its namespace is still there."""
        if invocation.netns:
            try:
                with Links(invocation.netns, _NAME) as pod:
                    pod.set_down(pod.get(_NAME))
            except InvalidNetnsError:
                pass

    def check(self, invocation: Invocation) -> None:
        """Raise IOFailureError if ``lo`` is down."""
        with Links(invocation.netns, _NAME) as pod:
            if not pod.get(_NAME).is_up:
                raise IOFailureError(f"interface {_NAME}: it is down")

    def gc(self, invocation: Invocation) -> None:
        """Nothing is kept."""

    def status(self, invocation: Invocation) -> None:
        """It can always serve."""
