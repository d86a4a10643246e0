"""What in-process delegates bring: alone, and through shim and daemon in ADD, DEL and a burst, beside the binaries.

    python benchmarks/in_process.py --daemon PATH [--runs 20] [--burst 100] [--at-once 8] [--bar]

First each delegate alone, called in this process and as a process.  Then bridge with host-local as cluster network and
macvlan with host-local as secondary ones, in a node's namespace of its own, an API server over HTTPS.  Two daemons, one
with ``delegatePreference`` ``binary``, one with ``in-process``; they take turns, so that a machine whose speed drifts
treats them alike.  The shim runs as an installation starts it, by ``python -I -S``.  Times are medians in ms.  Memory is
the largest sum, over a burst, of the resident memory of the daemon and of all that it has started, looked at every 5 ms.

``--bar`` exits with 1 when a ratio is over its bar.  Needs root, iproute2, openssl, and the package multus-netlink.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from typing import TYPE_CHECKING, Any

from attach import macvlan, timed
from shim import LAUNCHER
from thick import cached

import multus
from multus.hooks.manifest import Registry
from multus.testing.node import UPLINK, Node
from multus.testing.pods import PLUGIN_FOLDER, Pod
from multus.testing.thick import ThickNode
from multus.types.invocation import CNICommand, Invocation

if TYPE_CHECKING:
    from collections.abc import Iterator

PREFERENCES = ("binary", "in-process")
SECONDARIES = (0, 1, 3)
LINKS_OF_DEL = (1, 4, 8)
BURSTS = 3
ALONE: dict[str, dict[str, object]] = {
    "bridge": {"bridge": "bench0", "isDefaultGateway": True},
    "macvlan": {"master": UPLINK},
    "ptp": {},
    "loopback": {},
}
BARS = {"ADD": ("at most", 0.5), "DEL": ("at most", 0.6), "pods per second": ("at least", 1.5), "memory": ("at most", 0.5)}
WATCHER = """
import os, sys, time

def family(pid):
    found = [pid]
    for each in found:
        try:
            for task in os.listdir(f"/proc/{each}/task"):
                found += map(int, open(f"/proc/{each}/task/{task}/children").read().split())
        except OSError:
            pass
    return found

def resident(pid):
    try:
        return int(open(f"/proc/{pid}/statm").read().split()[1])
    except OSError:
        return 0

os.set_blocking(0, False)
peak = 0
while not sys.stdin.buffer.raw.read(1):
    peak = max(peak, sum(map(resident, family(int(sys.argv[1])))))
    time.sleep(0.005)
print(peak * os.sysconf("SC_PAGE_SIZE") / 2**20)
"""


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--daemon", required=True, help="the installed executable")
    parser.add_argument("--runs", type=int, default=20)
    parser.add_argument("--burst", type=int, default=100, help="pods of a burst (default: %(default)s)")
    parser.add_argument("--at-once", type=int, default=8, help="shims that run at a time in a burst (default: %(default)s)")
    parser.add_argument("--bar", action="store_true", help="exit with 1 over a bar")
    options = parser.parse_args()
    ratios: dict[str, float] = {}
    print(f"{'type':>8} {'verb':>4} {'binary':>10} {'in-process':>10} {'ratio':>6}")
    for kind, config in ALONE.items():
        for verb, (theirs, ours) in alone(options, {"cniVersion": "1.0.0", "name": kind, "type": kind, **config}).items():
            print(f"{kind:>8} {verb:>4} {theirs:10.1f} {ours:10.1f} {ours / theirs:6.2f}", flush=True)
    print(f"{'networks':>8} {'verb':>4} {'binaries':>10} {'in-process':>10} {'ratio':>6}")
    for secondaries in (*SECONDARIES, *(links - 1 for links in LINKS_OF_DEL if links - 1 not in SECONDARIES)):
        for verb, (theirs, ours) in latency(options, secondaries).items():
            print(f"{secondaries:>8} {verb:>4} {theirs:10.1f} {ours:10.1f} {ours / theirs:6.2f}", flush=True)
            if secondaries == SECONDARIES[-1]:
                ratios[verb] = ours / theirs
    ratios |= burst(options)
    missed = [what for what, (way, bar) in BARS.items() if (ratios[what] > bar) is (way == "at most") and ratios[what] != bar]
    for what, (way, bar) in BARS.items():
        print(f"{what}: {ratios[what]:.2f} x the binaries, the bar is {way} {bar:g}{', NOT HELD' if what in missed else ''}")
    return 1 if options.bar and missed else 0


def alone(options: argparse.Namespace, config: dict[str, object]) -> dict[str, tuple[float, float]]:
    """By verb: medians of a type's binary and of its object, on pods of their own."""
    kind = str(config["type"])
    delegate: Any = Registry().delegate(kind)
    times: dict[str, tuple[list[float], list[float]]] = {"ADD": ([], []), "DEL": ([], [])}
    with tempfile.TemporaryDirectory() as folder, Node("", folder) as node, node.namespace.entered():
        if kind != "loopback":
            config["ipam"] = node.host_local("10.90.0.0/16")
        for turn in range(options.runs + 1):
            for index in range(2):
                with Pod("web", ifname="lo" if kind == "loopback" else "eth0") as pod:
                    for verb in times:
                        invocation = Invocation(CNICommand(verb), kind, config, pod.container_id, pod.path, pod.ifname)
                        start = time.perf_counter()
                        if index:
                            (delegate.add if verb == "ADD" else delegate.delete)(invocation)
                        else:
                            timed(lambda each, verb=verb: each.call(f"{PLUGIN_FOLDER}/{kind}", verb, config), pod)
                        if turn:
                            times[verb][index].append((time.perf_counter() - start) * 1000)
    return {verb: (statistics.median(theirs), statistics.median(ours)) for verb, (theirs, ours) in times.items()}


