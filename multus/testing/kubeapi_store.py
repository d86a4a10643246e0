"""The objects of the API server stand-in, and the rules by which requests read and change them."""

from __future__ import annotations

import copy
import threading
import time
import uuid
from collections import deque
from itertools import takewhile
from typing import TYPE_CHECKING, Any, NamedTuple
from urllib.parse import unquote

if TYPE_CHECKING:
    from collections.abc import Mapping

Document = dict[str, Any]


class Resource(NamedTuple):
    """A kind of object and its place in the API."""

    api_version: str
    plural: str
    kind: str
    namespaced: bool = True
    has_status: bool = False
    has_approval: bool = False
    """A subresource for conditions alone, and a ``spec`` that nobody changes."""

    @property
    def root(self) -> str:
        return f"/api/{self.api_version}" if self.api_version == "v1" else f"/apis/{self.api_version}"

    @property
    def subresources(self) -> tuple[str, ...]:
        return ("status",) * self.has_status + ("approval",) * self.has_approval

    @property
    def qualified(self) -> str:
        """``plural`` with its group, as API messages name it."""
        group, _, version = self.api_version.rpartition("/")
        return f"{self.plural}.{group}" if version and group else self.plural


RESOURCES = (
    Resource("v1", "pods", "Pod", has_status=True),
    Resource("v1", "nodes", "Node", namespaced=False, has_status=True),
    Resource("v1", "namespaces", "Namespace", namespaced=False, has_status=True),
    Resource("v1", "events", "Event"),
    Resource("k8s.cni.cncf.io/v1", "network-attachment-definitions", "NetworkAttachmentDefinition"),
    Resource("resource.k8s.io/v1", "resourceclaims", "ResourceClaim", has_status=True),
    Resource("resource.k8s.io/v1", "resourceslices", "ResourceSlice", namespaced=False),
    Resource("resource.k8s.io/v1", "deviceclasses", "DeviceClass", namespaced=False),
    Resource(
        "certificates.k8s.io/v1", "certificatesigningrequests", "CertificateSigningRequest",
        namespaced=False, has_status=True, has_approval=True,
    ),
)


class Address(NamedTuple):
    """What a request path names; ``name`` is empty for a collection, ``namespace`` for all of them or none."""

    resource: Resource
    namespace: str = ""
    name: str = ""
    sub: str = ""


class Refusal(Exception):
    """A failure answer: its HTTP status and its Status document."""

    def __init__(self, code: int, reason: str, message: str, details: Mapping[str, object] | None = None) -> None:
        super().__init__(message)
        self.code = code
        self.document = status_document(code, reason, message, details)


def status_document(code: int, reason: str, message: str, details: Mapping[str, object] | None = None) -> Document:
    document: Document = {
        "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure", "message": message, "reason": reason, "code": code,
    }
    if details:
        document["details"] = dict(details)
    return document


def parse_path(path: str) -> Address | None:
    """The address that a path (percent-encoded, without its query) names; None: nothing that we serve."""
    for resource in RESOURCES:
        if not path.startswith(f"{resource.root}/"):
            continue
        parts = [unquote(part) for part in path[len(resource.root) + 1 :].split("/")]
        namespace = ""
        if resource.namespaced and parts[0] == "namespaces" and len(parts) > 2:
            namespace = parts[1]
            parts = parts[2:]
        is_complete = all(parts) and (namespace or len(parts) == 1 or not resource.namespaced)
        if parts[0] == resource.plural and is_complete and (not parts[2:] or parts[2:] in [[sub] for sub in resource.subresources]):
            return Address(resource, namespace, *parts[1:])
    return None


def merge_patch(target: object, patch: object) -> Any:
    """RFC 7386."""
    if not isinstance(patch, dict):
        return copy.deepcopy(patch)
    merged = dict(target) if isinstance(target, dict) else {}
    for key, value in patch.items():
        if value is None:
            merged.pop(key, None)
        else:
            merged[key] = merge_patch(merged.get(key), value)
    return merged


class Change(NamedTuple):
    """One change of one object; None where it did not exist.  Documents are the store's own, not to be changed."""

    version: int
    plural: str
    namespace: str
    before: Document | None
    after: Document | None


