"""The pod as we read it, the status as we write it, and the names of the annotations."""

from __future__ import annotations

from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NETWORKS_ANNOTATION = "k8s.v1.cni.cncf.io/networks"
DEFAULT_NETWORK_ANNOTATION = "v1.multus-cni.io/default-network"
STATUS_ANNOTATION = "k8s.v1.cni.cncf.io/network-status"
RESOURCE_NAME_ANNOTATION = "k8s.v1.cni.cncf.io/resourceName"
CONFIG_SOURCE_ANNOTATION = "kubernetes.io/config.source"


class Pod(NamedTuple):
    """A pod of the API server."""

    namespace: str
    name: str
    uid: str
    annotations: Mapping[str, str] = {}
    document: Mapping[str, object] = {}
    """The whole object, for what only some networks need (devices, claims)."""

    @property
    def is_static(self) -> bool:
        """A mirror of a static pod: the UID that the runtime gives is the kubelet's, not the API server's."""
        return self.annotations.get(CONFIG_SOURCE_ANNOTATION, "api") != "api"

    def __str__(self) -> str:
        return f"{self.namespace}/{self.name}/{self.uid}"


class Node(NamedTuple):
    """The node that the daemon runs on."""

    name: str
    namespace: str = "default"
    """Where its events are kept: a node is in no namespace."""

    def __str__(self) -> str:
        return self.name


class NetworkStatus(NamedTuple):
    """One entry of the network-status annotation.  Spec: multi-network CRD standard v1.3 §5."""

    name: str
    interface: str = ""
    ips: tuple[str, ...] = ()
    mac: str = ""
    mtu: int | None = None
    default: bool = False
    dns: Mapping[str, object] = {}
    device_info: Mapping[str, object] | None = None
    gateway: tuple[str, ...] = ()
    default_route: tuple[str, ...] | None = None
