"""What is made known: the network-status annotation, and events about the pod."""

from __future__ import annotations

from multus.errors import ObjectNotFoundError
from multus.protocol import results
from multus.protocol.annotations import format_statuses
from multus.types.pod import STATUS_ANNOTATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.ports import EventSink, Kube, Log
    from multus.errors import MultusError
    from multus.types.config import MultusConfig
    from multus.types.delegate import Attachment
    from multus.types.pod import NetworkStatus, Pod


class StatusAnnotation:
    """Writes the network-status annotation by one PATCH; a pod that is gone by now needs none."""

    def __init__(self, kube: Kube | None, log: Log) -> None:
        self._kube = kube
        self._log = log

    def multus_report_status(self, statuses: tuple[NetworkStatus, ...], pod: Pod, config: MultusConfig) -> None:
        if self._kube is None:
            return
        try:
            self._kube.annotate_status(pod, STATUS_ANNOTATION, format_statuses(statuses))
        except ObjectNotFoundError as exc:
            self._log.warning("status.pod.gone", error=exc)


class Events:
    """Creates an event for each attachment that stands, and a Warning for each problem."""

    def __init__(self, sink: EventSink | None) -> None:
        self._sink = sink

    def multus_report_attachment(self, attachment: Attachment, pod: Pod) -> None:
        if self._sink is None or attachment.result is None or attachment.delegate.is_auxiliary:
            return
        view = results.view(attachment.result)
        if view.interfaces or view.ips:
            addresses = " ".join(ip.address for ip in view.ips)
            message = f"Add {attachment.ifname} [{addresses}] from {attachment.delegate.name}"
            self._sink.create_event(pod, "Normal", "AddedInterface", message)

    def multus_report_problem(self, reason: str, error: MultusError, pod: Pod) -> None:
        if self._sink is not None:
            self._sink.create_event(pod, "Warning", reason, str(error))
