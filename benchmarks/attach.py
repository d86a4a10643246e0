"""What ADD and DEL of a pod cost with 0, 1 and 3 secondary networks, beside the delegates alone, and beside a Go multus.

    python benchmarks/attach.py --multus PATH [--go PATH] [--runs 20]

Real plugins (bridge and macvlan with host-local) in a node's namespace of its own, an API server over HTTPS.  Medians in
ms, and ratios of medians; the kinds take turns, so that a machine whose speed drifts treats them alike.  Needs root,
iproute2, openssl and the CNI plugins.
"""

from __future__ import annotations

import argparse
import statistics
import sys
import tempfile
import time
from typing import TYPE_CHECKING

from multus.testing.node import UPLINK, Node
from multus.testing.pods import Pod

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

SECONDARIES = (0, 1, 3)


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multus", required=True, help="the installed executable")
    parser.add_argument("--go", help="a Go multus to compare with")
    parser.add_argument("--runs", type=int, default=20)
    options = parser.parse_args()
    binaries = {"multus": options.multus, **({"go": options.go} if options.go else {})}
    print(f"{'networks':>8} {'verb':>4} {'delegates':>10} " + " ".join(f"{name:>10} {'overhead':>9}" for name in binaries) + "   multus/go")
    for secondaries in SECONDARIES:
        for verb, medians in measure(binaries, secondaries, options.runs).items():
            alone = medians["delegates"]
            columns = " ".join(f"{medians[name]:10.1f} {medians[name] - alone:+9.1f}" for name in binaries)
            ratio = f"{medians['multus'] / medians['go']:12.2f}" if options.go else ""
            print(f"{secondaries:>8} {verb:>4} {alone:10.1f} {columns}{ratio}", flush=True)
    return 0


def measure(binaries: Mapping[str, str], secondaries: int, runs: int) -> dict[str, dict[str, float]]:
    """Median wall times in ms, by verb and kind."""
    times: dict[str, dict[str, list[float]]] = {"ADD": {}, "DEL": {}}
    with tempfile.TemporaryDirectory() as folder, Node("", folder, tls=True) as node:
        names = [f"net{index}" for index in range(1, secondaries + 1)]
        for index, name in enumerate(names):
            node.add_network(name, macvlan(node, index))
        for turn in range(runs + 1):
            for kind in ("delegates", *binaries):
                node.multus = binaries.get(kind, "")
                with node.pod(f"{kind}-{turn}", ",".join(names) or None) as pod:
                    attach, detach = alone(node, names) if kind == "delegates" else (node.attach, node.detach)
                    for verb, run in (("ADD", attach), ("DEL", detach)):
                        elapsed = timed(run, pod)
                        if turn:
                            times[verb].setdefault(kind, []).append(elapsed)
    return {verb: {kind: statistics.median(values) for kind, values in kinds.items()} for verb, kinds in times.items()}


def macvlan(node: Node, index: int) -> dict[str, object]:
    """The configuration of a secondary network."""
    return {"type": "macvlan", "master": UPLINK, "mode": "bridge", "ipam": node.host_local(f"10.{100 + index}.0.0/16")}


def alone(node: Node, names: list[str]) -> tuple[Callable[[Pod], object], Callable[[Pod], object]]:
    """ADD and DEL of the same networks by their plugins, as a runtime without multus would call them."""
    networks = [(node.cluster_network(), "eth0")]
    networks += [({"cniVersion": "1.0.0", "name": name, **macvlan(node, index)}, name) for index, name in enumerate(names)]
    results: dict[str, object] = {}

    def attach(pod: Pod) -> object:
        answers = []
        for config, pod.ifname in networks:
            with node.namespace.entered():
                answers.append(pod.call(f"{node.plugin_folder}/{config['type']}", "ADD", config))
            results[pod.ifname] = answers[-1].document
        return answers[-1]

    def detach(pod: Pod) -> object:
        answers = []
        for config, pod.ifname in reversed(networks):
            with node.namespace.entered():
                answers.append(pod.call(f"{node.plugin_folder}/{config['type']}", "DEL", {**config, "prevResult": results[pod.ifname]}))
        return answers[-1]

    return attach, detach


def timed(run: Callable[[Pod], object], pod: Pod) -> float:
    """Wall time of one call, in ms; it must succeed."""
    start = time.perf_counter()
    answer = run(pod)
    elapsed = (time.perf_counter() - start) * 1000
    if getattr(answer, "error", ""):
        raise SystemExit(f"a call failed: {answer.error}")  # type: ignore[attr-defined]
    return elapsed


if __name__ == "__main__":
    sys.exit(main())
