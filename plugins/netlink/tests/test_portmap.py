"""``portmap``: who reaches a pod by a port of the host, from where, and that nobody does after DEL; beside its binary."""

from __future__ import annotations

import contextlib
import json
import os
import socket
from concurrent.futures import ThreadPoolExecutor
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kinds import try_every_verb, why_declined
from multus_netlink.portmap import Portmap
from services import Server, ServiceSide, can_run, reaches
from sides import run_binary

from multus.errors import InvalidConfigError, IOFailureError, NotAvailableError
from multus.testing.pods import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

needs_root = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")
EXAMPLES = int(os.environ.get("NETLINK_EXAMPLES", "200"))
PHASES = (Phase.explicit, Phase.generate)
drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))

POD_PORT = 80
HOST_PORT = 8080
HOST_4, HOST_6 = "203.0.113.1", "fd00:9::1"
OTHER_HOST_4 = "203.0.113.7"
OUTSIDE_4, OUTSIDE_6 = "203.0.113.2", "fd00:9::2"
GATEWAY = "10.1.0.1"
MAPPING = {"hostPort": HOST_PORT, "containerPort": POD_PORT, "protocol": "tcp"}


class Place(ServiceSide):
    """A node that forwards, with a neighbour outside; the pod's server runs."""

    def __enter__(self) -> Place:
        super().__enter__()
        self.outside = Namespace()
        self.outside.__enter__()
        self.node.run("sh", "-c", (
            f"ip link add ext0 type veth peer name out0 netns {self.outside.path}; ip address add {HOST_4}/24 dev ext0; "
            f"ip address add {OTHER_HOST_4}/24 dev ext0; ip -6 address add {HOST_6}/64 dev ext0 nodad; ip link set ext0 up; "
            "echo 1 > /proc/sys/net/ipv4/ip_forward; echo 1 > /proc/sys/net/ipv6/conf/all/forwarding"
        ))  # fmt: skip
        self.outside.run("sh", "-c", (
            f"ip address add {OUTSIDE_4}/24 dev out0; ip -6 address add {OUTSIDE_6}/64 dev out0 nodad; ip link set out0 up; "
            f"ip route add 10.1.0.0/24 via {HOST_4}; ip -6 route add fd00:1::/64 via {HOST_6}"
        ))  # fmt: skip
        self.server = Server(self.pod, POD_PORT)
        return self

    def __exit__(self, *of: Any) -> None:
        self.server.close()
        self.outside.__exit__(None, None, None)
        super().__exit__(*of)

    def answers(self, port: int = HOST_PORT, *, wait_s: float = 3.0) -> dict[str, str]:
        """Who is seen by the server, by where the client is and what it asks."""
        asked = {
            "outside": (self.outside, HOST_4), "outside, by the other address": (self.outside, OTHER_HOST_4),
            "outside, IPv6": (self.outside, HOST_6), "host": (self.node, HOST_4), "host, IPv6": (self.node, HOST_6),
            "localhost": (self.node, "127.0.0.1"), "pod itself": (self.pod, HOST_4), "pod itself, IPv6": (self.pod, HOST_6),
        }  # fmt: skip
        with ThreadPoolExecutor(len(asked)) as clients:
            running = {name: clients.submit(reaches, *where, port, wait_s=wait_s) for name, where in asked.items()}
        return {name: each.result() for name, each in running.items()}

    def rules(self) -> list[str]:
        """Our rules that belong to attachments."""
        listing = self.node.run("nft", "list", "ruleset")
        return [line.strip() for line in listing.splitlines() if "comment" in line and "to hostports" not in line]


ALL = {
    "outside": OUTSIDE_4, "outside, by the other address": OUTSIDE_4, "outside, IPv6": OUTSIDE_6, "host": HOST_4, "host, IPv6": HOST_6,
    "localhost": GATEWAY, "pod itself": GATEWAY, "pod itself, IPv6": "fd00:1::1",
}  # fmt: skip
NOBODY = dict.fromkeys(ALL, "")


@pytest.fixture
def place(tmp_path: Path) -> Iterator[Place]:
    with Place(False, str(tmp_path)) as place, place.node.entered():
        yield place


