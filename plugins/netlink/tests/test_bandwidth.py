"""``bandwidth``: queues beside its binary's, and that they hold a pod back."""

from __future__ import annotations

import contextlib
import json
import os
import socket
import subprocess
import time
from typing import Any

import pytest
from hypothesis import HealthCheck, Phase, assume, given, settings
from hypothesis import strategies as st
from kinds import try_every_verb, why_declined
from multus_netlink.bandwidth import Bandwidth
from services import HOST_END, ServiceSide, can_run
from sides import run_binary

from multus.errors import InvalidConfigError, IOFailureError
from multus.testing.pods import Namespace

EXAMPLES = int(os.environ.get("NETLINK_EXAMPLES", "200"))
PHASES = (Phase.explicit, Phase.generate)
drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))


def cannot_limit() -> str:
    """Why limits cannot be tried here; empty: they can."""
    if can_run():
        return can_run()
    with Namespace() as node, node.entered():
        script = "ip link add ifb7 type ifb && tc qdisc add dev ifb7 root tbf rate 1mbit burst 10k latency 25ms"
        done = subprocess.run(["sh", "-c", script], capture_output=True, text=True, check=False)
    return f"this kernel has no ifb or no tbf: {done.stderr.strip()}" if done.returncode else ""


CANNOT = cannot_limit()
needs_limits = pytest.mark.skipif(bool(CANNOT), reason=CANNOT or "runs")
RATES = st.one_of(st.just(0), st.integers(8, 1 << 34), st.sampled_from((1_000_000, 8, 15, (1 << 35) - 1, 1 << 35, 100_000_000_000)))
BURSTS = st.one_of(st.just(0), st.integers(8, 1 << 32), st.sampled_from((80_000, 8, (1 << 35) - 9, 1 << 35)))
LIMITS = st.fixed_dictionaries({}, optional={"ingressRate": RATES, "ingressBurst": BURSTS, "egressRate": RATES, "egressBurst": BURSTS})
KEYS = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
BOTH = st.tuples(RATES, BURSTS, RATES, BURSTS).map(lambda each: dict(zip(KEYS, each, strict=True)))
CONFIG = st.tuples(st.sampled_from(("1.0.0", "0.4.0", "0.3.1")), BOTH | LIMITS, st.none() | BOTH | LIMITS).map(
    lambda each: {
        "cniVersion": each[0], "name": "net", "type": "bandwidth",
        **({} if each[2] is None else {"runtimeConfig": {"bandwidth": each[2]}}), **each[1],
    }
)  # fmt: skip


IFB = "bwp623e1c388032"
"""For the container c1 on the network net."""


def queues(side: ServiceSide) -> Any:
    """The queues, filters and links for them."""
    found = [each for each in json.loads(side.node.run("tc", "-j", "-d", "qdisc", "show")) if each["kind"] not in ("noqueue", "pfifo_fast")]
    filters = side.node.run("tc", "filter", "show", "dev", HOST_END, "parent", "ffff:", check=False)
    links = side.links_json("node")
    ifbs = [[each["ifname"], each["mtu"], each.get("txqlen"), each["flags"]] for each in links.values() if each["ifname"].startswith("bwp")]
    return sorted(found, key=lambda each: each["dev"]), filters.split("index")[0], ifbs


def told(result: Any) -> Any:
    if result is None:
        return None
    return {**result, "interfaces": [{**each, "mac": "", "sandbox": bool(each.get("sandbox"))} for each in result["interfaces"]]}


