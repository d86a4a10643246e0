"""The pod's annotations: networks and default network in, network-status out.

One grammar in two spellings: the short form is read into the members of the JSON form, and both meet the same
checks.  Spec: multi-network CRD standard v1.3 §4.1 and §5.
"""

from __future__ import annotations

from multus.errors import DecodingError, InvalidConfigError
from multus.protocol.addresses import is_cidr, is_ip, is_mac
from multus.protocol.documents import dumps_indented, kind, loads, quote
from multus.protocol.environment import ifname_problem
from multus.types.selection import NetworkSelectionElement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Any

    from multus.types.pod import NetworkStatus

_LABEL_MAX = 63
_NAME_MAX = 253
_LABEL_EDGE = frozenset("abcdefghijklmnopqrstuvwxyz0123456789")
_LABEL = _LABEL_EDGE | {"-"}
_BANDWIDTH = ("ingressRate", "ingressBurst", "egressRate", "egressBurst")
_RATE_MAX = 2**63 - 1
_PROTOCOLS = ("tcp", "udp", "sctp")


def parse_selections(text: str, annotation: str, default_namespace: str) -> tuple[NetworkSelectionElement, ...]:
    """The network selection elements of an annotation, in order; an empty text or list holds none.

    Raises:
        InvalidConfigError: Code 7; names the annotation, the element's index, the key and the value as written.
    """
    if not text.strip():
        return ()
    where = f"annotation {annotation}"
    elements = _json_elements(text, where) if any(mark in text for mark in '[{"') else _short_elements(text, where)
    selections = tuple(
        _selection(element, f"{where}: element {index}", default_namespace) for index, element in enumerate(elements)
    )
    carriers = [index for index, selection in enumerate(selections) if selection.default_route is not None]
    if len(carriers) > 1:
        raise InvalidConfigError(
            f"{where}: element {carriers[1]}: key \"default-route\" is in element {carriers[0]} already, one may carry it"
        )
    names: dict[str, int] = {}
    for index, selection in enumerate(selections):
        if selection.ifname and names.setdefault(selection.ifname, index) != index:
            raise InvalidConfigError(
                f"{where}: element {index}: interface name {quote(selection.ifname)} is taken by element {names[selection.ifname]}"
            )
    return selections


def format_statuses(statuses: Sequence[NetworkStatus]) -> str:
    """The text of the network-status annotation: a JSON list with an object per entry, readable in ``kubectl``."""
    return dumps_indented([_status_entry(status) for status in statuses], only_ascii=False)


