"""Log lines: ``<time> [<level>] <event> key=value …``, to standard error, to a rotated file, or both.

Without the standard ``logging`` module, whose import alone costs 8 ms, a sixth of what a whole call of the thin binary
may take.  Many processes write to one file at a time: a line is one ``write``, and a lock on the file itself guards
writing and rotation, so that no line is lost or torn.  Logging never fails a call.
"""

from __future__ import annotations

import _thread
import fcntl
import os
import time

from multus.protocol.documents import spell

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.types.config import LogConfig, LogOptions

LEVELS = ("panic", "error", "verbose", "debug")
_ERROR, _VERBOSE, _DEBUG = 1, 2, 3

_SECRET_WORDS = ("token", "password", "secret", "authorization", "credential")
_SECRET_NAMES = frozenset(("config", "configuration", "conf", "stdin"))
_HIDDEN = "<hidden>"


class Log:
    """A log with a level and bound context; immutable.  At level panic, the default, it does nothing at all."""

    def __init__(self, level: int, stderr_fd: int | None, file: RotatedFile | None, context: str = "") -> None:
        self._level = level
        self._stderr_fd = stderr_fd
        self._file = file
        self._context = context

    @classmethod
    def from_config(cls, config: LogConfig, stderr_fd: int = 2) -> Log:
        """The log that a configuration asks for.  An unknown level is reported on standard error and stays panic."""
        level = 0
        if config.level:
            try:
                level = LEVELS.index(config.level.lower())
            except ValueError:
                _complain(stderr_fd, f"multus: cannot set log level {spell(config.level)}, known are: {', '.join(LEVELS)}\n")
        file = RotatedFile(config.file, config.options, stderr_fd) if config.file else None
        return cls(level, stderr_fd if config.to_stderr else None, file)

    def bind(self, **fields: object) -> Log:
        """A log that puts ``fields`` into each of its lines, behind those bound before."""
        return Log(self._level, self._stderr_fd, self._file, self._context + _pairs(fields) if self._level else "")

    def error(self, event: str, **fields: object) -> None:
        if self._level >= _ERROR:
            self._write("error", event, fields)

    def warning(self, event: str, **fields: object) -> None:
        """The reference has no level for warnings: they are errors whose text opens with ``warning:``."""
        if self._level >= _ERROR:
            self._write("error", f"warning: {event}", fields)

    def verbose(self, event: str, **fields: object) -> None:
        if self._level >= _VERBOSE:
            self._write("verbose", event, fields)

    def debug(self, event: str, **fields: object) -> None:
        if self._level >= _DEBUG:
            self._write("debug", event, fields)

    def _write(self, level: str, event: str, fields: dict[str, object]) -> None:
        text = event if event.isprintable() else spell(event)
        line = f"{_now()} [{level}] {text}{self._context}{_pairs(fields)}\n"
        if self._stderr_fd is not None:
            _complain(self._stderr_fd, line)
        if self._file is not None:
            self._file.write(line.encode())


