"""A network on its way to a pod: definition, delegate, attachment."""

from __future__ import annotations

from multus.types.named import NamedTuple
from multus.types.selection import NetworkSelectionElement

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.config import ConfList
    from multus.types.result import Result


class NetAttachDef(NamedTuple):
    """A NetworkAttachmentDefinition as the API server holds it.  Spec: multi-network CRD standard v1.3 §3."""

    namespace: str
    name: str
    config: str = ""
    """CNI JSON; empty: the configuration is a file of that name on the node."""
    resource_name: str = ""
    """The device plugin resource that each attachment takes one device of."""


class Delegate(NamedTuple):
    """One network that is to be attached, with what was asked of it."""

    name: str
    """``namespace/name`` of the net-attach-def, else the name of the configuration."""
    conf: ConfList
    selection: NetworkSelectionElement | None = None
    is_cluster_network: bool = False
    is_auxiliary: bool = False
    """The auxiliary chain: it runs on the cluster network's interface and makes none of its own."""
    device_id: str = ""
    resource_name: str = ""
    preference: str = ""
    """Who runs its plugins if both could, a word of ``delegatePreference``; empty: as the configuration says."""


class Attachment(NamedTuple):
    """A delegate bound to a container's interface: all that its ADD, CHECK and DEL are given, and the result."""

    delegate: Delegate
    container_id: str
    netns: str
    ifname: str
    generic_args: tuple[tuple[str, str], ...] = ()
    capability_args: Mapping[str, object] = {}
    result: Result | None = None
    device_info: Mapping[str, object] | None = None
    runners: tuple[str, ...] = ()
    """Who has run the ADD of each plugin, as ``Outcome.runner`` says; none before it is attached."""
    has_failed: bool = False
    """Its ADD failed by the word of its first plugin: there may be nothing to detach."""

    @property
    def network(self) -> str:
        """The name of the CNI network configuration."""
        return self.delegate.conf.name
