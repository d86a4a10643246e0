"""Documents into values, and what an error says about a document that is none."""

from __future__ import annotations

import subprocess
import sys

import attrs
import pytest

from multus.errors import DecodingError
from multus.protocol import codec
from multus.types.devices import (
    AllocatedDevice,
    Checkpoint,
    CheckpointEntry,
    DeviceAttribute,
    PodClaim,
    PodContainer,
    PodView,
    RequestMapping,
    ResourceClaim,
    ResourceSlice,
    ResourceSliceList,
    SliceDevice,
)


def claim(*results: object) -> dict[str, object]:
    return {"status": {"allocation": {"devices": {"results": list(results)}}}}


def details(document: object, type_: type) -> list[str]:
    with pytest.raises(DecodingError) as failure:
        codec.structure(document, type_, "thing team/x")
    assert "thing team/x: the document has the wrong shape" == failure.value.msg
    return failure.value.details.split("\n")


def test_every_field_of_a_pod_is_found_under_its_json_spelling():
    document = {
        "spec": {
            "nodeName": "n1",
            "containers": [{"name": "c", "image": "ignored"}],
            "initContainers": [{"name": "i", "restartPolicy": "Always"}],
            "resourceClaims": [{"name": "a", "resourceClaimName": "claim-a"}, {"name": "b", "resourceClaimTemplateName": "t"}],
        },
        "status": {
            "resourceClaimStatuses": [{"name": "b", "resourceClaimName": "claim-b"}],
            "extendedResourceClaimStatus": {
                "resourceClaimName": "claim-e",
                "requestMappings": [{"containerName": "c", "requestName": "r", "resourceName": "ex.com/nic"}],
            },
        },
    }
    expected = PodView(
        "n1",
        (PodContainer("c"),),
        (PodContainer("i", "Always"),),
        claims=(PodClaim("a", "claim-a"), PodClaim("b")),
        claim_statuses=(PodClaim("b", "claim-b"),),
        extended_claim_name="claim-e",
        extended_requests=(RequestMapping("c", "r", "ex.com/nic"),),
    )
    assert expected == codec.structure(document, PodView, "pod")


def test_every_field_of_a_slice_is_found_under_its_json_spelling():
    device = {"name": "d", "attributes": {"ex.com/id": {"string": "x"}, "numa": {"int": 1}}}
    document = {"items": [{"spec": {"pool": {"name": "p", "generation": 3}, "devices": [device]}}]}
    attributes = {"ex.com/id": DeviceAttribute("x"), "numa": DeviceAttribute("")}
    expected = ResourceSliceList((ResourceSlice("p", 3, (SliceDevice("d", attributes),)),))
    assert expected == codec.structure(document, ResourceSliceList, "slices")


def test_every_field_of_a_claim_is_found_under_its_json_spelling():
    document = claim({"request": "r", "driver": "d", "pool": "p", "device": "x"})
    assert ResourceClaim((AllocatedDevice("r", "d", "p", device="x"),)) == codec.structure(document, ResourceClaim, "claim")


@pytest.mark.parametrize("device_ids", [["a", "b"], {"0": ["a"], "1": ["b"]}, {"0": ["a"], "1": None, "-1": ["b"]}])
def test_both_shapes_of_checkpoint_device_ids_are_read(device_ids):
    entry = {"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": device_ids, "AllocResp": "ignored"}
    expected = Checkpoint((CheckpointEntry("u", "c", "r", device_ids=("a", "b")),))
    assert expected == codec.structure({"Data": {"PodDeviceEntries": [entry]}, "Checksum": 1}, Checkpoint, "checkpoint")


@pytest.mark.parametrize("document", [{}, {"status": None}, {"status": {}}, {"status": {"allocation": None}}, claim()])
def test_null_and_absent_both_mean_the_default(document):
    assert ResourceClaim() == codec.structure(document, ResourceClaim, "claim")


def test_null_for_a_required_field_is_missing():
    document = {"items": [{"spec": {"pool": {"name": None}}}]}
    assert ["required, but missing: $.items[0].spec.pool.name"] == details(document, ResourceSliceList)


