"""CHECK, STATUS and GC: attachments and delegates looked after, beyond ADD and DEL."""

from __future__ import annotations

from multus.core import delegates, detach, networks, pods, routes
from multus.errors import MultusError, NotAvailableError, UnknownContainerError
from multus.protocol import environment

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.context import Context
    from multus.types.delegate import Attachment, Delegate


def check(context: Context) -> None:
    """Run CHECK on every attachment of the container, in order, and read a moved default route back.

    Raises:
        UnknownContainerError: Code 3, the container was never attached.
        MultusError: The first complaint, with the delegate's own code.
    """
    with context.place():
        recorded = context.journal.read(context.call)
        if recorded is None:
            raise UnknownContainerError(f"container {context.call.container_id!r} is not attached")
    attachments = [attachment._replace(netns=context.call.netns) for attachment in recorded]
    for attachment in attachments:
        with context.place(attachment.network, f"interface {attachment.ifname!r}"):
            networks.check(attachment, context)
    with context.place():
        routes.verify(attachments, context.netns)


def status(context: Context) -> None:
    """Ask every delegate that each pod needs whether it can serve ADD.

    Raises:
        NotAvailableError: Code 50: the readiness file is missing, or a network cannot be resolved.
        MultusError: A delegate's own answer.
    """
    pods.require_ready(context)
    try:
        needed = delegates.every_pods(context)
    except MultusError as exc:
        raise NotAvailableError(exc.msg, exc.details) from exc
    for delegate in needed:
        networks.status(delegate, context)


def collect(context: Context) -> None:
    """Remove what belongs to no container that the runtime still counts, then let each network do the same.

    A container that is counted keeps all its interfaces.  Without the runtime's list nothing is stale.

    Raises:
        MultusError: All failures as one; what could not be removed is kept and tried again.
    """
    with context.journal.locked(exclusive=True):
        recorded = {container_id: _recorded(container_id, context) for container_id in context.journal.containers()}
        wanted = _networks(recorded, context)
        failures: list[MultusError] = []
        alive = context.config.valid_attachments
        counted = frozenset(recorded) if alive is None else frozenset(container_id for container_id, _ in alive)
        if alive is not None:
            for container_id in [container_id for container_id in recorded if container_id not in counted]:
                failures += _detach(container_id, recorded.pop(container_id), context)
            try:
                context.device_info.prune(counted | recorded.keys())
            except MultusError as exc:
                failures.append(exc)
        doubtful = context.journal.damaged() & counted
        if doubtful:
            failures.append(_doubt(doubtful))
            wanted = {}
        unrecorded = [] if alive is None else [(container_id, ifname) for container_id, ifname in alive if container_id not in recorded]
        for name, delegate in wanted.items():
            valid = [
                {"containerID": attachment.container_id, "ifname": attachment.ifname}
                for attachments in recorded.values()
                for attachment in attachments
                if attachment.network == name
            ]
            valid += [{"containerID": container_id, "ifname": ifname} for container_id, ifname in unrecorded]  # any network may be theirs
            failures += networks.collect(delegate, valid, context)
    detach.raise_all(failures)


def _detach(container_id: str, attachments: tuple[Attachment, ...], context: Context) -> list[MultusError]:
    """Detach a stale container; its failures name its pod, as ``CNI_ARGS`` named it at ADD."""
    pairs = attachments[0].generic_args if attachments else ()
    _, pod = environment.parse_generic_args(environment.format_generic_args(pairs), lenient=True)
    attachments = detach.outside_own_netns(attachments, context)
    return detach.detach(attachments, context._replace(call=context.call._replace(container_id=container_id, pod=pod)))


def _doubt(container_ids: frozenset[str]) -> MultusError:
    return MultusError(
        f"the record of containers {', '.join(map(repr, sorted(container_ids)))} was damaged, so no network can be told all valid "
        "attachments, and none is collected until their pods are gone"
    )


def _recorded(container_id: str, context: Context) -> tuple[Attachment, ...]:
    return context.journal.read(context.call._replace(container_id=container_id)) or ()


def _networks(recorded: dict[str, tuple[Attachment, ...]], context: Context) -> dict[str, Delegate]:
    """The delegates to collect by network name: those of the configuration, and those with attachments."""
    found: dict[str, Delegate] = {}
    try:
        found.update((delegate.conf.name, delegate) for delegate in delegates.every_pods(context))
    except MultusError as exc:
        context.log.warning("gc.configuration.unusable", error=exc)
    for attachments in recorded.values():
        for attachment in attachments:
            found.setdefault(attachment.network, attachment.delegate._replace(preference=""))
    return found
