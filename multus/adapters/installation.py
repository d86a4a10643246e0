"""A bundle on a host: copied into the folder of its CNI plugins, replaced, repaired, and taken away again.

::

    /opt/cni/bin/multus-shim              a launcher: its first line names the interpreter of one version
    /opt/cni/bin/.multus/<version>/       a bundle, whole: it was renamed into this place when it was complete and synced

A call runs the version that its launcher named, to its end: launchers are replaced by rename, and a version stays as long as
a launcher names it, as the one before, or for an hour after it was replaced, which is longer than any call takes.
What a killed installation left is removed by the next one.  Errors are ``OSError``, and InvalidConfigError for a bundle that is none.
"""

from __future__ import annotations

import fcntl
import hashlib
import os
import shutil
import stat
import time

from multus import files
from multus.errors import InvalidConfigError
from multus.protocol import bundles

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

    from multus.types.bundle import Bundle, BundleFile

FOLDER = ".multus"
KEPT_S = 3600.0
"""How long a version stays that no launcher names: no call takes longer (``shimTimeout`` is an hour at most)."""
_COMING, _GOING = ".coming-", ".going-"
"""Beginnings of the names of versions that are not whole: being copied, being removed."""


def host_path(folder: str) -> str:
    """A folder as the host sees it: in the container the host's root is ``/host``."""
    path = os.path.abspath(folder)
    return path.removeprefix("/host") if path.startswith("/host/") else path


class Installation:
    """The executables of ours in one folder of CNI plugins."""

    def __init__(self, bin_dir: str, host_bin_dir: str, now: Callable[[], float] = time.time) -> None:
        """``bin_dir`` is the folder as we see it, ``host_bin_dir`` as those do who run what is in it; ``now`` is for tests."""
        self._bin_dir = bin_dir
        self._folder = os.path.join(bin_dir, FOLDER)
        self._host_folder = os.path.join(host_bin_dir, FOLDER)
        self._now = now

    def install(self, source: str, names: Iterable[str]) -> list[str]:
        """Put a bundle and its launchers of these names in place; the paths of the launchers.

        Raises:
            InvalidConfigError: ``source`` is no bundle, has no such launcher, or the host's folder has too long a name.
            OSError: Something cannot be read or written.  What was in place works as before.
        """
        where = os.path.join(source, bundles.DESCRIPTION)
        description = files.read(where)
        bundle = bundles.parse(description, where)
        home = os.path.join(self._host_folder, bundle.version)
        launchers = {name: self._launcher(bundle, name, home, where) for name in names}
        with _Lock(self._bin_dir):
            _make_folders(self._folder)
            self._remove_left_overs(bundle.launchers)
            self._put_version(source, bundle, home)
            self._note_replacement(bundle.version)
            for name, content in launchers.items():
                _put(os.path.join(self._bin_dir, name), content, 0o755)
            files.sync_folder(self._bin_dir)
            self._remove_old(bundle.version)
        return [os.path.join(self._bin_dir, name) for name in launchers]

    def uninstall(self) -> list[str]:
        """Remove all launchers that are ours, then all versions; what was removed.  Calls that run now may fail."""
        removed = []
        with _Lock(self._bin_dir):
            for name in self._launchers():
                path = os.path.join(self._bin_dir, name)
                files.remove_temporaries(path)
                files.remove(path)
                removed.append(path)
            if os.path.isdir(self._folder):
                shutil.rmtree(self._folder)
                removed.append(self._folder)
            files.sync_folder(self._bin_dir)
        return removed

    def _launcher(self, bundle: Bundle, name: str, home: str, where: str) -> bytes:
        if name not in bundle.launchers:
            raise InvalidConfigError(f"{where}: key \"launchers\" has no {name!r}")
        return bundles.launcher(bundle.launchers[name], os.path.join(home, bundles.INTERPRETER), _first_line_max())

    def _put_version(self, source: str, bundle: Bundle, home: str) -> None:
        """Copy a version that is not there; of one that is there, what is not as it should be."""
        final = os.path.join(self._folder, bundle.version)
        if os.path.isdir(final):
            for path, content, mode in self._contents(source, bundle, home):
                _make_folders(final, os.path.dirname(path))
                _put(os.path.join(final, path), content, mode)
            return
        coming = os.path.join(self._folder, _COMING + bundle.version)
        try:
            for path, content, mode in self._contents(source, bundle, home):
                _make_folders(coming, os.path.dirname(path))
                files.create(os.path.join(coming, path), content, mode, syncs=False)
            for parent, _, names in os.walk(coming, topdown=False):
                for name in names:
                    files.sync(os.path.join(parent, name))
                files.sync_folder(parent)
            os.rename(coming, final)
        except BaseException:
            shutil.rmtree(coming, ignore_errors=True)
            raise
        files.sync_folder(self._folder)

    def _contents(self, source: str, bundle: Bundle, home: str) -> Iterator[tuple[str, bytes, int]]:
        """Path, content and mode of each file as it is to be on the host."""
        for path, entry in bundle.files.items():
            content = _checked(os.path.join(source, path), entry)
            if path == bundles.INTERPRETER:
                content = bundles.placed(content, os.path.join(home, bundle.loader), os.path.join(source, path))
            yield path, content, entry.mode

    def _versions(self) -> list[str]:
        return [name for name in os.listdir(self._folder) if not name.startswith(".")]

    def _launchers(self) -> dict[str, str]:
        """Our launchers in the folder of plugins, and the versions that they name."""
        found = {}
        for name in os.listdir(self._bin_dir):
            interpreter = bundles.interpreter_of(_beginning(os.path.join(self._bin_dir, name)))
            folder, version = os.path.split(interpreter.removesuffix(f"/{bundles.INTERPRETER}"))
            if os.path.basename(folder) == FOLDER:
                found[name] = version
        return found

    def _note_replacement(self, current: str) -> None:
        """Give the folders of versions that launchers name, and may name no longer in a moment, the present time."""
        now = self._now()
        for version in set(self._launchers().values()) & set(self._versions()) - {current}:
            os.utime(os.path.join(self._folder, version), (now, now))

    def _remove_old(self, current: str) -> None:
        """Remove versions that nothing can be running any more: not the last one that was replaced."""
        named = set(self._launchers().values()) | {current}
        others = [(os.stat(os.path.join(self._folder, name)).st_mtime, name) for name in self._versions() if name not in named]
        for replaced_at, version in sorted(others)[:-1]:
            if replaced_at + KEPT_S < self._now():
                going = os.path.join(self._folder, _GOING + version)
                os.rename(os.path.join(self._folder, version), going)
                shutil.rmtree(going)

    def _remove_left_overs(self, launchers: Iterable[str]) -> None:
        for name in os.listdir(self._folder):
            if name.startswith((_COMING, _GOING)):
                shutil.rmtree(os.path.join(self._folder, name))
        for name in launchers:
            files.remove_temporaries(os.path.join(self._bin_dir, name))


