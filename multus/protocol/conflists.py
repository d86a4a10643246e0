"""Network configurations: documents to ``ConfList`` values, checked; and edits, on copies.

Spec: CNI 1.1.0 §1.  A single plugin becomes a list of one here, and nothing downstream tells them apart.
"""

from __future__ import annotations

from multus.errors import InvalidConfigError
from multus.protocol import versions
from multus.protocol.documents import is_path_text, kind, lookup, quote
from multus.protocol.environment import is_identifier
from multus.types.config import ConfList, PluginConf

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

OWN_TYPES = frozenset(("multus", "multus-shim"))


def parse(document: Mapping[str, object], *, where: str, default_name: str = "") -> ConfList:
    """Check a network configuration, a plugin list or a single plugin, and view it as a list.

    Args:
        where: What the document is, in front of every message.
        default_name: For a document without a name (or with an empty one).

    Raises:
        InvalidConfigError: Code 7; names ``where``, the key, and the plugin's index in a list.
        IncompatibleVersionError: Code 1; a ``cniVersion`` that nobody knows.
    """
    single_type = lookup(document, "type")
    if single_type is not None and not isinstance(single_type, str):
        raise InvalidConfigError(f"{where}: key \"type\" is {kind(single_type)}, a string is expected")
    is_list = not single_type
    if is_list:
        plugins = _plugins(document, where)
        version = _highest_version(document, where)
    else:
        plugins = (plugin_of(document, where),)
        version = _text(document, "cniVersion", where)
    versions.require_supported(version, where)
    name = _text(document, "name", where) or default_name
    if not is_identifier(name):
        raise InvalidConfigError(
            f"{where}: key \"name\" {quote(name)} is no network name: letters, digits, '_', '.', '-', first a letter or digit"
        )
    return ConfList(
        document,
        name,
        version,
        plugins,
        is_list,
        disable_check=_flag(document, "disableCheck", where),
        disable_gc=_flag(document, "disableGC", where),
    )


def plugin_of(document: object, where: str) -> PluginConf:
    """Check one plugin configuration object.  Raises InvalidConfigError that hints at a near-miss of ``type``."""
    if not isinstance(document, dict):
        raise InvalidConfigError(f"{where} is {kind(document)}, an object is expected")
    plugin_type = lookup(document, "type")
    if plugin_type is None or plugin_type == "":
        near = next((key for key in document if key.lower() != "type" and key.strip(" :\t").lower() == "type"), None)
        hint = "" if near is None else f", did you mean the key {quote(near)}"
        raise InvalidConfigError(f"{where} has no `type`{hint}")
    if not isinstance(plugin_type, str):
        raise InvalidConfigError(f"{where}: key \"type\" is {kind(plugin_type)}, a string is expected")
    if "/" in plugin_type or not is_path_text(plugin_type) or plugin_type in (".", ".."):
        raise InvalidConfigError(f"{where}: key \"type\" {quote(plugin_type)} is no file name")
    if plugin_type in OWN_TYPES:
        raise InvalidConfigError(f"{where}: key \"type\" {quote(plugin_type)} leads back to multus")
    capabilities = document.get("capabilities")
    if capabilities is not None and not isinstance(capabilities, dict):
        raise InvalidConfigError(f"{where}: key \"capabilities\" is {kind(capabilities)}, an object of booleans is expected")
    return PluginConf(document, plugin_type)


def load_only_inlined(document: Mapping[str, object], where: str) -> bool:
    """The list's ``loadOnlyInlinedPlugins``: its sub-folder is not looked at."""
    return _flag(document, "loadOnlyInlinedPlugins", where)


def with_edited(conf: ConfList, edit: Callable[[dict[str, object]], dict[str, object]]) -> ConfList:
    """The configuration with ``edit`` applied to a copy of each plugin's document."""
    plugins = tuple(plugin._replace(document=edit(dict(plugin.document))) for plugin in conf.plugins)
    if not conf.is_list:
        return conf._replace(plugins=plugins, document=plugins[0].document)
    return conf._replace(plugins=plugins, document={**conf.document, "plugins": [plugin.document for plugin in plugins]})


def named(conf: ConfList) -> dict[str, object]:
    """The document with name and version in it, as it could be read again anywhere."""
    document = {**conf.document, "name": conf.name}
    if conf.cni_version:
        document["cniVersion"] = conf.cni_version
    return document


def _plugins(document: Mapping[str, object], where: str) -> tuple[PluginConf, ...]:
    plugins = lookup(document, "plugins")
    if plugins is None:
        plugin_of(document, where)  # neither a plugin nor a list: says what is missing
    if not isinstance(plugins, list):
        raise InvalidConfigError(f"{where}: key \"plugins\" is {kind(plugins)}, a list is expected")
    if not plugins:
        raise InvalidConfigError(f"{where}: key \"plugins\" is empty")
    return tuple(plugin_of(plugin, f"{where}: plugin {index}") for index, plugin in enumerate(plugins))


def _highest_version(document: Mapping[str, object], where: str) -> str:
    listed = lookup(document, "cniVersions")
    if not isinstance(listed, list | None):
        raise InvalidConfigError(f"{where}: key \"cniVersions\" is {kind(listed)}, a list is expected")
    try:
        return versions.highest(_text(document, "cniVersion", where), listed or ())
    except InvalidConfigError as exc:
        raise exc.prefixed(where) from exc


def _text(document: Mapping[str, object], key: str, where: str) -> str:
    value = lookup(document, key)
    if value is None:
        return ""
    if not isinstance(value, str):
        raise InvalidConfigError(f"{where}: key \"{key}\" is {kind(value)}, a string is expected")
    return value


def _flag(document: Mapping[str, object], key: str, where: str) -> bool:
    value = lookup(document, key)
    if isinstance(value, str) and value.lower() in ("true", "false"):
        return value.lower() == "true"
    if value is None or isinstance(value, bool):
        return bool(value)
    raise InvalidConfigError(f"{where}: key \"{key}\" {quote(value)} is invalid, true or false is expected")
