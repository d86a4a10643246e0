"""What the daemon does with a request of the node socket: understand it, serve it in a worker, answer."""

from __future__ import annotations

import time

from multus.adapters import server
from multus.commands import wiring
from multus.core import attach, hotplug, upkeep
from multus.errors import DecodingError, IncompatibleVersionError, MultusError, TryAgainLaterError
from multus.protocol import daemon_config, multus_config, node_api, versions
from multus.protocol.documents import load_object, lookup
from multus.types.invocation import CNICommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.adapters.metrics import Metrics
    from multus.adapters.work_queue import WorkQueue
    from multus.core import ports
    from multus.core.attach import Attached
    from multus.core.context import Context
    from multus.protocol import wire
    from multus.types.daemon import DaemonConfig, NodeRequest
    from multus.types.invocation import Call

_NEWEST = versions.SUPPORTED[-1]
_ANSWER_ONLY = frozenset((CNICommand.ADD, CNICommand.CHECK, CNICommand.STATUS))
"""Verbs that are of no use to anybody once the client has gone."""
DEL_API_DEADLINE_S = 2.5


class NodeCalls(server.Handler):
    """Serves ``/cni`` and ``/delegate``."""

    def __init__(
        self,
        config: DaemonConfig,
        world: wiring.World,
        kube: Callable[[float], ports.Kube],
        events: ports.EventSink,
        metrics: Metrics,
        log: ports.Log,
    ) -> None:
        """
        Args:
            kube: Makes the access to the API server of one request, given its deadline in seconds.
        """
        self._config = config
        self._world = world
        self._kube = kube
        self._events = events
        self._metrics = metrics
        self._log = log
        self.readiness: list[Callable[[], str]] = []
        """Each tells why ADDs should wait; empty: for its part they need not."""

    def not_ready(self) -> str:
        return next((reason for check in self.readiness if (reason := check())), "")

    def observe(self, path: str, method: str, status: int) -> None:
        self._metrics.answered(path, method, status)

    def prepare(self, request: wire.Request) -> server.Work | server.Answer:
        is_ours = node_api.HANDSHAKE_HEADER in request.headers
        try:
            asked = node_api.decode_request(request.body)
            call = node_api.call_of(asked.env)
        except MultusError as exc:
            return _refusal(exc, _NEWEST, is_ours)
        is_hotplug = request.target.startswith("/delegate")
        return server.Work(
            call.container_id,
            lambda: self._serve(asked, call, is_hotplug, is_ours),
            lambda reason: self._not_started(reason, is_ours),
            is_pointless_when_abandoned=call.command in _ANSWER_ONLY,
        )

    def _not_started(self, reason: str, is_ours: bool) -> server.Answer:
        """While ADDs should wait, status 503, by which our shim knows that the request can wait as well."""
        status = 503 if self.not_ready() else 400
        return _refusal(TryAgainLaterError(f"the request was not started: {reason}"), _NEWEST, is_ours, status)

    def replay(self, body: bytes, served: Callable[[str], None], queue: WorkQueue) -> None:
        """Queue a request that a shim left on disk.

        Args:
            served: Called with why it failed; empty: it did not.

        Raises:
            DecodingError: It is no request of a DEL.
        """
        asked = node_api.decode_request(body)
        load_object(asked.config, "configuration")
        try:
            call = node_api.call_of(asked.env)
        except MultusError as exc:
            raise DecodingError(f"no call of a DEL: {exc.msg}") from exc
        if call.command is not CNICommand.DEL:
            raise DecodingError(f"a {call.command} was left, a DEL is expected")

        def run() -> None:
            answer = self._serve(asked, call, False, False)
            served("" if answer.status == 200 else answer.body.decode(errors="replace"))

        queue.submit(call.container_id, run, served)

    def _serve(self, asked: NodeRequest, call: Call, is_hotplug: bool, is_ours: bool) -> server.Answer:
        start = time.monotonic()
        log = self._log.bind(container=call.container_id, pod=f"{call.pod.namespace}/{call.pod.name}")
        event = f"{'hotplug.' if is_hotplug else ''}{call.command.lower()}"
        cni_version, code = _NEWEST, 0
        log.verbose(f"{event}.started")
        try:
            context = self._context(asked, call, is_hotplug, log)
            cni_version = context.config.delegates[0].cni_version if is_hotplug else context.config.cni_version
            attached = _run_hotplug(asked, context) if is_hotplug else _run(context)
        except MultusError as exc:
            code = exc.code
            log.error(f"{event}.failed", code=code, error=exc, seconds=f"{time.monotonic() - start:.3f}")
            return _refusal(exc, cni_version, is_ours)
        except Exception as exc:  # a fault of ours is this request's failure, not the daemon's
            code = 999
            log.error(f"{event}.failed", error=f"internal error: {type(exc).__name__}: {exc}")
            return _refusal(MultusError(f"internal error: {type(exc).__name__}: {exc}"), cni_version, is_ours)
        finally:
            self._metrics.served(str(call.command), code, time.monotonic() - start)
        log.verbose(f"{event}.complete", seconds=f"{time.monotonic() - start:.3f}")
        if attached is None:
            return server.Answer(200)
        body = node_api.encode_result(attached.result, cni_version, is_our_shim=is_ours)
        return server.json_answer(200, body, lambda: attach.announce(attached, context))

    def _context(self, asked: NodeRequest, call: Call, is_hotplug: bool, log: ports.Log) -> Context:
        document = load_object(asked.config, "configuration")
        if is_hotplug:
            settings = daemon_config.overlay({}, self._config)
            settings = {key: value for key, value in settings.items() if key.lower() != "clusternetwork"}
            config = multus_config.from_document({**settings, "name": "hotplug", "delegates": [document]})
        else:
            merged = daemon_config.overlay(document, self._config)
            asked_version = lookup(document, "cniVersion")
            if asked_version is not None:
                merged["cniVersion"] = asked_version  # what the caller speaks is not the daemon's to say
            config = multus_config.from_document(merged)
        if not versions.allows(call.command, config.cni_version) and not is_hotplug:
            raise IncompatibleVersionError(f"configuration of cniVersion {config.cni_version!r} does not allow {call.command}")
        for warning in config.warnings:
            log.warning("configuration", problem=warning)
        deadline_s = min(config.api_deadline_s, DEL_API_DEADLINE_S) if call.command is CNICommand.DEL else config.api_deadline_s
        inherited = {**self._world.environ, **{name: value for name, value in asked.env.items() if name.startswith("CNI_")}}
        world = self._world._replace(environ=inherited)
        context = wiring.context(call, config, world, log, self._kube(deadline_s), self._events)
        return context._replace(observe=self._metrics.delegated)


def _run(context: Context) -> Attached | None:
    if context.call.command is CNICommand.ADD:
        return attach.add(context)
    verbs = {
        CNICommand.DEL: attach.delete,
        CNICommand.CHECK: upkeep.check,
        CNICommand.GC: upkeep.collect,
        CNICommand.STATUS: upkeep.status,
    }
    verbs[context.call.command](context)
    return None


def _run_hotplug(asked: NodeRequest, context: Context) -> Attached | None:
    return hotplug.serve(hotplug.Plug(asked.attributes, asked.network), context)


def _refusal(error: MultusError, cni_version: str, is_ours: bool, status: int = 400) -> server.Answer:
    return server.json_answer(status, node_api.encode_error(error, cni_version, is_our_shim=is_ours))
