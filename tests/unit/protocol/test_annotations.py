"""The networks annotation in, the network-status annotation out."""

from __future__ import annotations

import json

import pytest

from multus.errors import InvalidConfigError
from multus.protocol import annotations
from multus.types.pod import NETWORKS_ANNOTATION, NetworkStatus
from multus.types.selection import NetworkSelectionElement

NO_NAME = "not the name of a net-attach-def, lower-case letters, digits, '-' and '.' are expected"


def parse(text: str) -> tuple[NetworkSelectionElement, ...]:
    return annotations.parse_selections(text, NETWORKS_ANNOTATION, "team-kestrel")


def refusal(text: str) -> str:
    with pytest.raises(InvalidConfigError) as caught:
        parse(text)
    return caught.value.msg.removeprefix(f"annotation {NETWORKS_ANNOTATION}").removeprefix(": ")


def one(**keys: object) -> str:
    return json.dumps([{"name": "lan-a", **keys}])


@pytest.mark.parametrize("text", ["", "  \n", "[]"])
def test_an_empty_annotation_asks_for_nothing(text: str) -> None:
    assert parse(text) == ()


def test_the_short_form_names_networks_namespaces_and_interfaces_in_order() -> None:
    assert parse("lan-a, other/lan-b@data0 ,lan-c@x") == (
        NetworkSelectionElement("lan-a", "team-kestrel"),
        NetworkSelectionElement("lan-b", "other", ifname="data0"),
        NetworkSelectionElement("lan-c", "team-kestrel", ifname="x"),
    )


def test_the_json_form_carries_every_request() -> None:
    text = one(
        namespace="other",
        interface="data0",
        ips=["192.0.2.9", "2001:db8::9/64"],
        mac="02:00:5E:00:00:4d",
        portMappings=[{"hostPort": 80, "containerPort": 8080}, {"HOSTPORT": 1, "containerPort": 2, "protocol": "UDP", "hostIP": "::1"}],
        bandwidth={"ingressRate": 1000, "egressRate": 2**40, "egressBurst": 7},
        **{
            "infiniband-guid": "24:8a:07:03:00:8d:ae:2e",
            "default-route": ["192.0.2.1", "2001:db8::1"],
            "cni-args": {"vni": 2**70},
            "deviceID": "0000:3b:02.1",
        },
    )
    assert parse(text) == (
        NetworkSelectionElement(
            "lan-a",
            "other",
            ifname="data0",
            ips=("192.0.2.9", "2001:db8::9/64"),
            mac="02:00:5E:00:00:4d",
            infiniband_guid="24:8a:07:03:00:8d:ae:2e",
            port_mappings=(
                {"hostPort": 80, "containerPort": 8080, "protocol": "tcp"},
                {"hostPort": 1, "containerPort": 2, "protocol": "udp", "hostIP": "::1"},
            ),
            bandwidth={"ingressRate": 1000, "ingressBurst": 1000, "egressRate": 2**40, "egressBurst": 7},
            default_route=("192.0.2.1", "2001:db8::1"),
            cni_args={"vni": 2**70},
            device_id="0000:3b:02.1",
        ),
    )


def test_a_burst_that_was_not_given_is_the_rate_as_far_as_32_bits_hold_it() -> None:
    assert parse(one(bandwidth={"egressRate": 2**40}))[0].bandwidth == {"egressRate": 2**40, "egressBurst": 2**32 - 1}


def test_an_empty_default_route_is_asked_for_and_a_missing_one_is_not() -> None:
    assert [parse(one(**{"default-route": []}))[0].default_route, parse(one())[0].default_route] == [(), None]


def test_null_empty_namespace_and_empty_interface_are_as_if_not_there() -> None:
    assert parse(one(namespace="", interface="", mac=None, ips=None)) == (NetworkSelectionElement("lan-a", "team-kestrel"),)


def test_keys_match_in_another_case_and_unknown_ones_are_ignored() -> None:
    assert parse('[{"NAME": "lan-a", "Interface": "x0", "x-own": [1]}]')[0].ifname == "x0"


def test_the_older_key_for_the_interface_counts_where_the_newer_is_not_given() -> None:
    texts = (one(interfaceRequest="old0"), one(interfaceRequest="old0", interface="new0"))
    assert [parse(text)[0].ifname for text in texts] == ["old0", "new0"]


