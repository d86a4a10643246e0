"""The pod of a call: waited for, read, and checked against what the runtime says."""

from __future__ import annotations

from multus.errors import InvalidEnvironmentError, MultusError, NotAvailableError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol import results

TYPE_CHECKING = False
if TYPE_CHECKING:
    from multus.core.context import Context
    from multus.types.pod import Pod
    from multus.types.result import Result

READY_TIMEOUT_S = 45.0
READY_INTERVAL_S = 1.0


def wait_until_ready(context: Context) -> None:
    """Wait for the readiness indicator file of the cluster network, if one is configured.

    Raises:
        TryAgainLaterError: Code 11, after 45 s.
    """
    path = context.config.readiness_indicator_file
    if not path:
        return
    end = context.clock.monotonic() + READY_TIMEOUT_S
    while not context.readiness(path):
        if context.clock.monotonic() + READY_INTERVAL_S > end:
            raise TryAgainLaterError(
                f"the cluster network is not ready: {path!r} (key \"readinessindicatorfile\") "
                f"did not appear within {READY_TIMEOUT_S:.0f} s"
            )
        context.clock.sleep(READY_INTERVAL_S)


def require_ready(context: Context) -> None:
    """Look for the readiness indicator file once: STATUS is a probe.  Raises NotAvailableError, code 50."""
    path = context.config.readiness_indicator_file
    if path and not context.readiness(path):
        raise NotAvailableError(f"the cluster network is not ready: {path!r} (key \"readinessindicatorfile\") is missing")


def for_add(context: Context) -> Pod | Result | None:
    """The pod to attach; None without an API server; a result for a pod that is gone, where that is configured.

    Raises:
        TryAgainLaterError: Code 11: the pod does not exist, by the API server's live answer, or could not be read.
        InvalidEnvironmentError: Code 4: ``CNI_ARGS`` names no pod.
        MultusError: Another pod has the name now.
    """
    if context.kube is None:
        return None
    asked = context.call.pod
    if not asked.name or not asked.namespace:
        raise InvalidEnvironmentError("CNI_ARGS names no pod: K8S_POD_NAMESPACE and K8S_POD_NAME are expected where a kubeconfig is set")
    try:
        pod = context.kube.pod(asked.namespace, asked.name, asked.uid)
    except ObjectNotFoundError as exc:
        if context.config.pod_not_found_result == "empty":
            context.log.warning("pod.gone", error=exc)
            return _nothing_attached(context)
        raise TryAgainLaterError(f"pod {asked.namespace}/{asked.name} with UID {asked.uid or 'unknown'!r} does not exist", exc.msg) from exc
    if not _is_asked(pod, context):
        raise MultusError(
            f"pod {asked.namespace}/{asked.name} has UID {pod.uid!r}, the runtime asks for UID {asked.uid!r}: it was replaced"
        )
    return pod


def for_delete(context: Context) -> Pod | None:
    """The pod to detach; None if it cannot be had, or another one has its name now."""
    asked = context.call.pod
    if context.kube is None or not asked.name or not asked.namespace:
        return None
    try:
        pod = context.kube.pod(asked.namespace, asked.name, asked.uid)
    except MultusError as exc:
        context.log.warning("del.pod.unknown", error=exc)
        return None
    return pod if _is_asked(pod, context) else None


def _is_asked(pod: Pod, context: Context) -> bool:
    uid = context.call.pod.uid
    return not uid or pod.uid == uid or pod.is_static


def _nothing_attached(context: Context) -> Result:
    """The answer for a pod that is gone: the interface by name, and no address."""
    interface = {"name": context.call.ifname, "sandbox": context.call.netns}
    version = context.config.cni_version
    if version in ("0.1.0", "0.2.0"):
        return results.empty(version)
    return results.convert(results.parse({"cniVersion": "1.1.0", "interfaces": [interface]}, ""), version)
