"""One network of a running pod, attached and detached on its own: what the ``/delegate`` endpoint does.

The attachment is recorded like any other, so that the pod's DEL finds it.  The default route and the network-status
annotation stay as they are: they are whoever's who plugs.  Spec: Multus behaviour, "/delegate".
"""

from __future__ import annotations

from multus.core import attach, delegates, derive, detach, networks, pods
from multus.errors import ForbiddenError, InvalidConfigError, InvalidEnvironmentError, MultusError, UnknownContainerError
from multus.protocol.annotations import parse_selections
from multus.protocol.documents import dumps
from multus.types.delegate import Delegate
from multus.types.invocation import CNICommand
from multus.types.named import NamedTuple
from multus.types.result import Result
from multus.types.selection import NetworkSelectionElement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.attach import Attached
    from multus.core.context import Context
    from multus.types.daemon import InterfaceAttributes
    from multus.types.delegate import Attachment
    from multus.types.pod import Pod


class Plug(NamedTuple):
    """What is plugged: the only inline delegate of the context's configuration, with what is asked of its interface."""

    attributes: InterfaceAttributes | None = None
    network: str = ""
    """``namespace/name`` of its net-attach-def; needed where namespaces are isolated."""


def serve(plug: Plug, context: Context) -> Attached | None:
    """Serve one hot-plug call; for ADD what was attached.

    Raises:
        InvalidEnvironmentError: Code 4; a verb that hot-plug has not, or no pod is named.
        ForbiddenError: Code 100; the pod may not use the network.
        MultusError: The delegate's failure, with its own code; DEL keeps the record then.
    """
    command = context.call.command
    conf = context.config.delegates[0]
    with context.place(conf.name):
        if command is CNICommand.STATUS:
            networks.status(Delegate(conf.name, conf), context)
            return None
        if command not in (CNICommand.ADD, CNICommand.DEL, CNICommand.CHECK):
            raise InvalidEnvironmentError(f"CNI_COMMAND {str(command)!r} is unknown to hot-plug")
        if not context.call.pod.name or not context.call.pod.namespace:
            raise InvalidEnvironmentError("CNI_ARGS names no pod: K8S_POD_NAMESPACE and K8S_POD_NAME are expected")
        attach.refuse_own_netns(context)
        with context.journal.locked():
            if command is CNICommand.ADD:
                return _add(plug, context)
            if command is CNICommand.DEL:
                _delete(plug, context)
            else:
                _check(context)
    return None


def _add(plug: Plug, context: Context) -> Attached:
    pod = _pod(context)
    _authorise(plug, pod, context)
    recorded = _recorded(context)
    if not recorded:
        raise UnknownContainerError(f"container {context.call.container_id!r} is not attached, so nothing can be plugged into it")
    attachment = delegates.bind(_delegate(plug, context), context.call.ifname, context)
    if any(each.ifname == attachment.ifname for each in recorded) or context.netns.has_link(attachment.netns, attachment.ifname):
        raise MultusError(f"interface name {attachment.ifname!r} is taken in {attachment.netns}")
    context.journal.write(attachment.container_id, (*recorded, attachment))
    try:
        result, runners = networks.add(attachment, context)
        attachment = attachment._replace(result=result, runners=runners)
        context.journal.write_result(attachment)
    except BaseException as exc:
        tried = attachment._replace(has_failed=isinstance(exc, MultusError) and exc.attached_nothing)
        _undo(tried, recorded, context)
        raise
    return attach.Attached(result, (attachment,), pod)


def _undo(tried: Attachment, recorded: tuple[Attachment, ...], context: Context) -> None:
    """Detach what failed to attach; what cannot be detached stays on record, which tells the pod's DEL that it had failed."""
    try:
        context.journal.write(tried.container_id, (*recorded, tried))
        _detach(tried, recorded, context)
    except MultusError as exc:
        context.log.error("hotplug.undo.failed", ifname=tried.ifname, error=exc)


def _detach(attachment: Attachment, left: tuple[Attachment, ...], context: Context) -> None:
    """Run DEL, and forget the attachment once that has succeeded."""
    detach.one(attachment, context)
    context.journal.write(attachment.container_id, left)


def _delete(plug: Plug, context: Context) -> None:
    recorded = _recorded(context)
    found = _of_interface(recorded, context)
    if found is None:
        _authorise(plug, _pod(context), context)
        found = delegates.bind(_delegate(plug, context), context.call.ifname, context)
    left = tuple(each for each in recorded if each.ifname != found.ifname)
    _detach(found._replace(netns=context.call.netns), left, context)


def _check(context: Context) -> None:
    found = _of_interface(_recorded(context), context)
    if found is None:
        raise UnknownContainerError(f"interface {context.call.ifname!r} of container {context.call.container_id!r} is not attached")
    networks.check(found._replace(netns=context.call.netns), context)


def _recorded(context: Context) -> tuple[Attachment, ...]:
    """What is on record; the call's interface is the plugged one, so it says nothing about the cluster network's."""
    return context.journal.read(context.call._replace(ifname="")) or ()


def _of_interface(recorded: tuple[Attachment, ...], context: Context) -> Attachment | None:
    """The attachment to plug out; never the cluster network, which goes with the pod."""
    for attachment in recorded:
        if attachment.ifname == context.call.ifname:
            if attachment.delegate.is_cluster_network:
                raise InvalidConfigError(f"interface {attachment.ifname!r} is the cluster network's and cannot be plugged")
            return attachment
    return None


def _pod(context: Context) -> Pod:
    found = pods.for_add(context)
    if found is None or isinstance(found, Result):
        raise InvalidEnvironmentError(f"pod {context.call.pod.namespace}/{context.call.pod.name} is not known")
    return found


def _authorise(plug: Plug, pod: Pod, context: Context) -> None:
    """The guard of all ways to name a network; a network without a name belongs to no namespace that could be allowed."""
    if context.config.namespace_isolation and not plug.network:
        raise ForbiddenError(
            "namespace isolation: the request has to name the net-attach-def of its configuration, as key \"network\""
        )
    namespace, _, name = plug.network.rpartition("/")
    delegates.authorise(NetworkSelectionElement(name or "unnamed", namespace), pod, context.config)


def _delegate(plug: Plug, context: Context) -> Delegate:
    conf = context.config.delegates[0]
    asked = plug.attributes
    element: dict[str, object] = {"name": "network"}
    if asked is not None:
        wanted = {"ips": list(asked.ips), "mac": asked.mac, "cni-args": asked.cni_args}
        element.update((key, value) for key, value in wanted.items() if value)
    selection = parse_selections(dumps([element]), "interfaceAttributes", context.call.pod.namespace)[0]._replace(name=conf.name)
    if selection.cni_args is not None:
        conf = derive.with_cni_args(conf, selection.cni_args, f"network {conf.name!r}")
    return Delegate(plug.network or conf.name, conf, selection)
