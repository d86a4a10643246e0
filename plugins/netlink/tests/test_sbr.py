"""``sbr``: rules and tables beside its binary's, and the way that packets take."""

from __future__ import annotations

import fcntl
import json
import os
import threading
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kinds import try_every_verb, why_declined
from multus_netlink.routing import ListedRoute, RoutingLinks
from multus_netlink.sbr import Sbr
from services import ServiceSide, can_run
from sides import run_binary

from multus.errors import InvalidConfigError, IOFailureError

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

EXAMPLES = int(os.environ.get("NETLINK_EXAMPLES", "200"))
PHASES = (Phase.explicit, Phase.generate)
drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))

IPS = st.lists(
    st.sampled_from(
        (
            {"interface": 1, "address": "10.1.0.2/24", "gateway": "10.1.0.1"},
            {"interface": 1, "address": "fd00:1::2/64", "gateway": "fd00:1::1"},
            {"address": "10.2.0.2/24"},
            {"interface": 1, "address": "10.1.0.3/24", "gateway": "10.1.0.1"},
            {"interface": 0, "address": "10.7.0.7/24", "gateway": "10.7.0.1"},
            {"interface": 1, "address": "10.2.0.3/24", "gateway": "198.51.100.1"},  # not reachable: an error
            {"interface": 1, "address": "fd00:2::2/64"},
        )
    ),
    max_size=3,
    unique_by=lambda each: each["address"],
).filter(lambda ips: not ips or any(each.get("interface") != 0 for each in ips))  # without one, the binary takes all routes away
BEFORE = st.lists(
    st.sampled_from(
        (
            "ip address add 10.2.0.2/24 dev eth0",
            "ip route add 198.51.100.0/24 via 10.1.0.1",
            "ip route add 203.0.113.0/24 dev eth0",
            "ip route add 203.0.113.0/25 dev eth0 src 10.1.0.2 metric 7 mtu 1400",
            "ip -6 route add fd00:5::/48 via fd00:1::1 metric 50",
            "ip route del default",
            "ip rule add from 10.9.9.9 table 100",
            "ip -6 rule add from fd00:9::9 table 101",
            "ip address add fd00:2::2/64 dev eth0 nodad",
        )
    ),
    max_size=4,
    unique=True,
)


def rules(side: ServiceSide) -> list[Any]:
    return [json.loads(side.pod.run("ip", "-j", family, "rule", "show")) for family in ("-4", "-6")]


def of_sources(side: ServiceSide) -> list[dict[str, Any]]:
    """The rules for a source."""
    return [rule for family in rules(side) for rule in family if rule.get("src", "all") != "all"]


def tables(side: ServiceSide) -> list[str]:
    """Every route but the kernel's own local and multicast ones, link-local routes but for their number."""
    lines = [line for family in ("-4", "-6") for line in side.pod.run("ip", family, "route", "show", "table", "all").splitlines()]
    return sorted(line for line in lines if "table local" not in line and not line.startswith("multicast"))


def clear(side: ServiceSide) -> None:
    """The interface anew, and no rule but the kernel's."""
    for rule in of_sources(side):
        family = "-6" if ":" in rule["src"] else "-4"
        side.pod.run("ip", family, "rule", "del", "from", rule["src"], "table", rule["table"])
    side.attach()


@drawn
@given(ips=IPS, before=BEFORE, version=st.sampled_from(("1.0.0", "0.4.0", "0.3.1")))
def test_sbr_does_what_its_binary_does(
    sides: tuple[ServiceSide, ServiceSide], ips: list[dict[str, Any]], before: list[str], version: str
) -> None:
    outcomes = []
    if version < "1":
        ips = [{"version": "46"[":" in each["address"]], **each} for each in ips]
    for side in sides:
        clear(side)
        side.pod.run("sh", "-c", "; ".join(before) or "true")
        was = [rules(side), tables(side)]
        result = {**side.result(version), "ips": ips}
        config = {"cniVersion": version, "name": "net", "type": "sbr", "prevResult": result}
        answer = side.call("ADD", config)
        outcome = [answer == result, [rules(side), tables(side)]]
        if answer is None:
            assert side.is_binary or outcome[1] == was
            outcomes.append(None)
            continue
        checked = None if side.is_binary or version == "0.3.1" else side.call("CHECK", {**config, "prevResult": answer})
        assert checked in (None, {})
        side.call("DEL", config)
        # What an address that the interface does not have has left, the binary does not find again.
        left = [rule for rule in of_sources(side) if rule["src"] in ("10.1.0.2", "fd00:1::2", "10.9.9.9", "fd00:9::9")]
        outcomes.append([*outcome, left, tables(side)])
    assert outcomes[0] == outcomes[1], sides[1].messages[-1:]


