"""The checkpoint file, the messages of the pod-resources API, and the errors of both."""

from __future__ import annotations

import json
import sys

import pytest

from multus.adapters.kubelet import Kubelet, decode_list
from multus.errors import DecodingError, InvalidConfigError, IOFailureError, MultusError
from multus.types.devices import ContainerDevices, DeviceEntry, PodDevices
from multus.types.pod import Pod

POD = Pod("team", "web", "uid-1")


def entry(uid: str, container: str, resource: str, device_ids: object) -> dict[str, object]:
    return {"PodUID": uid, "ContainerName": container, "ResourceName": resource, "DeviceIDs": device_ids, "AllocResp": "CgA="}


@pytest.fixture
def read_checkpoint(tmp_path):
    """The devices of a pod, from a checkpoint of this content, where there is no socket."""

    def read(content: object, pod: Pod = POD) -> PodDevices:
        path = tmp_path / "checkpoint"
        path.write_bytes(content if isinstance(content, bytes) else json.dumps(content).encode())
        return Kubelet(str(tmp_path / "no.sock"), str(path)).devices(pod)

    return read


def test_checkpoint_entries_of_the_pod_are_gathered_by_container_name(read_checkpoint):
    entries = [
        entry("uid-1", "second", "ex.com/nic", {"0": ["b"], "1": ["a"]}),
        entry("uid-2", "first", "ex.com/nic", {"0": ["not mine"]}),
        entry("uid-1", "first", "ex.com/nic", {"0": ["d"]}),
        entry("uid-1", "first", "ex.com/fpga", {"0": ["f"]}),
    ]
    expected = PodDevices((
        ContainerDevices("first", (DeviceEntry("ex.com/nic", ("d",)), DeviceEntry("ex.com/fpga", ("f",)))),
        ContainerDevices("second", (DeviceEntry("ex.com/nic", ("b", "a")),)),
    ))
    assert expected == read_checkpoint({"Data": {"PodDeviceEntries": entries, "RegisteredDevices": {}}, "Checksum": 1})


def test_the_older_checkpoint_with_plain_lists_is_read(read_checkpoint):
    expected = PodDevices((ContainerDevices("c", (DeviceEntry("ex.com/nic", ("b", "a")),)),))
    assert expected == read_checkpoint({"Data": {"PodDeviceEntries": [entry("uid-1", "c", "ex.com/nic", ["b", "a"])]}})


def test_a_checkpoint_of_an_idle_node_has_no_devices(read_checkpoint):
    assert PodDevices() == read_checkpoint({"Data": {"PodDeviceEntries": None, "RegisteredDevices": {}}, "Checksum": 1})


def test_a_checkpoint_that_is_not_json_is_named(read_checkpoint, tmp_path):
    with pytest.raises(DecodingError) as failure:
        read_checkpoint(b'{"Data": ')
    assert failure.value.msg.startswith(f"kubelet's checkpoint {tmp_path}/checkpoint is not JSON: ")


def test_a_checkpoint_of_another_shape_is_named_with_the_place(read_checkpoint, tmp_path):
    with pytest.raises(DecodingError) as failure:
        read_checkpoint({"Data": {"PodDeviceEntries": [entry("uid-1", "c", "ex.com/nic", 5)]}})
    assert f"kubelet's checkpoint {tmp_path}/checkpoint: the document has the wrong shape" == failure.value.msg
    assert "expected an object, got 5: $.Data.PodDeviceEntries[0].DeviceIDs" == failure.value.details


def test_with_neither_socket_nor_checkpoint_the_error_names_both(tmp_path):
    with pytest.raises(IOFailureError) as failure:
        Kubelet(str(tmp_path / "no.sock"), str(tmp_path / "none")).devices(POD)
    expected = f"kubelet's checkpoint {tmp_path}/none, read for want of the pod-resources API at {tmp_path}/no.sock: "
    assert expected + "No such file or directory" == failure.value.msg


def test_the_checkpoint_needs_the_pod_uid(read_checkpoint):
    """An entry with an empty UID would be anybody's."""
    with pytest.raises(InvalidConfigError, match="needs its UID"):
        read_checkpoint({"Data": {"PodDeviceEntries": [entry("", "c", "ex.com/nic", ["a"])]}}, Pod("team", "web", ""))


