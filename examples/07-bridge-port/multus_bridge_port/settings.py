"""What a configuration, and the pod in it, ask for; checked when it is read."""

from __future__ import annotations

import hashlib
import re
from ipaddress import ip_interface
from typing import TYPE_CHECKING, Any, NamedTuple

from multus.errors import InvalidConfigError, UnsupportedFieldError

if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.invocation import Invocation

_VIDS = range(1, 4095)
_MTUS = range(68, 65536)
_NAME_MAX = 15


class Settings(NamedTuple):
    """A port of a bridge, as it is wanted."""

    bridge: str
    port: str
    """The name of the host's end."""
    vlan: int
    """Of untagged frames; 0: none."""
    trunk: frozenset[int]
    """The VLANs of tagged frames."""
    addresses: tuple[str, ...]
    """Of the pod's end, with prefix lengths."""
    mac: str
    mtu: int
    """0: the bridge's."""

    @property
    def has_vlans(self) -> bool:
        return bool(self.vlan or self.trunk)

    @property
    def vlans(self) -> dict[int, bool]:
        """The port's VLANs, and whether each is that of untagged frames."""
        return dict.fromkeys(self.trunk, False) | ({self.vlan: True} if self.vlan else {})


def read(invocation: Invocation) -> Settings:
    """The settings of a call.

    Raises:
        InvalidConfigError: A value is not valid; the message names the key and the value.
        UnsupportedFieldError: The configuration has an ``ipam``.
    """
    config = invocation.config
    if config.get("ipam"):
        raise UnsupportedFieldError('key "ipam" is not served here: use "addresses", or let the pod ask with "ips"')
    asked, requested = _object(_object(config, "args"), "cni"), _object(config, "runtimeConfig")
    port = _name(asked, "port") or _name(config, "port") or port_name(invocation)
    vlan = _vid("vlan", config["vlan"]) if config.get("vlan") else 0
    trunk = frozenset(vid for element in _list(config, "trunk") for vid in _vids(element))
    if vlan in trunk:
        raise _invalid("trunk", vlan, 'another VLAN than that of "vlan", which is untagged')
    bridge = _name(config, "bridge")
    if not bridge:
        raise InvalidConfigError('key "bridge" is missing: name a bridge of the node')
    addresses = tuple(map(_address, _list(requested, "ips") or _list(config, "addresses")))
    mac, mtu = _text(requested, "mac").lower(), config.get("mtu") or 0
    if not isinstance(mtu, int) or isinstance(mtu, bool) or (mtu and mtu not in _MTUS):
        raise _invalid("mtu", mtu, f"a number of bytes from {_MTUS[0]} to {_MTUS[-1]}")
    if mac and re.fullmatch("[0-9a-f]{2}(:[0-9a-f]{2}){5}", mac) is None:
        raise _invalid("mac", mac, "a MAC address of six bytes with colons")
    return Settings(bridge, port, vlan, trunk, addresses, mac, mtu)


def port_name(invocation: Invocation) -> str:
    """The port of an attachment that asks for no name: the same in each call, and another for each attachment."""
    identity = f"{invocation.container_id} {invocation.ifname}"
    return f"port{hashlib.sha256(identity.encode()).hexdigest()[:10]}"


def _vids(element: object) -> range:
    """One VLAN, or ``"20-29"``."""
    if not isinstance(element, str):
        return range(_vid("trunk", element), _vid("trunk", element) + 1)
    first, dash, last = element.partition("-")
    if not (first.isdecimal() and (last.isdecimal() or not dash)):
        raise _invalid("trunk", element, 'a VLAN, or a range like "20-29"')
    found = range(_vid("trunk", int(first)), _vid("trunk", int(last or first)) + 1)
    if not found:
        raise _invalid("trunk", element, "a range from the lower to the higher")
    return found


def _vid(key: str, value: object) -> int:
    if not isinstance(value, int) or isinstance(value, bool) or value not in _VIDS:
        raise _invalid(key, value, f"a VLAN from {_VIDS[0]} to {_VIDS[-1]}")
    return value


def _address(value: object) -> str:
    if isinstance(value, str) and "/" in value:
        try:
            return str(ip_interface(value))
        except ValueError:
            pass
    raise _invalid("addresses", value, "an IP address with a prefix length")


def _text(owner: Mapping[str, Any], key: str) -> str:
    value = owner.get(key)
    if value is not None and not isinstance(value, str):
        raise _invalid(key, value, "a string")
    return value or ""


def _name(owner: Mapping[str, Any], key: str) -> str:
    """The name of an interface, as the kernel takes it; empty: none."""
    name = _text(owner, key)
    if not name.isprintable() or len(name.encode()) > _NAME_MAX or name in (".", "..") or any(each in "/: " for each in name):
        raise _invalid(key, name, f"a name of an interface, of up to {_NAME_MAX} bytes")
    return name


def _list(owner: Mapping[str, Any], key: str) -> list[Any]:
    value = owner.get(key)
    if value is not None and not isinstance(value, list):
        raise _invalid(key, value, "a list")
    return value or []


def _object(owner: Mapping[str, Any], key: str) -> dict[str, Any]:
    value = owner.get(key)
    if value is not None and not isinstance(value, dict):
        raise _invalid(key, value, "an object")
    return value or {}


def _invalid(key: str, value: object, wanted: str) -> InvalidConfigError:
    return InvalidConfigError(f'key "{key}" {value!r} is not {wanted}')
