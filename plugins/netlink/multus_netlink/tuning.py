"""The plugin ``tuning``: kernel settings of a pod's namespace, and attributes of its interface, until DEL gives those back."""

from __future__ import annotations

import json
import os
from typing import TYPE_CHECKING, Any, NamedTuple

from multus import files
from multus.errors import InvalidNetnsError, IOFailureError, MultusError
from multus.netns import Entered
from multus_netlink import chained, sysctls
from multus_netlink.attributes import Attributes, give
from multus_netlink.configuration import Section, requested_mac, require_served
from multus_netlink.links import Links
from multus_netlink.sysctls import Setting

if TYPE_CHECKING:
    from collections.abc import Sequence

    from multus.types.invocation import Invocation
    from multus.types.result import Result

_KEYS = frozenset(("sysctl", "mac", "promisc", "mtu", "allmulti", "txQLen", "dataDir"))
_FOLDER = "/run/cni/tuning"
_BACKUP_KEYS = {"mtu": "mtu", "mac": "mac", "promisc": "promisc", "allmulti": "allmulti", "tx_queue": "txQLen"}
_LARGEST = (1 << 31) - 1


class _Wanted(NamedTuple):
    """The configuration, read."""

    settings: tuple[Setting, ...]
    attributes: Attributes


class Tuning:
    """Implements ``multus.hooks.delegates.InProcessDelegate``."""

    def __init__(self, allow_list: str = sysctls.ALLOW_LIST) -> None:
        self._allow_list = allow_list

    def accepts(self, invocation: Invocation) -> bool:
        """Every key that its binary knows is served."""
        require_served(invocation.config, _KEYS)
        return True

    def add(self, invocation: Invocation) -> Result:
        """Write the settings, keep what the interface was in ``dataDir``, change it; the result so far, with its new MAC.

        Raises:
            InvalidConfigError: A value is not valid, a setting is not allowed, or there is no previous result.
            IOFailureError: The kernel refuses; nothing is changed then.
        """
        wanted = _read(invocation)
        sysctls.require_allowed(wanted.settings, self._allow_list, invocation.ifname)
        result = chained.previous(invocation)
        with Links(invocation.netns, invocation.ifname) as pod:
            link = pod.get(invocation.ifname)
            with Entered(invocation.netns):
                before = sysctls.write(wanted.settings, invocation.ifname)
            try:
                if any(each is not None for each in wanted.attributes):
                    _keep(invocation, Attributes.of(link).said_by(wanted.attributes))
                    give(pod, link, wanted.attributes)
            except BaseException:
                with Entered(invocation.netns):
                    sysctls.restore(before)
                try:
                    self.delete(invocation)
                except MultusError:
                    pass  # the failure that is being undone says more
                raise
        mac = wanted.attributes.mac
        return result if mac is None else chained.with_interfaces(result, lambda listed: _with_mac(listed, invocation, mac))

    def delete(self, invocation: Invocation) -> None:
        """Make the interface what it was, if it is still there, and forget what that is.

        Raises:
            IOFailureError: The kernel refuses.
        """
        was = _kept(invocation)
        if was is not None and invocation.netns:
            try:
                with Links(invocation.netns, invocation.ifname) as pod:
                    link = pod.find(invocation.ifname)
                    if link is not None:
                        give(pod, link, was)
            except InvalidNetnsError:
                pass  # it has taken its links with it
        _forget(invocation)

    def check(self, invocation: Invocation) -> None:
        """The settings have their values, and the interface is what it was made.

        Raises:
            InvalidConfigError: There is no previous result.
            IOFailureError: They are not.
        """
        wanted = _read(invocation)
        chained.previous(invocation)
        with Entered(invocation.netns):
            for setting in wanted.settings:
                value = sysctls.read(setting, invocation.ifname)
                if value.split() != setting.value.split():
                    what = f"sysctl {setting.key} is {value!r}, not {setting.value!r}"
                    raise IOFailureError(f"interface {invocation.ifname}: {what}")
        with Links(invocation.netns, invocation.ifname) as pod:
            found = Attributes.of(pod.get(invocation.ifname))
        # Promiscuous mode is either asked for or not there.
        expected = wanted.attributes._replace(promisc=bool(wanted.attributes.promisc))
        for (key, value), is_now in zip(expected._asdict().items(), found, strict=True):
            if value is not None and value != is_now:
                raise IOFailureError(f"interface {invocation.ifname}: its {_BACKUP_KEYS[key]} is {is_now!r}, not {value!r}")

    def gc(self, invocation: Invocation) -> None:
        """What is kept goes with DEL; it says nothing of the network that it is of."""

    def status(self, invocation: Invocation) -> None:
        """It can always serve."""