class Store:
    """Objects by resource, namespace and name.  Documents go in and come out as copies; safe to share by threads.

    The last ``horizon`` changes are kept for watches.
    """

    def __init__(self, horizon: int = 1000) -> None:
        self._objects: dict[tuple[str, str, str], Document] = {}
        self._version = 100
        self._lock = threading.RLock()
        self._changed = threading.Condition(self._lock)
        self._changes: deque[Change] = deque(maxlen=horizon)
        self._pages: dict[str, tuple[str, tuple[Document, ...]]] = {}
        """Rest of a list by continue token, with the version of its first page."""

    def put(self, document: Mapping[str, object]) -> Document:
        """Create or replace the object of a manifest; its namespace is ``default`` unless it says another.

        Raises:
            ValueError: Its kind is not one that we serve, or it has no name.
        """
        resource = next((r for r in RESOURCES if (r.api_version, r.kind) == (document.get("apiVersion"), document.get("kind"))), None)
        if resource is None:
            raise ValueError(f"{document.get('apiVersion')} {document.get('kind')} is not served")
        metadata: Any = document.get("metadata")
        if not isinstance(metadata, dict) or not metadata.get("name"):
            raise ValueError(f"{resource.kind} has no metadata.name")
        namespace = metadata.get("namespace") or "default" if resource.namespaced else ""
        return self._save(Address(resource, namespace, metadata["name"]), dict(document))

    def find(self, plural: str, namespace: str, name: str) -> Document | None:
        with self._lock:
            return copy.deepcopy(self._objects.get((plural, namespace, name)))

    def all(self, plural: str, namespace: str = "") -> list[Document]:
        """Of one namespace, or of all of them, in order of creation."""
        with self._lock:
            return [copy.deepcopy(o) for (p, n, _), o in self._objects.items() if p == plural and namespace in ("", n)]

    def remove(self, plural: str, namespace: str, name: str) -> bool:
        with self._lock:
            gone = self._objects.pop((plural, namespace, name), None)
            if gone is not None:
                self._version += 1
                self._note(plural, namespace, gone, None)
            return gone is not None

    def get(self, address: Address) -> Document:
        """Answer a GET of one object.  Raises Refusal: 404."""
        found = self.find(address.resource.plural, address.namespace, address.name)
        if found is None:
            raise Refusal(404, "NotFound", f'{address.resource.qualified} "{address.name}" not found')
        return found

    def list(self, address: Address, field_selector: str, limit: int = 0, token: str = "") -> Document:
        """Answer a GET of a collection; the selector knows ``=`` and ``==``.

        Args:
            limit: Items of one page; 0 for all.
            token: Of the page before.

        Raises:
            Refusal: 410 for a token that is not, or no longer, known.
        """
        with self._lock:
            if token and token not in self._pages:
                raise Refusal(410, "Expired", "The provided continue parameter is too old")
            version, items = self._pages.pop(token) if token else (str(self._version), self.snapshot(address, field_selector)[1])
            metadata = {"resourceVersion": version}
            if 0 < limit < len(items):
                metadata["continue"] = uuid.uuid4().hex
                self._pages[metadata["continue"]] = version, items[limit:]
                items = items[:limit]
        kind = f"{address.resource.kind}List"
        return {"apiVersion": address.resource.api_version, "kind": kind, "metadata": metadata, "items": list(items)}

    def snapshot(self, address: Address, field_selector: str) -> tuple[int, tuple[Document, ...]]:
        """The present version, and the objects that are selected."""
        with self._lock:
            items = self.all(address.resource.plural, address.namespace)
            return self._version, tuple(item for item in items if is_selected(item, field_selector))

    def changes_after(self, version: int, limit_s: float) -> tuple[Change, ...] | None:
        """The changes after a version, waited for up to ``limit_s`` seconds; None: some of them are forgotten."""
        with self._changed:
            if self._version <= version:
                self._changed.wait(limit_s)
            if self._version > version and (not self._changes or self._changes[0].version > version + 1):
                return None
            newer = takewhile(lambda change: change.version > version, reversed(self._changes))
            return tuple(newer)[::-1]

    def forget_changes(self) -> None:
        """Let every watch from a version before the present one find it too old, as a compaction does."""
        with self._lock:
            self._version += 1
            self._changes.clear()

    def create(self, address: Address, document: Document) -> Document:
        """Answer a POST.  Raises Refusal: 400 another namespace, 409 it exists, 422 it has no name."""
        metadata = document.setdefault("metadata", {})
        if address.namespace and metadata.setdefault("namespace", address.namespace) != address.namespace:
            raise Refusal(400, "BadRequest", "the namespace of the object does not match the namespace of the request")
        if not metadata.get("name") and metadata.get("generateName"):
            metadata["name"] = f"{metadata['generateName']}{uuid.uuid4().hex[:5]}"
        if not metadata.get("name"):
            raise Refusal(422, "Invalid", f"{address.resource.kind} is invalid: metadata.name: Required value")
        at = address._replace(name=metadata["name"])
        with self._lock:
            if self.find(at.resource.plural, at.namespace, at.name) is not None:
                raise Refusal(409, "AlreadyExists", f'{at.resource.qualified} "{at.name}" already exists')
            return self._save(at, document)

    def replace(self, address: Address, document: Document) -> Document:
        """Answer a PUT.  Raises Refusal: 404, 409 another UID or resource version."""
        with self._lock:
            current = self.get(address)
            uid = document.get("metadata", {}).get("uid")
            if uid and uid != current["metadata"]["uid"]:
                raise _conflict(address, f"UID in precondition: {uid}, UID in object meta: {current['metadata']['uid']}")
            return self._update(address, current, document)

    def patch(self, address: Address, patch: Document) -> Document:
        """Answer a merge PATCH.  Raises Refusal: 404, 409 another resource version, 422 another UID."""
        with self._lock:
            current = self.get(address)
            uid = (patch.get("metadata") or {}).get("uid")
            if uid and uid != current["metadata"]["uid"]:
                message = f'Invalid value: "{uid}": field is immutable'
                cause = {"reason": "FieldValueInvalid", "message": message, "field": "metadata.uid"}
                raise Refusal(
                    422, "Invalid", f'{address.resource.kind} "{address.name}" is invalid: metadata.uid: {message}',
                    {"name": address.name, "kind": address.resource.kind, "causes": [cause]},
                )
            return self._update(address, current, merge_patch(current, patch))

    def delete(self, address: Address) -> Document:
        """Answer a DELETE.  Raises Refusal: 404."""
        with self._lock:
            gone = self.get(address)
            self.remove(address.resource.plural, address.namespace, address.name)
        details = {"name": address.name, "uid": gone["metadata"]["uid"]}
        return {"kind": "Status", "apiVersion": "v1", "status": "Success", "details": details}

    def _update(self, address: Address, current: Document, wanted: Document) -> Document:
        """Change what the address lets a request change: the status and annotations, or all but the status."""
        version = wanted.get("metadata", {}).get("resourceVersion")
        if version and version != current["metadata"]["resourceVersion"]:
            raise _conflict(address, "the object has been modified; please apply your changes to the latest version and try again")
        if address.sub == "approval":
            return self._save(address, _with_conditions(address, current, wanted))
        if address.sub == "status":
            changed = {**current, "metadata": dict(current["metadata"])}
            changed["metadata"]["annotations"] = wanted.get("metadata", {}).get("annotations") or {}
            source = wanted
        else:
            changed = dict(wanted)
            changed["metadata"] = {**wanted.get("metadata", {}), "uid": current["metadata"]["uid"]}
            source = current if address.resource.has_status else wanted
            if address.resource.has_approval:
                changed["spec"] = current["spec"]
        changed.pop("status", None)
        if "status" in source:
            changed["status"] = source["status"]
        return self._save(address, changed)

    def _save(self, address: Address, document: Mapping[str, Any]) -> Document:
        resource = address.resource
        with self._lock:
            self._version += 1
            metadata: Document = {
                "uid": str(uuid.uuid4()),
                "creationTimestamp": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime()),
                **document["metadata"],
                "name": address.name,
                "resourceVersion": str(self._version),
            }
            if resource.namespaced:
                metadata["namespace"] = address.namespace
            saved = {**document, "apiVersion": resource.api_version, "kind": resource.kind, "metadata": metadata}
            key = (resource.plural, address.namespace, address.name)
            before, self._objects[key] = self._objects.get(key), copy.deepcopy(saved)
            self._note(resource.plural, address.namespace, before, self._objects[key])
            return copy.deepcopy(saved)

    def _note(self, plural: str, namespace: str, before: Document | None, after: Document | None) -> None:
        self._changes.append(Change(self._version, plural, namespace, before, after))
        self._changed.notify_all()


