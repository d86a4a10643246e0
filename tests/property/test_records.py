"""Attachments on disk: what is written is what is read."""

from __future__ import annotations

import json
import tempfile
from typing import Any

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from multus.adapters.journal import Journal
from multus.errors import MultusError
from multus.protocol import conflists, documents, records
from multus.testing import strategies
from multus.types.delegate import Attachment, Delegate
from multus.types.invocation import Call, CNICommand
from multus.types.result import Result
from multus.types.selection import NetworkSelectionElement

_unhurried = settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
_scalars = st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(max_size=4)
_values = _scalars | st.lists(_scalars, max_size=2) | st.dictionaries(st.text(max_size=2), _scalars, max_size=1)
_objects = st.dictionaries(st.text(max_size=4), _values, max_size=2)
_results = st.sampled_from((
    None,
    Result({"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}}),
    Result({"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "x": 2**70}], "ips": []}),
))


@st.composite
def _confs(draw: st.DrawFn) -> Any:
    plugin = st.builds(lambda extra, name: {**extra, "type": name}, _objects, strategies.dns_labels())
    plugins = draw(st.lists(plugin, min_size=1, max_size=2))
    optional = {"name": strategies.network_names(), "cniVersion": st.just("0.4.0"), "disableCheck": st.booleans()}
    list_keys = {"plugins": st.just(plugins), "cniVersions": st.just(["1.0.0", "1.1.0"])}
    document = draw(_objects) | draw(st.fixed_dictionaries({}, optional=optional))
    document |= draw(st.fixed_dictionaries({"plugins": list_keys.pop("plugins")}, optional=list_keys) | st.just(plugins[0]))
    conf = conflists.parse(document, where="a test", default_name="net")
    return conf._replace(cni_version=conf.cni_version or draw(st.sampled_from(("", "1.0.0"))))


_selections = st.builds(
    NetworkSelectionElement,
    name=strategies.dns_names(),
    namespace=strategies.dns_labels(),
    ifname=strategies.interface_names(),
    ips=st.lists(strategies.ips(), max_size=2).map(tuple),
    mac=st.just("") | strategies.macs(),
    infiniband_guid=st.just("") | strategies.macs(8),
    port_mappings=st.lists(_objects, max_size=2).map(tuple),
    bandwidth=st.none() | st.dictionaries(st.sampled_from(("ingressRate", "ingressBurst")), st.integers(0), max_size=2),
    default_route=st.none() | st.lists(strategies.ips(), max_size=2).map(tuple),
    cni_args=st.none() | _objects,
    device_id=st.text(max_size=8),
    ipam_claim_reference=st.text(max_size=8),
)


@st.composite
def _attachments(draw: st.DrawFn) -> Attachment:
    delegate = Delegate(
        name=draw(strategies.dns_names()),
        conf=draw(_confs()),
        selection=draw(st.none() | _selections),
        is_cluster_network=draw(st.booleans()),
        is_auxiliary=draw(st.booleans()),
        device_id=draw(st.text(max_size=8)),
        resource_name=draw(st.text(max_size=8)),
        preference=draw(st.sampled_from(("", "binary", "in-process"))),
    )
    return Attachment(
        delegate=delegate,
        container_id="c1",
        netns=draw(st.text(max_size=8)),
        ifname=draw(strategies.interface_names()),
        generic_args=tuple(draw(st.lists(st.tuples(st.text(max_size=4), st.text(max_size=4)), max_size=3))),
        capability_args=draw(_objects),
        result=draw(_results),
        device_info=draw(st.none() | _objects),
        runners=tuple(draw(st.lists(st.sampled_from(("", "binary", "in-process")), max_size=3))),
    )


@_unhurried
@given(_attachments())
def test_an_element_is_read_as_it_was_written_but_for_the_result(attachment: Attachment) -> None:
    text = documents.dumps(records.to_element(attachment))
    assert attachment._replace(result=None) == records.from_element(documents.loads(text, "a test"), "c1")


@_unhurried
@given(_attachments())
def test_a_results_file_is_read_as_it_was_written(attachment: Attachment) -> None:
    text = documents.dumps(records.to_result_file(attachment))
    assert attachment == records.from_result_file(documents.load_object(text, "a test"), "eth0")


@_unhurried
@given(_attachments())
def test_the_reference_finds_the_complete_configuration_in_an_element(attachment: Attachment) -> None:
    element = records.to_element(attachment)
    del element["attachment"]
    conf = records.from_reference(element, 1, Call(CNICommand.DEL, "c1")).delegate.conf
    named = conflists.named(attachment.delegate.conf)
    assert (named, attachment.network) == (conf.document, conf.name)
    assert attachment.delegate.conf.plugins == conf.plugins or not conf.is_list


@settings(_unhurried, max_examples=20)
@given(st.lists(_attachments(), min_size=1, max_size=3, unique_by=lambda each: (each.network, each.ifname)))
def test_the_journal_reads_what_it_wrote(attachments: list[Attachment]) -> None:
    with tempfile.TemporaryDirectory() as folder:
        journal = Journal(folder)
        journal.write("c1", tuple(attachments))
        for attachment in attachments:
            journal.write_result(attachment)
        assert tuple(attachments) == journal.read(Call(CNICommand.DEL, "c1"))


_keys = st.sampled_from((
    "Bytes", "Name", "ifnameRequest", "macRequest", "ipRequest", "default-route", "deviceID", "attachment", "conf", "document", "plugins",
    "kind", "containerId", "config", "ifName", "networkName", "netns", "cniArgs", "capabilityArgs", "result", "cniVersion", "selection",
    "name", "isList", "clusterNetwork", "auxiliary", "deviceInfo", "disableCheck", "disableGC", "type",
))
_wrong = st.recursive(
    strategies.json_values() | st.sampled_from(("cniCacheV1", "eyJ0eXBlIjoiYSIsIm5hbWUiOiJuIn0=")),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(_keys, inner, max_size=6),
    max_leaves=20,
)


@_unhurried
@given(_wrong, st.binary(max_size=20))
def test_whatever_is_in_the_files_nothing_but_our_errors_come_out(document: Any, garbage: bytes) -> None:
    call = Call(CNICommand.DEL, "c1", ifname="eth0")
    for read in (
        lambda: records.from_element(document, "c1"),
        lambda: records.from_reference(document, 0, call),
        lambda: records.from_result_file(document if isinstance(document, dict) else {}, "eth0"),
        lambda: records.with_result_file(Attachment(Delegate("n", conflists.parse({"type": "a", "name": "n"}, where="")), "c1", "", "e"),
                                         document if isinstance(document, dict) else {}),
    ):
        try:
            read()
        except MultusError:
            continue
    with tempfile.TemporaryDirectory() as folder:
        for content in (json.dumps(document).encode(), garbage):
            with open(f"{folder}/c1", "wb") as file:
                file.write(content)
            Journal(folder).read(call)
