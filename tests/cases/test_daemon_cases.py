"""Faults that users reported of node daemons: socket, queue, request handling and core together, delegates in-process.

Each test has the number of its case in its name.  An ADD looks into the pod's namespace, so this needs root.
"""

from __future__ import annotations

import base64
import contextlib
import json
import os
import socket
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from multus.adapters.metrics import Metrics
from multus.adapters.server import NodeServer
from multus.adapters.work_queue import WorkQueue
from multus.commands import wiring
from multus.commands.node_calls import NodeCalls
from multus.defaults.execution import InProcessExecution
from multus.protocol import daemon_config, results, wire
from multus.testing.fakes import FakeGuard, FakeKube, FakePrograms, FakeRegistry, RecordingLog
from multus.testing.pods import Namespace
from multus.types.delegate import NetAttachDef
from multus.types.invocation import Invocation
from multus.types.pod import NETWORKS_ANNOTATION, STATUS_ANNOTATION, Pod
from multus.types.result import Result

pytestmark = pytest.mark.skipif(os.geteuid() != 0, reason="needs root: looks into a network namespace")

LIMIT = 2
PODS = 50
TAKES_S = 0.2
PROBE_INTERVAL_S = 0.1
PATIENCE_S = 60.0


class SlowDelegate:
    """Takes its time, and notes how many of it ran at once."""

    def __init__(self) -> None:
        self.started: list[tuple[str, str]] = []
        """Container ID and interface of each ADD."""
        self.most = 0
        self._running = 0
        self._guard = threading.Lock()

    def accepts(self, invocation: Invocation) -> bool:
        return True

    def add(self, invocation: Invocation) -> Result:
        with self._guard:
            self.started.append((invocation.container_id, invocation.ifname))
            self._running += 1
            self.most = max(self.most, self._running)
        time.sleep(TAKES_S)
        with self._guard:
            self._running -= 1
        interface = {"name": invocation.ifname, "sandbox": invocation.netns}
        return results.parse({"cniVersion": "1.0.0", "interfaces": [interface], "ips": [{"address": "192.0.2.7/24", "interface": 0}]}, "")


class Node:
    """A daemon's inside on a socket, and its clients."""

    def __init__(self, folder: Path, netns: str, queue_timeout_s: float) -> None:
        self.path = folder / "run" / "multus.sock"
        self.netns = netns
        self.delegate = SlowDelegate()
        self.kube = FakeKube()
        self.kube.net_attach_defs["shop", "lan-a"] = NetAttachDef(
            "shop", "lan-a", '{"cniVersion":"1.0.0","name":"lan-a","type":"slow"}'
        )
        for number in range(PODS):
            self.kube.pods["shop", f"web-{number}"] = Pod("shop", f"web-{number}", f"u{number}", {NETWORKS_ANNOTATION: "lan-a"})
        log = RecordingLog()
        config = daemon_config.from_document({"cniDir": str(folder / "cni"), "connectionLimit": LIMIT}, "daemon-config.json", 1)
        programs = FakePrograms()
        world = wiring.World({}, programs, InProcessExecution(FakeRegistry({"slow": self.delegate}), programs, FakeGuard, log))
        self.queue = WorkQueue(config.connection_limit, log)
        calls = NodeCalls(config, world, lambda _deadline_s: self.kube, self.kube, Metrics(), log)
        self.server = NodeServer(str(self.path), calls, self.queue, queue_timeout_s, log)

    def __enter__(self) -> Node:
        self.queue.start()
        self.server.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.queue.close("the test is over")
        assert self.queue.drain(PATIENCE_S)
        self.server.stop()
        self.queue.stop()

    def connect(self) -> socket.socket:
        client = socket.socket(socket.AF_UNIX)
        client.settimeout(PATIENCE_S)
        client.connect(str(self.path))
        return client

    def send_add(self, number: int) -> socket.socket:
        """ADD of one pod, as a shim sends it; its socket."""
        env = {
            "CNI_COMMAND": "ADD",
            "CNI_CONTAINERID": f"c{number}",
            "CNI_NETNS": self.netns,
            "CNI_IFNAME": "eth0",
            "CNI_ARGS": f"IgnoreUnknown=1;K8S_POD_NAMESPACE=shop;K8S_POD_NAME=web-{number};K8S_POD_UID=u{number}",
        }
        trunk = {"cniVersion": "1.0.0", "name": "trunk", "type": "slow"}
        config = {"cniVersion": "1.0.0", "name": "meta", "type": "multus-shim", "delegates": [trunk]}
        body = json.dumps({"env": env, "config": base64.b64encode(json.dumps(config).encode()).decode()}).encode()
        client = self.connect()
        client.sendall(wire.request("POST", "/cni", [("Host", "dummy")], body))
        return client

    def probe(self) -> float:
        """The seconds that the slower of health and readiness takes."""
        times = []
        for path in ("/healthz", "/readyz"):
            start = time.monotonic()
            with self.connect() as client:
                client.sendall(wire.request("GET", path, [("Host", "dummy")]))
                assert wire.read_response(client.recv, "GET", 100).status == 200
            times.append(time.monotonic() - start)
        return max(times)


