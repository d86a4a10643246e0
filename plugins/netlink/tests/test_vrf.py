"""The chained plugin vrf: on a recording of the kernel that has VRFs, and on that kernel where it is."""

from __future__ import annotations

import errno
import json
from typing import TYPE_CHECKING, Any

import pytest
from kinds import Site, why_declined, why_not
from multus_netlink.vrf import Vrf
from recorded import (
    BOOT,
    DUMP,
    INET,
    INET6,
    KERNEL,
    LINK_SCOPE,
    MAIN,
    NEW,
    PERMANENT,
    UNICAST,
    UP,
    WITHOUT_STATISTICS,
    Exchange,
    Message,
    Recording,
    get,
)

from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")
on_a_kernel_with_vrfs = pytest.mark.skipif(bool(why_not("vrf")), reason=why_not("vrf") or "runs")

RESULT = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "x-own": 1}], "ips": [{"address": "10.1.0.5/24"}], "dns": {}}


def link(index: int, name: str, kind: str, table: int = 0, master: int = 0, flags: int = UP) -> Message:
    info = {"IFLA_INFO_KIND": kind, **({"IFLA_INFO_DATA": {"IFLA_VRF_TABLE": table}} if table else {})}
    return Message(
        "new link",
        {"index": index, **({"flags": flags} if flags else {})},
        {"IFLA_IFNAME": name, "IFLA_MTU": 1500, **({"IFLA_MASTER": master} if master else {}), "IFLA_LINKINFO": info},
    )


ETH0, IN_BLUE, BLUE = link(2, "eth0", "veth"), link(2, "eth0", "veth", master=9), link(9, "blue", "vrf", 10)
LO = Message("new link", {"index": 1, "flags": UP}, {"IFLA_IFNAME": "lo", "IFLA_MTU": 65536})


def find(name: str, answer: Message | int) -> Exchange:
    return get("pod", name, answer)


def every(*links: Message) -> Exchange:
    return Exchange("pod", Message("get link", {}, WITHOUT_STATISTICS, DUMP), [LO, *links])


def make(table: int, answer: int = 0) -> Exchange:
    info = {"IFLA_INFO_KIND": "vrf", "IFLA_INFO_DATA": {"IFLA_VRF_TABLE": table}}
    return Exchange("pod", Message("new link", {}, {"IFLA_IFNAME": "blue", "IFLA_LINKINFO": info}, NEW), answer)


def set_master(index: int) -> Exchange:
    return Exchange("pod", Message("new link", {"index": 2}, {"IFLA_MASTER": index}))


UP_BLUE = Exchange("pod", Message("new link", {"index": 9, "flags": UP, "change": UP}, {}))
LOOK_AT_BLUE = Exchange("pod", Message("get link", {"index": 9}, WITHOUT_STATISTICS), [BLUE])
REMOVE_BLUE = Exchange("pod", Message("del link", {"index": 9}, {}))


def addresses(*texts: str, flags: int = PERMANENT) -> Exchange:
    told = []
    for text in texts:
        scope = {"scope": LINK_SCOPE} if text.startswith("fe80") else {}
        fields = {"family": INET6, "prefixlen": 64, "flags": flags, **scope, "index": 2}
        told.append(Message("new address", fields, {"IFA_ADDRESS": text, "IFA_FLAGS": flags}))
    return Exchange("pod", Message("get address", {"family": INET6, "index": 2}, {}, DUMP), told)


def add_address(text: str) -> Exchange:
    fields = {"family": INET6, "prefixlen": 64, "index": 2}
    return Exchange("pod", Message("new address", fields, {"IFA_ADDRESS": text}, NEW))


def route(family: int, dst: str, length: int, table: int = MAIN, index: int = 2, proto: int = BOOT, **more: Any) -> Message:
    fields = {"family": family, "dst_len": length, "table": table if table < 256 else 0, "proto": proto, "type": UNICAST}
    attributes = {"RTA_TABLE": table, **({"RTA_DST": dst} if dst else {}), **more, "RTA_OIF": index}
    return Message("new route", {key: value for key, value in fields.items() if value}, attributes)


def routes(family: int, *told: Message) -> Exchange:
    return Exchange("pod", Message("get route", {"family": family}, {}, DUMP), told)


def put(message: Message) -> Exchange:
    return Exchange("pod", message._replace(flags=frozenset(("create", "replace"))))