@needs_limits
@drawn
@given(config=CONFIG)
def test_bandwidth_does_what_its_binary_does(sides: tuple[ServiceSide, ServiceSide], config: dict[str, Any]) -> None:
    for limits in (config, config.get("runtimeConfig", {}).get("bandwidth", {})):
        for way in ("ingress", "egress"):
            # The binary's numbers overflow when a burst takes more than 274 s, or more than 4 GB may wait.
            rate, burst = limits.get(f"{way}Rate", 0), limits.get(f"{way}Burst", 0)
            # It counts whole bytes: 15 bit/s are 1 byte/s.
            assume(not rate or (burst // 8 <= 270 * (rate // 8) and burst + rate * 0.025 < 1 << 35))
    outcomes = []
    for side in sides:
        side.attach()
        side.node.run("sh", "-c", f"ip link del {IFB} 2> /dev/null", check=False)  # of an example that failed
        whole = {**config, "prevResult": side.result(config["cniVersion"])}
        result = side.call("ADD", whole)
        outcomes.append([told(result), result and queues(side)])
        # 0.3.1 has no CHECK, and 1.1 falls down without limits.
        if result is not None and config["cniVersion"] != "0.3.1" and queues(side)[0]:
            outcomes[-1].append(side.call("CHECK", {**whole, "prevResult": result}))
        side.call("DEL", whole)
        assert queues(side)[2] == []
    assert outcomes[0] == outcomes[1], sides[1].messages[-1:]


LIMITED = {"ingressRate": 4_000_000, "ingressBurst": 80_000, "egressRate": 8_000_000, "egressBurst": 160_000}


def config_of(side: ServiceSide, **more: Any) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": "net", "type": "bandwidth", "prevResult": side.result(), **more}


def call(side: ServiceSide, verb: str, config: dict[str, Any], **more: Any) -> Any:
    invocation = side.invocation(verb, config)._replace(**more)
    bandwidth = Bandwidth()
    assert why_declined(bandwidth, invocation) == ""
    methods = {"ADD": bandwidth.add, "DEL": bandwidth.delete, "CHECK": bandwidth.check, "GC": bandwidth.gc, "STATUS": bandwidth.status}
    return methods[verb](invocation)


def seconds_for(sender: Namespace, receiver: Namespace, address: str, size: int) -> float:
    """How long some bytes take from one namespace to the other."""
    with receiver.entered():
        listening = socket.create_server((address, 0))
    with sender.entered():
        sending = socket.create_connection(listening.getsockname()[:2], timeout=20)
    receiving = listening.accept()[0]
    receiving.settimeout(20)
    begun, left = time.monotonic(), size
    sending.setblocking(False)
    unsent = bytes(size)
    with listening, sending, receiving:
        while left:
            with contextlib.suppress(BlockingIOError):
                unsent = unsent[sending.send(unsent):] if unsent else unsent
            receiving.settimeout(0.01)
            with contextlib.suppress(TimeoutError):
                left -= len(receiving.recv(1 << 16))
    return time.monotonic() - begun


@needs_limits
def test_what_a_pod_receives_and_sends_takes_its_time(side: ServiceSide) -> None:
    call(side, "ADD", config_of(side, runtimeConfig={"bandwidth": LIMITED}))
    # 500 kB/s less 10 kB at once, and 1 MB/s less 20 kB: a slow machine takes longer, none is faster.
    assert seconds_for(side.node, side.pod, "10.1.0.2", 300_000) > 0.5
    assert seconds_for(side.pod, side.node, "10.1.0.1", 300_000) > 0.25


@needs_limits
def test_each_takes_back_what_the_other_has_made(side: ServiceSide) -> None:
    config = config_of(side, **LIMITED)
    result = call(side, "ADD", config).document
    call(side, "CHECK", {**config, "prevResult": result})
    assert run_binary(side.pod, "CHECK", {**config, "prevResult": dict(result)}).returncode == 0
    assert run_binary(side.pod, "DEL", config).returncode == 0
    assert queues(side)[2] == []
    side.attach()
    config = config_of(side, **LIMITED)
    assert run_binary(side.pod, "ADD", config).returncode == 0
    call(side, "CHECK", config)
    call(side, "DEL", config)
    call(side, "DEL", config)
    assert queues(side)[2] == []


@needs_limits
def test_the_configuration_goes_before_the_capability(side: ServiceSide) -> None:
    own = {**LIMITED, "egressRate": 0, "egressBurst": 0}
    call(side, "ADD", config_of(side, **own, runtimeConfig={"bandwidth": {**LIMITED, "ingressRate": 9}}))
    assert [each["options"]["rate"] for each in queues(side)[0]] == [500_000]


CHANGE = f"tc qdisc change dev {HOST_END} root tbf"


@needs_limits
@pytest.mark.parametrize(
    ("drift", "message"),
    [
        (f"tc qdisc del dev {HOST_END} root", f"the rate of {HOST_END} is not limited"),
        (f"{CHANGE} rate 1mbit burst 10000 limit 30000", f"the rate of {HOST_END} is 125000, not 500000"),
        (f"{CHANGE} rate 4mbit burst 20000 limit 22500", f"the buffer of {HOST_END} is 625000, not 312500"),
        (f"{CHANGE} rate 4mbit burst 10000 limit 10000", f"the limit of {HOST_END} is 10000, not 22500"),
        (f"tc qdisc del dev {HOST_END} ingress", f"what {HOST_END} receives is not redirected"),
        ("tc qdisc del dev $(cd /sys/class/net; ls -d bwp*) root", "the rate of bwp.* is not limited"),
        ("ip link del $(cd /sys/class/net; ls -d bwp*)", "there is no link bwp"),
    ],
)
def test_check_notices_drift(side: ServiceSide, drift: str, message: str) -> None:
    config = config_of(side, **LIMITED)
    config["prevResult"] = dict(call(side, "ADD", config).document)
    call(side, "CHECK", config)
    # A namespace sees the links of the /sys that was mounted in it.
    side.node.run("unshare", "-m", "sh", "-c", f"mount -t sysfs sysfs /sys; {drift}")
    with pytest.raises(IOFailureError, match=f"interface eth0: {message}"):
        call(side, "CHECK", config)


@needs_limits
def test_a_failed_add_leaves_no_limit(side: ServiceSide, monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise IOFailureError("refused")

    monkeypatch.setattr("multus_netlink.qdiscs.QdiscLinks.redirect", refuse)
    with pytest.raises(IOFailureError, match="refused"):
        call(side, "ADD", config_of(side, **LIMITED))
    assert queues(side) == ([], "", [])


@needs_limits
def test_adding_again_is_refused_and_leaves_what_is_there(side: ServiceSide) -> None:
    call(side, "ADD", config_of(side, **LIMITED))
    before = queues(side)
    with pytest.raises(IOFailureError, match=f"its other end, {HOST_END}, is limited already"):
        call(side, "ADD", config_of(side, **LIMITED))
    assert queues(side) == before


@needs_limits
def test_gc_removes_the_ifb_links_of_the_network_that_no_valid_attachment_has(side: ServiceSide) -> None:
    config = config_of(side, **LIMITED)
    call(side, "ADD", config)
    side.node.run("ip", "link", "add", "bwp000000000000", "type", "ifb")  # another network's, or the binary's
    mine = {"containerID": "c1", "ifname": "eth0"}
    call(side, "GC", {**config, "cni.dev/valid-attachments": [mine]})
    call(side, "GC", {**config, "name": "other", "cni.dev/valid-attachments": []})
    assert {"bwp000000000000", IFB} <= side.links_json("node").keys()
    call(side, "GC", {**config, "cni.dev/valid-attachments": [{**mine, "containerID": "c2"}]})
    assert {name for name in side.links_json("node") if name.startswith("bwp")} == {"bwp000000000000"}
    with pytest.raises(InvalidConfigError, match=r"cni\.dev/valid-attachments None is not a list of attachments"):
        call(side, "GC", config)


@needs_limits
def test_a_second_interface_does_not_take_the_ifb_of_the_first(side: ServiceSide) -> None:
    call(side, "ADD", config_of(side, **LIMITED))
    side.node.run("sh", "-c", f"ip link add vethpod1 type veth peer name eth1 netns {side.pod.path}")
    result = side.result()
    result["interfaces"] = [{"name": "vethpod1"}, {"name": "eth1", "sandbox": side.pod.path}]
    with pytest.raises(IOFailureError, match=r"cannot make ifb bwp.*: File exists"):
        call(side, "ADD", config_of(side, **LIMITED, prevResult=result), ifname="eth1")
    assert [each["dev"] for each in queues(side)[0] if each["dev"] == "vethpod1"] == []
    assert len(queues(side)[2]) == 1


@needs_limits
def test_a_burst_longer_than_the_kernel_counts_is_as_long_as_it_counts(side: ServiceSide) -> None:
    config = config_of(side, ingressRate=8000, ingressBurst=8 << 30)
    call(side, "ADD", config)
    call(side, "CHECK", config)
    assert queues(side)[0][0]["options"]["burst"] == "274877b/1"


@needs_limits
@pytest.mark.parametrize("netns", ["/run/netns/gone", ""])
def test_delete_needs_no_namespace_and_no_previous_result(side: ServiceSide, netns: str) -> None:
    config = config_of(side, **LIMITED)
    call(side, "ADD", config)
    del config["prevResult"]
    call(side, "DEL", config, netns=netns)
    assert queues(side)[2] == []
    assert call(side, "STATUS", config) is None


@needs_limits
def test_an_interface_without_another_end_is_refused(side: ServiceSide) -> None:
    config = config_of(side, **LIMITED)
    config["prevResult"]["interfaces"][0]["name"] = "br7"
    with pytest.raises(InvalidConfigError, match="no other end on the host that could be limited: prevResult names br7"):
        call(side, "ADD", config)
    side.pod.run("sh", "-c", "ip link del eth0; ip link add eth0 type bridge")
    with pytest.raises(InvalidConfigError, match="no other end on the host that could be limited: it is a bridge"):
        call(side, "ADD", config)


@needs_limits
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"ingressRate": 1000}, "ingressBurst None is not given, and ingressRate is"),
        ({"egressBurst": 1000, "egressRate": 0}, "egressRate 0 is not given, and egressBurst is"),
        ({"egressRate": -8, "egressBurst": 8}, "egressRate -8 is not a rate in bits per second, from 8 to 18446744073709551615"),
        ({"egressRate": 8, "egressBurst": 1 << 40}, "egressBurst 1099511627776 is not a burst in bits, from 8 to 34359738359"),
        ({"runtimeConfig": {"bandwidth": {"ingressRate": "1M"}}}, "runtimeConfig.bandwidth.ingressRate '1M' is not a whole number"),
        ({"runtimeConfig": {"bandwidth": [1]}}, "runtimeConfig.bandwidth (a list) is not an object"),
        ({"ingressRate": 1000, "ingressBurst": 1000, "prevResult": None}, "prevResult is missing: the plugin goes behind a network's"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(side: ServiceSide, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        call(side, "ADD", config_of(side, **more))
    assert (caught.value.msg, queues(side)) == (f"interface eth0: {message}", ([], "", []))


@needs_limits
@pytest.mark.parametrize(
    ("more", "why"),
    [
        (LIMITED, ""),
        ({"unshapedSubnets": ["10.0.0.0/8"]}, 'key "unshapedSubnets" (a list) is not served'),
        ({"shapedSubnets": ["10.0.0.0/8"]}, 'key "shapedSubnets" (a list) is not served'),
    ],
)
def test_what_is_declined(side: ServiceSide, more: dict[str, Any], why: str) -> None:
    assert why_declined(Bandwidth(), side.invocation("ADD", config_of(side, **more))) == why


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)
WILD_LIMITS = st.dictionaries(st.sampled_from(KEYS), ANYTHING, max_size=3)
WILD = st.fixed_dictionaries(
    {"runtimeConfig": ANYTHING | st.fixed_dictionaries({"bandwidth": ANYTHING | WILD_LIMITS})},
    optional={"prevResult": ANYTHING, "name": ANYTHING, "ingressRate": ANYTHING, "egressBurst": ANYTHING},
)


@needs_limits
@drawn
@given(more=WILD)
def test_no_configuration_crashes(side: ServiceSide, more: dict[str, Any]) -> None:
    try_every_verb(Bandwidth(), side.invocation("ADD", {**config_of(side), **more}))
