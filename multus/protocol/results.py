"""Results of ADD in all seven CNI versions: validated, converted, read, and their default routes edited.

A result stays the document that its plugin printed, unknown keys included, for as long as its version stays.  One table
per shape says which keys there are and of what kind; validation, conversion and reading all follow it.
Spec: CNI 1.1.0 §5, "ADD Success"; Multus behaviour, "Result formats and conversion".
"""

from __future__ import annotations

from multus import errors
from multus.protocol import addresses, versions
from multus.types.result import Interface, IPConfig, Result, ResultView, Route

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Mapping, Sequence
    from typing import Any, TypeAlias

    Kind: TypeAlias = "str | list[Kind] | dict[str, Kind]"
    """A scalar by its description, a list by the kind of its elements, an object by the kinds of its keys."""
    Document: TypeAlias = "dict[str, Any]"

_TEXT = "a string"
_INTEGER = "an integer"
_ADDRESS = "an IP address"
_DESTINATION = "an IP address with a prefix length"
_REQUIRED_CIDR = "an IP address with its prefix length"

_DNS: Kind = {"nameservers": [_TEXT], "domain": _TEXT, "search": [_TEXT], "options": [_TEXT]}
_ROUTE: dict[str, Kind] = {"dst": _DESTINATION, "gw": _ADDRESS}
_ROUTE_1_1: Kind = {**_ROUTE, "mtu": _INTEGER, "advmss": _INTEGER, "priority": _INTEGER, "table": _INTEGER, "scope": _INTEGER}
_IP_0_2: Kind = {"ip": _REQUIRED_CIDR, "gateway": _ADDRESS, "routes": [_ROUTE]}
_IP: dict[str, Kind] = {"interface": _INTEGER, "address": _REQUIRED_CIDR, "gateway": _ADDRESS}
_INTERFACE: dict[str, Kind] = {"name": _TEXT, "mac": _TEXT, "sandbox": _TEXT}
_INTERFACE_1_1: Kind = {**_INTERFACE, "mtu": _INTEGER, "socketPath": _TEXT, "pciID": _TEXT}

_0_2: dict[str, Kind] = {"ip4": _IP_0_2, "ip6": _IP_0_2, "dns": _DNS}
_0_4: dict[str, Kind] = {"interfaces": [_INTERFACE], "ips": [{"version": _TEXT, **_IP}], "routes": [_ROUTE], "dns": _DNS}
_1_0: dict[str, Kind] = {"interfaces": [_INTERFACE], "ips": [_IP], "routes": [_ROUTE], "dns": _DNS}
_1_1: dict[str, Kind] = {"interfaces": [_INTERFACE_1_1], "ips": [_IP], "routes": [_ROUTE_1_1], "dns": _DNS}

SHAPES = ("0.2", "0.4", "1.0", "1.1")
"""The four shapes of a result, each named by its newest version."""

_SHAPE_OF = {"0.1.0": 0, "0.2.0": 0, "0.3.0": 1, "0.3.1": 1, "0.4.0": 1, "1.0.0": 2, "1.1.0": 3}
_READ = (_0_2, _0_4, _1_1, _1_1)  # plugins print the keys of 1.1 in results of 1.0, because their library does
_BOTH_FAMILIES = (4, 6)
_OLD_OWNERS = (("ip4", (4,)), ("ip6", (6,)))
_LONGEST_SHOWN = 60


def parse(document: object, default_version: str) -> Result:
    """A plugin's answer to ADD, decoded from JSON, found to be a valid result of its own version.

    Unknown keys stay.  ``null`` for a key, or for the whole answer, is as if it were not there.  An interface index may
    point to nothing: ``view`` then reads none.

    Args:
        default_version: Of the request: what an answer without ``cniVersion`` is of; empty for 0.1.0.

    Raises:
        DecodingError: It is not valid.  The message opens with a JSON path (``$.ips[0].address``).
    """
    if document is None:
        document = {}
    if not isinstance(document, dict):
        raise _invalid("$", document, "an object")
    stated = document.get("cniVersion")
    version = default_version or versions.DEFAULT if stated is None or stated == "" else stated
    if not isinstance(version, str) or version not in _SHAPE_OF:
        raise _invalid("$.cniVersion", version, "one of " + ", ".join(_SHAPE_OF))
    _validate(document, _READ[_SHAPE_OF[version]], "$")
    return Result(document if version is stated else {**document, "cniVersion": version})


def empty(version: str) -> Result:
    """A result without interfaces and addresses.

    Raises:
        IncompatibleVersionError: ``version`` is not supported.
    """
    version = versions.require_supported(version)
    return Result(_document({}, version))