KERNELS_4 = route(INET, "10.1.0.0", 24, proto=KERNEL, RTA_PREFSRC="10.1.0.5")
OF_OTHERS = (route(INET, "10.3.0.0", 16, index=3), route(INET, "10.4.0.0", 16, 7), route(INET, "10.1.0.5", 32, 255, proto=KERNEL))
DEFAULT = {"RTA_PRIORITY": 77, "RTA_GATEWAY": "10.1.0.1", "RTA_METRICS": {"RTAX_MTU": 1300}}
LISTED = [
    routes(INET, route(INET, "", 0, **DEFAULT), KERNELS_4, route(INET, "192.168.0.1", 32), *OF_OTHERS),
    routes(INET6, route(INET6, "", 0, RTA_GATEWAY="fd00::1", RTA_PRIORITY=1024), route(INET6, "fd00::", 64, proto=KERNEL)),
]


def moved(table: int) -> list[Exchange]:
    """The move of an interface whose IPv6 address the kernel drops."""
    return [
        addresses("fd00::5", "fe80::1"),
        *LISTED,
        set_master(9),
        addresses("fe80::1"),
        add_address("fd00::5"),
        put(route(INET, "192.168.0.1", 32, table)),  # by which gateways may be reached
        put(route(INET, "", 0, table, **DEFAULT)),
        put(route(INET6, "", 0, table, RTA_GATEWAY="fd00::1", RTA_PRIORITY=1024)),
    ]


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(Vrf(), "vrf") as site:
        yield site


def play(site: Site, exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch) -> Recording:
    recording = Recording(site, exchanges)
    recording.play(monkeypatch)
    return recording


def config_of(site: Site, **more: Any) -> dict[str, Any]:
    return site.config(vrfname="blue", prevResult=RESULT, **more)


