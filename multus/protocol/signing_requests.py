"""CertificateSigningRequests: their API paths, documents to values, and the documents that we send.

A document may be anybody's: what in it is not of the kind that it should be counts as absent.

Spec: Kubernetes, certificates.k8s.io/v1; 03-networks.md §11 and 14-helpers.md §5 of the behaviour notes.
"""

from __future__ import annotations

import binascii
import time

from multus.protocol import objects
from multus.protocol.watches import Collection
from multus.types.certificates import Condition, SigningRequest

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

API_VERSION = "certificates.k8s.io/v1"
KIND = "CertificateSigningRequest"
PATH = f"/apis/{API_VERSION}/certificatesigningrequests"
SIGNER = "kubernetes.io/kube-apiserver-client"
USAGES = ("digital signature", "client auth")
EVENTS_NAMESPACE = "default"
"""Of the events of objects that are in no namespace."""
_SHAPE = {
    "metadata": {"name": None, "uid": None, "resourceVersion": None},
    "spec": None,
    "status": {"conditions": None, "certificate": None},
}


def collection() -> Collection:
    """All of the cluster."""
    return Collection("certificatesigningrequests", PATH, _SHAPE)


def path(name: str) -> str:
    """The path of one of them."""
    return objects.quoted_path(f"{PATH}/{name}")


def new(request: bytes, expiration_s: int) -> dict[str, object]:
    """A request for a certificate of a client, as it is created.

    Args:
        request: PKCS #10 in PEM.
        expiration_s: The certificate's lifetime.
    """
    return {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": binascii.b2a_base64(request, newline=False).decode(),
            "signerName": SIGNER,
            "expirationSeconds": expiration_s,
            "usages": list(USAGES),
        },
    }


def from_document(document: Mapping[str, object]) -> SigningRequest:
    metadata, spec, status = (_mapping(document.get(key)) for key in ("metadata", "spec", "status"))
    expiration_s = spec.get("expirationSeconds")
    conditions = status.get("conditions")
    return SigningRequest(
        name=_text(metadata.get("name")),
        uid=_text(metadata.get("uid")),
        version=_text(metadata.get("resourceVersion")),
        signer=_text(spec.get("signerName")),
        username=_text(spec.get("username")),
        groups=_texts(spec.get("groups")),
        usages=_texts(spec.get("usages")),
        expiration_s=expiration_s if isinstance(expiration_s, int) and not isinstance(expiration_s, bool) else None,
        request=_bytes(spec.get("request")),
        conditions=tuple(_condition(each) for each in conditions if isinstance(each, dict)) if isinstance(conditions, list) else (),
        certificate=_bytes(status.get("certificate")),
    )


def with_condition(document: Mapping[str, object], condition: Condition, now: float) -> dict[str, object]:
    """The document with one more condition that is true, for the approval subresource.

    Args:
        now: Seconds since 1970.
    """
    status = _mapping(document.get("status"))
    conditions = status.get("conditions")
    said = {
        "type": condition.type,
        "status": "True",
        "reason": condition.reason,
        "message": condition.message,
        "lastUpdateTime": time.strftime("%Y-%m-%dT%H:%M:%SZ", time.gmtime(now)),
    }
    return {**document, "status": {**status, "conditions": [*(conditions if isinstance(conditions, list) else ()), said]}}


def reference(request: SigningRequest) -> dict[str, str]:
    """The object as its events name it."""
    return {"kind": KIND, "apiVersion": API_VERSION, "name": request.name, "uid": request.uid, "resourceVersion": request.version}


def _condition(document: Mapping[str, object]) -> Condition:
    return Condition(*(_text(document.get(key)) for key in ("type", "reason", "message")))


def _mapping(value: object) -> Mapping[str, object]:
    return value if isinstance(value, dict) else {}


def _text(value: object) -> str:
    return value if isinstance(value, str) else ""


def _texts(value: object) -> tuple[str, ...]:
    return tuple(each for each in value if isinstance(each, str)) if isinstance(value, list) else ()


def _bytes(value: object) -> bytes:
    try:
        return binascii.a2b_base64(_text(value))
    except ValueError:
        return b""
