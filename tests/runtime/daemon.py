"""The thick plugin on a node in a box: the runtime calls the shim by the configuration that the daemon generates there.

The daemon is a process in the box's namespaces, so it ends with the box whatever happens.
"""

from __future__ import annotations

import json
import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

from tests.runtime.node import CLUSTER_BRIDGE, PLUGINS, Node, bridge_plugin

_PATIENCE_S = 20.0
_POLL_S = 0.02


class Daemon:
    """The daemon of a node, and its configuration; started and ended as often as a test wants."""

    def __init__(self, executable: Path, node: Node, **settings: object) -> None:
        self._executable = executable
        self._node = node
        self._process: subprocess.Popen[bytes] | None = None
        self.log = node.folder / "daemon.log"
        self.socket = node.folder / "run" / "multus.sock"
        self.generated = node.folder / "net.d" / "00-multus.conf"
        primary = node.folder / "primary"
        primary.mkdir()
        plugin = {**bridge_plugin(node.folder, CLUSTER_BRIDGE, "10.201.0.0/24"), "isDefaultGateway": True}
        (primary / "10-cluster.conflist").write_text(json.dumps({"cniVersion": "1.0.0", "name": "cluster", "plugins": [plugin]}))
        config = {
            "socketDir": str(self.socket.parent),
            "daemonSocketDir": str(self.socket.parent),
            "cniConfigDir": str(self.generated.parent),
            "multusAutoconfigDir": str(primary),
            "cniDir": str(node.cni_dir),
            "confDir": str(node.folder / "conf.d"),
            "binDir": str(PLUGINS),
            "kubeconfig": str(node.folder / "kubeconfig"),
            "logToStderr": True,
            "logLevel": "verbose",
            **settings,
        }
        (node.folder / "daemon-config.json").write_text(json.dumps(config))

    def start(self) -> None:
        """Start it, and wait until its node's runtime would call it."""
        ready = self._times_ready()
        enter = ["nsenter", "--target", str(self._node.box.init), "--mount", "--net", "--pid"]
        command = [str(self._executable), "-config", str(self._node.folder / "daemon-config.json")]
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*enter, *command], env={**environment, "MULTUS_NODE_NAME": "node"}, stdin=subprocess.DEVNULL, stdout=log, stderr=log
            )
        self._wait_until(lambda: self._times_ready() > ready)
        self._wait_until(lambda: self._node.runtime.conditions()["NetworkReady"])

    def end(self, number: signal.Signals = signal.SIGTERM) -> None:
        """Send it a signal, and wait for its end."""
        if self._process is None or self._process.poll() is not None:
            return
        os.kill(self.pid, number)
        self._process.wait(timeout=_PATIENCE_S)

    @property
    def pid(self) -> int:
        """Its process ID, outside of the box: what ``nsenter`` has started."""
        if self._process is None:
            raise RuntimeError("no daemon was started")
        return int(Path(f"/proc/{self._process.pid}/task/{self._process.pid}/children").read_text().split()[0])

    def _times_ready(self) -> int:
        return self.log.read_text().count("daemon.ready") if self.log.exists() else 0

    def _wait_until(self, fact: Callable[[], bool]) -> None:
        deadline = time.monotonic() + _PATIENCE_S
        while not fact():
            if self._process is None or self._process.poll() is not None or time.monotonic() > deadline:
                raise RuntimeError(f"the daemon did not start:\n{self.log.read_text()[-4000:]}")
            time.sleep(_POLL_S)
