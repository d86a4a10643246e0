"""multus.protocol.results: results of every version, parsed, converted, read and edited."""

from __future__ import annotations

import copy
import itertools
from typing import Any

import pytest

from multus import errors
from multus.protocol import results, versions
from multus.types.result import Interface, IPConfig, Result, ResultView, Route

NEWEST: dict[str, Any] = {
    "cniVersion": "1.1.0",
    "interfaces": [{"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/n", "mtu": 1450, "socketPath": "/s", "pciID": "0000:3b:02.1"}],
    "ips": [
        {"interface": 0, "address": "10.2.0.7/16", "gateway": "10.2.0.1"},
        {"address": "10.2.0.8/16"},
        {"address": "fd02::7/64"},
    ],
    "routes": [
        {"dst": "fd03::/64", "gw": "fd02::1", "mtu": 1400, "advmss": 1360, "priority": 5, "table": 0, "scope": 0},
        {"dst": "0.0.0.0/0", "gw": "10.2.0.1"},
    ],
    "dns": {"nameservers": ["10.2.0.1"], "domain": "example", "search": ["a", "b"], "options": ["ndots:5"]},
}
OLD_INTERFACE = {"name": "eth0", "mac": "02:00:00:00:00:01", "sandbox": "/n"}
OLD_ROUTES = [{"dst": "fd03::/64", "gw": "fd02::1"}, {"dst": "0.0.0.0/0", "gw": "10.2.0.1"}]
V1_0 = NEWEST | {"cniVersion": "1.0.0", "interfaces": [OLD_INTERFACE], "routes": OLD_ROUTES}
V0_4 = V1_0 | {
    "cniVersion": "0.4.0",
    "ips": [
        {"version": "4", "interface": 0, "address": "10.2.0.7/16", "gateway": "10.2.0.1"},
        {"version": "4", "address": "10.2.0.8/16"},
        {"version": "6", "address": "fd02::7/64"},
    ],
}
V0_2 = {
    "cniVersion": "0.2.0",
    "ip4": {"ip": "10.2.0.7/16", "gateway": "10.2.0.1", "routes": [{"dst": "0.0.0.0/0", "gw": "10.2.0.1"}]},
    "ip6": {"ip": "fd02::7/64", "routes": [{"dst": "fd03::/64", "gw": "fd02::1"}]},
    "dns": NEWEST["dns"],
}


def parsed(document: object) -> Result:
    return results.parse(document, "")


# --- parse ---


@pytest.mark.parametrize("version", versions.SUPPORTED)
def test_null_is_an_empty_result_of_the_requested_version(version: str) -> None:
    assert results.parse(None, version) == Result({"cniVersion": version})


@pytest.mark.parametrize("stated", [{}, {"cniVersion": ""}, {"cniVersion": None}])
def test_a_result_without_version_takes_the_requested_one(stated: dict[str, Any]) -> None:
    assert results.parse(stated, "1.0.0").document == {"cniVersion": "1.0.0"}
    assert results.parse(stated, "").document == {"cniVersion": "0.1.0"}


def test_filling_in_the_version_leaves_the_given_document_alone() -> None:
    document: dict[str, Any] = {"ips": [{"address": "10.0.0.2/24"}]}
    assert results.parse(document, "1.0.0").document == document | {"cniVersion": "1.0.0"}
    assert document == {"ips": [{"address": "10.0.0.2/24"}]}


def test_a_result_is_judged_by_its_own_version_not_the_requested_one() -> None:
    assert results.parse(V0_2, "1.1.0") == Result(V0_2)
    odd = {"cniVersion": "0.2.0", "ips": "not a key of 0.2.0", "interfaces": 5}
    assert results.parse(odd, "1.1.0").document == odd


def test_a_valid_result_passes_through_with_unknown_keys_unchanged() -> None:
    document = copy.deepcopy(NEWEST)
    document["x"] = {"big": 12345678901234567890, "null": None}
    document["interfaces"][0]["x"] = [1.5]
    document["routes"][0]["x"] = None
    document["dns"]["x"] = ""
    assert parsed(document).document is document


