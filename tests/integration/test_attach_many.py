"""Many pods at the same time on one node."""

from __future__ import annotations

from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from multus.testing.node import UPLINK, Node
from multus.testing.pods import Pod

PODS = 50


def test_fifty_pods_at_once_share_no_address_and_leave_nothing(node: Node) -> None:
    node.add_network("blue", {"type": "bridge", "bridge": "blue0", "isGateway": True, "ipam": node.host_local("10.20.0.0/24")})
    node.add_network("green", {"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": node.host_local("10.30.0.0/24")})

    def come(pod: Pod) -> str:
        return node.attach(pod).error

    def go(pod: Pod) -> str:
        return node.detach(pod).error

    def pings(pod: Pod) -> bool:
        return pod.pings("10.244.0.1", "eth0") and pod.pings("10.20.0.1", "net1")

    with ExitStack() as exits, ThreadPoolExecutor(PODS) as pool:
        pods = [exits.enter_context(node.pod(f"web-{number}", "blue, green")) for number in range(PODS)]
        assert [""] * PODS == list(pool.map(come, pods))
        links = [pod.links() for pod in pods]
        assert [["eth0", "net1", "net2"]] * PODS == [sorted(each) for each in links]
        addresses = [address for each in links for link in each.values() for address in link.addresses]
        assert 3 * PODS == len(set(addresses)) == len(addresses)
        inside = [[address.partition("/")[0] for link in each.values() for address in link.addresses] for each in links]
        assert inside == [[address for entry in node.statuses(pod) for address in entry["ips"]] for pod in pods]
        assert [True] * PODS == list(pool.map(pings, pods))
        assert [""] * PODS == list(pool.map(go, pods))
        assert [{}] * PODS == [pod.links() for pod in pods]
    assert {} == node.remains()


def test_pods_that_come_and_go_at_once_do_not_disturb_each_other(node: Node) -> None:
    node.add_network("blue", {"type": "bridge", "bridge": "blue0", "isGateway": True, "ipam": node.host_local("10.20.0.0/24")})

    def come_and_go(pod: Pod) -> list[str]:
        return [answer.error for _ in range(3) for answer in (node.attach(pod), node.detach(pod))]

    with ExitStack() as exits, ThreadPoolExecutor(8) as pool:
        pods = [exits.enter_context(node.pod(f"web-{number}", "blue")) for number in range(8)]
        assert [[""] * 6] * 8 == list(pool.map(come_and_go, pods))
    assert {} == node.remains()
