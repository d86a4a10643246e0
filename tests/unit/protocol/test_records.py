"""The shape of attachments on disk, key by key: the reference must be able to read it, and we what it wrote."""

from __future__ import annotations

import base64
import json
from collections.abc import Mapping

import pytest

from multus.errors import DecodingError
from multus.protocol import conflists, records
from multus.types.delegate import Attachment, Delegate
from multus.types.invocation import Call, CNICommand
from multus.types.result import Result
from multus.types.selection import NetworkSelectionElement

CALL = Call(CNICommand.DEL, "c1", netns="/run/netns/p", ifname="eth0", generic_args=(("IgnoreUnknown", "1"),))
SINGLE = {
    "cniVersion": "1.0.0", "name": "base", "type": "bridge", "big": 12345678901234567890, "capabilities": {"ips": True, "odd": "x"},
    "ipam": {"type": "host-local", "subnet": "10.0.0.0/24"},
    "dns": {"domain": "a.b", "search": ["x"], "nameservers": "wrong", "options": [1]},
}
LIST = {"cniVersion": "1.0.0", "plugins": [{"type": "macvlan", "ipam": {"type": 5}}, {"type": "tuning"}]}


def attachment(document: Mapping[str, object], *, cluster: bool = False, selection: NetworkSelectionElement | None = None) -> Attachment:
    conf = conflists.parse(document, where="a test", default_name="blue")
    return Attachment(Delegate("infra/blue", conf, selection, is_cluster_network=cluster), "c1", "/run/netns/p", "net1")


def decoded(text: object) -> object:
    return json.loads(base64.b64decode(str(text)))


def encoded(document: object) -> str:
    return base64.b64encode(json.dumps(document).encode()).decode()


def test_a_single_plugin_is_written_as_the_reference_writes_it() -> None:
    element = records.to_element(attachment(SINGLE, cluster=True))
    del element["attachment"]
    assert decoded(element.pop("Bytes")) == SINGLE
    assert {
        "Conf": {
            "cniVersion": "1.0.0", "name": "base", "type": "bridge", "capabilities": {"ips": True},
            "ipam": {"type": "host-local"}, "dns": {"domain": "a.b", "search": ["x"]},
        },
        "ConfList": {},
        "Name": "infra/blue",
        "IsFilterV4Gateway": False,
        "IsFilterV6Gateway": False,
    } == element


def test_a_plugin_list_is_written_as_the_reference_writes_it() -> None:
    guid = "01:02:03:04:05:06:07:08"
    selection = NetworkSelectionElement("blue", "infra", "net1", ("10.0.0.9",), "02:00:00:00:00:01", guid, default_route=())
    whole = attachment({**LIST, "disableCheck": "true", "disableGC": True}, selection=selection)
    element = records.to_element(whole._replace(delegate=whole.delegate._replace(device_id="0000:01", resource_name="ex.com/nic")))
    del element["attachment"]
    assert decoded(element.pop("Bytes")) == {**LIST, "name": "blue", "disableCheck": "true", "disableGC": True}
    assert {
        "Conf": {"cniVersion": "1.0.0", "name": "blue", "ipam": {}},
        "ConfList": {
            "cniVersion": "1.0.0", "name": "blue", "disableCheck": True, "disableGC": True,
            "plugins": [{"type": "macvlan", "ipam": {}}, {"type": "tuning", "ipam": {}}],
        },
        "Name": "infra/blue",
        "ifnameRequest": "net1",
        "macRequest": "02:00:00:00:00:01",
        "infinibandGUIDRequest": "01:02:03:04:05:06:07:08",
        "ipRequest": ["10.0.0.9"],
        "default-route": [],
        "IsFilterV4Gateway": False,
        "IsFilterV6Gateway": False,
        "deviceID": "0000:01",
        "resourceName": "ex.com/nic",
    } == element


def test_all_plugins_of_a_list_are_in_the_bytes() -> None:
    element = records.to_element(attachment({"name": "n", "plugins": [{"type": "a"}, {"type": "b"}]}))
    assert decoded(element["Bytes"]) == {"name": "n", "plugins": [{"type": "a"}, {"type": "b"}]}
    assert element["ConfList"] == {"name": "n", "plugins": [{"type": "a", "ipam": {}}, {"type": "b", "ipam": {}}]}


def test_only_the_cluster_network_has_its_interface_name_from_the_call() -> None:
    assert "ifnameRequest" not in records.to_element(attachment(SINGLE, cluster=True))
    assert records.to_element(attachment(SINGLE))["ifnameRequest"] == "net1"


def test_a_recorded_attachment_is_read_without_any_check_of_its_configuration() -> None:
    element = json.loads(json.dumps(records.to_element(attachment(SINGLE))))
    element["attachment"]["conf"]["document"]["type"] = "multus"
    read = records.from_element(element, "c1")
    assert read is not None
    assert read.delegate.conf.plugins[0].type == "multus"


def test_a_recorded_selection_is_read_with_all_its_requests() -> None:
    selection = NetworkSelectionElement(
        "blue", "infra", "net1", ("10.0.0.9",), "02:00:00:00:00:01", "01:02:03:04:05:06:07:08", ({"hostPort": 80},), {"ingressRate": 2**60},
        (), {"a": [1]}, "0000:01", "claim",
    )
    whole = attachment(SINGLE, selection=selection)
    assert whole == records.from_element(json.loads(json.dumps(records.to_element(whole))), "c1")


