"""Addresses as text: IP addresses, CIDRs, MACs.  Pure functions; whoever calls turns "not valid" into an error.

The C module ``_socket`` parses: ``ipaddress`` costs 4 ms at import and ``socket`` 3 ms, which every pod would pay.

Grammar: a dotted quad without leading zeros, or IPv6 without a zone; a CIDR is that, ``/`` and a decimal prefix length
within range.  No signs, no blanks.  An IPv4-mapped IPv6 address *is* the IPv4 address, and is printed so; a mapped CIDR
likewise, its length less 96, unless it is shorter than 96 and so covers more than IPv4.
Spec: Multus behaviour, "IP grammar", "Address text".
"""

from __future__ import annotations

from _socket import AF_INET, AF_INET6, inet_ntop, inet_pton

_MAPPED = b"\x00" * 10 + b"\xff\xff"
_HEX_DIGITS = frozenset("0123456789abcdefABCDEF")
_DECIMAL_DIGITS = frozenset("0123456789")


def parse_ip(text: str) -> tuple[int, bytes] | None:
    """The family (4 or 6) and the packed address (4 or 16 bytes); None: no IP address."""
    parsed = _packed(text)
    if parsed and parsed[0] == 6 and parsed[1].startswith(_MAPPED):
        return 4, parsed[1][12:]
    return parsed


def parse_cidr(text: str) -> tuple[int, bytes, int] | None:
    """The family (4 or 6), the packed address with its host bits, and the prefix length; None: no CIDR."""
    address, _, digits = text.partition("/")
    if not 1 <= len(digits) <= 3 or not _DECIMAL_DIGITS.issuperset(digits):
        return None
    parsed = _packed(address)
    if not parsed:
        return None
    family, packed = parsed
    length = int(digits)
    if length > len(packed) * 8:
        return None
    if family == 6 and length >= 96 and packed.startswith(_MAPPED):
        return 4, packed[12:], length - 96
    return family, packed, length


def canonical_ip(text: str) -> str | None:
    """The address in its one usual spelling: lower case, longest run of zeros left out; None: no IP address."""
    parsed = parse_ip(text)
    return _text(*parsed) if parsed else None


def canonical_cidr(text: str) -> str | None:
    """The CIDR with its address in the usual spelling, host bits kept; None: no CIDR."""
    parsed = parse_cidr(text)
    return f"{_text(parsed[0], parsed[1])}/{parsed[2]}" if parsed else None


def is_ip(text: str) -> bool:
    """Whether ``text`` is an IP address without a prefix length."""
    return _packed(text) is not None


def is_cidr(text: str) -> bool:
    """Whether ``text`` is an IP address with a prefix length."""
    return parse_cidr(text) is not None


def is_mac(text: str, lengths: tuple[int, ...] = (6,)) -> bool:
    """Whether ``text`` is a hardware address of one of these lengths, in bytes.

    Two hex digits per byte separated throughout by ``:`` or throughout by ``-``, or four per group separated by ``.``.
    """
    for separator, width in ((":", 2), ("-", 2), (".", 4)):
        if separator in text:
            groups = text.split(separator)
            return len(groups) * width // 2 in lengths and all(
                len(group) == width and _HEX_DIGITS.issuperset(group) for group in groups
            )
    return False


def is_default(dst: str | None) -> bool:
    """Whether a route to ``dst`` is a default route: no destination (None or empty), or prefix length 0, either family."""
    if not dst:
        return True
    parsed = parse_cidr(dst)
    return parsed is not None and parsed[2] == 0


def _packed(text: str) -> tuple[int, bytes] | None:
    family, number = (6, AF_INET6) if ":" in text else (4, AF_INET)
    try:
        return family, inet_pton(number, text)
    except (OSError, ValueError):  # ValueError: a NUL or a lone surrogate in the text
        return None


def _text(family: int, packed: bytes) -> str:
    return inet_ntop(AF_INET if family == 4 else AF_INET6, packed)
