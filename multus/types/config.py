"""Configurations: ours, and those of delegates, which are kept as they were parsed and only viewed."""

from __future__ import annotations

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping


class PluginConf(NamedTuple):
    """One plugin of a conflist: the parsed document, and views of it."""

    document: Mapping[str, object]
    type: str

    @property
    def capabilities(self) -> frozenset[str]:
        """The capabilities that the plugin declares as true.  Spec: CNI 1.1.0 §1, "Plugin configuration objects"."""
        declared = self.document.get("capabilities")
        return frozenset(name for name, value in declared.items() if value is True) if isinstance(declared, dict) else frozenset()


class ConfList(NamedTuple):
    """A network configuration: a plugin list, or a single plugin as a list of one.

    ``document`` is what was read, before name and version are put in; ``plugins`` holds the inlined plugins
    and those of the sub-folder.
    """

    document: Mapping[str, object]
    name: str
    cni_version: str
    plugins: tuple[PluginConf, ...]
    is_list: bool
    disable_check: bool = False
    disable_gc: bool = False

    @property
    def capabilities(self) -> frozenset[str]:
        """What any of the plugins declares."""
        return frozenset().union(*(plugin.capabilities for plugin in self.plugins))


class LogOptions(NamedTuple):
    """Rotation of the log file."""

    max_age: int = 5
    """Days; 0: for ever."""
    max_size: int = 100
    """MiB."""
    max_backups: int = 5
    """Old files; 0: all."""
    compress: bool = True


class LogConfig(NamedTuple):
    """Where log lines go, and which."""

    file: str = ""
    level: str = ""
    to_stderr: bool = True
    options: LogOptions = LogOptions()


class MultusConfig(NamedTuple):
    """The configuration of Multus itself, validated.  ``docs/configuration.md`` explains each key."""

    name: str
    cni_version: str = "0.1.0"
    """The caller's version, in which we answer."""
    conf_dir: str = "/etc/cni/multus/net.d"
    cni_dir: str = "/var/lib/cni/multus"
    bin_dir: str = "/opt/cni/bin"
    delegates: tuple[ConfList, ...] = ()
    """Inline delegates; empty when ``cluster_network`` is set."""
    cluster_network: str = ""
    default_networks: tuple[str, ...] = ()
    kubeconfig: str = ""
    readiness_indicator_file: str = ""
    namespace_isolation: bool = False
    global_namespaces: tuple[str, ...] = ("default",)
    system_namespaces: tuple[str, ...] = ("kube-system",)
    multus_namespace: str = "kube-system"
    auxiliary_chain: str = ""
    delegate_preference: str = "binary"
    invalid_annotation: str = "fail"
    pod_not_found_result: str = "error"
    strict_capabilities: bool = False
    allow_device_id: bool = False
    """Whether a pod may name a device of the node itself, by ``deviceID`` in its annotation."""
    retry_delete_on_error: bool = False
    """Accepted, without effect: state always stays until its delegates are deleted."""
    plugins: tuple[str, ...] = ()
    """Hook plugins that the thin binary loads, by entry-point name."""
    api_deadline_s: float = 30.0
    max_parallel_attachments: int = 1
    """How many secondary networks of a pod are attached at a time."""
    runtime_config: Mapping[str, object] = {}
    prev_result: Mapping[str, object] | None = None
    valid_attachments: tuple[tuple[str, str], ...] | None = None
    """GC: container ID and interface name of each attachment the runtime knows; None: it did not say."""
    log: LogConfig = LogConfig()
    warnings: tuple[str, ...] = ()
    """What the loader found odd, for the log."""
