"""SIGKILL at any moment of an ADD or a DEL: the runtime's next DEL, or its next ADD, finds everything and leaves nothing."""

from __future__ import annotations

import json
import statistics
import subprocess
import time
import uuid

from multus.testing.node import UPLINK, Node
from multus.testing.pods import Pod

KILLS = 64
_PATIENCE_S = 20.0


def add_networks(node: Node) -> None:
    node.add_network("blue", {"type": "bridge", "bridge": "blue0", "isGateway": True, "ipam": node.host_local("10.20.0.0/24")})
    node.add_network("green", {"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": node.host_local("10.30.0.0/24")})


def seconds_of_an_add(node: Node, pod: Pod) -> float:
    """The median of five, each taken down again: kills within it find the call running, on the whole."""
    times = []
    for _ in range(5):
        start = time.monotonic()
        assert "" == node.attach(pod).error
        times.append(time.monotonic() - start)
        assert "" == node.detach(pod).error
    return statistics.median(times)


def kill(command: str, node: Node, pod: Pod, after_s: float) -> bool:
    """Start a call and kill it; whether it was still running.  Delegates that it leaves behind run to their end."""
    with node.namespace.entered():
        process = subprocess.Popen(
            [node.multus],
            env=pod.environment(command, node.plugin_folder),
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
    if process.stdin is not None:
        with process.stdin as stdin:
            stdin.write(json.dumps(node.config).encode())
    time.sleep(after_s)
    process.kill()
    was_running = process.wait() == -9
    end = time.monotonic() + _PATIENCE_S
    while (*node.namespace.processes(), *pod.processes()):
        assert time.monotonic() < end, "a delegate does not end"
        time.sleep(0.002)
    return was_running


def renewed(pod: Pod) -> Pod:
    """The same pod and namespace, as another container: what a runtime makes for each attempt."""
    pod.container_id = uuid.uuid4().hex
    return pod


def test_del_after_a_kill_at_any_moment_leaves_nothing(node: Node) -> None:
    add_networks(node)
    left: list[object] = []
    killed = 0
    with node.pod("web", "blue, green") as pod:
        whole = seconds_of_an_add(node, pod)
        for number in range(KILLS):
            delay = whole * number / (KILLS - 1)
            killed += kill("ADD", node, renewed(pod), delay)
            answer = node.detach(pod)
            remains = {**node.remains(), **({"inside": list(pod.links())} if pod.links() else {})}
            if answer.error or remains:
                left.append((round(delay, 4), answer.error, remains))
    assert [] == left
    assert killed > KILLS // 2


def test_add_after_a_kill_starts_afresh(node: Node) -> None:
    """A runtime that repeats ADD for the same container, without a DEL in between."""
    add_networks(node)
    with node.pod("web", "blue, green") as pod:
        whole = seconds_of_an_add(node, pod)
        for step in range(1, 9):
            kill("ADD", node, renewed(pod), whole * step / 10)
            answer = node.attach(pod)
            assert answer.error == "" or "attached already" in answer.error
            assert ["eth0", "net1", "net2"] == sorted(pod.links())
            assert "" == node.detach(pod).error
            assert {} == node.remains()


def test_del_after_a_killed_del_leaves_nothing(node: Node) -> None:
    add_networks(node)
    with node.pod("web", "blue, green") as pod:
        whole = seconds_of_an_add(node, pod)
        for step in range(12):
            assert "" == node.attach(renewed(pod)).error
            kill("DEL", node, pod, whole * step / 12)
            assert "" == node.detach(pod).error
            assert {} == pod.links()
            assert {} == node.remains()
