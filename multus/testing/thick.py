"""A node with the thick plugin: its runtime calls the shim, and a daemon serves it.

The daemon is a process in the node's namespace.  It may be stopped, killed and started again in the ``with`` block; what
the runtime hands to the shim is the configuration that the daemon generated.  Needs root and iproute2::

    with ThickNode("/opt/cni/bin/multus-shim", "/usr/local/bin/multus-daemon", folder) as node:
        node.add_network("blue", {"type": "macvlan", "master": UPLINK})
        with node.pod("web", "blue") as pod:
            node.attach(pod)
            node.stop()
            node.detach(pod)
            node.start()
"""

from __future__ import annotations

import json
import os
import signal
import socket
import subprocess
import time
from typing import TYPE_CHECKING, Any, Self

from multus.protocol import wire
from multus.testing.node import NODE_NAME, Node
from multus.testing.pods import PLUGIN_FOLDER

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from types import TracebackType

    from multus.testing.kubeapi_credentials import Certificates

METRICS_PORT = 9091
"""On the loopback of the node's namespace."""
PRIMARY = "10-cluster.conf"
PATIENCE_S = 60.0
_POLL_S = 0.01
_LOG_TAIL = 4000


class ThickNode(Node):
    """A node whose container runtime calls ``shim``; ``with ThickNode(…) as node:``.

    Args:
        shim, daemon: The executables.
        folder: Where everything is kept; it must exist.  The socket's path must stay below 108 bytes.
        settings: Further keys of the daemon's configuration, or others than usual; they are read at each start.
        starts: Start the daemon at once, and wait until it is ready.
    """

    def __init__(
        self,
        shim: str,
        daemon: str,
        folder: str | os.PathLike[str],
        *,
        tls: bool = False,
        certificates: Certificates | None = None,
        plugin_folder: str = PLUGIN_FOLDER,
        settings: Mapping[str, object] | None = None,
        starts: bool = True,
    ) -> None:
        super().__init__(shim, folder, tls=tls, certificates=certificates, plugin_folder=plugin_folder)
        self._executable = daemon
        self._starts = starts
        self._process: subprocess.Popen[bytes] | None = None
        self._bin_dir = plugin_folder
        self.settings = dict(settings or {})
        self.socket_dir, self.cni_config_dir = (os.path.join(self.folder, name) for name in ("run", "cni.d"))
        self.socket_path = os.path.join(self.socket_dir, "multus.sock")
        self.config_path = os.path.join(self.cni_config_dir, "00-multus.conf")
        """What the daemon generates."""
        self.daemon_config_path = os.path.join(self.folder, "daemon-config.json")
        self.log_path = os.path.join(self.folder, "daemon.log")

    def __enter__(self) -> Self:
        super().__enter__()
        os.makedirs(self.cni_config_dir, exist_ok=True)
        self.put_primary(self.cluster_network())
        if self._starts:
            try:
                self.start()
            except BaseException:
                self.__exit__(None, None, None)
                raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None) -> None:
        self.kill()
        super().__exit__(kind, error, trace)

    def put_primary(self, config: Mapping[str, object]) -> None:
        """Write the configuration of the cluster network, at once as a whole."""
        path = os.path.join(self.cni_config_dir, PRIMARY)
        with open(f"{path}.new", "w", encoding="utf-8") as file:
            json.dump(config, file)
        os.replace(f"{path}.new", path)

    @property
    def config(self) -> dict[str, object]:
        """The configuration that the runtime reads; the daemon must have written it."""
        with open(self.config_path, encoding="utf-8") as file:
            document: dict[str, object] = json.load(file)
        return document

    @property
    def daemon_config(self) -> dict[str, object]:
        """What the daemon is started with."""
        return {
            "socketDir": self.socket_dir,
            "daemonSocketDir": self.socket_dir,
            "cniConfigDir": self.cni_config_dir,
            "cniDir": self.cni_dir,
            "confDir": self.conf_dir,
            "binDir": self._bin_dir,
            "kubeconfig": self.kubeconfig,
            "logLevel": "verbose",
            "logToStderr": True,
            "metricsPort": METRICS_PORT,
            **self.settings,
        }

    @property
    def pid(self) -> int:
        """Of the daemon's process, the last one."""
        return self._running().pid

    @property
    def log(self) -> str:
        """All that daemons of this node have said."""
        with open(self.log_path, encoding="utf-8", errors="replace") as file:
            return file.read()

    def launch(self) -> None:
        """Start the daemon's process, and do not wait."""
        with open(self.daemon_config_path, "w", encoding="utf-8") as file:
            json.dump(self.daemon_config, file)
        environment = {name: value for name, value in os.environ.items() if not name.startswith("KUBERNETES_")}
        with self.namespace.entered(), open(self.log_path, "ab") as log:
            self._process = subprocess.Popen(
                [self._executable, "-config", self.daemon_config_path],
                env={**environment, "MULTUS_NODE_NAME": NODE_NAME},
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def start(self) -> None:
        """Start the daemon and wait until it is ready.

        Raises:
            RuntimeError: It ended, or took more than a minute; with what it said.
        """
        self.launch()
        self.wait_until(lambda: self.ask("/readyz")[0] == 200, "the daemon is ready")

    def wait_until(self, fact: Callable[[], bool], what: str, patience_s: float = PATIENCE_S) -> None:
        """Wait until something is true while the daemon runs.  Raises RuntimeError, with what the daemon said."""
        end = time.monotonic() + patience_s
        while not fact():
            status = self._running().poll()
            if status is not None or time.monotonic() > end:
                state = "still runs" if status is None else f"ended with status {status}"
                raise RuntimeError(f"not so: {what}; the daemon {state}: {self.log[-_LOG_TAIL:]}")
            time.sleep(_POLL_S)

    def signal(self, number: int = signal.SIGTERM) -> None:
        """Send a signal to the daemon."""
        self._running().send_signal(number)

    def wait(self, timeout_s: float = PATIENCE_S) -> int:
        """Wait for the daemon's end; its exit status."""
        return self._running().wait(timeout_s)

    def stop(self) -> int:
        """Stop the daemon as an operator does, and wait; its exit status."""
        self.signal(signal.SIGTERM)
        return self.wait()

    def kill(self) -> None:
        """End the daemon without a warning, if it runs; its delegates run to their end."""
        if self._process is not None and self._process.poll() is None:
            self._process.kill()
            self._process.wait()

    def ask(self, path: str, body: bytes = b"null") -> tuple[int, str]:
        """Status and text of an answer over the socket, to a POST as a shim sends it; 0 and why, when nobody serves it."""
        try:
            with socket.socket(socket.AF_UNIX) as connection:
                connection.settimeout(PATIENCE_S)
                connection.connect(self.socket_path)
                connection.sendall(wire.request("POST", path, (("Host", "dummy"), ("Connection", "close")), body))
                answer = wire.read_response(connection.recv, "POST", 1 << 20)
        except OSError as exc:
            return 0, str(exc)
        return answer.status, answer.body.decode()

    def metrics(self) -> dict[str, float]:
        """The daemon's metrics by name, labels included as they are told."""
        from urllib.request import urlopen

        with self.namespace.entered(), urlopen(f"http://127.0.0.1:{METRICS_PORT}/metrics", timeout=10) as answer:
            lines = answer.read().decode().splitlines()
        return {name: float(value) for name, _, value in (line.rpartition(" ") for line in lines if not line.startswith("#"))}

    def memory_kib(self) -> int:
        """The daemon's resident memory."""
        with open(f"/proc/{self.pid}/status", encoding="ascii") as file:
            return next(int(line.split()[1]) for line in file if line.startswith("VmRSS:"))

    def api_requests(self) -> list[str]:
        """Method and path of what the API server was asked, lists and watches of the caches left out."""
        return [f"{each.method} {each.path}" for each in self.api.requests if not _is_of_caches(each.method, each.path)]

    def _running(self) -> subprocess.Popen[bytes]:
        if self._process is None:
            raise RuntimeError("no daemon was started")
        return self._process


def _is_of_caches(method: str, path: str) -> bool:
    """Whether a request is one for a whole collection, over all namespaces."""
    parts: list[Any] = path.split("/")
    return method == "GET" and "namespaces" not in parts
