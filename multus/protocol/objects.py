"""Kubernetes objects: their API paths, documents to values, and the documents that we send."""

from __future__ import annotations

import time

from multus.errors import InvalidConfigError
from multus.protocol import documents
from multus.types.delegate import NetAttachDef
from multus.types.pod import RESOURCE_NAME_ANNOTATION, Pod

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.types.pod import Node

COMPONENT = "multus"
MAX_EVENT_MESSAGE_BYTES = 1024
_MAX_NAME_BYTES = 253
_PLAIN = frozenset(b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789._-")


def pod_path(namespace: str, name: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace, 'namespace')}/pods/{_segment(name, 'pod')}"


def net_attach_def_path(namespace: str, name: str) -> str:
    return (
        f"/apis/k8s.cni.cncf.io/v1/namespaces/{_segment(namespace, 'namespace')}"
        f"/network-attachment-definitions/{_segment(name, 'net-attach-def')}"
    )


def events_path(namespace: str) -> str:
    return f"/api/v1/namespaces/{_segment(namespace, 'namespace')}/events"


def quoted_path(path: str, query: Mapping[str, str] | None = None) -> str:
    """A path of plain text as it stands in a request: every segment and the query percent-encoded.

    Raises:
        InvalidConfigError: A segment is empty, ``.`` or ``..``.
    """
    if not path.startswith("/"):
        raise InvalidConfigError(f"API path {documents.quote(path)} does not begin with a slash")
    quoted = "".join(f"/{_segment(part, 'API path segment')}" for part in path[1:].split("/"))
    pairs = "&".join(f"{_quoted(key)}={_quoted(value)}" for key, value in (query or {}).items())
    return f"{quoted}?{pairs}" if pairs else quoted


def pod_from(document: Mapping[str, object], namespace: str, name: str) -> Pod:
    """The pod that ``namespace`` and ``name`` led to.  Annotations that are not strings are dropped."""
    metadata = _mapping(document.get("metadata"))
    uid = metadata.get("uid")
    return Pod(
        namespace=namespace,
        name=name,
        uid=uid if isinstance(uid, str) else "",
        annotations={key: value for key, value in _mapping(metadata.get("annotations")).items() if isinstance(value, str)},
        document=document,
    )


def net_attach_def_from(document: Mapping[str, object], namespace: str, name: str) -> NetAttachDef:
    """The net-attach-def that ``namespace`` and ``name`` led to.

    Raises:
        InvalidConfigError: Code 7, ``spec`` is not an object or ``spec.config`` is not a string.

    Spec: multi-network CRD standard v1.3 §3.
    """
    spec = document.get("spec")
    config = spec.get("config") if isinstance(spec, dict) else None
    where = f"net-attach-def {namespace}/{name}"
    if spec is not None and not isinstance(spec, dict):
        raise InvalidConfigError(f"{where}: spec is {documents.kind(spec)}, an object is expected")
    if config is not None and not isinstance(config, str):
        raise InvalidConfigError(f"{where}: spec.config is {documents.kind(config)}, a string is expected")
    annotations = _mapping(_mapping(document.get("metadata")).get("annotations"))
    resource_name = annotations.get(RESOURCE_NAME_ANNOTATION)
    return NetAttachDef(namespace, name, config or "", resource_name if isinstance(resource_name, str) else "")


def annotation_patch(pod: Pod, key: str, value: str) -> dict[str, object]:
    """The merge patch that sets one annotation of this very pod.

    With the UID in it the API server refuses to patch another pod of the same name, as the kubelet does it.  A static
    pod has none: what we know may be the kubelet's UID, not the API server's.
    """
    metadata: dict[str, object] = {"annotations": {key: value}}
    if pod.uid and not pod.is_static:
        metadata["uid"] = pod.uid
    return {"metadata": metadata}


def described(about: Pod | Node) -> str:
    """The object as messages name it."""
    return f"pod {about.namespace}/{about.name}" if isinstance(about, Pod) else f"node {about.name}"


def event(about: Pod | Node, kind: str, reason: str, message: str, now_ns: int) -> dict[str, object]:
    """An event, as new.

    Args:
        now_ns: Nanoseconds since 1970 UTC; they also make the name unique.

    Spec: Multus behaviour, as of client-go's event recorder.
    """
    return event_about(_reference(about), about.namespace, kind, reason, message, now_ns, COMPONENT)


def event_about(
    reference: Mapping[str, str], namespace: str, kind: str, reason: str, message: str, now_ns: int, component: str
) -> dict[str, object]:
    """An event as ``event`` makes it, of any object.

    Args:
        reference: Kind, API version, name and UID of the object.
        namespace: Where the event is kept.
        component: Who tells it.
    """
    now = time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now_ns // 1_000_000_000))
    suffix = f".{now_ns:016x}"
    return {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"namespace": namespace, "name": reference["name"][: _MAX_NAME_BYTES - len(suffix)] + suffix},
        "involvedObject": dict(reference),
        "type": kind,
        "reason": reason,
        "message": _cut(message, MAX_EVENT_MESSAGE_BYTES),
        "source": {"component": component},
        "reportingComponent": component,
        "reportingInstance": "",
        "firstTimestamp": now,
        "lastTimestamp": now,
        "count": 1,
    }


def _reference(about: Pod | Node) -> dict[str, str]:
    if not isinstance(about, Pod):
        return {"kind": "Node", "apiVersion": "v1", "name": about.name, "uid": about.name}  # as kubelets do it
    reference = {"kind": "Pod", "apiVersion": "v1", "namespace": about.namespace, "name": about.name, "uid": about.uid}
    resource_version = _mapping(about.document.get("metadata")).get("resourceVersion")
    if isinstance(resource_version, str):
        reference["resourceVersion"] = resource_version
    return reference


def _segment(text: str, what: str) -> str:
    """``text`` as one path segment that nothing on the way takes for another."""
    if text in ("", ".", ".."):
        raise InvalidConfigError(f"{what} {documents.quote(text)} cannot be the name of a Kubernetes object")
    return _quoted(text)


def _quoted(text: str) -> str:
    return "".join(chr(byte) if byte in _PLAIN else f"%{byte:02X}" for byte in text.encode("utf-8", "surrogateescape"))


def _cut(text: str, max_bytes: int) -> str:
    return text.encode("utf-8", "replace")[:max_bytes].decode("utf-8", "ignore")


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}
