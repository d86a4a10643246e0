"""What CHECK notices of what has changed since ADD: by us everything here, by the binary what it looks at."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, NamedTuple

import pytest
from sides import DATA, UPLINK, Sides, can_run

if TYPE_CHECKING:
    from collections.abc import Iterator

pytestmark = pytest.mark.skipif(bool(can_run()), reason=can_run() or "runs")

EXTRA: dict[str, dict[str, Any]] = {"bridge": {"bridge": "br7", "isGateway": True}, "macvlan": {"master": UPLINK}, "ptp": {}}
ROUTES = [{"dst": "198.51.100.0/24", "gw": "10.1.0.1"}, {"dst": "::/0", "gw": "fd00::1"}]
PORT = "$(ip -o link show master br7 | sed 's/^[0-9]*: //;s/[@:].*//')"
VETH = "$(ip -o link show type veth | sed 's/^[0-9]*: //;s/[@:].*//' | grep ^veth)"
MAC = "0a:58:00:00:00:77"


class Drift(NamedTuple):
    """What happens after ADD to some kinds of networks, what our CHECK says of it, and whether that of the binary notices."""

    command: str
    message: str
    kinds: tuple[str, ...] = tuple(EXTRA)
    is_noticed_by_binary: bool = True


IN_POD = {
    "link down": Drift("ip link set eth0 down", "it is down"),
    "address gone": Drift("ip address del 10.1.0.2/24 dev eth0", r"address 10\.1\.0\.2/24 is gone"),
    "second address gone": Drift("ip address del fd00::2/64 dev eth0", "address fd00::2/64 is gone"),
    "network route gone": Drift("ip route del 10.1.0.0/24 dev eth0", r"the route to 10\.1\.0\.0/24 is gone"),
    "route gone": Drift("ip route del 198.51.100.0/24", r"the route to 198\.51\.100\.0/24 via 10\.1\.0\.1 is gone"),
    "route elsewhere": Drift("ip route replace 198.51.100.0/24 dev eth0", r"the route to 198\.51\.100\.0/24 via 10\.1\.0\.1 is gone"),
    "default route gone": Drift("ip -6 route del default", "the route to ::/0 via fd00::1 is gone"),
    "MAC changed": Drift(f"ip link set eth0 address {MAC}", f"its MAC is {MAC}, not"),
    "link gone": Drift("ip link del eth0", "there is no link eth0"),
    "link replaced": Drift("ip link del eth0; ip link add eth0 type bridge", "its kind is 'bridge'"),
}
ON_NODE = {
    "port gone from the bridge": Drift(f"ip link set {PORT} nomaster", "is not on bridge br7", ("bridge",)),
    "port on another bridge": Drift(f"ip link add cni0 type bridge; ip link set {PORT} master cni0", "is not on br", ("bridge",)),
    "port down": Drift(f"ip link set {PORT} down", "is down", ("bridge",), is_noticed_by_binary=False),
    "bridge down": Drift("ip link set br7 down", "bridge br7 is down", ("bridge",), is_noticed_by_binary=False),
    "bridge's MAC changed": Drift(f"ip link set br7 address {MAC}", f"the MAC of bridge br7 is {MAC}", ("bridge",)),
    "bridge promiscuous": Drift("ip link set br7 promisc on", "promiscMode is False", ("bridge",)),
    "port's MAC changed": Drift(f"ip link set {PORT} address {MAC}", "the MAC of its other end", ("bridge",)),
    "host's end down": Drift(f"ip link set {VETH} down", "its other end is gone .*, or down", ("ptp",), is_noticed_by_binary=False),
    "host's route gone": Drift("ip route del 10.1.0.2", r"route to 10\.1\.0\.2/32 is gone", ("ptp",), is_noticed_by_binary=False),
    "master gone": Drift(f"ip link set {UPLINK} name other", f"there is no link {UPLINK}", ("macvlan",)),
}
DRIFTS = {"pod": IN_POD, "node": ON_NODE}
CASES = [(kind, where, name) for where, drifts in DRIFTS.items() for name, drift in drifts.items() for kind in drift.kinds]


@pytest.fixture(scope="module")
def sides(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Sides]:
    with Sides(str(tmp_path_factory.mktemp("stores"))) as both:
        yield both


@pytest.mark.parametrize(("kind", "where", "name"), CASES)
def test_check_notices_drift(sides: Sides, kind: str, where: str, name: str) -> None:
    drift = DRIFTS[where][name]
    ranges = [[{"subnet": "10.1.0.0/24"}], [{"subnet": "fd00::/64"}]]
    ipam = {"type": "host-local", "dataDir": DATA, "ranges": ranges, "routes": ROUTES}
    config = {"cniVersion": "1.0.0", "name": "net", "type": kind, "ipam": ipam, **EXTRA[kind]}
    try:
        made = sides.ask("ADD", config)
        before = sides.check(config, "", made, by_binary=True)[0], sides.check(config, "", made, by_binary=False)[1]
        assert [told.msg for told in before] == ["", ""]
        sides.both(lambda side: getattr(side, where).run("sh", "-c", drift.command))
        by_binary, by_us = sides.check(config, "", made, by_binary=True)[0], sides.check(config, "", made, by_binary=False)[1]
        assert re.search(f"^interface eth0: .*{drift.message}", by_us.msg)
        assert by_binary.is_error is drift.is_noticed_by_binary, by_binary
    finally:
        sides.both(lambda side: side.change(side.node, f"link set other name {UPLINK}"))
        sides.assert_fresh("after all")