def config_of(place: ServiceSide, *mappings: dict[str, Any], **more: Any) -> dict[str, Any]:
    runtime = {"portMappings": list(mappings or (MAPPING,))}
    return {"cniVersion": "1.0.0", "name": "net", "type": "portmap", "runtimeConfig": runtime, "prevResult": place.result(), **more}


def call(place: ServiceSide, verb: str, config: dict[str, Any], **more: Any) -> Any:
    invocation = place.invocation(verb, config)._replace(**more)
    portmap = Portmap()
    assert why_declined(portmap, invocation) == ""
    methods = {"ADD": portmap.add, "DEL": portmap.delete, "CHECK": portmap.check, "GC": portmap.gc, "STATUS": portmap.status}
    return methods[verb](invocation)


@needs_root
def test_a_port_is_reached_from_everywhere_and_from_nowhere_after_delete(place: Place) -> None:
    config = config_of(place)
    assert place.answers(wait_s=1) == NOBODY
    assert dict(call(place, "ADD", config).document) == config["prevResult"]
    call(place, "CHECK", config)
    assert place.answers() == ALL
    call(place, "DEL", config)
    assert (place.answers(wait_s=1), place.rules()) == (NOBODY, [])
    call(place, "DEL", config)


@needs_root
@pytest.mark.parametrize(
    ("more", "mapping"),
    [
        ({}, {}),
        ({"snat": False}, {}),
        ({}, {"hostIP": HOST_4}),
        ({}, {"hostIP": "0.0.0.0"}),
        ({}, {"hostIP": "::"}),
        ({"snat": False}, {"hostIP": HOST_6}),
    ],
)
def test_portmap_answers_where_its_binary_does(tmp_path: Path, more: dict[str, Any], mapping: dict[str, Any]) -> None:
    seen = []
    for is_binary in (True, False):
        with Place(is_binary, str(tmp_path)) as place:
            config = config_of(place, {**MAPPING, **mapping}, **more)
            assert place.call("ADD", config) == config["prevResult"]
            seen.append(place.answers(wait_s=1))
            assert place.call("DEL", config) == {}
            assert place.answers(wait_s=1) == NOBODY
    assert seen[0] == seen[1]


HOST_PORTS = (8080, 8081, 8082)


def mostly(usual: tuple[Any, ...], seldom: tuple[Any, ...]) -> st.SearchStrategy[Any]:
    """One of the seldom values once in a dozen."""
    return st.integers(1, 12).flatmap(lambda number: st.sampled_from(seldom if number == 12 else usual))


MAPPINGS = st.lists(
    st.fixed_dictionaries(
        {
            "hostPort": mostly(HOST_PORTS, (0, -1, 65536)),
            "containerPort": mostly((POD_PORT, POD_PORT, 81), (0,)),
            "protocol": mostly(("tcp", "tcp", "TCP", "udp"), ("icmp", "")),
        },
        optional={"hostIP": mostly((HOST_4, HOST_4, OTHER_HOST_4, HOST_6, "0.0.0.0", "::", ""), ("203.0.113.99", "host"))},
    ),
    min_size=1,
    max_size=3,
    unique_by=lambda each: each["hostPort"],
)
KEYS = st.fixed_dictionaries(
    {}, optional={"snat": st.booleans(), "conditionsV4": st.sampled_from(([], ["-s", f"{OUTSIDE_4}/32"], ["!", "-s", f"{OUTSIDE_4}/32"]))}
)

def spoken(keys: dict[str, Any]) -> dict[str, Any]:
    """The configuration for us: conditions are nft's, where the binary, of release 1.1, has those of iptables."""
    if "conditionsV4" not in keys or not keys["conditionsV4"]:
        return keys
    is_negated, network = keys["conditionsV4"][0] == "!", keys["conditionsV4"][-1]
    return {**keys, "conditionsV4": ["ip", "saddr", *(["!="] if is_negated else []), network]}


@pytest.fixture
def places(tmp_path: Path) -> Iterator[tuple[Place, Place]]:
    with Place(True, str(tmp_path / "binary")) as theirs, Place(False, str(tmp_path / "object")) as ours:
        yield theirs, ours


