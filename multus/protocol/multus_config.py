"""The configuration of Multus: standard input to a ``MultusConfig``, checked key by key.

Keys match in any case, as in the reference; unknown keys are ignored, null means the default.
``docs/configuration.md`` explains each key to people.
"""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol import conflists, versions
from multus.protocol.documents import is_path_text, kind, load_object, quote
from multus.protocol.environment import is_identifier
from multus.types.config import LogConfig, LogOptions, MultusConfig

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping
    from typing import Any

    from multus.types.config import ConfList

WHERE = "multus configuration"

_FIELDS = {
    "confdir": ("confDir", "conf_dir", str),
    "cnidir": ("cniDir", "cni_dir", str),
    "bindir": ("binDir", "bin_dir", str),
    "clusternetwork": ("clusterNetwork", "cluster_network", str),
    "defaultnetworks": ("defaultNetworks", "default_networks", tuple),
    "kubeconfig": ("kubeconfig", "kubeconfig", str),
    "readinessindicatorfile": ("readinessindicatorfile", "readiness_indicator_file", str),
    "namespaceisolation": ("namespaceIsolation", "namespace_isolation", bool),
    "systemnamespaces": ("systemNamespaces", "system_namespaces", tuple),
    "multusnamespace": ("multusNamespace", "multus_namespace", str),
    "auxiliarycnichainname": ("auxiliaryCNIChainName", "auxiliary_chain", str),
    "retrydeleteonerror": ("retryDeleteOnError", "retry_delete_on_error", bool),
    "strictcapabilities": ("strictCapabilities", "strict_capabilities", bool),
    "allowdeviceid": ("allowDeviceID", "allow_device_id", bool),
    "plugins": ("plugins", "plugins", tuple),
    "runtimeconfig": ("runtimeConfig", "runtime_config", dict),
    "prevresult": ("prevResult", "prev_result", dict),
}
"""Lower-case key: its spelling, the field it fills, its type; tuple stands for a list of strings."""

_CHOICES = {
    "delegatepreference": ("delegatePreference", "delegate_preference", ("binary", "in-process")),
    "invalidannotation": ("invalidAnnotation", "invalid_annotation", ("fail", "ignore")),
    "podnotfoundresult": ("podNotFoundResult", "pod_not_found_result", ("error", "empty")),
}
_PARALLEL_MAX = 64
_EMPTY_IS_DEFAULT = frozenset(("conf_dir", "cni_dir", "bin_dir", "multus_namespace"))


def load(stdin: bytes) -> MultusConfig:
    """Decode and check what a runtime wrote on standard input.

    Raises:
        DecodingError: Code 6, not a JSON object.
        InvalidConfigError: Code 7; names the key and the value.
        IncompatibleVersionError: Code 1, an unknown ``cniVersion``.
    """
    return from_document(load_object(stdin, WHERE))


def from_document(document: Mapping[str, object]) -> MultusConfig:
    """The same for a decoded document."""
    given = {key.lower(): value for key, value in document.items() if value is not None}
    given.update((key.lower(), document[key]) for key in document if document[key] is not None and key in _SPELLINGS)
    name = _checked(given.get("name", ""), "name", str)
    if not is_identifier(name):
        raise InvalidConfigError(f"{WHERE}: key \"name\" {quote(name)} is no network name")
    cni_version = _checked(given.get("cniversion", ""), "cniVersion", str) or "0.1.0"
    versions.require_supported(cni_version)
    fields: dict[str, Any] = {}
    for key, (spelling, field, wanted) in _FIELDS.items():
        if key in given:
            value = _checked(given[key], spelling, wanted)
            if value or field not in _EMPTY_IS_DEFAULT:
                fields[field] = value
    for key, (spelling, field, choices) in _CHOICES.items():
        if key in given:
            if given[key] not in choices:
                raise InvalidConfigError(
                    f"{WHERE}: key \"{spelling}\" {quote(given[key])} is invalid, one of {', '.join(choices)} is expected"
                )
            fields[field] = given[key]
    if "apideadline" in given:
        fields["api_deadline_s"] = _seconds(given["apideadline"], "apiDeadline")
    if "maxparallelattachments" in given:
        fields["max_parallel_attachments"] = _parallelism(given["maxparallelattachments"], "maxParallelAttachments")
    global_namespaces = _checked(given.get("globalnamespaces", ""), "globalNamespaces", str)
    if global_namespaces:
        fields["global_namespaces"] = tuple(part.strip() for part in global_namespaces.split(","))
    if "cni.dev/valid-attachments" in given:
        fields["valid_attachments"] = _attachments(given["cni.dev/valid-attachments"])
    config = MultusConfig(name, cni_version, log=log_config(given), **fields)
    return _with_delegates(config, given.get("delegates"))


