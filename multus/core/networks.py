"""One verb on one network: its conflist, plugin by plugin, in the order of the CNI specification.

Spec: CNI 1.1.0 §3, "Lifecycle & ordering".
"""

from __future__ import annotations

from multus.core import derive
from multus.errors import DelegateError, DelegateNotFoundError, MultusError, NotAvailableError, UnknownContainerError
from multus.protocol import results, versions
from multus.protocol.environment import format_generic_args
from multus.types.invocation import CNICommand, Invocation

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from multus.core.context import Context
    from multus.types.config import ConfList, PluginConf
    from multus.types.delegate import Attachment, Delegate
    from multus.types.invocation import Outcome
    from multus.types.result import Result


def add(attachment: Attachment, context: Context, prev_result: Result | None = None) -> tuple[Result, tuple[str, ...]]:
    """Run ADD of each plugin in order, each with the result of the one before; the last result, and who has run each.

    Args:
        prev_result: What the first plugin gets, when Multus itself was called in a chain.

    Raises:
        MultusError: The first plugin that failed, by name, with its own code; or a result that cannot be read.
    """
    conf = attachment.delegate.conf
    result = prev_result
    runners = []
    for index, plugin in enumerate(conf.plugins):
        given = None if result is None else results.convert(result, conf.cni_version)
        try:
            outcome = _invoke(CNICommand.ADD, attachment, plugin, context, given)
        except MultusError as exc:
            exc.attached_nothing = index == 0 and (exc.attached_nothing or (isinstance(exc, DelegateError) and exc.is_answer))
            raise
        result = outcome.result
        if result is None:
            raise MultusError(f"plugin {plugin.type!r} answered ADD without a result")
        runners.append(outcome.runner)
    if result is None:
        raise MultusError(f"network {conf.name!r} has no plugin")
    return result, tuple(runners)


def delete(attachment: Attachment, context: Context) -> tuple[str, ...]:
    """Run DEL of each plugin in reverse order, each with the result of the ADD; the first failure ends it.

    Without a recorded result the ADD never completed: a plugin that nothing serves has then never run.

    Returns:
        The links of the pod's namespace that are still to be removed.
    """
    conf = attachment.delegate.conf
    prev_result = _previous(attachment, "0.4.0")
    links: tuple[str, ...] = ()
    for plugin, runner in reversed(_plugins(attachment)):
        try:
            links += _invoke(CNICommand.DEL, attachment, plugin, context, prev_result, runner).links
        except DelegateNotFoundError:
            if attachment.result is not None:
                raise
            context.log.verbose("delegate.del.skipped", network=conf.name, plugin=plugin.type, cause="it never ran")
    return links


def check(attachment: Attachment, context: Context) -> None:
    """Run CHECK of each plugin in order, unless the network's version has none or its configuration disables it."""
    conf = attachment.delegate.conf
    if conf.disable_check or not versions.allows(CNICommand.CHECK, conf.cni_version):
        return
    if attachment.result is None:
        raise UnknownContainerError(f"no result of an ADD is recorded for interface {attachment.ifname!r}, so there is nothing to check")
    prev_result = results.convert(attachment.result, conf.cni_version)
    for plugin, runner in _plugins(attachment):
        _invoke(CNICommand.CHECK, attachment, plugin, context, prev_result, runner)


def status(delegate: Delegate, context: Context) -> None:
    """Run STATUS of each plugin in order, unless the network's version has none; the plugin's own error passes."""
    if versions.allows(CNICommand.STATUS, delegate.conf.cni_version):
        for plugin in delegate.conf.plugins:
            try:
                context.hooks.invoke_delegate(_bare(CNICommand.STATUS, delegate.conf, plugin, context, {}), delegate, context.config)
            except DelegateNotFoundError as exc:
                raise NotAvailableError(exc.msg) from exc


def collect(delegate: Delegate, attachments: Sequence[Mapping[str, str]], context: Context) -> list[MultusError]:
    """Run GC of each plugin with the network's valid attachments, whatever fails; the failures.

    Args:
        attachments: Objects with ``containerID`` and ``ifname``.

    Spec: CNI 1.1.0 §2, GC; the misspelt older key goes along, as the common library sends it.
    """
    conf = delegate.conf
    if conf.disable_gc or not versions.allows(CNICommand.GC, conf.cni_version):
        return []
    failures: list[MultusError] = []
    more: dict[str, object] = {"cni.dev/valid-attachments": attachments, "cni.dev/attachments": attachments}
    for plugin in conf.plugins:
        try:
            context.hooks.invoke_delegate(_bare(CNICommand.GC, conf, plugin, context, more), delegate, context.config)
        except MultusError as exc:
            failures.append(exc.prefixed(f"network {conf.name!r}: plugin {plugin.type!r}"))
    return failures


def _plugins(attachment: Attachment) -> list[tuple[PluginConf, str]]:
    """The plugins in order, each with who has run its ADD; empty: that is not known."""
    plugins = attachment.delegate.conf.plugins
    runners = attachment.runners if len(attachment.runners) == len(plugins) else ("",) * len(plugins)
    return list(zip(plugins, runners, strict=True))


def _invoke(
    command: CNICommand, attachment: Attachment, plugin: PluginConf, context: Context, prev_result: Result | None, runner: str = ""
) -> Outcome:
    delegate = attachment.delegate._replace(preference=runner or attachment.delegate.preference)
    conf = delegate.conf
    pairs = attachment.generic_args if command is CNICommand.ADD else derive.renewed_args(attachment, context.call)
    invocation = Invocation(
        command,
        plugin.type,
        derive.request_configuration(conf, plugin, prev_result, attachment.capability_args),
        attachment.container_id,
        attachment.netns,
        attachment.ifname,
        format_generic_args(pairs),
        context.search_path,
    )
    start = context.clock.monotonic()
    log = context.log.bind(network=conf.name, plugin=plugin.type, ifname=attachment.ifname)
    event = f"delegate.{command.lower()}"
    try:
        outcome = context.hooks.invoke_delegate(invocation, delegate, context.config)
    except MultusError as exc:
        log.error(f"{event}.failed", seconds=f"{context.clock.monotonic() - start:.3f}", code=exc.code, error=exc)
        raise exc.prefixed(f"plugin {plugin.type!r}") from exc
    finally:
        if context.observe is not None:
            context.observe(str(command), plugin.type, conf.name, context.clock.monotonic() - start)
    log.verbose(f"{event}.complete", seconds=f"{context.clock.monotonic() - start:.3f}")
    return outcome


def _bare(command: CNICommand, conf: ConfList, plugin: PluginConf, context: Context, more: Mapping[str, object]) -> Invocation:
    """A call without attachment parameters."""
    request = {**derive.request_configuration(conf, plugin, None, {}), **more}
    return Invocation(command, plugin.type, request, path=context.search_path)


def _previous(attachment: Attachment, since: str) -> Result | None:
    """The recorded result in the network's version; None if there is none, or none that could be converted."""
    conf = attachment.delegate.conf
    if attachment.result is None or not versions.at_least(conf.cni_version, since):
        return None
    try:
        return results.convert(attachment.result, conf.cni_version)
    except MultusError:
        return None
