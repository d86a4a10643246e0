"""Members of documents in our own files, by type.  A file that someone has damaged is a DecodingError, code 6, that names the key."""

from __future__ import annotations

from multus.errors import DecodingError
from multus.protocol import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


def an_object(value: object, what: str) -> dict[str, object]:
    """``value``, which is called ``what`` in the error, as an object."""
    if not isinstance(value, dict):
        raise DecodingError(f"{what} is {documents.kind(value)}, an object is expected")
    return value


def objects(value: object, what: str) -> tuple[dict[str, object], ...]:
    """``value`` as a list of objects."""
    if not isinstance(value, list):
        raise DecodingError(f"{what} is {documents.kind(value)}, a list is expected")
    return tuple(an_object(element, f"an element of {what}") for element in value)


def text(document: Mapping[str, object], key: str) -> str:
    """A string; "" if there is none."""
    value = document.get(key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise DecodingError(f"key \"{key}\" is {documents.kind(value)}, a string is expected")
    return value


def texts(document: Mapping[str, object], key: str) -> tuple[str, ...] | None:
    """A list of strings; None if there is none."""
    value = document.get(key)
    if value is None:
        return None
    if not isinstance(value, list) or not all(isinstance(element, str) for element in value):
        raise DecodingError(f"key \"{key}\" is not a list of strings")
    return tuple(value)


def flag(document: Mapping[str, object], key: str) -> bool:
    """A boolean, which must be there."""
    value = document.get(key)
    if not isinstance(value, bool):
        raise DecodingError(f"key \"{key}\" is {documents.kind(value)}, a boolean is expected")
    return value


def pairs(document: Mapping[str, object], key: str) -> tuple[tuple[str, str], ...]:
    """A list of pairs of strings; empty if there is none."""
    value = document.get(key) or []
    if not isinstance(value, list):
        raise DecodingError(f"key \"{key}\" is {documents.kind(value)}, a list of pairs is expected")
    pairs = []
    for pair in value:
        if not isinstance(pair, list) or len(pair) != 2 or not all(isinstance(element, str) for element in pair):
            raise DecodingError(f"key \"{key}\" is not a list of pairs of strings")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)