def test_an_element_of_the_reference_is_completed_from_its_place_and_the_call() -> None:
    element = {"Name": "base", "Bytes": encoded(SINGLE)}
    first, third = (records.from_reference(element, index, CALL) for index in (0, 2))
    assert (first.ifname, first.netns, first.generic_args, first.delegate.is_cluster_network) == (
        "eth0", "/run/netns/p", (("IgnoreUnknown", "1"),), True,
    )
    assert (third.ifname, third.delegate.is_cluster_network, third.delegate.selection, third.capability_args) == ("net2", False, None, {})


def test_the_requests_in_an_element_of_the_reference_are_kept_and_become_capability_args() -> None:
    element = {
        "Name": "infra/blue", "Bytes": encoded(LIST), "ifnameRequest": "web0", "macRequest": "02:00:00:00:00:01",
        "ipRequest": ["10.0.0.9/24"], "infinibandGUIDRequest": "01:02:03:04:05:06:07:08", "default-route": ["10.0.0.1"],
        "deviceID": "0000:01", "resourceName": "ex.com/nic",
    }
    read = records.from_reference(element, 1, CALL)
    assert read.delegate == Delegate(
        "infra/blue",
        conflists.parse(LIST, where="a test", default_name="blue"),
        NetworkSelectionElement(
            "blue", "infra", "web0", ("10.0.0.9/24",), "02:00:00:00:00:01", "01:02:03:04:05:06:07:08", default_route=("10.0.0.1",),
        ),
        device_id="0000:01",
        resource_name="ex.com/nic",
        preference="binary",
    )
    assert read.ifname == "web0"
    assert read.capability_args == {
        "ips": ["10.0.0.9/24"], "mac": "02:00:00:00:00:01", "infinibandGUID": "01:02:03:04:05:06:07:08", "deviceID": "0000:01",
    }


@pytest.mark.parametrize("content", ["", "!", "e30", encoded([])])
def test_bytes_that_hold_no_configuration_are_an_error(content: str) -> None:
    with pytest.raises(DecodingError, match='key "Bytes"'):
        records.from_reference({"Name": "n", "Bytes": content}, 0, CALL)


def test_a_results_file_is_the_one_of_libcni_with_one_more_key() -> None:
    result = Result({"cniVersion": "1.0.0", "ips": []})
    whole = attachment(SINGLE)._replace(result=result, generic_args=(("A", "b"),), capability_args={"ips": ["10.0.0.1"]})
    content = records.to_result_file(whole)
    del content["attachment"]
    assert decoded(content.pop("config")) == SINGLE
    assert {
        "kind": "cniCacheV1", "containerId": "c1", "ifName": "net1", "networkName": "base", "netns": "/run/netns/p",
        "cniArgs": [["A", "b"]], "capabilityArgs": {"ips": ["10.0.0.1"]}, "result": {"cniVersion": "1.0.0", "ips": []},
    } == content


def test_a_results_file_of_the_reference_is_an_attachment() -> None:
    document = {
        "kind": "cniCacheV1", "containerId": "c1", "ifName": "eth0", "networkName": "blue", "config": encoded(LIST), "netns": "/n",
        "cniArgs": [["A", "b"]], "capabilityArgs": {"mac": "x"}, "result": {"cniVersion": "1.0.0"},
    }
    conf = conflists.parse(LIST, where="a test", default_name="blue")
    expected = Attachment(
        Delegate("blue", conf, is_cluster_network=True, preference="binary"),
        "c1", "/n", "eth0", (("A", "b"),), {"mac": "x"}, Result({"cniVersion": "1.0.0"}),
    )
    assert expected == records.from_result_file(document, "eth0")
    assert not records.from_result_file(document, "eth1").delegate.is_cluster_network


@pytest.mark.parametrize("missing", ["kind", "containerId", "ifName", "networkName"])
def test_a_results_file_that_tells_no_attachment_is_an_error(missing: str) -> None:
    document = records.to_result_file(attachment(SINGLE))
    del document[missing]
    with pytest.raises(DecodingError, match="without kind"):
        records.from_result_file(document, "eth0")


@pytest.mark.parametrize(
    ("document", "expected"),
    [
        ({"kind": "cniCacheV1", "result": {"cniVersion": "1.0.0", "x": 1}}, {"cniVersion": "1.0.0", "x": 1}),
        ({"kind": "cniCacheV1", "result": {"x": 1}}, {"cniVersion": "0.4.0", "x": 1}),
        ({"cniVersion": "0.2.0", "ip4": {}}, {"cniVersion": "0.2.0", "ip4": {}}),
        ({"ip4": {}}, {"cniVersion": "0.4.0", "ip4": {}}),
        ({"kind": "cniCacheV1"}, None),
        ({"kind": "cniCacheV1", "result": []}, None),
        ({"kind": "cniCacheV2", "result": {"cniVersion": "1.0.0"}}, None),
        ({}, None),
        ({"cniVersion": 1}, None),
    ],
)
def test_the_result_is_found_in_results_files_new_and_bare(document: Mapping[str, object], expected: object) -> None:
    result = records.result_of(document, "0.4.0")
    assert expected == (None if result is None else result.document)


def test_a_bare_result_gives_the_result_alone() -> None:
    whole = attachment(SINGLE)._replace(capability_args={"mac": "x"})
    assert whole._replace(result=Result({"cniVersion": "0.2.0"})) == records.with_result_file(whole, {"cniVersion": "0.2.0"})
