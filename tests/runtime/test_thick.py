"""Pods under a container runtime that calls the shim, with the daemon there, away, killed and back."""

from __future__ import annotations

import os
import shutil
import signal
import sys
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytest.importorskip("grpc", reason="CRI is gRPC: grpcio is not installed")

from tests.runtime.cluster import Cluster
from tests.runtime.cri import SandboxError
from tests.runtime.daemon import Daemon
from tests.runtime.node import Node

BOTH = "blue, green"
SHIM_DEADLINE_S = 1
REPLAYED_WITHIN_S = 10.0


def executable(name: str, variable: str) -> Path:
    beside = Path(sys.executable).with_name(name)
    found = os.environ.get(variable) or (str(beside) if beside.exists() else shutil.which(name))
    if found is None:
        pytest.skip(f"no {name} executable: install the package, or name one in {variable}")
    return Path(found).absolute()


@pytest.fixture
def node(machine: None) -> Iterator[Node]:
    """A node whose runtime has no network until a daemon generates its configuration."""
    with Node({"multus-shim": executable("multus-shim", "MULTUS_SHIM_BIN")}, lambda _: {}) as node:
        (node.folder / "net.d" / "00-default.conf").unlink()
        yield node


@pytest.fixture
def daemon(cluster: Cluster) -> Iterator[Daemon]:
    """The node's daemon, started."""
    daemon = Daemon(executable("multus-daemon", "MULTUS_DAEMON_BIN"), cluster.node, shimDeadline=SHIM_DEADLINE_S)
    try:
        daemon.start()
        yield daemon
    finally:
        if daemon.log.exists():
            print(daemon.log.read_text()[-6000:])  # shown with a failing test
        daemon.end(signal.SIGKILL)


def becomes_true(fact: Callable[[], bool], within_s: float = REPLAYED_WITHIN_S) -> bool:
    end = time.monotonic() + within_s
    while not fact() and time.monotonic() < end:
        time.sleep(0.02)
    return fact()


def test_a_sandbox_gets_its_networks_and_gives_them_back(cluster: Cluster, daemon: Daemon) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    sandbox = runtime.run(pod)
    inside = runtime.interfaces(runtime.start_container(pod, sandbox))
    assert {"eth0": ("10.201.0.2/24",), "net1": ("10.202.0.2/24",), "net2": ("10.203.0.2/24",)} == inside
    assert ("10.201.0.2",) == runtime.status(sandbox).addresses
    assert ["cluster", "shop/blue", "shop/green"] == [entry["name"] for entry in cluster.statuses(pod)]
    runtime.stop(sandbox)
    assert {} == cluster.node.network_remains()
    runtime.remove(sandbox)
    assert {} == cluster.node.process_remains()


def test_a_missing_network_fails_the_sandbox_and_leaves_nothing(cluster: Cluster, daemon: Daemon) -> None:
    with pytest.raises(SandboxError) as refusal:
        cluster.node.runtime.run(cluster.add_pod("web", "blue, absent"))
    message = str(refusal.value)
    assert [] == [part for part in ("multus-shim", "shop/web", "absent", "not found") if part not in message]
    assert {} == cluster.node.network_remains()
    assert {} == cluster.node.process_remains()


def test_without_a_daemon_no_sandbox_starts_and_the_reason_is_told(cluster: Cluster, daemon: Daemon) -> None:
    runtime = cluster.node.runtime
    daemon.end()
    assert daemon.generated.exists()  # so that no pod comes up on fewer networks
    begun = time.monotonic()
    with pytest.raises(SandboxError) as refusal:
        runtime.run(cluster.add_pod("web", BOTH))
    assert time.monotonic() - begun < SHIM_DEADLINE_S + 3
    message = str(refusal.value)
    assert [] == [part for part in ("multus-shim", f"multus daemon at {daemon.socket} is not ready") if part not in message]
    daemon.start()
    assert becomes_true(lambda: cluster.node.network_remains() == {})
    assert {} == cluster.node.process_remains()


def test_a_sandbox_stops_without_a_daemon_and_the_next_one_clears_up(cluster: Cluster, daemon: Daemon) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    sandbox = runtime.run(pod)
    daemon.end()
    runtime.stop(sandbox)
    runtime.remove(sandbox)
    cluster.remove_pod(pod)
    assert {"links", "leases", "journal"} >= set(cluster.node.network_remains()) >= {"leases", "journal"}
    daemon.start()
    assert becomes_true(lambda: cluster.node.network_remains() == {})
    assert {} == cluster.node.process_remains()


def test_a_sandbox_lives_on_through_a_restart(cluster: Cluster, daemon: Daemon) -> None:
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    sandbox = runtime.run(pod)
    container = runtime.start_container(pod, sandbox)
    before = runtime.interfaces(container)
    daemon.end()
    daemon.start()
    assert before == runtime.interfaces(container)
    assert ["10.202.0.2"] == cluster.statuses(pod)[1]["ips"]
    runtime.stop(sandbox)
    assert {} == cluster.node.network_remains()


@pytest.mark.parametrize("after_s", [0.05, 0.15, 0.25])
def test_a_daemon_killed_while_a_sandbox_starts_leaves_nothing(cluster: Cluster, daemon: Daemon, after_s: float) -> None:
    """The runtime sends DEL for what it could not start, which finds no daemon; the next attempt is a new sandbox."""
    runtime = cluster.node.runtime
    pod = cluster.add_pod("web", BOTH)
    with ThreadPoolExecutor(1) as pool:
        first = pool.submit(runtime.run, pod)
        time.sleep(after_s)
        daemon.end(signal.SIGKILL)
        outcome = first.exception()
    daemon.start()
    if outcome is None:
        runtime.stop(first.result())
    else:
        assert isinstance(outcome, SandboxError)
    assert becomes_true(lambda: cluster.node.network_remains() == {})
    again = pod._replace(attempt=1)
    sandbox = runtime.run(again)
    assert ["eth0", "net1", "net2"] == sorted(runtime.interfaces(runtime.start_container(again, sandbox)))
    runtime.stop(sandbox)
    assert {} == cluster.node.network_remains()


def test_ten_sandboxes_during_a_restart_all_start_or_leave_nothing(cluster: Cluster, daemon: Daemon) -> None:
    """The runtime keeps a failed sandbox whose DEL failed as well; the kubelet stops it, as it does with all in the end."""
    runtime = cluster.node.runtime
    pods = [cluster.add_pod(f"web-{number}", BOTH) for number in range(10)]
    with ThreadPoolExecutor(len(pods)) as pool:
        starting = [pool.submit(runtime.run, pod) for pod in pods]
        becomes_true(lambda: "delegate.add.complete" in daemon.log.read_text())
        daemon.end()
        daemon.start()
    failed = [pod for pod, each in zip(pods, starting, strict=True) if each.exception() is not None]
    assert [] == [each.exception() for each in starting if not isinstance(each.exception(), SandboxError | None)]
    for pod in failed:
        runtime.run(pod._replace(attempt=1))
    assert [3] * len(pods) == [len(cluster.statuses(pod)) for pod in pods]
    for sandbox in runtime.sandboxes():
        runtime.stop(sandbox)
        runtime.remove(sandbox)
    assert becomes_true(lambda: cluster.node.network_remains() == {})
    assert {} == cluster.node.process_remains()