@contextmanager
def nodes(options: argparse.Namespace, secondaries: int) -> Iterator[tuple[ThickNode, ThickNode]]:
    """A node of each preference, with the secondary networks net1, net2 and so on."""
    with ExitStack() as exits:
        made = []
        for preference in PREFERENCES:
            folder = exits.enter_context(tempfile.TemporaryDirectory())
            shim = os.path.join(folder, "multus-shim")
            root = os.path.dirname(os.path.dirname(multus.__file__))
            with open(os.open(shim, os.O_WRONLY | os.O_CREAT, 0o755), "w", encoding="utf-8") as script:
                script.write(f"#!{os.path.realpath(sys.executable)} -IS\n{LAUNCHER.format(root=root)}")
            settings = {"delegatePreference": preference}
            node = exits.enter_context(ThickNode(shim, options.daemon, folder, tls=True, settings=settings))
            for index in range(secondaries):
                node.add_network(f"net{index + 1}", macvlan(node, index))
            made.append(node)
        yield made[0], made[1]


def networks(secondaries: int) -> str | None:
    return ",".join(f"net{index + 1}" for index in range(secondaries)) or None


def latency(options: argparse.Namespace, secondaries: int) -> dict[str, tuple[float, float]]:
    """By verb: medians of the binaries and in-process."""
    times: dict[str, tuple[list[float], list[float]]] = {verb: ([], []) for verb in ("ADD", "DEL")}
    with nodes(options, secondaries) as both:
        for turn in range(options.runs + 1):
            for index, node in enumerate(both):
                with node.pod(f"web-{turn}", networks(secondaries)) as pod:
                    cached(node)
                    for verb, run in (("ADD", node.attach), ("DEL", node.detach)):
                        elapsed = timed(run, pod)
                        if turn:
                            times[verb][index].append(elapsed)
    return {verb: (statistics.median(theirs), statistics.median(ours)) for verb, (theirs, ours) in times.items()}


def burst(options: argparse.Namespace) -> dict[str, float]:
    """Many pods with three secondary networks, by turns: ratios of pods per second and of memory, medians of three bursts."""
    seen: dict[str, list[list[float]]] = {"ADD": [[], []], "DEL": [[], []], "memory": [[], []]}
    with nodes(options, SECONDARIES[-1]) as both:
        for turn in range(BURSTS):
            for index, node in enumerate(both):
                with ExitStack() as exits, watched(node) as peaks:
                    names = [f"web-{turn}-{number}" for number in range(options.burst)]
                    pods = [exits.enter_context(node.pod(name, networks(SECONDARIES[-1]))) for name in names]
                    cached(node)
                    with ThreadPoolExecutor(options.at_once) as pool:
                        for verb, run in (("ADD", node.attach), ("DEL", node.detach)):
                            start = time.perf_counter()
                            list(pool.map(lambda pod, run=run: timed(run, pod), pods))
                            seen[verb][index].append(options.burst / (time.perf_counter() - start))
                seen["memory"][index].append(peaks[0])
    medians = {what: [statistics.median(values) for values in sides] for what, sides in seen.items()}
    for what, (theirs, ours) in medians.items():
        unit = "MiB" if what == "memory" else "pods per second"
        print(f"burst of {options.burst}, {options.at_once} at a time: {what} {theirs:.1f} {unit} by binaries, {ours:.1f} in-process")
    return {"pods per second": medians["ADD"][1] / medians["ADD"][0], "memory": medians["memory"][1] / medians["memory"][0]}


@contextmanager
def watched(node: ThickNode) -> Iterator[list[float]]:
    """Watch the memory of a node's daemon and its children; when the block ends, the list holds the peak in MiB."""
    command = [os.path.realpath(sys.executable), "-I", "-S", "-c", WATCHER, str(node.pid)]
    watcher = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    peaks: list[float] = []
    try:
        yield peaks
    finally:
        said, _ = watcher.communicate(b"x")
        peaks.append(float(said))


if __name__ == "__main__":
    if not os.path.isdir(PLUGIN_FOLDER):
        sys.exit(f"no CNI plugins in {PLUGIN_FOLDER}")
    sys.exit(main())
