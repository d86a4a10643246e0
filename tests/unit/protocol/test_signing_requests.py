"""CertificateSigningRequests as documents and as values."""

from __future__ import annotations

import base64
from typing import Any

from multus.protocol import signing_requests
from multus.types.certificates import Condition, SigningRequest

PEM = b"-----BEGIN CERTIFICATE REQUEST-----\n"


def document(**status: Any) -> dict[str, Any]:
    made = signing_requests.new(PEM, 600)
    spec = {**made["spec"], "username": "system:node:w1", "groups": ["system:nodes"]}  # type: ignore[dict-item]
    return {**made, "metadata": {"name": "csr-1", "uid": "u", "resourceVersion": "7"}, "spec": spec, "status": status}


def test_what_is_created_has_all_that_the_signer_needs() -> None:
    assert signing_requests.new(PEM, 600) == {
        "apiVersion": "certificates.k8s.io/v1",
        "kind": "CertificateSigningRequest",
        "metadata": {"generateName": "csr-"},
        "spec": {
            "request": base64.b64encode(PEM).decode(),
            "signerName": "kubernetes.io/kube-apiserver-client",
            "expirationSeconds": 600,
            "usages": ["digital signature", "client auth"],
        },
    }


def test_a_document_is_read() -> None:
    assert signing_requests.from_document(document(certificate=base64.b64encode(b"chain").decode())) == SigningRequest(
        name="csr-1",
        uid="u",
        version="7",
        signer="kubernetes.io/kube-apiserver-client",
        username="system:node:w1",
        groups=("system:nodes",),
        usages=("digital signature", "client auth"),
        expiration_s=600,
        request=PEM,
        certificate=b"chain",
    )


def test_conditions_and_a_certificate_decide() -> None:
    denied = {"type": "Denied", "reason": "CSRDenied", "message": "no", "status": "True"}
    read = signing_requests.from_document
    assert read(document(conditions=[denied])).condition("Denied") == Condition("Denied", "CSRDenied", "no")
    assert read(document(conditions=[denied])).is_decided
    assert read(document(conditions=[{"type": "Approved"}])).is_decided
    assert read(document(certificate="Y2hhaW4=")).is_decided
    assert not read(document(conditions=[{"type": "Failed"}])).is_decided
    assert not read(document()).is_decided


def test_a_condition_is_added_and_the_rest_stays() -> None:
    before = document(conditions=[{"type": "Odd"}], certificate="Y2hhaW4=")
    after = signing_requests.with_condition(before, Condition("Denied", "CSRDenied", "no"), 0.0)
    added = {"type": "Denied", "status": "True", "reason": "CSRDenied", "message": "no", "lastUpdateTime": "1970-01-01T00:00:00Z"}
    assert after == {**before, "status": {"conditions": [{"type": "Odd"}, added], "certificate": "Y2hhaW4="}}
    assert before["status"]["conditions"] == [{"type": "Odd"}]


def test_a_name_cannot_lead_elsewhere() -> None:
    assert signing_requests.path("csr-1") == "/apis/certificates.k8s.io/v1/certificatesigningrequests/csr-1"
