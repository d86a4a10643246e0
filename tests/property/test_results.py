"""Laws of multus.protocol.results over all CNI versions."""

from __future__ import annotations

import copy
from typing import Any

from hypothesis import assume, example, given
from hypothesis import strategies as st

from multus import errors
from multus.protocol import addresses, results, versions
from multus.testing import strategies
from multus.types.result import Result, ResultView

NEWER_INTERFACE_KEYS = ("mtu", "socketPath", "pciID")
NEWER_ROUTE_KEYS = ("mtu", "advmss", "priority", "table", "scope")
GATEWAYS = st.lists(strategies.ips(), max_size=3)
FAMILIES = st.sets(strategies.families())


def is_old(version: str) -> bool:
    return version in ("0.1.0", "0.2.0")


def has_address(result: Result) -> bool:
    return bool(results.view(result).ips)


def routes_of(result: Result) -> list[dict[str, Any]]:
    owners = [result.document.get(key) for key in ("ip4", "ip6")] if is_old(result.cni_version) else [result.document]
    return [route for owner in owners if isinstance(owner, dict) for route in owner.get("routes", [])]


def without_routes(document: Any) -> Any:
    """The document with all routes of the result taken out, for comparing all else."""
    if not isinstance(document, dict):
        return document
    return {key: without_routes(value) if key in ("ip4", "ip6") else value for key, value in document.items() if key != "routes"}


def route_families(route: dict[str, Any]) -> set[int]:
    return {6 if ":" in text else 4 for text in [route.get("dst") or route.get("gw")] if text} or {4, 6}


@st.composite
def with_odd_default_routes(draw: st.DrawFn) -> Result:
    """A result in which some routes lost their destination or got another spelling of the default one."""
    document = copy.deepcopy(dict(draw(strategies.results(extra_keys=True)).document))
    for route in routes_of(Result(document)):
        kind = draw(st.sampled_from(("as it is", "no destination", "null", "other spelling")))
        if kind == "no destination":
            del route["dst"]
        elif kind == "null":
            route["dst"] = None
        elif kind == "other spelling":
            route["dst"] = "::0/0" if ":" in route["dst"] else "10.0.0.0/0"
    return results.parse(document, "")


# --- parse ---


@given(strategies.results(extra_keys=True), strategies.cni_versions())
def test_a_valid_result_is_parsed_to_itself(result: Result, requested: str) -> None:
    assert results.parse(result.document, requested).document is result.document


@given(strategies.results(extra_keys=True))
def test_a_result_without_version_gets_the_requested_one(result: Result) -> None:
    anonymous = {key: value for key, value in result.document.items() if key != "cniVersion"}
    assert results.parse(anonymous, result.cni_version) == result


def judged(document: object, version: str) -> None:
    """Parse, and if it is accepted, read and convert: only MultusError may come out, and only where it may."""
    try:
        result = results.parse(document, version)
    except errors.DecodingError:
        return
    view = results.view(result)
    for target in versions.SUPPORTED:
        if is_old(target) and not is_old(result.cni_version) and not view.ips:
            continue
        converted = results.convert(result, target)
        assert results.parse(converted.document, "") == converted
    results.with_default_routes_added(results.with_routes_removed(result, (4, 6)), ["10.0.0.1", "::1"])


KEYS = (
    "cniVersion", "interfaces", "ips", "routes", "dns", "ip4", "ip6",
    "address", "ip", "dst", "gw", "gateway", "interface", "version", "mtu", "name",
)
TEXTS = ("", "10.0.0.2/24", "::/0", "fd02::1", "x", *versions.SUPPORTED)
SCALARS = st.none() | st.booleans() | st.integers() | st.floats() | st.sampled_from(TEXTS)


def containers(inner: st.SearchStrategy[object]) -> st.SearchStrategy[object]:
    return st.lists(inner, max_size=3) | st.dictionaries(st.sampled_from(KEYS), inner, max_size=5)


RESULT_LIKE = st.recursive(SCALARS, containers, max_leaves=12)


@given(strategies.json_values() | RESULT_LIKE, strategies.cni_versions() | st.text(max_size=5))
@example({"cniVersion": False}, "1.0.0")
@example({"cniVersion": "1.0.0", "interfaces": [{}], "ips": [{"address": "10.0.0.2/24", "interface": -1}]}, "")
def test_nothing_but_an_error_of_ours_comes_of_any_json(document: object, version: str) -> None:
    judged(document, version)


@given(st.data())
def test_a_valid_result_with_one_value_replaced_is_accepted_or_refused_cleanly(data: st.DataObject) -> None:
    document: Any = copy.deepcopy(dict(data.draw(strategies.results()).document))
    node = document
    while True:
        assume(node)
        at = data.draw(st.sampled_from(sorted(node) if isinstance(node, dict) else range(len(node))))
        if not isinstance(node[at], dict | list) or not node[at] or data.draw(st.booleans()):
            break
        node = node[at]
    node[at] = data.draw(SCALARS | strategies.json_values())
    judged(document, "")


# --- convert ---


@given(st.data())
def test_a_newer_version_and_back_is_the_same(data: st.DataObject) -> None:
    version = data.draw(strategies.cni_versions())
    newer = data.draw(strategies.cni_versions(minimum=version))
    result = data.draw(strategies.results(version))
    assume(has_address(result) or not is_old(version) or is_old(newer))
    assert results.convert(results.convert(result, newer), version) == result