def test_an_ipam_claim_is_kept() -> None:
    assert parse(one(**{"ipam-claim-reference": "claim-1"}))[0].ipam_claim_reference == "claim-1"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (
            '[{"name":"team-kestrel/lan-a"}]',
            f'element 0: key "name" "team-kestrel/lan-a": {NO_NAME}; the namespace goes into the key "namespace"',
        ),
        (
            '[{"name":"lan-a","interface":"../../x"}]',
            "element 0: key \"interface\" \"../../x\": not an interface name: has '/', ':' or NUL",
        ),
        (
            '[{"name":"lan-a","interface":"a-name-that-is-too-long"}]',
            'element 0: key "interface" "a-name-that-is-too-long": not an interface name: longer than 15 bytes',
        ),
        ('[{"name":"../lan-a"}]', f'element 0: key "name" "../lan-a": {NO_NAME}; the namespace goes into the key "namespace"'),
        ("[null]", "element 0 is null, an object is expected"),
        ('[{"name":"lan-a","ips":"192.0.2.9"}]', 'element 0: key "ips" "192.0.2.9": a string, a list is expected'),
        ("lan-a,", 'element 1 is empty in "lan-a,"'),
        (
            '[{"name":"lan-a","interface":"x0"},{"name":"lan-b","interface":"x0"}]',
            'element 1: interface name "x0" is taken by element 0',
        ),
    ],
)
def test_case_i2_each_fault_is_named_with_element_field_and_value(text: str, message: str) -> None:
    """Public case I2; its input 8 is for the core, which knows the name of the cluster network's interface."""
    assert refusal(text) == message


@pytest.mark.parametrize(
    ("text", "message"),
    [
        (",lan-a", 'element 0 is empty in ",lan-a"'),
        ("a/b/c", 'element 0: "a/b/c" is not [namespace/]name[@interface]'),
        ("a@b@c", 'element 0: "a@b@c" is not [namespace/]name[@interface]'),
        ("a, b@", 'element 1: "b@" is not [namespace/]name[@interface]'),
        ("/a", 'element 0: "/a" is not [namespace/]name[@interface]'),
        ("a b", f'element 0: key "name" "a b": {NO_NAME}'),
        ("ns/@x", f'element 0: key "name" "": {NO_NAME}'),
        (".._/a", 'element 0: key "namespace" ".._": not the name of a namespace, lower-case letters, digits and \'-\' are expected'),
        ("a@x y", 'element 0: key "interface" "x y": not an interface name: has white space'),
        ("a@x,b@x", 'element 1: interface name "x" is taken by element 0'),
        ('{"name":"a"}', 'is an object, a list of network selection elements is expected: {"name": "a"}'),
        ('"lan-a"', 'is a string, a list of network selection elements is expected: "lan-a"'),
        ("[{]", "is not JSON: Expecting property name enclosed in double quotes at line 1 column 3"),
        ("[[]]", "element 0 is a list, an object is expected"),
        ("[{}]", 'element 0: key "name" is missing'),
        ('[{"name":null}]', 'element 0: key "name" is missing'),
        ('[{"name":"a"},{"name":1}]', 'element 1: key "name" 1: a number, a string is expected'),
    ],
)
def test_a_text_that_is_no_annotation_is_refused_with_the_place(text: str, message: str) -> None:
    assert refusal(text).removeprefix(" ") == message


