"""``multus-daemon``: the node daemon of the thick plugin.

Order of its start, which can be seen from outside: configuration, readiness indicator, primary configuration, caches,
socket, replay of what shims left, and last the generated configuration, so that no runtime calls before it can serve.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import time

from multus import files
from multus.adapters import primary_files
from multus.adapters.conf_dir import ConfDir
from multus.adapters.conf_watch import ConfigurationManager
from multus.adapters.event_queue import EventQueue
from multus.adapters.guard import Guard
from multus.adapters.intent_files import IntentFiles
from multus.adapters.kube_cache import KubeCache
from multus.adapters.logs import Log
from multus.adapters.metrics import Metrics, MetricsServer
from multus.adapters.process import Processes
from multus.adapters.server import NodeServer
from multus.adapters.work_queue import WorkQueue
from multus.commands import gauges, kube_access, wiring
from multus.commands.node_calls import NodeCalls
from multus.commands.node_certificate import NodeCertificate
from multus.commands.stop import Stop
from multus.core.intents import Replay
from multus.defaults.execution import InProcessExecution
from multus.errors import InvalidConfigError, IOFailureError, MultusError
from multus.hooks import manager, manifest
from multus.protocol import daemon_config, primary_settings
from multus.protocol.documents import load_object
from multus.protocol.environment import split_list
from multus.types.pod import Node

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.daemon import DaemonConfig

DEFAULT_CONFIG = "/etc/cni/net.d/multus.d/daemon-config.json"
READY_TIMEOUT_S = 45.0
SYNC_TIMEOUT_S = 20.0
EVENTS_TIMEOUT_S = 2.0
_TICK_S = 2.0
_LOOK_UP_S = 0.2
"""How often waiting that knows nothing of signals looks for one."""
NODE_EVENTS = {
    "repaired": "ConfigurationRepaired",
    "backed-off": "ConfigurationRepairsWait",
    "kept": "PrimaryConfigurationNotUsable",
}
"""Of the configuration manager's events, those that an operator must see, and the reason each of them gives."""
EXIT_CONFIG, EXIT_PRIMARY, EXIT_SERVER = 1, 2, 3
"""Exit statuses: the configuration or the readiness file; the primary configuration; the server.  Spec: Multus behaviour."""


def main() -> None:
    """Run the daemon until a signal; the exit status tells how it ended."""
    parser = argparse.ArgumentParser(prog="multus-daemon", description="The node daemon of Multus.", allow_abbrev=False)
    parser.add_argument("-config", "--config", default=DEFAULT_CONFIG, metavar="PATH", help="its configuration (default: %(default)s)")
    parser.add_argument("-version", "--version", action="store_true", help="print the version and leave")
    options = parser.parse_args()
    if options.version:
        from importlib.metadata import version

        print(f"multus-daemon: version:{version('multus')}")
        return
    sys.exit(Daemon(options.config, os.environ).run())


