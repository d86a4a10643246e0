"""What the thick plugin costs: ADD and DEL through shim and daemon, a burst of pods, the daemon's memory.

    python benchmarks/thick.py --shim PATH --daemon PATH [--runs 20] [--burst 100] [--at-once 2] [--cycles 500]

Real plugins (bridge and macvlan with host-local) in a node's namespace of its own, an API server over HTTPS.  Medians in ms,
beside the delegates alone; the kinds take turns.  Memory is measured with 200 pods and 100 net-attach-defs cached, while a
network that does nothing comes and goes.  Exit status 1: a bar of the project is not held.  Needs root, iproute2, openssl
and the CNI plugins.
"""

from __future__ import annotations

import argparse
import os
import statistics
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack

from attach import SECONDARIES, alone, macvlan, timed
from cache_memory import network, pod

from multus.testing.node import NODE_NAME
from multus.testing.pods import PLUGIN_FOLDER
from multus.testing.thick import ThickNode

MEMORY_BAR_MIB = 64.0
FLAT_MIB = 2.0
"""What the second half of the cycles may add."""
_NOTHING = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","interfaces":[{"name":"eth0"}],"ips":[{"address":"192.0.2.2/24"}]}'
exit 0
"""


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", required=True, help="the installed executable")
    parser.add_argument("--daemon", required=True, help="the installed executable")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--burst", type=int, default=100, help="pods of the burst (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=2, help="shims that run at a time in the burst (default: %(default)s)")
    parser.add_argument("--cycles", type=int, default=500, help="ADD and DEL while memory is watched (default: %(default)s)")
    options = parser.parse_args()
    print(f"{'networks':>8} {'verb':>4} {'delegates':>10} {'thick':>10} {'overhead':>9} {'API requests':>13}")
    problems = []
    for secondaries in SECONDARIES:
        for verb, (delegates, thick, requests) in latency(options, secondaries).items():
            print(f"{secondaries:>8} {verb:>4} {delegates:10.1f} {thick:10.1f} {thick - delegates:+9.1f} {requests:13.2f}", flush=True)
            if requests != (1 if verb == "ADD" else 0):
                problems.append(f"{verb} makes {requests:g} API requests")
    burst(options)
    problems += memory(options)
    for problem in problems:
        print(f"NOT HELD: {problem}")
    return 1 if problems else 0


def latency(options: argparse.Namespace, secondaries: int) -> dict[str, tuple[float, float, float]]:
    """By verb: medians of the delegates alone and of shim and daemon, and API requests per call, events apart."""
    times: dict[str, dict[str, list[float]]] = {verb: {"delegates": [], "thick": []} for verb in ("ADD", "DEL")}
    asked = dict.fromkeys(times, 0)
    with tempfile.TemporaryDirectory() as folder, ThickNode(options.shim, options.daemon, folder, tls=True) as node:
        names = [f"net{index}" for index in range(1, secondaries + 1)]
        for index, name in enumerate(names):
            node.add_network(name, macvlan(node, index))
        for turn in range(options.runs + 1):
            for kind in ("delegates", "thick"):
                with node.pod(f"{kind}-{turn}", ",".join(names) or None) as each:
                    cached(node)
                    attach, detach = alone(node, names) if kind == "delegates" else (node.attach, node.detach)
                    for verb, run in (("ADD", attach), ("DEL", detach)):
                        before = requests(node)
                        elapsed = timed(run, each)
                        if turn:
                            times[verb][kind].append(elapsed)
                            asked[verb] += requests(node) - before
    return {
        verb: (statistics.median(kinds["delegates"]), statistics.median(kinds["thick"]), asked[verb] / options.runs)
        for verb, kinds in times.items()
    }


def cached(node: ThickNode) -> None:
    """Wait until the daemon has all pods, as it has on a node, where the kubelet needs a while to act on a new one."""
    count = len(node.api.store.all("pods"))
    node.wait_until(lambda: node.metrics()['multus_cache_objects{cache="pods"}'] == count, "the pods are cached")


def requests(node: ThickNode) -> int:
    """What the API server was asked so far, without events and the caches' own requests."""
    return sum(not request.endswith("/events") for request in node.api_requests())


def burst(options: argparse.Namespace) -> None:
    """Many pods with one secondary network each, so many at a time."""
    with ExitStack() as exits:
        folder = exits.enter_context(tempfile.TemporaryDirectory())
        node = exits.enter_context(ThickNode(options.shim, options.daemon, folder, tls=True))
        node.add_network("net1", macvlan(node, 0))
        pods = [exits.enter_context(node.pod(f"web-{number}", "net1")) for number in range(options.burst)]
        cached(node)
        with ThreadPoolExecutor(options.at_once) as pool:
            for verb, run in (("ADD", node.attach), ("DEL", node.detach)):
                start = time.perf_counter()
                failed = [answer.error for answer in pool.map(run, pods) if answer.error]
                elapsed = time.perf_counter() - start
                if failed:
                    raise SystemExit(f"{len(failed)} calls failed, the first one: {failed[0]}")
                print(f"burst of {options.burst}, {options.at_once} at a time: {verb} {options.burst / elapsed:.1f} pods per second")
        print(f"daemon after the burst: {node.memory_kib() / 1024:.1f} MiB")


def memory(options: argparse.Namespace) -> list[str]:
    """Weigh a daemon with full caches while pods come and go; which bars are not held."""
    with tempfile.TemporaryDirectory() as folder:
        plugins = os.path.join(folder, "bin")
        os.mkdir(plugins)
        with open(os.open(f"{plugins}/nothing", os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="ascii") as script:
            script.write(_NOTHING)
        with ThickNode(options.shim, options.daemon, folder, tls=True, plugin_folder=plugins, starts=False) as node:
            node.put_primary({"cniVersion": "1.0.0", "name": "cluster", "type": "nothing"})
            for number in range(200):
                document = pod(number)
                document["spec"]["nodeName"] = NODE_NAME
                node.api.put(document)
            for number in range(100):
                document = network(number)
                document["spec"]["config"] = document["spec"]["config"].replace("macvlan", "nothing")
                node.api.put(document)
            node.start()
            cached(node)
            at_rest = node.memory_kib() / 1024
            print(f"daemon with 200 pods and 100 net-attach-defs: {at_rest:.1f} MiB")
            weights = []
            for number in range(options.cycles):
                with node.pod(f"pod-{number % 200}", namespace="shop") as each:
                    timed(node.attach, each)
                    timed(node.detach, each)
                if (number + 1) % max(1, options.cycles // 4) == 0:
                    weights.append(node.memory_kib() / 1024)
                    print(f"    after {number + 1} ADD and DEL: {weights[-1]:.1f} MiB", flush=True)
    problems = [f"{weight:.1f} MiB" for weight in (at_rest, *weights) if weight > MEMORY_BAR_MIB]
    grown = weights[-1] - weights[len(weights) // 2 - 1] if len(weights) > 1 else 0.0
    return problems + ([f"memory grows by {grown:.1f} MiB"] if grown > FLAT_MIB else [])


if __name__ == "__main__":
    if not os.path.isdir(PLUGIN_FOLDER):
        sys.exit(f"no CNI plugins in {PLUGIN_FOLDER}")
    sys.exit(main())
