"""Requests for lists and watches, what is kept of their answers, and delays."""

from __future__ import annotations

import json
from typing import Any
from urllib.parse import parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multus.errors import DecodingError
from multus.protocol import codec, watches
from multus.types.devices import PodView

PODS = watches.pods("n1")
NETWORKS = watches.net_attach_defs()

POD: dict[str, Any] = {
    "metadata": {
        "name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "annotations": {"a": "b", "metadata": "c"},
        "labels": {"l": "m"}, "managedFields": [{"fieldsV1": {"f:metadata": {}}}],
    },
    "spec": {
        "nodeName": "n1", "hostNetwork": True, "volumes": [{"ephemeral": {"volumeClaimTemplate": {"metadata": {"x": "y"}, "spec": {}}}}],
        "containers": [{"name": "c", "env": [{"name": "SECRET", "value": "x"}]}],
        "initContainers": [{"name": "i", "restartPolicy": "Always", "image": "x"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}],
    },
    "status": {
        "phase": "Running", "conditions": [1], "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "g1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []},
    },
}  # fmt: skip
TRIMMED: dict[str, Any] = {
    "metadata": {"name": "web", "namespace": "shop", "uid": "u1", "resourceVersion": "7", "annotations": {"a": "b", "metadata": "c"}},
    "spec": {
        "nodeName": "n1", "hostNetwork": True, "containers": [{"name": "c"}], "initContainers": [{"name": "i", "restartPolicy": "Always"}],
        "resourceClaims": [{"name": "gpu", "resourceClaimName": "g"}],
    },
    "status": {
        "phase": "Running", "resourceClaimStatuses": [{"name": "gpu", "resourceClaimName": "g1"}],
        "extendedResourceClaimStatus": {"resourceClaimName": "e", "requestMappings": []},
    },
}  # fmt: skip


def query_of(target: str) -> dict[str, str]:
    return dict(parse_qsl(urlsplit(target).query))


def page(*items: object, **metadata: str) -> bytes:
    return json.dumps({"kind": "PodList", "metadata": {"resourceVersion": "9", **metadata}, "items": list(items)}).encode()


def test_a_first_list_takes_what_the_server_has_at_hand() -> None:
    target = watches.list_target(PODS, watches.ANY_VERSION)
    assert urlsplit(target).path == "/api/v1/pods"
    assert query_of(target) == {"fieldSelector": "spec.nodeName=n1", "limit": "500", "resourceVersion": "0"}


def test_a_later_list_takes_nothing_older_than_what_is_known() -> None:
    assert query_of(watches.list_target(NETWORKS, "7")) == {
        "limit": "500", "resourceVersion": "7", "resourceVersionMatch": "NotOlderThan",
    }  # fmt: skip


def test_the_newest_version_is_asked_for_by_none() -> None:
    assert query_of(watches.list_target(NETWORKS, watches.NEWEST_VERSION)) == {"limit": "500"}


def test_a_further_page_is_asked_for_by_its_token_alone() -> None:
    assert query_of(watches.list_target(NETWORKS, "7", "t/=", 10)) == {"limit": "10", "continue": "t/="}


def test_a_watch_asks_for_bookmarks_and_an_end() -> None:
    target = watches.watch_target(PODS, "7", 300)
    assert query_of(target) == {
        "fieldSelector": "spec.nodeName=n1", "watch": "true", "allowWatchBookmarks": "true", "resourceVersion": "7",
        "timeoutSeconds": "300",
    }  # fmt: skip


def test_pods_of_all_nodes_have_no_selector() -> None:
    assert "fieldSelector" not in watches.watch_target(watches.pods(""), "7", 1)


def test_of_a_pod_only_what_is_needed_is_kept() -> None:
    found = watches.parse_page(page(POD, **{"continue": "t"}), PODS)
    assert found == watches.Page((TRIMMED,), "9", "t")
    assert watches.parse_event(json.dumps({"type": "ADDED", "object": POD}).encode(), PODS) == watches.Event("ADDED", TRIMMED)


def test_what_is_kept_of_a_pod_says_as_much_of_its_devices() -> None:
    assert codec.structure(POD, PodView, "pod") == codec.structure(TRIMMED, PodView, "pod")