def convert(result: Result, version: str) -> Result:
    """The same result in another version; the very same object if it is of that version already.

    A conversion keeps what the target defines and drops all other keys, with empty ones; addresses get their usual
    spelling.  Up to 0.2.0 a result holds one address of each family, the first.

    Raises:
        IncompatibleVersionError: ``version`` is not supported.
        DecodingError: The target is 0.1.0 or 0.2.0, which need an address, and the result has none.
    """
    version = versions.require_supported(version)
    if version == result.cni_version:
        return result
    have, want = _SHAPE_OF[result.cni_version], _SHAPE_OF[version]
    document: Document = _normal(result.document, _READ[have])
    direction = 1 if want > have else -1
    for shape in range(have, want, direction):
        document = STEPS[SHAPES[shape], SHAPES[shape + direction]](document)
    return Result(_document(document, version))


def view(result: Result) -> ResultView:
    """What we read of a result that ``parse`` accepted.  An interface index that points to nothing is None."""
    shape = _SHAPE_OF[result.cni_version]
    document: Document = _normal(result.document, _READ[shape])
    if shape == 0:
        document = _from_0_2_to_0_4(document)
    interfaces = tuple(
        Interface(entry.get("name", ""), entry.get("mac", ""), entry.get("mtu") or None, entry.get("sandbox", ""))
        for entry in document.get("interfaces", ())
    )
    return ResultView(
        interfaces=interfaces,
        ips=tuple(
            IPConfig(entry["address"], entry.get("gateway", ""), _index(entry.get("interface"), len(interfaces)))
            for entry in document.get("ips", ())
        ),
        routes=tuple(Route(entry.get("dst", ""), entry.get("gw", "")) for entry in document.get("routes", ())),
        dns=document.get("dns", {}),
    )


def with_routes_removed(result: Result, families: Collection[int]) -> Result:
    """The result without the default routes of ``families`` (4, 6); all else as it was, save a ``routes`` now empty.

    A route without ``dst`` is of its ``gw``'s family; without ``gw`` too, of the ``ip4`` or ``ip6`` it is in, else of both.
    """
    document = result.document
    if _SHAPE_OF[result.cni_version]:
        return Result(_without_default_routes(document, families, _BOTH_FAMILIES))
    changed = {
        key: _without_default_routes(owner, families, native)
        for key, native in _OLD_OWNERS
        if isinstance(owner := document.get(key), dict)
    }
    return Result({**document, **changed})


def with_default_routes_added(result: Result, gateways: Sequence[str]) -> Result:
    """The result with one default route for each gateway at the end of its routes.

    In 0.1.0 and 0.2.0 the routes belong to an address, so that a gateway of a family without one adds nothing.

    Raises:
        InvalidConfigError: A gateway is not an IP address.
    """
    added = [_default_route(gateway) for gateway in gateways]
    document = result.document
    if _SHAPE_OF[result.cni_version]:
        return Result(_with_routes(document, added))
    changed = {
        key: _with_routes(owner, [route for route in added if _families(route, ()) == native])
        for key, native in _OLD_OWNERS
        if isinstance(owner := document.get(key), dict)
    }
    return Result({**document, **changed})


# --- Conversion: one step between neighbouring shapes; each takes and gives documents in normal form, without version ---


def _from_0_2_to_0_4(document: Document) -> Document:
    owners = [document[key] for key in ("ip4", "ip6") if key in document]
    lifted = {
        "ips": [_versioned({"address": owner["ip"], "gateway": owner.get("gateway")}) for owner in owners],
        "routes": [route for owner in owners for route in owner.get("routes", ())],
        "dns": document.get("dns"),
    }
    return _picked(lifted, _0_4)


def _from_0_4_to_0_2(document: Document) -> Document:
    owners: Document = {}
    for entry in document.get("ips", ()):
        key = f"ip{_family(entry['address'])}"
        owners.setdefault(key, {"ip": entry["address"], "gateway": entry.get("gateway"), "routes": []})
    if not owners:
        raise errors.DecodingError("$.ips is empty, and a result of version 0.1.0 or 0.2.0 needs an address")
    for route in document.get("routes", ()):
        for family in _families(route, _BOTH_FAMILIES):
            if f"ip{family}" in owners:
                owners[f"ip{family}"]["routes"].append(route)
    return _picked({**owners, "dns": document.get("dns")}, _0_2)


def _to_1_0(document: Document) -> Document:
    return _picked(document, _1_0)


def _from_1_0_to_0_4(document: Document) -> Document:
    return _picked({**document, "ips": [_versioned(entry) for entry in document.get("ips", ())]}, _0_4)


def _from_1_0_to_1_1(document: Document) -> Document:
    return document