def _with_delegates(config: MultusConfig, delegates: object) -> MultusConfig:
    if delegates is not None and not isinstance(delegates, list):
        raise InvalidConfigError(f"{WHERE}: key \"delegates\" is {kind(delegates)}, a list of objects is expected")
    if config.cluster_network:
        warnings = ('"delegates" is ignored because "clusterNetwork" is set',) if delegates else ()
        return config._replace(warnings=warnings)
    if not delegates:
        raise InvalidConfigError(f"{WHERE}: neither \"delegates\" nor \"clusterNetwork\" names the cluster network")
    return config._replace(delegates=tuple(_delegate(config, index, delegate) for index, delegate in enumerate(delegates)))


def _delegate(config: MultusConfig, index: int, document: object) -> ConfList:
    where = f"{WHERE}: delegates[{index}]"
    if not isinstance(document, dict):
        raise InvalidConfigError(f"{where} is {kind(document)}, an object is expected")
    default_name = config.name if index == 0 else f"{config.name}-{index}"
    return conflists.parse(document, where=where, default_name=default_name)


def log_config(given: Mapping[str, object], *, to_stderr: bool = True) -> LogConfig:
    """The log settings among lower-case keys; ``to_stderr`` is for a configuration that does not say."""
    options = _checked(given.get("logoptions", {}), "logOptions", dict)
    lowered = {key.lower(): value for key, value in options.items() if value is not None}
    default = LogOptions()
    return LogConfig(
        _checked(given.get("logfile", ""), "logFile", str),
        _checked(given.get("loglevel", ""), "logLevel", str),
        _checked(given.get("logtostderr", to_stderr), "logToStderr", bool),
        LogOptions(
            max_age=_count(lowered.get("maxage", default.max_age), "logOptions.maxAge"),
            max_size=_count(lowered.get("maxsize", default.max_size), "logOptions.maxSize"),
            max_backups=_count(lowered.get("maxbackups", default.max_backups), "logOptions.maxBackups"),
            compress=_checked(lowered.get("compress", default.compress), "logOptions.compress", bool),
        ),
    )


def _attachments(value: object) -> tuple[tuple[str, str], ...]:
    """Container ID and interface name of each valid attachment.  Spec: CNI 1.1.0 §2, GC."""
    key = "cni.dev/valid-attachments"
    if not isinstance(value, list):
        raise InvalidConfigError(f"{WHERE}: key \"{key}\" is {kind(value)}, a list is expected")
    pairs = []
    for index, entry in enumerate(value):
        pair = (entry.get("containerID"), entry.get("ifname")) if isinstance(entry, dict) else (None, None)
        if not isinstance(pair[0], str) or not isinstance(pair[1], str):
            raise InvalidConfigError(f"{WHERE}: key \"{key}\"[{index}] has no containerID and ifname")
        pairs.append((pair[0], pair[1]))
    return tuple(pairs)


def _checked(value: object, spelling: str, wanted: type) -> Any:
    if wanted is tuple and isinstance(value, list) and all(isinstance(item, str) for item in value):
        value = tuple(value)
    if not isinstance(value, wanted):
        names = {str: "a string", bool: "true or false", dict: "an object", tuple: "a list of strings"}
        raise InvalidConfigError(f"{WHERE}: key \"{spelling}\" {quote(value)} is {kind(value)}, {names[wanted]} is expected")
    if isinstance(value, (str, tuple)) and not all(map(is_path_text, [value] if isinstance(value, str) else value)):
        raise InvalidConfigError(f"{WHERE}: key \"{spelling}\" {quote(value)} is invalid: it has NUL or half a character")
    return value


def _count(value: object, spelling: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or value < 0:
        raise InvalidConfigError(f"{WHERE}: key \"{spelling}\" {quote(value)} is invalid, a whole number from 0 is expected")
    return value


def _parallelism(value: object, spelling: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or not 1 <= value <= _PARALLEL_MAX:
        raise InvalidConfigError(
            f"{WHERE}: key \"{spelling}\" {quote(value)} is invalid, a whole number from 1 to {_PARALLEL_MAX} is expected"
        )
    return value


def _seconds(value: object, spelling: str) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 0 < value <= 600:
        raise InvalidConfigError(f"{WHERE}: key \"{spelling}\" {quote(value)} is invalid, seconds above 0 and up to 600 are expected")
    return float(value)


_SPELLINGS = frozenset(spelling for spelling, *_ in (*_FIELDS.values(), *_CHOICES.values())) | frozenset(
    ("name", "cniVersion", "delegates", "globalNamespaces", "apiDeadline", "maxParallelAttachments",
     "logFile", "logLevel", "logToStderr", "logOptions")
)
"""Keys in their own spelling win over the same keys in another case."""
