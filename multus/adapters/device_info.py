"""Device information files: what a device plugin tells about a device, published under the attachment's name.

Spec: Device Information Specification of the network plumbing working group.
"""

from __future__ import annotations

import os

from multus import files
from multus.errors import DecodingError, IOFailureError
from multus.protocol import documents

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

BASE = "/var/run/k8s.cni.cncf.io/devinfo"
_IFNAME_LIMIT = 15


class DeviceInfo:
    """The files below ``base``: ``dp/`` the device plugins', ``cni/`` the attachments'.

    Raises IOFailureError, and DecodingError for a file that is no JSON object with ``type`` and ``version``.
    """

    def __init__(self, base: str = BASE) -> None:
        self._base = base

    def path(self, delegate_name: str, container_id: str, ifname: str) -> str:
        """Where the file of an attachment is; always directly in ``cni/``."""
        return os.path.join(self._base, "cni", _file_name(f"{delegate_name}-{container_id}_{ifname}"))

    def publish(self, resource_name: str, device_id: str, path: str) -> None:
        """Put a copy of the device plugin's file, if there is one, at ``path``, in place of what is there."""
        source = os.path.join(self._base, "dp", _file_name(f"{resource_name}-{device_id}-device.json"))
        content = _content(source)
        if content is None:
            return
        _checked(content, source)
        try:
            try:
                files.replace(path, content, 0o444)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(path), 0o755, exist_ok=True)
                files.replace(path, content, 0o444)
        except OSError as exc:
            raise IOFailureError(f"cannot write {path}: {exc.strerror}") from exc

    def read(self, path: str) -> Mapping[str, object] | None:
        """The device information at ``path``; None: there is none."""
        content = _content(path)
        return None if content is None else _checked(content, path)

    def remove(self, path: str) -> None:
        """Remove the file, if it is there."""
        try:
            files.remove(path)
        except NotADirectoryError:
            return
        except OSError as exc:
            raise IOFailureError(f"cannot remove {path}: {exc.strerror}") from exc

    def prune(self, container_ids: frozenset[str]) -> None:
        """Remove the files of all other containers.

        A file name does not tell where the container ID in it begins, so a file stays if it can be one of a container
        in the set; and files that are named otherwise stay as well.
        """
        folder = os.path.join(self._base, "cni")
        try:
            names = os.listdir(folder)
        except FileNotFoundError:
            return
        except OSError as exc:
            raise IOFailureError(f"cannot list {folder}: {exc.strerror}") from exc
        for name in names:
            owners = _owners(name)
            if owners and not any(owner.endswith(f"-{container_id}") for owner in owners for container_id in container_ids):
                self.remove(os.path.join(folder, name))


def _owners(name: str) -> list[str]:
    """What may be ``<delegate name>-<container ID>`` in a file name: all of it can have underscores.  None: named otherwise."""
    ends = [index for index, character in enumerate(name) if character == "_" and 1 <= len(name) - index - 1 <= _IFNAME_LIMIT]
    return [name[:end] for end in ends if "-" in name[1:end] and not name.startswith(".")]


def _file_name(text: str) -> str:
    return text.replace("/", "-").replace("\0", "-")


def _content(path: str) -> bytes | None:
    try:
        return files.read(path)
    except (FileNotFoundError, NotADirectoryError):
        return None
    except OSError as exc:
        raise IOFailureError(f"cannot read {path}: {exc.strerror}") from exc


def _checked(content: bytes, path: str) -> dict[str, object]:
    document = documents.load_object(content, path)
    for key in ("type", "version"):
        value = document.get(key)
        if not isinstance(value, str):
            raise DecodingError(f"{path}: key \"{key}\" is {documents.kind(value)}, a string is expected")
    return document
