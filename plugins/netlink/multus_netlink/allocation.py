"""What an IPAM plugin gives an interface, and how it becomes a result."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

from multus.protocol import results
from multus.types.result import IPConfig, Route
from multus_netlink.configuration import Section

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multus.types.invocation import Invocation
    from multus.types.result import Result

DNS_KEYS = frozenset(("nameservers", "domain", "search", "options"))
_MANY_ADDRESSES = "0.3.0"


class Allocation(NamedTuple):
    """Addresses, in the order of the configuration, routes, and name servers."""

    ips: tuple[IPConfig, ...] = ()
    routes: tuple[Route, ...] = ()
    dns: Mapping[str, object] = {}


def read_routes(ipam: Section) -> tuple[Route, ...]:
    """``ipam.routes``, spelled as usual."""
    return tuple(_route(each) for each in ipam.sections("routes"))


def read_dns(dns: Section) -> dict[str, object]:
    """Name servers and what belongs to them; a list that is given and empty stays, and says that there are none."""
    lists: dict[str, object] = {key: dns.texts(key) for key in ("nameservers", "search", "options") if dns.has(key)}
    return {**lists, "domain": dns.text("domain")} if dns.text("domain") else lists


def require_one_per_family(config: Section, cidrs: Sequence[str]) -> None:
    """Before 0.3.0 a result holds one address of each family.

    Raises:
        InvalidConfigError: There are more.
    """
    families = [":" in cidr for cidr in cidrs]
    if config.text("cniVersion") < _MANY_ADDRESSES and len(families) != len(set(families)):
        raise config.refusal("cniVersion", f"{_MANY_ADDRESSES} or newer, which several addresses of a family need: {', '.join(cidrs)}")


def result_of(invocation: Invocation, allocation: Allocation, interfaces: Sequence[Mapping[str, str]] = ()) -> Result:
    """The result of an ADD in the version of the configuration.

    Raises:
        InvalidConfigError: The version needs an address and there is none.
    """
    version = str(invocation.config.get("cniVersion") or "")
    if version < _MANY_ADDRESSES and not allocation.ips:
        raise Section.of(invocation).refusal("cniVersion", f"{_MANY_ADDRESSES} or newer, which a result without addresses needs")
    document: dict[str, Any] = {
        "cniVersion": "1.0.0",
        "interfaces": [{key: value for key, value in each.items() if value} for each in interfaces],
        "ips": [
            {
                **({} if each.interface is None else {"interface": each.interface}),
                "address": each.address,
                **({"gateway": each.gateway} if each.gateway else {}),
            }
            for each in allocation.ips
        ],
        "routes": [{"dst": each.dst, **({"gw": each.gw} if each.gw else {})} for each in allocation.routes],
        "dns": {key: value for key, value in allocation.dns.items() if value},
    }
    document = {key: value for key, value in document.items() if value}
    return results.convert(results.parse(document, ""), version)


def _route(route: Section) -> Route:
    return Route(route.cidr("dst"), route.ip("gw"))