def _read(invocation: Invocation) -> _Wanted:
    """The configuration, with ``args.cni`` before the capability, CNI_ARGS and the keys themselves."""
    config = Section.of(invocation)
    asked = config.section("args").section("cni")
    settings: dict[str, Setting] = {}
    for owner in (config, asked):
        for key, value in owner.pairs("sysctl").items():
            path = sysctls.path_of(key, invocation.ifname)
            if not path:
                raise owner.section("sysctl").refusal(key, "for a setting below net")
            settings[key] = Setting(key, path, value)
    own = _attributes(config)._replace(mac=requested_mac(invocation, config) or None)
    attributes = _attributes(asked).over(own)
    # Said, but of no effect.
    attributes = attributes._replace(mac=attributes.mac or None, mtu=attributes.mtu or None, promisc=attributes.promisc or None)
    return _Wanted(tuple(settings.values()), attributes)


def _attributes(owner: Section) -> Attributes:
    return Attributes(
        mtu=_number(owner, "mtu"),
        mac=owner.mac("mac") if owner.has("mac") else None,
        promisc=owner.flag("promisc") if owner.has("promisc") else None,
        allmulti=owner.flag("allmulti") if owner.has("allmulti") else None,
        tx_queue=_number(owner, "txQLen"),
    )


def _number(owner: Section, key: str) -> int | None:
    number = owner.whole(key)
    if not 0 <= number <= _LARGEST:
        raise owner.refusal(key, f"from 0 to {_LARGEST}")
    return number if owner.has(key) else None


def _with_mac(listed: Sequence[dict[str, Any]], invocation: Invocation, mac: str) -> list[dict[str, Any]]:
    return [{**each, "mac": mac} if each.get("name") == invocation.ifname and each.get("sandbox") else each for each in listed]


def _path(invocation: Invocation) -> str:
    folder = Section.of(invocation).text("dataDir") or _FOLDER
    return os.path.join(folder, f"{invocation.container_id}_{invocation.ifname}.json")


def _keep(invocation: Invocation, was: Attributes) -> None:
    """Keep what the interface was where the binary does; what an earlier plugin of the list has kept stays."""
    path = _path(invocation)
    kept = (_kept(invocation) or Attributes()).over(was)
    document = {_BACKUP_KEYS[key]: value for key, value in kept._asdict().items() if value is not None}
    try:
        os.makedirs(os.path.dirname(path), 0o700, exist_ok=True)
        files.replace(path, json.dumps(document, indent=1).encode())
    except (OSError, ValueError) as exc:
        raise IOFailureError(f"interface {invocation.ifname}: cannot write {path}: {exc}") from exc


def _kept(invocation: Invocation) -> Attributes | None:
    """What is kept of the interface; None: nothing that can be read."""
    try:
        document = json.loads(files.read(_path(invocation)))
        owner = Section(document if isinstance(document, dict) else {}, f"{_path(invocation)}: ")
        return _attributes(owner)
    except (OSError, ValueError, MultusError):
        return None


def _forget(invocation: Invocation) -> None:
    try:
        files.remove(_path(invocation))
    except (OSError, ValueError) as exc:
        raise IOFailureError(f"interface {invocation.ifname}: cannot remove {_path(invocation)}: {exc}") from exc