@needs_root
@drawn
@given(mappings=MAPPINGS, keys=KEYS, version=st.sampled_from(("1.0.0", "0.4.0", "0.3.1")))
def test_portmap_does_what_its_binary_does(
    places: tuple[Place, Place], mappings: list[dict[str, Any]], keys: dict[str, Any], version: str
) -> None:
    """The same answers, and the pod's server reached from the same places, by the same addresses, or not at all."""
    configs = [
        {
            "cniVersion": version, "name": "net", "type": "portmap", "runtimeConfig": {"portMappings": mappings},
            "prevResult": place.result(version), **(keys if place.is_binary else spoken(keys)),
        }
        for place in places
    ]  # fmt: skip
    answers = [place.call("ADD", config) for place, config in zip(places, configs, strict=True)]
    is_refused = answers[0] is None
    assert answers == ([None, None] if is_refused else [config["prevResult"] for config in configs])
    if not is_refused:
        for port in HOST_PORTS:
            theirs, ours = who_is_seen(places, port)
            assert theirs == ours, port
    for place, config in zip(places, configs, strict=True):
        assert place.call("DEL", config) == {} or is_refused
        assert [port for port in HOST_PORTS if place.answers(port, wait_s=0.3) != NOBODY] == []


def who_is_seen(places: tuple[Place, Place], port: int) -> list[dict[str, str]]:
    """The answers of both places: soon, or in the time that a busy machine may take, should the soon ones differ."""
    soon = [place.answers(port, wait_s=0.3) for place in places]
    return soon if soon[0] == soon[1] else [place.answers(port) for place in places]


@needs_root
def test_with_masq_all_the_pod_sees_its_host_alone(place: Place) -> None:
    call(place, "ADD", config_of(place, masqAll=True))
    assert place.answers() == {name: "fd00:1::1" if ":" in client else GATEWAY for name, client in ALL.items()}
    assert reaches(place.outside, "10.1.0.2", POD_PORT) == OUTSIDE_4


@needs_root
def test_udp_goes_to_the_pod_and_flows_follow_the_rules(place: Place) -> None:
    config = config_of(place, {**MAPPING, "protocol": "UDP"})
    asking = []
    for host in (HOST_4, HOST_6):
        with place.outside.entered():
            asking.append(socket.socket(socket.AF_INET6 if ":" in host else socket.AF_INET, socket.SOCK_DGRAM))
        asking[-1].settimeout(3)
        asking[-1].connect((host, HOST_PORT))
        # Nobody listens: the kernel remembers the flow as one to the host, for half a minute.
        asking[-1].send(b"?")
        with contextlib.suppress(OSError):
            asking[-1].recv(100)
    call(place, "ADD", config)
    for each, outside in zip(asking, (OUTSIDE_4, OUTSIDE_6), strict=True):
        each.send(b"?")
        assert each.recv(100).decode().removeprefix("::ffff:") == outside
    call(place, "DEL", config)
    for each in asking:
        each.settimeout(1)
        each.send(b"?")
        with pytest.raises((TimeoutError, ConnectionRefusedError)):
            each.recv(100)
        each.close()


@needs_root
def test_ports_of_every_protocol_have_rules(place: Place) -> None:
    mappings = [{"hostPort": 5000 + number, "containerPort": 80, "protocol": each} for number, each in enumerate(("tcp", "UDP", "sctp"))]
    call(place, "ADD", config_of(place, *mappings, MAPPING))
    rules = "\n".join(place.rules())
    for text in ("tcp dport 5000 dnat to 10.1.0.2:80", "udp dport 5001 dnat to", "sctp dport 5002 dnat to [fd00:1::2]:80"):
        assert text in rules
    assert reaches(place.outside, HOST_4, HOST_PORT) == OUTSIDE_4


@needs_root
@pytest.mark.parametrize(
    ("key", "condition", "expected"),
    [
        ("conditionsV4", ["ip", "saddr", "!=", OUTSIDE_4], {"outside": "", "outside, by the other address": ""}),
        ("conditionsV4", ["ip daddr != 203.0.113.4/30"], {"outside, by the other address": ""}),
        ("conditionsV4", ["iifname", '"ext0"'], {"host": "", "localhost": "", "pod itself": ""}),
        ("conditionsV6", ["ip6 saddr fd00:9::2/128", "iifname != eth7"], {"host, IPv6": "", "pod itself, IPv6": ""}),
    ],
)
def test_conditions_hold(place: Place, key: str, condition: list[str], expected: dict[str, str]) -> None:
    call(place, "ADD", config_of(place, **{key: condition, "backend": "nftables"}))
    assert place.answers(wait_s=1) == {**ALL, **expected}


