"""What the daemon counts and measures, and the port that tells it.  The only import of prometheus_client.

``multus_server_request_total`` is the reference's own metric, with its labels.
"""

from __future__ import annotations

import socket
import sys
import threading
import traceback

from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram, make_wsgi_app
from prometheus_client.exposition import ThreadingWSGIServer
from prometheus_client.gc_collector import GCCollector
from prometheus_client.process_collector import ProcessCollector

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping
    from typing import Any
    from wsgiref.simple_server import WSGIServer

    from multus.core.ports import Log

_BUCKETS = (0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1, 2.5, 5, 10, 30, 60, 120)
_METHODS = frozenset(("get", "put", "head", "post", "delete", "connect", "options", "notify", "trace", "patch"))
_HANDLERS = frozenset(("/cni", "/delegate", "/healthz", "/readyz"))
_RETRY_MAX_S = 60.0
_HEAD_TIMEOUT_S = 10.0
_LOOK_UP_S = 0.5


class Metrics:
    """The daemon's metrics, in a registry of their own."""

    def __init__(self) -> None:
        self.registry = CollectorRegistry()
        ProcessCollector(registry=self.registry)
        GCCollector(registry=self.registry)
        self._server_requests = Counter(
            "multus_server_request", "Answers on the node socket", ("handler", "code", "method"), registry=self.registry
        )
        self._requests = Counter(
            "multus_requests", "CNI calls by verb and error code, 0 for success", ("command", "code"), registry=self.registry
        )
        self._seconds = self._histogram("multus_request_duration_seconds", "CNI calls, without the wait for their turn", "command")
        self._delegate_seconds = self._histogram("multus_delegate_duration_seconds", "Calls of delegates", "command", "type", "network")
        self._errors = Counter("multus_errors", "Failed CNI calls by error code", ("code",), registry=self.registry)
        self.renewals = Counter("multus_certificate_renewals", "Times the node's certificate was renewed", registry=self.registry)
        self.repairs = Counter("multus_configuration_repairs", "Times the own configuration file was put back", registry=self.registry)

    def _histogram(self, name: str, text: str, *labels: str) -> Histogram:
        return Histogram(name, text, labels, buckets=_BUCKETS, registry=self.registry)

    def watch(self, name: str, text: str, value: Callable[[], float], **labels: str) -> None:
        """A gauge that asks for its value when it is read."""
        gauge = Gauge(name, text, tuple(labels), registry=self.registry)
        (gauge.labels(**labels) if labels else gauge).set_function(value)

    def watch_each(self, name: str, text: str, label: str, values: Mapping[str, Callable[[], float]]) -> None:
        """A gauge with one value per name."""
        gauge = Gauge(name, text, (label,), registry=self.registry)
        for each, value in values.items():
            gauge.labels(each).set_function(value)

    def answered(self, path: str, method: str, status: int) -> None:
        """Count one answer on the node socket."""
        lowered = method.lower()
        self._server_requests.labels(
            path if path in _HANDLERS else "NotFound", str(status), lowered if lowered in _METHODS else "unknown"
        ).inc()

    def served(self, command: str, code: int, seconds: float) -> None:
        """Count one CNI call."""
        self._requests.labels(command, str(code)).inc()
        self._seconds.labels(command).observe(seconds)
        if code:
            self._errors.labels(str(code)).inc()

    def delegated(self, command: str, delegate_type: str, network: str, seconds: float) -> None:
        """Count one call of a delegate."""
        self._delegate_seconds.labels(command, delegate_type, network).observe(seconds)


class MetricsServer:
    """``/metrics`` over HTTP; a port that is taken is tried again, and said."""

    def __init__(self, metrics: Metrics, address: str, port: int, log: Log, *, debug: bool = False) -> None:
        self._app = make_wsgi_app(metrics.registry)
        self._where = (address, port)
        self._log = log
        self._debug = debug
        self._stopping = threading.Event()
        self._port = 0
        self._thread = threading.Thread(target=self._serve, name="metrics", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def stop(self) -> None:
        self._stopping.set()
        self._thread.join(5)

    @property
    def port(self) -> int:
        """The port that is served; 0: none yet."""
        return self._port

    def _serve(self) -> None:
        delay_s = 1.0
        while not self._stopping.is_set():
            try:
                server = _bound(*self._where, self._log)
            except OSError as exc:
                self._log.error("metrics.port.unavailable", address=self._where[0], port=self._where[1], error=exc, retry_s=delay_s)
                self._stopping.wait(delay_s)
                delay_s = min(delay_s * 2, _RETRY_MAX_S)
                continue
            server.set_app(self._answer)
            self._port = server.server_port
            while not self._stopping.is_set():
                server.handle_request()
            server.server_close()

    def _answer(self, environ: dict[str, Any], start_response: Any) -> Iterable[bytes]:
        path = environ["PATH_INFO"]
        if path == "/metrics":
            told: Iterable[bytes] = self._app(environ, start_response)
            return told
        if path == "/debug/threads" and self._debug:
            start_response("200 OK", [("Content-Type", "text/plain; charset=utf-8")])
            return [_stacks().encode()]
        start_response("404 Not Found", [("Content-Type", "text/plain; charset=utf-8")])
        return [b"/metrics is here\n"]


def _bound(address: str, port: int, log: Log) -> WSGIServer:
    """A server that listens, answers each request in a thread of its own, and looks up twice a second whether it is to end."""
    from wsgiref.simple_server import WSGIRequestHandler

    class Connection(WSGIRequestHandler):
        timeout = _HEAD_TIMEOUT_S

        def log_message(self, format: str, *args: object) -> None:  # noqa: A002  # the base class's name
            """Requests for metrics are not worth a line."""

    class Server(ThreadingWSGIServer):
        timeout = _LOOK_UP_S
        address_family = socket.AF_INET6 if ":" in address else socket.AF_INET

        def handle_error(self, request: object, client_address: object) -> None:
            log.debug("metrics.request.failed", error=sys.exc_info()[1])

    return Server((address, port), Connection)


def _stacks() -> str:
    """The stacks of all threads, without values."""
    names = {thread.ident: thread.name for thread in threading.enumerate()}
    return "\n".join(
        f"{names.get(ident, ident)}\n{''.join(traceback.format_stack(frame))}" for ident, frame in sys._current_frames().items()
    )