STEPS: Mapping[tuple[str, str], Callable[[Document], Document]] = {
    ("0.2", "0.4"): _from_0_2_to_0_4,
    ("0.4", "0.2"): _from_0_4_to_0_2,
    ("0.4", "1.0"): _to_1_0,
    ("1.0", "0.4"): _from_1_0_to_0_4,
    ("1.0", "1.1"): _from_1_0_to_1_1,
    ("1.1", "1.0"): _to_1_0,
}
"""The conversions between neighbouring shapes, by shape from and to."""


def _versioned(entry: Document) -> Document:
    return {"version": str(_family(entry["address"])), **entry}


def _document(document: Document, version: str) -> Document:
    if _SHAPE_OF[version] < SHAPES.index("1.0"):
        document = {**document, "dns": document.get("dns", {})}  # always printed there
    return {"cniVersion": version, **document}


# --- The tables at work ---


def _validate(value: object, kind: Kind, path: str) -> None:
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise _invalid(path, value, "an object")
        for key, inner in kind.items():
            entry = value.get(key)
            if entry is not None:
                _validate(entry, inner, f"{path}.{key}")
            elif inner == _REQUIRED_CIDR:
                raise errors.DecodingError(f"{path}.{key} is missing")
    elif isinstance(kind, list):
        if not isinstance(value, list):
            raise _invalid(path, value, "a list")
        for index, entry in enumerate(value):
            _validate(entry, kind[0], f"{path}[{index}]")
    elif not _is_a(value, kind):
        raise _invalid(path, value, kind)


def _is_a(value: object, kind: str) -> bool:
    if kind == _INTEGER:
        return isinstance(value, int) and not isinstance(value, bool)
    if not isinstance(value, str):
        return False
    if kind == _ADDRESS:
        return not value or addresses.is_ip(value)
    return kind == _TEXT or addresses.is_cidr(value)


def _normal(value: Any, kind: Kind) -> Any:
    """A valid value with its known keys only, none of them empty, and addresses in their usual spelling."""
    if isinstance(kind, dict):
        return _picked(value, kind)
    if isinstance(kind, list):
        return [_normal(entry, kind[0]) for entry in value]
    if kind == _ADDRESS:
        return addresses.canonical_ip(value) or ""
    if kind in (_DESTINATION, _REQUIRED_CIDR):
        return addresses.canonical_cidr(value)
    return value


def _picked(value: Mapping[str, Any], kinds: dict[str, Kind]) -> Document:
    picked = {key: _normal(entry, kind) for key, kind in kinds.items() if (entry := value.get(key)) is not None}
    return {key: entry for key, entry in picked.items() if entry not in ("", [], {})}


def _invalid(path: str, value: object, wanted: str) -> errors.DecodingError:
    # A list or an object is not shown: it may be long, or hold what is secret.
    kind = "an object" if isinstance(value, dict) else "a list" if isinstance(value, list) else ""
    return errors.DecodingError(f"{path} is {kind or repr(value)[:_LONGEST_SHOWN]}, not {wanted}")


# --- Routes and addresses ---


def _family(cidr: str) -> int:
    parsed = addresses.parse_cidr(cidr)
    return parsed[0] if parsed else 0


def _families(route: Mapping[str, Any], otherwise: tuple[int, ...]) -> tuple[int, ...]:
    """The family that a route is of: by its destination, else by its gateway, else what the caller says."""
    destination = addresses.parse_cidr(route.get("dst") or "")
    if destination:
        return (destination[0],)
    gateway = addresses.parse_ip(route.get("gw") or "")
    return (gateway[0],) if gateway else otherwise


def _index(index: int | None, count: int) -> int | None:
    return index if index is not None and 0 <= index < count else None


def _default_route(gateway: str) -> dict[str, str]:
    parsed = addresses.parse_ip(gateway)
    if parsed is None:
        raise errors.InvalidConfigError(f"default-route gateway {gateway[:_LONGEST_SHOWN]!r} is not an IP address")
    return {"dst": "0.0.0.0/0" if parsed[0] == 4 else "::/0", "gw": gateway}


def _without_default_routes(owner: Mapping[str, Any], families: Collection[int], native: tuple[int, ...]) -> Document:
    edited = dict(owner)
    kept = [
        route
        for route in owner.get("routes") or ()
        if not addresses.is_default(route.get("dst")) or not any(family in families for family in _families(route, native))
    ]
    if kept:
        edited["routes"] = kept
    elif owner.get("routes"):
        del edited["routes"]
    return edited


def _with_routes(owner: Mapping[str, Any], added: list[dict[str, str]]) -> Document:
    return {**owner, "routes": [*(owner.get("routes") or ()), *added]} if added else dict(owner)
