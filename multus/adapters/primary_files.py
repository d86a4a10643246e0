"""What our configuration is to say: generated around the primary one, or ready-made.  Reads files; ``core.primary`` decides.

``adapters.conf_watch`` keeps our file accordingly.
"""

from __future__ import annotations

import os
import stat

from multus import files
from multus.core import embedded, primary
from multus.errors import InvalidConfigError, IOFailureError, MultusError
from multus.protocol import documents
from multus.types.primary import Candidate, Wanted

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Protocol

    from multus.types.config import ConfList
    from multus.types.primary import Choice, PrimarySettings

    class ConfDir(Protocol):
        """What ``adapters.conf_dir`` reads."""

        def from_file(self, path: str, name: str = "") -> ConfList: ...


_RENAMED = ".old"
"""At the end of the name of a primary configuration that runtimes are not to read."""


def source(settings: PrimarySettings, conf_dir: ConfDir) -> Generated | ReadyMade:
    """What the settings ask for.  Raises InvalidConfigError when ``multusMasterCNI`` names our own file."""
    return Generated(settings, conf_dir) if settings.is_automatic else ReadyMade(settings)


class Generated:
    """Our file around the primary configuration of a folder."""

    may_appear = True
    is_in_place = False

    def __init__(self, settings: PrimarySettings, conf_dir: ConfDir) -> None:
        self._settings = settings
        self._conf_dir = conf_dir
        self._folder = settings.primary_folder
        self._named = os.path.join(self._folder, settings.master_cni) if settings.master_cni else ""
        self.target = os.path.join(settings.cni_config_dir, primary.FILE_NAME)
        self.targets: tuple[str, ...] = (self.target,)
        self.indicator = os.path.abspath(settings.readiness_indicator_file) if settings.readiness_indicator_file else ""
        self.folders = tuple(dict.fromkeys(filter(None, (self._folder, settings.cni_config_dir, os.path.dirname(self.indicator)))))
        if self._named and os.path.realpath(self._named) == os.path.realpath(self.target):
            raise InvalidConfigError(f"key \"multusMasterCNI\": {self._named} is the configuration that is generated")

    def is_indicator_gone(self) -> bool:
        """Whether there is to be a readiness indicator file and is none; one that cannot be looked at is there."""
        if not self.indicator:
            return False
        try:
            os.stat(self.indicator)
        except OSError as exc:
            return isinstance(exc, FileNotFoundError | NotADirectoryError)
        return False

    def wanted(self, current: str) -> Wanted:
        """Raises MultusError when there is no primary configuration that could be used."""
        choice = self._choice(current)
        document = primary.generate(choice.conf, self._settings, choice.path)
        lost = ", ".join(primary.commands_not_sent(choice.conf, self._settings))
        note = lost and f"{choice.path} is of cniVersion {choice.conf.cni_version or 'none'}: {lost} succeed without reaching it"
        return Wanted(documents.dumps(document).encode(), choice.path, choice.reason, choice.warning, note)

    def written(self, path: str) -> None:
        """Nothing: the primary configuration keeps its name, in ours it is named by it."""

    def prepare(self, path: str) -> None:
        """Write the forced ``cniVersion`` into the primary configuration itself; raises OSError."""
        if not self._settings.force_cni_version:
            return
        document = documents.load_object(files.read(path), path)
        kept = {key: value for key, value in document.items() if key.lower() not in ("cniversion", "cniversions")}
        forced = {"cniVersion": self._settings.cni_version, **kept}
        if forced != document:
            files.replace(os.path.realpath(path), documents.dumps(forced).encode(), stat.S_IMODE(os.stat(path).st_mode))

    def _choice(self, current: str) -> Choice:
        if self._named:
            return primary.choose_named(self._candidate_at(self._named) or Candidate(self._named, problem=f"{self._named} does not exist"))
        return primary.choose(self._candidates(), current, self._folder)

    def _candidates(self) -> list[Candidate]:
        """Those of the folder, in order."""
        paths = [os.path.join(self._folder, name) for name in primary.candidates(_names(self._folder))]
        return [candidate for path in paths if (candidate := self._candidate(path)) is not None]

    def _candidate_at(self, path: str) -> Candidate | None:
        return self._candidate(path)

    def _candidate(self, path: str, suffix: str = "") -> Candidate | None:
        """The file at ``path``, read with a suffix to its name; None: no regular file is there."""
        place = path + suffix
        try:
            if not stat.S_ISREG(os.stat(place).st_mode):
                return None
        except OSError:
            return None
        try:
            is_target = any(_is_same_file(place, target) for target in self.targets)  # ours even while others have damaged it
            if is_target or primary.is_own(documents.load_object(files.read(place), place), self._settings.plugin_type):
                return Candidate(path, is_own=True)
            conf = self._conf_dir.from_file(place, path)
        except (OSError, MultusError) as exc:
            if not os.path.exists(place):
                return None  # it went while we looked
            return Candidate(path, problem=exc.msg if isinstance(exc, MultusError) else f"cannot read {place}: {exc.strerror}")
        if self._settings.force_cni_version:
            conf = conf._replace(cni_version=self._settings.cni_version)
        return Candidate(path, conf)


