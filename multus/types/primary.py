"""How the configuration that the runtime reads is made: the settings, and what is found and decided."""

from __future__ import annotations

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.config import ConfList

AUTO = "auto"


class PrimarySettings(NamedTuple):
    """What the daemon's configuration, or the flags of ``thin_entrypoint``, say about it, checked.

    Paths are absolute, as the process sees them.
    """

    cni_config_dir: str = "/etc/cni/net.d"
    """Where the runtime looks, and our file goes."""
    autoconfig_dir: str = ""
    """Where the primary configuration is; empty: in ``cni_config_dir``."""
    master_cni: str = ""
    """The primary configuration's file name; empty: the first one by name."""
    config_file: str = AUTO
    """``auto``, or the path of a ready-made configuration."""
    cni_version: str = ""
    """Of our configuration; empty: the primary's own."""
    force_cni_version: bool = False
    override_network_name: bool = False
    cleanup_config_on_exit: bool = False
    readiness_indicator_file: str = ""
    plugin_type: str = "multus-shim"
    """What the runtime calls."""
    capabilities: Mapping[str, bool] = {}
    """Those of the primary are added to them."""
    passed: Mapping[str, object] = {}
    """Members that stand in ours as they are, by their spelling in it."""
    rename_primary: bool = False
    """Give the primary configuration a name that no runtime reads, once ours is in place."""

    @property
    def is_automatic(self) -> bool:
        return self.config_file == AUTO

    @property
    def primary_folder(self) -> str:
        return self.autoconfig_dir or self.cni_config_dir


class Candidate(NamedTuple):
    """One file that may be the primary configuration."""

    path: str
    conf: ConfList | None = None
    """None: it is ours, or not valid."""
    is_own: bool = False
    problem: str = ""
    """Why it is not valid; names the path."""


class Choice(NamedTuple):
    """The primary configuration, and why it is that one."""

    path: str
    conf: ConfList
    reason: str
    warning: str = ""
    """Another file that should have won and is not valid."""


class Wanted(NamedTuple):
    """What our file is to say."""

    content: bytes
    source: str
    """The path of the configuration that it is made of."""
    reason: str
    """Why it is that one."""
    warning: str = ""
    """Another file that should have won and is not valid."""
    note: str = ""
    """What the operator should know about it, once."""
    target: str = ""
    """The path of our file, where it is not always the same; empty: the usual one."""