def test_of_a_net_attach_def_configuration_and_resource_are_kept() -> None:
    annotations = {"k8s.v1.cni.cncf.io/resourceName": "intel.com/sriov", "kubectl.kubernetes.io/last-applied-configuration": "x"}
    document = {"metadata": {"name": "n", "annotations": annotations}, "spec": {"config": "{}", "other": 1}}
    assert watches.parse_page(page(document), NETWORKS).items == (
        {"metadata": {"name": "n", "annotations": {"k8s.v1.cni.cncf.io/resourceName": "intel.com/sriov"}}, "spec": {"config": "{}"}},
    )


def test_an_empty_list_may_be_null() -> None:
    assert watches.parse_page(b'{"metadata": {"resourceVersion": "9"}, "items": null}', PODS) == watches.Page((), "9", "")


@pytest.mark.parametrize(
    "body",
    [b"", b"{", b"[]", b"\xff", b"[" * 100000, b"{}", b'{"metadata": {}, "items": []}', b'{"metadata": {"resourceVersion": 1}}',
     b'{"metadata": {"resourceVersion": "1"}, "items": {}}', b'{"metadata": {"resourceVersion": "1"}}',
     b'{"metadata": {"resourceVersion": "1", "continue": 1}, "items": []}'],
)  # fmt: skip
def test_what_is_no_list_is_refused(body: bytes) -> None:
    with pytest.raises(DecodingError, match="list of pods"):
        watches.parse_page(body, PODS)


@pytest.mark.parametrize(
    "line", [b"{", b"[]", b"{}", b'{"type": "ADDED"}', b'{"type": 1, "object": {}}', b'{"type": "ADDED", "object": 1}']
)
def test_what_is_no_event_is_refused(line: bytes) -> None:
    with pytest.raises(DecodingError, match="event of pods"):
        watches.parse_event(line, PODS)


def test_an_error_event_is_kept_whole() -> None:
    status = {"kind": "Status", "metadata": {}, "code": 410, "message": "too old"}
    assert watches.parse_event(json.dumps({"type": "ERROR", "object": status}).encode(), PODS).document == status


def test_a_value_of_another_kind_stays_for_those_who_check_it() -> None:
    document = {"metadata": "x", "spec": {"containers": {"a": 1}, "initContainers": [1]}, "status": None}
    assert PODS.trimmed(document) == document


def test_identity_is_read_from_the_metadata() -> None:
    assert (watches.key_of(POD), watches.uid_of(POD), watches.version_of(POD)) == (("shop", "web"), "u1", "7")
    assert (watches.key_of({}), watches.uid_of({"metadata": 1}), watches.version_of({})) == (("", ""), "", "")


def test_a_collection_of_one_node_holds_its_pods_only() -> None:
    assert PODS.holds(POD)
    assert not PODS.holds({"spec": {"nodeName": "n2"}})
    assert not PODS.holds({})
    assert watches.pods("").holds({})


def test_versions_are_compared_as_numbers() -> None:
    assert watches.is_newer("10", "9")
    assert not watches.is_newer("9", "9")
    assert not watches.is_newer("x", "9")
    assert not watches.is_newer("9", "")


def test_delays_double_up_to_half_a_minute() -> None:
    assert [watches.delay_s(attempt, "", 0.0) for attempt in (0, 1, 2, 3, 7, 8, 10**6)] == [0.0, 0.5, 1.0, 2.0, 30.0, 30.0, 30.0]
    assert watches.delay_s(1, "", 1.0) == 0.25


def test_the_server_may_ask_for_a_longer_delay_within_reason() -> None:
    assert watches.delay_s(1, "7", 0.0) == 7.0
    assert watches.delay_s(1, "7", 1.0) == pytest.approx(7.7)
    assert watches.delay_s(1, "100000", 0.0) == 120.0
    assert watches.delay_s(1, "Wed, 21 Oct 2026 07:28:00 GMT", 0.0) == 0.5


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.sampled_from(["metadata", "spec", "items", "name", "annotations", "containers", "x"]), inner, max_size=4),
)


@given(JSON)
def test_any_json_is_a_page_or_a_decoding_error(document: object) -> None:
    try:
        found = watches.parse_page(json.dumps(document).encode(), PODS)
    except DecodingError:
        return
    assert all(isinstance(item, dict) for item in found.items)


@given(JSON)
def test_any_object_can_be_trimmed_and_trimmed_again(value: object) -> None:
    for collection in (PODS, NETWORKS):
        once = collection.trimmed({"metadata": value, "spec": value, "status": value})
        assert once == collection.trimmed(once)
        assert len(watches.key_of(once)) == 2