NAMES = st.sampled_from(("eth0", "br-1", "a.100", "x" * 15, "veth@1", "eth*", ""))
NETWORKS = {4: ("192.0.2.1", "10.0.0.0/8", "0.0.0.0/0", "192.0.2.7/29", "fd00::1", "x"), 6: ("fd00::1", "fd00::/64", "::/0", "10.0.0.1")}
OPERATORS = st.sampled_from(("", "==", "!=", "eq", "ne", "<"))


def conditions_of(family: int) -> st.SearchStrategy[str]:
    header = st.sampled_from((*(["ip", "ip6"] if family == 4 else ["ip6"]),))
    by_address = st.tuples(header, st.sampled_from(("saddr", "daddr", "ttl")), OPERATORS, st.sampled_from(NETWORKS[family]))
    by_interface = st.tuples(st.sampled_from(("iifname", "meta iifname", "oifname")), OPERATORS, NAMES.map('"{}"'.format))
    return st.one_of(by_address, by_address, by_interface).map(lambda words: " ".join(word for word in words if word))


@needs_root
@drawn
@given(family=st.sampled_from((4, 6)), data=st.data())
def test_conditions_are_read_as_nft_reads_them(place: Place, family: int, data: st.DataObject) -> None:
    condition = data.draw(st.lists(conditions_of(family), max_size=2))
    key = "conditionsV4" if family == 4 else "conditionsV6"
    config = config_of(place, **{key: condition, "snat": False})
    invocation = place.invocation("ADD", config)
    if why_declined(Portmap(), invocation):
        return
    call(place, "ADD", config)
    header, to = ("ip", "10.1.0.2:80") if family == 4 else ("ip6", "[fd00:1::2]:80")
    place.node.run("nft", f"add table {header} other; flush table {header} other; add chain {header} other hostports")
    place.node.run("nft", f"add rule {header} other hostports {' '.join(condition)} tcp dport {HOST_PORT} dnat to {to}")
    chains = [place.node.run("nft", "list", "chain", header, table, "hostports").splitlines()[2:] for table in ("multus", "other")]
    listed = [[line.partition(" comment")[0].strip() for line in chain] for chain in chains]
    assert listed[0] == listed[1]


@needs_root
@pytest.mark.parametrize(
    ("more", "why"),
    [
        ({}, ""),
        ({"backend": "nftables", "snat": True, "masqAll": False, "conditionsV4": None, "externalSetMarkChain": None}, ""),
        ({"backend": "iptables"}, "\"backend\" 'iptables'"),
        ({"externalSetMarkChain": "KUBE-MARK-MASQ"}, "\"externalSetMarkChain\" 'KUBE-MARK-MASQ'"),
        ({"markMasqBit": 5}, '"markMasqBit" 5'),
        ({"conditionsV4": ["!", "-d", "192.0.2.0/24"]}, "\"conditionsV4\" '! -d 192.0.2.0/24'"),
        ({"conditionsV6": ["ip6 saddr { fd00::1, fd00::2 }"]}, "\"conditionsV6\" 'ip6 saddr { fd00::1, fd00::2 }'"),
        ({"conditionsV4": ["ip6 saddr fd00::1"]}, "\"conditionsV4\" 'ip6 saddr fd00::1'"),
        ({"other": 1}, '"other" 1'),
    ],
)
def test_what_is_declined(place: Place, more: dict[str, Any], why: str) -> None:
    told = why_declined(Portmap(), place.invocation("ADD", config_of(place, **more)))
    assert told == (f"key {why} is not served" if why else "")


@needs_root
def test_each_attachment_has_its_own_rules_and_adding_again_replaces_them(place: Place) -> None:
    first, second = config_of(place), config_of(place, {**MAPPING, "hostPort": 9090}, name="other")
    call(place, "ADD", first)
    call(place, "ADD", second)
    call(place, "ADD", config_of(place, {**MAPPING, "hostPort": 8081}))
    call(place, "DEL", second)
    assert [reaches(place.outside, HOST_4, port, wait_s=1) for port in (8080, 8081, 9090)] == ["", OUTSIDE_4, ""]


