"""``tuning``: settings and attributes beside its binary, and what DEL gives back."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from kinds import try_every_verb, why_declined
from multus_netlink.tuning import Tuning
from services import ServiceSide, can_run
from sides import run_binary

from multus.errors import InvalidConfigError, InvalidEnvironmentError, IOFailureError

if TYPE_CHECKING:
    from pathlib import Path

needs_root = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

EXAMPLES = int(os.environ.get("NETLINK_EXAMPLES", "200"))
PHASES = (Phase.explicit, Phase.generate)
drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))

WATCHED = ("net.ipv4.conf.eth0.arp_filter", "net.ipv4.conf.all.log_martians", "net.core.somaxconn", "net.ipv4.ip_local_port_range")
SYSCTL = st.dictionaries(
    st.sampled_from((*WATCHED, "net.ipv4.nothing", "kernel.hostname", "net/ipv4/conf/eth0/arp_filter", "net.ipv4.../kernel.hostname")),
    st.sampled_from(("0", "1", "100", "2000\t3000", "abc", "")),
    max_size=1,  # the binary takes them in any order
)
ASKED = "0a:58:00:00:"
"""What MACs begin with that are asked for; the kernel makes up one like it seldom enough, as it would not with two bytes."""
MACS = st.integers(0, 3).map("0a:58:00:00:00:{:02x}".format)
TUNED = {
    "mac": st.one_of(MACS, st.sampled_from(("", "01:00:5e:00:00:01"))),
    "promisc": st.booleans(),
    "mtu": st.sampled_from((0, 1280, 1400, 70000)),
    "allmulti": st.booleans(),
}
CONFIG = st.fixed_dictionaries(
    {"cniVersion": st.sampled_from(("1.0.0", "0.4.0", "0.3.1")), "name": st.just("net"), "type": st.just("tuning"), "sysctl": SYSCTL},
    optional={
        **TUNED,
        "runtimeConfig": st.fixed_dictionaries({}, optional={"mac": MACS}),
        "args": st.just({"cni": {}}) | st.fixed_dictionaries({"cni": st.fixed_dictionaries({}, optional={"sysctl": SYSCTL, **TUNED})}),
    },
)
ARGS = st.sampled_from(("", "", "MAC=0a:58:00:00:01:01", "IgnoreUnknown=1;K8S_POD_NAME=web;MAC=0a:58:00:00:01:02", "K8S_POD_NAME=web"))
ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8), lambda inner: st.lists(inner, max_size=2), max_leaves=3
)


def seen(side: ServiceSide) -> Any:
    """The attributes and settings that a pod has."""
    link = side.links_json()["eth0"]
    mac = link["address"] if link["address"].startswith(ASKED) else "a random one"
    values = [side.pod.run("cat", f"/proc/sys/{key.replace('.', '/')}") for key in WATCHED]
    return [mac, link["mtu"], link["txqlen"], link["promiscuity"], link.get("allmulti"), "ALLMULTI" in link["flags"], values]


def told(result: Any) -> Any:
    if result is None:
        return None
    macs = [each.get("mac", "") for each in result["interfaces"]]
    return [[mac if mac.startswith(ASKED) else "" for mac in macs], json.loads(json.dumps({**result, "interfaces": []}))]


def kept(side: ServiceSide) -> Any:
    path = os.path.join(side.data_dir, "c1_eth0.json")
    if not os.path.exists(path):
        return None
    with open(path) as file:
        document = json.load(file)
    return {**document, "mac": "mac" in document}


@needs_root
@drawn
@given(config=CONFIG, args=ARGS)
def test_tuning_does_what_its_binary_does(sides: tuple[ServiceSide, ServiceSide], config: dict[str, Any], args: str) -> None:
    for side in sides:
        side.attach()
        side.pod.run("sh", "-c", "cd /proc/sys/net; echo 32768 60999 > ipv4/ip_local_port_range; echo 4096 > core/somaxconn")
        side.pod.run("sh", "-c", "echo 0 > /proc/sys/net/ipv4/conf/all/log_martians")
    before = seen(sides[1])
    outcomes = []
    for side in sides:
        whole = {**config, "dataDir": "@DATA@", "prevResult": side.result(config["cniVersion"])}
        result = side.call("ADD", whole, args)
        outcomes.append([told(result), result is not None and seen(side), result is not None and kept(side)])
        if result is not None and config["cniVersion"] != "0.3.1":  # which has no CHECK
            outcomes[-1].append(side.call("CHECK", {**whole, "prevResult": result}, args))
        side.call("DEL", whole, args)
        assert kept(side) is None
    assert outcomes[0] == outcomes[1]
    if outcomes[1][0] is None:
        assert seen(sides[1]) == before
    else:
        assert seen(sides[0]) == seen(sides[1])


def config_of(side: ServiceSide, **more: Any) -> dict[str, Any]:
    return {"cniVersion": "1.0.0", "name": "net", "type": "tuning", "dataDir": side.data_dir, "prevResult": side.result(), **more}


def call(side: ServiceSide, verb: str, config: dict[str, Any], args: str = "", tuning: Tuning | None = None) -> Any:
    tuning = tuning or Tuning()
    invocation = side.invocation(verb, config, args)
    assert why_declined(tuning, invocation) == ""
    return {"ADD": tuning.add, "DEL": tuning.delete, "CHECK": tuning.check, "GC": tuning.gc, "STATUS": tuning.status}[verb](invocation)


EVERYTHING = {"mac": "0A-58-00-00-00-07", "mtu": 1300, "promisc": True, "allmulti": True, "txQLen": 77}


@needs_root
def test_everything_is_set_told_checked_and_given_back(side: ServiceSide) -> None:
    before = seen(side)
    config = config_of(side, **EVERYTHING, sysctl={"net.ipv4.conf.IFNAME.arp_filter": "1"})
    mac = side.pod.links()["eth0"].mac
    result = call(side, "ADD", config).document
    assert seen(side)[:5] == ["0a:58:00:00:00:07", 1300, 77, 1, 1]
    assert seen(side)[6][0] == "1\n"
    assert [each["mac"] for each in result["interfaces"]] == [config["prevResult"]["interfaces"][0]["mac"], "0a:58:00:00:00:07"]
    call(side, "CHECK", {**config, "prevResult": result})
    call(side, "DEL", config)
    assert (seen(side)[:6], side.pod.links()["eth0"].mac, os.listdir(side.data_dir)) == (before[:6], mac, [])
    call(side, "DEL", config)


@needs_root
def test_each_takes_back_what_the_other_has_set(side: ServiceSide) -> None:
    config = {**config_of(side, **EVERYTHING), "txQLen": None}
    for adds, deletes in (("ours", "theirs"), ("theirs", "ours")):
        side.attach()
        mac = side.pod.links()["eth0"].mac
        for verb, who in (("ADD", adds), ("DEL", deletes)):
            if who == "ours":
                call(side, verb, config)
            else:
                assert run_binary(side.pod, verb, config).returncode == 0
        assert (side.pod.links()["eth0"].mac, seen(side)[1], os.listdir(side.data_dir)) == (mac, 1500, [])


@needs_root
def test_a_second_one_in_a_list_does_not_hide_what_the_interface_was(side: ServiceSide) -> None:
    call(side, "ADD", config_of(side, mtu=1300))
    call(side, "ADD", config_of(side, mtu=1280, txQLen=5))
    call(side, "DEL", config_of(side, mtu=1280, txQLen=5))
    call(side, "DEL", config_of(side, mtu=1300))
    assert seen(side)[1:3] == [1500, 1000]


@needs_root
@pytest.mark.parametrize(
    ("drift", "message"),
    [
        ("ip link set eth0 mtu 1400", "its mtu is 1400, not 1300"),
        ("ip link set eth0 address 0a:58:00:00:00:08", "its mac is '0a:58:00:00:00:08', not '0a:58:00:00:00:07'"),
        ("ip link set eth0 promisc off", "its promisc is False, not True"),
        ("ip link set eth0 allmulticast off", "its allmulti is False, not True"),
        ("ip link set eth0 txqueuelen 5", "its txQLen is 5, not 77"),
        ("echo 2000 20000 > /proc/sys/net/ipv4/ip_local_port_range",
         r"sysctl net\.ipv4\.ip_local_port_range is '2000\\t20000', not '2000 3000'"),
        ("ip link del eth0", "there is no link eth0"),
    ],
)  # fmt: skip
def test_check_notices_drift(side: ServiceSide, drift: str, message: str) -> None:
    config = config_of(side, **EVERYTHING, sysctl={"net.ipv4.ip_local_port_range": "2000 3000"})
    call(side, "ADD", config)
    call(side, "CHECK", config)
    side.pod.run("sh", "-c", drift)
    with pytest.raises(IOFailureError, match=f"interface eth0: {message}"):
        call(side, "CHECK", config)


@needs_root
def test_check_notices_promiscuous_mode_that_nobody_asked_for(side: ServiceSide) -> None:
    side.pod.run("ip", "link", "set", "eth0", "promisc", "on")
    with pytest.raises(IOFailureError, match="its promisc is True, not False"):
        call(side, "CHECK", config_of(side))


@needs_root
def test_a_failed_add_leaves_nothing_changed(side: ServiceSide) -> None:
    before = seen(side)
    settings = {"net.ipv4.conf.IFNAME.arp_filter": "1", "net.core.somaxconn": "17"}
    for more, message in (
        ({"mtu": 1300, "mac": "01:00:5e:00:00:01"}, "cannot set mac 01:00:5e:00:00:01 of link eth0"),
        ({"sysctl": {**settings, "net.core.nothing": "1"}}, "cannot set sysctl net.core.nothing to '1': No such file or directory"),
    ):
        with pytest.raises(IOFailureError, match=message):
            call(side, "ADD", config_of(side, **{"sysctl": settings, **more}))
        assert seen(side) == before
        assert not os.path.isdir(side.data_dir) or os.listdir(side.data_dir) == []


@needs_root
@pytest.mark.parametrize("how", ["namespace gone", "no namespace", "link gone", "backup torn", "no prevResult"])
def test_delete_succeeds_whatever_is_gone(side: ServiceSide, how: str) -> None:
    config = config_of(side, mtu=1300)
    call(side, "ADD", config)
    del config["prevResult"]
    invocation = side.invocation("DEL", config)
    if how == "link gone":
        side.pod.run("ip", "link", "del", "eth0")
    elif how == "backup torn":
        with open(os.path.join(side.data_dir, "c1_eth0.json"), "w") as file:
            file.write('{"mtu": 15')
    elif how != "no prevResult":
        invocation = invocation._replace(netns="/run/netns/gone" if how == "namespace gone" else "")
    Tuning().delete(invocation)
    assert os.listdir(side.data_dir) == []
    Tuning().delete(invocation)


@needs_root
def test_what_cannot_be_given_back_is_an_error_and_stays_kept(side: ServiceSide) -> None:
    call(side, "ADD", config_of(side, mtu=1300))
    with open(os.path.join(side.data_dir, "c1_eth0.json"), "w") as file:
        json.dump({"mtu": 70000}, file)
    with pytest.raises(IOFailureError, match="interface eth0: cannot set mtu 70000 of link eth0"):
        call(side, "DEL", config_of(side))
    assert os.listdir(side.data_dir) == ["c1_eth0.json"]


@needs_root
def test_the_allow_list_of_the_node_decides(side: ServiceSide, tmp_path: Path) -> None:
    path = tmp_path / "allowlist.conf"
    tuning = Tuning(str(path))
    allowed = {"net.ipv4.conf.eth0.arp_filter": "1"}
    for text, passes in (("", False), (r"^net\.ipv4\.conf\.[a-z0-9]+\.arp_filter$", True), ("\n  ipv4 \n", True), ("net.core", False)):
        path.write_text(text)
        if passes:
            call(side, "ADD", config_of(side, sysctl=allowed), tuning=tuning)
            continue
        with pytest.raises(InvalidConfigError, match=r"sysctl 'net\.ipv4\.conf\.eth0\.arp_filter' is not allowed on this node"):
            call(side, "ADD", config_of(side, args={"cni": {"sysctl": allowed}}), tuning=tuning)
    path.write_text("a(")
    with pytest.raises(InvalidConfigError, match=r"allowlist\.conf: 'a\(' is no regular expression"):
        call(side, "ADD", config_of(side, sysctl=allowed), tuning=tuning)
    path.unlink()
    path.mkdir()
    with pytest.raises(IOFailureError, match=r"cannot read .*allowlist\.conf: Is a directory"):
        call(side, "ADD", config_of(side, sysctl=allowed), tuning=tuning)


@needs_root
@pytest.mark.parametrize(
    ("more", "message"),
    [
        ({"mtu": -1}, "mtu -1 is not from 0 to 2147483647"),
        ({"mtu": "1400"}, "mtu '1400' is not a whole number"),
        ({"txQLen": 1 << 40}, "txQLen 1099511627776 is not from 0 to 2147483647"),
        ({"mac": "0a:58"}, "mac '0a:58' is not a MAC address of six bytes"),
        ({"promisc": 1}, "promisc 1 is not true or false"),
        ({"allmulti": "yes"}, "allmulti 'yes' is not true or false"),
        ({"sysctl": {"net.core.somaxconn": 5}}, "sysctl.net.core.somaxconn 5 is not a string"),
        ({"sysctl": {"kernel.hostname": "x"}}, "sysctl.kernel.hostname 'x' is not for a setting below net"),
        ({"args": {"cni": {"sysctl": {"net2/x": "y"}}}}, "args.cni.sysctl.net2/x 'y' is not for a setting below net"),
        ({"runtimeConfig": {"mac": "x"}}, "runtimeConfig.mac 'x' is not a MAC address of six bytes"),
        ({"dataDir": 5}, "dataDir 5 is not a string"),
        ({"prevResult": None}, "prevResult is missing: the plugin goes behind a network's"),
    ],
)
def test_a_value_that_is_not_valid_is_refused_by_name(side: ServiceSide, more: dict[str, Any], message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        call(side, "ADD", config_of(side, **{"mtu": 1300, **more}))
    assert (caught.value.msg, seen(side)[1]) == (f"interface eth0: {message}", 1500)


@needs_root
def test_a_mac_of_the_environment_that_is_none_is_refused(side: ServiceSide) -> None:
    with pytest.raises(InvalidEnvironmentError, match="CNI_ARGS MAC 'x' is not a MAC address of six bytes"):
        call(side, "ADD", config_of(side), "MAC=x")


KEYS = st.sampled_from(("sysctl", "mac", "promisc", "mtu", "allmulti", "txQLen", "dataDir", "args", "runtimeConfig", "prevResult", "other"))
WILD = st.dictionaries(KEYS, ANYTHING | st.dictionaries(st.text(max_size=6) | st.just("cni"), ANYTHING, max_size=2), max_size=4)


@needs_root
@drawn
@given(more=WILD)
def test_no_configuration_crashes(side: ServiceSide, more: dict[str, Any]) -> None:
    config = {**config_of(side), **more}
    if isinstance(config["dataDir"], str):
        config["dataDir"] = side.data_dir
    try_every_verb(Tuning(), side.invocation("ADD", config))
