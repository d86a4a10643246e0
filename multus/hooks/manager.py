"""Registration and calls: plugins become a ``Hooks``, the typed facade that everything else uses.

``hooks_for`` calls the built-in plugins alone, without importing pluggy (9 ms); ``load`` adds third parties through
pluggy.  Both run hooks in the same order, which a test pins: third parties by name, then built-ins as registered.
"""

from __future__ import annotations

from multus.errors import DelegateNotFoundError, InvalidConfigError, MultusError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence
    from typing import Any

    from multus.types.config import MultusConfig
    from multus.types.delegate import Attachment, Delegate
    from multus.types.invocation import Invocation, Outcome
    from multus.types.pod import NetworkStatus, Pod
    from multus.types.result import Result
    from multus.types.selection import NetworkSelectionElement

DISABLED_VARIABLE = "MULTUS_DISABLED_PLUGINS"


class Hooks:
    """The hooks, one typed method each.  No other module knows how a hook is called."""

    def __init__(self, relay: Any) -> None:
        self._relay = relay

    def select_networks(self, pod: Pod, config: MultusConfig) -> tuple[NetworkSelectionElement, ...]:
        selections: tuple[NetworkSelectionElement, ...] | None = self._relay.first("multus_select_networks", pod=pod, config=config)
        return () if selections is None else selections

    def resolve_delegate(self, selection: NetworkSelectionElement, pod: Pod | None, config: MultusConfig) -> Delegate:
        delegate: Delegate | None = self._relay.first("multus_resolve_delegate", selection=selection, pod=pod, config=config)
        if delegate is None:
            raise InvalidConfigError(f"no plugin knows the network {selection.qualified_name!r}; is a kubeconfig configured?")
        return delegate

    def invoke_delegate(self, invocation: Invocation, delegate: Delegate, config: MultusConfig) -> Outcome:
        outcome: Outcome | None = self._relay.first("multus_invoke_delegate", invocation=invocation, delegate=delegate, config=config)
        if outcome is None:
            raise DelegateNotFoundError(
                f"plugin type {invocation.type!r} is not served: no such binary in {', '.join(invocation.path)} and no entry point"
            )
        return outcome

    def merge_results(self, attachments: tuple[Attachment, ...], config: MultusConfig) -> Result:
        result: Result | None = self._relay.first("multus_merge_results", attachments=attachments, config=config)
        if result is None:
            raise MultusError("no plugin merged the results")
        return result

    def report_status(self, statuses: tuple[NetworkStatus, ...], pod: Pod, config: MultusConfig) -> None:
        self._relay.each("multus_report_status", statuses=statuses, pod=pod, config=config)

    def report_attachment(self, attachment: Attachment, pod: Pod) -> None:
        self._relay.each("multus_report_attachment", attachment=attachment, pod=pod)

    def report_problem(self, reason: str, error: MultusError, pod: Pod) -> None:
        self._relay.each("multus_report_problem", reason=reason, error=error, pod=pod)


def hooks_for(builtins: Sequence[object]) -> Hooks:
    """Hooks of the built-in plugins alone, called in their order."""
    return Hooks(_BuiltinRelay(builtins))


def load(builtins: Sequence[object], plugins: Mapping[str, object], disabled: Iterable[str] = ()) -> Hooks:
    """Hooks of the built-in plugins and of third-party ones, by name.

    Raises:
        InvalidConfigError: A plugin's hook is unknown or its signature does not fit; names plugin and hook.
    """
    import pluggy

    from multus.hooks import spec

    manager = _manager(builtins)
    manager.add_hookspecs(spec)
    for index, builtin in enumerate(builtins):
        manager.register(builtin, name=f"multus.builtin.{index}")
    for name in disabled:
        manager.set_blocked(name)
    for name in sorted(plugins, reverse=True):
        try:
            manager.register(plugins[name], name=name)
            manager.check_pending()
        except (pluggy.PluginValidationError, ValueError) as exc:
            raise InvalidConfigError(f"hook plugin {name!r} cannot be used: {exc}") from exc
    return Hooks(_PluggyRelay(manager))


def _manager(builtins: Sequence[object]) -> Any:
    import pluggy

    from multus.hooks import spec

    class Manager(pluggy.PluginManager):
        """Knows the hooks of built-in plugins by their names, so that these need no decorator and no pluggy."""

        def parse_hookimpl_opts(self, plugin: object, name: str) -> Any:
            if any(plugin is builtin for builtin in builtins):
                if not name.startswith("multus_"):
                    return None
                return {"wrapper": False, "hookwrapper": False, "optionalhook": False, "tryfirst": False, "trylast": True, "specname": None}
            return super().parse_hookimpl_opts(plugin, name)

    return Manager(spec.PROJECT)


class _BuiltinRelay:
    """Calls the built-ins in order."""

    def __init__(self, builtins: Sequence[object]) -> None:
        self._builtins = builtins

    def first(self, name: str, **arguments: object) -> object:
        for implementation in self._implementations(name):
            answer: object = implementation(**arguments)
            if answer is not None:
                return answer
        return None

    def each(self, name: str, **arguments: object) -> None:
        for implementation in self._implementations(name):
            implementation(**arguments)

    def _implementations(self, name: str) -> list[Any]:
        return [getattr(builtin, name) for builtin in self._builtins if hasattr(builtin, name)]


class _PluggyRelay:
    """Calls through pluggy, which knows from the specification whether the first answer wins.

    Third parties' exceptions stop here: they leave as MultusError, so that an ADD is always undone.
    """

    def __init__(self, manager: Any) -> None:
        self._hook = manager.hook

    def first(self, name: str, **arguments: object) -> object:
        try:
            answer: object = getattr(self._hook, name)(**arguments)
        except MultusError:
            raise
        except (Exception, SystemExit) as exc:  # a plugin that leaves would leave with success
            raise MultusError(f"a plugin failed in {name}: {type(exc).__name__}: {exc}") from exc
        return answer

    each = first
