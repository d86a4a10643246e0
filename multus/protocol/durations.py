"""Durations as Go writes them: ``10m``, ``1h30m``, ``1.5s``."""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol.documents import quote

_UNITS = {"ns": 1e-9, "us": 1e-6, "\u00b5s": 1e-6, "\u03bcs": 1e-6, "ms": 1e-3, "s": 1.0, "m": 60.0, "h": 3600.0}
_LONGEST_S = 2.0**63 / 1e9
"""What Go can hold, in nanoseconds."""
_DIGITS = "0123456789."


def parse_duration(text: str) -> float:
    """The seconds of a Go duration: numbers with units, at least one of them, ``0`` alone without.

    Raises:
        InvalidConfigError: Code 7; quotes the text.

    Spec: Go's ``time.ParseDuration``.
    """
    rest = text[1:] if text[:1] in ("-", "+") else text
    if rest == "0":
        return 0.0
    total_s = 0.0
    is_valid = bool(rest)
    while rest and is_valid:
        unit_and_more = rest.lstrip(_DIGITS)
        number = rest[: len(rest) - len(unit_and_more)]
        rest = unit_and_more.lstrip("".join(sorted(set("".join(_UNITS)))))
        unit = unit_and_more[: len(unit_and_more) - len(rest)]
        is_valid = unit in _UNITS and number.count(".") <= 1 and number not in ("", ".")
        total_s += float(number) * _UNITS[unit] if is_valid else 0.0
    if not is_valid or total_s >= _LONGEST_S:
        raise InvalidConfigError(f"{quote(text)} is no duration, such as 10m or 1h30m")
    return -total_s if text.startswith("-") else total_s
