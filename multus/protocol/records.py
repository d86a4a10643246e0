"""An attachment as JSON on disk: an element of the journal, and the content of a results file.

Both shapes are the reference's, so that either implementation detaches what the other has attached.  What the
reference does not keep goes under the key ``attachment``, which it ignores; with that key a record is read back
exactly and without any check of the configuration, so that an upgrade never stands in the way of a DEL.
Where the files are and how they are written is the journal's business.
"""

from __future__ import annotations

import binascii

from multus.errors import DecodingError
from multus.protocol import conflists, documents, members
from multus.types.config import ConfList, PluginConf
from multus.types.delegate import Attachment, Delegate
from multus.types.result import Result
from multus.types.selection import NetworkSelectionElement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.invocation import Call

RESULT_KIND = "cniCacheV1"
_REFERENCE_PREFERENCE = "binary"
"""The reference knows nothing but binaries."""


def to_element(attachment: Attachment) -> dict[str, object]:
    """One element of the journal's list.  Spec: Multus behaviour, "Scratch cache"."""
    delegate = attachment.delegate
    complete = conflists.named(delegate.conf)
    element: dict[str, object] = {
        "Conf": {key: view for key, view in _plugin_view(complete).items() if not delegate.conf.is_list or key != "type"},
        "ConfList": _list_view(delegate.conf) if delegate.conf.is_list else {},
        "Name": delegate.name,
        "ifnameRequest": "" if delegate.is_cluster_network else attachment.ifname,
        **_requests(delegate),
        "IsFilterV4Gateway": False,
        "IsFilterV6Gateway": False,
        "Bytes": _encode(complete),
        "attachment": _exact(attachment),
    }
    return {key: value for key, value in element.items() if value != ""}


def from_element(element: object, container_id: str) -> Attachment | None:
    """The attachment of an element that we wrote, without its result; None for one of the reference's.

    Raises:
        DecodingError: Code 6, the shape is wrong.
    """
    exact = members.an_object(element, "an element of the list").get("attachment")
    return None if exact is None else _from_exact(exact, container_id)


def from_reference(element: object, index: int, call: Call) -> Attachment:
    """The attachment of an element that the reference wrote, as far as the element and the call tell.

    Args:
        index: Of the element in the list; 0 is the cluster network.
        call: Stands in for namespace, arguments, and the cluster network's interface name (which may be empty).

    Raises:
        DecodingError: Code 6, the shape is wrong.
        InvalidConfigError: Code 7, the configuration is not valid.
    """
    document = members.an_object(element, "an element of the list")
    recorded_name = members.text(document, "Name")
    namespace, _, own_name = recorded_name.rpartition("/")
    conf = conflists.parse(_decode(document, "Bytes"), where="the recorded configuration", default_name=own_name)
    selection = NetworkSelectionElement(
        name=own_name,
        namespace=namespace,
        ifname=members.text(document, "ifnameRequest"),
        ips=members.texts(document, "ipRequest") or (),
        mac=members.text(document, "macRequest"),
        infiniband_guid=members.text(document, "infinibandGUIDRequest"),
        default_route=members.texts(document, "default-route"),
    )
    is_asked_for = selection != NetworkSelectionElement(own_name, "")
    device_id = members.text(document, "deviceID")
    capability_args: dict[str, object] = {
        "ips": list(selection.ips),
        "mac": selection.mac,
        "infinibandGUID": selection.infiniband_guid,
        "deviceID": device_id,
    }
    return Attachment(
        delegate=Delegate(
            name=recorded_name or conf.name,
            conf=conf,
            selection=selection if is_asked_for else None,
            is_cluster_network=index == 0,
            device_id=device_id,
            resource_name=members.text(document, "resourceName"),
            preference=_REFERENCE_PREFERENCE,
        ),
        container_id=call.container_id,
        netns=call.netns,
        ifname=selection.ifname or (f"net{index}" if index else call.ifname),
        generic_args=call.generic_args,
        capability_args={key: value for key, value in capability_args.items() if value},
    )


def to_result_file(attachment: Attachment) -> dict[str, object]:
    """The content of the results file of an attachment.  Spec: Multus behaviour, "Results cache"; libcni's cache."""
    content: dict[str, object] = {
        "kind": RESULT_KIND,
        "containerId": attachment.container_id,
        "config": _encode(conflists.named(attachment.delegate.conf)),
        "ifName": attachment.ifname,
        "networkName": attachment.network,
        "netns": attachment.netns,
        "cniArgs": [list(pair) for pair in attachment.generic_args],
        "capabilityArgs": dict(attachment.capability_args),
        "result": None if attachment.result is None else attachment.result.document,
        "attachment": _exact(attachment),
    }
    return {key: value for key, value in content.items() if value}


