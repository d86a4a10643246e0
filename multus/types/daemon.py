"""The daemon's own settings, and a request as it comes over the node socket."""

from __future__ import annotations

from multus.types.config import LogConfig
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.certificates import CertificateSettings


class DaemonConfig(NamedTuple):
    """The daemon's configuration file, checked.  ``docs/configuration.md`` explains each key."""

    document: Mapping[str, object]
    """The whole file: it is laid over the configuration of every request."""
    socket_dir: str = "/run/multus/"
    chroot_dir: str = ""
    """Delegates' binaries run with this folder as their root; empty: as they are."""
    cni_dir: str = "/var/lib/cni/multus"
    log: LogConfig = LogConfig(to_stderr=False)
    connection_limit: int = 4
    """Requests served at a time."""
    queue_timeout_s: float = 100.0
    """How long a request may wait for its turn."""
    delegate_timeout_s: float = 90.0
    """How long one call of one delegate may take; 0: for ever."""
    shutdown_grace_s: float = 20.0
    """How long running requests may take to finish at the end."""
    primary_timeout_s: float = 120.0
    """How long the start waits for a primary configuration."""
    metrics_port: int | None = None
    metrics_address: str = "127.0.0.1"
    debug_endpoints: bool = False
    """Whether the metrics port tells the stacks of all threads as well."""
    readiness_indicator_file: str = ""
    is_automatic: bool = True
    """The configuration is generated, so that requests need not look for the readiness indicator file."""
    api_server: tuple[str, str] = ("", "")
    """Host and port of the API server in place of the in-cluster ones; empty strings: as they are."""
    certificate: CertificateSettings | None = None
    """Of the node's own certificate; None: the daemon has none."""
    warnings: tuple[str, ...] = ()


class InterfaceAttributes(NamedTuple):
    """What a hot-plug request asks of its interface."""

    ips: tuple[str, ...] = ()
    mac: str = ""
    cni_args: Mapping[str, object] | None = None


class NodeRequest(NamedTuple):
    """One request over the node socket.  Spec: Multus behaviour, "Request body of /cni and /delegate"."""

    env: Mapping[str, str]
    config: bytes
    attributes: InterfaceAttributes | None = None
    network: str = ""
    """Hot-plug: ``namespace/name`` of the net-attach-def that the configuration is of, where namespaces are isolated."""
