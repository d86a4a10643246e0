"""Whatever a configuration says, a network declines it, refuses it by an error of ours that says where, or serves it and cleans up."""

from __future__ import annotations

import contextlib
import os
from typing import TYPE_CHECKING, Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from kinds import IPAM, Site, why_declined, why_not
from multus_netlink.dummy import Dummy
from multus_netlink.host_device import HostDevice
from multus_netlink.ipvlan import Ipvlan
from multus_netlink.macvlan import Macvlan
from multus_netlink.tap import Tap
from multus_netlink.vlan import Vlan
from multus_netlink.vrf import Vrf

from multus.errors import MultusError

if TYPE_CHECKING:
    from collections.abc import Iterator

    from hypothesis.strategies import SearchStrategy

    from multus.hooks.delegates import InProcessDelegate

pytestmark = pytest.mark.skipif(bool(why_not()), reason=why_not() or "runs")

DELEGATES: dict[str, InProcessDelegate] = {
    "dummy": Dummy(), "host-device": HostDevice(), "ipvlan": Ipvlan(), "macvlan": Macvlan(), "tap": Tap(), "vlan": Vlan(), "vrf": Vrf()
}  # fmt: skip
KEYS = {
    "dummy": (),
    "host-device": ("device", "hwaddr", "kernelpath", "pciBusID"),
    "ipvlan": ("master", "mode", "mtu", "linkInContainer"),
    "macvlan": ("master", "mode", "mtu", "mac", "linkInContainer", "bcqueuelen"),
    "tap": ("mac", "mtu", "multiQueue", "owner", "group", "bridge", "selinuxContext"),
    "vlan": ("master", "vlanId", "mtu", "linkInContainer"),
    "vrf": ("vrfname", "table"),
}
NAMES = ("up0", "lo", "l2", "bridge", "0a:58:00:00:00:05", "/sys/devices/virtual", "0000:00:00.0", "../..")
TEXTS = st.sampled_from((*NAMES, "a\0b", "\ud800", "x" * 300)) | st.text(max_size=20)
SCALARS = st.one_of(st.none(), st.booleans(), st.integers(-2, 2**33), st.sampled_from((1400, 2**70, -(2**31))), st.floats(), TEXTS)
VALUES = st.recursive(SCALARS, lambda inner: st.lists(inner, max_size=2) | st.dictionaries(TEXTS, inner, max_size=2), max_leaves=3)
PREVIOUS = st.fixed_dictionaries(
    {},
    optional={
        "cniVersion": st.sampled_from(("1.0.0", "0.2.0", "9")) | VALUES,
        "interfaces": st.lists(st.fixed_dictionaries({}, optional={"name": TEXTS, "sandbox": TEXTS}) | VALUES, max_size=2) | VALUES,
        "ips": st.sampled_from(([], [{"address": "10.1.0.5/24"}])) | VALUES,
        "routes": VALUES,
    },
)
COMMON: dict[str, SearchStrategy[Any]] = {
    "cniVersion": st.sampled_from(("1.0.0", "0.4.0", "0.2.0", "1.1.0")) | VALUES,
    "ipam": st.sampled_from((IPAM, {}, {"type": "static"}, {"type": "dhcp"})) | VALUES,
    "dns": VALUES,
    "args": VALUES | st.fixed_dictionaries({"cni": VALUES}),
    "runtimeConfig": VALUES | st.fixed_dictionaries({}, optional=dict.fromkeys(("mac", "deviceID", "ips"), VALUES)),
    "prevResult": PREVIOUS | VALUES,
}
ARGS = st.sampled_from(("", "MAC=0a:58:00:00:00:05", "IgnoreUnknown=1;x=y", "x", "MAC=", "IP=;=")) | st.text(max_size=9)
EXAMPLES = int(os.environ.get("NETLINK_EXAMPLES", "50"))
drawn = settings(max_examples=EXAMPLES, deadline=None, database=None, suppress_health_check=list(HealthCheck))


@pytest.fixture(params=list(DELEGATES))
def site(request: pytest.FixtureRequest) -> Iterator[Site]:
    with Site(DELEGATES[request.param], request.param) as site:
        site.node.run("sh", "-c", "ip link add up0 type veth peer wire; ip link set up0 up; ip route add default dev up0")
        yield site


@drawn
@given(data=st.data())
def test_it_is_declined_or_refused_or_served(site: Site, data: st.DataObject) -> None:
    sensible = st.fixed_dictionaries({}, optional={**dict.fromkeys(KEYS[site.kind], VALUES), **COMMON})
    config = site.config(**data.draw(sensible))
    args = data.draw(ARGS)
    if data.draw(st.booleans()):
        previous = {"cniVersion": "1.0.0", "interfaces": [{"name": "eth0", "sandbox": site.pod.path}]}
        config = {**config, "prevResult": previous}
    before = (set(site.node.links()), set(site.pod.links()))
    for verb in ("STATUS", "ADD", "CHECK", "GC", "DEL"):
        if not why_declined(site.delegate, site.invocation(verb, config, args)):
            with contextlib.suppress(MultusError):
                site.call(verb, config, args)
    after = (set(site.node.links()), set(site.pod.links()))
    if after != before:  # DEL may be refused for what an ADD did not look at
        site.call("DEL", site.config())
        after = (set(site.node.links()), set(site.pod.links()))
    assert after == before
