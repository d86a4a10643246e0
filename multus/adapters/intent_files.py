"""The shim's DEL intents on disk: ``<cniDir>/intents/<containerID>-<ifname>-<random>``, each a request's body."""

from __future__ import annotations

import os

from multus import files
from multus.errors import IOFailureError


class IntentFiles:
    """``ports.IntentStore`` in a folder."""

    def __init__(self, cni_dir: str) -> None:
        self._folder = os.path.join(cni_dir, "intents")

    def names(self) -> list[str]:
        """The intents, oldest first; no folder: none."""
        try:
            with os.scandir(self._folder) as entries:
                found = [(_written(entry), entry.name) for entry in entries if not entry.name.startswith(".") and entry.is_file()]
        except FileNotFoundError:
            return []
        except OSError as exc:
            raise IOFailureError(f"cannot list {self._folder}: {exc.strerror}") from exc
        return [name for written, name in sorted(found) if written]

    def read(self, name: str) -> bytes:
        path = os.path.join(self._folder, name)
        try:
            return files.read(path)
        except OSError as exc:
            raise IOFailureError(f"cannot read {path}: {exc.strerror}") from exc

    def drop(self, name: str) -> None:
        """Remove an intent durably."""
        path = os.path.join(self._folder, name)
        try:
            if files.remove(path):
                files.sync_folder(self._folder)
        except OSError as exc:
            raise IOFailureError(f"cannot remove {path}: {exc.strerror}") from exc

    def put_aside(self, name: str) -> None:
        """Keep an intent that nobody can read out of the way, under a hidden name."""
        path = os.path.join(self._folder, name)
        try:
            os.rename(path, os.path.join(self._folder, f".damaged-{name}"))
        except OSError as exc:
            raise IOFailureError(f"cannot put {path} aside: {exc.strerror}") from exc


def _written(entry: os.DirEntry[str]) -> int:
    """When a file was written, in nanoseconds; 0: it is gone, because a worker has just served it."""
    try:
        return entry.stat().st_mtime_ns
    except FileNotFoundError:
        return 0