def answer(client: socket.socket) -> tuple[int, Any]:
    response = wire.read_response(client.recv, "POST", 2**20)
    return response.status, json.loads(response.body)


def resident_kib() -> int:
    with open("/proc/self/status", encoding="ascii") as file:
        return next(int(line.split()[1]) for line in file if line.startswith("VmRSS"))


def children() -> str:
    """The processes that this one has started and that run."""
    found = []
    for path in Path("/proc/self/task").glob("*/children"):
        with contextlib.suppress(OSError):  # its thread has just ended
            found.append(path.read_text())
    return "".join(found)


@pytest.fixture
def netns() -> Iterator[str]:
    with Namespace() as namespace:
        yield namespace.path


def test_d1_reboot_storm_is_served_by_two_delegates_at_a_time_while_probes_answer(tmp_path: Path, netns: str) -> None:
    with Node(tmp_path, netns, 100.0) as node, contextlib.ExitStack() as stack:
        node.probe()
        before = (resident_kib(), children())
        clients = [stack.enter_context(node.send_add(number)) for number in range(PODS)]
        probes, sizes, begotten = [], [], set()
        end = time.monotonic() + PATIENCE_S
        while len(node.delegate.started) < 2 * PODS and time.monotonic() < end:
            probes.append(node.probe())
            sizes.append(resident_kib())
            begotten.add(children())
            time.sleep(PROBE_INTERVAL_S)
        answers = [answer(client) for client in clients]
    assert node.delegate.most == LIMIT
    assert [(status, document["Result"]["interfaces"][0]["name"]) for status, document in answers] == [(200, "eth0")] * PODS
    assert sorted(node.delegate.started) == sorted((f"c{number}", ifname) for number in range(PODS) for ifname in ("eth0", "net1"))
    assert {pod.name for pod, key, _ in node.kube.statuses if key == STATUS_ANNOTATION} == {f"web-{number}" for number in range(PODS)}
    assert len(probes) > 10
    assert max(probes) < 1.0
    assert (max(sizes) - before[0]) / (PODS - LIMIT) < 1024
    assert begotten == {before[1]}


def test_d1_request_whose_deadline_passes_in_the_queue_fails_with_code_11_and_starts_no_delegate(tmp_path: Path, netns: str) -> None:
    with Node(tmp_path, netns, 2 * TAKES_S + 0.1) as node, contextlib.ExitStack() as stack:
        clients = [stack.enter_context(node.send_add(number)) for number in range(10)]
        answers = [answer(client) for client in clients]
    served = {f"c{number}" for number, (status, _) in enumerate(answers) if status == 200}
    refused = [document for status, document in answers if status == 400]
    assert LIMIT <= len(served) <= 2 * LIMIT
    assert refused == [{"code": 11, "msg": "the request was not started: it waited too long for its turn"}] * (10 - len(served))
    assert {container for container, _ in node.delegate.started} == served
