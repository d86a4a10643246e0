"""Any configuration, of Multus or of a network, is read as it was meant or refused with an error of ours."""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from multus.defaults.selection import NetAttachDefResolution
from multus.errors import MultusError
from multus.protocol import conflists, multus_config
from multus.protocol.documents import dumps
from multus.testing import strategies
from multus.testing.fakes import FakeConfDir, FakeKube
from multus.types.config import MultusConfig
from multus.types.delegate import NetAttachDef
from multus.types.selection import NetworkSelectionElement

CHANGES = st.sampled_from((str.upper, str.lower, str.title, str.swapcase))
NETWORKS = strategies.conflists() | strategies.single_plugin_confs()


def texts_of(value: object) -> list[str]:
    """Every text in a configuration but those of documents, which are not ours to judge."""
    if isinstance(value, str):
        return [value]
    return [text for member in value for text in texts_of(member)] if isinstance(value, tuple) else []


def outcome(function: Any, *arguments: object) -> Any:
    """What it answers, or its error of our classes; any other exception passes."""
    try:
        return function(*arguments)
    except MultusError as exc:
        return exc


def can_be_a_path(text: str) -> bool:
    return "\0" not in text and os.fsencode(text) is not None


@given(strategies.multus_configs(), st.data())
def test_the_case_of_keys_does_not_matter(document: dict[str, Any], data: st.DataObject) -> None:
    changed = {data.draw(CHANGES)(key): value for key, value in document.items()}
    if "logOptions" in document:
        changed = {key: value for key, value in changed.items() if key.lower() != "logoptions"}
        changed["LOGOPTIONS"] = {data.draw(CHANGES)(key): value for key, value in document["logOptions"].items()}
    assert multus_config.from_document(changed) == multus_config.from_document(document)


@given(strategies.multus_configs(), strategies.unknown_keys())
def test_unknown_keys_do_not_matter(document: dict[str, Any], unknown: dict[str, Any]) -> None:
    assert multus_config.from_document({**unknown, **document}) == multus_config.from_document(document)


@given(strategies.multus_configs())
def test_null_means_that_a_key_was_not_given(document: dict[str, Any]) -> None:
    absent = {key: None for key in ("confDir", "plugins", "logOptions", "apiDeadline", "invalidAnnotation") if key not in document}
    assert multus_config.from_document({**absent, **document}) == multus_config.from_document(document)


@given(strategies.multus_configs())
def test_a_valid_configuration_is_read_and_its_delegates_kept_as_they_are(document: dict[str, Any]) -> None:
    config = multus_config.load(json.dumps(document).encode())
    assert config.name == document["name"]
    assert [conf.document for conf in config.delegates] == document.get("delegates", [])


@given(strategies.damaged(strategies.multus_configs()).map(lambda value: dumps(value).encode()) | st.binary())
@example(b'{"name":"a","clusterNetwork":"a","binDir":"/\\u0000"}')
@example(b'{"name":"a","delegates":[{"type":"\\ud800"}]}')
def test_any_standard_input_is_a_usable_configuration_or_an_error(stdin: bytes) -> None:
    config = outcome(multus_config.load, stdin)
    if isinstance(config, MultusError):
        assert config.code in (1, 6, 7)
        assert config.msg.encode().decode() == config.msg
        return
    ours = config._replace(delegates=(), valid_attachments=None)
    assert [text for text in texts_of(ours) if not can_be_a_path(text)] == []
    assert [plugin.type for conf in config.delegates for plugin in conf.plugins if not can_be_a_path(plugin.type)] == []


@given(strategies.damaged(NETWORKS).map(dumps) | strategies.any_text())
@example("[]")
@example("{")
@example('{"type":"a","name":null,"cniVersion":[]}')
def test_any_net_attach_def_is_a_usable_network_or_an_error_that_names_it(text: str) -> None:
    kube = FakeKube()
    kube.net_attach_defs["team", "lan-a"] = NetAttachDef("team", "lan-a", text)
    resolve = NetAttachDefResolution(kube, FakeConfDir()).multus_resolve_delegate
    delegate = outcome(resolve, NetworkSelectionElement("lan-a", "team"), None, MultusConfig("meta-net"))
    if isinstance(delegate, MultusError):
        assert delegate.msg.startswith("net-attach-def team/lan-a")
        return
    assert delegate.conf.plugins
    assert [plugin.type for plugin in delegate.conf.plugins if "/" in plugin.type or not can_be_a_path(plugin.type)] == []


@given(NETWORKS)
def test_a_valid_network_is_kept_as_it_is_and_read_again_from_its_named_document(document: dict[str, Any]) -> None:
    conf = conflists.parse(document, where="x")
    assert conf.document == document
    again = conflists.parse(conflists.named(conf), where="x")
    assert (again.name, again.cni_version, again.plugins) == (conf.name, conf.cni_version, conf.plugins)


@given(NETWORKS, strategies.unknown_keys())
def test_an_edit_changes_nothing_that_it_does_not_name(document: dict[str, Any], added: dict[str, Any]) -> None:
    conf = conflists.parse(document, where="x")
    edited = conflists.with_edited(conf, lambda plugin: {**added, **plugin})
    assert conflists.with_edited(conf, lambda plugin: plugin).document == conf.document
    assert [{**added, **plugin.document} for plugin in conf.plugins] == [plugin.document for plugin in edited.plugins]
    assert conflists.parse(edited.document, where="x").plugins == edited.plugins
