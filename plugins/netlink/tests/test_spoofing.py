"""``macspoofchk`` of ``bridge``: what a pod sends with another MAC than its own, beside the binary."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kinds import why_not
from multus_netlink.bridge import Bridge
from multus_netlink.nfnetlink import BRIDGE
from multus_netlink.nftables import Table
from services import can_run
from sides import Side, invocation_of

from multus.errors import InvalidConfigError, IOFailureError
from multus.testing.pods import Namespace

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from pathlib import Path

    from multus.types.invocation import Invocation

GATEWAY = "10.1.0.1"
OTHER_MAC = "0a:58:00:00:00:77"


def cannot_filter() -> str:
    """Why frames cannot be filtered here; empty: they can."""
    if can_run():
        return can_run()
    with Namespace() as namespace, namespace.entered():
        chain = "{ type filter hook prerouting priority -300; }"
        made = namespace.run("sh", "-c", f"nft 'add table bridge a; add chain bridge a b {chain}' && echo made", check=False)
    return "" if made else "this kernel has no nftables for bridges"


CANNOT = cannot_filter()
pytestmark = pytest.mark.skipif(bool(CANNOT), reason=CANNOT or "runs")


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Side]:
    with Side(False, str(tmp_path)) as side, side.node.entered():
        yield side


def config_of(side: Side, **more: Any) -> dict[str, Any]:
    ipam = {"type": "host-local", "dataDir": side.data_dir, "ranges": [[{"subnet": "10.1.0.0/24"}]]}
    return {"cniVersion": "1.0.0", "name": "net", "type": "bridge", "isGateway": True, "macspoofchk": True, "ipam": ipam, **more}


def call(side: Side, verb: str, config: dict[str, Any]) -> Any:
    bridge = Bridge()
    methods = {"ADD": bridge.add, "DEL": bridge.delete, "CHECK": bridge.check, "GC": bridge.gc}
    return methods[verb](invocation_of(side.pod, verb, config))


def rules(side: Side) -> list[dict[str, Any]]:
    """The rules of our table for bridges."""
    listing = json.loads(side.node.run("nft", "-j", "list", "ruleset"))["nftables"]
    return [each["rule"] for each in listing if "rule" in each and (each["rule"]["family"], each["rule"]["table"]) == ("bridge", "multus")]


@pytest.mark.skipif(bool(why_not(binary="bridge")), reason=why_not(binary="bridge") or "runs")
@pytest.mark.parametrize("is_binary", [True, False])
@pytest.mark.parametrize("wanted", [True, False])
def test_a_frame_from_another_mac_passes_where_it_does_with_the_binary(tmp_path: Path, is_binary: bool, wanted: bool) -> None:
    with Side(is_binary, str(tmp_path)) as side:
        config = config_of(side, macspoofchk=wanted)
        result = side.call("ADD", config)
        own = side.pod.links()["eth0"].mac
        reached = [side.pod.pings(GATEWAY)]
        for mac in (OTHER_MAC, own):
            side.pod.run("ip", "link", "set", "eth0", "address", mac)
            side.node.run("ip", "neigh", "flush", "all")
            reached.append(side.pod.pings(GATEWAY))
        assert reached == [True, not wanted, True]
        assert side.call("CHECK", {**config, "prevResult": result}) is not None, side.messages
        assert side.call("DEL", config) is not None
        assert rules(side) == []


def test_what_others_send_is_not_looked_at(side: Side) -> None:
    call(side, "ADD", config_of(side))
    with Side(False, side.data_dir) as other:
        other.node, there = side.node, other.node
        other.pod.container_id = "c2"
        call(other, "ADD", config_of(side, macspoofchk=False))
        other.pod.run("ip", "link", "set", "eth0", "address", OTHER_MAC)
        assert other.pod.pings(GATEWAY)
        other.node = there


def test_check_notices_a_rule_that_is_gone_or_for_another_port(side: Side) -> None:
    config = config_of(side)
    config["prevResult"] = dict(call(side, "ADD", config).document)
    call(side, "CHECK", config)
    side.node.run("nft", "flush", "chain", "bridge", "multus", "prerouting")
    with pytest.raises(IOFailureError, match=r"the rule '.* veth[0-9a-f]{8} [0-9a-f:]{17}' in chain prerouting of nftables is gone"):
        call(side, "CHECK", config)


def test_gc_removes_the_rules_of_the_network_that_no_valid_attachment_has(side: Side) -> None:
    config = config_of(side)
    call(side, "ADD", config)
    call(side, "GC", {**config, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]})
    call(side, "GC", {**config, "name": "other", "cni.dev/valid-attachments": []})
    assert len(rules(side)) == 1
    call(side, "GC", {**config, "cni.dev/valid-attachments": []})
    assert rules(side) == []


@pytest.mark.parametrize("detach", [Bridge.delete, Bridge.release])
def test_the_rule_goes_whatever_else_fails(side: Side, detach: Callable[[Bridge, Invocation], object]) -> None:
    config = config_of(side)
    call(side, "ADD", config)
    config["ipam"]["dataDir"] = "/dev/null"
    with pytest.raises(IOFailureError, match="cannot lock the address store"):
        detach(Bridge(), invocation_of(side.pod, "DEL", config)._replace(netns="/run/netns/gone"))
    assert rules(side) == []


def test_a_failed_add_leaves_no_rule(side: Side) -> None:
    config = config_of(side, ipam={"type": "host-local", "dataDir": "/dev/null", "ranges": [[{"subnet": "10.1.0.0/24"}]]})
    with pytest.raises(IOFailureError, match="cannot lock the address store"):
        call(side, "ADD", config)
    assert (rules(side), list(side.pod.links())) == ([], [])


def test_without_nftables_an_add_says_so_and_leaves_nothing(side: Side, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multus_netlink.nftables._SUBSYSTEM", 14)  # there is none of that number
    with pytest.raises(IOFailureError, match="interface eth0: cannot change the rules of nftables"):
        call(side, "ADD", config_of(side))
    assert list(side.pod.links()) == []


def test_a_second_add_has_one_rule(side: Side) -> None:
    """As after an ADD that was killed: the rule of the port that is no more goes."""
    config = config_of(side, ipam={}, isGateway=False)
    call(side, "ADD", config)
    side.pod.run("ip", "link", "del", "eth0")
    call(side, "ADD", config)
    with Table(BRIDGE) as table:
        (rule,) = table.rules("")
    assert any(rule.comment.split()[2] == name for name in side.node.links())


def test_a_value_that_is_not_valid_is_refused_by_name(side: Side) -> None:
    with pytest.raises(InvalidConfigError, match="interface eth0: macspoofchk 'yes' is not true or false"):
        call(side, "ADD", config_of(side, macspoofchk="yes"))
    assert list(side.pod.links()) == []
