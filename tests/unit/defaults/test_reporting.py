"""The built-in reports: the status annotation, and events."""

from __future__ import annotations

import json

import pytest

from multus.defaults.reporting import Events, StatusAnnotation
from multus.errors import ForbiddenError, InvalidConfigError, ObjectNotFoundError
from multus.protocol import conflists
from multus.testing.fakes import FakeKube, RecordingLog
from multus.types.config import MultusConfig
from multus.types.delegate import Attachment, Delegate
from multus.types.pod import STATUS_ANNOTATION, NetworkStatus, Pod
from multus.types.result import Result

CONFIG = MultusConfig("meta-net")
POD = Pod("shop", "web", "u1")
CONF = conflists.parse({"name": "lan-a", "type": "b"}, where="x")
IPS = [{"address": "192.0.2.9/24"}, {"address": "2001:db8::9/64"}]


@pytest.fixture
def kube() -> FakeKube:
    kube = FakeKube()
    kube.pods["shop", "web"] = POD
    return kube


def attachment(document: dict[str, object] | None, *, is_auxiliary: bool = False) -> Attachment:
    result = None if document is None else Result({"cniVersion": "1.0.0", **document})
    return Attachment(Delegate("shop/lan-a", CONF, is_auxiliary=is_auxiliary), "c1", "/run/netns/t1", "net1", result=result)


def test_report_status_sets_the_annotation_by_one_call_and_reads_nothing(kube: FakeKube) -> None:
    StatusAnnotation(kube, RecordingLog()).multus_report_status((NetworkStatus("trunk", "eth0"),), POD, CONFIG)
    ((pod, key, value),) = kube.statuses
    assert (pod, key, json.loads(value)) == (POD, STATUS_ANNOTATION, [{"name": "trunk", "interface": "eth0", "dns": {}}])
    assert kube.calls.names == ["kube.annotate_status"]


def test_report_status_of_a_pod_that_is_gone_is_only_logged(kube: FakeKube) -> None:
    log = RecordingLog()
    kube.calls.fail("kube.annotate_status", ObjectNotFoundError("gone"))
    StatusAnnotation(kube, log).multus_report_status((), POD, CONFIG)
    assert log.events("warning") == ["status.pod.gone"]


def test_report_status_that_is_refused_fails(kube: FakeKube) -> None:
    kube.calls.fail("kube.annotate_status", ForbiddenError("no"))
    with pytest.raises(ForbiddenError):
        StatusAnnotation(kube, RecordingLog()).multus_report_status((), POD, CONFIG)


def test_report_status_has_nobody_to_tell_without_an_api_server() -> None:
    log = RecordingLog()
    StatusAnnotation(None, log).multus_report_status((), POD, CONFIG)
    assert log.events() == []


def test_report_attachment_makes_an_event_with_interface_addresses_and_network(kube: FakeKube) -> None:
    Events(kube).multus_report_attachment(attachment({"ips": IPS}), POD)
    assert kube.events == [("Normal", "AddedInterface", "Add net1 [192.0.2.9/24 2001:db8::9/64] from shop/lan-a")]


def test_report_attachment_of_an_interface_without_address_makes_an_event_too(kube: FakeKube) -> None:
    Events(kube).multus_report_attachment(attachment({"interfaces": [{"name": "net1"}]}), POD)
    assert kube.events == [("Normal", "AddedInterface", "Add net1 [] from shop/lan-a")]


@pytest.mark.parametrize("made", [attachment(None), attachment({}), attachment({"ips": IPS}, is_auxiliary=True)])
def test_report_attachment_is_silent_where_no_interface_was_added(kube: FakeKube, made: Attachment) -> None:
    Events(kube).multus_report_attachment(made, POD)
    assert kube.events == []


def test_report_problem_makes_a_warning_with_the_errors_text(kube: FakeKube) -> None:
    Events(kube).multus_report_problem("FailedAddNetworks", InvalidConfigError("key \"a\" is bad", "$.a"), POD)
    assert kube.events == [("Warning", "FailedAddNetworks", "key \"a\" is bad; $.a")]


def test_report_attachment_and_problem_have_nobody_to_tell_without_an_api_server() -> None:
    Events(None).multus_report_attachment(attachment({"ips": IPS}), POD)
    Events(None).multus_report_problem("FailedAddNetworks", InvalidConfigError("no"), POD)
