"""From a pod's requests to delegates bound to interfaces: everything that is decided before anything is attached.

Order: read and check what the pod asks for, authorise it, name the interfaces, and only then look networks up.
"""

from __future__ import annotations

from multus.core import derive
from multus.errors import ForbiddenError, InvalidConfigError, MultusError, ObjectNotFoundError
from multus.protocol import conflists
from multus.protocol.annotations import parse_selections
from multus.types.config import PluginConf
from multus.types.delegate import Attachment, Delegate
from multus.types.named import NamedTuple
from multus.types.pod import DEFAULT_NETWORK_ANNOTATION, NETWORKS_ANNOTATION
from multus.types.selection import NetworkSelectionElement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus.core.context import Context
    from multus.core.ports import Devices
    from multus.types.config import MultusConfig
    from multus.types.pod import Pod


class Plan(NamedTuple):
    """What a pod is to be attached to, and what is doubtful about it."""

    attachments: tuple[Attachment, ...]
    """In order, the cluster network first; nothing is attached yet."""
    problems: tuple[tuple[str, MultusError], ...] = ()
    """Reason and text of what goes on all the same, and the pod should know."""


def plan(pod: Pod | None, context: Context) -> Plan:
    """Decide what a pod is attached to.

    Args:
        pod: None when no API server is configured: the pod gets the configured delegates alone.

    Raises:
        InvalidConfigError, ForbiddenError, ObjectNotFoundError: What the pod or the node asks for cannot be had.
    """
    default_selection, selections, problems = _requested(pod, context)
    sidecars = _default_network_names(pod, context.config)
    configured = len(context.config.delegates) or 1 + len(sidecars)
    ifnames = interface_names(context.call.ifname, configured, selections)
    devices = _SharedDevices(pod, context)
    delegates = [*_configured(pod, default_selection, sidecars, devices, context)]
    delegates += [_for_selection(selection, pod, devices, context) for selection in selections]
    auxiliary = _auxiliary_chain(context)
    if auxiliary is not None:
        delegates.append(auxiliary)
        ifnames = (*ifnames, context.call.ifname)
    _one_default_route(delegates)
    problems += [("UndeclaredCapability", problem) for problem in _undeclared_capabilities(delegates, context)]
    attachments = tuple(bind(delegate, ifname, context) for delegate, ifname in zip(delegates, ifnames, strict=True))
    return Plan(attachments, tuple(problems))


def _requested(
    pod: Pod | None, context: Context
) -> tuple[NetworkSelectionElement | None, tuple[NetworkSelectionElement, ...], list[tuple[str, MultusError]]]:
    """The pod's default network, if it names one, and its secondary networks; checked and authorised.

    With ``invalidAnnotation: ignore`` an annotation that cannot be read counts as absent, and is a problem.
    """
    if pod is None:
        return None, (), []
    config = context.config
    default: NetworkSelectionElement | None = None
    selections: tuple[NetworkSelectionElement, ...] = ()
    problems: list[tuple[str, MultusError]] = []
    try:
        default = _default_selection(pod, config)
    except InvalidConfigError as exc:
        problems.append(("InvalidNetworkAnnotation", exc))
    try:
        selections = _with_free_names(context.hooks.select_networks(pod, config), context.call.ifname)
    except InvalidConfigError as exc:
        problems.append(("InvalidNetworkAnnotation", exc))
    if problems and config.invalid_annotation != "ignore":
        raise problems[0][1]
    if default is not None:
        authorise(default, pod, config, is_default_network=True)
    for selection in selections:
        authorise(selection, pod, config)
    return default, selections, problems


def authorise(selection: NetworkSelectionElement, pod: Pod, config: MultusConfig, *, is_default_network: bool = False) -> None:
    """Refuse a network of a namespace that the pod may not use: the one guard of all ways to name a network.

    Raises:
        ForbiddenError: Code 100, with ``namespaceIsolation`` set; names both namespaces and what would be allowed.
    """
    if not config.namespace_isolation:
        return
    allowed = {pod.namespace, *config.global_namespaces, *((config.multus_namespace,) if is_default_network else ())}
    if selection.namespace not in allowed:
        raise ForbiddenError(
            f"namespace isolation: a pod of namespace {pod.namespace!r} may not use network {selection.qualified_name!r}; "
            f"allowed are networks of {', '.join(sorted(map(repr, allowed)))}"
        )


