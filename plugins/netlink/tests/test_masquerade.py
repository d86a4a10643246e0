"""``ipMasq`` of ``bridge`` and ``ptp``: whom a host outside sees, beside the binaries."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kinds import why_declined
from services import Server, can_run, reaches
from sides import DELEGATES, Side, invocation_of

from multus.errors import InvalidConfigError, IOFailureError
from multus.testing.pods import Namespace

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

OWN: dict[str, dict[str, Any]] = {"bridge": {"isGateway": True}, "ptp": {}}
KINDS = tuple(OWN)
PORT = 7777
HOST_4, OUTSIDE_4, POD_4 = "203.0.113.1", "203.0.113.2", "10.1.0.2"
HOST_6, OUTSIDE_6, POD_6 = "fd00:9::1", "fd00:9::2", "fd00:1::2"


class Neighbour(Side):
    """A node with a neighbour outside, where a server runs that knows the way back to pods."""

    def __enter__(self) -> Neighbour:
        super().__enter__()
        self.outside = Namespace()
        self.outside.__enter__()
        self.node.run("sh", "-c", (
            f"ip link add ext0 type veth peer name out0 netns {self.outside.path}; ip address add {HOST_4}/24 dev ext0; "
            f"ip -6 address add {HOST_6}/64 dev ext0 nodad; ip link set ext0 up; "
            "cd /proc/sys/net/ipv6/conf; for each in all default; do echo 0 > $each/accept_dad; done"
        ))  # fmt: skip
        self.outside.run("sh", "-c", (
            f"ip address add {OUTSIDE_4}/24 dev out0; ip -6 address add {OUTSIDE_6}/64 dev out0 nodad; ip link set out0 up; "
            f"ip route add 10.1.0.0/24 via {HOST_4}; ip -6 route add fd00:1::/64 via {HOST_6}"
        ))  # fmt: skip
        self.server = Server(self.outside, PORT)
        return self

    def __exit__(self, *of: Any) -> None:
        self.server.close()
        self.outside.__exit__(None, None, None)
        super().__exit__(*of)

    def seen(self) -> list[str]:
        """Whom the server sees when the pod asks it, by each family."""
        return [reaches(self.pod, address, PORT) for address in (OUTSIDE_4, OUTSIDE_6)]

    def rules(self) -> str:
        listing = self.node.run("nft", "list", "ruleset")
        return "\n".join(line for line in listing.splitlines() if "masquerade" in line)


@pytest.fixture
def side(tmp_path: Path) -> Iterator[Neighbour]:
    with Neighbour(False, str(tmp_path)) as side, side.node.entered():
        yield side


def config_of(kind: str, **more: Any) -> dict[str, Any]:
    ranges = [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]
    ipam = {"type": "host-local", "dataDir": "@DATA@", "ranges": ranges, "routes": [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]}
    return {"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": ipam, "ipMasq": True, **OWN[kind], **more}


def call(side: Neighbour, verb: str, config: dict[str, Any]) -> Any:
    """One call of our object; its errors are raised."""
    config = json.loads(json.dumps(config).replace("@DATA@", side.data_dir))
    delegate = DELEGATES[config["type"]]
    invocation = invocation_of(side.pod, verb, config)
    assert why_declined(delegate, invocation) == ""
    methods = {"ADD": delegate.add, "DEL": delegate.delete, "CHECK": delegate.check, "GC": delegate.gc}
    return methods[verb](invocation)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("wanted", [True, False])
def test_a_host_outside_sees_whom_it_sees_with_the_binary(tmp_path: Path, kind: str, wanted: bool) -> None:
    seen = []
    for is_binary in (True, False):
        with Neighbour(is_binary, str(tmp_path / str(is_binary))) as side:
            config = config_of(kind, ipMasq=wanted)
            result = side.call("ADD", config)
            assert result is not None, side.messages
            seen.append(side.seen())
            if not is_binary:
                assert side.call("CHECK", {**config, "prevResult": result}) == {}
            assert side.call("DEL", config) == {}
            assert (is_binary, side.rules()) == (is_binary, "")
    assert seen == [[HOST_4, HOST_6] if wanted else [POD_4, POD_6]] * 2


@pytest.mark.parametrize("kind", KINDS)
def test_within_the_network_nobody_is_hidden(side: Neighbour, kind: str) -> None:
    call(side, "ADD", config_of(kind))
    server = Server(side.node, PORT)
    try:
        assert [reaches(side.pod, address, PORT) for address in ("10.1.0.1", "fd00:1::1")] == [POD_4, POD_6]
    finally:
        server.close()


@pytest.mark.parametrize("kind", KINDS)
def test_check_notices_a_rule_that_is_gone(side: Neighbour, kind: str) -> None:
    config = config_of(kind)
    config["prevResult"] = dict(call(side, "ADD", config).document)
    call(side, "CHECK", config)
    side.node.run("nft", "flush", "chain", "ip6", "multus", "postrouting")
    with pytest.raises(IOFailureError, match=r"interface eth0: the rule .* fd00:1::2/64' in chain postrouting of nftables is gone"):
        call(side, "CHECK", config)


@pytest.mark.parametrize("kind", KINDS)
def test_gc_and_delete_without_a_namespace_remove_the_rules(side: Neighbour, kind: str) -> None:
    config = config_of(kind)
    call(side, "ADD", config)
    call(side, "GC", {**config, "cni.dev/valid-attachments": [{"containerID": "c1", "ifname": "eth0"}]})
    assert side.rules().count("masquerade") == 2
    call(side, "GC", {**config, "cni.dev/valid-attachments": []})
    assert side.rules() == ""
    call(side, "DEL", config)
    call(side, "ADD", config)
    invocation = invocation_of(side.pod, "DEL", {**config, "ipam": {}})
    DELEGATES[kind].delete(invocation._replace(netns="/run/netns/gone"))
    assert side.rules() == ""


@pytest.mark.parametrize("kind", KINDS)
def test_rules_go_though_the_addresses_cannot_be_freed(side: Neighbour, kind: str) -> None:
    config = config_of(kind)
    call(side, "ADD", config)
    config["ipam"]["dataDir"] = "/dev/null"
    with pytest.raises(IOFailureError, match="cannot lock the address store"):
        call(side, "DEL", config)
    assert (side.rules(), list(side.pod.links())) == ("", [])


@pytest.mark.parametrize("kind", KINDS)
def test_an_add_that_fails_to_masquerade_leaves_nothing(side: Neighbour, kind: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("multus_netlink.nftables._SUBSYSTEM", 14)  # there is none of that number
    with pytest.raises(IOFailureError, match="interface eth0: cannot change the rules of nftables"):
        call(side, "ADD", config_of(kind))
    assert list(side.pod.links()) == []


@pytest.mark.parametrize("kind", KINDS)
def test_iptables_is_declined_if_it_is_to_do_something(side: Neighbour, kind: str) -> None:
    told = [
        why_declined(DELEGATES[kind], invocation_of(side.pod, "ADD", config_of(kind, ipMasq=wanted, ipMasqBackend=backend)))
        for wanted in (True, False) for backend in ("iptables", "nftables", None)
    ]  # fmt: skip
    assert told == ["key \"ipMasqBackend\" 'iptables' is not served", "", "", "", "", ""]
    with pytest.raises(InvalidConfigError, match="interface eth0: ipMasq 'yes' is not true or false"):
        call(side, "ADD", config_of(kind, ipMasq="yes"))
    assert list(side.pod.links()) == []
