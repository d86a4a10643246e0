"""ipvlan, vlan, dummy and vrf, on a recording of the kernel that has them; and macvlan, whose recording the kernel at hand confirms."""

from __future__ import annotations

import errno
from typing import TYPE_CHECKING, Any

import pytest
from kinds import IPAM, Site, why_not
from multus_netlink.dummy import Dummy
from multus_netlink.ipvlan import Ipvlan
from multus_netlink.macvlan import Macvlan
from multus_netlink.vlan import Vlan
from recorded import (
    BOOT,
    DUMP,
    INET,
    INET6,
    KERNEL,
    LINK_SCOPE,
    MADE_UP,
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

from multus.errors import InvalidConfigError, IOFailureError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from multus.hooks.delegates import InProcessDelegate

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")

MAC, MASTER_MAC = "0a:58:00:00:00:05", "0a:58:00:00:00:01"

DELEGATES: dict[str, InProcessDelegate] = {"ipvlan": Ipvlan(), "macvlan": Macvlan(), "vlan": Vlan()}
OWN: dict[str, dict[str, Any]] = {"ipvlan": {"mode": "l3"}, "macvlan": {"mode": "vepa", "mac": MAC}, "vlan": {"vlanId": 7}}
DATA: dict[str, dict[str, Any]] = {"ipvlan": {"IFLA_IPVLAN_MODE": 1}, "macvlan": {"IFLA_MACVLAN_MODE": "vepa"}, "vlan": {"IFLA_VLAN_ID": 7}}
ON_MASTER = tuple(DELEGATES)


def link(index: int, name: str, kind: str, data: dict[str, Any] | None = None, flags: int = 0, **more: Any) -> Message:
    """A link as the kernel tells it."""
    info = {"IFLA_INFO_KIND": kind, **({"IFLA_INFO_DATA": data} if data else {})}
    attributes = {"IFLA_IFNAME": name, "IFLA_MTU": 1500, "IFLA_ADDRESS": MAC, **more, "IFLA_LINKINFO": info}
    return Message("new link", {"index": index, **({"flags": flags} if flags else {})}, attributes)


def make(where: str, attributes: dict[str, Any], answer: int = 0) -> Exchange:
    return Exchange(where, Message("new link", {}, attributes, NEW), answer)


def change(fields: dict[str, Any], attributes: dict[str, Any] | None = None) -> Exchange:
    return Exchange("pod", Message("new link", fields, attributes or {}))


def remove(index: int) -> Exchange:
    return Exchange("pod", Message("del link", {"index": index}, {}))


def dump(what: str, fields: dict[str, Any], answer: list[Message]) -> Exchange:
    return Exchange("pod", Message(f"get {what}", fields, WITHOUT_STATISTICS if what == "link" else {}, DUMP), answer)


def configured(index: int) -> list[Exchange]:
    """What IPAM's addresses and routes are to the kernel."""

    def address(family: int, length: int, attributes: dict[str, Any]) -> Exchange:
        return Exchange("pod", Message("new address", {"family": family, "prefixlen": length, "index": index}, attributes, NEW))

    def route(family: int, length: int, attributes: dict[str, Any]) -> Exchange:
        fields = {"family": family, "dst_len": length, "table": MAIN, "proto": BOOT, "type": UNICAST}
        kept = {key: value for key, value in fields.items() if value}
        return Exchange("pod", Message("new route", kept, {**attributes, "RTA_OIF": index, "RTA_TABLE": MAIN}, frozenset(("create",))))

    return [
        address(INET, 24, {"IFA_ADDRESS": "10.1.0.5", "IFA_LOCAL": "10.1.0.5", "IFA_BROADCAST": "10.1.0.255"}),
        address(INET6, 64, {"IFA_ADDRESS": "fd00::5"}),
        change({"index": index, "flags": UP, "change": UP}),
        route(INET, 0, {"RTA_GATEWAY": "10.1.0.1"}),
        route(INET, 24, {"RTA_DST": "198.51.100.0", "RTA_GATEWAY": "10.1.0.9"}),
        route(INET6, 32, {"RTA_DST": "2001:db8::"}),
    ]


def looked_at(index: int, table: int = MAIN) -> list[Exchange]:
    """Addresses and routes, as CHECK lists them."""

    def address(family: int, text: str, length: int) -> Message:
        own = {"IFA_ADDRESS": text, **({"IFA_LOCAL": text} if family == INET else {}), "IFA_FLAGS": PERMANENT}
        return Message("new address", {"family": family, "prefixlen": length, "flags": PERMANENT, "index": index}, own)

    def route(family: int, dst: str, length: int, proto: int = BOOT, scope: int = 0, **more: Any) -> Message:
        small = table if table < 256 else 0
        fields = {"family": family, "dst_len": length, "table": small, "proto": proto, "scope": scope, "type": UNICAST}
        attributes = {"RTA_TABLE": table, **({"RTA_DST": dst} if dst else {}), "RTA_OIF": index, **more}
        return Message("new route", {key: value for key, value in fields.items() if value}, attributes)

    return [
        dump("address", {"family": INET, "index": index}, [address(INET, "10.1.0.5", 24)]),
        dump("address", {"family": INET6, "index": index}, [address(INET6, "fd00::5", 64)]),
        dump("route", {"family": INET}, [
            route(INET, "", 0, RTA_GATEWAY="10.1.0.1"), route(INET, "10.1.0.0", 24, KERNEL, LINK_SCOPE),
            route(INET, "198.51.100.0", 24, RTA_GATEWAY="10.1.0.9"),
        ]),
        dump("route", {"family": INET6}, [route(INET6, "2001:db8::", 32), route(INET6, "fd00::", 64, KERNEL)]),
    ]  # fmt: skip


@pytest.fixture
def site() -> Iterator[Site]:
    with Site(Dummy(), "dummy") as site:
        site.node.run("sh", "-c", "ip link add up0 address 0a:58:00:00:00:01 type veth peer wire; ip link set up0 up")
        yield site


def play(site: Site, kind: str, exchanges: list[Exchange], monkeypatch: pytest.MonkeyPatch, *, beside_kernel: bool = False) -> Recording:
    site.kind, site.delegate = kind, {**DELEGATES, "dummy": Dummy()}[kind]
    if not beside_kernel:
        site.pod.run("ip", "link", "add", "eth0", "type", "veth", "peer", "other")  # whose settings are real
    recording = Recording(site, exchanges, beside_kernel=beside_kernel)
    recording.play(monkeypatch)
    return recording


def asked(kind: str, name: str, **more: Any) -> dict[str, Any]:
    """What an interface on the third link of a namespace is made with."""
    mac = {"IFLA_ADDRESS": MAC} if kind == "macvlan" else {}
    info = {"IFLA_INFO_KIND": kind, "IFLA_INFO_DATA": DATA[kind]}
    return {"IFLA_IFNAME": name, "IFLA_LINK": 3, "IFLA_MTU": 1400, **mac, **more, "IFLA_LINKINFO": info}


def added(kind: str, where: str = "host") -> list[Exchange]:
    """The ADD of an interface on a master."""
    index, elsewhere = (2, {"IFLA_NET_NS_FD": "pod"}) if where == "host" else (4, {})
    nsid = {"IFLA_LINK_NETNSID": 0} if where == "host" else {}
    return [
        get(where, "up0", link(3, "up0", "veth", flags=UP, IFLA_ADDRESS=MASTER_MAC)),
        make(where, asked(kind, "eth0", **elsewhere)),
        get("pod", "eth0", link(index, "eth0", kind, DATA[kind], IFLA_LINK=3, IFLA_MTU=1400, **nsid)),
        *configured(index),
    ]


def added_beside_a_namesake(kind: str) -> list[Exchange]:
    """The same where the host has a link of that name, which kernels took amiss once (6.18 does not)."""
    master, made, _, *rest = added(kind)
    return [
        master,
        made._replace(answer=errno.EEXIST),
        make("host", asked(kind, MADE_UP, IFLA_NET_NS_FD="pod")),
        get("pod", MADE_UP, link(2, MADE_UP, kind, DATA[kind], IFLA_LINK=3, IFLA_MTU=1400, IFLA_LINK_NETNSID=0)),
        change({"index": 2}, {"IFLA_IFNAME": "eth0"}),
        *rest,
    ]


def lifetime(kind: str, where: str) -> list[Exchange]:
    """ADD, CHECK and DEL of an interface on a master in the pod or on the host."""
    index = 2 if where == "host" else 4
    own = link(index, "eth0", kind, DATA[kind], UP, IFLA_LINK=3, IFLA_MTU=1400)
    found, master = get("pod", "eth0", own), get(where, "up0", link(3, "up0", "veth", flags=UP, IFLA_ADDRESS=MASTER_MAC))
    return [*added(kind, where), found, master, *looked_at(index), found, remove(index)]


def config_of(site: Site, kind: str, where: str = "host") -> dict[str, Any]:
    return site.config(master="up0", mtu=1400, ipam=IPAM, dns={"domain": "a.org"}, linkInContainer=where == "pod", **OWN[kind])


@pytest.mark.parametrize("kind", ON_MASTER)
@pytest.mark.parametrize("where", ["host", "pod"])
def test_an_interface_on_a_master_is_made_checked_and_removed(site: Site, kind: str, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, kind, lifetime(kind, where), monkeypatch)
    config = config_of(site, kind, where)
    result = site.call("ADD", config)
    assert site.plain(result) == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "mac": MAC, "sandbox": "NETNS"}],
        "ips": [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"interface": 0, "address": "fd00::5/64"}],
        "routes": IPAM["routes"],
        "dns": {"domain": "a.org"},
    }
    settings = site.pod.run("sh", "-c", "cd /proc/sys/net; cat ipv4/conf/eth0/arp_notify ipv6/conf/eth0/ndisc_notify").split()
    assert settings == (["0", "0"] if kind == "vlan" else ["1", "1"])
    site.call("CHECK", {**config, "prevResult": result})
    site.call("DEL", config)
    assert recording.rest == []


