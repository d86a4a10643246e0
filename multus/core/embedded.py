"""The configuration of the thin plugin: the primary one stands inside it, whole.

Pure: ``adapters.primary_files`` reads and writes the files; ``core.primary`` makes the thick plugin's, which names the primary's
file instead.  Spec: Multus behaviour, "Generated configuration" of ``thin_entrypoint``; its layout is the reference's, byte for byte.
"""

from __future__ import annotations

from multus.core import primary
from multus.errors import InvalidConfigError
from multus.protocol import documents, multus_config, versions

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.config import ConfList
    from multus.types.primary import PrimarySettings

LIST_FILE_NAME = "00-multus.conflist"
_LISTS_SINCE = "1.0.0"
_BEFORE_DELEGATES = (
    "namespaceIsolation", "globalNamespaces", "logToStderr", "logLevel", "logFile", "binDir", "cniConf", "readinessindicatorfile",
    "kubeconfig",
)  # fmt: skip
"""Members that the settings pass, in the reference's order."""


def generate(conf: ConfList, settings: PrimarySettings, path: str) -> tuple[str, str]:
    """Name and text of our file, around the primary configuration that was read from ``path``.

    Up to 0.4.0 it is a single plugin, from 1.0.0 on a plugin list.

    Raises:
        InvalidConfigError: The primary has no ``cniVersion``, or another one than the settings demand; one of its capabilities
            is neither true nor false; or we would not read the outcome.
    """
    version = _version(conf, settings, path)
    name = conf.name if settings.override_network_name else primary.NETWORK_NAME
    delegate = _forced(conf.document, version) if settings.force_cni_version else conf.document
    capabilities = primary.capabilities(conf, settings, path)
    members: dict[str, object] = {"type": settings.plugin_type}
    if capabilities:
        members["capabilities"] = capabilities
    members.update((key, settings.passed[key]) for key in _BEFORE_DELEGATES if key in settings.passed)
    top = {"cniVersion": version, "name": name}
    multus_config.from_document({**top, **members, "delegates": [delegate]})
    if versions.at_least(version, _LISTS_SINCE):
        return LIST_FILE_NAME, _list_text(top, members, delegate)
    return primary.FILE_NAME, _single_text({**top, **members}, delegate)


def _version(conf: ConfList, settings: PrimarySettings, path: str) -> str:
    if settings.force_cni_version:
        return settings.cni_version
    if not conf.cni_version:
        raise InvalidConfigError(f"{path}: has no key \"cniVersion\"")
    if settings.cni_version not in ("", conf.cni_version):
        raise InvalidConfigError(f"{path}: its cniVersion {conf.cni_version} is not {settings.cni_version}, which was asked for")
    return conf.cni_version


def _forced(document: Mapping[str, object], version: str) -> dict[str, object]:
    return {"cniVersion": version, **{key: value for key, value in document.items() if key.lower() not in ("cniversion", "cniversions")}}


def _single_text(members: Mapping[str, object], delegate: Mapping[str, object]) -> str:
    return f"{{\n{_lines(members, 8)}{_delegates(delegate, 8, 16)}}}\n"


def _list_text(top: Mapping[str, object], members: Mapping[str, object], delegate: Mapping[str, object]) -> str:
    return f"{{\n{_lines(top, 4)}    \"plugins\": [ {{\n{_lines(members, 8)}{_delegates(delegate, 8, 12)}    }}]\n}}\n"


def _lines(members: Mapping[str, object], indent: int) -> str:
    return "".join(f"{' ' * indent}{documents.dumps(key)}: {documents.dumps(_sorted(value))},\n" for key, value in members.items())


def _delegates(delegate: Mapping[str, object], indent: int, inner: int) -> str:
    return f"{' ' * indent}\"delegates\": [\n{' ' * inner}{documents.dumps(_sorted(delegate))}\n{' ' * indent}]\n"


def _sorted(value: object) -> object:
    """The same with the members of objects in the order of their names, at any depth."""
    if isinstance(value, dict):
        return {key: _sorted(value[key]) for key in sorted(value)}
    return [_sorted(item) for item in value] if isinstance(value, list) else value
