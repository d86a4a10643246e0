"""Files that survive a crash: a reader sees the old content or the new one, never a mix.

Standard library only.  Errors are ``OSError``: the caller knows what the file meant and translates.
"""

from __future__ import annotations

import os


def replace(path: str, content: bytes, mode: int = 0o600, *, syncs: bool = True) -> None:
    """Put ``content`` at ``path``: a temporary file beside it, rename; durably, with an fsync of the file and of the folder.

    Without ``syncs`` it survives the end of every process, but not that of the power: it may be missing or torn then.
    """
    folder, name = os.path.split(path)
    temporary = os.path.join(folder, f".{name}.{os.getpid()}.{os.urandom(4).hex()}.tmp")
    try:
        create(temporary, content, mode, syncs=syncs)
        os.rename(temporary, path)
    except BaseException:
        remove(temporary)
        raise
    if syncs:
        sync_folder(folder or ".")


def create(path: str, content: bytes, mode: int = 0o600, *, syncs: bool = True) -> None:
    """Make a file where there is none; without ``syncs`` it may be lost until somebody syncs it.  A failure may leave it cut short."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        os.fchmod(fd, mode)
        view = memoryview(content)
        while view:
            view = view[os.write(fd, view):]
        if syncs:
            os.fsync(fd)
    finally:
        os.close(fd)


def sync(path: str) -> None:
    """Make the content of a file durable."""
    _fsync(path, 0)


def sync_folder(folder: str) -> None:
    """Make renames and removals in ``folder`` durable."""
    _fsync(folder, os.O_DIRECTORY)


def _fsync(path: str, flags: int) -> None:
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC | flags)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


def remove(path: str) -> bool:
    """Remove ``path``; whether it was there."""
    try:
        os.unlink(path)
    except FileNotFoundError:
        return False
    return True


def remove_temporaries(path: str) -> bool:
    """Remove what a killed ``replace`` of ``path`` has left beside it; whether there was anything."""
    folder, name = os.path.split(path)
    prefix = f".{name}."
    try:
        names = [each[len(prefix):] for each in os.listdir(folder or ".") if each.startswith(prefix) and each.endswith(".tmp")]
    except FileNotFoundError:
        return False
    rests = [rest for rest in names if rest.count(".") == 2]  # process, random, tmp: more belongs to a longer name
    removed = [remove(os.path.join(folder, prefix + rest)) for rest in rests]
    return any(removed)


def read(path: str) -> bytes:
    """The whole content of ``path``."""
    with open(path, "rb") as file:
        return file.read()