class Embedded(Generated):
    """Our file with the primary configuration inside, as the thin plugin reads it.

    With ``rename_primary`` the primary's file gets another name, and is read under it; here it is spoken of by its own.
    """

    def __init__(self, settings: PrimarySettings, conf_dir: ConfDir) -> None:
        super().__init__(settings, conf_dir)
        self.targets = (self.target, os.path.join(settings.cni_config_dir, embedded.LIST_FILE_NAME))

    def wanted(self, current: str) -> Wanted:
        """Raises MultusError when there is no primary configuration that could be used."""
        choice = self._choice(current)
        name, text = embedded.generate(choice.conf, self._settings, choice.path)
        target = os.path.join(self._settings.cni_config_dir, name)
        return Wanted(text.encode(), choice.path, choice.reason, choice.warning, target=target)

    def prepare(self, path: str) -> None:
        """Nothing: a forced ``cniVersion`` is for the copy alone."""

    def written(self, path: str) -> None:
        """Rename the primary configuration, if that is wanted; raises OSError."""
        if self._settings.rename_primary and os.path.exists(path):
            os.rename(path, path + _RENAMED)
            files.sync_folder(os.path.dirname(path))

    def _candidate_at(self, path: str) -> Candidate | None:
        found = self._candidate(path)
        return found or (self._candidate(path, _RENAMED) if self._settings.rename_primary else None)

    def _candidates(self) -> list[Candidate]:
        """While no primary configuration has a name of its own, those that were renamed."""
        found = super()._candidates()
        if not self._settings.rename_primary or not all(candidate.is_own for candidate in found):
            return found
        names = (name.removesuffix(_RENAMED) for name in _names(self._folder) if name.endswith(_RENAMED))
        paths = [os.path.join(self._folder, name) for name in primary.candidates(names)]
        return [*found, *(candidate for path in paths if (candidate := self._candidate(path, _RENAMED)) is not None)]


class ReadyMade:
    """A copy of the configuration that ``multusConfigFile`` names, or that file itself if it is where runtimes look."""

    may_appear = False
    indicator = ""

    def __init__(self, settings: PrimarySettings) -> None:
        self._path = settings.config_file
        self._plugin_type = settings.plugin_type
        folder = os.path.dirname(self._path)
        self.target = os.path.join(settings.cni_config_dir, os.path.basename(self._path))
        self.targets: tuple[str, ...] = (self.target,)
        self.folders = tuple(dict.fromkeys((folder, settings.cni_config_dir)))
        self.is_in_place = _is_same_file(folder, settings.cni_config_dir)

    def is_indicator_gone(self) -> bool:
        """No: requests look for the readiness indicator file themselves."""
        return False

    def wanted(self, current: str) -> Wanted:
        """Raises MultusError when the file is missing or not valid."""
        try:
            content = files.read(self._path)
        except OSError as exc:
            raise IOFailureError(f"key \"multusConfigFile\": cannot read {self._path}: {exc.strerror}") from exc
        warning = ""
        try:
            primary.check_ready_made(content, self._path, self._plugin_type)
        except MultusError as exc:
            if not self.is_in_place:
                raise
            warning = exc.msg  # whoever put it where runtimes look answers for it
        return Wanted(content, self._path, "named by multusConfigFile", warning)

    def prepare(self, path: str) -> None:
        """Nothing: the file is used as it stands."""

    def written(self, path: str) -> None:
        """Nothing: the user's file stays where it is."""


def _names(folder: str) -> list[str]:
    """No folder: none."""
    try:
        return os.listdir(folder)
    except FileNotFoundError:
        return []
    except OSError as exc:
        raise IOFailureError(f"cannot list {folder}: {exc.strerror}") from exc


def _is_same_file(one: str, other: str) -> bool:
    try:
        return os.path.samefile(one, other)
    except OSError:
        return False
