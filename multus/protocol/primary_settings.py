"""The daemon's configuration file to ``PrimarySettings``, checked key by key.  Keys match in any case; null is the default."""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol import versions
from multus.protocol.documents import is_path_text, kind, quote
from multus.types.primary import PrimarySettings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_FIELDS: dict[str, tuple[str, type]] = {
    "cniConfigDir": ("cni_config_dir", str),
    "multusAutoconfigDir": ("autoconfig_dir", str),
    "multusMasterCNI": ("master_cni", str),
    "multusConfigFile": ("config_file", str),
    "cniVersion": ("cni_version", str),
    "forceCNIVersion": ("force_cni_version", bool),
    "overrideNetworkName": ("override_network_name", bool),
    "cleanupConfigOnExit": ("cleanup_config_on_exit", bool),
    "readinessindicatorfile": ("readiness_indicator_file", str),
    "type": ("plugin_type", str),
}
_PASSED: dict[str, tuple[type, ...]] = {
    "binDir": (str,),
    "logFile": (str,),
    "logLevel": (str,),
    "logToStderr": (bool,),
    "logOptions": (dict,),
    "namespaceIsolation": (bool,),
    "globalNamespaces": (str,),
    "cniDir": (str,),
    "auxiliaryCNIChainName": (str,),
    "daemonSocketDir": (str,),
    "shimDeadline": (int, float),
    "shimTimeout": (int, float),
}
_NAMES = {str: "a string", bool: "true or false", dict: "an object", int: "a number"}


def from_document(document: Mapping[str, object], where: str) -> PrimarySettings:
    """Check what the daemon's configuration says about ours.

    Args:
        where: The file, in front of every message.

    Raises:
        InvalidConfigError: Code 7; names the key and the value.
        IncompatibleVersionError: Code 1, an unknown ``cniVersion``.
    """
    given = {key.lower(): value for key, value in document.items() if value is not None}
    fields: dict[str, Any] = {}
    for key, (field, wanted) in _FIELDS.items():
        value = _checked(given, key, (wanted,), where)
        if value:
            fields[field] = value
    passed = {key: _checked(given, key, wanted, where) for key, wanted in _PASSED.items() if key.lower() in given}
    settings = PrimarySettings(capabilities=capabilities_of(given.get("capabilities"), where), passed=passed, **fields)
    if "/" in settings.plugin_type:
        raise InvalidConfigError(f"{where}: key \"type\" {quote(settings.plugin_type)} is no file name")
    folders = {"cniConfigDir": settings.cni_config_dir, "multusAutoconfigDir": settings.primary_folder}
    for key, folder in folders.items():
        if folder[0] != "/":
            raise InvalidConfigError(f"{where}: key \"{key}\" {quote(folder)} is no absolute path")
    if settings.cni_version:
        versions.require_supported(settings.cni_version, where)
    elif settings.force_cni_version:
        raise InvalidConfigError(f"{where}: key \"forceCNIVersion\" is true, and \"cniVersion\" does not say which")
    if not settings.is_automatic and settings.config_file[0] != "/":
        raise InvalidConfigError(f"{where}: key \"multusConfigFile\" {quote(settings.config_file)} is neither auto nor an absolute path")
    return settings


def _checked(given: Mapping[str, object], key: str, wanted: tuple[type, ...], where: str) -> object:
    value = given.get(key.lower())
    if value is None:
        return None
    if not isinstance(value, wanted) or (isinstance(value, bool) and bool not in wanted):
        raise InvalidConfigError(f"{where}: key \"{key}\" {quote(value)} is {kind(value)}, {_NAMES[wanted[0]]} is expected")
    if isinstance(value, str) and not is_path_text(value):
        raise InvalidConfigError(f"{where}: key \"{key}\" {quote(value)} is invalid: it has NUL or half a character")
    return value


def capabilities_of(value: object, where: str) -> dict[str, bool]:
    """A ``capabilities`` member: names with true or false; null is none.  Raises InvalidConfigError."""
    if value is None:
        return {}
    if not isinstance(value, dict):
        raise InvalidConfigError(f"{where}: key \"capabilities\" is {kind(value)}, an object of booleans is expected")
    for name, is_declared in value.items():
        if not isinstance(is_declared, bool):
            raise InvalidConfigError(f"{where}: key \"capabilities\" has {quote(name)} as {kind(is_declared)}, true or false is expected")
    return value
