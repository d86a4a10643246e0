"""Every plugin against its binary: drawn configurations in, the same results and the same state of the kernel and the store out."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, Any

import pytest
from deviations import DELETES_ONCE, seen_alike, told_alike
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st
from multus_netlink import testing
from sides import BRIDGES, UPLINK, Side, Sides, Told, can_run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

EXAMPLES = int(os.environ.get("NETLINK_EXAMPLES", "200"))
PHASES = (Phase.explicit, Phase.generate)  # an example takes 0.1 s: too long to shrink with
drawn = settings(max_examples=EXAMPLES, database=None, phases=PHASES, suppress_health_check=list(HealthCheck))
_MAY_STAY = re.compile(rf"[ /]({'|'.join(BRIDGES)})[ /]|/(ip_)?forward(ing)? = |type anycast|last_reserved_ip|(address|dev) (nic0|wire) ")
ARGS = testing.generic_args()
FLAG = st.booleans()
CONTAINERS = ("c1", "c2", "c3")
VERBS = ("ADD", "ADD", "ADD", "DEL", "CHECK")
STEPS = st.lists(st.tuples(st.sampled_from(VERBS), st.sampled_from(CONTAINERS), FLAG), min_size=1, max_size=6)
"""Verb, container, and whether the side is served by the other implementation."""
DEVICE = "nic0"
DEVICE_MAC = "0a:58:00:00:00:01"
_BRIDGE = ("link add br7 type bridge", "link set br7 up")
BRIDGES_BEFORE = st.sampled_from(
    (
        (), (), (), (), ("link add br7 mtu 1400 type bridge",),
        (*_BRIDGE, "address add 10.1.0.1/24 brd + dev br7"),
        (*_BRIDGE, "address add 10.9.0.1/24 dev br7", "address add fd00:1::9/64 dev br7"),
        (*_BRIDGE, "address add 10.2.0.1/16 dev br7", "address add fd00:9::9/64 dev br7", "link set br7 promisc on"),
    )
)  # fmt: skip


@pytest.fixture
def sides(tmp_path: Path) -> Iterator[Sides]:
    with Sides(str(tmp_path)) as both:
        yield both


def compare(sides: Sides, config: dict[str, Any], args: str = "", *, crosswise: bool = False, prepared: Sequence[str] = ()) -> None:
    """ADD, CHECK, ADD again, DEL, DEL again.

    Args:
        crosswise: What one implementation made, the other checks and removes.
        prepared: What is on the node before, as commands for ``ip``.
    """
    try:
        sides.both(lambda side: side.change(side.node, *prepared))
        before = sides.assert_same("before ADD") if prepared else sides.fresh
        theirs, ours = sides.ask("ADD", config, args)
        assert_told_alike(config, sides.theirs.plain(theirs), sides.ours.plain(ours))
        if ours.is_error:
            assert ours.msg.startswith("interface lo: " if config["type"] == "loopback" else "interface eth0: ")
            assert_nothing_left(before, seen_alike(sides.ours.look()))
            return
        sides.assert_same("after ADD")
        assert_check_agrees(sides, config, args, (theirs, ours), by_binary=crosswise)
        theirs, ours = sides.ask("ADD", config, args)
        assert theirs.is_error == ours.is_error, (theirs, ours)
        for again in range(2):
            removed = sides.ask("DEL", config, args, by_other=crosswise)
            by_binary, by_us = removed[::-1] if crosswise else removed
            assert not by_us.is_error, by_us
            assert not by_binary.is_error or (again and config["type"] in DELETES_ONCE), by_binary
            if not again:
                sides.assert_same("after DEL")
        assert sides.ours.addresses() == []
    finally:
        sides.assert_fresh("after all")


def compare_ipam(sides: Sides, config: dict[str, Any], args: str, steps: list[tuple[str, str, bool]]) -> None:
    """Calls for several containers, by turns; after each the results and the stores are equal."""
    config = {**config, "type": config["ipam"]["type"]}
    made: dict[str, tuple[Told, Told]] = {}
    try:
        for verb, container, crosswise in (*steps, *(("DEL", container, False) for container in CONTAINERS)):
            if verb == "CHECK":
                if container in made:
                    assert_check_agrees(sides, config, args, made[container], container, by_binary=crosswise)
                continue
            before = sides.ours.addresses()
            theirs, ours = sides.ask(verb, config, args, container, by_other=crosswise)
            if verb == "DEL":
                made.pop(container, None)
                # The binary wants a valid configuration for this as well, and we no more than the store's place.
                by_binary, by_us = (ours, theirs) if crosswise else (theirs, ours)
                assert by_binary.is_error or not by_us.is_error, by_us
            else:
                assert_told_alike(config, theirs, ours)
                if ours.is_error:
                    assert before == sides.ours.addresses()
                else:
                    made[container] = theirs, ours
            assert sides.theirs.store() == sides.ours.store()
        assert sides.ours.addresses() == []
    finally:
        sides.both(Side.clean)


def assert_check_agrees(
    sides: Sides, config: dict[str, Any], args: str, made: tuple[Told, Told], container: str = "c1", *, by_binary: bool
) -> None:
    """The binary of release 1.1 finds fault even with what it made: with a route without gateway, which it gave one."""
    if config["cniVersion"] >= "0.4.0":  # older ones have no CHECK
        theirs, ours = sides.check(config, args, made, container, by_binary=by_binary)
        assert theirs.is_error == ours.is_error, (theirs, ours)
        assert by_binary or not ours.is_error, (theirs, ours)


def assert_told_alike(config: dict[str, Any], theirs: Told, ours: Told) -> None:
    if told_alike(config, theirs.result) != told_alike(config, ours.result):
        raise AssertionError(f"ADD told otherwise:\n    binary: {theirs}\nin-process: {ours}")


def assert_nothing_left(before: list[str], after: list[str]) -> None:
    """A failed ADD leaves no more than a bridge, which is everybody's, a node that forwards, and which address was the last."""
    changed = {*before} ^ {*after}
    assert sorted(line for line in changed if not _MAY_STAY.search(line)) == []


