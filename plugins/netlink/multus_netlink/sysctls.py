"""Kernel settings of the network, by the names of sysctl(8), in the namespace that the thread is in."""

from __future__ import annotations

import os
import re
from typing import TYPE_CHECKING, NamedTuple

from multus import files
from multus.errors import InvalidConfigError, IOFailureError
from multus_netlink.links import put_setting

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

ALLOW_LIST = "/etc/cni/tuning/allowlist.conf"
"""Regular expressions, one a line, of which one must be found in a key; without the file every key is allowed."""
_ROOT = "/proc/sys"
_NETWORK = "/proc/sys/net/"


class Setting(NamedTuple):
    """A setting: its key as the configuration has it, its file, its value."""

    key: str
    path: str
    value: str


def path_of(key: str, ifname: str) -> str:
    """The file of a setting, the first ``IFNAME`` in its key being the interface; empty: it is none of the network's."""
    if not key.isprintable():
        return ""
    path = os.path.normpath(f"{_ROOT}/{key.replace('.', '/').replace('IFNAME', ifname, 1)}")
    return path if path.startswith(_NETWORK) else ""


def read(setting: Setting, ifname: str) -> str:
    """The present value, without the end of the line; for an interface.

    Raises:
        IOFailureError: There is no such setting, or it cannot be read.
    """
    try:
        return files.read(setting.path).decode(errors="replace").removesuffix("\n")
    except OSError as exc:
        raise IOFailureError(f"interface {ifname}: cannot read sysctl {setting.key}: {exc.strerror}") from exc


def write(settings: Iterable[Setting], ifname: str) -> list[Setting]:
    """Write the settings for an interface, in order, all or none; what they were before, in reverse order, as far as that can be read.

    Raises:
        IOFailureError: There is no such setting, or the kernel refuses the value.
    """
    before: list[Setting] = []
    for setting in settings:
        try:
            old = setting._replace(value=read(setting, ifname))
        except IOFailureError:
            old = None  # some can only be written; one that is not there fails below
        try:
            put_setting(setting.path, setting.value.encode(errors="replace"))
        except OSError as exc:
            restore(before)
            what = f"cannot set sysctl {setting.key} to {setting.value!r}"
            raise IOFailureError(f"interface {ifname}: {what}: {exc.strerror}") from exc
        if old is not None:
            before.insert(0, old)
    return before


def restore(settings: Sequence[Setting]) -> None:
    """Write what ``write`` has returned, as far as that goes."""
    for setting in settings:
        try:
            put_setting(setting.path, setting.value.encode(errors="replace"))
        except OSError:
            pass  # the failure that is being undone says more


def require_allowed(settings: Iterable[Setting], allow_list: str, ifname: str) -> None:
    """Raise InvalidConfigError for a key that the node's list does not allow, IOFailureError for a list that cannot be read."""
    try:
        lines = files.read(allow_list).decode(errors="replace").splitlines()
    except FileNotFoundError:
        return
    except OSError as exc:
        raise IOFailureError(f"interface {ifname}: cannot read {allow_list}: {exc.strerror}") from exc
    allowed = [line.strip() for line in lines if line.strip()]
    for setting in settings:
        try:
            if not any(re.search(expression, setting.key) for expression in allowed):
                what = f"sysctl {setting.key!r} is not allowed on this node: no expression of {allow_list} fits"
                raise InvalidConfigError(f"interface {ifname}: {what}")
        except re.error as exc:
            raise InvalidConfigError(f"interface {ifname}: {allow_list}: {exc.pattern!r} is no regular expression: {exc.msg}") from exc
