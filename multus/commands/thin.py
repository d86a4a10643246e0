"""One call of the thin plugin: environment and configuration wired to the core, the built-in plugins and the adapters.

Heavy libraries load only where a configuration at hand needs them (``docs/performance.md``).
"""

from __future__ import annotations

import time
from _thread import allocate_lock

from multus.adapters.logs import Log
from multus.adapters.process import Processes
from multus.commands import wiring
from multus.commands.late_kube import LateKube
from multus.core import attach
from multus.defaults.execution import InProcessExecution
from multus.errors import IncompatibleVersionError, MultusError
from multus.hooks import manager, manifest
from multus.protocol import environment, multus_config, versions
from multus.types.invocation import CNICommand

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.adapters.guard import Guard
    from multus.core.attach import Attached
    from multus.core.context import Context
    from multus.types.config import MultusConfig
    from multus.types.invocation import Call
    from multus.types.result import Result

DEL_API_DEADLINE_S = 2.5
"""How long DEL waits for the API server, which it asks only when nothing is recorded."""


class ThinCall:
    """One call, from its environment: serve it, answer, announce."""

    def __init__(self, environ: Mapping[str, str]) -> None:
        self.cni_version = versions.SUPPORTED[-1]
        """The version to answer in: the newest until the configuration says another."""
        self._environ = environ
        self._context: Context | None = None
        self._attached: Attached | None = None

    def serve(self, stdin: bytes) -> Result | None:
        """Do what is asked; the result of an ADD.

        Raises:
            MultusError: With the code that the CNI specification gives the failure.
        """
        call = environment.parse_call(self._environ)
        config = multus_config.load(stdin)
        self.cni_version = config.cni_version
        if not versions.allows(call.command, config.cni_version):
            raise IncompatibleVersionError(f"configuration of cniVersion {config.cni_version!r} does not allow {call.command}")
        log = Log.from_config(config.log).bind(container=call.container_id, pod=f"{call.pod.namespace}/{call.pod.name}")
        for warning in config.warnings:
            log.warning("configuration", problem=warning)
        self._context = _context(call, config, self._environ, log)
        event, start = call.command.lower(), time.monotonic()
        log.verbose(f"{event}.started")
        try:
            self._run(self._context)
        except MultusError as exc:
            log.error(f"{event}.failed", code=exc.code, error=exc, seconds=f"{time.monotonic() - start:.3f}")
            raise
        log.verbose(f"{event}.complete", seconds=f"{time.monotonic() - start:.3f}")
        return self._attached.result if self._attached is not None else None

    def announce(self) -> None:
        """Tell the plugins what stands, after the answer."""
        if self._context is not None and self._attached is not None:
            attach.announce(self._attached, self._context)

    def _run(self, context: Context) -> None:
        if context.call.command is CNICommand.ADD:
            self._attached = attach.add(context)
            return
        if context.call.command is CNICommand.DEL:
            attach.delete(context)
            return
        from multus.core import upkeep  # the verbs that come seldom

        verbs = {CNICommand.CHECK: upkeep.check, CNICommand.GC: upkeep.collect, CNICommand.STATUS: upkeep.status}
        verbs[context.call.command](context)


def _context(call: Call, config: MultusConfig, environ: Mapping[str, str], log: Log) -> Context:
    deadline_s = min(config.api_deadline_s, DEL_API_DEADLINE_S) if call.command is CNICommand.DEL else config.api_deadline_s
    kube = LateKube.configured(config.kubeconfig, environ, deadline_s, time)
    registry = manifest.Registry()
    disabled = environment.split_list(environ.get(manager.DISABLED_VARIABLE, ""))
    plugins = registry.hook_plugins(name for name in config.plugins if name not in disabled)
    programs = Processes()
    in_process = InProcessExecution(registry, programs, _LateGuard(log), log)
    world = wiring.World(environ, programs, in_process, plugins)
    return wiring.context(call, config, world, log, kube, kube)


class _LateGuard:
    """Makes the guard once, when the first in-process delegate is to run; several may run side by side."""

    def __init__(self, log: Log) -> None:
        self._log = log
        self._lock = allocate_lock()
        self._guard: Guard | None = None

    def __call__(self) -> Guard:
        with self._lock:
            if self._guard is None:
                from multus.adapters.guard import Guard  # for calls that meet an in-process delegate

                self._guard = Guard(self._log)
            return self._guard