def from_result_file(document: Mapping[str, object], primary_ifname: str) -> Attachment:
    """The attachment of a results file, whoever wrote it, with its result.

    Args:
        primary_ifname: Names the interface of the cluster network, for a file that does not say.

    Raises:
        DecodingError: Code 6, the shape is wrong, or it is a bare result, which tells nothing but the result.
        InvalidConfigError: Code 7, the configuration in a file of the reference is not valid.
    """
    container_id, ifname, network = (members.text(document, key) for key in ("containerId", "ifName", "networkName"))
    if document.get("kind") != RESULT_KIND or not container_id or not ifname or not network:
        raise DecodingError("a results file without kind, containerId, ifName or networkName")
    exact = document.get("attachment")
    if exact is not None:
        attachment = _from_exact(exact, container_id)
        return attachment._replace(result=result_of(document, attachment.delegate.conf.cni_version))
    conf = conflists.parse(_decode(document, "config"), where="the recorded configuration", default_name=network)
    delegate = Delegate(network, conf, is_cluster_network=ifname == primary_ifname, preference=_REFERENCE_PREFERENCE)
    return with_result_file(Attachment(delegate, container_id, "", ifname), document)


def with_result_file(attachment: Attachment, document: Mapping[str, object]) -> Attachment:
    """The attachment with what ADD gave and got, as a results file of the reference has it.

    Raises:
        DecodingError: Code 6, the shape is wrong.
    """
    result = result_of(document, attachment.delegate.conf.cni_version)
    if document.get("kind") != RESULT_KIND:
        return attachment._replace(result=result)
    return attachment._replace(
        netns=members.text(document, "netns") or attachment.netns,
        generic_args=members.pairs(document, "cniArgs") or attachment.generic_args,
        capability_args=members.an_object(document.get("capabilityArgs") or {}, "capabilityArgs"),
        result=result,
    )


def with_own_result_file(attachment: Attachment, document: Mapping[str, object]) -> Attachment:
    """The attachment of an element of ours with the result of its ADD, and with who ran it, as far as the results file has them."""
    exact = document.get("attachment")
    listed = exact.get("runners") if isinstance(exact, dict) else None
    runners = tuple(listed) if isinstance(listed, list) and all(isinstance(each, str) for each in listed) else ()
    return attachment._replace(result=result_of(document, attachment.delegate.conf.cni_version), runners=runners)


def result_of(document: Mapping[str, object], default_version: str) -> Result | None:
    """The result in a results file, or in a file that is a bare result, as libcni once wrote; None: no result."""
    kind = document.get("kind")
    result = document.get("result") if kind == RESULT_KIND else document if kind is None else None
    if not isinstance(result, dict) or not result:
        return None
    version = result.get("cniVersion") or default_version or "0.1.0"
    return Result({**result, "cniVersion": version}) if isinstance(version, str) else None


def _exact(attachment: Attachment) -> dict[str, object]:
    """All of an attachment but its container ID and its result."""
    delegate, conf = attachment.delegate, attachment.delegate.conf
    return {
        "name": delegate.name,
        "ifName": attachment.ifname,
        "netns": attachment.netns,
        "cniArgs": [list(pair) for pair in attachment.generic_args],
        "capabilityArgs": dict(attachment.capability_args),
        "clusterNetwork": delegate.is_cluster_network,
        "auxiliary": delegate.is_auxiliary,
        "deviceID": delegate.device_id,
        "resourceName": delegate.resource_name,
        "delegatePreference": delegate.preference,
        "deviceInfo": None if attachment.device_info is None else dict(attachment.device_info),
        "runners": list(attachment.runners),
        "failed": attachment.has_failed,
        "selection": None if delegate.selection is None else _selection_document(delegate.selection),
        "conf": {
            "document": dict(conf.document),
            "name": conf.name,
            "cniVersion": conf.cni_version,
            "isList": conf.is_list,
            "disableCheck": conf.disable_check,
            "disableGC": conf.disable_gc,
        },
    }


def _from_exact(exact: object, container_id: str) -> Attachment:
    document = members.an_object(exact, "attachment")
    selection, device_info = document.get("selection"), document.get("deviceInfo")
    return Attachment(
        delegate=Delegate(
            name=members.text(document, "name"),
            conf=_conf(members.an_object(document.get("conf"), "conf")),
            selection=None if selection is None else _selection(members.an_object(selection, "selection")),
            is_cluster_network=members.flag(document, "clusterNetwork"),
            is_auxiliary=members.flag(document, "auxiliary"),
            device_id=members.text(document, "deviceID"),
            resource_name=members.text(document, "resourceName"),
            preference=members.text(document, "delegatePreference"),
        ),
        container_id=container_id,
        netns=members.text(document, "netns"),
        ifname=members.text(document, "ifName"),
        generic_args=members.pairs(document, "cniArgs"),
        capability_args=members.an_object(document.get("capabilityArgs"), "capabilityArgs"),
        device_info=None if device_info is None else members.an_object(device_info, "deviceInfo"),
        runners=members.texts(document, "runners") or (),
        has_failed=members.flag(document, "failed"),
    )


