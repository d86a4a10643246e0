"""Which keys are served, and what is wrong with a value."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import pytest
from kinds import why_declined
from multus_netlink.configuration import Section, generic_args, requested_mac, require_served
from multus_netlink.dummy import Dummy
from multus_netlink.host_device import HostDevice
from multus_netlink.ipvlan import Ipvlan
from multus_netlink.tap import Tap
from multus_netlink.vlan import Vlan
from multus_netlink.vrf import Vrf
from sides import DELEGATES

from multus.errors import InvalidConfigError, InvalidEnvironmentError
from multus.types.invocation import CNICommand, Invocation

if TYPE_CHECKING:
    from multus.hooks.delegates import InProcessDelegate


def invocation(config: dict[str, Any], args: str = "") -> Invocation:
    return Invocation(CNICommand.ADD, str(config.get("type", "bridge")), config, "c1", "/run/netns/a", "net1", args)


def declined(**config: Any) -> str:
    return why_declined({**DELEGATES, **KINDS}[config["type"]], invocation({"cniVersion": "1.0.0", "name": "a", **config}))


KINDS: dict[str, InProcessDelegate] = {
    "dummy": Dummy(), "host-device": HostDevice(), "ipvlan": Ipvlan(), "tap": Tap(), "vlan": Vlan(), "vrf": Vrf()
}  # fmt: skip
CLEAN = "text that the kernel can take: without NUL and lone surrogates"
UNSOUND = {"nul": "a\0", "lone": "\ud800"}
HOST_LOCAL = {"type": "host-local", "ranges": [[{"subnet": "10.1.0.0/24", "gateway": "10.1.0.1"}]], "routes": [{"dst": "0.0.0.0/0"}]}
STATIC = {"type": "static", "addresses": [{"address": "10.1.0.5/24", "gateway": "10.1.0.1"}], "dns": {"domain": "a.org"}}


@pytest.mark.parametrize(
    "config",
    [
        {"type": "loopback"},
        {"type": "bridge", "ipam": HOST_LOCAL, "isGateway": True, "runtimeConfig": {"portMappings": []}, "cni.dev/attachments": [1]},
        {"type": "bridge", "portIsolation": True, "disableContainerInterface": True, "macspoofchk": True},
        {"type": "bridge", "ipMasq": False, "vlan": 0, "macspoofchk": None, "preserveDefaultVlan": True, "ipam": {}},
        {"type": "macvlan", "master": "eth0", "mode": "vepa", "mtu": 1400, "mac": "0a:58:00:00:00:01", "ipam": STATIC},
        {"type": "macvlan", "linkInContainer": True, "bcqueuelen": 5},
        {"type": "ptp", "mtu": 1400, "ipMasq": False, "ipam": STATIC},
        {"type": "dummy", "ipam": STATIC},
        {"type": "host-device", "device": "eth1", "hwaddr": "", "kernelpath": "", "pciBusID": "", "runtimeConfig": {"deviceID": "x"}},
        {"type": "ipvlan", "master": "eth0", "mode": "l3s", "mtu": 1400, "linkInContainer": True, "ipam": STATIC},
        {"type": "ipvlan", "prevResult": {"routes": [{"dst": "0.0.0.0/0", "gw": "10.1.0.1"}]}},
        {"type": "tap", "mac": "x", "mtu": 1, "multiQueue": True, "owner": 0, "group": 0, "bridge": "br0", "selinuxContext": ""},
        {"type": "vlan", "master": "eth0", "vlanId": 7, "mtu": 1400, "linkInContainer": True, "ipam": HOST_LOCAL},
        {"type": "vrf", "vrfname": "blue", "table": 10},
        {"type": "host-local", "ipam": HOST_LOCAL, "runtimeConfig": {"ipRanges": [[{"subnet": "10.2.0.0/24"}]]}},
    ],
)
def test_configurations_that_are_served(config: dict[str, Any]) -> None:
    assert declined(**config) == ""


@pytest.mark.parametrize(
    ("config", "key"),
    [
        ({"type": "loopback", "x-own": 1}, "x-own"),
        ({"type": "bridge", "ipMasq": True, "ipMasqBackend": "iptables"}, "ipMasqBackend"),
        ({"type": "bridge", "vlan": 7}, "vlan"),
        ({"type": "ptp", "ipMasq": True, "ipMasqBackend": "iptables"}, "ipMasqBackend"),
        ({"type": "ptp", "ipam": {"type": "dhcp"}}, "ipam.type"),
        ({"type": "dummy", "mtu": 1400}, "mtu"),
        ({"type": "dummy", "ipam": {"type": "dhcp"}}, "ipam.type"),
        ({"type": "host-device", "device": "eth1", "DPDKMode": True}, "DPDKMode"),
        ({"type": "ipvlan", "prevResult": {"routes": [{"dst": "0.0.0.0/0", "priority": 5}]}}, "prevResult.routes.priority"),
        ({"type": "tap", "selinuxcontext": "system_u:system_r:container_t:s0"}, "selinuxcontext"),
        ({"type": "vlan", "master": "eth0", "vlanId": 7, "ipam": {"type": "dhcp"}}, "ipam.type"),
        ({"type": "vrf", "vrfname": "blue", "tables": [10]}, "tables"),
        ({"type": "bridge", "vlanTrunk": [{"id": 7}]}, "vlanTrunk"),
        ({"type": "bridge", "isgateway": True}, "isgateway"),
        ({"type": "bridge", "ipam": {"type": "dhcp"}}, "ipam.type"),
        ({"type": "bridge", "ipam": {"type": "whereabouts"}}, "ipam.type"),
        ({"type": "bridge", "ipam": [1]}, "ipam"),
        ({"type": "macvlan", "source": ["0a:58:00:00:00:01"]}, "source"),
        ({"type": "macvlan", "ipam": {**HOST_LOCAL, "x-own": 1}}, "ipam.x-own"),
        ({"type": "macvlan", "ipam": {**HOST_LOCAL, "routes": [{"dst": "0.0.0.0/0", "priority": 5}]}}, "ipam.routes.priority"),
        ({"type": "macvlan", "ipam": {**HOST_LOCAL, "ranges": [[{"subnet": "10.1.0.0/24", "x-own": 1}]]}}, "ipam.ranges.x-own"),
        ({"type": "macvlan", "ipam": HOST_LOCAL, "runtimeConfig": {"ipRanges": [[{"x-own": 1}]]}}, "runtimeConfig.ipRanges.x-own"),
        ({"type": "macvlan", "ipam": {**STATIC, "routes": [{"dst": "0.0.0.0/0", "table": 5}]}}, "ipam.routes.table"),
        ({"type": "macvlan", "ipam": {**STATIC, "addresses": [{"address": "10.1.0.5/24", "x-own": 1}]}}, "ipam.addresses.x-own"),
        ({"type": "macvlan", "ipam": {**STATIC, "dns": {"x-own": 1}}}, "ipam.dns.x-own"),
        ({"type": "static", "ipam": {**STATIC, "x-own": 1}}, "ipam.x-own"),
        ({"type": "host-local"}, "ipam"),
        ({"type": "static"}, "ipam"),
    ],
)
def test_configurations_that_are_declined(config: dict[str, Any], key: str) -> None:
    assert declined(**config).startswith(f'key "{key}" ')


@pytest.mark.parametrize("kind", ["dummy", "ipvlan", "tap", "vlan"])
def test_an_interface_is_left_to_be_removed_with_others_of_its_pod(kind: str) -> None:
    delegate: Any = KINDS[kind]
    assert delegate.release(invocation({"cniVersion": "1.0.0", "name": "a", "type": kind, "ipam": STATIC})) == ("net1",)


def test_a_device_of_the_host_is_not_left_to_be_removed() -> None:
    assert not hasattr(KINDS["host-device"], "release")


def test_keys_that_say_nothing_are_served() -> None:
    require_served({"vlan": 0, "ipMasq": False, "x": None, "y": "", "z": []}, ())


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda config: config.text("mtu"), "interface net1: mtu 1500 is not a string"),
        (lambda config: config.whole("master"), "interface net1: master 'eth0' is not a whole number"),
        (lambda config: config.whole("isGateway"), "interface net1: isGateway True is not a whole number"),
        (lambda config: config.flag("mtu"), "interface net1: mtu 1500 is not true or false"),
        (lambda config: config.section("ranges"), "interface net1: ranges (a list) is not an object"),
        (lambda config: config.items("ipam"), "interface net1: ipam (an object) is not a list"),
        (lambda config: config.texts("ranges"), "interface net1: ranges (a list) is not a list of strings"),
        (lambda config: list(config.sections("ranges")), "interface net1: ranges (a list) is not a list of objects"),
        (lambda config: config.text("nul"), f"interface net1: nul 'a\\x00' is not {CLEAN}"),
        (lambda config: config.text("lone"), f"interface net1: lone '\\ud800' is not {CLEAN}"),
        (lambda config: config.mac("master"), "interface net1: master 'eth0' is not a MAC address of six bytes"),
        (lambda config: config.section("ipam").text("type"), "interface net1: ipam.type 5 is not a string"),
    ],
)
def test_a_refusal_names_interface_key_and_value(read: Any, message: str) -> None:
    config = Section.of(invocation({"mtu": 1500, "master": "eth0", "isGateway": True, "ipam": {"type": 5}, "ranges": [1], **UNSOUND}))
    with pytest.raises(InvalidConfigError) as caught:
        read(config)
    assert caught.value.msg == message


@pytest.mark.parametrize("number", [-1, 2**31, 10**20])
def test_an_mtu_that_the_kernel_cannot_hold_is_refused(number: int) -> None:
    with pytest.raises(InvalidConfigError, match=f"mtu {number} is not from 0 to 2147483647"):
        Section.of(invocation({"mtu": number})).mtu()


@pytest.mark.parametrize("text", ["a\0b", "\ud800"])
def test_text_that_no_name_and_no_path_can_hold_is_refused(text: str) -> None:
    with pytest.raises(InvalidConfigError, match=r"dataDir .* is not text that the kernel can take"):
        Section.of(invocation({"dataDir": text})).text("dataDir")


def test_null_is_as_if_the_key_were_not_there() -> None:
    config = Section.of(invocation({"a": None}))
    assert (config.text("a"), config.whole("a"), config.flag("a"), config.items("a")) == ("", 0, False, [])


def test_generic_args_are_those_that_are_known() -> None:
    assert generic_args(invocation({}, "IgnoreUnknown=1;MAC=x;K8S_POD_NAME=web"), ("MAC",)) == {"MAC": "x"}


@pytest.mark.parametrize("args", ["MAC", "K8S_POD_NAME=web", "IgnoreUnknown=0;K8S_POD_NAME=web"])
def test_generic_args_that_are_not_understood_are_refused(args: str) -> None:
    with pytest.raises(InvalidEnvironmentError, match="interface net1: CNI_ARGS"):
        generic_args(invocation({}, args), ("MAC",))


@pytest.mark.parametrize(
    ("config", "args", "expected"),
    [
        ({}, "", "0a:58:00:00:00:09"),
        ({}, "MAC=0A-58-00-00-00-01", "0a:58:00:00:00:01"),
        ({"runtimeConfig": {"mac": "0a58.0000.0002"}}, "MAC=0a:58:00:00:00:01", "0a:58:00:00:00:02"),
        ({"runtimeConfig": {"mac": "0a58.0000.0002"}}, "MAC=x", "0a:58:00:00:00:02"),
        ({"mac": "x"}, "MAC=0a:58:00:00:00:01", "0a:58:00:00:00:01"),
    ],
)
def test_a_requested_mac_is_the_runtimes_before_that_of_the_arguments(config: dict[str, Any], args: str, expected: str) -> None:
    """One that is not used need not be valid."""
    call = invocation({"mac": "0a:58:00:00:00:09", **config}, args)
    assert requested_mac(call, Section.of(call)) == expected


@pytest.mark.parametrize(
    ("runtime", "args", "expected"),
    [({}, "", "0a:58:00:00:00:08"), ({}, "MAC=x", "0a:58:00:00:00:08"), ({"mac": "0a:58:00:00:00:02"}, "", "0a:58:00:00:00:02")],
)
def test_a_mac_by_conventions_goes_before_that_of_the_arguments(runtime: dict[str, str], args: str, expected: str) -> None:
    call = invocation({"args": {"cni": {"mac": "0a:58:00:00:00:08"}}, "runtimeConfig": runtime}, args)
    assert requested_mac(call, conventions=Section.of(call).section("args").section("cni")) == expected


def test_a_mac_that_is_not_used_is_text_all_the_same() -> None:
    call = invocation({"mac": {}, "runtimeConfig": {"mac": "0a:58:00:00:00:02"}})
    with pytest.raises(InvalidConfigError, match=r"interface net1: mac \(an object\) is not a string"):
        requested_mac(call, Section.of(call))


@pytest.mark.parametrize(("config", "args"), [({}, "MAC=0a:58"), ({"runtimeConfig": {"mac": "0a:58"}}, ""), ({"mac": "0a:58"}, "")])
def test_a_requested_mac_of_another_length_is_refused(config: dict[str, Any], args: str) -> None:
    call = invocation(config, args)
    with pytest.raises((InvalidEnvironmentError, InvalidConfigError), match=r"(?i)MAC '0a:58'"):
        requested_mac(call, Section.of(call))