def config_of(side: ServiceSide, **more: Any) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": "net", "type": "sbr", "prevResult": side.result(), **more}


def call(side: ServiceSide, verb: str, config: dict[str, Any], **more: Any) -> Any:
    invocation = side.invocation(verb, config)._replace(**more)
    sbr = Sbr()
    assert why_declined(sbr, invocation) == ""
    return {"ADD": sbr.add, "DEL": sbr.delete, "CHECK": sbr.check, "GC": sbr.gc, "STATUS": sbr.status}[verb](invocation)


def lookups(side: ServiceSide) -> list[tuple[str, str]]:
    """The rules from addresses, as source and table."""
    return [(rule["src"], rule["table"]) for rule in of_sources(side)]


def test_packets_take_the_way_of_their_source(side: ServiceSide) -> None:
    script = "ip link add other type veth peer other2; ip link set other up; ip link set other2 up; ip address add 10.9.0.2/24 dev other"
    side.pod.run("sh", "-c", script)
    call(side, "ADD", config_of(side))
    side.pod.run("ip", "route", "add", "default", "via", "10.9.0.1")
    asked = [json.loads(side.pod.run("ip", "-j", "route", "get", "192.0.2.9", *more))[0] for more in ((), ("from", "10.1.0.2"))]
    assert [(route["gateway"], route["dev"]) for route in asked] == [("10.9.0.1", "other"), ("10.1.0.1", "eth0")]
    assert lookups(side) == [("10.1.0.2", "100"), ("fd00:1::2", "101")]


def test_a_table_that_is_given_gets_rules_and_no_routes(side: ServiceSide) -> None:
    before = tables(side)
    config = config_of(side, table=4000)
    call(side, "ADD", config)
    call(side, "CHECK", config)
    assert (lookups(side), tables(side)) == ([("10.1.0.2", "4000"), ("fd00:1::2", "4000")], before)
    side.pod.run("ip", "rule", "add", "from", "10.1.0.2", "table", "77")
    call(side, "DEL", config)
    assert lookups(side) == [("10.1.0.2", "77")]


def test_gateways_that_are_given_go_before_those_of_the_result(side: ServiceSide) -> None:
    side.pod.run("sh", "-c", "ip route del default; ip -6 route del default")
    call(side, "ADD", config_of(side, gateways=["10.1.0.7", "fd00:1::7"]))
    found = tables(side)
    assert "default via 10.1.0.7 dev eth0 table 100 " in found
    assert any(route.startswith("default via fd00:1::7 dev eth0 table 101") for route in found)


def test_source_hints_keep_the_network_in_the_main_table(side: ServiceSide) -> None:
    side.pod.run("ip", "route", "add", "203.0.113.0/24", "dev", "eth0")
    call(side, "ADD", config_of(side, addSourceHints=True))
    main = [route.split(" metric")[0].strip() for route in tables(side) if "table" not in route]
    by_source = ["10.1.0.0/24 dev eth0 scope link src 10.1.0.2", "fd00:1::/64 dev eth0 src fd00:1::2"]
    assert main == [by_source[0], "203.0.113.0/24 dev eth0 scope link", by_source[1]]


def test_tables_that_routes_are_in_are_not_free(side: ServiceSide) -> None:
    side.pod.run("sh", "-c", "ip route add 192.0.2.0/24 dev eth0 table 100; ip rule add from 10.8.8.8 table 101")
    call(side, "ADD", config_of(side))
    assert sorted(lookups(side)) == [("10.1.0.2", "102"), ("10.8.8.8", "101"), ("fd00:1::2", "103")]


