"""The IPAM plugin that gives what it is told."""

from __future__ import annotations

from typing import Any

import pytest
from multus_netlink.static import Static

from multus.errors import InvalidConfigError, InvalidEnvironmentError, MultusError, NotAvailableError
from multus.types.invocation import CNICommand, Invocation
from multus.types.result import IPConfig, Route

PLUGIN = Static()
ADDRESSES = [{"address": "10.1.0.5/24"}, {"address": "FD00::0005/64", "gateway": "fd00::1"}]


def invocation(ipam: dict[str, Any], generic_args: str = "", **more: Any) -> Invocation:
    config = {"cniVersion": "1.0.0", "name": "a", "type": "bridge", "ipam": {"type": "static", **ipam}, **more}
    return Invocation(CNICommand.ADD, "bridge", config, "c1", "/run/netns/a", "net1", generic_args)


def test_addresses_and_routes_are_spelled_as_usual() -> None:
    routes = [{"dst": "2001:DB8::/32"}, {"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]
    allocation = PLUGIN.allocate(invocation({"addresses": ADDRESSES, "routes": routes, "dns": {"domain": "a.org", "search": []}}))
    assert allocation.ips == (IPConfig("10.1.0.5/24"), IPConfig("fd00::5/64", "fd00::1"))
    assert allocation.routes == (Route("2001:db8::/32"), Route("0.0.0.0/0", "10.1.0.1"))
    assert allocation.dns == {"domain": "a.org", "search": []}


@pytest.mark.parametrize(
    ("generic_args", "more", "expected"),
    [
        ("IP=10.2.0.5/24, 10.3.0.5/24;GATEWAY=10.3.0.1", {}, [("10.1.0.9/24", ""), ("10.2.0.5/24", ""), ("10.3.0.5/24", "10.3.0.1")]),
        ("GATEWAY=10.1.0.1", {}, [("10.1.0.9/24", "")]),
        ("IP=10.1.0.5/24;GATEWAY=10.1.0.1", {}, [("10.1.0.9/24", ""), ("10.1.0.5/24", "10.1.0.1")]),
        ("IP=10.2.0.5/24", {"args": {"cni": {"ips": ["10.4.0.5/24"]}}}, [("10.4.0.5/24", "")]),
        ("", {"args": {"cni": {"ips": ["10.4.0.5/24"]}}, "runtimeConfig": {"ips": ["10.5.0.5/24"]}}, [("10.5.0.5/24", "")]),
    ],
)
def test_the_runtimes_addresses_come_first_of_all(generic_args: str, more: dict[str, Any], expected: list[tuple[str, str]]) -> None:
    """And a gateway of the arguments is of their addresses alone."""
    ips = PLUGIN.allocate(invocation({"addresses": [{"address": "10.1.0.9/24"}]}, generic_args, **more)).ips
    assert [(ip.address, ip.gateway) for ip in ips] == expected


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        (invocation({"addresses": [{"address": "10.1.0.5"}]}), InvalidConfigError, r"net1: ipam\.addresses\[0\]\.address '10\.1\.0\.5'"),
        (invocation({"addresses": [{"address": "10.1.0.5/24", "gateway": "x"}]}), InvalidConfigError, r"addresses\[0\]\.gateway 'x'"),
        (invocation({"routes": [{"dst": "x"}]}), InvalidConfigError, r"ipam\.routes\[0\]\.dst 'x'"),
        (invocation({"routes": [{"dst": "::/0", "gw": "x"}]}), InvalidConfigError, r"ipam\.routes\[0\]\.gw 'x'"),
        (invocation({}, "IP=10.1.0.5"), InvalidEnvironmentError, "CNI_ARGS IP '10.1.0.5'"),
        (invocation({}, "GATEWAY=x"), InvalidEnvironmentError, "CNI_ARGS GATEWAY 'x'"),
        (invocation({}, "IP=x", runtimeConfig={"ips": ["10.1.0.5/24"]}), InvalidEnvironmentError, "CNI_ARGS IP 'x'"),
        (invocation({"addresses": {}}, runtimeConfig={"ips": ["10.1.0.5/24"]}), InvalidConfigError, r"ipam\.addresses \(an object\)"),
        (invocation({}, "K=x", runtimeConfig={"ips": ["10.1.0.5/24"]}), InvalidEnvironmentError, "CNI_ARGS has unknown keys 'K'"),
        (invocation({}, args={"cni": {"ips": ["x"]}}, runtimeConfig={"ips": ["10.1.0.5/24"]}), InvalidConfigError, r"args\.cni\.ips"),
        (invocation({}, runtimeConfig={"ips": ["10.1.0.5"]}), InvalidConfigError, r"runtimeConfig\.ips .*: 10\.1\.0\.5"),
    ],
)
def test_what_is_not_valid_is_refused_by_name(given: Invocation, error: type[MultusError], message: str) -> None:
    with pytest.raises(error, match=message):
        PLUGIN.allocate(given)
    with pytest.raises(NotAvailableError, match=message):
        PLUGIN.status(given)


def test_status_of_a_valid_configuration_is_no_error() -> None:
    PLUGIN.status(invocation({"addresses": ADDRESSES}))


def test_check_wants_the_gateways_of_the_configuration() -> None:
    previous = {"cniVersion": "1.0.0", "ips": [{"address": "10.1.0.5/24"}, {"address": "fd00::5/64", "gateway": "fd00::1"}]}
    PLUGIN.check(invocation({"addresses": ADDRESSES}, prevResult=previous))
    previous["ips"][1]["gateway"] = "fd00::2"  # type: ignore[index]
    with pytest.raises(InvalidConfigError, match="fd00::5/64 has the gateway 'fd00::2', not fd00::1"):
        PLUGIN.check(invocation({"addresses": ADDRESSES}, prevResult=previous))


def test_check_needs_a_previous_result() -> None:
    with pytest.raises(InvalidConfigError, match="prevResult is missing"):
        PLUGIN.check(invocation({"addresses": ADDRESSES}))


def test_delete_and_gc_have_nothing_to_do() -> None:
    assert (PLUGIN.delete(invocation({})), PLUGIN.gc(invocation({}))) == (None, None)  # type: ignore[func-returns-value]
