"""Pods attached by in-process delegates through shim and daemon, binaries among them: attached as one, detached as one."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING

import pytest

from multus.protocol import node_api
from multus.testing.node import UPLINK
from multus.testing.pods import PLUGIN_FOLDER
from multus.testing.scriptable import ScriptedDelegates
from multus.types.daemon import NodeRequest

if TYPE_CHECKING:
    from pathlib import Path

    from multus.testing.pods import Pod
    from multus.testing.thick import ThickNode

pytest.importorskip("multus_netlink")
pytestmark = pytest.mark.daemon_config(delegatePreference="in-process")
NAMES = ["eth0", "net1", "net2", "net3"]


@pytest.fixture
def node(thick_node: ThickNode, tmp_path: Path) -> ThickNode:
    """Networks of two kinds in-process, and ``odd`` by a binary; no other binary is to be found."""
    thick_node.plugin_folder = ScriptedDelegates(tmp_path / "scripted", "strange").bin
    thick_node.add_network("odd", {"type": "strange"})
    for name, number in (("red", 1), ("blue", 2)):
        ipam = thick_node.host_local(f"10.{40 + number}.0.0/24")
        thick_node.add_network(name, {"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": ipam})
    return thick_node


def removals(node: ThickNode) -> list[str]:
    """The links of each removal that the daemon told of."""
    lines = [line for line in node.log.splitlines() if "links.removed" in line]
    return [next(part for part in line.split() if part.startswith("links=")).removeprefix("links=").strip('"') for line in lines]


def plug_out(node: ThickNode, pod: Pod, ifname: str) -> tuple[int, str]:
    env = pod.environment("DEL", node.plugin_folder, ifname=ifname)
    config = {"cniVersion": "1.0.0", "name": "red", "type": "macvlan"}
    return node.ask("/delegate", node_api.encode_request(NodeRequest(env, json.dumps(config).encode())))


def test_a_pod_of_both_kinds_loses_its_links_in_one_request(node: ThickNode) -> None:
    with node.pod("web", "red,odd,blue") as pod:
        assert "" == node.attach(pod).error
        assert ["eth0", "net1", "net3"] == sorted(pod.links())
        assert "" == node.detach(pod).error
        assert {} == pod.links()
        assert ["net3,net1,eth0"] == removals(node)
    assert {} == node.remains()


def test_an_interface_that_is_plugged_out_goes_alone(node: ThickNode) -> None:
    with node.pod("web", "red,red,blue") as pod:
        assert "" == node.attach(pod).error
        assert NAMES == sorted(pod.links())
        assert (200, "") == plug_out(node, pod, "net2")
        assert ["eth0", "net1", "net3"] == sorted(pod.links())
        assert "" == node.detach(pod).error
        assert ["net2", "net3,net1,eth0"] == removals(node)
    assert {} == node.remains()


def test_a_pod_whose_namespace_is_gone_gives_its_addresses_back(node: ThickNode) -> None:
    with node.pod("web", "red,odd,blue") as pod:
        assert "" == node.attach(pod).error
        assert 3 == len(node.remains()["leases"])
        environment, config = pod.environment("DEL", node.plugin_folder), node.config
    request = node_api.encode_request(NodeRequest(environment, json.dumps(config).encode()))
    assert (200, "") == node.ask("/cni", request)
    assert {} == node.remains()


def test_a_link_that_is_gone_already_keeps_nothing_from_going(node: ThickNode) -> None:
    with node.pod("web", "red,odd,blue") as pod:
        assert "" == node.attach(pod).error
        pod.run("ip", "link", "del", "net3")
        assert "" == node.detach(pod).error
        assert {} == pod.links()
    assert {} == node.remains()


def test_a_network_that_fails_takes_back_those_before_it(node: ThickNode) -> None:
    node.add_network("bad", {"type": "macvlan", "master": "no-such-link"})
    with node.pod("web", "red,odd,bad") as pod:
        assert "there is no link no-such-link" in node.attach(pod).error
        assert {} == pod.links()
        assert "" == node.detach(pod).error
    assert {} == node.remains()


@pytest.mark.parametrize(
    ("before", "after", "runner"),
    [
        (("binary", True), ("in-process", True), "binary"),
        (("in-process", True), ("binary", True), "in-process"),
        (("binary", False), ("binary", True), "in-process"),
    ],
    ids=["other preference", "other preference back", "binaries installed later"],
)
def test_what_has_attached_a_pod_checks_and_detaches_it(
    thick_node: ThickNode, tmp_path: Path, before: tuple[str, bool], after: tuple[str, bool], runner: str
) -> None:
    """Host ports are kept by iptables or by nftables: what is left of them leads to the next pod that gets the address.

    Before and after: ``delegatePreference``, and whether there are binaries.
    """
    if not all(os.path.exists(os.path.join(PLUGIN_FOLDER, each)) for each in ("bridge", "portmap")):
        pytest.skip(f"no bridge and portmap in {PLUGIN_FOLDER}")

    def restart(preference: str, has_binaries: bool) -> None:
        assert 0 == thick_node.stop()
        thick_node.plugin_folder = PLUGIN_FOLDER if has_binaries else str(tmp_path)
        thick_node.settings.update(delegatePreference=preference, binDir=thick_node.plugin_folder)
        thick_node.start()

    bridge = {"type": "bridge", "bridge": "br-web", "isGateway": True, "ipam": thick_node.host_local("10.43.0.0/24")}
    thick_node.add_network("web", bridge, {"type": "portmap", "capabilities": {"portMappings": True}})
    rules = "iptables-save; nft list ruleset"
    restart(*before)
    with thick_node.pod("web", [{"name": "web", "portMappings": [{"hostPort": 8080, "containerPort": 80, "protocol": "tcp"}]}]) as pod:
        assert "" == thick_node.attach(pod).error
        assert (runner == "in-process") is ("table ip multus" in thick_node.namespace.run("sh", "-c", rules))
        restart(*after)
        if runner == "in-process":  # portmap's binary of release 1.1 finds fault with its own rules
            assert "" == thick_node.call("CHECK", pod).error
        assert "8080" in thick_node.namespace.run("sh", "-c", rules)
        assert "" == thick_node.detach(pod).error
        assert "8080" not in thick_node.namespace.run("sh", "-c", rules)
        assert {} == pod.links()
    assert [] == thick_node.remains().get("leases", [])


@pytest.mark.daemon_config(delegatePreference="in-process", maxParallelAttachments=4)
def test_networks_attached_side_by_side_are_as_one_by_one(node: ThickNode) -> None:
    networks = [{"name": "red"}, {"name": "blue", "interface": "blue0"}, {"name": "odd"}, {"name": "red"}, {"name": "blue"}]
    with node.pod("web", networks) as pod:
        assert "" == node.attach(pod).error
        assert ["blue0", "eth0", "net1", "net4", "net5"] == sorted(pod.links())
        told = [(entry["name"], entry.get("interface")) for entry in node.statuses(pod)]
        assert [("cluster", "eth0"), ("default/red", "net1"), ("default/blue", "blue0"), ("default/odd", "net3"),
                ("default/red", "net4"), ("default/blue", "net5")] == told  # fmt: skip
        assert 5 == len({address for link in pod.links().values() for address in link.addresses})
        assert "" == node.detach(pod).error
    assert {} == node.remains()


@pytest.mark.daemon_config(delegatePreference="in-process", maxParallelAttachments=4)
def test_one_failure_side_by_side_takes_everything_back(node: ThickNode) -> None:
    node.add_network("bad", {"type": "macvlan", "master": "no-such-link"})
    with node.pod("web", "red,bad,blue,odd") as pod:
        assert "cannot attach 'net2'" in node.attach(pod).error
        assert {} == pod.links()
        assert "" == node.detach(pod).error
    assert {} == node.remains()