@pytest.mark.parametrize("document", [NEWEST, V1_0, V0_4, V0_2])
def test_every_null_is_as_if_the_key_were_not_there(document: dict[str, Any]) -> None:
    for key in document.keys() - {"cniVersion"}:
        assert parsed(document | {key: None}).document[key] is None


@pytest.mark.parametrize("index", [0, 7, -1, 2**70])
def test_any_integer_is_tolerated_as_an_interface_index(index: int) -> None:
    document = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0"}, {}], "ips": [{"address": "10.0.0.2/24", "interface": index}]}
    assert results.view(parsed(document)).ips[0].interface == (0 if index == 0 else None)


def test_an_empty_gateway_is_no_gateway() -> None:
    document = {"cniVersion": "1.0.0", "ips": [{"address": "10.0.0.2/24", "gateway": ""}], "routes": [{"dst": "10.0.0.0/8", "gw": ""}]}
    assert results.view(parsed(document)) == ResultView(ips=(IPConfig("10.0.0.2/24"),), routes=(Route("10.0.0.0/8"),))


@pytest.mark.parametrize("document", [[], "text", 0, False, 1.5, ""])
def test_a_result_that_is_no_object_is_refused(document: object) -> None:
    with pytest.raises(errors.DecodingError, match=r"^\$ is .*, not an object"):
        parsed(document)


@pytest.mark.parametrize("version", ["1.2.0", "1.0", "x", 0, False, [], {}, 1.0])
def test_an_unknown_version_is_refused(version: object) -> None:
    with pytest.raises(errors.DecodingError, match=r"^\$\.cniVersion is .*, not one of 0\.1\.0, "):
        parsed({"cniVersion": version})


def test_an_unknown_requested_version_is_refused_when_it_counts() -> None:
    with pytest.raises(errors.DecodingError, match=r"cniVersion is '3\.0\.0'"):
        results.parse({}, "3.0.0")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"interfaces": {}}, "$.interfaces is an object, not a list"),
        ({"interfaces": [[]]}, "$.interfaces[0] is a list, not an object"),
        ({"interfaces": [{}, None]}, "$.interfaces[1] is None, not an object"),
        ({"interfaces": [{"name": 5}]}, "$.interfaces[0].name is 5, not a string"),
        ({"interfaces": [{"mac": []}]}, "$.interfaces[0].mac is a list, not a string"),
        ({"interfaces": [{"sandbox": True}]}, "$.interfaces[0].sandbox is True, not a string"),
        ({"interfaces": [{"mtu": "1500"}]}, "$.interfaces[0].mtu is '1500', not an integer"),
        ({"interfaces": [{"mtu": True}]}, "$.interfaces[0].mtu is True, not an integer"),
        ({"interfaces": [{"socketPath": 1}]}, "$.interfaces[0].socketPath is 1, not a string"),
        ({"interfaces": [{"pciID": 1}]}, "$.interfaces[0].pciID is 1, not a string"),
        ({"ips": "10.0.0.2/24"}, "$.ips is '10.0.0.2/24', not a list"),
        ({"ips": [{}]}, "$.ips[0].address is missing"),
        ({"ips": [{"address": None}]}, "$.ips[0].address is missing"),
        ({"ips": [{"address": "10.0.0.2"}]}, "$.ips[0].address is '10.0.0.2', not an IP address with its prefix length"),
        ({"ips": [{"address": ""}]}, "$.ips[0].address is '', not an IP address with its prefix length"),
        ({"ips": [{"address": "10.0.0.2/24"}, {"address": 1}]}, "$.ips[1].address is 1, not an IP address with its prefix length"),
        ({"ips": [{"address": "10.0.0.2/24", "gateway": "10.0.0.1/24"}]}, "$.ips[0].gateway is '10.0.0.1/24', not an IP address"),
        ({"ips": [{"address": "10.0.0.2/24", "interface": True}]}, "$.ips[0].interface is True, not an integer"),
        ({"ips": [{"address": "10.0.0.2/24", "interface": 1.0}]}, "$.ips[0].interface is 1.0, not an integer"),
        ({"routes": [{"dst": ""}]}, "$.routes[0].dst is '', not an IP address with a prefix length"),
        ({"routes": [{"dst": "10.0.0.0/33"}]}, "$.routes[0].dst is '10.0.0.0/33', not an IP address with a prefix length"),
        ({"routes": [{"gw": "gateway"}]}, "$.routes[0].gw is 'gateway', not an IP address"),
        ({"routes": [{"priority": "5"}]}, "$.routes[0].priority is '5', not an integer"),
        ({"dns": []}, "$.dns is a list, not an object"),
        ({"dns": {"nameservers": "10.0.0.1"}}, "$.dns.nameservers is '10.0.0.1', not a list"),
        ({"dns": {"search": ["a", 1]}}, "$.dns.search[1] is 1, not a string"),
        ({"dns": {"domain": 1}}, "$.dns.domain is 1, not a string"),
        ({"dns": {"options": [None]}}, "$.dns.options[0] is None, not a string"),
    ],
)
def test_what_is_wrong_is_named_by_path_and_value(change: dict[str, Any], message: str) -> None:
    for version in ("1.0.0", "1.1.0"):
        with pytest.raises(errors.DecodingError) as caught:
            parsed({"cniVersion": version} | change)
        assert caught.value.msg == message


