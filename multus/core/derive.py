"""What a plugin is given: request configuration, capability arguments, ``CNI_ARGS``.  Pure functions on copies.

The same for ADD, CHECK and DEL: an attachment is derived once, at ADD, and recorded.
"""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol import conflists
from multus.protocol.documents import kind

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.config import ConfList, PluginConf
    from multus.types.delegate import Attachment, Delegate
    from multus.types.invocation import Call
    from multus.types.result import Result
    from multus.types.selection import NetworkSelectionElement


def request_configuration(
    conf: ConfList, plugin: PluginConf, prev_result: Result | None, capability_args: Mapping[str, object]
) -> dict[str, object]:
    """Build the standard input of one plugin of a conflist.

    Args:
        prev_result: Of the plugin before (ADD), of the whole ADD (CHECK, DEL), or None; in the conflist's version.
        capability_args: By capability name; bandwidth rates in bit/s, bursts in bit.

    Spec: CNI 1.1.0 §3, "Deriving request configuration"; ``capabilities`` stay in it, as every runtime does it.
    """
    request = {**plugin.document, "name": conf.name}
    if conf.cni_version:
        request["cniVersion"] = conf.cni_version
    declared = {name: value for name, value in capability_args.items() if name in plugin.capabilities}
    if declared:
        request["runtimeConfig"] = declared
    if prev_result is not None:
        request["prevResult"] = prev_result.document
    return request


def capability_args(delegate: Delegate, runtime_config: Mapping[str, object], device_info_file: str) -> dict[str, object]:
    """The capability arguments of a delegate: the runtime's, then the pod's requests.

    Args:
        device_info_file: Where the device information goes if the delegate has a device.

    Spec: multi-network CRD standard v1.3 §4.1.2.1; Multus behaviour for the runtime's own.
    """
    arguments = dict(runtime_config)
    if delegate.selection is not None:
        arguments.update(_requests(delegate.selection))
    if delegate.device_id:
        arguments["deviceID"] = delegate.device_id
    if arguments.get("deviceID"):
        arguments["CNIDeviceInfoFile"] = device_info_file
    return {name: value for name, value in arguments.items() if value not in (None, "", [], {}, ())}


def undeclared_capabilities(delegate: Delegate) -> tuple[str, ...]:
    """The capabilities that the pod's requests need and no plugin of the network declares."""
    if delegate.selection is None:
        return ()
    return tuple(name for name in _requests(delegate.selection) if name not in delegate.conf.capabilities)


def generic_args(call: Call, selection: NetworkSelectionElement | None) -> tuple[tuple[str, str], ...]:
    """The pairs of a delegate's ``CNI_ARGS``: the pod, what else the runtime gave, and the requests for MAC and IP.

    Spec: CNI conventions, "CNI_ARGS"; Multus behaviour.
    """
    pairs = {
        "IgnoreUnknown": "true",
        "K8S_POD_NAMESPACE": call.pod.namespace,
        "K8S_POD_NAME": call.pod.name,
        "K8S_POD_INFRA_CONTAINER_ID": call.pod.infra_container_id,
        "K8S_POD_UID": call.pod.uid,
    }
    pairs.update((key, value) for key, value in call.generic_args if key not in pairs)
    if selection is not None and selection.mac:
        pairs["MAC"] = selection.mac
    if selection is not None and selection.ips:
        pairs["IP"] = ",".join(selection.ips)
    return tuple(pairs.items())


def renewed_args(attachment: Attachment, call: Call) -> tuple[tuple[str, str], ...]:
    """The pairs for CHECK and DEL: those of ADD, with what the runtime says of the pod now.

    A secondary network whose plugins declare the capability for a MAC or IP request gets it in ``runtimeConfig`` alone,
    as the reference does it.
    """
    delegate = attachment.delegate
    pairs = dict(attachment.generic_args)
    pairs.update((key, value) for key, value in call.generic_args if value and key != "IgnoreUnknown")
    if delegate.selection is not None and not delegate.is_cluster_network:
        for key, requested, capability in (("MAC", delegate.selection.mac, "mac"), ("IP", delegate.selection.ips, "ips")):
            if requested and capability in delegate.conf.capabilities:
                pairs.pop(key, None)
    return tuple(pairs.items())


def with_device(conf: ConfList, device_id: str) -> ConfList:
    """The configuration with the device in each plugin, under both names that plugins know."""
    return conflists.with_edited(conf, lambda document: {**document, "deviceID": device_id, "pciBusID": device_id})


def with_cni_args(conf: ConfList, cni_args: Mapping[str, object], where: str) -> ConfList:
    """The configuration with ``cni_args`` laid over ``args.cni`` of each plugin.

    Raises:
        InvalidConfigError: ``args`` or ``args.cni`` of a plugin is no object.
    """

    def edit(document: dict[str, object]) -> dict[str, object]:
        args = _object(document.get("args"), f"{where}: key \"args\"")
        return {**document, "args": {**args, "cni": {**_object(args.get("cni"), f"{where}: key \"args.cni\""), **cni_args}}}

    return conflists.with_edited(conf, edit)


def _requests(selection: NetworkSelectionElement) -> dict[str, object]:
    """What a selection asks for, by the name of the capability that serves it."""
    requests: dict[str, object] = {
        "ips": list(selection.ips),
        "mac": selection.mac,
        "infinibandGUID": selection.infiniband_guid,
        "portMappings": [dict(mapping) for mapping in selection.port_mappings],
        "bandwidth": dict(selection.bandwidth or {}),
    }
    return {name: value for name, value in requests.items() if value}


def _object(value: object, where: str) -> Mapping[str, object]:
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidConfigError(f"{where} is {kind(value)}, an object is expected")
    return value