@given(strategies.results(), strategies.cni_versions(), strategies.cni_versions())
def test_a_conversion_by_way_of_a_version_between_is_the_direct_one(result: Result, between: str, target: str) -> None:
    order = versions.SUPPORTED.index
    low, high = sorted((order(result.cni_version), order(target)))
    assume(low <= order(between) <= high)
    assume(has_address(result) or not (is_old(target) or is_old(between)))
    assert results.convert(results.convert(result, between), target) == results.convert(result, target)


@given(strategies.results("1.1.0"), strategies.cni_versions())
def test_an_older_version_and_back_loses_only_what_the_older_lacks(result: Result, older: str) -> None:
    assume(has_address(result) or not is_old(older))
    document: dict[str, Any] = copy.deepcopy(dict(result.document))
    if older != "1.1.0":
        for entries, keys in (("interfaces", NEWER_INTERFACE_KEYS), ("routes", NEWER_ROUTE_KEYS)):
            for entry in document.get(entries, ()):
                for key in keys:
                    entry.pop(key, None)
    if is_old(older):
        document.pop("interfaces", None)
        firsts: dict[int, dict[str, Any]] = {}
        for entry in document["ips"]:
            entry.pop("interface", None)
            firsts.setdefault(6 if ":" in entry["address"] else 4, entry)
        document["ips"] = [firsts[family] for family in sorted(firsts)]
        routes = [route for family in sorted(firsts) for route in document.get("routes", []) if family in route_families(route)]
        document.pop("routes", None)
        if routes:
            document["routes"] = routes
    assert results.convert(results.convert(result, older), "1.1.0").document == document


@given(strategies.results(extra_keys=True), strategies.cni_versions())
def test_unknown_keys_pass_through_one_version_and_no_conversion(result: Result, target: str) -> None:
    assume(has_address(result) or not is_old(target) or is_old(result.cni_version))
    before = copy.deepcopy(result.document)
    converted = results.convert(result, target)
    assert result.document == before
    if target == result.cni_version:
        assert converted is result
    else:
        assert "x-" not in "".join(all_keys(converted.document))


def all_keys(value: object) -> list[str]:
    if isinstance(value, dict):
        return [key for own, inner in value.items() for key in (own, *all_keys(inner))]
    return [key for inner in value for key in all_keys(inner)] if isinstance(value, list) else []


# --- view ---


@given(strategies.results(extra_keys=True), strategies.cni_versions())
def test_a_view_is_the_same_in_all_versions_that_can_hold_it(result: Result, target: str) -> None:
    assume(not is_old(target) or is_old(result.cni_version))

    def portable(view: ResultView) -> ResultView:
        return view._replace(interfaces=tuple(interface._replace(mtu=None) for interface in view.interfaces))

    assert portable(results.view(results.convert(result, target))) == portable(results.view(result))


@given(strategies.results(extra_keys=True))
def test_an_index_of_a_view_always_points_to_an_interface(result: Result) -> None:
    view = results.view(result)
    assert all(ip.interface is None or view.interfaces[ip.interface] for ip in view.ips)
    assert len(view.routes) == len(routes_of(result))


# --- default routes ---


@given(with_odd_default_routes(), FAMILIES)
def test_removing_default_routes_leaves_none_and_all_else_as_it_was(result: Result, families: set[int]) -> None:
    before = copy.deepcopy(result.document)
    removed = results.with_routes_removed(result, families)
    assert result.document == before
    assert without_routes(removed.document) == without_routes(result.document)

    def goes(route: dict[str, Any], native: set[int]) -> bool:
        own = route_families(route) if route.get("dst") or route.get("gw") else native
        return addresses.is_default(route.get("dst")) and bool(own & families)

    if is_old(result.cni_version):
        owners = [(result.document.get(f"ip{family}"), removed.document.get(f"ip{family}"), {family}) for family in (4, 6)]
    else:
        owners = [(result.document, removed.document, {4, 6})]
    for old, new, native in owners:
        if isinstance(old, dict) and isinstance(new, dict):
            assert new.get("routes", []) == [route for route in old.get("routes", []) if not goes(route, native)]
            assert new.get("routes") != []


@given(with_odd_default_routes(), GATEWAYS)
def test_adding_then_removing_is_the_result_without_default_routes(result: Result, gateways: list[str]) -> None:
    families = {6 if ":" in gateway else 4 for gateway in gateways}
    clean = results.with_routes_removed(result, families)
    before = copy.deepcopy(clean.document)
    added = results.with_default_routes_added(clean, gateways)
    assert clean.document == before
    assert results.with_routes_removed(added, families) == clean
    assert without_routes(added.document) == without_routes(clean.document)


@given(strategies.results(), GATEWAYS)
def test_added_default_routes_are_what_a_view_shows_more(result: Result, gateways: list[str]) -> None:
    view = results.view(result)
    more = results.view(results.with_default_routes_added(result, gateways))
    held = {6 if ":" in ip.address else 4 for ip in view.ips} if is_old(result.cni_version) else {4, 6}
    expected = sorted(gateway for gateway in gateways if (6 if ":" in gateway else 4) in held)
    assert more._replace(routes=()) == view._replace(routes=())
    left = list(more.routes)
    for route in view.routes:
        left.remove(route)
    assert sorted(route.gw for route in left) == expected
    assert all(addresses.is_default(route.dst) for route in left)
