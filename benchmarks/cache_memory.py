"""What the daemon's caches weigh: resident memory of a process that keeps the pods of a node and all net-attach-defs.

    python benchmarks/cache_memory.py [--pods 200] [--networks 100] [--updates 5000] [--official]

An API server of its own process, over HTTPS, with pods of 10 KB as the kubelet sees them; MiB as the kernel counts them.
"""

from __future__ import annotations

import argparse
import json
import multiprocessing
import os
import sys
import tempfile
import time
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from multiprocessing.connection import Connection

NODE = "worker-1"
_PATIENCE_S = 120.0


def main() -> int:
    """Measure and print a table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--pods", type=int, default=200)
    parser.add_argument("--networks", type=int, default=100)
    parser.add_argument("--updates", type=int, default=5000)
    parser.add_argument("--official", action="store_true", help="watch over the official client")
    options = parser.parse_args()
    context = multiprocessing.get_context("spawn")
    ours, theirs = context.Pipe()
    with tempfile.TemporaryDirectory() as folder:
        path = os.path.join(folder, "kubeconfig")
        server = context.Process(target=serve, args=(theirs, path, options.pods, options.networks))
        server.start()
        try:
            ours.recv()
            measure(ours, path, options)
        finally:
            ours.send(0)
            server.join()
    return 0


def measure(server: Connection, kubeconfig: str, options: argparse.Namespace) -> None:
    """Start the caches as the daemon does, and weigh the process on the way."""
    tell("interpreter, multiprocessing")
    import logging  # noqa: F401  # what a daemon has anyway
    import ssl  # noqa: F401
    import threading  # noqa: F401
    from http.server import HTTPServer  # noqa: F401

    tell("standard library")
    import multus.commands.daemon
    import multus.protocol.codec  # noqa: F401
    from multus.adapters.logs import Log
    from multus.commands import kube_access
    from multus.types.config import LogConfig

    tell("modules of the daemon")
    cache = kube_access.cache(kubeconfig, {}, NODE, Log.from_config(LogConfig(level="error")), prefer_official=options.official)
    tell("caches made")
    cache.start()
    if not cache.wait_until_synced(_PATIENCE_S):
        raise SystemExit("not synced")
    tell(f"synced: {cache.sizes()}")
    last = options.pods - 1
    for thousand in range(0, options.updates, 1000):
        count = min(1000, options.updates - thousand)
        server.send(count)
        revision = str(server.recv())
        end = time.monotonic() + _PATIENCE_S
        while cache.for_request(5.0).pod("shop", f"pod-{last}").annotations.get("revision") != revision:
            if time.monotonic() > end:
                raise SystemExit("the updates did not arrive")
            time.sleep(0.05)
        tell(f"{thousand + count} updates")
    start = time.perf_counter()
    reads = 10000
    for number in range(reads):
        cache.for_request(5.0).pod("shop", f"pod-{number % options.pods}")
    print(f"{(time.perf_counter() - start) / reads * 1e6:8.1f} µs for a pod that is cached")
    start = time.perf_counter()
    cache.stop()
    print(f"{(time.perf_counter() - start) * 1000:8.1f} ms to stop")
    tell("stopped")


def tell(what: str) -> None:
    with open("/proc/self/smaps_rollup", encoding="ascii") as file:
        kib = next(int(line.split()[1]) for line in file if line.startswith("Rss:"))
    print(f"{kib / 1024:8.1f} MiB  {what}", flush=True)


def serve(pipe: Connection, kubeconfig: str, pods: int, networks: int) -> None:
    """The API server; updates all pods in turn as often as it is asked, and answers with the last revision."""
    from multus.testing.kubeapi import KubeAPI

    with KubeAPI(tls=True, token="secret") as api:
        api.put(*(pod(number) for number in range(pods)), *(network(number) for number in range(networks)))
        pipe.send(api.kubeconfig(kubeconfig, inline=True))
        revision = 0
        while count := pipe.recv():
            for step in range(count):
                revision += 1
                api.put(pod((step - count) % pods, str(revision)))
                if step % 50 == 0:
                    time.sleep(0.02)
            pipe.send(revision)


def pod(number: int, revision: str = "0") -> dict[str, Any]:
    """A pod of about 10 KB, a third of it managed fields."""
    name = f"pod-{number}"
    container = {
        "name": "main",
        "image": "registry.example.com/shop/cart:1.2.3",
        "env": [{"name": f"VARIABLE_{index}", "value": f"value {index} of {name}"} for index in range(30)],
        "volumeMounts": [{"name": f"volume-{index}", "mountPath": f"/mnt/volume-{index}"} for index in range(10)],
        "resources": {"limits": {"cpu": "1", "memory": "1Gi"}, "requests": {"cpu": "100m", "memory": "64Mi"}},
    }
    fields: dict[str, Any] = {f"f:field-{index}": {"f:value": {}, "f:name": {}, "k:{\"name\":\"x\"}": {".": {}}} for index in range(50)}
    conditions = [{"type": f"Condition{index}", "status": "True", "lastTransitionTime": "2026-01-01T00:00:00Z"} for index in range(5)]
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {
            "name": name, "namespace": "shop", "uid": f"5d3c0000-0000-4000-8000-{number:012}", "generateName": "pod-",
            "labels": {f"label-{index}": f"value-{index}" for index in range(8)},
            "annotations": {
                "k8s.v1.cni.cncf.io/networks": json.dumps([{"name": f"net-{index}", "namespace": "shop"} for index in range(3)]),
                "k8s.v1.cni.cncf.io/network-status": json.dumps([{"name": f"net-{index}", "ips": ["10.0.0.1"]} for index in range(4)]),
                "revision": revision,
            },
            "managedFields": [{"manager": "kubelet", "operation": "Update", "fieldsV1": fields}],
        },
        "spec": {
            "nodeName": NODE,
            "containers": [container, {**container, "name": "proxy"}],
            "volumes": [{"name": f"volume-{index}", "configMap": {"name": f"map-{index}", "defaultMode": 420}} for index in range(10)],
        },
        "status": {"phase": "Running", "conditions": conditions, "podIP": "10.0.0.1"},
    }  # fmt: skip


def network(number: int) -> dict[str, Any]:
    config = {"cniVersion": "1.0.0", "name": f"net-{number}", "type": "macvlan", "master": "eth1", "ipam": {"type": "host-local"}}
    return {
        "apiVersion": "k8s.cni.cncf.io/v1",
        "kind": "NetworkAttachmentDefinition",
        "metadata": {"name": f"net-{number}", "namespace": "shop"},
        "spec": {"config": json.dumps({**config, "notes": "x" * 500})},
    }


if __name__ == "__main__":
    sys.exit(main())
