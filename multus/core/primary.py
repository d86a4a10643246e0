"""The primary configuration and ours: which file is the primary one, which are our own, what ours says.

Pure: ``adapters.primary_files`` reads the files, ``adapters.conf_watch`` writes ours; ``core.embedded`` makes the thin plugin's.
Spec: Multus behaviour, "Config manager of the daemon".
"""

from __future__ import annotations

import os

from multus.errors import InvalidConfigError
from multus.protocol import conflists, documents, multus_config, versions
from multus.protocol.environment import is_identifier
from multus.protocol.primary_settings import capabilities_of
from multus.types.primary import Choice

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from multus.types.config import ConfList
    from multus.types.primary import Candidate, PrimarySettings

FILE_NAME = "00-multus.conf"
NETWORK_NAME = "multus-cni-network"

_EXTENSIONS = (".conf", ".conflist")
_READ_BY_RUNTIMES = (*_EXTENSIONS, ".json")
_HOLDING_PLUGINS = frozenset(("plugins", "delegates", "delegate"))
_COMMANDS = ("CHECK", "GC", "STATUS")


def candidates(names: Iterable[str]) -> tuple[str, ...]:
    """The file names that a primary configuration may have, in byte order: the first one wins, as it does for runtimes."""
    return tuple(sorted((name for name in names if name.endswith(_EXTENSIONS)), key=os.fsencode))


def is_own(document: Mapping[str, object], plugin_type: str = "multus-shim") -> bool:
    """Whether a configuration leads to multus: itself, or by one of its plugins or delegates at any depth.

    File names do not count: other components rename our file, and rename theirs like ours.

    Args:
        plugin_type: Our type where it is another one; it counts only beside ``clusterNetwork``.
    """
    pending: list[object] = [document]
    while pending:
        value = pending.pop()
        if isinstance(value, list):
            pending.extend(value)
        elif isinstance(value, dict):
            members = {key.lower(): member for key, member in value.items()}
            own_types = conflists.OWN_TYPES | {plugin_type} if "clusternetwork" in members else conflists.OWN_TYPES
            if isinstance(members.get("type"), str) and members["type"] in own_types:
                return True
            pending.extend(member for key, member in members.items() if key in _HOLDING_PLUGINS)
    return False


def choose(found: Sequence[Candidate], current: str, folder: str) -> Choice:
    """The primary configuration of a folder.

    It is the first file that is not ours.  While that one is not valid (it may be half written) nothing that comes after
    it takes its place, for another file is another network; only the file that was the primary one before stays it.

    Args:
        found: In order.
        current: The path of the primary configuration up to now; empty: there was none.

    Raises:
        InvalidConfigError: None can be it.
    """
    others = [candidate for candidate in found if not candidate.is_own]
    if not others:
        ours = f" but {len(found)} of multus itself" if found else ""
        raise InvalidConfigError(f"no network configuration (.conf, .conflist) is in folder {folder}{ours}")
    first = others[0]
    if first.conf is not None:
        return Choice(first.path, first.conf, f"first by name of {len(others)} in {folder}")
    for other in others:
        if other.path == current and other.conf is not None:
            return Choice(current, other.conf, f"first valid one by name of {len(others)} in {folder}", warning=first.problem)
    raise InvalidConfigError(first.problem)


def choose_named(candidate: Candidate) -> Choice:
    """The primary configuration that ``multusMasterCNI`` names.  Raises InvalidConfigError when it cannot be it."""
    if candidate.conf is None:
        raise InvalidConfigError(
            f"key \"multusMasterCNI\": {candidate.path} is a configuration of multus itself" if candidate.is_own else candidate.problem
        )
    return Choice(candidate.path, candidate.conf, "named by multusMasterCNI")


def generate(conf: ConfList, settings: PrimarySettings, path: str) -> dict[str, object]:
    """Our configuration around the primary one at ``path``: one plugin, members in the reference's order.

    Raises:
        InvalidConfigError: A capability of the primary is neither true nor false, or we would not read the outcome.
    """
    passed = settings.passed
    members = {
        "binDir": passed.get("binDir"),
        "capabilities": _declared(conf, settings, path),
        "cniVersion": settings.cni_version or conf.cni_version or versions.DEFAULT,
        "logFile": passed.get("logFile"),
        "logLevel": passed.get("logLevel"),
        "logToStderr": passed.get("logToStderr"),
        "logOptions": passed.get("logOptions"),
        "name": conf.name if settings.override_network_name else NETWORK_NAME,
        "clusterNetwork": path,
        "namespaceIsolation": passed.get("namespaceIsolation"),
        "globalNamespaces": passed.get("globalNamespaces"),
        "type": settings.plugin_type,
        "cniDir": passed.get("cniDir"),
        "auxiliaryCNIChainName": passed.get("auxiliaryCNIChainName"),
        "daemonSocketDir": passed.get("daemonSocketDir"),
        "shimDeadline": passed.get("shimDeadline"),
    }
    document = {key: value for key, value in members.items() if value}
    multus_config.from_document(document)
    return document


def commands_not_sent(conf: ConfList, settings: PrimarySettings) -> tuple[str, ...]:
    """The commands that our version has and the primary's has not: they succeed without reaching it."""
    ours = settings.cni_version or conf.cni_version
    return tuple(command for command in _COMMANDS if versions.allows(command, ours) and not versions.allows(command, conf.cni_version))


def check_ready_made(content: bytes, path: str, plugin_type: str) -> None:
    """Check the configuration at ``path`` that is to be used as it stands.

    Raises:
        DecodingError: Code 6, no JSON object.
        InvalidConfigError: Code 7; no runtime would read it, or it would not lead to multus.
        IncompatibleVersionError: Code 1, an unknown ``cniVersion``.
    """
    if not path.endswith(_READ_BY_RUNTIMES):
        raise InvalidConfigError(f"{path} does not end in {', '.join(_READ_BY_RUNTIMES)}, so no runtime would read it")
    document = documents.load_object(content, path)
    if not is_own(document, plugin_type):
        raise InvalidConfigError(f"{path} has no plugin of type {' or '.join(sorted(conflists.OWN_TYPES | {plugin_type}))}")
    name, cni_version = documents.lookup(document, "name"), documents.lookup(document, "cniVersion")
    if not isinstance(name, str) or not is_identifier(name):
        raise InvalidConfigError(f"{path}: key \"name\" {documents.quote(name)} is no network name")
    if not isinstance(cni_version, str | None):
        raise InvalidConfigError(f"{path}: key \"cniVersion\" is {documents.kind(cni_version)}, a string is expected")
    versions.require_supported(cni_version or "", path)


def capabilities(conf: ConfList, settings: PrimarySettings, path: str) -> dict[str, bool]:
    """What any plugin of the primary says, over the settings' own: true if one of them says so; sorted by name."""
    merged = dict(settings.capabilities)
    for plugin in conf.plugins:
        for name, is_declared in capabilities_of(plugin.document.get("capabilities"), path).items():
            merged[name] = merged.get(name, False) or is_declared
    return dict(sorted(merged.items()))


def _declared(conf: ConfList, settings: PrimarySettings, path: str) -> dict[str, bool]:
    """The capabilities without those that the primary says it has not."""
    return {name: value for name, value in capabilities(conf, settings, path).items() if value or name in settings.capabilities}
