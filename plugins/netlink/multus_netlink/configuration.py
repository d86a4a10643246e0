"""A plugin's configuration: which keys are served, and their values, checked when they are read.

``null`` is as if the key were not there, and a scalar that is empty (``""``, 0, false) as if it were not given.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from multus.errors import InvalidConfigError, InvalidEnvironmentError, UnsupportedFieldError
from multus.protocol import addresses
from multus.protocol.documents import is_path_text

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Mapping, Sequence

    from multus.types.invocation import Invocation

_STANDARD = frozenset(
    ("cniVersion", "cniVersions", "name", "type", "capabilities", "disableCheck", "ipam", "dns", "prevResult", "runtimeConfig", "args")
)
_LONGEST_SHOWN = 60
_LARGEST_MTU = 2**31 - 1


def require_served(config: Mapping[str, object], keys: Collection[str], standard: Collection[str] = _STANDARD, *, where: str = "") -> None:
    """Raise UnsupportedFieldError for a key that says something, but is none of ``keys`` and no standard one.

    Keys with a ``/`` are the runtime's.  ``where`` goes before the key.
    """
    for key, value in config.items():
        if value and key not in keys and key not in standard and "/" not in key:
            raise unserved(f"{where}{key}", value)


def require_all_served(items: object, keys: Collection[str], *, where: str) -> None:
    """The same for every object of a list.  What is no list of objects is refused when it is read."""
    for item in items if isinstance(items, list) else ():
        if isinstance(item, dict):
            require_served(item, keys, (), where=where)


def unserved(key: str, value: object) -> UnsupportedFieldError:
    """The error for what may be valid, but is not for this package: the binary is to serve it."""
    return UnsupportedFieldError(f'key "{key}" {_shown(value)} is not served')


class Section:
    """An object of the configuration.  Reads raise InvalidConfigError, which names the interface, the key and the value."""

    def __init__(self, document: Mapping[str, object], where: str) -> None:
        self._document = document
        self._where = where

    @classmethod
    def of(cls, invocation: Invocation) -> Section:
        """The whole configuration of a call."""
        return cls(invocation.config, f"interface {invocation.ifname or '(none)'}: ")

    def has(self, key: str) -> bool:
        """Whether the key is given, be it empty."""
        return self._document.get(key) is not None

    def text(self, key: str) -> str:
        value = self._document.get(key)
        if value is not None and not isinstance(value, str):
            raise self.refusal(key, "a string")
        if value and not is_path_text(value):
            raise self.refusal(key, "text that the kernel can take: without NUL and lone surrogates")
        return value or ""

    def choice(self, key: str, values: Sequence[str]) -> str:
        """One of these, which is the first unless another is given."""
        value = self.text(key) or values[0]
        if value not in values:
            raise self.refusal(key, f"one of {', '.join(values)}")
        return value

    def whole(self, key: str) -> int:
        value = self._document.get(key)
        if value is not None and (not isinstance(value, int) or isinstance(value, bool)):
            raise self.refusal(key, "a whole number")
        return value or 0

    def mtu(self) -> int:
        """``mtu``, in bytes; 0: as the kernel has it."""
        value = self.whole("mtu")
        if not 0 <= value <= _LARGEST_MTU:
            raise self.refusal("mtu", f"from 0 to {_LARGEST_MTU}")
        return value

    def flag(self, key: str) -> bool:
        value = self._document.get(key)
        if value is not None and not isinstance(value, bool):
            raise self.refusal(key, "true or false")
        return bool(value)

    def section(self, key: str) -> Section:
        """The object at ``key``; an empty one if there is none."""
        value = self._document.get(key)
        if value is not None and not isinstance(value, dict):
            raise self.refusal(key, "an object")
        return Section(value or {}, f"{self._where}{key}.")

    def items(self, key: str) -> list[object]:
        value = self._document.get(key)
        if value is not None and not isinstance(value, list):
            raise self.refusal(key, "a list")
        return value or []

    def texts(self, key: str) -> list[str]:
        found = [item for item in self.items(key) if isinstance(item, str)]
        if len(found) != len(self.items(key)):
            raise self.refusal(key, "a list of strings")
        return found

    def sections(self, key: str) -> Iterator[Section]:
        """The objects of the list at ``key``."""
        return self.elements(key, self.items(key))

    def elements(self, key: str, items: list[object]) -> Iterator[Section]:
        """``items``, found at or below ``key``, as objects."""
        for index, item in enumerate(items):
            if not isinstance(item, dict):
                raise self.refusal(key, "a list of objects")
            yield Section(item, f"{self._where}{key}[{index}].")

    def mac(self, key: str, lengths: tuple[int, ...] = (6,)) -> str:
        """A hardware address of one of these lengths, in bytes, with colons and in lower case; empty: none."""
        text = self.text(key)
        if text and not addresses.is_mac(text, lengths):
            raise self.refusal(key, "a MAC address of six bytes" if lengths == (6,) else "a hardware address")
        return with_colons(text)

    def cidr(self, key: str) -> str:
        """An address with a prefix length, in its usual spelling; there must be one."""
        cidr = addresses.canonical_cidr(self.text(key))
        if cidr is None:
            raise self.refusal(key, "an address with a prefix length")
        return cidr

    def ip(self, key: str) -> str:
        """An IP address in its usual spelling; empty: none."""
        text = self.text(key)
        ip = addresses.canonical_ip(text)
        if ip is None and text:
            raise self.refusal(key, "an IP address")
        return ip or ""

    def pairs(self, key: str) -> dict[str, str]:
        """The object at ``key``, whose values are strings."""
        self.section(key)
        value = self._document.get(key)
        items = value.items() if isinstance(value, dict) else ()
        found = {name: text for name, text in items if isinstance(text, str)}
        if len(found) != len(items):
            odd = next(name for name, text in items if not isinstance(text, str))
            raise self.section(key).refusal(odd, "a string")
        return found

    def refusal(self, key: str, wanted: str) -> InvalidConfigError:
        """The error for a value that is not as it should be."""
        return self.invalid(f"{key} {_shown(self._document.get(key))} is not {wanted}")

    def invalid(self, what: str) -> InvalidConfigError:
        """The error for what is wrong as a whole."""
        return InvalidConfigError(f"{self._where}{what}")


def generic_args(invocation: Invocation, known: Collection[str]) -> dict[str, str]:
    """The pairs of ``CNI_ARGS`` whose keys are ``known``.

    Raises:
        InvalidEnvironmentError: A part is no pair, or a key is unknown and IgnoreUnknown is not set.
    """
    pairs = {}
    for part in invocation.generic_args.split(";") if invocation.generic_args else ():
        key, equals, value = part.partition("=")
        if not equals:
            raise InvalidEnvironmentError(f"interface {invocation.ifname}: CNI_ARGS part {part!r} is no KEY=VALUE")
        pairs[key] = value
    unknown = [key for key in pairs if key not in known and key != "IgnoreUnknown"]
    if unknown and pairs.get("IgnoreUnknown", "").lower() not in ("1", "true"):
        raise InvalidEnvironmentError(f"interface {invocation.ifname}: CNI_ARGS has unknown keys {', '.join(map(repr, unknown))}")
    return {key: pairs[key] for key in known if key in pairs}


def valid_attachments(invocation: Invocation) -> list[tuple[str, str]]:
    """The container ID and interface name of each attachment that GC is told to be valid.

    Raises:
        InvalidConfigError: The configuration has no list of attachments.
    """
    config = Section.of(invocation)
    if not isinstance(invocation.config.get("cni.dev/valid-attachments"), list):
        raise config.refusal("cni.dev/valid-attachments", "a list of attachments")
    return [(each.text("containerID"), each.text("ifname")) for each in config.sections("cni.dev/valid-attachments")]


def requested_mac(invocation: Invocation, own: Section | None = None, conventions: Section | None = None) -> str:
    """The MAC that a pod asks for; six bytes with colons, empty for none.

    The first there is of ``runtimeConfig.mac``, ``mac`` of ``conventions`` (``args.cni``), MAC of CNI_ARGS, ``mac`` of
    ``own``; what is not used need not be valid, but text.
    """
    asked = generic_args(invocation, ("MAC",)).get("MAC", "")
    owners = (Section.of(invocation).section("runtimeConfig"), conventions, own)
    given = [owner for owner in owners if owner is not None and owner.text("mac")]
    first = given[0] if given else None
    if not asked or (first is not None and first is not own):
        return first.mac("mac") if first is not None else ""
    if not addresses.is_mac(asked):
        raise InvalidEnvironmentError(f"interface {invocation.ifname}: CNI_ARGS MAC {asked!r} is not a MAC address of six bytes")
    return with_colons(asked)


def with_colons(mac: str) -> str:
    """A hardware address in its usual spelling."""
    digits = mac.lower().translate({ord(separator): None for separator in ":-."})
    return ":".join(digits[index:index + 2] for index in range(0, len(digits), 2))


def _shown(value: object) -> str:
    return "(an object)" if isinstance(value, dict) else "(a list)" if isinstance(value, list) else repr(value)[:_LONGEST_SHOWN]
