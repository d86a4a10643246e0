"""Devices by their place in sysfs: on a bus, or by a path below /sys/devices; their drivers and links.

What is not there, or cannot be read, is empty.
"""

from __future__ import annotations

import glob
import os


class Sysfs:
    """The tree at ``root``; a device is named by its folder."""

    def __init__(self, root: str = "/sys") -> None:
        self._root = root

    def on_bus(self, bus: str, name: str) -> str:
        """The device of that name on ``pci`` or ``auxiliary``."""
        is_name = name not in ("", ".", "..") and "/" not in name and "\0" not in name
        folder = os.path.join(self._root, "bus", bus, "devices", name)
        return folder if is_name and os.path.isdir(folder) else ""

    def at(self, path: str) -> str:
        """The device at an absolute path, which is below the tree's ``devices``."""
        folder = os.path.normpath(path)
        is_below = folder.startswith(os.path.join(self._root, "devices", "")) and "\0" not in folder
        return folder if is_below and os.path.isdir(folder) else ""

    def driver(self, folder: str) -> str:
        """The name of a device's driver."""
        try:
            return os.path.basename(os.readlink(os.path.join(folder, "driver")))
        except OSError:
            return ""

    def link_name(self, folder: str) -> str:
        """The first link of a device, in the network namespace that sysfs was mounted in; a virtio device has it a level deeper."""
        for pattern in ("net", "virtio*/net"):
            for found in sorted(glob.glob(os.path.join(glob.escape(folder), pattern, "*"))):
                return os.path.basename(found)
        return ""