class RotatedFile:
    """A log file that is renamed when it is full; safe between processes and threads.

    A writer holds the lock of the file that it has open and, under it, makes sure that the file still has its name.
    Who finds the file full renames it under that lock.  So nothing is ever added to a renamed file, and it may be
    compressed and removed without a lock.
    """

    def __init__(self, path: str, options: LogOptions, stderr_fd: int, max_bytes: int | None = None) -> None:
        """``max_bytes`` is for a limit that is no multiple of a MiB."""
        self._path = path
        self._stderr_fd = stderr_fd
        self._max_bytes = options.max_size << 20 if max_bytes is None else max_bytes
        self._max_backups = options.max_backups
        self._max_age_ms = options.max_age * 86_400_000
        self._compress = options.compress
        self._fd = -1
        self._complained = False
        self._thread_lock = _thread.allocate_lock()

    def write(self, line: bytes) -> None:
        """Append a line.  The first failure is reported on standard error, the later ones are not."""
        try:
            with self._thread_lock:
                is_rotated = self._append(line)
            if is_rotated:
                self._tidy()
        except (OSError, ValueError) as exc:
            if not self._complained:
                self._complained = True
                _complain(self._stderr_fd, f"multus: cannot write log file {spell(self._path)}: {exc}\n")

    def close(self) -> None:
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1

    def _append(self, line: bytes) -> bool:
        """Write the line, in a new file if the present one would grow too large; whether that was so."""
        is_rotated = False
        while True:
            if self._fd < 0:
                self._fd = _open(self._path)
            fcntl.flock(self._fd, fcntl.LOCK_EX)
            try:
                size = self._size()
                if size is not None:
                    is_full = self._max_bytes > 0 and size > 0 and size + len(line) > self._max_bytes
                    if not is_full:
                        _write_all(self._fd, line)
                        return is_rotated
                    os.rename(self._path, self._free_backup_name())
                    is_rotated = True
            finally:
                fcntl.flock(self._fd, fcntl.LOCK_UN)
            self.close()

    def _size(self) -> int | None:
        """The size of the open file; None: it no longer has its name, another process has rotated or removed it."""
        opened = os.fstat(self._fd)
        try:
            named = os.stat(self._path)
        except FileNotFoundError:
            return None
        return opened.st_size if (opened.st_dev, opened.st_ino) == (named.st_dev, named.st_ino) else None

    def _free_backup_name(self) -> str:
        """The name of a new old file: later than the others of this second, also than those that are removed by now."""
        base, extension = os.path.splitext(self._path)
        milliseconds = time.time_ns() // 1_000_000
        newest = max((stamp for stamp, _ in self._backups()), default="")
        if newest[:-4] == _stamp(milliseconds)[:-4]:
            milliseconds = max(milliseconds, milliseconds // 1000 * 1000 + int(newest[-3:]) + 1)
        while True:
            name = f"{base}-{_stamp(milliseconds)}{extension}"
            if not os.path.exists(name) and not os.path.exists(f"{name}.gz"):
                return name
            milliseconds += 1

    def _tidy(self) -> None:
        """Remove old files beyond the number or the age, compress the others."""
        oldest = _stamp(time.time_ns() // 1_000_000 - self._max_age_ms) if self._max_age_ms else ""
        for index, (stamp, path) in enumerate(self._backups()):
            if stamp < oldest or 0 < self._max_backups <= index:
                _remove(path)
            elif self._compress and not path.endswith(".gz"):
                _compress(path)

    def _backups(self) -> list[tuple[str, str]]:
        """Time and path of each old file, the newest first."""
        folder = os.path.dirname(self._path) or "."
        base, extension = os.path.splitext(os.path.basename(self._path))
        found = []
        for name in os.listdir(folder):
            plain = name.removesuffix(".gz")
            stamp = plain[len(base) + 1:len(plain) - len(extension)]
            if plain == f"{base}-{stamp}{extension}" and _is_stamp(stamp):
                found.append((stamp, os.path.join(folder, name)))
        return sorted(found, reverse=True)


def _open(path: str) -> int:
    flags = os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC
    try:
        return os.open(path, flags, 0o600)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
        return os.open(path, flags, 0o600)


def _compress(path: str) -> None:
    """Put ``path``.gz in place of ``path``, unless another process is at it."""
    import gzip  # only where a file is rotated: 6 ms
    import shutil

    temporary = f"{path}.gz.tmp"
    try:
        with open(path, "rb") as plain:
            fcntl.flock(plain, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if not os.path.exists(path):
                return
            target = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600)
            with open(target, "wb") as raw, gzip.GzipFile("", "wb", fileobj=raw) as packed:
                shutil.copyfileobj(plain, packed)
            os.rename(temporary, f"{path}.gz")
            _remove(path)
    except (FileNotFoundError, BlockingIOError):
        return


def _remove(path: str) -> None:
    try:
        os.unlink(path)
    except FileNotFoundError:
        return


def _stamp(milliseconds: int) -> str:
    return time.strftime("%Y-%m-%dT%H-%M-%S", time.gmtime(milliseconds // 1000)) + f".{milliseconds % 1000:03d}"


def _is_stamp(text: str) -> bool:
    shape = "".join("0" if "0" <= character <= "9" else character for character in text)
    return shape == "0000-00-00T00-00-00.000"


def _now() -> str:
    """Local time in RFC 3339, to the second."""
    now = time.localtime()
    minutes = now.tm_gmtoff // 60
    sign = "-" if minutes < 0 else "+"
    zone = f"{sign}{abs(minutes) // 60:02d}:{abs(minutes) % 60:02d}" if minutes else "Z"
    return time.strftime("%Y-%m-%dT%H:%M:%S", now) + zone


def _pairs(fields: dict[str, object]) -> str:
    return "".join(f" {name}={_HIDDEN if _is_secret(name) else _text(value)}" for name, value in fields.items())


def _is_secret(name: str) -> bool:
    lowered = name.lower()
    return lowered in _SECRET_NAMES or any(word in lowered for word in _SECRET_WORDS)


def _text(value: object) -> str:
    """A value as one word: quoted with JSON's escapes when it has blanks, quotes, ``=`` or control characters."""
    text = spell(value) if value is None or isinstance(value, (bool, dict, list, tuple)) else str(value)
    is_plain = text and text.isprintable() and not any(character in text for character in " \"=")
    return text if is_plain else spell(text)


def _complain(fd: int, text: str) -> None:
    try:
        os.write(fd, text.encode(errors="backslashreplace"))
    except OSError:
        return  # standard error is gone: nowhere left to say so


def _write_all(fd: int, content: bytes) -> None:
    while content:
        content = content[os.write(fd, content):]
