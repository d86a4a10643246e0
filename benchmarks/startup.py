"""What a process of ``multus`` and an ADD that does next to nothing cost, beside the bare interpreter.

    python benchmarks/startup.py --multus PATH [--installed PATH] [--runs 40] [--bar]

The no-op ADD is a whole one: a pod read over HTTPS, one delegate (a shell script that prints a result), the record and
the result on disk, the status written back, one event.  ``--installed`` measures another executable beside: that which
``install_multus -t thin`` put on a host.  ``--bar`` exits with 1 when it costs more than twice the bare
interpreter's start plus 45 ms.  Figures are medians in ms; runs of the kinds take turns, so that a machine whose speed
drifts treats them alike.  Needs root.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from multus.testing.kubeapi import KubeAPI

BAR_FACTOR, BAR_MS = 2.0, 45.0
DELEGATE = """#!/bin/sh
[ "$CNI_COMMAND" = ADD ] && echo '{"cniVersion":"1.0.0","ips":[{"address":"192.0.2.2/24"}]}'
exit 0
"""


def main() -> int:
    """Measure and print; the exit status."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--multus", required=True, type=Path, help="the console script that pip wrote")
    parser.add_argument("--installed", type=Path, help="the launcher of a self-contained installation")
    parser.add_argument("--runs", type=int, default=40)
    parser.add_argument("--bar", action="store_true", help="fail when the no-op ADD costs more than its bar")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        medians = measure(options.multus, options.installed, Path(folder), options.runs)
    bare = medians["bare interpreter"]
    for kind, median in medians.items():
        print(f"{kind:34} {median:7.1f} ms   {median - bare:+7.1f} ms over the bare interpreter")
    bar = BAR_FACTOR * bare + BAR_MS
    print(f"bar for the no-op ADD: {BAR_FACTOR:g} x {bare:.1f} + {BAR_MS:g} = {bar:.1f} ms")
    return 1 if options.bar and medians["no-op ADD over HTTPS"] > bar else 0


def measure(multus: Path, installed: Path | None, folder: Path, runs: int) -> dict[str, float]:
    """Median wall time of each kind of process, in ms."""
    interpreter = os.path.realpath(multus.parent / "python")
    netns = f"bench{os.getpid()}"
    (folder / "bin").mkdir()
    delegate = folder / "bin" / "noop"
    delegate.write_text(DELEGATE)
    delegate.chmod(0o755)
    subprocess.run(["ip", "netns", "add", netns], check=True)
    try:
        with KubeAPI(tls=True, token="of-a-service-account") as api:
            api.store.put({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "pod", "namespace": "default", "uid": "uid"}})
            kubeconfig = api.kubeconfig(folder / "kubeconfig", style="json")
            config = {
                "cniVersion": "1.0.0", "name": "bench", "type": "multus", "kubeconfig": str(kubeconfig), "cniDir": str(folder / "state"),
                "binDir": str(folder / "bin"), "delegates": [{"cniVersion": "1.0.0", "name": "noop", "type": "noop"}],
            }  # fmt: skip
            stdin = json.dumps(config).encode()
            kinds = {"bare interpreter": ([interpreter, "-I", "-S", "-c", "pass"], {}, b"")}
            for suffix, executable in (("", multus), (", installed", installed)):
                if executable is not None:
                    kinds[f"multus VERSION{suffix}"] = ([str(executable)], {"CNI_COMMAND": "VERSION"}, b"")
                    kinds[f"no-op ADD over HTTPS{suffix}"] = ([str(executable)], call(netns, "ADD"), stdin)
                    kinds[f"no-op DEL{suffix}"] = ([str(executable)], call(netns, "DEL"), stdin)
            times: dict[str, list[float]] = {kind: [] for kind in kinds}
            for turn in range(runs + 2):
                for kind, (command, environment, stdin) in kinds.items():
                    elapsed = timed(command, environment, stdin)
                    if turn >= 2:
                        times[kind].append(elapsed)
    finally:
        subprocess.run(["ip", "netns", "del", netns], check=True)
    return {kind: statistics.median(values) for kind, values in times.items()}


def call(netns: str, command: str) -> dict[str, str]:
    """The environment of a call of a container runtime."""
    return {
        "CNI_COMMAND": command,
        "CNI_CONTAINERID": "bench",
        "CNI_NETNS": f"/var/run/netns/{netns}",
        "CNI_IFNAME": "eth0",
        "CNI_PATH": "/opt/cni/bin",
        "CNI_ARGS": "IgnoreUnknown=1;K8S_POD_NAMESPACE=default;K8S_POD_NAME=pod;K8S_POD_INFRA_CONTAINER_ID=bench;K8S_POD_UID=uid",
    }


def timed(command: list[str], environment: dict[str, str], stdin: bytes) -> float:
    """Wall time of one process, in ms; it must succeed."""
    start = time.perf_counter()
    done = subprocess.run(command, env={"PATH": os.environ["PATH"], **environment}, input=stdin, capture_output=True, check=False)
    elapsed = (time.perf_counter() - start) * 1000
    if done.returncode:
        raise SystemExit(f"{command} failed: {done.stdout.decode()} {done.stderr.decode()}")
    return elapsed


if __name__ == "__main__":
    sys.exit(main())
