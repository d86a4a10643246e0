"""What a process of ``multus-shim`` costs, beside the bare interpreter, and beside a Go shim if one is given.

    python benchmarks/shim.py [--shim PATH] [--installed FOLDER] [--go PATH] [--runs 100] [--bar]

The shim is started four ways: by a launcher under ``python -I -S``; as ``install_multus`` put it into a folder
(``--installed``), beside the interpreter that is there; as the console script that pip writes (``--shim``); and as the Go
binary (``--go``).  A stand-in for the daemon answers from a
thread.  Wall and processor time are medians in ms over runs that take turns, memory is the peak resident size in MiB.  A bare
interpreter starts and times all of them, because what forks is part of what is forked.

``--bar`` exits with 1 when an ADD by the launcher takes more processor time than 1.1 times the bare interpreter's plus
3 ms, or more than 12 MiB.  Needs no root.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import marshal
import os
import socket
import statistics
import subprocess
import sys
import tempfile
from pathlib import Path

import multus
from multus.errors import MultusError
from multus.protocol import bundles, wire
from multus.testing.listener import Listener

BAR_FACTOR, BAR_MS, BAR_MIB = 1.1, 3.0, 12.0

RUNNER = """
import marshal, posix, sys, time
kinds, stdin, runs = marshal.loads(sys.stdin.buffer.read())
seen = [[] for _ in kinds]
for turn in range(runs + 3):
    for index, (command, environment) in enumerate(kinds):
        actions = [(posix.POSIX_SPAWN_OPEN, 0, stdin, posix.O_RDONLY, 0), (posix.POSIX_SPAWN_OPEN, 1, "/dev/null", posix.O_WRONLY, 0)]
        start = time.perf_counter()
        child = posix.posix_spawn(command[0], command, environment, file_actions=actions)
        _, status, usage = posix.wait4(child, 0)
        wall = time.perf_counter() - start
        if status:
            sys.exit(f"{command} failed")
        if turn >= 3:
            seen[index].append((wall * 1000, (usage.ru_utime + usage.ru_stime) * 1000, usage.ru_maxrss / 1024))
sys.stdout.buffer.write(marshal.dumps(seen))
"""
LAUNCHER = """
import sys
sys.path.insert(0, {root!r})
from multus.commands.shim import main
main()
"""


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--shim", type=Path, help="the console script that pip wrote")
    parser.add_argument("--installed", type=Path, help="a folder of CNI plugins that install_multus -t thick filled")
    parser.add_argument("--go", type=Path, help="a Go multus-shim, to compare with")
    parser.add_argument("--runs", type=int, default=100)
    parser.add_argument("--bar", action="store_true", help="exit with 1 over the bar")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        figures = measure(Path(folder), options.shim, options.installed, options.go, options.runs)
    bare = figures["bare interpreter"]
    for kind, (wall_ms, cpu_ms, peak_mib) in figures.items():
        print(f"{kind:28} wall {wall_ms:6.1f} ms {wall_ms / bare[0]:5.2f} x   processor {cpu_ms:6.1f} ms   peak {peak_mib:5.1f} MiB")
    bar_ms = BAR_FACTOR * bare[1] + BAR_MS
    _, cpu_ms, peak_mib = figures["launcher ADD"]
    print(f"bar for an ADD by the launcher: {BAR_FACTOR:g} x {bare[1]:.1f} + {BAR_MS:g} = {bar_ms:.1f} ms, {BAR_MIB:g} MiB")
    return 1 if options.bar and (cpu_ms > bar_ms or peak_mib > BAR_MIB) else 0


def measure(folder: Path, script: Path | None, installed: Path | None, go: Path | None, runs: int) -> dict[str, tuple[float, ...]]:
    """Median wall time in ms, processor time in ms and peak memory in MiB of each kind of process."""
    launcher = folder / "launcher.py"
    launcher.write_text(LAUNCHER.format(root=str(Path(multus.__file__).parent.parent)))
    stdin = folder / "stdin.json"
    config = {"cniVersion": "1.0.0", "name": "bench", "type": "multus-shim", "daemonSocketDir": str(folder)}
    stdin.write_text(json.dumps(config))
    python = [os.path.realpath(sys.executable), "-I", "-S"]
    kinds = {"bare interpreter": ([*python, "-c", "pass"], {})}
    shim = installed / "multus-shim" if installed is not None else None
    if shim is not None:
        interpreter = bundles.interpreter_of(shim.read_bytes())
        kinds["installed interpreter"] = ([interpreter, bundles.FLAGS, "-c", "pass"], {})
    for name, command in (("launcher", [*python, str(launcher)]), ("installed", shim), ("console script", script), ("Go", go)):
        if command is not None:
            parts = command if isinstance(command, list) else [str(command)]
            kinds[f"{name} VERSION"] = (parts, {"CNI_COMMAND": "VERSION"})
            kinds[f"{name} ADD"] = (parts, call("ADD"))
    with StandIn(str(folder / "multus.sock")):
        work = marshal.dumps((list(kinds.values()), str(stdin), runs))
        done = subprocess.run([*python, "-c", RUNNER], input=work, capture_output=True, check=False)
    if done.returncode:
        raise SystemExit(done.stderr.decode())
    seen = marshal.loads(done.stdout)
    return {kind: tuple(map(statistics.median, zip(*rows, strict=True))) for kind, rows in zip(kinds, seen, strict=True)}


def call(command: str) -> dict[str, str]:
    """The environment of a call of a container runtime."""
    return {
        "PATH": "/usr/sbin:/usr/bin:/sbin:/bin",
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "bench",
        "CNI_NETNS": "/var/run/netns/of-the-bench",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=bench;K8S_POD_UID=uid",
    }


class StandIn(Listener):
    """A daemon that is ready, and answers every call with the same result."""

    def __init__(self, path: str) -> None:
        super().__init__(path, self._respond)
        interfaces, ips = [{"name": "eth0", "sandbox": "/n"}], [{"address": "192.0.2.2/24", "interface": 0}]
        result = {"cniVersion": "1.1.0", "interfaces": interfaces, "ips": ips}
        self._body = json.dumps({"Result": result, "Stdout": json.dumps({**result, "cniVersion": "1.0.0"}, indent=4)}).encode()

    def _respond(self, connection: socket.socket) -> None:
        with contextlib.suppress(MultusError):
            request = wire.read_request(connection.recv, 1 << 20)
            connection.sendall(wire.response(200, [("Connection", "close")], self._body if request.target == "/cni" else b""))


if __name__ == "__main__":
    sys.exit(main())
