"""All of them in one plugin list, as a runtime calls them: each behind the one before, and back."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any

import pytest
from kinds import why_declined
from services import DELEGATES, Server, can_run, reaches
from sides import Side, invocation_of

from multus.testing.pods import Namespace

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

RANGES = [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00:1::/64"}]]
ROUTES = [{"dst": "0.0.0.0/0"}, {"dst": "::/0"}]
IPAM = {"type": "host-local", "dataDir": "@DATA@/leases", "ranges": RANGES, "routes": ROUTES}
PLUGINS: list[dict[str, Any]] = [
    {"type": "bridge", "bridge": "br7", "isGateway": True, "ipMasq": True, "ipam": IPAM},
    {"type": "tuning", "mtu": 1400, "sysctl": {"net.ipv4.conf.IFNAME.arp_filter": "1"}, "dataDir": "@DATA@/tuning"},
    {"type": "bandwidth", "ingressRate": 80_000_000, "ingressBurst": 800_000, "egressRate": 80_000_000, "egressBurst": 800_000},
    {"type": "sbr"},
    {"type": "portmap", "runtimeConfig": {"portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}},
]


def called(side: Side, verb: str, plugin: dict[str, Any], result: Any) -> Any:
    more = {} if result is None else {"prevResult": result}
    config = {"cniVersion": "1.0.0", "name": "net", **plugin, **more}
    invocation = invocation_of(side.pod, verb, json.loads(json.dumps(config).replace("@DATA@", side.data_dir)))
    delegate = DELEGATES[plugin["type"]]
    assert why_declined(delegate, invocation) == ""
    if verb == "ADD":
        return dict(delegate.add(invocation).document)
    return {"DEL": delegate.delete, "CHECK": delegate.check}[verb](invocation)


def test_a_pod_with_the_whole_list(tmp_path: Path) -> None:
    with Side(False, str(tmp_path)) as side, Namespace() as outside, side.node.entered():
        side.node.run("sh", "-c", (
            "cd /proc/sys/net/ipv6/conf; for each in all default; do echo 0 > $each/accept_dad; done; "
            f"ip link add ext0 type veth peer name out0 netns {outside.path}; ip link set ext0 up; "
            "ip address add 203.0.113.1/24 dev ext0; ip -6 address add fd00:9::1/64 dev ext0"
        ))  # fmt: skip
        script = "ip link set out0 up; ip address add 203.0.113.2/24 dev out0; ip -6 address add fd00:9::2/64 dev out0 nodad"
        outside.run("sh", "-c", script)
        result = None
        for plugin in PLUGINS:
            result = called(side, "ADD", plugin, result)
        server, neighbour = Server(side.pod, 80), Server(outside, 80)
        try:
            assert [reaches(outside, host, 8080) for host in ("203.0.113.1", "fd00:9::1")] == ["203.0.113.2", "fd00:9::2"]
            seen = [reaches(side.pod, host, 80, source=own) for host, own in (("203.0.113.2", "10.1.0.2"), ("fd00:9::2", "fd00:1::2"))]
            assert seen == ["203.0.113.1", "fd00:9::1"]
        finally:
            server.close()
            neighbour.close()
        assert side.pod.links()["eth0"].mtu == 1400
        for plugin in PLUGINS[1:]:  # as with the binaries, sbr has taken the routes away that the network wants
            called(side, "CHECK", plugin, result)
        for plugin in reversed(PLUGINS):
            called(side, "DEL", plugin, result)
        assert list(side.pod.links()) == []
        assert sorted(side.node.links()) == ["br7", "ext0", "outside", "uplink"]
        assert "comment" not in side.node.run("nft", "list", "ruleset").replace('comment "to hostports"', "")
        kept = sorted(path.name for path in tmp_path.rglob("*") if path.is_file() and path.name != "lock")
        assert kept == ["last_reserved_ip.0", "last_reserved_ip.1"]
