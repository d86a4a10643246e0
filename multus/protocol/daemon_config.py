"""The daemon's configuration file to a ``DaemonConfig``, checked key by key; and its overlay on requests.

Keys match in any case; a key that nobody knows is a warning, a value of the wrong kind an error.
"""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol.documents import is_path_text, kind, lookup, quote
from multus.protocol.multus_config import log_config
from multus.types.certificates import CertificateSettings
from multus.types.config import LogConfig
from multus.types.daemon import DaemonConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

_NUMBERS = {
    "connectionlimit": ("connectionLimit", "connection_limit", 1, 4096),
    "metricsport": ("metricsPort", "metrics_port", 1, 65535),
}
_SECONDS = {
    "queuetimeout": ("queueTimeout", "queue_timeout_s", 1),
    "delegatetimeout": ("delegateTimeout", "delegate_timeout_s", 0),
    "shutdowngrace": ("shutdownGrace", "shutdown_grace_s", 0),
    "primarytimeout": ("primaryTimeout", "primary_timeout_s", 0),
}
_TEXTS = {
    "socketdir": ("socketDir", "socket_dir"),
    "chrootdir": ("chrootDir", "chroot_dir"),
    "cnidir": ("cniDir", "cni_dir"),
    "metricsaddress": ("metricsAddress", "metrics_address"),
    "readinessindicatorfile": ("readinessindicatorfile", "readiness_indicator_file"),
}
_CERTIFICATE_TEXTS = {"bootstrapKubeconfig": "bootstrap_kubeconfig", "certDir": "folder", "certDuration": "duration"}
_SECONDS_MAX = 3600
DEFAULT_LOG = LogConfig(to_stderr=False)
"""Until the configuration is read."""
_PASSED_ON = frozenset((
    "bindir", "confdir", "cniversion", "name", "type", "capabilities", "clusternetwork", "defaultnetworks", "systemnamespaces",
    "multusnamespace", "namespaceisolation", "globalnamespaces", "retrydeleteonerror", "logoptions", "auxiliarycnichainname",
    "runtimeconfig", "kubeconfig", "delegates", "plugins", "strictcapabilities", "allowdeviceid", "delegatepreference",
    "invalidannotation", "podnotfoundresult", "apideadline", "daemonsocketdir", "shimdeadline", "shimtimeout",
    "cniconfigdir", "multusautoconfigdir", "multusconfigfile", "multusmastercni", "forcecniversion", "overridenetworkname",
    "cleanupconfigonexit",
))  # fmt: skip
"""Lower-case keys that requests and the configuration manager read."""
_OWN = frozenset(("logfile", "loglevel", "logtostderr", "enablepprof", "pernodecertificate", "apiserverhost", "apiserverport"))


def from_document(document: Mapping[str, object], where: str, cores: int) -> DaemonConfig:
    """Check the daemon's configuration.

    Args:
        where: The file, in front of every message.
        cores: Of the machine: without ``connectionLimit`` twice as many requests are served at a time, 4 at least.

    Raises:
        InvalidConfigError: Code 7; names the key and the value.
    """
    given = {key.lower(): value for key, value in document.items() if value is not None}
    fields: dict[str, Any] = {"connection_limit": max(4, 2 * cores)}
    for key, (spelling, field) in _TEXTS.items():
        text = _text(given.get(key, ""), f"{where}: key \"{spelling}\"")
        if text:
            fields[field] = text
    for key, (spelling, field, low, high) in _NUMBERS.items():
        if key in given:
            fields[field] = _whole(given[key], f"{where}: key \"{spelling}\"", low, high)
    for key, (spelling, field, least) in _SECONDS.items():
        if key in given:
            fields[field] = _seconds(given[key], f"{where}: key \"{spelling}\"", least)
    fields["debug_endpoints"] = _flag(given.get("enablepprof", False), f"{where}: key \"enablePprof\"")
    host = _text(given.get("apiserverhost", ""), f"{where}: key \"apiServerHost\"")
    fields["api_server"] = (host, str(_whole(given.get("apiserverport", 443), f"{where}: key \"apiServerPort\"", 1, 65535)) if host else "")
    fields["is_automatic"] = (given.get("multusconfigfile") or "auto") == "auto"
    fields["log"] = _log(given, where)
    fields["certificate"] = _certificate(given.get("pernodecertificate"), where)
    known = _PASSED_ON | _OWN | _NUMBERS.keys() | _SECONDS.keys() | _TEXTS.keys()
    unknown = sorted(key for key in document if key.lower() not in known)
    warnings = tuple(f"{where}: key {quote(key)} is unknown and has no effect on the daemon" for key in unknown)
    return DaemonConfig(document, warnings=warnings, **fields)


def overlay(request: Mapping[str, object], config: DaemonConfig) -> dict[str, object]:
    """A request's configuration with the daemon's laid over it, key by key, in any case of letters.

    Where the daemon generates the configuration, it waits for the readiness indicator file itself, and requests do not.
    Spec: Multus behaviour, "Overlay of the daemon's configuration".
    """
    laid = {key.lower() for key in config.document}
    merged = {**{key: value for key, value in request.items() if key.lower() not in laid}, **config.document}
    if config.is_automatic:
        merged = {key: value for key, value in merged.items() if key.lower() != "readinessindicatorfile"}
    return merged


def _certificate(value: object, where: str) -> CertificateSettings | None:
    where = f"{where}: key \"perNodeCertificate"
    if value is None:
        return None
    if not isinstance(value, dict):
        raise InvalidConfigError(f"{where}\" {quote(value)} is {kind(value)}, an object is expected")
    enabled = lookup(value, "enabled")
    fields = {}
    for key, field in _CERTIFICATE_TEXTS.items():
        text = lookup(value, key)
        if text is not None:
            fields[field] = _text(text, f"{where}.{key}\"")
    is_enabled = enabled is not None and _flag(enabled, f"{where}.enabled\"")
    return CertificateSettings(**fields) if is_enabled else None


def _log(given: Mapping[str, object], where: str) -> LogConfig:
    try:
        return log_config(given, to_stderr=False)
    except InvalidConfigError as exc:
        raise exc.prefixed(where) from exc


def _text(value: object, where: str) -> str:
    if not isinstance(value, str):
        raise InvalidConfigError(f"{where} {quote(value)} is {kind(value)}, a string is expected")
    if not is_path_text(value):
        raise InvalidConfigError(f"{where} {quote(value)} is invalid: it has NUL or half a character")
    return value


def _flag(value: object, where: str) -> bool:
    if not isinstance(value, bool):
        raise InvalidConfigError(f"{where} {quote(value)} is {kind(value)}, true or false is expected")
    return value


def _whole(value: object, where: str, low: int, high: int) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
        raise InvalidConfigError(f"{where} {quote(value)} is no whole number from {low} to {high}")
    return value


def _seconds(value: object, where: str, least: int) -> float:
    if isinstance(value, bool) or not isinstance(value, int | float) or not least <= value <= _SECONDS_MAX:
        raise InvalidConfigError(f"{where} {quote(value)} is no number of seconds from {least} to {_SECONDS_MAX}")
    return float(value)
