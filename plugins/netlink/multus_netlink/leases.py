"""The store of ``host-local`` on disk, shared with the binary: one file per address that is given away, one lock per network.

``<folder>/<address>`` holds container ID, CR LF, interface name; ``<folder>/last_reserved_ip.<set>`` the address that a range
set gave away last; ``<folder>/lock`` is locked with flock by whoever reads or writes.  An empty file of an address, seen under
the lock, is what a killed writer or a crash of the machine has left: nobody has that address.
"""

from __future__ import annotations

import fcntl
import os
import stat
from typing import TYPE_CHECKING, Self

from multus import files
from multus.errors import IOFailureError
from multus_netlink.ranges import Address, parse_address

if TYPE_CHECKING:
    from collections.abc import Collection
    from types import TracebackType

DEFAULT_FOLDER = "/var/lib/cni/networks"
_LINE_BREAK = "\r\n"
_LONGEST = 4096
"""Bytes that a file of the store has at most."""


class Leases:
    """The store of one network, locked from ``with`` to the end of the block.  Raises IOFailureError."""

    def __init__(self, folder: str, ifname: str = "") -> None:
        self._folder = folder
        self._what = f"interface {ifname}: " if ifname else ""
        self._lock = -1

    def __enter__(self) -> Self:
        try:
            os.makedirs(self._folder, 0o755, exist_ok=True)
            self._lock = os.open(os.path.join(self._folder, "lock"), os.O_CREAT | os.O_RDONLY | os.O_CLOEXEC, 0o750)
            fcntl.flock(self._lock, fcntl.LOCK_EX)  # each opening has a lock of its own, so threads exclude each other too
        except OSError as exc:
            if self._lock >= 0:
                os.close(self._lock)
            raise IOFailureError(f"{self._what}cannot lock the address store {self._folder}: {exc.strerror}") from exc
        return self

    def __exit__(self, kind: type[BaseException] | None, exc: BaseException | None, traceback: TracebackType | None) -> None:
        os.close(self._lock)

    def owners(self) -> dict[Address, str]:
        """Who has each address that is given away, as ``belongs`` reads it."""
        return {
            address: owner
            for address, owner in self._files()
            if owner or not _is_abandoned(os.path.join(self._folder, str(address)))
        }

    def reserve(self, address: Address, container_id: str, ifname: str, set_number: int) -> bool:
        """Give an address away; False: somebody has it."""
        path = os.path.join(self._folder, str(address))
        try:
            if _is_abandoned(path):
                files.remove(path)
            try:
                fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o600)
            except FileExistsError:
                return False
            try:
                try:
                    os.write(fd, _owner(container_id, ifname).encode())
                finally:
                    os.close(fd)
                _overwrite(os.path.join(self._folder, f"last_reserved_ip.{set_number}"), str(address).encode())
            except OSError:
                files.remove(path)
                raise
        except OSError as exc:
            raise IOFailureError(f"{self._what}cannot reserve {address} in {self._folder}: {exc.strerror}") from exc
        return True

    def last(self, set_number: int) -> Address | None:
        """The address that a range set gave away last."""
        return parse_address(self._content(f"last_reserved_ip.{set_number}"))

    def of(self, container_id: str, ifname: str) -> tuple[Address, ...]:
        """The addresses of an attachment."""
        return tuple(address for address, owner in self.owners().items() if belongs(owner, container_id, ifname))

    def release(self, addresses: Collection[Address]) -> None:
        """Take addresses back."""
        for address in addresses:
            self._remove(str(address))

    def release_of(self, container_id: str, ifname: str) -> None:
        """Take back all addresses of an attachment; only if it has none by interface, those by container alone."""
        owners = self._files()
        for wanted in (_owner(container_id, ifname), container_id.strip()):
            found = [address for address, owner in owners if owner == wanted]
            if found:
                self.release(found)
                return

    def release_all_but(self, attachments: Collection[tuple[str, str]]) -> None:
        """Take back every address that belongs to none of these container IDs and interface names."""
        kept = {_owner(*each) for each in attachments} | {container_id for container_id, _ in attachments}
        self.release([address for address, owner in self._files() if owner not in kept])

    def _files(self) -> list[tuple[Address, str]]:
        """The address and the owner of each file of an address."""
        try:
            names = os.listdir(self._folder)
        except OSError as exc:
            raise IOFailureError(f"{self._what}cannot list the address store {self._folder}: {exc.strerror}") from exc
        named = [(name, parse_address(name)) for name in names]
        return [(address, self._content(name)) for name, address in named if address is not None]

    def _content(self, name: str) -> str:
        """A file without the blanks around it; empty if it is not there."""
        try:
            fd = os.open(os.path.join(self._folder, name), os.O_RDONLY | os.O_CLOEXEC)
            try:
                return os.read(fd, _LONGEST).decode(errors="replace").strip()
            finally:
                os.close(fd)
        except (FileNotFoundError, IsADirectoryError):
            return ""
        except OSError as exc:
            raise IOFailureError(f"{self._what}cannot read {name} in {self._folder}: {exc.strerror}") from exc

    def _remove(self, name: str) -> None:
        try:
            files.remove(os.path.join(self._folder, name))
        except OSError as exc:
            raise IOFailureError(f"{self._what}cannot take {name} in {self._folder} back: {exc.strerror}") from exc


def _is_abandoned(path: str) -> bool:
    """Whether a file of the store is one that its writer did not come to write."""
    try:
        found = os.lstat(path)
    except FileNotFoundError:
        return False
    return stat.S_ISREG(found.st_mode) and not found.st_size


def belongs(owner: str, container_id: str, ifname: str) -> bool:
    """Whether an owner is this attachment.  Old files name no interface: they are of all of the container's."""
    return owner in (_owner(container_id, ifname), container_id.strip())


def _owner(container_id: str, ifname: str) -> str:
    return container_id.strip() + _LINE_BREAK + ifname


def _overwrite(path: str, content: bytes) -> None:
    """Write a file in its place: cutting it to nothing before makes file systems write out at once, for 0.2 ms and more."""
    fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_CLOEXEC, 0o600)
    try:
        os.pwrite(fd, content, 0)
        if os.fstat(fd).st_size != len(content):
            os.ftruncate(fd, len(content))
    finally:
        os.close(fd)
