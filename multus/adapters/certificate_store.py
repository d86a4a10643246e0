"""A node's certificate and key on disk, one file, replaced so that a reader always finds a whole one.

The files are those of client-go's store: ``multus-client-<date>.pem`` for each certificate, and the symbolic link
``multus-client-current.pem`` to the one in use.  The link is relative, so that it holds wherever the folder is mounted.

Spec: 03-networks.md of the behaviour notes, §11; 10-daemon.md, §12.
"""

from __future__ import annotations

import os
import re
import stat
import time

from multus import files
from multus.errors import IOFailureError, TryAgainLaterError

CURRENT, UPDATED = "multus-client-current.pem", "multus-client-updated.pem"
_DATED = "multus-client-%Y-%m-%d-%H-%M-%S.pem"
_DATED_NAME = r"\.?multus-client-\d{4}(-\d\d){5}\.pem(\.\d+\.[0-9a-f]+\.tmp)?"
"""Also of what a killed process has left of one."""


class CertificateStore:
    """``ports.CertificateStore`` in a folder."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self.path = os.path.join(folder, CURRENT)
        """Of the certificate in use, with its key."""

    def prepare(self) -> None:
        """Make the folder, and finish a replacement that was cut short.

        Raises:
            IOFailureError: Code 5, it cannot be made or written, or a link is something else.
        """
        try:
            os.makedirs(self._folder, 0o755, exist_ok=True)
            if not self._is_link(CURRENT) and self._is_link(UPDATED):
                os.rename(os.path.join(self._folder, UPDATED), self.path)
                files.sync_folder(self._folder)
        except OSError as exc:
            raise self._failure("prepare", exc) from exc

    def read(self) -> bytes:
        """The certificate in use and its key.

        Raises:
            TryAgainLaterError: Code 11, there is none yet, or its file has gone.
            IOFailureError: Code 5, it cannot be read, or is no link.
        """
        try:
            if not self._is_link(CURRENT):
                raise TryAgainLaterError(f"there is no certificate in {self._folder} yet")
            return files.read(self.path)
        except FileNotFoundError as exc:
            raise TryAgainLaterError(f"{self.path} leads to a file that is not there") from exc
        except OSError as exc:
            raise self._failure("read", exc) from exc

    def replace(self, pair: bytes) -> None:
        """Put a certificate and its key in use; the one before is kept, older ones are removed.

        Raises:
            IOFailureError: Code 5, they cannot be written; the one before stays in use.
        """
        name = time.strftime(_DATED)
        updated = os.path.join(self._folder, UPDATED)
        try:
            for link in (CURRENT, UPDATED):
                self._is_link(link)
            before = os.readlink(self.path) if os.path.lexists(self.path) else ""
            files.replace(os.path.join(self._folder, name), pair)
            files.remove(updated)
            os.symlink(name, updated)
            os.rename(updated, self.path)
            files.sync_folder(self._folder)
            self._prune({name, os.path.basename(before)})
        except OSError as exc:
            raise self._failure("write", exc) from exc

    def _prune(self, kept: set[str]) -> None:
        for name in os.listdir(self._folder):
            if re.fullmatch(_DATED_NAME, name, re.ASCII) and name not in kept:
                files.remove(os.path.join(self._folder, name))

    def _is_link(self, name: str) -> bool:
        """Whether the link is there.  Raises IOFailureError for anything else of that name."""
        path = os.path.join(self._folder, name)
        try:
            is_link = stat.S_ISLNK(os.lstat(path).st_mode)
        except FileNotFoundError:
            return False
        if not is_link:
            raise IOFailureError(f"{path} is no symbolic link, as it should be: move it away")
        return True

    def _failure(self, verb: str, exc: OSError) -> IOFailureError:
        return IOFailureError(f"cannot {verb} certificate {exc.filename or self._folder}: {exc.strerror}")
