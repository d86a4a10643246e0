"""JSON documents into attrs values: the only cattrs converter, and the only table of JSON spellings.

Strict: nothing is coerced, so text is no number and a list no text.  Lenient where Kubernetes is: unknown keys are
ignored, and null is the same as absent.  cattrs is imported on first use; importing this module costs next to nothing.
"""

from __future__ import annotations

import functools
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, TypeVar

from multus.errors import DecodingError
from multus.protocol import documents

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from cattrs import Converter

T = TypeVar("T")

_MAX_LINES = 10

_SPELLINGS: Mapping[str, Mapping[str, str]] = {
    "Checkpoint": {"entries": "Data.PodDeviceEntries"},
    "CheckpointEntry": {
        "pod_uid": "PodUID",
        "container_name": "ContainerName",
        "resource_name": "ResourceName",
        "device_ids": "DeviceIDs",
    },
    "PodContainer": {"restart_policy": "restartPolicy"},
    "PodClaim": {"resource_claim_name": "resourceClaimName"},
    "RequestMapping": {"container_name": "containerName", "request_name": "requestName", "resource_name": "resourceName"},
    "PodView": {
        "node_name": "spec.nodeName",
        "containers": "spec.containers",
        "init_containers": "spec.initContainers",
        "claims": "spec.resourceClaims",
        "claim_statuses": "status.resourceClaimStatuses",
        "extended_claim_name": "status.extendedResourceClaimStatus.resourceClaimName",
        "extended_requests": "status.extendedResourceClaimStatus.requestMappings",
    },
    "ResourceClaim": {"results": "status.allocation.devices.results"},
    "ResourceSlice": {"pool": "spec.pool.name", "generation": "spec.pool.generation", "devices": "spec.devices"},
}
"""By class and field: the path of JSON keys to the field's value.  A field that is not here is spelled as it is named."""


def structure(document: object, type_: type[T], where: str) -> T:
    """The value of attrs class ``type_`` that a parsed JSON document holds.

    Args:
        where: What the document is, for the error: ``resource claim team/nic``.

    Raises:
        DecodingError: Code 6, the document has another shape; ``details`` has at most ten lines, one per wrong value,
            each ending in its JSON path.
    """
    from cattrs import BaseValidationError  # 35 ms with attrs: only documents that need it pay

    try:
        return _converter().structure(document, type_)
    except (BaseValidationError, _WrongShapeError) as exc:
        lines = list(_describe(exc, "$"))
        if len(lines) > _MAX_LINES:
            lines[_MAX_LINES - 1:] = [f"and {len(lines) - _MAX_LINES + 1} more below $"]
        raise DecodingError(f"{where}: the document has the wrong shape", "\n".join(lines)) from exc


class _WrongShapeError(ValueError):
    """A JSON value is of another kind than its place asks for; ``at`` is the path to it from the value in hand."""

    def __init__(self, expected: str, value: object, at: str = "") -> None:
        super().__init__(expected)
        self.expected = expected
        self.value = value
        self.at = at


@functools.cache
def _converter() -> Converter:
    import attrs
    from cattrs import Converter
    from cattrs.cols import is_mapping, mapping_structure_factory

    converter = Converter()
    for scalar, expected in ((str, "a string"), (int, "an integer"), (bool, "a boolean")):
        converter.register_structure_hook(scalar, _exactly(scalar, expected))
    converter.register_structure_hook_factory(_is_tuple, _tuple_hook)
    converter.register_structure_hook_factory(
        is_mapping, lambda type_, converter: _checked(Mapping, "an object", mapping_structure_factory(type_, converter))
    )
    converter.register_structure_hook_factory(attrs.has, _class_hook)
    return converter


def _is_tuple(type_: Any) -> bool:
    return getattr(type_, "__origin__", None) is tuple


def _exactly(scalar: type, expected: str) -> Callable[[object, object], object]:
    def structure_scalar(value: object, _: object) -> object:
        if type(value) is not scalar:
            raise _WrongShapeError(expected, value)
        return value

    return structure_scalar


def _checked(kind: type, expected: str, hook: Callable[[Any, Any], Any]) -> Callable[[object, object], object]:
    def structure_collection(value: object, type_: object) -> object:
        if not isinstance(value, kind):
            raise _WrongShapeError(expected, value)
        return hook(value, type_)

    return structure_collection


def _tuple_hook(type_: Any, converter: Converter) -> Callable[[object, object], object]:
    from cattrs.cols import list_structure_factory

    list_type = list[type_.__args__[0]]
    structure_list: Callable[[Any, Any], list[object]] = list_structure_factory(list_type, converter)
    return _checked(list, "a list", lambda value, _: tuple(structure_list(value, list_type)))


def _class_hook(type_: type, converter: Converter) -> Callable[[object, object], object]:
    import attrs
    from cattrs.gen import make_dict_structure_fn, override

    paths = {field.name: tuple(_spelling(type_, field.name).split(".")) for field in attrs.fields(type_)}
    overrides: dict[str, Any] = {"device_ids": override(struct_hook=_device_ids)} if type_.__name__ == "CheckpointEntry" else {}
    structure_fields: Callable[[Mapping[str, object], Any], object] = make_dict_structure_fn(type_, converter, **overrides)

    def structure_class(value: object, _: object) -> object:
        found = {name: _reach(value, path) for name, path in paths.items()}
        return structure_fields({name: value for name, value in found.items() if value is not None}, type_)

    return structure_class


def _spelling(type_: type, field: str) -> str:
    return _SPELLINGS.get(type_.__name__, {}).get(field, field)


def _reach(value: object, path: tuple[str, ...]) -> object:
    """What lies at ``path`` in an object; None where the path ends early."""
    for depth, key in enumerate(path):
        if depth and value is None:
            return None
        if not isinstance(value, Mapping):
            raise _WrongShapeError("an object", value, "".join(f".{key}" for key in path[:depth]))
        value = value.get(key)
    return value


def _device_ids(value: object, _: object) -> tuple[str, ...]:
    """A checkpoint's device IDs: lists by NUMA node, or, from an older kubelet, one plain list."""
    if isinstance(value, list):
        return _converter().structure(value, tuple[str, ...])
    by_node = _converter().structure(value, dict[str, tuple[str, ...] | None])
    return tuple(device_id for device_ids in by_node.values() for device_id in device_ids or ())


def _describe(exc: BaseException, path: str) -> Iterator[str]:
    """One line per wrong value."""
    from cattrs import BaseValidationError

    if isinstance(exc, BaseValidationError):
        for failure in exc.exceptions:
            yield from _describe(failure, path + _step(failure, exc.cl))
    elif isinstance(exc, _WrongShapeError):
        yield f"expected {exc.expected}, got {_shown(exc.value)}: {path}{exc.at}"
    else:
        yield f"required, but missing: {path}"


def _step(failure: BaseException, parent: type) -> str:
    """The last step of the path to a failure, from the note that cattrs pinned to it."""
    from cattrs import AttributeValidationNote

    note = failure.__notes__[-1]
    if isinstance(note, AttributeValidationNote):
        return f".{_spelling(parent, note.name)}"
    return f"[{note.index}]" if isinstance(note.index, int) else f"[{documents.quote(note.index)}]"


def _shown(value: object) -> str:
    """A scalar as JSON spells it, cut; of anything larger only its kind, which leaks nothing."""
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, list) else documents.quote(value)