def _conf(fields: Mapping[str, object]) -> ConfList:
    document = members.an_object(fields.get("document"), "document")
    is_list = members.flag(fields, "isList")
    plugins = members.objects(documents.lookup(document, "plugins"), "plugins") if is_list else (document,)
    return ConfList(
        document,
        members.text(fields, "name"),
        members.text(fields, "cniVersion"),
        tuple(PluginConf(plugin, str(documents.lookup(plugin, "type"))) for plugin in plugins),
        is_list,
        disable_check=members.flag(fields, "disableCheck"),
        disable_gc=members.flag(fields, "disableGC"),
    )


def _selection_document(selection: NetworkSelectionElement) -> dict[str, object]:
    """A selection in the spelling of the networks annotation."""
    return {
        "name": selection.name,
        "namespace": selection.namespace,
        "interface": selection.ifname,
        "ips": list(selection.ips),
        "mac": selection.mac,
        "infiniband-guid": selection.infiniband_guid,
        "portMappings": [dict(mapping) for mapping in selection.port_mappings],
        "bandwidth": None if selection.bandwidth is None else dict(selection.bandwidth),
        "default-route": None if selection.default_route is None else list(selection.default_route),
        "cni-args": None if selection.cni_args is None else dict(selection.cni_args),
        "deviceID": selection.device_id,
        "ipam-claim-reference": selection.ipam_claim_reference,
    }


def _selection(document: Mapping[str, object]) -> NetworkSelectionElement:
    bandwidth, cni_args = document.get("bandwidth"), document.get("cni-args")
    rates = None if bandwidth is None else members.an_object(bandwidth, "bandwidth")
    return NetworkSelectionElement(
        name=members.text(document, "name"),
        namespace=members.text(document, "namespace"),
        ifname=members.text(document, "interface"),
        ips=members.texts(document, "ips") or (),
        mac=members.text(document, "mac"),
        infiniband_guid=members.text(document, "infiniband-guid"),
        port_mappings=members.objects(document.get("portMappings") or [], "portMappings"),
        bandwidth=None if rates is None else {key: rate for key, rate in rates.items() if isinstance(rate, int)},
        default_route=members.texts(document, "default-route"),
        cni_args=None if cni_args is None else members.an_object(cni_args, "cni-args"),
        device_id=members.text(document, "deviceID"),
        ipam_claim_reference=members.text(document, "ipam-claim-reference"),
    )


def _requests(delegate: Delegate) -> dict[str, object]:
    """The requests as the reference keeps them; those not made are "" or not there."""
    requests: dict[str, object] = {"deviceID": delegate.device_id, "resourceName": delegate.resource_name}
    if delegate.selection is not None:
        requests["macRequest"] = delegate.selection.mac
        requests["infinibandGUIDRequest"] = delegate.selection.infiniband_guid
        requests["ipRequest"] = list(delegate.selection.ips) or ""
        requests["default-route"] = "" if delegate.selection.default_route is None else list(delegate.selection.default_route)
    return requests


def _plugin_view(document: Mapping[str, object]) -> dict[str, object]:
    """What the reference knows of a plugin's configuration.  It refuses a file for one wrong type, so only right ones go in."""
    view: dict[str, object] = {}
    for key in ("cniVersion", "name", "type"):
        value = documents.lookup(document, key)
        if isinstance(value, str) and value:
            view[key] = value
    capabilities, ipam, dns = (documents.lookup(document, key) for key in ("capabilities", "ipam", "dns"))
    if isinstance(capabilities, dict) and capabilities:
        view["capabilities"] = {name: value for name, value in capabilities.items() if isinstance(value, bool)}
    view["ipam"] = {"type": ipam["type"]} if isinstance(ipam, dict) and isinstance(ipam.get("type"), str) else {}
    if isinstance(dns, dict):
        view["dns"] = {key: dns[key] for key in ("nameservers", "domain", "search", "options") if _is_dns(key, dns.get(key))}
    return view


def _is_dns(key: str, value: object) -> bool:
    if key == "domain":
        return isinstance(value, str)
    return isinstance(value, list) and all(isinstance(text, str) for text in value)


def _list_view(conf: ConfList) -> dict[str, object]:
    flags = {"disableCheck": conf.disable_check, "disableGC": conf.disable_gc}
    return {
        **({"cniVersion": conf.cni_version} if conf.cni_version else {}),
        "name": conf.name,
        **{key: True for key, is_set in flags.items() if is_set},
        "plugins": [_plugin_view(plugin.document) for plugin in conf.plugins],
    }


def _encode(document: Mapping[str, object]) -> str:
    return binascii.b2a_base64(documents.dumps(document).encode(), newline=False).decode()


def _decode(document: Mapping[str, object], key: str) -> dict[str, object]:
    text = members.text(document, key)
    try:
        content = binascii.a2b_base64(text, strict_mode=True)
    except ValueError as exc:
        raise DecodingError(f"key \"{key}\" is not base64: {exc}") from exc
    return documents.load_object(content, f"key \"{key}\"")
