"""What a plugin is given: request configuration, capability arguments, ``CNI_ARGS``."""

from __future__ import annotations

import pytest

from multus.core import derive
from multus.errors import InvalidConfigError
from multus.protocol import conflists
from multus.testing.world import World
from multus.types.config import ConfList
from multus.types.delegate import Attachment, Delegate
from multus.types.result import Result
from multus.types.selection import NetworkSelectionElement

INFO = "/devinfo/x"


def conf_of(document: dict[str, object]) -> ConfList:
    return conflists.parse(document, where="a test")


def a_list(*plugins: dict[str, object], **more: object) -> ConfList:
    return conf_of({"cniVersion": "1.0.0", "name": "blue", "plugins": list(plugins), **more})


def request(
    conf: ConfList, prev_result: Result | None = None, arguments: dict[str, object] | None = None, index: int = 0
) -> dict[str, object]:
    return derive.request_configuration(conf, conf.plugins[index], prev_result, arguments or {})


def selection(**fields: object) -> NetworkSelectionElement:
    return NetworkSelectionElement("blue", "shop", **fields)


# --- Request configuration ---


def test_plugin_of_a_list_gets_the_lists_name_and_version() -> None:
    conf = a_list({"type": "a", "mtu": 1400, "name": "own", "cniVersion": "0.3.0"})
    assert request(conf) == {"type": "a", "mtu": 1400, "name": "blue", "cniVersion": "1.0.0"}


def test_version_that_nobody_states_is_not_invented() -> None:
    assert request(conf_of({"name": "blue", "type": "a"})) == {"name": "blue", "type": "a"}


def test_unknown_keys_and_large_integers_pass_unchanged() -> None:
    vendor = {"kubeconfig": "/etc/kc", "big": 2**70, "list": [1, None]}
    assert request(a_list({"type": "a", "vendor": vendor}))["vendor"] == vendor


def test_capability_argument_goes_to_the_plugin_that_declares_it() -> None:
    conf = a_list({"type": "a", "capabilities": {"ips": True, "mac": False}}, {"type": "b"})
    arguments = {"ips": ["192.0.2.1"], "mac": "02:00:00:00:00:01"}
    assert request(conf, None, arguments)["runtimeConfig"] == {"ips": ["192.0.2.1"]}
    assert "runtimeConfig" not in request(conf, None, arguments, index=1)


def test_declared_capabilities_stay_in_the_request() -> None:
    assert request(a_list({"type": "a", "capabilities": {"ips": True}}))["capabilities"] == {"ips": True}


def test_runtime_config_of_the_configuration_stays_when_nothing_is_declared() -> None:
    assert request(a_list({"type": "a", "runtimeConfig": {"own": 1}}), None, {"ips": ["192.0.2.1"]})["runtimeConfig"] == {"own": 1}


def test_prev_result_goes_in_as_a_document() -> None:
    assert request(a_list({"type": "a"}), Result({"cniVersion": "1.0.0"}))["prevResult"] == {"cniVersion": "1.0.0"}


def test_deriving_changes_nothing_in_the_configuration() -> None:
    document = {"type": "a", "capabilities": {"ips": True}}
    request(a_list(document), Result({"cniVersion": "1.0.0"}), {"ips": ["192.0.2.1"]})
    assert document == {"type": "a", "capabilities": {"ips": True}}


# --- Capability arguments ---


def test_pods_requests_win_over_the_runtimes_arguments() -> None:
    delegate = Delegate("shop/blue", a_list({"type": "a"}), selection(mac="02:00:00:00:00:02"))
    assert derive.capability_args(delegate, {"mac": "02:00:00:00:00:01", "own": 1}, INFO) == {"mac": "02:00:00:00:00:02", "own": 1}


def test_every_request_of_a_pod_becomes_its_capability() -> None:
    asked = selection(
        ips=("192.0.2.1/24",),
        mac="02:00:00:00:00:02",
        infiniband_guid="c2:11:22:33:44:55:66:77",
        port_mappings=({"hostPort": 80, "containerPort": 8080, "protocol": "tcp"},),
        bandwidth={"ingressRate": 1000},
    )
    assert derive.capability_args(Delegate("shop/blue", a_list({"type": "a"}), asked), {}, INFO) == {
        "ips": ["192.0.2.1/24"],
        "mac": "02:00:00:00:00:02",
        "infinibandGUID": "c2:11:22:33:44:55:66:77",
        "portMappings": [{"hostPort": 80, "containerPort": 8080, "protocol": "tcp"}],
        "bandwidth": {"ingressRate": 1000},
    }


def test_device_comes_with_the_place_of_its_information() -> None:
    delegate = Delegate("shop/blue", a_list({"type": "a"}), device_id="0000:3b:02.1")
    assert derive.capability_args(delegate, {}, INFO) == {"deviceID": "0000:3b:02.1", "CNIDeviceInfoFile": INFO}


def test_device_of_the_runtime_comes_with_the_place_too() -> None:
    delegate = Delegate("b", a_list({"type": "a"}))
    assert derive.capability_args(delegate, {"deviceID": "d"}, INFO) == {"deviceID": "d", "CNIDeviceInfoFile": INFO}


def test_empty_arguments_are_left_out() -> None:
    assert derive.capability_args(Delegate("b", a_list({"type": "a"})), {"ips": [], "mac": "", "bandwidth": {}, "x": None}, INFO) == {}


def test_argument_of_zero_or_false_stays() -> None:
    assert derive.capability_args(Delegate("b", a_list({"type": "a"})), {"zero": 0, "no": False}, INFO) == {"zero": 0, "no": False}