@pytest.mark.parametrize("table", [10, 1000])
def test_an_interface_moves_with_addresses_and_routes(site: Site, table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    blue = link(9, "blue", "vrf", table)
    exchanges = [find("eth0", ETH0), find("blue", errno.ENODEV), make(table), find("blue", blue), UP_BLUE, *moved(table)]
    recording = play(site, exchanges, monkeypatch)
    assert site.call("ADD", config_of(site, table=table)) == RESULT
    assert recording.rest == []


def test_a_table_is_taken_that_no_vrf_has(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    others = (link(5, "red", "vrf", 1), link(6, "green", "vrf", 3), ETH0)
    blue = link(9, "blue", "vrf", 2)
    exchanges = [find("eth0", ETH0), find("blue", errno.ENODEV), every(*others), make(2), find("blue", blue), UP_BLUE, *moved(2)]
    recording = play(site, exchanges, monkeypatch)
    site.call("ADD", config_of(site))
    assert recording.rest == []


def test_the_kernels_own_tables_are_not_taken(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    others = [link(10 + number, f"vrf{number}", "vrf", number) for number in range(1, 253)]
    none = find("blue", errno.ENODEV)
    recording = play(site, [find("eth0", ETH0), none, every(*others), make(256, errno.ENOBUFS), none], monkeypatch)
    with pytest.raises(IOFailureError, match=r"interface eth0: cannot make vrf blue in .*: No buffer space available"):
        site.call("ADD", config_of(site))
    assert recording.rest == []


@pytest.mark.parametrize("table", [0, 10])
def test_a_vrf_that_is_there_is_joined(site: Site, table: int, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, [find("eth0", ETH0), find("blue", BLUE), *moved(10)], monkeypatch)
    site.call("ADD", config_of(site, table=table))
    assert recording.rest == []


def test_an_address_that_the_kernel_keeps_is_not_added(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    kept = addresses("fd00::5", "fe80::1")
    exchanges = [find("eth0", ETH0), find("blue", BLUE), kept, routes(INET), routes(INET6), set_master(9), kept]
    recording = play(site, exchanges, monkeypatch)
    site.call("ADD", config_of(site))
    assert recording.rest == []


def test_a_route_with_a_source_waits_for_its_address(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"RTA_PREFSRC": "fd00::5", "RTA_GATEWAY": "fd00::3"}
    kept = addresses("fd00::5")
    tentative = addresses("fd00::5", flags=PERMANENT | 0x40)
    listed = [routes(INET), routes(INET6, route(INET6, "2001:db8::", 32, **own))]
    exchanges = [find("eth0", ETH0), find("blue", BLUE), kept, *listed, set_master(9), tentative, tentative, kept]
    recording = play(site, [*exchanges, put(route(INET6, "2001:db8::", 32, 10, **own))], monkeypatch)
    site.call("ADD", config_of(site))
    assert recording.rest == []


FAILURES = [find("eth0", ETH0), find("blue", errno.ENODEV), make(10), find("blue", BLUE), UP_BLUE, *moved(10)]


@pytest.mark.parametrize("step", range(3, len(FAILURES)))
def test_a_failed_add_takes_the_interface_out_and_the_vrf_away(site: Site, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = [*FAILURES[:step], FAILURES[step]._replace(answer=errno.ENOBUFS)]
    is_in = set_master(9) in exchanges
    taken_out = [find("eth0", IN_BLUE), set_master(0)] if is_in else [find("eth0", ETH0)]
    undone = [find("blue", BLUE), *taken_out, every(ETH0), find("blue", BLUE), REMOVE_BLUE]
    recording = play(site, [*exchanges, *undone], monkeypatch)
    with pytest.raises(IOFailureError, match=r"^interface eth0: .*: No buffer space available$"):
        site.call("ADD", config_of(site, table=10))
    assert recording.rest == []


def test_an_undoing_that_fails_itself_hides_nothing(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    play(site, [find("eth0", ETH0), find("blue", errno.ENODEV), make(10, errno.EOPNOTSUPP), find("blue", errno.ENOBUFS)], monkeypatch)
    with pytest.raises(IOFailureError, match=r"interface eth0: cannot make vrf blue in .*: Operation not supported"):
        site.call("ADD", config_of(site, table=10))


@pytest.mark.parametrize(
    ("exchanges", "config", "message"),
    [
        ([find("eth0", errno.ENODEV)], {}, "there is no link eth0 in NETNS"),
        ([find("eth0", IN_BLUE), LOOK_AT_BLUE], {}, "it is in blue already"),
        ([find("eth0", ETH0), find("blue", link(9, "blue", "bridge"))], {}, "vrfname 'blue' is not a VRF, but a link of kind 'bridge'"),
        ([find("eth0", ETH0), find("blue", BLUE)], {"table": 11}, "table 11 is not that of VRF blue, 10"),
        ([], {"table": -1}, "table -1 is not from 0 to 4294967295"),
        ([], {"table": 2**32}, "table 4294967296 is not from 0 to 4294967295"),
        ([], {"table": "10"}, "table '10' is not a whole number"),
        ([], {"vrfname": ""}, "vrfname '' is not the name of a VRF"),
        ([], {"vrfname": 5}, "vrfname 5 is not a string"),
        ([], {"prevResult": None}, "prevResult is missing"),
    ],
)  # fmt: skip
def test_what_is_not_as_it_should_be_is_refused_before_anything_is_done(
    site: Site, exchanges: list[Exchange], config: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    recording = play(site, exchanges, monkeypatch)
    with pytest.raises(MultusError) as caught:
        site.call("ADD", {**config_of(site), **config})
    assert caught.value.msg.replace(site.pod.path, "NETNS") == f"interface eth0: {message}"
    assert recording.rest == []


def test_a_previous_result_that_is_none_is_refused(site: Site) -> None:
    with pytest.raises(DecodingError):
        site.call("ADD", {**config_of(site), "prevResult": {"ips": [{"address": "x"}]}})


@pytest.mark.parametrize(
    "exchanges",
    [
        [find("blue", BLUE), find("eth0", IN_BLUE), set_master(0), every(ETH0, BLUE), find("blue", BLUE), REMOVE_BLUE],
        [find("blue", BLUE), find("eth0", IN_BLUE), set_master(0), every(ETH0, BLUE, link(3, "eth1", "veth", master=9))],
        [find("blue", BLUE), find("eth0", errno.ENODEV), every(BLUE), find("blue", BLUE), REMOVE_BLUE],
        [find("blue", BLUE), find("eth0", link(2, "eth0", "veth", master=5)), every(BLUE), find("blue", BLUE), REMOVE_BLUE],
        [find("blue", errno.ENODEV)],
        [find("blue", link(9, "blue", "bridge"))],
    ],
    ids=["last", "not last", "interface gone", "interface elsewhere", "VRF gone", "no VRF"],
)
def test_delete_leaves_what_others_use(site: Site, exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, exchanges, monkeypatch)
    site.call("DEL", {**config_of(site), "prevResult": None})
    assert recording.rest == []


@pytest.mark.parametrize("is_last", [False, True])
def test_a_vrf_without_interfaces_is_left_to_be_removed_with_links_of_its_pod(
    site: Site, is_last: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    others = () if is_last else (link(3, "eth1", "veth", master=9),)
    recording = play(site, [find("blue", BLUE), find("eth0", IN_BLUE), set_master(0), every(ETH0, BLUE, *others)], monkeypatch)
    assert Vrf().release(site.invocation("DEL", config_of(site))) == (("blue",) if is_last else ())
    assert recording.rest == []


@pytest.mark.parametrize("netns", ["", "/run/netns/gone"])
def test_delete_without_a_namespace_has_nothing_to_do(site: Site, netns: str) -> None:
    site.call("DEL", config_of(site), netns=netns)


@pytest.mark.parametrize(
    ("exchanges", "message"),
    [
        ([find("eth0", IN_BLUE), find("blue", BLUE)], ""),
        ([find("eth0", IN_BLUE), find("blue", errno.ENODEV)], "there is no link blue in NETNS"),
        ([find("eth0", errno.ENODEV)], "there is no link eth0 in NETNS"),
        ([find("eth0", ETH0), find("blue", BLUE)], "it is not in VRF blue"),
        ([find("eth0", IN_BLUE), find("blue", link(9, "blue", "vrf", 11))], "the table of VRF blue is 11, not 10"),
        ([find("eth0", IN_BLUE), find("blue", link(9, "blue", "vrf", 10, flags=0))], "VRF blue is down"),
        ([find("eth0", IN_BLUE), find("blue", link(9, "blue", "bridge"))], "blue is no VRF, but of kind 'bridge'"),
    ],
)
def test_check_notices_drift(site: Site, exchanges: list[Exchange], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, exchanges, monkeypatch)
    if not message:
        site.call("CHECK", config_of(site, table=10))
    else:
        with pytest.raises(IOFailureError) as caught:
            site.call("CHECK", config_of(site, table=10))
        assert caught.value.msg.replace(site.pod.path, "NETNS") == f"interface eth0: {message}"
    assert recording.rest == []


def test_check_needs_a_previous_result(site: Site) -> None:
    with pytest.raises(InvalidConfigError, match="interface eth0: prevResult is missing"):
        site.call("CHECK", site.config(vrfname="blue"))


def test_gc_and_status_have_nothing_to_do(site: Site) -> None:
    assert (site.call("GC", site.config(vrfname="blue")), site.call("STATUS", site.config(vrfname="blue"))) == (None, None)


def test_a_key_that_is_unknown_is_declined(site: Site) -> None:
    assert why_declined(site.delegate, site.invocation("ADD", config_of(site, tables=[1]))) == 'key "tables" (a list) is not served'


@on_a_kernel_with_vrfs
def test_addresses_and_routes_survive_the_move(site: Site) -> None:
    script = """
ip link add eth0 type veth peer other; ip link set eth0 up; ip link set other up
ip address add 10.1.0.5/24 dev eth0; ip address add fd00::5/64 dev eth0 nodad
ip route add default via 10.1.0.1; ip route add 198.51.100.0/24 via 10.1.0.9 metric 7; ip -6 route add default via fd00::1
"""
    site.pod.run("sh", "-c", script)
    before = site.pod.links()["eth0"].addresses
    for _ in range(2):
        site.call("ADD", config_of(site))
        site.call("CHECK", config_of(site))
        assert site.pod.links()["eth0"].addresses == before
        listed = json.loads(site.pod.run("ip", "-j", "route", "show", "vrf", "blue", "proto", "boot"))
        assert {(each["dst"], each["gateway"]) for each in listed} == {("default", "10.1.0.1"), ("198.51.100.0/24", "10.1.0.9")}
        assert "via fd00::1" in site.pod.run("ip", "-6", "route", "show", "vrf", "blue")
        site.call("DEL", config_of(site))
        assert "blue" not in site.pod.links()
        site.pod.run("ip", "route", "replace", "default", "via", "10.1.0.1")
        site.pod.run("ip", "route", "replace", "198.51.100.0/24", "via", "10.1.0.9", "metric", "7")
        site.pod.run("ip", "-6", "route", "replace", "default", "via", "fd00::1")