@needs_root
@pytest.mark.parametrize(
    ("drift", "message"),
    [
        ("flush chain ip multus hostports", r"tcp \*:8080 10\.1\.0\.2:80' in chain hostports of nftables is gone"),
        ("flush chain ip6 multus postrouting", "hairpin' in chain postrouting of nftables is gone"),
        ("flush chain ip multus output", "'to hostports' in chain output of nftables is gone"),
        ("delete table ip6 multus", "'to hostports' in chain prerouting of nftables is gone"),
    ],
)
def test_check_notices_drift_and_adding_again_mends_it(place: Place, drift: str, message: str) -> None:
    config = config_of(place)
    call(place, "ADD", config)
    place.node.run("nft", drift)
    with pytest.raises(IOFailureError, match=f"interface eth0: the rule .*{message}"):
        call(place, "CHECK", config)
    call(place, "ADD", config)
    call(place, "CHECK", config)
    assert place.answers() == ALL


@needs_root
@pytest.mark.parametrize("without", ["prevResult", "runtimeConfig", "netns"])
def test_delete_needs_little(place: Place, without: str) -> None:
    config = config_of(place)
    call(place, "ADD", config)
    config.pop(without, None)
    call(place, "DEL", config, **({"netns": ""} if without == "netns" else {}))
    assert place.rules() == []
    call(place, "DEL", config)


@needs_root
def test_delete_where_nothing_was_made_makes_nothing(place: Place) -> None:
    call(place, "DEL", config_of(place))
    assert place.node.run("nft", "list", "ruleset") == ""


@needs_root
def test_gc_removes_what_belongs_to_no_attachment_of_the_network(place: Place) -> None:
    config, other = config_of(place), config_of(place, {**MAPPING, "hostPort": 9090}, name="other")
    call(place, "ADD", config)
    call(place, "ADD", other)
    mine = {"containerID": "c1", "ifname": "eth0"}
    call(place, "GC", {**config, "cni.dev/valid-attachments": [mine]})
    assert place.answers() == ALL
    call(place, "GC", {**config, "cni.dev/valid-attachments": [{**mine, "ifname": "eth1"}]})
    assert [reaches(place.outside, HOST_4, port, wait_s=1) for port in (8080, 9090)] == ["", OUTSIDE_4]
    with pytest.raises(InvalidConfigError, match=r"cni\.dev/valid-attachments None is not a list of attachments"):
        call(place, "GC", config)


