"""What a call of the shim needs off its usual way: a DEL kept for later, results of another daemon, words for people.

Apart from ``shim`` so that the usual call does not pay for it.
"""

from __future__ import annotations

import os
import sys

from multus import files
from multus.errors import TryAgainLaterError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

VERSION_FLAGS = ("-v", "--v", "-version", "--version")
HELP_FLAGS = ("-h", "--h", "-help", "--help")
_WITHOUT_INTERFACES = ("0.1.0", "0.2.0")


def keep(cni_dir: str, name: str, body: bytes, absence: str) -> str:
    """Write down, to outlive a crash, the request that the daemon is to serve when it is back; the file's path.

    Args:
        name: Of the attachment; a random part is added, so that no DEL replaces another.
        absence: Why the daemon was not asked, for the error.

    Raises:
        TryAgainLaterError: Code 11, it cannot be written, so that the runtime has to come again.
    """
    folder = os.path.join(cni_dir, "intents")
    path = os.path.join(folder, f"{name}-{os.urandom(4).hex()}")
    try:
        _make_folder(folder)
        files.replace(path, body)
    except OSError as exc:
        raise TryAgainLaterError(f"DEL cannot be kept in {folder}: {exc.strerror}", absence) from exc
    return path


def _make_folder(path: str) -> None:
    """Make a folder and those above it, for root alone, durably."""
    if os.path.isdir(path):
        return
    parent = os.path.dirname(path) or "."
    _make_folder(parent)
    try:
        os.mkdir(path, 0o700)
    except FileExistsError:
        return  # another shim was faster
    files.sync_folder(parent)


def converted(result: Mapping[str, object], version: str) -> str:
    """The text of a result in ``version``, for a daemon that answers the newest version only.

    Up to 0.2.0 a result is one of addresses; one without any keeps its DNS alone, since the pod is attached all the same.

    Raises:
        DecodingError: It is not a valid result.
    """
    from multus.protocol import documents, results, versions

    parsed = results.parse(result, versions.SUPPORTED[-1])
    if version in _WITHOUT_INTERFACES and not results.view(parsed).ips:
        document = {**results.empty(version).document, "dns": results.view(parsed).dns}
    else:
        document = {**results.convert(parsed, version).document}
    return documents.dumps_indented(document)


def talk(flag: str) -> int:
    """Answer a person at a terminal; the exit status."""
    if flag in VERSION_FLAGS:
        from importlib.metadata import PackageNotFoundError, version  # 8 ms

        try:
            print(f"multus-shim: version:{version('multus')}")
        except PackageNotFoundError:  # copied to a host without its metadata
            print("multus-shim: version:unknown")
        return 0
    print("usage: multus-shim [-version]\n\nA CNI plugin: container runtimes call it with CNI_* variables set.", file=sys.stderr)
    return 0 if flag in HELP_FLAGS else 2