def is_dns_label(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 label, as namespaces are named."""
    return 0 < len(text) <= _LABEL_MAX and _LABEL.issuperset(text) and text[0] in _LABEL_EDGE and text[-1] in _LABEL_EDGE


def is_dns_name(text: str) -> bool:
    """Whether ``text`` is a DNS-1123 subdomain, as net-attach-defs are named."""
    return len(text) <= _NAME_MAX and all(map(is_dns_label, text.split(".")))


def _json_elements(text: str, where: str) -> list[object]:
    try:
        document = loads(text, where)
    except DecodingError as exc:
        raise InvalidConfigError(exc.msg) from exc
    if not isinstance(document, list):
        raise InvalidConfigError(f"{where} is {kind(document)}, a list of network selection elements is expected: {quote(document)}")
    return document


def _short_elements(text: str, where: str) -> list[object]:
    elements: list[object] = []
    for index, item in enumerate(text.split(",")):
        if not item.strip():
            raise InvalidConfigError(f"{where}: element {index} is empty in {quote(text)}")
        rest, at, ifname = item.strip().partition("@")
        namespace, slash, name = rest.rpartition("/")
        if "/" in namespace or "@" in ifname or (at and not ifname.strip()) or (slash and not namespace.strip()):
            raise InvalidConfigError(f"{where}: element {index}: {quote(item.strip())} is not [namespace/]name[@interface]")
        element = {"name": name.strip()}
        if slash:
            element["namespace"] = namespace.strip()
        if at:
            element["interface"] = ifname.strip()
        elements.append(element)
    return elements


def _selection(element: object, where: str, default_namespace: str) -> NetworkSelectionElement:
    if not isinstance(element, dict):
        raise InvalidConfigError(f"{where} is {kind(element)}, an object is expected")
    given = {key.lower(): value for key, value in element.items() if value is not None}
    fields: dict[str, Any] = {}
    for key, (spelling, field, check) in _KEYS.items():
        if key in given:
            try:
                fields[field] = check(given[key])
            except _Unfit as exc:
                raise InvalidConfigError(f"{where}: key \"{spelling}\" {quote(given[key])}: {exc}") from exc
    if "name" not in fields:
        raise InvalidConfigError(f"{where}: key \"name\" is missing")
    alias = fields.pop("ifname_alias", "")
    fields["ifname"] = fields.get("ifname") or alias
    fields["namespace"] = fields.get("namespace") or default_namespace
    if fields.get("ips") and fields.get("ipam_claim_reference"):
        raise InvalidConfigError(f"{where}: keys \"ips\" and \"ipam-claim-reference\" exclude each other")
    return NetworkSelectionElement(**fields)


class _Unfit(Exception):
    """Why a value does not fit its key."""


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise _Unfit(f"{kind(value)}, a string is expected")
    return value


def _items(value: object) -> list[object]:
    if not isinstance(value, list):
        raise _Unfit(f"{kind(value)}, a list is expected")
    return value


def _name(value: object) -> str:
    name = _text(value)
    if not is_dns_name(name):
        hint = "; the namespace goes into the key \"namespace\"" if "/" in name else ""
        raise _Unfit(f"not the name of a net-attach-def, lower-case letters, digits, '-' and '.' are expected{hint}")
    return name


def _namespace(value: object) -> str:
    namespace = _text(value)
    if namespace and not is_dns_label(namespace):
        raise _Unfit("not the name of a namespace, lower-case letters, digits and '-' are expected")
    return namespace


def _ifname(value: object) -> str:
    ifname = _text(value)
    problem = ifname_problem(ifname) if ifname else ""
    if problem:
        raise _Unfit(f"not an interface name: {problem}")
    return ifname


def _ips(value: object) -> tuple[str, ...]:
    ips = tuple(_text(item) for item in _items(value))
    if not ips:
        raise _Unfit("at least one address is expected")
    for ip in ips:
        if not (is_cidr(ip) if "/" in ip else is_ip(ip)):
            raise _Unfit(f"{quote(ip)} is no IP address with or without a prefix length")
    return ips


def _mac(value: object) -> str:
    if not is_mac(_text(value)):
        raise _Unfit("not a MAC address of 6 bytes")
    return _text(value)


def _guid(value: object) -> str:
    if not is_mac(_text(value), lengths=(8,)):
        raise _Unfit("not an InfiniBand GUID of 8 bytes")
    return _text(value)


def _gateways(value: object) -> tuple[str, ...]:
    gateways = tuple(_text(item) for item in _items(value))
    for gateway in gateways:
        if not is_ip(gateway):
            raise _Unfit(f"{quote(gateway)} is no IP address")
    return gateways


def _whole(value: object, key: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise _Unfit(f"{key} {quote(value)} is not a whole number from {low} to {high}")
    return value


def _port_mappings(value: object) -> tuple[Mapping[str, object], ...]:
    mappings = _items(value)
    if not mappings:
        raise _Unfit("at least one mapping is expected")
    return tuple(_port_mapping(mapping) for mapping in mappings)


def _port_mapping(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _Unfit(f"a mapping is {kind(value)}, an object is expected")
    given = {key.lower(): item for key, item in value.items() if item is not None}
    protocol = _text(given.get("protocol") or "tcp").lower()
    if protocol not in _PROTOCOLS:
        raise _Unfit(f"protocol {quote(given['protocol'])} is none of {', '.join(_PROTOCOLS)}")
    mapping: dict[str, object] = {
        "hostPort": _whole(given.get("hostport"), "hostPort", 1, 65535),
        "containerPort": _whole(given.get("containerport"), "containerPort", 1, 65535),
        "protocol": protocol,
    }
    if given.get("hostip"):
        if not is_ip(_text(given["hostip"])):
            raise _Unfit(f"hostIP {quote(given['hostip'])} is no IP address")
        mapping["hostIP"] = given["hostip"]
    return mapping


def _bandwidth(value: object) -> Mapping[str, int]:
    if not isinstance(value, dict):
        raise _Unfit(f"{kind(value)}, an object is expected")
    lowered = {key.lower(): item for key, item in value.items() if item is not None}
    given = {key: _whole(lowered[key.lower()], key, 1, _RATE_MAX) for key in _BANDWIDTH if key.lower() in lowered}
    if not given:
        raise _Unfit(f"one of {', '.join(_BANDWIDTH)} is expected")
    for way in ("ingress", "egress"):
        if f"{way}Burst" in given and f"{way}Rate" not in given:
            raise _Unfit(f"{way}Burst is given without {way}Rate")
        if f"{way}Rate" in given:
            given.setdefault(f"{way}Burst", min(given[f"{way}Rate"], 2**32 - 1))
    return given


def _object(value: object) -> Mapping[str, object]:
    if not isinstance(value, dict):
        raise _Unfit(f"{kind(value)}, an object is expected")
    return value


_KEYS: dict[str, tuple[str, str, Callable[[object], object]]] = {
    "name": ("name", "name", _name),
    "namespace": ("namespace", "namespace", _namespace),
    "mac": ("mac", "mac", _mac),
    "infiniband-guid": ("infiniband-guid", "infiniband_guid", _guid),
    "ips": ("ips", "ips", _ips),
    "interface": ("interface", "ifname", _ifname),
    "interfacerequest": ("interfaceRequest", "ifname_alias", _ifname),
    "portmappings": ("portMappings", "port_mappings", _port_mappings),
    "bandwidth": ("bandwidth", "bandwidth", _bandwidth),
    "default-route": ("default-route", "default_route", _gateways),
    "cni-args": ("cni-args", "cni_args", _object),
    "deviceid": ("deviceID", "device_id", _text),
    "ipam-claim-reference": ("ipam-claim-reference", "ipam_claim_reference", _text),
}
"""Lower-case key: its spelling, the field it fills, the check that converts it."""


def _status_entry(status: NetworkStatus) -> dict[str, object]:
    entry: dict[str, object] = {"name": status.name}
    optional = {
        "interface": status.interface,
        "ips": list(status.ips),
        "mac": status.mac,
        "mtu": status.mtu,
        "default": status.default,
    }
    entry.update((key, value) for key, value in optional.items() if value)
    entry["dns"] = dict(status.dns)
    if status.device_info:
        entry["device-info"] = status.device_info
    if status.gateway:
        entry["gateway"] = list(status.gateway)
    if status.default_route is not None:
        entry["default-route"] = list(status.default_route)
    return entry
