"""Two pods, two networks, real CNI plugins, no cluster: what multus does, in half a minute.

Run by ``scripts/quickstart``, or in an environment with multus installed: ``sudo python examples/quickstart.py``.
With ``--thick`` the same through ``multus-shim`` and ``multus-daemon``; with ``--in-process`` without any CNI binary, by the
delegates of ``plugins/netlink``.
Everything happens in network namespaces that vanish with this process; the machine's own network is not touched.
Exit status: 0 if all was as expected, 1 if not, 2 if this machine lacks something.
"""

from __future__ import annotations

import argparse
import os
import shutil
import signal
import sys
import tempfile
import time
from importlib.metadata import entry_points
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus.testing.node import Node
    from multus.testing.pods import Pod
    from multus.testing.thick import ThickNode

EXAMPLE = Path(__file__).parent / "01-macvlan"
NETWORK = "default/office"
PODS = ("left", "right")
PLUGINS = ("bridge", "host-local", "macvlan")
PROGRAMS = ("ip", "ping", "openssl")

NEXT = """
What next
  examples/02-plugin-list         two bridges, a port of the node, a limited rate
  examples/03-static-address      an address of one's own choice
  examples/04-default-route       the way out on another network
  examples/05-default-network     another cluster network for one pod
  examples/06-namespace-isolation a network that others may not use
  examples/07-bridge-port         a network of one's own, in Python
  docs/                           configuration, annotations, writing plugins
  sudo scripts/test               all tests, on this machine
"""


class Unexpected(Exception):
    """Something was not as a reader of the example would expect."""


class Progress:
    """Steps as they come: seconds since the start, what happens, how long it took."""

    def __init__(self) -> None:
        self._start = time.monotonic()

    def say(self, text: str) -> None:
        print(f"[{time.monotonic() - self._start:5.1f} s] {text}", flush=True)

    def done(self, text: str, since: float) -> None:
        self.say(f"{text:<64} {time.monotonic() - since:6.2f} s")


def main() -> int:
    """Run the tour; the exit status."""
    parser = argparse.ArgumentParser(prog="quickstart", description="What multus does, in half a minute.")
    parser.add_argument("--thick", action="store_true", help="through multus-shim and multus-daemon, not multus alone")
    parser.add_argument("--in-process", action="store_true", help="without any CNI binary, by the delegates of plugins/netlink")
    options = parser.parse_args()
    missing = lacking(("multus-shim", "multus-daemon") if options.thick else ("multus",), options.in_process)
    if missing:
        print(f"quickstart: {missing}", file=sys.stderr)
        return 2
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, _stop)
    try:
        with tempfile.TemporaryDirectory(prefix="multus-quickstart-") as folder:
            (thick_tour if options.thick else thin_tour)(folder, delegates(folder, options.in_process), Progress())
    except Unexpected as exc:
        print(f"\nquickstart: not as expected: {exc}", file=sys.stderr)
        return 1
    except KeyboardInterrupt:
        print("\nquickstart: interrupted; all that it made is gone", file=sys.stderr)
        return 130
    print(NEXT)
    return 0


def lacking(executables: Sequence[str], in_process: bool) -> str:
    """What this machine lacks, in a sentence that says what to do; empty: nothing."""
    if os.geteuid() != 0:
        return "network namespaces need root: run it with sudo"
    from multus.testing.pods import PLUGIN_FOLDER

    if absent := [name for name in executables if not executable(name)]:
        return f"no executable {', '.join(absent)}: install this project first (pip install .), or run scripts/quickstart"
    if programs := [name for name in PROGRAMS if shutil.which(name) is None]:
        return f"not installed: {', '.join(programs)} (Debian: apt-get install iproute2 iputils-ping openssl)"
    if in_process:
        missing = set(PLUGINS) - entry_points(group="multus.delegates").names
        return f"no delegates {', '.join(sorted(missing))}: pip install ./plugins/netlink, or run scripts/quickstart" if missing else ""
    if plugins := [name for name in PLUGINS if not os.path.exists(os.path.join(PLUGIN_FOLDER, name))]:
        return f"no CNI plugins {', '.join(plugins)} in {PLUGIN_FOLDER} (Debian: apt-get install containernetworking-plugins)"
    return ""


def delegates(folder: str, in_process: bool) -> dict[str, Any]:
    """How a node finds its delegates: as it is usual, or in-process with a folder of binaries that is empty."""
    if not in_process:
        return {}
    nothing = os.path.join(folder, "no-plugins")
    os.mkdir(nothing)
    return {"plugin_folder": nothing, "settings": {"delegatePreference": "in-process"}}


def executable(name: str) -> str:
    """The one of the environment that we run in, else the one on the search path; empty: none."""
    return shutil.which(name, path=os.path.dirname(sys.executable)) or shutil.which(name) or ""


def thin_tour(folder: str, delegates: dict[str, Any], progress: Progress) -> None:
    """One process per call does it all."""
    from multus.testing.node import Node

    start = time.monotonic()
    with Node(executable("multus"), folder, tls=True, **delegates) as node:
        introduce(node, start, progress)
        tour(node, "multus", progress)


