"""The configuration that the runtime reads, ``00-multus.conf``: written, kept up to date, and restored when others touch it.

``core.primary`` decides what is in it; here files are read, written and watched.  A check looks at everything anew and
does what is missing, so it does not matter what woke it, nor that our own writes wake it once more.
"""

from __future__ import annotations

import os
import stat
import threading
import time

from multus import files
from multus.core import primary
from multus.core.repairs import MANY, WINDOW_S, Repairs
from multus.errors import InvalidConfigError, IOFailureError, MultusError, TryAgainLaterError
from multus.protocol import documents
from multus.watch import FolderWatch

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable
    from typing import Protocol

    from multus.core.ports import Clock, Log
    from multus.types.primary import Wanted

    class Source(Protocol):
        """What ``adapters.primary_files`` knows."""

        target: str
        """The path of our file, unless what is wanted says otherwise."""
        targets: tuple[str, ...]
        """All paths that it may have."""
        folders: tuple[str, ...]
        """Where a change may concern us."""
        indicator: str
        is_in_place: bool
        """Our file is the user's own: neither written nor removed."""
        may_appear: bool
        """Whether it is worth waiting for what is wanted."""

        def wanted(self, current: str) -> Wanted: ...

        def prepare(self, path: str) -> None: ...

        def written(self, path: str) -> None: ...

        def is_indicator_gone(self) -> bool: ...

SETTLE_S = 0.15
"""After a change, until the check: files written in several steps are seen whole."""
_SAFETY_S = 10.0
_POLL_S = 1.0
"""Between checks while a folder is not watched."""
_AWAY_S = 1.0
"""How long a primary configuration may be gone until a file after it takes its place: replacing may be removing first."""