def interface_names(first: str, configured: int, selections: Sequence[NetworkSelectionElement]) -> tuple[str, ...]:
    """The interface of each delegate in order: the call's own, what was asked for, else ``net<position>``.

    A generated name that is taken gives way to the next number that is free, so that the same request always gets
    the same names.
    """
    wanted = [first, *[""] * (configured - 1), *(selection.ifname for selection in selections)]
    taken = {name for name in wanted if name}
    names = []
    for position, name in enumerate(wanted):
        number = position
        while not name:
            if f"net{number}" not in taken:
                name = f"net{number}"
            number += 1
        taken.add(name)
        names.append(name)
    return tuple(names)


def every_pods(context: Context) -> tuple[Delegate, ...]:
    """The delegates that every pod needs: what STATUS asks and GC cleans."""
    sidecars = context.config.default_networks if context.config.cluster_network else ()
    return tuple(_configured(None, None, sidecars, _SharedDevices(None, context), context))


class _SharedDevices:
    """One allocator for all networks of the pod, made when the first of them wants a device."""

    def __init__(self, pod: Pod | None, context: Context) -> None:
        self._pod = pod
        self._context = context
        self._allocator: Devices | None = None

    def take(self, resource_name: str, network: str) -> str:
        """A device of the pod; "" when no pod is known, and so nothing is attached."""
        if self._pod is None:
            return ""
        if self._allocator is None:
            self._allocator = self._context.devices(self._pod)
        return self._allocator.take(resource_name, network)


def _default_selection(pod: Pod, config: MultusConfig) -> NetworkSelectionElement | None:
    text = pod.annotations.get(DEFAULT_NETWORK_ANNOTATION, "")
    selections = parse_selections(text, DEFAULT_NETWORK_ANNOTATION, config.multus_namespace)
    if len(selections) > 1:
        raise InvalidConfigError(f"annotation {DEFAULT_NETWORK_ANNOTATION} names {len(selections)} networks, one is expected")
    return selections[0] if selections else None


def _with_free_names(selections: tuple[NetworkSelectionElement, ...], first: str) -> tuple[NetworkSelectionElement, ...]:
    """The selections, unless one asks for an interface name that is taken: they may be a plugin's, which no parser has checked."""
    owners = {first: "the cluster network"}
    for index, selection in enumerate(selections):
        if selection.ifname in owners:
            where = f"annotation {NETWORKS_ANNOTATION}: element {index}"
            raise InvalidConfigError(f"{where}: interface name {selection.ifname!r} is taken by {owners[selection.ifname]}")
        if selection.ifname:
            owners[selection.ifname] = f"element {index}"
    return selections


def _default_network_names(pod: Pod | None, config: MultusConfig) -> tuple[str, ...]:
    if not config.cluster_network or pod is None or pod.namespace in config.system_namespaces:
        return ()
    return config.default_networks


def _configured(
    pod: Pod | None, default: NetworkSelectionElement | None, sidecars: Sequence[str], devices: _SharedDevices, context: Context
) -> list[Delegate]:
    """The cluster network, or what the pod has in its place, and the other networks that the configuration names."""
    config = context.config
    if default is not None:
        if default.ifname:
            context.log.warning("default-network.interface.ignored", interface=default.ifname, used=context.call.ifname)
        first = _for_selection(default._replace(ifname=""), pod, devices, context)
    elif config.cluster_network:
        first = _by_name(config.cluster_network, pod, devices, context)
    else:
        first = Delegate(config.delegates[0].name, config.delegates[0])
    rest = [Delegate(conf.name, conf) for conf in config.delegates[1:]]
    rest += [_by_name(name, pod, devices, context) for name in sidecars]
    return [first._replace(is_cluster_network=True), *rest]


