"""Network configurations in files of the node: by name, the first of a folder, one file; and plugins in sub-folders.

Reads only; ``protocol.conflists`` says what a valid configuration is.
"""

from __future__ import annotations

import os
import stat

from multus import files
from multus.errors import DecodingError, InvalidConfigError, IOFailureError
from multus.protocol import conflists, documents
from multus.protocol.environment import is_identifier

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.ports import Log
    from multus.types.config import ConfList, PluginConf

LIST_EXTENSION = ".conflist"
SINGLE_EXTENSIONS = (".conf", ".json")


class ConfDir:
    """The configurations in ``folder``; sub-folders are not searched.

    Raises InvalidConfigError (or IncompatibleVersionError) for a configuration that is not valid, naming file and key,
    and IOFailureError for a folder that cannot be read.
    """

    def __init__(self, folder: str, log: Log | None = None) -> None:
        self._folder = folder
        self._log = log

    def by_name(self, name: str) -> ConfList | None:
        """The configuration whose ``name`` is that; None: there is none.

        Plugin lists are searched first, then single plugins, each in the order of their file names.  A file that is not
        JSON is skipped and logged, and named in the error if nothing else matches.  Spec: multi-network CRD standard.
        """
        skipped = []
        for file_name in sorted(_configurations(self._folder), key=lambda each: not each.endswith(LIST_EXTENSION)):
            path = os.path.join(self._folder, file_name)
            try:
                document = _document(path)
            except (InvalidConfigError, IOFailureError) as exc:
                skipped.append(exc.msg)
                continue
            if documents.lookup(document, "name") == name:
                self._report(name, skipped)
                return self._parse(document, path)
        self._report(name, skipped)
        if skipped:
            msg = f"no network configuration is named {documents.quote(name)} in {self._folder}, where {len(skipped)} files were skipped"
            raise InvalidConfigError(msg, "; ".join(skipped))
        return None

    def from_path(self, path: str) -> ConfList:
        """The configuration in a file, or the first one of a folder."""
        return self.first(path) if os.path.isdir(path) else self.from_file(path)

    def first(self, folder: str) -> ConfList:
        """The first configuration of a folder, by file name.  It counts even if it is broken: another is another network."""
        names = _configurations(folder)
        if not names:
            raise InvalidConfigError(f"no network configuration (.conf, .conflist, .json) is in folder {folder}")
        return self.from_file(os.path.join(folder, names[0]))

    def from_file(self, path: str, name: str = "") -> ConfList:
        """The configuration in a file: a plugin list if its name ends in ``.conflist``, else a single plugin.

        Args:
            name: The path that counts as its name, where it was renamed.
        """
        return self._parse(_document(path), name or path)

    def auxiliary_plugins(self, cluster_network: str, chain: str) -> tuple[PluginConf, ...]:
        """The plugins of an auxiliary chain: in the folder of that name beside the cluster network's file."""
        if not is_identifier(chain):
            raise InvalidConfigError(f"auxiliary chain {documents.quote(chain)} is no network name")
        return _plugins(os.path.join(os.path.dirname(cluster_network), chain))

    def _report(self, wanted: str, skipped: list[str]) -> None:
        if self._log is not None:
            for reason in skipped:
                self._log.warning("conf_dir.skipped", wanted=wanted, reason=reason)

    def _parse(self, document: dict[str, object], path: str) -> ConfList:
        if path.endswith(LIST_EXTENSION):
            return conflists.parse(_complete_list(document, path), where=path)
        conf = conflists.parse(document, where=path)
        if conf.is_list:
            raise InvalidConfigError(f"{path}: has no `type`, and only a file whose name ends in {LIST_EXTENSION} may be a plugin list")
        return conf


def _complete_list(document: dict[str, object], path: str) -> dict[str, object]:
    """The list with the plugins of its sub-folder behind the inlined ones.  Spec: CNI 1.1.0 §1, "loadOnlyInlinedPlugins"."""
    document = {key: value for key, value in document.items() if key.lower() != "type"}  # of no meaning for a list
    name, inlined = documents.lookup(document, "name"), documents.lookup(document, "plugins")
    if conflists.load_only_inlined(document, path) or not isinstance(name, str) or not is_identifier(name):
        return document
    added = [plugin.document for plugin in _plugins(os.path.join(os.path.dirname(path), name))]
    if not added or not isinstance(inlined, list | None):
        return document
    return {**document, "plugins": [*(inlined or ()), *added]}


def _plugins(folder: str) -> tuple[PluginConf, ...]:
    """The single plugins in a folder's ``.conf`` files, in the order of their names; no folder: none."""
    paths = [os.path.join(folder, name) for name in _names(folder, (".conf",))]
    return tuple(conflists.plugin_of(_document(path), path) for path in paths)


def _configurations(folder: str) -> list[str]:
    return _names(folder, (LIST_EXTENSION, *SINGLE_EXTENSIONS))


def _names(folder: str, extensions: tuple[str, ...]) -> list[str]:
    """The sorted names of the files (symbolic links followed) with one of these extensions; no folder: none."""
    try:
        with os.scandir(folder) as entries:
            return sorted(each.name for each in entries if each.name.endswith(extensions) and (each.is_symlink() or each.is_file()))
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise IOFailureError(f"cannot list {folder}: {exc.strerror}") from exc


def _document(path: str) -> dict[str, object]:
    try:
        if not stat.S_ISREG(os.stat(path).st_mode):
            raise InvalidConfigError(f"{path} is no regular file")
        return documents.load_object(files.read(path), path)
    except FileNotFoundError as exc:
        raise InvalidConfigError(f"{path} does not exist") from exc
    except DecodingError as exc:
        raise InvalidConfigError(exc.msg) from exc
    except OSError as exc:
        raise IOFailureError(f"cannot read {path}: {exc.strerror}") from exc