@needs_root
def test_a_failed_add_leaves_no_rule(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise IOFailureError("refused")

    monkeypatch.setattr("multus_netlink.portmap.write_setting", refuse)
    with pytest.raises(IOFailureError, match="refused"):
        call(place, "ADD", config_of(place))
    assert place.rules() == []


@needs_root
def test_without_ports_the_result_is_handed_on_and_nothing_is_made(place: Place) -> None:
    config = config_of(place, runtimeConfig={})
    assert dict(call(place, "ADD", config).document) == config["prevResult"]
    call(place, "CHECK", config)
    assert place.node.run("nft", "list", "ruleset") == ""


@needs_root
def test_an_interface_of_another_name_is_not_mapped(place: Place) -> None:
    result = place.result()
    result["ips"].insert(0, {"address": "10.7.0.7/24", "interface": 0})
    result["ips"].append({"address": "10.8.0.8/24"})
    call(place, "ADD", config_of(place, prevResult=result))
    assert reaches(place.outside, HOST_4, HOST_PORT) == OUTSIDE_4
    assert not any("10.7.0.7" in rule or "10.8.0.8" in rule for rule in place.rules())


@needs_root
def test_many_at_once_make_one_table_and_leave_none_of_their_rules(place: Place) -> None:
    more = [{**MAPPING, "hostPort": 20000 + number} for number in range(20)]

    def both(number: int) -> None:
        config = config_of(place, {**MAPPING, "hostPort": 9000 + number}, *more, prevResult=result)
        with place.node.entered():
            call(place, "ADD", config, container_id=f"c{number}")
            call(place, "CHECK", config, container_id=f"c{number}")
            if number:
                call(place, "DEL", config, container_id=f"c{number}")

    result = place.result()
    with ThreadPoolExecutor(12) as pool:
        list(pool.map(both, range(36)))
    assert place.node.run("nft", "list", "ruleset").count("to hostports") == 4
    assert len({rule.rpartition('comment "')[2][:25] for rule in place.rules()}) == 1
    assert reaches(place.outside, HOST_4, 9000) == OUTSIDE_4


@needs_root
@pytest.mark.parametrize(
    ("mapping", "more", "message"),
    [
        ({"hostPort": 0}, {}, "runtimeConfig.portMappings[0].hostPort 0 is not a port, from 1 to 65535"),
        ({"hostPort": 65536}, {}, "runtimeConfig.portMappings[0].hostPort 65536 is not a port, from 1 to 65535"),
        ({"containerPort": "80"}, {}, "runtimeConfig.portMappings[0].containerPort '80' is not a whole number"),
        ({"protocol": "icmp"}, {}, "runtimeConfig.portMappings[0].protocol 'icmp' is not one of tcp, udp, sctp"),
        ({"protocol": None}, {}, "runtimeConfig.portMappings[0].protocol None is not one of tcp, udp, sctp"),
        ({"hostIP": "10.0.0"}, {}, "runtimeConfig.portMappings[0].hostIP '10.0.0' is not an IP address"),
        ({}, {"snat": "no"}, "snat 'no' is not true or false"),
        ({}, {"conditionsV4": [5]}, "conditionsV4 (a list) is not a list of strings"),
        ({}, {"conditionsV6": "x"}, "conditionsV6 'x' is not a list"),
        ({}, {"prevResult": None}, "prevResult is missing: the plugin goes behind a network's"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(place: Place, mapping: dict[str, Any], more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        call(place, "ADD", config_of(place, {**MAPPING, **mapping}, **more))
    assert (caught.value.msg, place.rules()) == (f"interface eth0: {message}", [])


@needs_root
def test_status_tells_of_a_kernel_without_nftables(place: Place, monkeypatch: pytest.MonkeyPatch) -> None:
    call(place, "STATUS", config_of(place))
    monkeypatch.setattr("multus_netlink.nftables._SUBSYSTEM", 14)  # there is none of that number
    with pytest.raises(NotAvailableError, match="nftables cannot be used: Invalid argument"):
        call(place, "STATUS", config_of(place))
    call(place, "DEL", config_of(place))


@needs_root
def test_a_long_host_address_fits_into_the_comment(place: Place) -> None:
    address = "fd00:1234:1234:1234:1234:1234:1234:1234"
    config = config_of(place, {"hostPort": 65535, "containerPort": 65535, "protocol": "sctp", "hostIP": address})
    config["prevResult"]["ips"][1]["address"] = "fd00:4321:1234:1234:1234:1234:1234:1234/64"
    call(place, "ADD", config)
    call(place, "CHECK", config)
    assert any(f"sctp [{address}]:65535 [fd00:4321:1234:1234:1234:1234:1234:1234]:65535" in rule for rule in place.rules())


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
ENTRY = st.dictionaries(st.sampled_from(("hostPort", "containerPort", "protocol", "hostIP")), ANYTHING, max_size=2).map(
    lambda odd: {**MAPPING, **odd}
)
WILD = st.fixed_dictionaries(
    {"runtimeConfig": ANYTHING | st.fixed_dictionaries({"portMappings": ANYTHING | st.lists(ENTRY | ANYTHING, max_size=2)})},
    optional=dict.fromkeys(("backend", "snat", "masqAll", "conditionsV4", "conditionsV6", "prevResult", "name"), ANYTHING),
)


@needs_root
@drawn
@given(more=WILD)
def test_no_configuration_crashes(place: Place, more: dict[str, Any]) -> None:
    try_every_verb(Portmap(), place.invocation("ADD", json.loads(json.dumps({**config_of(place), **more}))))


@needs_root
def test_the_binary_of_another_backend_does_not_mind_our_rules(place: Place) -> None:
    call(place, "ADD", config_of(place))
    theirs = config_of(place, {**MAPPING, "hostPort": 9090}, name="other")
    assert run_binary(place.pod, "ADD", theirs).returncode == 0
    assert [reaches(place.outside, HOST_4, port) for port in (8080, 9090)] == [OUTSIDE_4, OUTSIDE_4]
    assert run_binary(place.pod, "DEL", theirs).returncode == 0
    assert place.answers() == ALL