@pytest.mark.parametrize(
    ("key", "value", "reason"),
    [
        ("namespace", "a.b", "not the name of a namespace, lower-case letters, digits and '-' are expected"),
        ("interface", "a\ud800", "not an interface name: has half a character"),
        ("ips", [], "at least one address is expected"),
        ("ips", [9], "a number, a string is expected"),
        ("ips", ["192.0.2.9", "192.0.2.256"], '"192.0.2.256" is no IP address with or without a prefix length'),
        ("ips", ["192.0.2.9/33"], '"192.0.2.9/33" is no IP address with or without a prefix length'),
        ("mac", "02:00:5e:00:00", "not a MAC address of 6 bytes"),
        ("mac", 2, "a number, a string is expected"),
        ("infiniband-guid", "02:00:5e:00:00:4d", "not an InfiniBand GUID of 8 bytes"),
        ("default-route", "192.0.2.1", "a string, a list is expected"),
        ("default-route", ["192.0.2.1/24"], '"192.0.2.1/24" is no IP address'),
        ("portMappings", [], "at least one mapping is expected"),
        ("portMappings", {}, "an object, a list is expected"),
        ("portMappings", [80], "a mapping is a number, an object is expected"),
        ("portMappings", [{"hostPort": 0, "containerPort": 1}], "hostPort 0 is not a whole number from 1 to 65535"),
        ("portMappings", [{"hostPort": 1}], "containerPort null is not a whole number from 1 to 65535"),
        ("portMappings", [{"hostPort": 1, "containerPort": True}], "containerPort true is not a whole number from 1 to 65535"),
        ("portMappings", [{"hostPort": 1, "containerPort": 1, "protocol": "icmp"}], 'protocol "icmp" is none of tcp, udp, sctp'),
        ("portMappings", [{"hostPort": 1, "containerPort": 1, "protocol": 6}], "a number, a string is expected"),
        ("portMappings", [{"hostPort": 1, "containerPort": 1, "hostIP": "localhost"}], 'hostIP "localhost" is no IP address'),
        ("bandwidth", [], "a list, an object is expected"),
        ("bandwidth", {"rate": 1}, "one of ingressRate, ingressBurst, egressRate, egressBurst is expected"),
        ("bandwidth", {"ingressRate": 1.5}, "ingressRate 1.5 is not a whole number from 1 to 9223372036854775807"),
        ("bandwidth", {"egressBurst": 1}, "egressBurst is given without egressRate"),
        ("cni-args", [], "a list, an object is expected"),
        ("deviceID", 1, "a number, a string is expected"),
        ("ipam-claim-reference", [], "a list, a string is expected"),
    ],
)
def test_a_value_that_does_not_fit_its_key_is_refused_as_it_was_written(key: str, value: object, reason: str) -> None:
    message = refusal(one(**{key: value}))
    assert (message.startswith(f'element 0: key "{key}" '), message.endswith(f": {reason}")) == (True, True)


def test_addresses_and_an_ipam_claim_exclude_each_other() -> None:
    text = one(ips=["192.0.2.9"], **{"ipam-claim-reference": "claim-1"})
    assert refusal(text) == 'element 0: keys "ips" and "ipam-claim-reference" exclude each other'


def test_one_element_may_carry_the_default_route() -> None:
    text = json.dumps([{"name": "a", "default-route": []}, {"name": "b"}, {"name": "c", "default-route": ["192.0.2.1"]}])
    assert refusal(text) == 'element 2: key "default-route" is in element 0 already, one may carry it'


def test_the_same_network_may_be_asked_for_twice() -> None:
    assert len(parse("lan-a,lan-a")) == 2


def test_a_status_entry_holds_what_is_known_and_always_a_dns_object() -> None:
    text = annotations.format_statuses([NetworkStatus("trunk"), NetworkStatus("lan-é", "net1", mtu=0)])
    assert json.loads(text) == [{"name": "trunk", "dns": {}}, {"name": "lan-é", "interface": "net1", "dns": {}}]


def test_a_status_entry_holds_everything_under_the_names_of_the_standard() -> None:
    status = NetworkStatus(
        "ns/lan-a",
        "net1",
        ("192.0.2.9", "2001:db8::9"),
        "02:00:5e:00:00:4d",
        mtu=1400,
        default=True,
        dns={"nameservers": ["192.0.2.53"]},
        device_info={"type": "pci", "version": "1.1.0"},
        gateway=("192.0.2.1",),
        default_route=(),
    )
    assert json.loads(annotations.format_statuses([status])) == [
        {
            "name": "ns/lan-a",
            "interface": "net1",
            "ips": ["192.0.2.9", "2001:db8::9"],
            "mac": "02:00:5e:00:00:4d",
            "mtu": 1400,
            "default": True,
            "dns": {"nameservers": ["192.0.2.53"]},
            "device-info": {"type": "pci", "version": "1.1.0"},
            "gateway": ["192.0.2.1"],
            "default-route": [],
        }
    ]


def test_the_status_text_is_readable_as_kubectl_shows_it() -> None:
    assert annotations.format_statuses([NetworkStatus("é")]) == '[\n    {\n        "name": "é",\n        "dns": {}\n    }\n]'


def test_a_label_is_one_of_dns_1123() -> None:
    texts = ["a", "a-0", "0" * 63, "", "a" * 64, "-a", "a-", "A", "a.b", "é"]
    assert list(filter(annotations.is_dns_label, texts)) == ["a", "a-0", "0" * 63]


def test_a_name_is_labels_joined_by_dots() -> None:
    longest, too_long = (".".join(["a" * length] * 4) for length in (62, 63))
    assert list(filter(annotations.is_dns_name, ["a.b-1", longest, too_long, "a..b", "", "a."])) == ["a.b-1", longest]
