"""The API server, reached when it is first needed: DEL and CHECK of a recorded container never ask it.

A kubeconfig that is missing or broken then fails the call that needs it, not every call.
"""

from __future__ import annotations

from multus.errors import InvalidConfigError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.core.ports import Clock, Kube
    from multus.types.delegate import NetAttachDef
    from multus.types.pod import Node, Pod


class LateKube:
    """``ports.Kube``, connected by its first call."""

    def __init__(self, kubeconfig: str, environ: Mapping[str, str], deadline_s: float, clock: Clock) -> None:
        self._settings = (kubeconfig, environ, deadline_s, clock)
        self._kube: Kube | None = None

    @classmethod
    def configured(cls, kubeconfig: str, environ: Mapping[str, str], deadline_s: float, clock: Clock) -> LateKube | None:
        """One for a kubeconfig, or for the cluster that the process runs in; None if there is neither."""
        in_cluster = environ.get("KUBERNETES_SERVICE_HOST") and environ.get("KUBERNETES_SERVICE_PORT")
        return cls(kubeconfig, environ, deadline_s, clock) if kubeconfig or in_cluster else None

    def pod(self, namespace: str, name: str, uid: str = "") -> Pod:
        return self._connected().pod(namespace, name, uid)

    def net_attach_def(self, namespace: str, name: str) -> NetAttachDef:
        return self._connected().net_attach_def(namespace, name)

    def annotate_status(self, pod: Pod, key: str, value: str) -> None:
        self._connected().annotate_status(pod, key, value)

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        self._connected().create_event(about, kind, reason, message)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, object]:
        return self._connected().get(path, query)

    def _connected(self) -> Kube:
        if self._kube is None:
            from multus.commands.kube_access import connect  # ssl and sockets behind it

            kube = connect(*self._settings)
            if kube is None:
                raise InvalidConfigError("no API server is configured: neither a kubeconfig nor in-cluster settings")
            self._kube = kube
        return self._kube