@pytest.mark.skipif(bool(why_not("macvlan")), reason=why_not("macvlan") or "runs")
@pytest.mark.parametrize("where", ["host", "pod"])
def test_the_kernel_answers_as_is_recorded(site: Site, where: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It has macvlan, for which all is the same but the name of the kind and its data."""
    if where == "pod":
        site.pod.run("sh", "-c", f"ip link add up0 address {MASTER_MAC} type veth peer wire; ip link set up0 up")
    recording = play(site, "macvlan", lifetime("macvlan", where), monkeypatch, beside_kernel=True)
    config = config_of(site, "macvlan", where)
    result = site.call("ADD", config)
    site.call("CHECK", {**config, "prevResult": result})
    site.call("DEL", config)
    assert recording.rest == []


@pytest.mark.skipif(bool(why_not("macvlan")), reason=why_not("macvlan") or "runs")
def test_a_recording_that_the_kernel_does_not_confirm_is_noticed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    first, *rest = added("macvlan")
    wrong = first._replace(answer=[link(3, "up0", "veth", flags=UP, IFLA_ADDRESS=MASTER_MAC, IFLA_MTU=1501)])
    play(site, "macvlan", [wrong, *rest], monkeypatch, beside_kernel=True)
    with pytest.raises(AssertionError):
        site.call("ADD", config_of(site, "macvlan"))


@pytest.mark.parametrize("change", [{"mtu": 1300}, {"mode": "bridge"}, {"linkInContainer": True}, {"ipam": {**IPAM, "routes": []}}])
def test_a_request_that_is_not_recorded_is_noticed(site: Site, change: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, "macvlan", added("macvlan"), monkeypatch)
    try:
        site.call("ADD", {**config_of(site, "macvlan"), **change})
    except AssertionError:
        return
    assert recording.rest != []


@pytest.mark.parametrize("kind", ON_MASTER)
@pytest.mark.parametrize("step", range(2, 9))
def test_a_failed_add_leaves_no_interface(site: Site, kind: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever the kernel refuses, what it has made is removed."""
    assert_undone(site, kind, added(kind)[:step + 1], "eth0", monkeypatch)


@pytest.mark.parametrize("kind", ON_MASTER)
@pytest.mark.parametrize("step", range(3, 11))
def test_a_failed_add_leaves_no_interface_of_a_made_up_name(site: Site, kind: str, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = added_beside_a_namesake(kind)
    assert_undone(site, kind, exchanges[:step + 1], "eth0" if step > 4 else MADE_UP, monkeypatch)


def assert_undone(site: Site, kind: str, exchanges: list[Exchange], name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """ADD fails at the last exchange, and the interface is removed by its name."""
    failing = exchanges[-1]._replace(answer=errno.ENOBUFS)
    recording = play(site, kind, [*exchanges[:-1], failing, get("pod", name, link(2, name, kind)), remove(2)], monkeypatch)
    with pytest.raises(IOFailureError, match=r"^interface eth0: cannot .*: No buffer space available$"):
        site.call("ADD", config_of(site, kind))
    assert recording.rest == []


@pytest.mark.parametrize("kind", ON_MASTER)
@pytest.mark.parametrize("has_namesake", [False, True])
def test_what_is_not_made_is_not_removed(site: Site, kind: str, has_namesake: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    exchanges = added_beside_a_namesake(kind)[:3] if has_namesake else added(kind)[:2]
    exchanges[-1] = exchanges[-1]._replace(answer=errno.EOPNOTSUPP)
    recording = play(site, kind, exchanges, monkeypatch)
    with pytest.raises(IOFailureError, match=f"^interface eth0: cannot make {kind} [a-z0-9]+ in the host: Operation not supported$"):
        site.call("ADD", config_of(site, kind))
    assert recording.rest == []


@pytest.mark.parametrize("kind", ON_MASTER)
def test_an_interface_may_have_a_namesake_on_the_host(site: Site, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, kind, added_beside_a_namesake(kind), monkeypatch)
    result = site.call("ADD", config_of(site, kind))
    assert (result["interfaces"][0]["name"], recording.rest) == ("eth0", [])


def with_data(exchanges: list[Exchange], kind: str, data: dict[str, Any]) -> list[Exchange]:
    """The exchanges with another request for what only the kind has."""
    info = {"IFLA_LINKINFO": {"IFLA_INFO_KIND": kind, "IFLA_INFO_DATA": data}}
    made = exchanges[1]
    changed = made.request._replace(attributes={**made.request.attributes, **info})
    return [exchanges[0], made._replace(request=changed), *exchanges[2:]]


@pytest.mark.parametrize(
    ("kind", "config", "data"),
    [
        ("vlan", {"vlanId": 0}, {"IFLA_VLAN_ID": 0}),
        ("ipvlan", {"mode": ""}, {"IFLA_IPVLAN_MODE": 0}),  # without, the kernel would take l3
        ("ipvlan", {"mode": "l3s"}, {"IFLA_IPVLAN_MODE": 2}),
    ],
)
def test_zero_is_said(site: Site, kind: str, config: dict[str, Any], data: dict[str, Any], monkeypatch: pytest.MonkeyPatch) -> None:
    recording = play(site, kind, with_data(added(kind), kind, data), monkeypatch)
    site.call("ADD", {**config_of(site, kind), **config})
    assert recording.rest == []


def test_ipvlan_takes_master_addresses_and_routes_of_the_plugin_before(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    own = link(2, "eth0", "ipvlan", DATA["ipvlan"], UP, IFLA_LINK=3, IFLA_MTU=1400)
    found = get("pod", "eth0", own)
    recording = play(site, "ipvlan", [*added("ipvlan"), found, *looked_at(2), found, remove(2)], monkeypatch)
    previous = {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "up0"}],
        "ips": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1", "interface": 0}, {"address": "fd00::5/64"}],
        "routes": IPAM["routes"],
        "dns": {"nameservers": ["10.1.0.53"]},
    }
    config = {key: value for key, value in config_of(site, "ipvlan").items() if key not in ("master", "ipam", "dns")}
    result = site.call("ADD", {**config, "prevResult": previous})
    assert site.plain(result) == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "mac": MAC, "sandbox": "NETNS"}],
        "ips": [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"interface": 0, "address": "fd00::5/64"}],
        "routes": IPAM["routes"],
    }
    site.call("CHECK", {**config, "prevResult": result})  # which does not tell the master any more
    site.call("DEL", {**config, "prevResult": result})
    assert recording.rest == []