def _with_conditions(address: Address, current: Document, wanted: Document) -> Document:
    """The present object with the conditions of another one.  Raises Refusal: 422 for both answers at once, or one taken back."""
    conditions = list((wanted.get("status") or {}).get("conditions") or ())
    status = current.get("status") or {}
    answers, before = (
        {each.get("type") for each in some} & {"Approved", "Denied"} for some in (conditions, status.get("conditions") or ())
    )
    if len(answers) > 1 or not before <= answers:
        why = "status.conditions: Invalid value: Approved and Denied conditions are mutually exclusive, and may not be removed"
        raise Refusal(422, "Invalid", f'{address.resource.kind} "{address.name}" is invalid: {why}')
    return {**current, "status": {**status, "conditions": conditions}}


def _conflict(address: Address, why: str) -> Refusal:
    return Refusal(409, "Conflict", f'Operation cannot be fulfilled on {address.resource.qualified} "{address.name}": {why}')


def is_selected(document: Document, field_selector: str) -> bool:
    """Whether an object has all fields as a field selector wants them."""
    for term in filter(None, field_selector.split(",")):
        key, _, wanted = term.partition("=")
        value: Any = document
        for part in key.split("."):
            value = value.get(part) if isinstance(value, dict) else None
        if str(value or "") != wanted.removeprefix("="):
            return False
    return True