def thick_tour(folder: str, delegates: dict[str, Any], progress: Progress) -> None:
    """A daemon serves the calls that a small shim hands to it; what it misses while it is away is done later."""
    from multus.testing.thick import ThickNode

    start = time.monotonic()
    with ThickNode(executable("multus-shim"), executable("multus-daemon"), folder, tls=True, starts=False, **delegates) as node:
        introduce(node, start, progress)
        begin(node, progress)
        progress.say(f"it made {os.path.basename(node.config_path)} for the runtime, around the cluster network")
        tour(node, "multus-shim", progress)
        absence(node, progress)


def introduce(node: Node, start: float, progress: Progress) -> None:
    """Tell what is there, and create the objects of the example."""
    from multus.testing.node import UPLINK

    plugins = f"plugins of {node.plugin_folder}" if os.listdir(node.plugin_folder) else "and no CNI plugins"
    progress.done(f"a node: a namespace with uplink {UPLINK}, {plugins}", start)
    progress.say(f"an API server stand-in on {node.api.url}")
    node.load(str(EXAMPLE))
    progress.say(f"kubectl apply -f examples/{EXAMPLE.name}: network {NETWORK}, pods {' and '.join(PODS)}")


def begin(node: ThickNode, progress: Progress) -> None:
    """Start the daemon."""
    start = time.monotonic()
    node.start()
    progress.done("multus-daemon is ready", start)


def tour(node: Node, program: str, progress: Progress) -> None:
    """Attach, look, ping, detach."""
    with node.pod(PODS[0]) as left, node.pod(PODS[1]) as right:
        for pod in (left, right):
            attach(node, pod, program, progress)
        print()
        for pod in (left, right):
            show(node, pod)
        ping(left, right, progress)
        for pod in (left, right):
            detach(node, pod, program, progress)
        require_nothing_left(node, left, right)
        progress.say("left on the node: no link, no leased address, no record")


def absence(node: ThickNode, progress: Progress) -> None:
    """A pod that goes while the daemon is away."""
    with node.pod(PODS[0]) as pod:
        attach(node, pod, "multus-shim", progress)
        node.stop()
        progress.say("multus-daemon is stopped")
        detach(node, pod, "multus-shim", progress)
        progress.say(f"left on the node: {', '.join(node.remains())}; the DEL is on disk, and waits for the daemon")
        begin(node, progress)
        start = time.monotonic()
        node.wait_until(lambda: not node.remains(), "the DEL is done", patience_s=10)
        require_nothing_left(node, pod)
        progress.done("left on the node: nothing", start)


def attach(node: Node, pod: Pod, program: str, progress: Progress) -> None:
    start = time.monotonic()
    require(node.attach(pod).error, f"{program} ADD {pod.namespace}/{pod.name} failed")
    progress.done(f"{program} ADD {pod.namespace}/{pod.name}", start)


def detach(node: Node, pod: Pod, program: str, progress: Progress) -> None:
    start = time.monotonic()
    require(node.detach(pod).error, f"{program} DEL {pod.namespace}/{pod.name} failed")
    progress.done(f"{program} DEL {pod.namespace}/{pod.name}", start)


def require_nothing_left(node: Node, *pods: Pod) -> None:
    left_over = {**node.remains(), **{pod.name: list(pod.links()) for pod in pods if pod.links()}}
    require(str(left_over or ""), "something is left")


def show(node: Node, pod: Pod) -> None:
    """Print what a pod has, by the kernel, and by its network-status; check that they agree."""
    links = pod.links()
    rows = [["interface", "kind", "hardware address", "mtu", "addresses"]]
    rows += [[link.name, link.kind, link.mac, str(link.mtu), " ".join(link.addresses)] for link in links.values()]
    print(f"pod {pod.namespace}/{pod.name}, inside")
    table(rows)
    for route in pod.routes():
        print(f"    route {route.replace('proto kernel scope link ', '')}")
    rows = [["network", "interface", "ips", "default"]]
    entries = node.statuses(pod)
    rows += [[each["name"], each["interface"], " ".join(each["ips"]), "yes" if each.get("default") else ""] for each in entries]
    print("  its network-status annotation")
    table(rows)
    print()
    told = {each["interface"]: each["ips"] for each in entries}
    seen = {link.name: [address.partition("/")[0] for address in link.addresses] for link in links.values()}
    require("" if told == seen and len(seen) == 2 else f"told {told}, inside {seen}", "interfaces and network-status of a pod differ")


def ping(left: Pod, right: Pod, progress: Progress) -> None:
    """Ping one pod from the other over the second network."""
    address = right.links()["net1"].addresses[0].partition("/")[0]
    start = time.monotonic()
    require("" if left.pings(address, "net1") else "no answer", f"ping {address} from {left.name} through net1")
    progress.done(f"ping {address} ({right.name}) from {left.name} through net1: answered", start)


def table(rows: Sequence[Sequence[str]]) -> None:
    """Print rows in columns that are as wide as they must be, below a heading."""
    widths = [max(len(row[index]) for row in rows) for index in range(len(rows[0]))]
    for row in rows:
        print("    " + "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip())


def require(problem: str, what: str) -> None:
    """Go on if there is no problem.

    Raises:
        Unexpected: There is one.
    """
    if problem:
        raise Unexpected(f"{what}: {problem}")


def _stop(*_: object) -> NoReturn:
    """Wind up, once: a second Ctrl-C must not cut that short."""
    for number in (signal.SIGINT, signal.SIGTERM):
        signal.signal(number, signal.SIG_IGN)
    raise KeyboardInterrupt


if __name__ == "__main__":
    sys.exit(main())
