"""Lists and watches of a collection: request targets, answers cut to what we keep, and how long to wait after a failure.

Who keeps a collection current by them is the adapters' business.

Spec: 10-daemon.md of the behaviour notes, §8.1; Kubernetes API concepts, "Efficient detection of changes".
"""

from __future__ import annotations

import json

from multus.errors import DecodingError
from multus.protocol import documents, objects
from multus.types.named import NamedTuple
from multus.types.pod import RESOURCE_NAME_ANNOTATION

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping
    from typing import Protocol

    Document = Mapping[str, object]

    class Stream(Protocol):
        """An answer that is still coming in."""

        status: int
        retry_after: str

        def chunks(self) -> Iterator[bytes]:
            """The body, as it arrives.  Raises TryAgainLaterError when it breaks off or falls silent."""
            ...

        def cut(self) -> None:
            """End ``chunks`` at once; from any thread."""
            ...

        def close(self) -> None: ...

    class Source(Protocol):
        """Opens streams to the API server, one at a time; one thread."""

        def stream(self, target: str, limit_s: float, silence_s: float) -> Stream:
            """Send a GET, and wait ``limit_s`` seconds at most for the answer to begin; then each part may take ``silence_s``.

            Raises:
                TryAgainLaterError: No answer began.
                MultusError: What a transport's ``exchange`` raises.
            """
            ...

        def renew(self) -> None:
            """Read our credentials again."""
            ...

        def close(self) -> None: ...

ANY_VERSION = "0"
"""Whatever the API server has at hand: its cache answers."""
NEWEST_VERSION = ""
"""What is stored at this moment: the API server has to ask its store."""
PAGE_ITEMS = 500
GONE = 410
_FIRST_DELAY_S = 0.5
_MAX_DELAY_S = 30.0
_MAX_ASKED_S = 120.0

_POD_SHAPE: Document = {
    "metadata": {"namespace": None, "name": None, "uid": None, "resourceVersion": None, "annotations": None},
    "spec": {
        "nodeName": None,
        "hostNetwork": None,
        "containers": [{"name": None}],
        "initContainers": [{"name": None, "restartPolicy": None}],
        "resourceClaims": None,
    },
    "status": {"phase": None, "resourceClaimStatuses": None, "extendedResourceClaimStatus": None},
}
_NET_ATTACH_DEF_SHAPE: Document = {
    "metadata": {"namespace": None, "name": None, "uid": None, "resourceVersion": None, "annotations": {RESOURCE_NAME_ANNOTATION: None}},
    "spec": {"config": None},
}


class Collection(NamedTuple):
    """All objects of a kind, in all namespaces, or those of one node."""

    name: str
    path: str
    shape: Document
    """What is kept of an object: its members by name, None for a value that is kept whole."""
    node_name: str = ""

    def holds(self, document: Document) -> bool:
        """Whether an object belongs here."""
        return not self.node_name or node_of(document) == self.node_name

    def trimmed(self, document: Document) -> Document:
        """What is kept of an object."""
        trimmed = _trimmed(document, self.shape)
        return trimmed if isinstance(trimmed, dict) else {}


class Page(NamedTuple):
    """One page of a list, its objects trimmed."""

    items: tuple[Document, ...]
    version: str
    token: str
    """Continues the list; empty: this was the last page."""


class Event(NamedTuple):
    """One event of a watch: the object trimmed, or the status of an error as it is."""

    kind: str
    document: Document


def pods(node_name: str) -> Collection:
    """The pods of a node; those of the whole cluster when its name is empty."""
    return Collection("pods", "/api/v1/pods", _POD_SHAPE, node_name)


def net_attach_defs() -> Collection:
    return Collection("net-attach-defs", "/apis/k8s.cni.cncf.io/v1/network-attachment-definitions", _NET_ATTACH_DEF_SHAPE)


def list_target(collection: Collection, version: str, token: str = "", page_items: int = PAGE_ITEMS) -> str:
    """The request for a page of a list.

    Args:
        version: Nothing older than it; also ``ANY_VERSION`` and ``NEWEST_VERSION``.
        token: Of the page before; it knows the version itself.
    """
    query = {**_selector(collection), "limit": str(page_items)}
    if token:
        query["continue"] = token
    elif version == ANY_VERSION:
        query["resourceVersion"] = version
    elif version != NEWEST_VERSION:
        query |= {"resourceVersion": version, "resourceVersionMatch": "NotOlderThan"}
    return objects.quoted_path(collection.path, query)


