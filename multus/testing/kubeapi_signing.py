"""Certificates of clients for the API server stand-in: who a client is, what a request for one must hold, and the signer.

Spec: Kubernetes, certificates.k8s.io/v1, "Certificate Signing Requests"; X.509 client certificates of its authentication.
"""

from __future__ import annotations

import base64
import ssl
import time
from typing import TYPE_CHECKING, Any, NamedTuple

from multus.testing.kubeapi_store import Address, Refusal, Store

if TYPE_CHECKING:
    from multus.testing.kubeapi_store import Document

NO_CHECK_TIME = 0x200000
"""Of OpenSSL: a certificate that is over is our affair, since the real server answers 401 to it, after the handshake."""
APPROVAL = "approval"
_AUTHENTICATED = "system:authenticated"
_MIN_LIFETIME_S = 600


class User(NamedTuple):
    """Who a client is."""

    name: str
    groups: tuple[str, ...] = ()


class Signer:
    """An authority of its own, which signs requests that were approved.

    Attributes:
        lifetime_s: The longest that it grants.
        backdate_s: How long before the signature a certificate begins; the real signer's begin five minutes before.
        approves: Whether each request is approved as it is created, so that no approver is needed.
        failure: Sign nothing; say this in a condition ``Failed``.
    """

    def __init__(self, lifetime_s: float = 365 * 86400.0) -> None:
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes
        from cryptography.hazmat.primitives.asymmetric import ec
        from cryptography.x509.oid import NameOID

        self.lifetime_s = lifetime_s
        self.backdate_s = 0.0
        self.approves = False
        self.failure = ""
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "stand-in")])
        now = time.time()
        builder = _builder(self._name, self._name, self._key.public_key(), now, now + 2 * 86400)
        self._certificate = builder.add_extension(x509.BasicConstraints(True, None), True).sign(self._key, hashes.SHA256())

    @property
    def authority(self) -> str:
        """The authority's certificate, in PEM."""
        return _pem(self._certificate).decode()

    def sign(self, request: bytes, lifetime_s: float) -> bytes:
        """The certificate that a request in PEM asks for, in PEM; its times are whole seconds."""
        from cryptography import x509
        from cryptography.hazmat.primitives import hashes

        asked = x509.load_pem_x509_csr(request)
        now = time.time()
        end = now + min(lifetime_s, self.lifetime_s)
        signed = _builder(asked.subject, self._name, asked.public_key(), now - self.backdate_s, end).sign(self._key, hashes.SHA256())
        return _pem(signed)

    def attend(self, store: Store, at: Address, document: Document) -> Document:
        """Do what is due after a request was created or its approval changed; the object as it is then."""
        status: Document = dict(document.get("status") or {})
        conditions = list(status.get("conditions") or ())
        if self.approves and not conditions:
            conditions.append({"type": "Approved", "status": "True", "reason": "StandIn", "message": "approved as it was created"})
        types = {condition.get("type") for condition in conditions}
        if "Approved" not in types or "Failed" in types or status.get("certificate"):
            return document
        if self.failure:
            conditions.append({"type": "Failed", "status": "True", "reason": "SignerFailed", "message": self.failure})
        else:
            spec = document["spec"]
            signed = self.sign(base64.b64decode(spec["request"]), spec.get("expirationSeconds") or self.lifetime_s)
            status["certificate"] = base64.b64encode(signed).decode()
        fresh = {**document, "metadata": {**document["metadata"], "resourceVersion": ""}, "status": {**status, "conditions": conditions}}
        return store.replace(at._replace(name=document["metadata"]["name"], sub="status"), fresh)


def admitted(document: Document, user: User) -> Document:
    """A new request as the server takes it: stamped with who made it, without a status.  Raises Refusal: 422."""
    spec: Any = document.get("spec") or {}
    expiration_s = spec.get("expirationSeconds")
    for key in ("request", "signerName", "usages"):
        if not spec.get(key):
            raise Refusal(422, "Invalid", f"CertificateSigningRequest is invalid: spec.{key}: Required value")
    if expiration_s is not None and expiration_s < _MIN_LIFETIME_S:
        why = f"spec.expirationSeconds: Invalid value: {expiration_s}: may not specify a duration less than 600 seconds (10 minutes)"
        raise Refusal(422, "Invalid", f"CertificateSigningRequest is invalid: {why}")
    stamped = {**document, "spec": {**spec, "username": user.name, "groups": [*user.groups, _AUTHENTICATED]}}
    stamped.pop("status", None)
    return stamped


def accept(context: ssl.SSLContext, signer: Signer) -> None:
    """Let a server ask for client certificates, and take those of the signer."""
    context.verify_mode = ssl.CERT_OPTIONAL
    context.verify_flags |= ssl.VerifyFlags(NO_CHECK_TIME)
    context.load_verify_locations(cadata=signer.authority)


def user_of(certificate: Any) -> User | None:
    """Whom a certificate names, as ``ssl.SSLSocket.getpeercert`` tells it; None: it is over."""
    if ssl.cert_time_to_seconds(certificate["notAfter"]) <= time.time():
        return None
    subject = [pair for part in certificate["subject"] for pair in part]
    names = [value for key, value in subject if key == "commonName"]
    return User(names[-1] if names else "", tuple(value for key, value in subject if key == "organizationName"))


def _builder(subject: Any, issuer: Any, public_key: Any, start: float, end: float) -> Any:
    from datetime import UTC, datetime

    from cryptography import x509

    return (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(public_key)
        .serial_number(x509.random_serial_number())
        .not_valid_before(datetime.fromtimestamp(int(start), UTC))
        .not_valid_after(datetime.fromtimestamp(int(end), UTC))
    )


def _pem(certificate: Any) -> bytes:
    from cryptography.hazmat.primitives.serialization import Encoding

    content: bytes = certificate.public_bytes(Encoding.PEM)
    return content