@pytest.mark.parametrize(
    ("kind", "changed", "message"),
    [
        ("ipvlan", {"data": {"IFLA_IPVLAN_MODE": 0}}, "its mode is l2, not l3"),
        ("ipvlan", {"data": {"IFLA_IPVLAN_MODE": 9}}, "its mode is 9, not l3"),
        ("ipvlan", {"IFLA_LINK": 2}, "it is not on up0"),
        ("ipvlan", {"IFLA_ADDRESS": "0a:58:00:00:00:77"}, f"its MAC is 0a:58:00:00:00:77, not {MAC}"),
        ("ipvlan", {"flags": 0}, "it is down"),
        ("ipvlan", {"kind": "veth", "data": None}, "its kind is 'veth', not 'ipvlan'"),
        ("vlan", {"data": {"IFLA_VLAN_ID": 8}}, "its VLAN is 8, not 7"),
        ("vlan", {"IFLA_LINK": 2}, "it is not on up0"),
        ("vlan", {"IFLA_MTU": 1300}, "its MTU is 1300, not 1400"),
        ("vlan", {"kind": "macvlan", "data": None}, "its kind is 'macvlan', not 'vlan'"),
    ],
)
def test_check_notices_drift(site: Site, kind: str, changed: dict[str, Any], message: str, monkeypatch: pytest.MonkeyPatch) -> None:
    own = {"kind": kind, "data": DATA[kind], "flags": UP, "IFLA_LINK": 3, "IFLA_MTU": 1400, **changed}
    play(site, kind, [get("pod", "eth0", link(2, "eth0", **own)), get("host", "up0", link(3, "up0", "veth"))], monkeypatch)
    previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "mac": MAC, "sandbox": site.pod.path}]}
    with pytest.raises(IOFailureError) as caught:
        site.call("CHECK", {**config_of(site, kind), "prevResult": previous})
    assert caught.value.msg == f"interface eth0: {message}"


