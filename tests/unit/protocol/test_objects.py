"""Kubernetes objects: paths in, values out, documents to send."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multus.errors import InvalidConfigError
from multus.protocol import objects
from multus.types.delegate import NetAttachDef
from multus.types.pod import Node, Pod

POD = Pod("shop", "web-0", "uid-1", {}, {"metadata": {"resourceVersion": "42"}})
NOW_NS = 1_700_000_000_123_456_789


def test_paths_of_the_objects() -> None:
    assert objects.pod_path("shop", "web-0") == "/api/v1/namespaces/shop/pods/web-0"
    assert objects.events_path("shop") == "/api/v1/namespaces/shop/events"
    assert objects.net_attach_def_path("a", "b") == "/apis/k8s.cni.cncf.io/v1/namespaces/a/network-attachment-definitions/b"


def test_plain_path_and_query_are_percent_encoded() -> None:
    assert objects.quoted_path("/apis/x/y é", {"fieldSelector": "a=b", "c": ""}) == "/apis/x/y%20%C3%A9?fieldSelector=a%3Db&c="


@pytest.mark.parametrize("path", ["apis", "", "/a//b", "/a/../b", "/a/."])
def test_path_with_no_clear_segments_is_refused(path: str) -> None:
    with pytest.raises(InvalidConfigError):
        objects.quoted_path(path)


@pytest.mark.parametrize("name", ["", ".", ".."])
def test_name_that_would_change_the_path_is_refused(name: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        objects.pod_path("shop", name)
    assert caught.value.msg == f'pod "{name}" cannot be the name of a Kubernetes object'


@given(st.text(min_size=1).filter(lambda text: text not in (".", "..")))
def test_name_never_leaves_its_segment(name: str) -> None:
    segments = objects.pod_path("shop", name.encode("utf-8", "ignore").decode() or "x").split("/")
    assert len(segments) == 7
    assert not set(segments[6]) & set("/?#&= \r\n")


def test_name_that_is_not_utf8_in_the_environment_is_kept_as_bytes() -> None:
    assert objects.pod_path("a", b"\xff".decode("utf-8", "surrogateescape")).endswith("/%FF")


def test_pod_keeps_its_string_annotations_and_its_document() -> None:
    document = {"metadata": {"uid": "u", "annotations": {"a": "b", "c": 1, "d": None}}}
    assert objects.pod_from(document, "n", "p") == Pod("n", "p", "u", {"a": "b"}, document)


@pytest.mark.parametrize("document", [{}, {"metadata": None}, {"metadata": []}, {"metadata": {"uid": 1, "annotations": None}}])
def test_pod_with_nulls_everywhere_is_a_pod(document: dict[str, object]) -> None:
    assert objects.pod_from(document, "n", "p") == Pod("n", "p", "", {}, document)


@pytest.mark.parametrize("spec", [{}, {"spec": None}, {"spec": {}}, {"spec": {"config": None}}, {"spec": {"config": ""}}])
def test_net_attach_def_without_a_configuration_has_an_empty_one(spec: dict[str, object]) -> None:
    assert objects.net_attach_def_from(spec, "n", "d") == NetAttachDef("n", "d")


def test_net_attach_def_with_configuration_and_resource() -> None:
    document = {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/resourceName": "x/y"}}, "spec": {"config": "{}"}}
    assert objects.net_attach_def_from(document, "n", "d") == NetAttachDef("n", "d", "{}", "x/y")


def test_resource_name_that_is_no_string_is_none() -> None:
    document: dict[str, object] = {"metadata": {"annotations": {"k8s.v1.cni.cncf.io/resourceName": 5}}}
    assert objects.net_attach_def_from(document, "n", "d").resource_name == ""


@pytest.mark.parametrize(
    ("spec", "message"),
    [
        ({"config": {}}, "net-attach-def n/d: spec.config is an object, a string is expected"),
        ({"config": False}, "net-attach-def n/d: spec.config is a boolean, a string is expected"),
        ("x", "net-attach-def n/d: spec is a string, an object is expected"),
        ([], "net-attach-def n/d: spec is a list, an object is expected"),
    ],
)
def test_net_attach_def_of_the_wrong_shape_is_an_error_that_names_it(spec: object, message: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        objects.net_attach_def_from({"spec": spec}, "n", "d")
    assert caught.value.msg == message


def test_annotation_patch_is_bound_to_the_pod_by_its_uid() -> None:
    assert objects.annotation_patch(POD, "k", "v") == {"metadata": {"uid": "uid-1", "annotations": {"k": "v"}}}


@pytest.mark.parametrize("pod", [POD._replace(uid=""), POD._replace(annotations={"kubernetes.io/config.source": "file"})])
def test_annotation_patch_of_a_static_or_unknown_pod_has_no_uid(pod: Pod) -> None:
    assert objects.annotation_patch(pod, "k", "v") == {"metadata": {"annotations": {"k": "v"}}}


def test_event_as_the_reference_makes_it() -> None:
    assert objects.event(POD, "Normal", "AddedInterface", "Add eth0 [] from x", NOW_NS) == {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": "shop", "name": "web-0.17979cfe3d85cd15"},
        "involvedObject": {
            "kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web-0", "uid": "uid-1", "resourceVersion": "42",
        },
        "type": "Normal",
        "reason": "AddedInterface",
        "message": "Add eth0 [] from x",
        "source": {"component": "multus"},
        "reportingComponent": "multus",
        "reportingInstance": "",
        "firstTimestamp": "2023-11-14T22:13:20Z",
        "lastTimestamp": "2023-11-14T22:13:20Z",
        "count": 1,
    }


def test_event_of_a_pod_without_a_document_has_no_resource_version() -> None:
    assert "resourceVersion" not in str(objects.event(POD._replace(document={}), "Normal", "R", "m", NOW_NS))


def test_event_of_a_node_is_kept_where_kubectl_looks_for_it() -> None:
    event = objects.event(Node("node-1"), "Warning", "ConfigurationRepaired", "m", NOW_NS)
    assert event["metadata"] == {"namespace": "default", "name": "node-1.17979cfe3d85cd15"}
    assert event["involvedObject"] == {"kind": "Node", "apiVersion": "v1", "name": "node-1", "uid": "node-1"}


def test_event_name_fits_for_the_longest_pod_name() -> None:
    event = objects.event(POD._replace(name="p" * 253), "Normal", "R", "m", NOW_NS)
    assert event["metadata"] == {"namespace": "shop", "name": "p" * 236 + ".17979cfe3d85cd15"}


@given(st.text(alphabet="aé€😀", min_size=300, max_size=1200))
def test_event_message_is_cut_between_characters(message: str) -> None:
    cut = objects.event(POD, "Warning", "R", message, NOW_NS)["message"]
    assert isinstance(cut, str)
    assert message.startswith(cut)
    assert len(cut.encode()) <= 1024
    assert cut == message or len(cut.encode()) > 1020