@drawn
@given(config=testing.macvlan_confs((UPLINK,)), args=ARGS, crosswise=FLAG)
def test_macvlan_does_what_its_binary_does(sides: Sides, config: dict[str, Any], args: str, crosswise: bool) -> None:
    compare(sides, config, args, crosswise=crosswise)


@drawn
@given(config=testing.bridge_confs(BRIDGES, (UPLINK,)), args=ARGS, crosswise=FLAG, prepared=BRIDGES_BEFORE)
def test_bridge_does_what_its_binary_does(
    sides: Sides, config: dict[str, Any], args: str, crosswise: bool, prepared: Sequence[str]
) -> None:
    compare(sides, config, args, crosswise=crosswise, prepared=prepared)


@drawn
@given(config=testing.ptp_confs(), args=ARGS, crosswise=FLAG)
def test_ptp_does_what_its_binary_does(sides: Sides, config: dict[str, Any], args: str, crosswise: bool) -> None:
    compare(sides, config, args, crosswise=crosswise)


@drawn
@given(config=testing.host_device_confs(DEVICE, DEVICE_MAC), args=ARGS, crosswise=FLAG)
def test_host_device_does_what_its_binary_does(sides: Sides, config: dict[str, Any], args: str, crosswise: bool) -> None:
    made = f"link add {DEVICE} address {DEVICE_MAC} type veth peer wire address 0a:58:00:00:00:02"
    compare(sides, config, args, crosswise=crosswise, prepared=(made, f"link set {DEVICE} up", "link set wire up"))


@drawn
@given(config=testing.loopback_confs(), crosswise=FLAG)
def test_loopback_does_what_its_binary_does(sides: Sides, config: dict[str, Any], crosswise: bool) -> None:
    compare(sides, config, crosswise=crosswise)


@drawn
@given(config=testing.ipam_confs(testing.host_local_ipams()), args=ARGS, steps=STEPS)
def test_host_local_does_what_its_binary_does(sides: Sides, config: dict[str, Any], args: str, steps: list[tuple[str, str, bool]]) -> None:
    compare_ipam(sides, config, args, steps)


@drawn
@given(config=testing.ipam_confs(testing.static_ipams()), args=ARGS, steps=STEPS)
def test_static_does_what_its_binary_does(sides: Sides, config: dict[str, Any], args: str, steps: list[tuple[str, str, bool]]) -> None:
    compare_ipam(sides, config, args, steps)