def test_request_that_no_plugin_declares_is_named() -> None:
    conf = a_list({"type": "a", "capabilities": {"ips": True}}, {"type": "b", "capabilities": {"mac": False}})
    asked = selection(ips=("192.0.2.1",), mac="02:00:00:00:00:02", bandwidth={"ingressRate": 1})
    assert derive.undeclared_capabilities(Delegate("b", conf, asked)) == ("mac", "bandwidth")


def test_network_that_nothing_is_asked_of_lacks_no_capability() -> None:
    assert derive.undeclared_capabilities(Delegate("b", a_list({"type": "a"}))) == ()
    assert derive.undeclared_capabilities(Delegate("b", a_list({"type": "a"}), selection())) == ()


# --- CNI_ARGS ---


def test_pod_comes_first_and_each_key_once() -> None:
    call = World().call(generic_args=(("IgnoreUnknown", "1"), ("K8S_POD_NAME", "web"), ("FOO", "a=b")))
    assert derive.generic_args(call, None) == (
        ("IgnoreUnknown", "true"),
        ("K8S_POD_NAMESPACE", "shop"),
        ("K8S_POD_NAME", "web"),
        ("K8S_POD_INFRA_CONTAINER_ID", "c1"),
        ("K8S_POD_UID", "u1"),
        ("FOO", "a=b"),
    )


def test_requests_for_mac_and_ips_are_arguments_as_well() -> None:
    pairs = dict(derive.generic_args(World().call(), selection(mac="02:00:00:00:00:02", ips=("192.0.2.1/24", "2001:db8::1"))))
    assert (pairs["MAC"], pairs["IP"]) == ("02:00:00:00:00:02", "192.0.2.1/24,2001:db8::1")


def test_selection_without_requests_adds_nothing() -> None:
    assert derive.generic_args(World().call(), selection()) == derive.generic_args(World().call(), None)


def attached(pairs: tuple[tuple[str, str], ...], delegate: Delegate | None = None) -> Attachment:
    return Attachment(delegate or Delegate("b", a_list({"type": "a"})), "c1", "/n", "net1", pairs)


def test_arguments_of_add_come_again_with_what_the_runtime_says_now() -> None:
    call = World().call("DEL", generic_args=(("IgnoreUnknown", "1"), ("K8S_POD_UID", "u2"), ("NEW", "1"), ("GONE", "")))
    attachment = attached((("IgnoreUnknown", "true"), ("K8S_POD_UID", "u1"), ("GONE", "kept")))
    assert derive.renewed_args(attachment, call) == (("IgnoreUnknown", "true"), ("K8S_POD_UID", "u2"), ("GONE", "kept"), ("NEW", "1"))


def test_call_without_arguments_leaves_those_of_add() -> None:
    pairs = (("IgnoreUnknown", "true"), ("MAC", "02:00:00:00:00:02"))
    assert derive.renewed_args(attached(pairs), World().call("GC", generic_args=())) == pairs


@pytest.mark.parametrize(
    ("is_cluster_network", "capabilities", "kept"),
    [
        (False, {"mac": True, "ips": True}, []),
        (False, {"ips": True}, ["MAC"]),
        (False, {}, ["MAC", "IP"]),
        (True, {"mac": True, "ips": True}, ["MAC", "IP"]),
    ],
)
def test_request_of_a_secondary_network_that_a_capability_serves_is_not_repeated(
    is_cluster_network: bool, capabilities: dict[str, bool], kept: list[str]
) -> None:
    asked = selection(mac="02:00:00:00:00:02", ips=("192.0.2.1/24",))
    delegate = Delegate("b", a_list({"type": "a", "capabilities": capabilities}), asked, is_cluster_network=is_cluster_network)
    pairs = (("MAC", "02:00:00:00:00:02"), ("IP", "192.0.2.1/24"))
    assert [key for key, _ in derive.renewed_args(attached(pairs, delegate), World().call("DEL", generic_args=()))] == kept


# --- Edits of a configuration ---


def test_device_goes_into_each_plugin_under_both_names() -> None:
    conf = derive.with_device(a_list({"type": "a"}, {"type": "b", "deviceID": "old"}), "0000:3b:02.1")
    assert [plugin.document for plugin in conf.plugins] == [
        {"type": "a", "deviceID": "0000:3b:02.1", "pciBusID": "0000:3b:02.1"},
        {"type": "b", "deviceID": "0000:3b:02.1", "pciBusID": "0000:3b:02.1"},
    ]


def test_cni_args_are_laid_over_those_of_each_plugin() -> None:
    conf = a_list({"type": "a", "args": {"cni": {"a": 1, "b": 2}, "other": 3}}, {"type": "b", "args": None})
    edited = derive.with_cni_args(conf, {"b": 4}, "network 'blue'")
    assert [plugin.document["args"] for plugin in edited.plugins] == [{"cni": {"a": 1, "b": 4}, "other": 3}, {"cni": {"b": 4}}]
    assert conf.plugins[0].document["args"] == {"cni": {"a": 1, "b": 2}, "other": 3}


@pytest.mark.parametrize(("args", "key"), [("text", "args"), ({"cni": [1]}, "args.cni")])
def test_args_of_a_plugin_that_are_no_object_are_refused_by_name(args: object, key: str) -> None:
    with pytest.raises(InvalidConfigError, match=f'network \'blue\': key "{key}" is a '):
        derive.with_cni_args(a_list({"type": "a", "args": args}), {"b": 4}, "network 'blue'")