@pytest.mark.parametrize(
    ("version", "change", "path"),
    [
        ("0.1.0", {"ip4": []}, "$.ip4"),
        ("0.2.0", {"ip4": {}}, "$.ip4.ip"),
        ("0.2.0", {"ip6": {"ip": "fd00::1"}}, "$.ip6.ip"),
        ("0.2.0", {"ip6": {"ip": "fd00::1/64", "gateway": "x"}}, "$.ip6.gateway"),
        ("0.2.0", {"ip4": {"ip": "10.0.0.2/24", "routes": [{"dst": "x"}]}}, "$.ip4.routes[0].dst"),
        ("0.3.0", {"ips": [{"version": 4, "address": "10.0.0.2/24"}]}, "$.ips[0].version"),
        ("0.4.0", {"routes": {}}, "$.routes"),
    ],
)
def test_each_older_version_has_its_own_rules(version: str, change: dict[str, Any], path: str) -> None:
    with pytest.raises(errors.DecodingError) as caught:
        parsed({"cniVersion": version} | change)
    assert caught.value.msg.startswith(f"{path} is ")


def test_keys_that_only_newer_versions_define_are_unknown_to_older_ones() -> None:
    document = {"cniVersion": "0.4.0", "interfaces": [{"name": "eth0", "mtu": "any"}], "routes": [{"dst": "10.0.0.0/8", "scope": "any"}]}
    assert parsed(document).document == document


def test_a_long_value_is_cut_and_a_container_is_not_shown() -> None:
    with pytest.raises(errors.DecodingError) as caught:
        parsed({"cniVersion": "1.1.0", "dns": {"domain": {"token": "hunter-7"}}})
    assert "hunter-7" not in str(caught.value)
    with pytest.raises(errors.DecodingError) as caught:
        parsed({"cniVersion": "1.1.0", "ips": [{"address": "9" * 5000}]})
    assert caught.value.msg == "$.ips[0].address is '" + "9" * 59 + ", not an IP address with its prefix length"


# --- convert ---


@pytest.mark.parametrize("version", versions.SUPPORTED)
def test_the_same_version_is_the_same_object(version: str) -> None:
    result = parsed({"cniVersion": version, "x": 1, "dns": None})
    assert results.convert(result, version) is result


