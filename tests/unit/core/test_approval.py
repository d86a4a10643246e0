"""The rules for requests of certificates, one test for each."""

from __future__ import annotations

from typing import Any

import pytest

from multus.core import approval
from multus.core.approval import Verdict
from multus.errors import DecodingError, InvalidConfigError
from multus.protocol.signing_requests import SIGNER, USAGES
from multus.types.certificates import Condition, RequestContent, SigningRequest

GROUPS = ("system:nodes", "system:authenticated")


def request(**fields: Any) -> SigningRequest:
    """One that is approved, but for ``fields``."""
    given = {"name": "csr-1", "signer": SIGNER, "username": "system:node:w1", "groups": GROUPS, "usages": USAGES, "expiration_s": 600}
    return SigningRequest(**{**given, **fields})


def content(**fields: Any) -> RequestContent:
    return RequestContent(**{"common_names": ("system:multus:w1",), "organizations": ("system:multus",), **fields})


def decided(asked: SigningRequest, **fields: Any) -> Verdict | None:
    return approval.decide(asked, lambda _: content(**fields))


def denial(asked: SigningRequest, **fields: Any) -> str:
    verdict = decided(asked, **fields)
    assert verdict is not None
    assert not verdict.is_approval
    return verdict.message


# --- Which are ours ---


@pytest.mark.parametrize(("name", "ours"), [("system:multus:w1", True), ("system:multusx", True), ("system:node:w1", False), ("", False)])
def test_a_request_in_the_name_of_multus_is_ours(name: str, ours: bool) -> None:
    assert approval.is_ours(request(), content(common_names=(name,))) is ours


def test_a_request_for_another_signer_is_not_ours() -> None:
    assert not approval.is_ours(request(signer="kubernetes.io/kubelet-serving"), content())


def test_any_of_several_common_names_makes_a_request_ours() -> None:
    assert approval.is_ours(request(), content(common_names=("x", "system:multus:w1")))


# --- Rules ---


@pytest.mark.parametrize(
    "fields", [{"certificate": b"x"}, {"conditions": (Condition("Approved"),)}, {"conditions": (Condition("Denied"),)}]
)
def test_rule_1_what_is_decided_stays(fields: dict[str, Any]) -> None:
    assert approval.decide(request(username="nobody", **fields), lambda _: pytest.fail("not to be read")) is None


def test_rule_2_what_is_no_request_is_an_error() -> None:
    def refuse(_: bytes) -> RequestContent:
        raise DecodingError("no")

    with pytest.raises(DecodingError):
        approval.decide(request(), refuse)


@pytest.mark.parametrize("username", ["", "admin", "system:node:"])
def test_rule_3_a_user_without_a_node_is_an_error(username: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        decided(request(username=username))
    assert caught.value.msg == f'user "{username}" does not end in the name of a node'


@pytest.mark.parametrize("username", ["system:serviceaccount:kube-system:multus", "node:w1", ":w1", "system:node:x:w1", "System:node:w1"])
def test_rule_4_only_nodes_and_multus_may_ask(username: str) -> None:
    assert denial(request(username=username)) == f'user "{username}" is no node: system:node:<node> or system:multus:<node> is expected'


@pytest.mark.parametrize("node", ["W1", "w_1", "-w", "w.", "a..b", "a b", "w1\n", "é", "x" * 254])
def test_rule_5_the_node_has_a_possible_name(node: str) -> None:
    assert denial(request(username=f"system:node:{node}"), common_names=(f"system:multus:{node}",)).endswith("possible name of a node")


@pytest.mark.parametrize("usages", [(), ("client auth",), (*USAGES, "key encipherment"), ("digital signature", "server auth")])
def test_rule_6_usages_are_exactly_two(usages: tuple[str, ...]) -> None:
    assert denial(request(usages=usages)).endswith('are not exactly "digital signature", "client auth"')


def test_rule_6_usages_are_a_set() -> None:
    verdict = decided(request(usages=("client auth", "digital signature", "client auth")))
    assert verdict is not None
    assert verdict.is_approval


def test_rule_7_no_group_beyond_those_of_nodes() -> None:
    asked = request(groups=(*GROUPS, "system:masters"))
    expected = 'group "system:masters" of the user is none of "system:authenticated", "system:multus", "system:nodes"'
    assert denial(asked) == expected


@pytest.mark.parametrize("names", [("system:multus:w2",), ("system:multus",), (), ("system:multus:w1", "system:multus:w1")])
def test_rule_8_the_common_name_is_that_of_the_users_node(names: tuple[str, ...]) -> None:
    assert denial(request(), common_names=names).endswith('is not "system:multus:w1", that of the user\'s node')


@pytest.mark.parametrize(
    "organizations", [(), ("system:masters",), ("system:multus", "system:masters"), ("system:multus", "system:multus")]
)
def test_rule_9_the_organization_is_multus_alone(organizations: tuple[str, ...]) -> None:
    assert denial(request(), organizations=organizations).endswith('is not "system:multus" alone')


def test_no_alternative_name_is_allowed() -> None:
    assert denial(request(), alternative_names=("DNSName api",)) == 'alternative name "DNSName api": none is allowed'


def test_the_request_is_signed_with_its_own_key() -> None:
    assert denial(request(), is_self_signed=False) == "the request is not signed with the key that is in it"


def test_rule_10_the_lifetime_is_given() -> None:
    assert denial(request(expiration_s=None)) == "expirationSeconds is not set"


def test_rule_11_the_lifetime_is_a_year_at_most() -> None:
    assert denial(request(expiration_s=31_536_001)) == "expirationSeconds 31536001 is more than 31536000, 365 days"


@pytest.mark.parametrize(
    "fields",
    [
        {},
        {"username": "system:multus:w1", "groups": ("system:multus", "system:authenticated"), "expiration_s": 86_400},
        {"groups": ()},
        {"expiration_s": 31_536_000},
        {"expiration_s": 1},
    ],
)
def test_rule_12_the_rest_is_approved(fields: dict[str, Any]) -> None:
    asked = request(**fields)
    assert decided(asked) == Verdict(True, f"certificate of system:multus:w1 for user {asked.username}")


def test_a_node_may_have_dots_in_its_name() -> None:
    verdict = decided(request(username="system:node:w1.zone-a.example"), common_names=("system:multus:w1.zone-a.example",))
    assert verdict is not None
    assert verdict.is_approval


@pytest.mark.parametrize(
    ("fields", "names", "rule"),
    [
        ({"username": "system:node:w2"}, ("system:multus:w1",), "common name"),
        ({"username": "system:serviceaccount:kube-system:multus"}, ("system:multus:w1",), "user"),
        ({"groups": (*GROUPS, "system:masters")}, ("system:multus:w1",), "group"),
        ({"groups": ("system:nodes",), "usages": (*USAGES, "key encipherment")}, ("system:multus:w1",), "usages"),
    ],
)
def test_examples_of_the_behaviour_notes(fields: dict[str, Any], names: tuple[str, ...], rule: str) -> None:
    assert denial(request(**fields), common_names=names).startswith(rule)