class ConfigurationManager:
    """Keeps our file as it should be, from a thread of its own.

    In order: ``wait_for_primary``, ``write_once``, ``start``, ``stop``.  ``on_event`` is called with a kind and a message,
    in the thread of the caller or the manager's; it must not block.  The kinds: ``repaired`` (others had changed our file),
    ``backed-off`` (they did it too often), ``followed`` (the primary configuration is another), ``kept`` (it is not usable,
    our file stays), ``indicator-gone`` (the readiness indicator file vanished: our file is removed, the daemon must stop).
    """

    def __init__(
        self,
        source: Source,
        log: Log,
        on_event: Callable[[str, str], None],
        *,
        watch: FolderWatch | None = None,
        clock: Clock = time,
    ) -> None:
        self._source = source
        self._target = source.target
        self._log = log
        self._on_event = on_event
        self._watch = FolderWatch() if watch is None else watch
        self._clock = clock
        self._repairs = Repairs()
        self._thread = threading.Thread(target=self._run, name="configuration-manager", daemon=True)
        self._is_cancelled = self._is_closed = self._is_withdrawn = False
        self._found: Wanted | None = None
        self._last: Wanted | None = None
        self._identity = (0, 0)
        self._problem = f"{self._target} is not written yet"
        self._kept = self._noted = ""
        self._away_since: float | None = None

    def wait_for_primary(self, timeout_s: float) -> str:
        """Wait until there is a valid primary configuration; its path.  A ready-made one must be there at once.

        Raises:
            InvalidConfigError, DecodingError, IncompatibleVersionError: There was none; says what was found instead.
            IOFailureError: The folder or the file cannot be read.
            TryAgainLaterError: ``cancel`` was called.
        """
        end = self._clock.monotonic() + timeout_s
        said = ""
        while True:
            self._watch.follow(self._source.folders)
            try:
                self._found = self._source.wanted("")
                self._log.verbose("configuration.chosen", path=self._found.source, reason=self._found.reason)
                return self._found.source
            except MultusError as exc:
                left_s = end - self._clock.monotonic()
                if not self._source.may_appear or isinstance(exc, IOFailureError):
                    raise
                if left_s <= 0:
                    raise InvalidConfigError(f"no primary configuration within {timeout_s:g} s: {exc.msg}") from exc
                if exc.msg != said:
                    self._log.warning("configuration.awaited", reason=exc.msg)
                    said = exc.msg
            self._watch.wait(min(left_s, _POLL_S), SETTLE_S)
            if self._is_cancelled:
                raise TryAgainLaterError(f"stopped while waiting for a primary configuration: {said}")

    def write_once(self) -> None:
        """Write our file for the first time; nothing if it is there with the same content.  What a killed write left goes.

        Raises what ``wait_for_primary`` raises, and IOFailureError when it cannot be written.
        """
        wanted = self._source.wanted("") if self._found is None else self._found
        try:
            for path in self._source.targets:
                files.remove_temporaries(path)
            self._source.prepare(wanted.source)
            self._put(wanted, self._clock.monotonic())
        except OSError as exc:
            raise IOFailureError(f"cannot write {exc.filename or self._target}: {exc.strerror}") from exc

    def start(self) -> None:
        """Begin to watch."""
        if self._last is None:
            self.write_once()
        self._thread.start()

    def cancel(self) -> None:
        """Make waiting and watching end soon; for signal handlers."""
        self._is_cancelled = True
        if not self._is_closed:
            self._watch.cancel()

    def stop(self, cleanup: bool = False) -> None:
        """End watching; our file stays unless ``cleanup``.  Not from ``on_event``.  Raises IOFailureError if it cannot be removed."""
        if self._is_closed:
            return
        self.cancel()
        if self._thread.ident is not None:
            self._thread.join()
        self._is_closed = True
        self._watch.close()
        if cleanup:
            try:
                self._remove()
            except OSError as exc:
                raise IOFailureError(f"cannot remove {self._target}: {exc.strerror}") from exc

    def problem(self) -> str:
        """Why our file is not there, not ours or not current, as of this moment; empty: all is well."""
        last = self._last
        if self._problem or last is None:
            return self._problem
        if self._thread.ident is not None and not self._thread.is_alive():
            return f"nobody watches {self._target} any more"
        if not self._source.is_in_place and _content(self._target) != last.content:
            return f"{self._target} was changed by others"
        return ""

    def check(self) -> float:
        """Look at everything once and put it right; the seconds until the next check is due though nothing changes.

        The thread calls this; tests may, instead of ``start``.
        """
        last = self._last
        if last is None:
            self.write_once()
            return _SAFETY_S
        if self._source.is_indicator_gone():
            self._withdraw()
            return _SAFETY_S
        now = self._clock.monotonic()
        try:
            wanted, trouble, due_s = self._decide(last, now)
            due_s = min(due_s, self._put(wanted, now, trouble))
        except OSError as exc:
            problem = f"cannot write {self._target}: {exc.strerror}"
            if problem != self._problem:
                self._log.error("configuration.not_written", reason=problem)
            self._problem = problem
            return _POLL_S
        return due_s

    def _run(self) -> None:
        while not self._is_cancelled and not self._is_withdrawn:
            limit_s = _SAFETY_S if self._watch.follow(self._source.folders) else _POLL_S
            if self._watch.problem and self._noted != self._watch.problem:
                self._noted = self._watch.problem
                self._log.warning("configuration.polled", reason=self._noted)
            self._watch.wait(min(limit_s, self.check()), SETTLE_S)

    def _decide(self, last: Wanted, now: float) -> tuple[Wanted, str, float]:
        """What our file is to say, what troubles us, and when to look again."""
        try:
            wanted = self._source.wanted(last.source)
        except MultusError as exc:
            trouble = exc.msg if os.path.exists(last.source) else f"{last.source} is gone; {exc.msg}"
            self._keep(f"{trouble}; {self._target} stays as it is")
            return last, trouble, _SAFETY_S
        if os.fsencode(wanted.source) > os.fsencode(last.source):
            if self._away_since is None:
                self._away_since = now
            away_s = self._away_since + _AWAY_S - now
            if away_s > 0:
                return last, f"{last.source} is no longer the primary configuration", away_s
        self._away_since = None
        self._keep(wanted.warning and f"{wanted.warning}; {wanted.source} stays the primary configuration")
        return wanted, "", _SAFETY_S

    def _put(self, wanted: Wanted, now: float, trouble: str = "") -> float:
        """Write our file if it is not as wanted; when to look again."""
        target = wanted.target or self._source.target
        identity = _identity(target)  # before the content: of the file that is found undamaged, though it be renamed right after
        on_disk = _content(target)
        if self._source.is_in_place or (on_disk == wanted.content and (self._last is not None or _is_private(target))):
            self._repairs.undamaged()
        else:
            is_untouched = self._last is None or target != self._target or on_disk == self._last.content
            damage = "" if self._last is None or is_untouched else self._damage(on_disk, self._last.content)
            due_s = self._repairs.due_in(now) if damage else 0.0
            if due_s > 0:
                self._problem = f"{self._target} was {damage} by others, {MANY} times or more within {WINDOW_S:.0f} s; the repair waits"
                return due_s
            files.replace(target, wanted.content)
            identity = _identity(target)
            if damage:
                self._repaired(damage, now)
        self._move_to(target)
        self._identity = identity
        self._adopt(wanted)
        if not trouble:
            self._source.written(wanted.source)
        self._problem = trouble
        return _SAFETY_S

    def _move_to(self, target: str) -> None:
        """Our file is at ``target`` now: take away what is ours under its other names, of this run or an earlier one."""
        if target != self._target or self._last is None:
            self._remove_ours(path for path in self._source.targets if path != target)
        self._target = target

    def _adopt(self, wanted: Wanted) -> None:
        last, self._last = self._last, wanted
        if last is not None and wanted.source != last.source:
            self._report("followed", f"{wanted.source} is the primary configuration now, {wanted.reason}; before it was {last.source}")
        elif last is not None and wanted.content != last.content:
            self._report("followed", f"{wanted.source} has changed, and {self._target} with it")
        if wanted.note and (last is None or wanted.note != last.note):
            self._log.warning("configuration.note", reason=wanted.note)

    def _repaired(self, damage: str, now: float) -> None:
        self._repairs.note(now)
        self._report("repaired", f"{self._target} was {damage} by others and is restored")
        if self._repairs.delay_s:
            self._report(
                "backed-off",
                f"{self._target} was changed by others {MANY} times or more within {WINDOW_S:.0f} s; "
                f"the next repair waits {self._repairs.delay_s:.0f} s",
            )

    def _damage(self, on_disk: bytes | None, ours: bytes) -> str:
        """What others did to our file: a renamed one is found by its inode and content."""
        if on_disk is not None:
            return "edited" if on_disk else "emptied"
        folder = os.path.dirname(self._target)
        for name in os.listdir(folder):
            path = os.path.join(folder, name)
            if path != self._target and _identity(path) == self._identity and _content(path) == ours:
                return f"renamed to {path}"
        return "removed or replaced"

    def _withdraw(self) -> None:
        self._is_withdrawn = True
        self._problem = f"the readiness indicator file {self._source.indicator} is gone"
        try:
            self._remove()
        except OSError as exc:
            self._log.error("configuration.not_removed", path=self._target, reason=exc.strerror)
        self._report("indicator-gone", f"{self._problem}, and {self._target} with it")

    def _remove(self) -> None:
        """Remove our file, if it is still ours, under any of its names."""
        if not self._source.is_in_place:
            self._remove_ours(self._source.targets)

    def _remove_ours(self, paths: Iterable[str]) -> None:
        for path in paths:
            content = _content(path)
            if content is not None and self._is_ours(content, path):
                files.remove(path)
                files.sync_folder(os.path.dirname(path))

    def _is_ours(self, content: bytes, path: str) -> bool:
        if self._last is not None and content == self._last.content:
            return True
        try:
            return primary.is_own(documents.load_object(content, path))
        except MultusError:
            return False

    def _keep(self, message: str) -> None:
        """Say why our file stays as it is, once; empty: it need not any more."""
        if message and message != self._kept:
            self._report("kept", message)
        self._kept = message

    def _report(self, kind: str, message: str) -> None:
        (self._log.verbose if kind == "followed" else self._log.warning)(f"configuration.{kind}", reason=message)
        self._on_event(kind, message)


def _content(path: str) -> bytes | None:
    """The content of a regular file (no link to one); None: there is none that could be read."""
    try:
        return files.read(path) if stat.S_ISREG(os.lstat(path).st_mode) else None
    except OSError:
        return None


def _is_private(path: str) -> bool:
    return stat.S_IMODE(os.lstat(path).st_mode) == 0o600


def _identity(path: str) -> tuple[int, int]:
    try:
        found = os.lstat(path)
    except OSError:
        return 0, 0
    return found.st_dev, found.st_ino
