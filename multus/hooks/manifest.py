"""Finding plugins: the entry points of both groups, or the manifest that an installation compiled from them.

The thin binary runs once per call, and a scan of the installed distributions costs it 12 ms; the manifest is one
small JSON file.  Without a manifest the scan is done, and only when a plugin is wanted.

    python -m multus.hooks.manifest            writes the manifest of this environment and prints its path
"""

from __future__ import annotations

import os
import sys

from multus import files
from multus.errors import InvalidConfigError, IOFailureError
from multus.protocol.documents import dumps, load_object

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping

HOOK_GROUP = "multus"
DELEGATE_GROUP = "multus.delegates"
PATH_VARIABLE = "MULTUS_PLUGIN_MANIFEST"
COMPILE_COMMAND = "python -m multus.hooks.manifest"


def default_path() -> str:
    """Where the manifest of this environment lies, unless ``MULTUS_PLUGIN_MANIFEST`` says otherwise."""
    return os.environ.get(PATH_VARIABLE) or os.path.join(sys.prefix, "etc", "multus", "plugins.json")


def compile_manifest(path: str) -> None:
    """Write the manifest of what is installed now: group → name → ``module:attribute``."""
    os.makedirs(os.path.dirname(path) or ".", exist_ok=True)
    files.replace(path, dumps({group: _scan(group) for group in (HOOK_GROUP, DELEGATE_GROUP)}).encode(), mode=0o644)


class Registry:
    """The plugins of this environment, loaded by name when they are wanted."""

    def __init__(self, path: str | None = None) -> None:
        self._path = path or default_path()
        self._groups: dict[str, Mapping[str, str]] = {}

    def hook_plugins(self, names: Iterable[str]) -> dict[str, object]:
        """The named hook plugins.  Raises InvalidConfigError that names one that is missing or cannot be loaded."""
        return {name: self._load(HOOK_GROUP, name) for name in names}

    def all_hook_plugins(self) -> dict[str, object]:
        """Every hook plugin that is installed."""
        return self.hook_plugins(self._group(HOOK_GROUP))

    def delegate(self, delegate_type: str) -> object | None:
        """The in-process delegate of a CNI ``type``, made if it is a class; None if there is none."""
        if delegate_type not in self._group(DELEGATE_GROUP):
            return None
        found = self._load(DELEGATE_GROUP, delegate_type)
        if not isinstance(found, type):
            return found
        try:
            made: object = found()
        except BaseException as exc:  # third-party code
            raise InvalidConfigError(f"delegate {delegate_type!r} cannot be made: {type(exc).__name__}: {exc}") from exc
        return made

    def _load(self, group: str, name: str) -> object:
        target = self._group(group).get(name)
        if target is None:
            known = ", ".join(sorted(self._group(group))) or "none"
            raise InvalidConfigError(
                f"plugin {name!r} of group {group!r} is not installed; known are: {known}; "
                f"after an installation, compile the manifest again: {COMPILE_COMMAND}"
            )
        from importlib import import_module  # costs nothing extra: the plugin's own import follows

        module, _, attribute = target.partition(":")
        try:
            found: object = import_module(module)
            for part in attribute.split(".") if attribute else ():
                found = getattr(found, part)
        except BaseException as exc:  # third-party code: whatever its import raises, sys.exit too, it cannot be loaded
            raise InvalidConfigError(
                f"plugin {name!r} of group {group!r} cannot be loaded from {target!r}: {type(exc).__name__}: {exc}"
            ) from exc
        return found

    def _group(self, group: str) -> Mapping[str, str]:
        if group not in self._groups:
            self._groups[group] = self._manifest_group(group)
        return self._groups[group]

    def _manifest_group(self, group: str) -> Mapping[str, str]:
        try:
            document = load_object(files.read(self._path), f"plugin manifest {self._path}")
        except FileNotFoundError:
            return _scan(group)
        except OSError as exc:
            raise IOFailureError(f"plugin manifest {self._path} cannot be read: {exc.strerror}") from exc
        members = document.get(group)
        if not isinstance(members, dict) or not all(isinstance(target, str) for target in members.values()):
            raise InvalidConfigError(
                f"plugin manifest {self._path}: key {group!r} is no object of strings; compile it again: {COMPILE_COMMAND}"
            )
        return members


def _scan(group: str) -> dict[str, str]:
    from importlib.metadata import entry_points  # 8 ms, and 4 for the scan: only without a manifest

    return {entry.name: entry.value for entry in sorted(entry_points(group=group))}


def main() -> None:
    """Write the manifest of this environment and print its path; exit status 1, with a line on standard error, if that fails."""
    path = default_path()
    try:
        compile_manifest(path)
    except OSError as exc:
        sys.exit(f"plugin manifest {path} cannot be written: {exc.strerror}")
    print(path)


if __name__ == "__main__":
    main()