def test_check_looks_for_the_routes_where_vrf_has_put_them(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    own = get("pod", "eth0", link(2, "eth0", "vlan", DATA["vlan"], UP, IFLA_LINK=3, IFLA_MTU=1400, IFLA_MASTER=9))
    blue = link(9, "blue", "vrf", {"IFLA_VRF_TABLE": 1000})
    addresses_4, addresses_6, *routes = looked_at(2, table=1000)
    vrf = Exchange("pod", Message("get link", {"index": 9}, WITHOUT_STATISTICS), [blue])
    master = get("host", "up0", link(3, "up0", "veth"))
    recording = play(site, "vlan", [own, master, addresses_4, addresses_6, vrf, *routes], monkeypatch)
    interfaces = [{"name": "eth0", "sandbox": site.pod.path}]
    previous = {"interfaces": interfaces, "ips": IPAM["addresses"], "routes": IPAM["routes"]}
    site.call("CHECK", {**config_of(site, "vlan"), "prevResult": previous})
    assert recording.rest == []


def test_dummy_is_made_checked_and_removed(site: Site, monkeypatch: pytest.MonkeyPatch) -> None:
    def own(flags: int) -> Exchange:
        return get("pod", "eth0", link(2, "eth0", "dummy", flags=flags))

    made = make("pod", {"IFLA_IFNAME": "eth0", "IFLA_LINKINFO": {"IFLA_INFO_KIND": "dummy"}})
    recording = play(
        site, "dummy", [made, own(0), *configured(2), own(UP), *looked_at(2), own(UP), own(0), own(UP), remove(2)], monkeypatch
    )
    config = site.config(ipam={**IPAM, "dns": {"domain": "ipam.org"}}, dns={"domain": "a.org"})
    result = site.call("ADD", config)
    assert site.plain(result) == {
        "cniVersion": "1.0.0",
        "interfaces": [{"name": "eth0", "mac": MAC, "sandbox": "NETNS"}],
        "ips": [{"interface": 0, "address": "10.1.0.5/24", "gateway": "10.1.0.1"}, {"interface": 0, "address": "fd00::5/64"}],
        "routes": IPAM["routes"],
        "dns": {"domain": "ipam.org"},  # as the binary has it
    }
    config["prevResult"] = result
    site.call("CHECK", config)
    with pytest.raises(IOFailureError, match="interface eth0: its MAC is 0a:58:00:00:00:05, not 0a:58:00:00:00:77"):
        site.call("CHECK", {**config, "prevResult": {**result, "interfaces": [{**result["interfaces"][0], "mac": "0a:58:00:00:00:77"}]}})
    with pytest.raises(IOFailureError, match="interface eth0: it is down"):
        site.call("CHECK", config)
    for verb in ("STATUS", "GC", "DEL"):
        site.call(verb, config)
    site.call("DEL", config, netns="/run/netns/gone")
    assert recording.rest == []


def test_dummy_wants_addresses(site: Site) -> None:
    for verb in ("ADD", "CHECK"):
        with pytest.raises(InvalidConfigError, match=r"interface eth0: ipam\.type None is not host-local or static"):
            site.call(verb, site.config())


@pytest.mark.parametrize("step", range(1, 8))
def test_a_failed_add_leaves_no_dummy(site: Site, step: int, monkeypatch: pytest.MonkeyPatch) -> None:
    own = get("pod", "eth0", link(2, "eth0", "dummy"))
    made = make("pod", {"IFLA_IFNAME": "eth0", "IFLA_LINKINFO": {"IFLA_INFO_KIND": "dummy"}})
    done = [made, own, *configured(2)][:step + 1]
    done[-1] = done[-1]._replace(answer=errno.ENOBUFS)
    recording = play(site, "dummy", [*done, own, remove(2)], monkeypatch)
    with pytest.raises(IOFailureError, match=r"^interface eth0: cannot .*: No buffer space available$"):
        site.call("ADD", site.config(ipam=IPAM))
    assert recording.rest == []