@pytest.mark.parametrize("pod", [Pod("", "web", "uid-1"), Pod("team", "", "uid-1")])
def test_a_pod_without_namespace_or_name_has_no_devices_to_find(read_checkpoint, pod):
    with pytest.raises(InvalidConfigError, match="needs its namespace and name"):
        read_checkpoint({"Data": {}}, pod)


def test_without_grpcio_the_error_says_what_to_install(tmp_path, monkeypatch):
    socket = tmp_path / "kubelet.sock"
    socket.touch()
    monkeypatch.setitem(sys.modules, "grpc", None)
    with pytest.raises(MultusError) as failure:
        Kubelet(str(socket), str(tmp_path / "none")).devices(POD)
    assert f"asking the kubelet's pod-resources socket {socket} needs the package grpcio: install multus[devices]" == failure.value.msg


def test_without_grpcio_the_checkpoint_answers(tmp_path, monkeypatch):
    socket, checkpoint = tmp_path / "kubelet.sock", tmp_path / "checkpoint"
    socket.touch()
    checkpoint.write_text(json.dumps({"Data": {"PodDeviceEntries": [entry(POD.uid, "c", "ex.com/nic", ["a"])]}}))
    monkeypatch.setitem(sys.modules, "grpc", None)
    expected = PodDevices((ContainerDevices("c", (DeviceEntry("ex.com/nic", ("a",)),)),))
    assert expected == Kubelet(str(socket), str(checkpoint)).devices(POD)


# One pod as the kubelet encodes it, by hand: team/web with container "c", two entries, CPU IDs (packed and not), memory, topology.
TOPOLOGY = b"\x1a\x04\x0a\x02\x08\x01"
NIC = b"\x0a\x06ex/nic\x12\x01b\x12\x01a" + TOPOLOGY
FPGA = b"\x0a\x07ex/fpga"
CONTAINER = b"\x0a\x01c" + b"\x12" + bytes([len(NIC)]) + NIC + b"\x12" + bytes([len(FPGA)]) + FPGA + b"\x18\x80\x01" + b"\x1a\x02\x01\x02"
WEB = b"\x0a\x03web\x12\x04team\x1a" + bytes([len(CONTAINER)]) + CONTAINER
OTHER = b"\x0a\x03web\x12\x05other\x1a\x03\x0a\x01x"
ANSWER = b"\x0a" + bytes([len(OTHER)]) + OTHER + b"\x0a" + bytes([len(WEB)]) + WEB


def test_an_answer_is_read_field_by_field():
    expected = PodDevices((ContainerDevices("c", (DeviceEntry("ex/nic", ("b", "a")), DeviceEntry("ex/fpga", ()))),))
    assert expected == decode_list(ANSWER, "team", "web")


@pytest.mark.parametrize(("namespace", "name"), [("team", "web2"), ("team2", "web"), ("web", "team")])
def test_other_pods_devices_are_not_the_pods(namespace, name):
    assert PodDevices() == decode_list(ANSWER, namespace, name)


def test_an_empty_answer_lists_no_pods():
    assert PodDevices() == decode_list(b"", "team", "web")


def test_fields_of_a_newer_api_are_skipped():
    newer = b"\x10\x96\x01" + b"\x19" + bytes(8) + b"\x25" + bytes(4) + b"\x2a\x02hi"
    assert decode_list(ANSWER, "team", "web") == decode_list(newer + ANSWER, "team", "web")


@pytest.mark.parametrize(
    ("answer", "msg"),
    [
        (b"\x0a\x05abc", "field 1 is cut short: 3 bytes of 5"),
        (b"\x19abc", "field 3 is cut short: 3 bytes of 8"),
        (b"\x25abc", "field 4 is cut short: 3 bytes of 4"),
        (b"\x0b", "wire type 3 of field 1 is unknown"),
        (b"\x0f", "wire type 7 of field 1 is unknown"),
        (b"\x0a", "no integer ends at byte 1"),
        (b"\xff" * 20, "no integer ends at byte 0"),
        (b"\x0a\x03\x0a\x01\xff", "a string is not UTF-8"),
    ],
)
def test_an_answer_that_is_no_message_is_a_decoding_error(answer, msg):
    with pytest.raises(DecodingError) as failure:
        decode_list(answer, "team", "web")
    assert msg == failure.value.msg