@pytest.mark.parametrize(
    ("document", "type_", "line"),
    [
        (
            claim({"request": "r", "driver": "d", "pool": 5, "device": "x"}),
            ResourceClaim,
            "expected a string, got 5: $.status.allocation.devices.results[0].pool",
        ),
        (
            {"items": [{"spec": {"pool": {"name": "p", "generation": "7"}}}]},
            ResourceSliceList,
            'expected an integer, got "7": $.items[0].spec.pool.generation',
        ),
        (
            {"items": [{"spec": {"pool": {"name": "p", "generation": True}}}]},
            ResourceSliceList,
            "expected an integer, got true: $.items[0].spec.pool.generation",
        ),
        (
            {"items": [{"spec": {"pool": {"name": "p"}, "devices": [{"name": "d", "attributes": {"a/b": {"string": 1.5}}}]}}]},
            ResourceSliceList,
            'expected a string, got 1.5: $.items[0].spec.devices[0].attributes["a/b"].string',
        ),
        (
            {"items": [{"spec": {"pool": {"name": "p"}, "devices": [{"name": "d", "attributes": ["a"]}]}}]},
            ResourceSliceList,
            "expected an object, got a list: $.items[0].spec.devices[0].attributes",
        ),
        ({"spec": {"nodeName": {"secret": "x"}}}, PodView, "expected a string, got an object: $.spec.nodeName"),
        ({"spec": {"containers": "abc"}}, PodView, 'expected a list, got "abc": $.spec.containers'),
        ({"spec": {"containers": {"name": "c"}}}, PodView, "expected a list, got an object: $.spec.containers"),
        ({"status": {"allocation": {"devices": []}}}, ResourceClaim, "expected an object, got a list: $.status.allocation.devices"),
        ({"status": False}, ResourceClaim, "expected an object, got false: $.status"),
        ([], ResourceClaim, "expected an object, got a list: $"),
        (None, ResourceClaim, "expected an object, got null: $"),
        ("text", ResourceClaim, 'expected an object, got "text": $'),
        (
            {"Data": {"PodDeviceEntries": [{"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": {"0": ["a", 5]}}]}},
            Checkpoint,
            'expected a string, got 5: $.Data.PodDeviceEntries[0].DeviceIDs["0"][1]',
        ),
        (
            {"Data": {"PodDeviceEntries": [{"PodUID": "u", "ContainerName": "c", "ResourceName": "r", "DeviceIDs": "a"}]}},
            Checkpoint,
            'expected an object, got "a": $.Data.PodDeviceEntries[0].DeviceIDs',
        ),
    ],
)
def test_a_wrong_value_is_named_with_its_json_path(document, type_, line):
    assert [line] == details(document, type_)


def test_every_wrong_value_of_a_document_has_a_line():
    expected = [
        "expected a string, got 1: $.status.allocation.devices.results[0].driver",
        "required, but missing: $.status.allocation.devices.results[0].device",
        "expected an object, got 7: $.status.allocation.devices.results[1]",
    ]
    assert expected == details(claim({"request": "r", "driver": 1, "pool": "p"}, 7), ResourceClaim)


def test_long_values_are_cut_to_sixty_characters():
    (line,) = details({"spec": {"containers": "x" * 1000}}, PodView)
    shown = line.removeprefix("expected a list, got ").removesuffix(": $.spec.containers")
    assert 60 == len(shown)


def test_ten_wrong_values_have_ten_lines():
    lines = details(claim(*range(10)), ResourceClaim)
    assert "expected an object, got 9: $.status.allocation.devices.results[9]" == lines[-1]
    assert 10 == len(lines)


def test_the_lines_beyond_ten_are_counted():
    lines = details(claim(*range(25)), ResourceClaim)
    assert ["expected an object, got 8: $.status.allocation.devices.results[8]", "and 16 more below $"] == lines[8:]


@attrs.frozen
class Switch:
    on: bool
    label: str | None = None


def test_a_boolean_is_not_made_of_text():
    assert ['expected a boolean, got "false": $.on', "expected a string, got 1: $.label"] == details({"on": "false", "label": 1}, Switch)


def test_an_optional_field_holds_its_type():
    assert Switch(True, "x") == codec.structure({"on": True, "label": "x"}, Switch, "switch")


def test_importing_the_codec_imports_no_cattrs():
    """Modules of the hot path may import it for nothing."""
    program = "import sys, multus.protocol.codec; print({'attrs', 'cattrs'} & set(sys.modules))"
    answer = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert "set()\n" == answer.stdout
