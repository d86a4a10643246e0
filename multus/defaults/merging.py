"""Which result the runtime gets: the cluster network's.  Spec: multi-network CRD standard v1.3 §6 and §7.1."""

from __future__ import annotations

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.types.config import MultusConfig
    from multus.types.delegate import Attachment
    from multus.types.result import Result


class ClusterNetworkResult:
    """Answers with the result of the cluster network, default route as it is in force."""

    def multus_merge_results(self, attachments: tuple[Attachment, ...], config: MultusConfig) -> Result | None:
        return next((attachment.result for attachment in attachments if attachment.delegate.is_cluster_network), None)