class _Lock:
    """One installation at a time in a folder; a killed one lets go."""

    def __init__(self, folder: str) -> None:
        self._folder = folder

    def __enter__(self) -> None:
        self._fd = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
        try:
            fcntl.flock(self._fd, fcntl.LOCK_EX)
        except BaseException:
            os.close(self._fd)
            raise

    def __exit__(self, *_: object) -> None:
        os.close(self._fd)


def _first_line_max() -> int:
    """What the kernel, which is the host's, reads of a first line: 127 bytes, and 255 since 5.1."""
    major, minor = os.uname().release.split("-")[0].split(".")[:2]
    return 255 if (int(major), int(minor)) >= (5, 1) else 127


def _checked(path: str, entry: BundleFile) -> bytes:
    content = files.read(path)
    if hashlib.sha256(content).hexdigest() != entry.sha256:
        raise InvalidConfigError(f"{path} is not what {bundles.DESCRIPTION} says: the bundle is damaged")
    return content


def _make_folders(path: str, below: str = "") -> None:
    """Make a folder and those below it, for everybody to read, whatever the umask is."""
    for name in ("", *filter(None, below.split("/"))):
        path = os.path.join(path, name) if name else path
        if not os.path.isdir(path):
            os.mkdir(path)
        os.chmod(path, 0o755)


def _put(path: str, content: bytes, mode: int) -> None:
    """Write a file by rename, unless it is there with this content and mode."""
    try:
        found = os.lstat(path)
        is_same = stat.S_ISREG(found.st_mode) and stat.S_IMODE(found.st_mode) == mode and found.st_size == len(content)
        if is_same and files.read(path) == content:
            return
    except FileNotFoundError:
        pass
    files.remove_temporaries(path)
    files.replace(path, content, mode)


def _beginning(path: str) -> bytes:
    """The first bytes of a regular file, enough for a first line; nothing of what is none."""
    try:
        fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK)
    except OSError:
        return b""
    try:
        return os.read(fd, 512) if stat.S_ISREG(os.fstat(fd).st_mode) else b""
    finally:
        os.close(fd)