def _by_name(name: str, pod: Pod | None, devices: _SharedDevices, context: Context) -> Delegate:
    """A network that the configuration names: a path, a net-attach-def of ``multusNamespace``, or a name in ``confDir``."""
    if "/" in name:
        conf = context.conf_dir.from_path(name)
        return Delegate(conf.name, conf)
    cause: MultusError | None = None
    if context.kube is not None:
        try:
            selection = NetworkSelectionElement(name, context.config.multus_namespace)
            return _with_device(context.hooks.resolve_delegate(selection, pod, context.config), devices)
        except ObjectNotFoundError as exc:
            cause = exc
    found = context.conf_dir.by_name(name)
    if found is None:
        raise ObjectNotFoundError(
            f"network {name!r} of the multus configuration is not to be found: no net-attach-def in namespace "
            f"{context.config.multus_namespace!r} and no configuration of that name in {context.config.conf_dir}"
        ) from cause
    return Delegate(found.name, found)


def _for_selection(selection: NetworkSelectionElement, pod: Pod | None, devices: _SharedDevices, context: Context) -> Delegate:
    """The delegate of a selection, with its requests laid into the configuration."""
    try:
        delegate = context.hooks.resolve_delegate(selection, pod, context.config)
    except ObjectNotFoundError as exc:
        raise exc.prefixed(f"network {selection.qualified_name!r}") from exc
    delegate = _with_device(delegate._replace(selection=selection), devices)
    if selection.cni_args is not None:
        conf = derive.with_cni_args(delegate.conf, selection.cni_args, f"network {delegate.name!r}")
        delegate = delegate._replace(conf=conf)
    if selection.device_id and not delegate.device_id:
        if context.config.allow_device_id:
            delegate = delegate._replace(device_id=selection.device_id)
        else:
            context.log.warning("deviceID.ignored", network=delegate.name, cause="allowDeviceID is not set")
    return delegate


def _with_device(delegate: Delegate, devices: _SharedDevices) -> Delegate:
    device_id = devices.take(delegate.resource_name, delegate.name) if delegate.resource_name else ""
    if not device_id:
        return delegate
    return delegate._replace(device_id=device_id, conf=derive.with_device(delegate.conf, device_id))


def _auxiliary_chain(context: Context) -> Delegate | None:
    """The chain that runs last on the cluster network's interface; None if it has no plugin of its own."""
    chain, path = context.config.auxiliary_chain, context.config.cluster_network
    if not chain:
        return None
    if "/" not in path:
        raise InvalidConfigError(f"key \"auxiliaryCNIChainName\" {chain!r} needs a path in key \"clusterNetwork\", not {path!r}")
    plugins = context.conf_dir.auxiliary_plugins(path, chain)
    if not plugins:
        return None
    passthru = PluginConf({"type": "passthru", "name": "passthru-cni"}, "passthru")
    document = {"cniVersion": context.config.cni_version, "plugins": [plugin.document for plugin in (passthru, *plugins)]}
    conf = conflists.parse(document, where=f"auxiliary chain {chain!r}", default_name=chain)
    return Delegate(conf.name, conf, is_auxiliary=True)


def _one_default_route(delegates: Sequence[Delegate]) -> None:
    carriers = [delegate.name for delegate in delegates if delegate.selection and delegate.selection.default_route is not None]
    if len(carriers) > 1:
        raise InvalidConfigError(f"key \"default-route\" is asked of networks {', '.join(map(repr, carriers))}, one may carry it")


def _undeclared_capabilities(delegates: Sequence[Delegate], context: Context) -> list[MultusError]:
    """The requests that no plugin of their network declares, and that might be dropped in silence.

    Raises:
        InvalidConfigError: There is one, with ``strictCapabilities`` set.
    """
    problems: list[MultusError] = []
    for delegate in delegates:
        undeclared = derive.undeclared_capabilities(delegate)
        if undeclared:
            asked = ", ".join(undeclared)
            problem = f"network {delegate.name!r}: the pod asks for {asked}, and no plugin declares that capability"
            problems.append(InvalidConfigError(problem))
    if problems and context.config.strict_capabilities:
        raise problems[0]
    return problems


def bind(delegate: Delegate, ifname: str, context: Context) -> Attachment:
    """The delegate on an interface of the call's container, with all that its ADD, CHECK and DEL are given."""
    call = context.call
    device_info_file = context.device_info.path(delegate.name, call.container_id, ifname)
    return Attachment(
        delegate._replace(preference=context.config.delegate_preference),
        call.container_id,
        call.netns,
        ifname,
        derive.generic_args(call, delegate.selection),
        derive.capability_args(delegate, context.config.runtime_config, device_info_file),
    )