@pytest.mark.parametrize(("start", "target"), [*itertools.permutations([NEWEST, V1_0, V0_4, V0_2], 2)])
def test_each_shape_converts_to_each_other(start: dict[str, Any], target: dict[str, Any]) -> None:
    shapes = [V0_2, V0_4, V1_0, NEWEST]
    low = min(shapes.index(start), shapes.index(target))
    converted = results.convert(parsed(start), target["cniVersion"]).document
    if low == 0 and start is V0_2:  # one address of each family, IPv4 first; no interfaces
        expected = target | {"ips": [target["ips"][0], target["ips"][2]], "routes": OLD_ROUTES[::-1]}
        expected["ips"][0] = {key: value for key, value in expected["ips"][0].items() if key != "interface"}
        del expected["interfaces"]
    elif target is NEWEST:  # what the older shape lacked
        expected = V1_0 | {"cniVersion": "1.1.0"}
    else:
        expected = target
    assert converted == expected


@pytest.mark.parametrize(
    ("start", "others"),
    [(V0_2, ("0.1.0",)), (V0_4, ("0.3.0", "0.3.1"))],
)
def test_versions_of_one_shape_differ_in_their_version_only(start: dict[str, Any], others: tuple[str, ...]) -> None:
    for version in others:
        converted = results.convert(parsed(start), version)
        assert converted.document == start | {"cniVersion": version}
        assert results.convert(converted, start["cniVersion"]).document == start


def test_an_empty_target_version_is_0_1_0() -> None:
    assert results.convert(parsed(V0_2), "").document == V0_2 | {"cniVersion": "0.1.0"}


def test_an_unsupported_target_version_is_refused() -> None:
    with pytest.raises(errors.IncompatibleVersionError):
        results.convert(parsed(NEWEST), "2.0.0")


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_a_result_without_address_cannot_become_an_old_one(version: str) -> None:
    for start in ("0.3.0", "0.4.0", "1.0.0", "1.1.0"):
        with pytest.raises(errors.DecodingError, match="needs an address"):
            results.convert(parsed({"cniVersion": start, "interfaces": [{"name": "eth0"}], "ips": []}), version)


def test_an_old_result_without_address_can_become_a_new_one() -> None:
    assert results.convert(parsed({"cniVersion": "0.2.0", "dns": {}}), "0.1.0").document == {"cniVersion": "0.1.0", "dns": {}}
    assert results.convert(parsed({"cniVersion": "0.2.0", "dns": {}}), "0.4.0").document == {"cniVersion": "0.4.0", "dns": {}}
    assert results.convert(parsed({"cniVersion": "0.2.0", "dns": {}}), "1.1.0").document == {"cniVersion": "1.1.0"}


def test_a_conversion_drops_what_the_target_does_not_define() -> None:
    document = copy.deepcopy(NEWEST) | {"x": 1}
    for entry in (document["interfaces"][0], document["ips"][0], document["routes"][0], document["dns"]):
        entry["x"] = {"y": 1}
    assert results.convert(parsed(document), "1.0.0").document == V1_0
    assert results.convert(parsed(document), "0.4.0").document == V0_4
    assert results.convert(parsed(document), "0.2.0").document == V0_2


def test_newer_keys_in_a_1_0_0_result_survive_to_1_1_0() -> None:
    assert results.convert(parsed(NEWEST | {"cniVersion": "1.0.0"}), "1.1.0").document == NEWEST


def test_a_conversion_writes_addresses_in_their_usual_spelling() -> None:
    document = {
        "cniVersion": "1.1.0",
        "ips": [{"address": "::ffff:10.0.0.2/120", "gateway": "::ffff:10.0.0.1"}, {"address": "FD02:0::7/64", "gateway": ""}],
        "routes": [{"dst": "::0/0", "gw": "FD02::1"}],
    }
    assert results.convert(parsed(document), "0.4.0").document == {
        "cniVersion": "0.4.0",
        "ips": [{"version": "4", "address": "10.0.0.2/24", "gateway": "10.0.0.1"}, {"version": "6", "address": "fd02::7/64"}],
        "routes": [{"dst": "::/0", "gw": "fd02::1"}],
        "dns": {},
    }


