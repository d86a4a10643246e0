"""One grammar in two spellings; any annotation is a list of selections or an error that quotes it; statuses come back."""

from __future__ import annotations

import json
import os
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from multus.errors import InvalidConfigError
from multus.protocol import annotations, environment
from multus.testing import strategies
from multus.types.pod import NETWORKS_ANNOTATION, NetworkStatus
from multus.types.selection import NetworkSelectionElement

SHORT_LISTS = st.lists(strategies.short_selection_elements(), max_size=5, unique_by=lambda element: element.get("interface") or object())
DAMAGED = strategies.damaged(strategies.network_annotations().map(lambda drawn: list(drawn[1]))).map(json.dumps)
CUT = st.tuples(strategies.network_annotations(), st.integers(0, 40), st.integers(0, 40), strategies.any_text()).map(
    lambda parts: parts[0][0][: parts[1]] + parts[3] + parts[0][0][parts[1] + parts[2] :]
)
SHORT_LIKE = st.text("ab1-./@, \t", max_size=20)


def parse(text: str) -> tuple[NetworkSelectionElement, ...]:
    return annotations.parse_selections(text, NETWORKS_ANNOTATION, "home")


def parse_or_error(text: str) -> tuple[NetworkSelectionElement, ...] | InvalidConfigError:
    try:
        return parse(text)
    except InvalidConfigError as exc:
        return exc


@given(SHORT_LISTS, st.sampled_from((",", " , ", ",\n")))
def test_the_short_and_the_json_form_of_a_request_are_the_same(elements: list[dict[str, str]], comma: str) -> None:
    short = comma.join(strategies.short_form(element) or "" for element in elements)
    assert parse(short) == parse(json.dumps(elements))


@given(strategies.network_annotations())
def test_a_valid_annotation_is_read_element_by_element(drawn: tuple[str, list[dict[str, Any]]]) -> None:
    text, elements = drawn
    selections = parse(text)
    assert [(each.name, each.namespace, each.ifname) for each in selections] == [
        (element["name"], element.get("namespace", "home"), element.get("interface", "")) for element in elements
    ]
    assert [each.cni_args for each in selections] == [element.get("cni-args") for element in elements]
    assert [each.ips for each in selections] == [tuple(element.get("ips", ())) for element in elements]
    assert [each.default_route for each in selections] == [
        tuple(element["default-route"]) if "default-route" in element else None for element in elements
    ]


@given(DAMAGED | CUT | SHORT_LIKE | strategies.any_text())
@example('[{"name":"a","interface":"\\ud800"}]')
@example('[{"name":"a","bandwidth":{"ingressRate":1e400}}]')
@example("[" * 2000)
@example("\ud800")
def test_any_text_is_a_list_of_valid_selections_or_an_error_that_names_the_annotation(text: str) -> None:
    found = parse_or_error(text)
    if isinstance(found, InvalidConfigError):
        assert found.msg.startswith(f"annotation {NETWORKS_ANNOTATION}")
        assert found.msg.encode().decode() == found.msg
        return
    names = [each.ifname for each in found if each.ifname]
    assert len(names) == len(set(names))
    for each in found:
        assert annotations.is_dns_name(each.name)
        assert annotations.is_dns_label(each.namespace)
        assert not each.ifname or environment.ifname_problem(each.ifname) == ""
        assert ".." not in f"{each.name}/{each.ifname}".split("/")
        assert os.fsencode(each.ifname).decode(errors="surrogateescape") == each.ifname


@given(strategies.network_annotations(), st.sampled_from((str.upper, str.lower, str.title)))
def test_the_case_of_a_key_does_not_matter(drawn: tuple[str, list[dict[str, Any]]], change: Any) -> None:
    elements = [{change(key): value for key, value in element.items()} for element in drawn[1]]
    assert parse(json.dumps(elements)) == parse(json.dumps(drawn[1]))


@given(strategies.network_annotations(), strategies.unknown_keys())
def test_an_unknown_key_does_not_matter(drawn: tuple[str, list[dict[str, Any]]], unknown: dict[str, Any]) -> None:
    assert parse(json.dumps([{**unknown, **element} for element in drawn[1]])) == parse(json.dumps(drawn[1]))


@given(st.lists(strategies.network_statuses(), max_size=3))
def test_statuses_come_back_from_the_annotation(statuses: list[NetworkStatus]) -> None:
    assert [from_entry(entry) for entry in json.loads(annotations.format_statuses(statuses))] == statuses


def from_entry(entry: dict[str, Any]) -> NetworkStatus:
    """What a reader of the annotation makes of an entry.  Spec: multi-network CRD standard v1.3 §5."""
    return NetworkStatus(
        entry["name"],
        entry.get("interface", ""),
        tuple(entry.get("ips", ())),
        entry.get("mac", ""),
        entry.get("mtu"),
        entry.get("default", False),
        entry["dns"],
        entry.get("device-info"),
        tuple(entry.get("gateway", ())),
        tuple(entry["default-route"]) if "default-route" in entry else None,
    )