def test_a_failed_add_leaves_rules_and_routes_as_they_were(side: ServiceSide, monkeypatch: pytest.MonkeyPatch) -> None:
    side.pod.run("ip", "route", "add", "198.51.100.0/24", "via", "10.1.0.1", "metric", "5", "mtu", "1300")
    before = [rules(side), tables(side)]
    with pytest.raises(IOFailureError, match="interface eth0: cannot add the route to ::/0 via fd00:9::1 by eth0"):
        call(side, "ADD", config_of(side, gateways=["fd00:9::1"]))
    assert [rules(side), tables(side)] == before

    taken = []
    take = RoutingLinks.take_route

    def take_some(self: RoutingLinks, route: ListedRoute, table: int = 254) -> None:
        taken.append(str(route))
        if len(taken) == 4:
            raise IOFailureError("refused")
        take(self, route, table)

    monkeypatch.setattr(RoutingLinks, "take_route", take_some)
    with pytest.raises(IOFailureError, match="refused"):
        call(side, "ADD", config_of(side))
    assert (len(taken) > 3, [rules(side), tables(side)]) == (True, before)


@pytest.mark.parametrize("how", ["namespace gone", "no namespace", "no prevResult", "link gone"])
def test_delete_succeeds_whatever_is_gone(side: ServiceSide, how: str) -> None:
    config = config_of(side)
    call(side, "ADD", config)
    if how == "link gone":
        side.pod.run("ip", "link", "del", "eth0")
    if how == "no prevResult":
        del config["prevResult"]
    netns = {"namespace gone": "/run/netns/gone", "no namespace": ""}.get(how, side.pod.path)
    call(side, "DEL", config, netns=netns)
    assert len(lookups(side)) == (0 if netns == side.pod.path else 2)
    call(side, "DEL", config)
    call(side, "DEL", config)
    assert (lookups(side), call(side, "GC", config), call(side, "STATUS", config)) == ([], None, None)


def test_each_takes_back_what_the_other_has_made(side: ServiceSide) -> None:
    config = config_of(side)
    call(side, "ADD", config)
    assert run_binary(side.pod, "DEL", config).returncode == 0
    assert lookups(side) == []
    side.attach()
    assert run_binary(side.pod, "ADD", config).returncode == 0
    call(side, "CHECK", config)
    call(side, "DEL", config)
    assert lookups(side) == []


def test_check_notices_a_rule_that_is_gone(side: ServiceSide) -> None:
    config = config_of(side)
    call(side, "ADD", config)
    call(side, "CHECK", config)
    side.pod.run("ip", "-6", "rule", "del", "from", "fd00:1::2", "table", "101")
    with pytest.raises(IOFailureError, match="interface eth0: the rule from fd00:1::2 is gone"):
        call(side, "CHECK", config)


def test_calls_for_one_namespace_wait_for_each_other(side: ServiceSide) -> None:
    config = config_of(side)
    adding = threading.Thread(target=call, args=(side, "ADD", config))
    with open(side.pod.path, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        adding.start()
        adding.join(0.3)
        assert (adding.is_alive(), lookups(side)) == (True, [])
    adding.join(20)
    assert len(lookups(side)) == 2


@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"table": 0}, "table 0 is not from 1 to 4294967295"),
        ({"table": "100"}, "table '100' is not a whole number"),
        ({"gateways": ["x"]}, "gateways (a list) is not a list of IP addresses: 'x'"),
        ({"gateways": ["10.0.0.1", "10.0.0.2"]}, "gateways (a list) is not a list of one address of each family: 10.0.0.1 and 10.0.0.2"),
        ({"addSourceHints": "yes"}, "addSourceHints 'yes' is not true or false"),
        ({"prevResult": None}, "prevResult is missing: the plugin goes behind a network's"),
        ({"prevResult": {"cniVersion": "1.0.0"}}, "prevResult has no address of it"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(side: ServiceSide, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        call(side, "ADD", config_of(side, **more))
    assert (caught.value.msg, lookups(side)) == (f"interface eth0: {message}", [])


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)


@drawn
@given(more=st.dictionaries(st.sampled_from(("table", "gateways", "addSourceHints", "prevResult", "other")), ANYTHING, max_size=3))
def test_no_configuration_crashes(side: ServiceSide, more: dict[str, Any]) -> None:
    try_every_verb(Sbr(), side.invocation("ADD", {**config_of(side), **more}))