def test_dns_is_always_printed_before_1_0_0_and_left_out_empty_after() -> None:
    document = {"cniVersion": "1.1.0", "ips": [{"address": "10.0.0.2/24"}], "dns": {"search": [], "x": 1}}
    assert results.convert(parsed(document), "0.4.0").document["dns"] == {}
    assert results.convert(parsed(document), "0.2.0").document["dns"] == {}
    assert "dns" not in results.convert(parsed(document), "1.0.0").document


def test_a_route_goes_with_the_address_of_its_family_or_is_dropped() -> None:
    routes = [{"dst": "10.0.0.0/8"}, {"dst": "fd03::/64"}, {"gw": "10.0.0.1"}, {"gw": "fd02::1"}, {}]
    only_v4 = {"cniVersion": "0.4.0", "ips": [{"version": "4", "address": "10.0.0.2/24"}], "routes": routes}
    assert results.convert(parsed(only_v4), "0.2.0").document == {
        "cniVersion": "0.2.0",
        "ip4": {"ip": "10.0.0.2/24", "routes": [{"dst": "10.0.0.0/8"}, {"gw": "10.0.0.1"}, {}]},
        "dns": {},
    }


def test_the_family_is_that_of_the_address_whatever_its_version_says() -> None:
    document = {"cniVersion": "0.3.1", "ips": [{"version": "6", "address": "10.0.0.2/24"}, {"address": "fd02::7/64"}]}
    assert results.convert(parsed(document), "0.2.0").document == {
        "cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24"}, "ip6": {"ip": "fd02::7/64"}, "dns": {},
    }


def test_a_conversion_never_changes_its_input() -> None:
    documents = [NEWEST, V1_0, V0_4, V0_2]
    before = copy.deepcopy(documents)
    for document, version in itertools.product(documents, versions.SUPPORTED):
        results.convert(parsed(document), version)
    assert documents == before


def test_there_is_a_step_between_all_neighbours_both_ways() -> None:
    neighbours = {*itertools.pairwise(results.SHAPES), *itertools.pairwise(results.SHAPES[::-1])}
    assert set(results.STEPS) == neighbours


@pytest.mark.parametrize(
    ("step", "given", "expected"),
    [
        (("0.2", "0.4"), {"ip6": {"ip": "fd02::7/64"}}, {"ips": [{"version": "6", "address": "fd02::7/64"}]}),
        (("0.4", "0.2"), {"ips": [{"version": "6", "address": "fd02::7/64"}]}, {"ip6": {"ip": "fd02::7/64"}}),
        (("0.4", "1.0"), {"ips": [{"version": "6", "address": "fd02::7/64"}]}, {"ips": [{"address": "fd02::7/64"}]}),
        (("1.0", "0.4"), {"ips": [{"address": "fd02::7/64"}]}, {"ips": [{"version": "6", "address": "fd02::7/64"}]}),
        (("1.0", "1.1"), {"interfaces": [{"name": "eth0"}]}, {"interfaces": [{"name": "eth0"}]}),
        (("1.1", "1.0"), {"interfaces": [{"name": "eth0", "mtu": 9000}]}, {"interfaces": [{"name": "eth0"}]}),
    ],
)
def test_each_step_changes_what_its_two_shapes_differ_in(step: tuple[str, str], given: dict[str, Any], expected: dict[str, Any]) -> None:
    assert results.STEPS[step](given) == expected


# --- view and empty ---


def test_a_view_reads_the_newest_shape() -> None:
    assert results.view(parsed(NEWEST)) == ResultView(
        interfaces=(Interface("eth0", "02:00:00:00:00:01", 1450, "/n"),),
        ips=(IPConfig("10.2.0.7/16", "10.2.0.1", 0), IPConfig("10.2.0.8/16"), IPConfig("fd02::7/64")),
        routes=(Route("fd03::/64", "fd02::1"), Route("0.0.0.0/0", "10.2.0.1")),
        dns=NEWEST["dns"],
    )