def watch_target(collection: Collection, version: str, timeout_s: int) -> str:
    """The request for a watch of what happens after a version."""
    query = {"watch": "true", "allowWatchBookmarks": "true", "resourceVersion": version, "timeoutSeconds": str(timeout_s)}
    return objects.quoted_path(collection.path, {**_selector(collection), **query})


def parse_page(body: bytes, collection: Collection) -> Page:
    """Decode a page; objects are trimmed while it is read, so that it never stands in memory whole as a document.

    Raises:
        DecodingError: It is no list of a version.
    """

    def keep(document: dict[str, object]) -> Document:
        is_object = isinstance(document.get("metadata"), dict) and "items" not in document
        return collection.trimmed(document) if is_object else document

    try:
        page = json.loads(body, object_hook=keep)
    except (ValueError, RecursionError) as exc:
        raise DecodingError(f"list of {collection.name} is not JSON") from exc
    if not isinstance(page, dict):
        raise DecodingError(f"list of {collection.name} is {documents.kind(page)}, an object is expected")
    items = [] if page.get("items", "") is None else page.get("items")
    metadata = _mapping(page.get("metadata"))
    version, token = metadata.get("resourceVersion"), metadata.get("continue") or ""
    if not isinstance(items, list) or not isinstance(version, str) or not isinstance(token, str):
        raise DecodingError(f"list of {collection.name} has no items, or no version")
    return Page(tuple(item for item in items if isinstance(item, dict)), version, token)


def parse_event(line: bytes, collection: Collection) -> Event:
    """Decode one line of a watch.

    Raises:
        DecodingError: It is no event.
    """
    event = documents.load_object(line, f"event of {collection.name}")
    kind, document = event.get("type"), event.get("object")
    if not isinstance(kind, str) or not isinstance(document, dict):
        raise DecodingError(f"event of {collection.name} has no type, or no object")
    return Event(kind, document if kind == "ERROR" else collection.trimmed(document))


def key_of(document: Document) -> tuple[str, str]:
    """Namespace and name."""
    metadata = _mapping(document.get("metadata"))
    return str(metadata.get("namespace") or ""), str(metadata.get("name") or "")


def node_of(document: Document) -> str:
    """The node that a pod is bound to; empty if none."""
    name = _mapping(document.get("spec")).get("nodeName")
    return name if isinstance(name, str) else ""


def uid_of(document: Document) -> str:
    return str(_mapping(document.get("metadata")).get("uid") or "")


def version_of(document: Document) -> str:
    return str(_mapping(document.get("metadata")).get("resourceVersion") or "")


def is_newer(version: str, than: str) -> bool:
    """Whether a version of the same collection came later; no, when that cannot be said.

    Spec: Kubernetes API concepts, "Resource versions": those of one collection are whole numbers that grow.
    """
    return version.isdecimal() and than.isdecimal() and int(version) > int(than)


def delay_s(attempt: int, retry_after: str, jitter: float) -> float:
    """Seconds to wait after a failure: doubling from 0.5 to 30, and no less than the server asks for, up to 120.

    Args:
        attempt: 1 for the first failure in a row; 0 for none, which needs no delay.
        retry_after: The header's text; only its form in seconds is known.
        jitter: From 0 to 1; takes away up to half of our own delay, adds up to a tenth to what the server asks for.
    """
    own = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(attempt - 1, 10)) * (1 - jitter / 2) if attempt else 0.0
    asked = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10 else 0
    return max(own, min(asked, _MAX_ASKED_S) * (1 + jitter / 10))


def _selector(collection: Collection) -> dict[str, str]:
    return {"fieldSelector": f"spec.nodeName={collection.node_name}"} if collection.node_name else {}


def _trimmed(value: object, shape: object) -> object:
    """The members of ``value`` that ``shape`` names; a value of another kind stays, for those who check it."""
    if isinstance(shape, dict) and isinstance(value, dict):
        return {key: _trimmed(value[key], inner) for key, inner in shape.items() if key in value}
    if isinstance(shape, list) and isinstance(value, list):
        return [_trimmed(item, shape[0]) for item in value]
    return value


def _mapping(value: object) -> Document:
    return value if isinstance(value, dict) else {}