class Daemon:
    """One daemon from its configuration to its end."""

    def __init__(self, config_path: str, environ: Mapping[str, str]) -> None:
        self._config_path = config_path
        self._environ = environ
        self._stop = Stop()
        self._status = 0
        self._primary: ConfigurationManager | None = None
        self._programs: Processes | None = None
        self._events: EventQueue | None = None
        self._metrics = Metrics()
        self._log = Log.from_config(daemon_config.DEFAULT_LOG)

    def run(self) -> int:
        """Serve until SIGTERM or SIGINT; the exit status."""
        self._stop.listen(signal.SIGTERM, signal.SIGINT, handler=self._signalled)
        try:
            document = _read(self._config_path)
            config = daemon_config.from_document(document, self._config_path, os.cpu_count() or 1)
            self._log = Log.from_config(config.log)
            for warning in config.warnings:
                self._log.warning("configuration", problem=warning)
            _wait_for_file(config.readiness_indicator_file, self._stop)
        except MultusError as exc:
            return self._failed(exc, EXIT_CONFIG)
        self._log.verbose("daemon.started", path=self._config_path)
        try:
            settings = primary_settings.from_document(document, self._config_path)
            source = primary_files.source(settings, ConfDir(settings.primary_folder, self._log))
            primary = self._primary = ConfigurationManager(source, self._log, self._on_configuration)
            if self._stop.is_set():
                return 0
            primary.wait_for_primary(config.primary_timeout_s)
        except MultusError as exc:
            return 0 if self._stop.is_set() else self._failed(exc, EXIT_PRIMARY)
        try:
            return self._serve(config, primary, settings.cleanup_config_on_exit)
        except MultusError as exc:
            return self._failed(exc, EXIT_SERVER)

    def _serve(self, config: DaemonConfig, primary: ConfigurationManager, cleanup: bool) -> int:
        if os.geteuid() != 0:
            raise IOFailureError("the daemon changes network namespaces and needs root")
        certificate = self._certificate(config)
        try:
            return self._serve_as(certificate, config, primary, cleanup)
        finally:
            if certificate is not None:
                certificate.stop()

    def _serve_as(
        self, certificate: NodeCertificate | None, config: DaemonConfig, primary: ConfigurationManager, cleanup: bool
    ) -> int:
        if self._stop.is_set():
            return self._status
        metrics = self._metrics
        cache = self._cache(config, certificate)
        events = self._events = EventQueue(cache.for_request(EVENTS_TIMEOUT_S), self._log)
        queue = WorkQueue(config.connection_limit, self._log)
        calls = NodeCalls(config, self._world(config, queue), cache.for_request, events, metrics, self._log)
        socket_path = os.path.join(config.socket_dir, "multus.sock")
        node_server = NodeServer(socket_path, calls, queue, config.queue_timeout_s, self._log)
        replay = Replay(IntentFiles(config.cni_dir), lambda body, served: calls.replay(body, served, queue), time, self._log)
        gauges.watch(metrics, queue, cache, events, replay)
        if certificate is not None:
            self._watch_certificate(metrics, certificate, cache)
        monitoring = None
        if config.metrics_port is not None:
            monitoring = MetricsServer(
                metrics, config.metrics_address, config.metrics_port, self._log, debug=config.debug_endpoints
            )
            monitoring.start()
        calls.readiness += [lambda: "the daemon is stopping" if self._stop.is_set() else "", primary.problem]
        if certificate is not None:
            calls.readiness.append(certificate.not_ready)
        has_written = False
        queue.start()
        events.start()
        try:
            cache.start()
            if not self._is_synced(cache):
                self._log.warning("cache.not_synced", seconds=SYNC_TIMEOUT_S, then="pods and networks are read live")
            if self._stop.is_set():
                return self._status
            node_server.start()
            replay.sweep()
            has_written = True
            primary.write_once()
            primary.start()
            self._log.verbose("daemon.ready", socket=socket_path, workers=config.connection_limit)
            while not self._stop.wait(_TICK_S):
                replay.sweep()
                problem = node_server.problem()
                if problem:
                    raise IOFailureError(problem)
        finally:
            self._stop.set()
            self._wind_down(config, queue, node_server)
            events.stop(EVENTS_TIMEOUT_S)
            cache.stop()
            if monitoring is not None:
                monitoring.stop()
            primary.stop(cleanup and has_written)  # what we did not write may be the file of a daemon that runs
        self._log.verbose("daemon.ended", status=self._status)
        return self._status

    def _is_synced(self, cache: KubeCache) -> bool:
        """Whether the caches are filled, in the time they have; true as well when the daemon is to end before."""
        end = time.monotonic() + SYNC_TIMEOUT_S
        while not cache.wait_until_synced(_LOOK_UP_S) and not self._stop.is_set():
            if time.monotonic() > end:
                return False
        return True

    def _wind_down(self, config: DaemonConfig, queue: WorkQueue, node_server: NodeServer) -> None:
        """Refuse what waits, let what runs finish or at least be undone, and be gone from the socket."""
        queue.close("the daemon is stopping")
        if not queue.drain(config.shutdown_grace_s):
            self._log.error("daemon.requests.cut", running=queue.lengths()[1])
            self._kill_delegates()
        node_server.stop()
        queue.stop()

    def _world(self, config: DaemonConfig, queue: WorkQueue) -> wiring.World:
        """Everything that is installed, loaded now: a broken plugin stops the daemon, never a pod."""
        registry = manifest.Registry()
        disabled = split_list(self._environ.get(manager.DISABLED_VARIABLE, ""))
        plugins = {name: plugin for name, plugin in registry.all_hook_plugins().items() if name not in disabled}
        manager.load((), plugins)
        self._programs = Processes(timeout_s=config.delegate_timeout_s, root=config.chroot_dir)
        guard = Guard(self._log, lambda what, container_id: queue.limited(config.delegate_timeout_s, what, container_id))
        in_process = InProcessExecution(registry, self._programs, lambda: guard, self._log)
        return wiring.World(self._environ, self._programs, in_process, plugins)

    def _certificate(self, config: DaemonConfig) -> NodeCertificate | None:
        """The node's own certificate, once it is there; None where the daemon has none."""
        if config.certificate is None:
            return None
        certificate = NodeCertificate(config.certificate, self._environ, self._log)
        certificate.start()
        try:
            certificate.wait(self._stop)
        except MultusError:
            certificate.stop()
            raise
        return certificate

    def _cache(self, config: DaemonConfig, certificate: NodeCertificate | None) -> KubeCache:
        node_name = self._environ.get("MULTUS_NODE_NAME", "")
        if certificate is not None and config.certificate is not None:
            path = config.certificate.bootstrap_kubeconfig
            return kube_access.cache(path, self._environ, node_name, self._log, certificate_path=certificate.path)
        host, port = config.api_server
        environ = dict(self._environ)
        if host:
            environ.update(KUBERNETES_SERVICE_HOST=host, KUBERNETES_SERVICE_PORT=port)
        in_cluster = environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT")
        kubeconfig = "" if in_cluster else str(config.document.get("kubeconfig") or "")
        if not in_cluster and not kubeconfig:
            raise InvalidConfigError(
                "no API server: KUBERNETES_SERVICE_HOST and KUBERNETES_SERVICE_PORT are not set, and there is no key \"kubeconfig\""
            )
        return kube_access.cache(kubeconfig, environ, node_name, self._log)

    def _watch_certificate(self, metrics: Metrics, certificate: NodeCertificate, cache: KubeCache) -> None:
        metrics.watch("multus_certificate_expires_seconds", "Until the node's certificate is over", certificate.seconds_left)
        certificate.on_renewed += [cache.renew, metrics.renewals.inc]
        certificate.on_failed.append(lambda problem: self._tell_node("CertificateNotRenewed", problem))

    def _tell_node(self, reason: str, message: str) -> None:
        """A warning event of our node."""
        node = self._environ.get("MULTUS_NODE_NAME", "")
        if node and self._events is not None:
            self._events.create_event(Node(node), "Warning", reason, message)

    def _kill_delegates(self) -> None:
        """So that none of them attaches anything when nobody is there any more to detach it."""
        if self._programs is not None:
            self._programs.kill_all()

    def _on_configuration(self, kind: str, message: str) -> None:
        """What the configuration manager did, and has logged."""
        if kind == "repaired":
            self._metrics.repairs.inc()
        elif kind == "indicator-gone":
            self._status = 2
            self._stop.set()
        if kind in NODE_EVENTS:
            self._tell_node(NODE_EVENTS[kind], message)

    def _signalled(self, number: int, _frame: object) -> None:
        if self._stop.is_set():  # the second signal: at once
            self._kill_delegates()
            os._exit(1)
        self._stop.set()
        if self._primary is not None:
            self._primary.cancel()

    def _failed(self, error: MultusError, status: int) -> int:
        """Say why on standard error, whatever the log settings are."""
        print(f"multus-daemon: {error}", file=sys.stderr)
        self._log.error("daemon.failed", error=error, status=status)
        return status


def _read(path: str) -> dict[str, object]:
    try:
        return load_object(files.read(path), path)
    except OSError as exc:
        raise IOFailureError(f"cannot read {path}: {exc.strerror}") from exc


def _wait_for_file(path: str, stop: Stop) -> None:
    """Wait for the readiness indicator file.  Raises IOFailureError after 45 s."""
    if not path:
        return
    end = time.monotonic() + READY_TIMEOUT_S
    while not os.path.exists(os.path.abspath(path)) and not stop.is_set():
        if time.monotonic() > end:
            raise IOFailureError(f"key \"readinessindicatorfile\" {path!r} did not appear within {READY_TIMEOUT_S:.0f} s")
        stop.wait(1.0)


if __name__ == "__main__":
    main()