def test_a_view_of_an_older_result_lacks_only_the_mtu() -> None:
    newest = results.view(parsed(NEWEST))
    expected = newest._replace(interfaces=(newest.interfaces[0]._replace(mtu=None),))
    assert results.view(parsed(V1_0)) == results.view(parsed(V0_4)) == expected


def test_a_view_of_an_old_result_is_built_from_its_two_families() -> None:
    for version in ("0.1.0", "0.2.0"):
        assert results.view(parsed(V0_2 | {"cniVersion": version})) == ResultView(
            ips=(IPConfig("10.2.0.7/16", "10.2.0.1"), IPConfig("fd02::7/64")),
            routes=(Route("0.0.0.0/0", "10.2.0.1"), Route("fd03::/64", "fd02::1")),
            dns=NEWEST["dns"],
        )


def test_a_view_reads_an_mtu_from_a_1_0_0_result_but_not_from_an_older_one() -> None:
    interfaces = [{"name": "eth0", "mtu": 1400}]
    assert results.view(parsed({"cniVersion": "1.0.0", "interfaces": interfaces})).interfaces == (Interface("eth0", mtu=1400),)
    assert results.view(parsed({"cniVersion": "0.4.0", "interfaces": interfaces})).interfaces == (Interface("eth0"),)
    assert results.view(parsed({"cniVersion": "1.1.0", "interfaces": [{"mtu": 0}]})).interfaces == (Interface(""),)


@pytest.mark.parametrize("version", versions.SUPPORTED)
def test_an_empty_result_has_nothing_in_it(version: str) -> None:
    result = results.empty(version)
    assert result.document == ({"cniVersion": version, "dns": {}} if version < "1" else {"cniVersion": version})
    assert results.view(result) == ResultView()
    assert parsed(result.document) == result


def test_an_empty_result_needs_a_supported_version() -> None:
    assert results.empty("").cni_version == "0.1.0"
    with pytest.raises(errors.IncompatibleVersionError):
        results.empty("2.0.0")


# --- default routes ---

DEFAULTS_4: list[dict[str, Any]] = [{"dst": "0.0.0.0/0", "gw": "10.0.0.1"}, {"dst": "10.9.9.9/0"}, {"gw": "10.0.0.1"}]
DEFAULTS_6: list[dict[str, Any]] = [{"dst": "::/0", "gw": "fd02::1"}, {"dst": "::0/0"}, {"gw": "fd02::1"}]
OTHERS: list[dict[str, Any]] = [{"dst": "10.0.0.0/8", "gw": "10.0.0.1", "x": [1]}, {"dst": "0.0.0.0/1"}, {"dst": "::/1", "table": 7}]


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_default_routes_of_the_given_families_are_removed(version: str) -> None:
    mixed = [route for pair in zip(DEFAULTS_4, OTHERS, DEFAULTS_6, strict=True) for route in pair]
    result = parsed({"cniVersion": version, "x": {"routes": mixed}, "routes": mixed, "dns": {"x": 1}})
    for families, removed in (({4}, DEFAULTS_4), ({6}, DEFAULTS_6), ({4, 6}, DEFAULTS_4 + DEFAULTS_6), (set(), [])):
        kept = [route for route in mixed if route not in removed]
        assert results.with_routes_removed(result, families).document == {**result.document, "routes": kept}
    assert result.document["routes"] == mixed


@pytest.mark.parametrize("families", [{4}, {6}, {4, 6}])
def test_a_route_with_neither_destination_nor_gateway_is_a_default_of_both_families(families: set[int]) -> None:
    result = parsed({"cniVersion": "1.0.0", "routes": [{}, {"dst": None, "gw": ""}, OTHERS[0]]})
    assert results.with_routes_removed(result, families).document["routes"] == [OTHERS[0]]


