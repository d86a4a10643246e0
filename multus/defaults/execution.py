"""How a delegate runs: a binary on the search path, or a Python object of the group ``multus.delegates``."""

from __future__ import annotations

from multus.errors import DelegateError, DelegateNotFoundError, MultusError, UnsupportedFieldError
from multus.protocol import results
from multus.protocol.documents import dumps, loads
from multus.protocol.environment import delegate_environment
from multus.types.invocation import CNICommand, Outcome
from multus.types.result import Result

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Any

    from multus.core.ports import Guard, Log, Programs, Registry
    from multus.types.config import MultusConfig
    from multus.types.delegate import Delegate
    from multus.types.invocation import Completed, Invocation

_SHOWN = 500
"""How much of a delegate's own output an error shows, in characters."""
_DECLINED_MAX = 1000
"""How many declined configurations are remembered, so as to be logged once."""
_METHODS = {
    CNICommand.ADD: "add", CNICommand.DEL: "delete", CNICommand.CHECK: "check", CNICommand.GC: "gc", CNICommand.STATUS: "status"
}  # fmt: skip
_OPTIONAL = ("gc", "status")


class InProcessExecution:
    """Runs delegates that are Python objects; one for a process.

    With the preference ``binary`` only where no binary has the type's name, so that installing a package never
    shadows one; with ``in-process`` first, unless the object declines the configuration.  Whatever the object raises,
    and whatever it leaves changed in its thread, is the failure of this one call.

    Args:
        guard: Makes the guard, once a delegate is to run.
    """

    def __init__(self, registry: Registry, programs: Programs, guard: Callable[[], Guard], log: Log) -> None:
        self._registry = registry
        self._programs = programs
        self._guard = guard
        self._log = log
        self._declined: set[tuple[str, object, str]] = set()

    def multus_invoke_delegate(self, invocation: Invocation, delegate: Delegate, config: MultusConfig) -> Outcome | None:
        has_binary = self._programs.find(invocation.type, invocation.path) is not None
        if has_binary and (delegate.preference or config.delegate_preference) == "binary":
            return None
        found = self._registry.delegate(invocation.type)
        if found is None:
            return None
        what = f"the in-process delegate {invocation.type!r}"
        with self._guard().block(f"{what} ({invocation.command}, container {invocation.container_id!r})", invocation.container_id):
            try:
                reason = _refusal(found, invocation)
                if not reason:
                    return _call(found, invocation)
            except MultusError:
                raise
            except BaseException as exc:  # third-party code: whatever it raises, sys.exit too, is the delegate's failure
                raise DelegateError(f"the in-process delegate failed: {type(exc).__name__}: {exc}") from exc
        if not has_binary:
            raise DelegateNotFoundError(f"{what} declines network {invocation.config.get('name')!r}: {reason}, and there is no binary")
        self._tell_declined(invocation, reason)
        return None

    def _tell_declined(self, invocation: Invocation, reason: str) -> None:
        """Log, once in the life of this process, that a network's binary takes over."""
        key = (invocation.type, invocation.config.get("name"), reason)
        if key not in self._declined:
            if len(self._declined) >= _DECLINED_MAX:
                self._declined.clear()
            self._declined.add(key)
            self._log.warning("delegate.declined", plugin=key[0], network=key[1], reason=reason, then="the binary serves it")


class BinaryExecution:
    """Runs the binary of the type's name.  Spec: CNI 1.1.0 §2 and §5."""

    def __init__(self, programs: Programs, environment: Mapping[str, str]) -> None:
        self._programs = programs
        self._environment = environment

    def multus_invoke_delegate(self, invocation: Invocation, delegate: Delegate, config: MultusConfig) -> Outcome | None:
        path = self._programs.find(invocation.type, invocation.path)
        if path is None:
            return None
        environment = delegate_environment(invocation, self._environment)
        completed = self._programs.run(path, environment, dumps(invocation.config).encode())
        if completed.stderr:
            self._programs.forward(completed.stderr)
        if completed.status != 0:
            raise _failure(completed)
        return Outcome(_result(completed, invocation), runner="binary") if invocation.command is CNICommand.ADD else Outcome()


def _refusal(found: Any, invocation: Invocation) -> str:
    """Why a delegate declines the configuration; empty: it serves it."""
    if not hasattr(found, "accepts"):
        return ""
    try:
        return "" if found.accepts(invocation) else "it does not serve this configuration"
    except UnsupportedFieldError as exc:
        return exc.msg


def _call(found: Any, invocation: Invocation) -> Outcome:
    if invocation.command is CNICommand.DEL:
        links = _released(found, invocation)
        if links is not None:
            return Outcome(links=links)
    name = _METHODS[invocation.command]
    method = getattr(found, name, None)
    if method is None:
        if name in _OPTIONAL:
            return Outcome()
        raise DelegateError(f"the in-process delegate has no method {name!r}")
    answer = method(invocation)
    if invocation.command is not CNICommand.ADD:
        return Outcome()
    if not isinstance(answer, Result):
        raise DelegateError(f"the in-process delegate answered ADD with {type(answer).__name__}, not with a Result")
    version = str(invocation.config.get("cniVersion") or "")
    try:
        return Outcome(results.convert(results.parse(answer.document, version), version), runner="in-process")
    except MultusError as exc:
        raise DelegateError(f"the in-process delegate answered a result that is not valid: {exc.msg}") from exc


def _released(found: Any, invocation: Invocation) -> tuple[str, ...] | None:
    """The links that a delegate with ``release`` leaves to Multus; None: it has none, or it failed, and ``delete`` is next."""
    release = getattr(found, "release", None)
    if release is None:
        return None
    try:
        return tuple(release(invocation))
    except Exception:
        return None  # the whole of DEL goes on where one step fails, and raises what fails again


def _result(completed: Completed, invocation: Invocation) -> Result:
    try:
        return results.parse(loads(completed.stdout, "its result"), str(invocation.config.get("cniVersion") or ""))
    except MultusError as exc:
        raise DelegateError(f"it answered {_text(completed.stdout)!r}, and {exc.msg}") from exc


def _failure(completed: Completed) -> DelegateError:
    """The delegate's own error where it printed one, else what it left behind."""
    try:
        document = loads(completed.stdout, "its answer")
    except MultusError:
        document = None
    is_answer = completed.status > 0
    if isinstance(document, dict) and isinstance(document.get("code"), int) and (document["code"] or document.get("msg")):
        msg = str(document.get("msg") or f"it failed with code {document['code']} and said nothing")
        return DelegateError(msg, str(document.get("details") or ""), int(document["code"]) or 999, is_answer=is_answer)
    ended = f"exit status {completed.status}" if is_answer else f"signal {-completed.status}"
    said = _text(completed.stderr) or _text(completed.stdout)
    return DelegateError(f"it failed with {ended}" + (f": {said}" if said else " and said nothing"), is_answer=is_answer)


def _text(output: bytes) -> str:
    return output.decode(errors="replace").strip()[:_SHOWN]
