"""JSON text to documents and back, exactly: what was read is what is written.

Integers keep every digit, unknown keys stay, nothing that is not JSON is accepted (NaN, Infinity, trailing text).
The C halves of ``json`` do the work; ``json`` itself, 5 ms with the ``re`` behind it, loads to say what is wrong with a text.
"""

from __future__ import annotations

from _json import encode_basestring, encode_basestring_ascii, make_encoder, make_scanner

from multus.errors import DecodingError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping


def loads(text: bytes | str, what: str) -> object:
    """Decode one JSON document.

    Raises:
        DecodingError: Code 6; names ``what`` and the place, never the content.
    """
    try:
        plain = (text if isinstance(text, str) else text.decode()).strip(" \t\r\n")
        value, end = make_scanner(_Rules)(plain, 0)  # type: ignore[arg-type]  # it takes anything with these attributes
        if end == len(plain):
            return value
    except (ValueError, StopIteration, RecursionError, SystemError):
        pass  # SystemError: CPython 3.11's scanner wants an exception of json.decoder's, which may not be loaded
    return _loads_or_explains(text, what)


def load_object(text: bytes | str, what: str) -> dict[str, object]:
    """Decode a JSON object; anything else is a DecodingError."""
    document = loads(text, what)
    if not isinstance(document, dict):
        raise DecodingError(f"{what} is {kind(document)}, an object is expected")
    return document


def dumps(document: object) -> str:
    """Encode compactly."""
    return _encoded(document, ",", ":", encode_basestring_ascii, _refuse_value)


def dumps_indented(document: object, *, only_ascii: bool = True) -> str:
    """Encode for people, four blanks for each level; compactly what is nested too deep for that."""
    quoted = encode_basestring_ascii if only_ascii else encode_basestring
    try:
        return _indented(document, quoted, "\n")
    except RecursionError:
        return _encoded(document, ",", ":", quoted, _refuse_value)


def spell(value: object) -> str:
    """A value as it would stand in JSON, in ASCII; what has no place in JSON as its ``str``."""
    return _encoded(value, ", ", ": ", encode_basestring_ascii, str)


def lookup(document: Mapping[str, object], key: str) -> object:
    """The member of that name, else of that name in another case, else None: the reference decodes so."""
    if key in document:
        return document[key]
    wanted = key.lower()
    for name, value in document.items():
        if name.lower() == wanted:
            return value
    return None


def kind(value: object) -> str:
    """What a JSON value is, with its article, for an error message."""
    if value is None:
        return "null"
    if isinstance(value, bool):
        return "a boolean"
    return {dict: "an object", list: "a list", str: "a string", int: "a number", float: "a number"}[type(value)]


def is_path_text(text: str) -> bool:
    """Whether ``text`` can be part of a path: JSON may hold NUL and halves of characters, which no system call takes."""
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return "\0" not in text


def quote(value: object) -> str:
    """A value as it would stand in JSON, cut to 60 characters, for an error message; halves of characters escaped."""
    text = _encoded(value, ", ", ": ", encode_basestring, str).encode(errors="backslashreplace").decode()
    return text if len(text) <= 60 else text[:57] + "..."


def _loads_or_explains(text: bytes | str, what: str) -> object:
    import json  # for a text that the C scanner alone does not take

    try:
        return json.loads(text, parse_float=_exact_float, parse_constant=_refuse_constant)
    except json.JSONDecodeError as exc:
        raise DecodingError(f"{what} is not JSON: {exc.msg} at line {exc.lineno} column {exc.colno}") from exc
    except UnicodeDecodeError as exc:
        raise DecodingError(f"{what} is not JSON: not UTF-8 at byte {exc.start}") from exc
    except (ValueError, RecursionError) as exc:
        raise DecodingError(f"{what} is not JSON that can be kept exactly: {exc}") from exc


def _indented(value: object, quoted: Callable[[str], str], margin: str) -> str:
    inner = f"{margin}    "
    if isinstance(value, dict) and value:
        members = [f"{quoted(key)}: {_indented(member, quoted, inner)}" for key, member in value.items()]
        return f"{{{inner}{f',{inner}'.join(members)}{margin}}}"
    if isinstance(value, (list, tuple)) and value:
        elements = [_indented(element, quoted, inner) for element in value]
        return f"[{inner}{f',{inner}'.join(elements)}{margin}]"
    return _encoded(value, ",", ":", quoted, _refuse_value)


def _encoded(value: object, item: str, key: str, quoted: Callable[[str], str], other: Callable[[object], object]) -> str:
    """JSON text; ``item`` stands after an element, ``key`` after a name, ``other`` answers for what JSON does not know."""
    return "".join(make_encoder({}, other, quoted, None, key, item, False, False, False)(value, 0))


def _refuse_value(value: object) -> object:
    raise TypeError(f"a value of type {type(value).__name__} has no place in JSON")


def _exact_float(text: str) -> float:
    value = float(text)
    if value in (float("inf"), float("-inf")):
        raise ValueError(f"number out of range: {text[:20]}")
    return value


def _refuse_constant(text: str) -> float:
    raise ValueError(f"{text} is not JSON")


class _Rules:
    """How the C scanner reads."""

    strict = True
    object_hook = None
    object_pairs_hook = None
    parse_float = staticmethod(_exact_float)
    parse_int = int
    parse_constant = staticmethod(_refuse_constant)