def test_routes_that_become_empty_are_removed_and_others_left_alone() -> None:
    result = parsed({"cniVersion": "1.0.0", "routes": DEFAULTS_4})
    assert results.with_routes_removed(result, {4}).document == {"cniVersion": "1.0.0"}
    for routes in ([], None):
        untouched = parsed({"cniVersion": "1.0.0", "routes": routes})
        assert results.with_routes_removed(untouched, {4, 6}).document == untouched.document


@pytest.mark.parametrize("version", ["0.1.0", "0.2.0"])
def test_default_routes_of_an_old_result_are_removed_where_they_belong(version: str) -> None:
    document = {
        "cniVersion": version,
        "ip4": {"ip": "10.0.0.2/24", "routes": [*DEFAULTS_4, {}, OTHERS[0]], "x": 1},
        "ip6": {"ip": "fd02::7/64", "routes": [*DEFAULTS_6, {}]},
        "routes": DEFAULTS_4,
    }
    result = parsed(copy.deepcopy(document))
    without_4 = {"ip4": {"ip": "10.0.0.2/24", "routes": [OTHERS[0]], "x": 1}}
    without_6 = {"ip6": {"ip": "fd02::7/64"}}
    assert results.with_routes_removed(result, {4}).document == document | without_4
    assert results.with_routes_removed(result, {6}).document == document | without_6
    assert results.with_routes_removed(result, {4, 6}).document == document | without_4 | without_6
    assert result.document == document


def test_removing_from_an_old_result_without_addresses_changes_nothing() -> None:
    document = {"cniVersion": "0.2.0", "ip4": None, "dns": {}}
    assert results.with_routes_removed(parsed(document), {4, 6}).document == document
    assert results.with_default_routes_added(parsed(document), ["10.0.0.1", "fd02::1"]).document == document


@pytest.mark.parametrize("version", ["0.3.0", "0.3.1", "0.4.0", "1.0.0", "1.1.0"])
def test_default_routes_are_added_behind_the_others_in_order(version: str) -> None:
    added = [{"dst": "0.0.0.0/0", "gw": "10.0.0.9"}, {"dst": "::/0", "gw": "fd02::9"}, {"dst": "0.0.0.0/0", "gw": "10.0.0.8"}]
    gateways = ["10.0.0.9", "fd02::9", "10.0.0.8"]
    result = parsed({"cniVersion": version, "routes": OTHERS, "x": 1})
    assert results.with_default_routes_added(result, gateways).document == {**result.document, "routes": [*OTHERS, *added]}
    assert results.with_default_routes_added(parsed({"cniVersion": version}), gateways).document == {"cniVersion": version, "routes": added}
    assert results.with_default_routes_added(result, []).document == result.document
    assert len(result.document["routes"]) == len(OTHERS)


def test_default_routes_of_an_old_result_are_added_to_the_address_of_their_family() -> None:
    document = {"cniVersion": "0.2.0", "ip4": {"ip": "10.0.0.2/24", "routes": [OTHERS[0]]}, "dns": {}}
    expected = {"ip4": {"ip": "10.0.0.2/24", "routes": [OTHERS[0], {"dst": "0.0.0.0/0", "gw": "10.0.0.9"}]}}
    result = parsed(copy.deepcopy(document))
    assert results.with_default_routes_added(result, ["fd02::9", "10.0.0.9"]).document == document | expected
    assert results.with_default_routes_added(result, ["fd02::9"]).document == document
    assert result.document == document
    only_6 = parsed({"cniVersion": "0.1.0", "ip6": {"ip": "fd02::7/64"}})
    expected_6 = {"ip": "fd02::7/64", "routes": [{"dst": "::/0", "gw": "fd02::9"}]}
    assert results.with_default_routes_added(only_6, ["fd02::9"]).document["ip6"] == expected_6


def test_a_gateway_that_is_no_address_is_refused() -> None:
    with pytest.raises(errors.InvalidConfigError, match=r"'10\.0\.0'"):
        results.with_default_routes_added(parsed({"cniVersion": "1.0.0"}), ["10.0.0"])
