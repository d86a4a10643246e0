"""The calls about requests for certificates: what is sent, and what comes of each answer."""

from __future__ import annotations

import json

import pytest

from multus.errors import DecodingError, ForbiddenError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol.api_errors import NO_ANSWER, Answer
from multus.protocol.signing_calls import SigningCalls
from multus.types.certificates import SigningRequest

PATH = "/apis/certificates.k8s.io/v1/certificatesigningrequests"
FOUND = Answer(200, b'{"metadata": {"name": "csr-1"}}')


class Script:
    """A transport that gives these answers in turn."""

    def __init__(self, *answers: Answer) -> None:
        self.answers = list(answers)
        self.sent: list[tuple[str, str, str]] = []
        self.bodies: list[bytes] = []
        self.renewals = 0
        self.is_closed = False

    def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
        self.sent.append((method, target, content_type))
        self.bodies.append(body)
        return self.answers.pop(0)

    def renew(self) -> None:
        self.renewals += 1

    def close(self) -> None:
        self.is_closed = True


def test_a_request_is_created() -> None:
    script = Script(Answer(201, b'{"metadata": {"name": "csr-1"}}'))
    assert SigningCalls(script).create(b"pem", 600).name == "csr-1"
    assert script.sent == [("POST", PATH, "application/json")]
    assert json.loads(script.bodies[0])["spec"]["expirationSeconds"] == 600


def test_a_request_is_read() -> None:
    script = Script(FOUND)
    assert SigningCalls(script).read("csr-1") == {"metadata": {"name": "csr-1"}}
    assert script.sent == [("GET", f"{PATH}/csr-1", "")]


def test_an_answer_goes_to_the_approval_subresource() -> None:
    script = Script(FOUND)
    SigningCalls(script).update_approval("csr-1", {"status": {}})
    assert (script.sent, script.bodies) == ([("PUT", f"{PATH}/csr-1/approval", "application/json")], [b'{"status":{}}'])


def test_an_event_is_about_the_request_and_told_by_the_component() -> None:
    script = Script(Answer(201))
    SigningCalls(script, "cert-approver").create_event(SigningRequest("csr-1", "u", "7"), "Warning", "CSRDenied", "no")
    event = json.loads(script.bodies[0])
    assert script.sent[0][1] == "/api/v1/namespaces/default/events"
    assert event["source"] == {"component": "cert-approver"}
    assert event["involvedObject"] == {
        "kind": "CertificateSigningRequest",
        "apiVersion": "certificates.k8s.io/v1",
        "name": "csr-1",
        "uid": "u",
        "resourceVersion": "7",
    }
    assert (event["type"], event["reason"], event["message"], event["metadata"]["namespace"]) == ("Warning", "CSRDenied", "no", "default")


def test_credentials_are_read_again_once_when_they_are_not_known() -> None:
    script = Script(Answer(401), FOUND)
    SigningCalls(script).read("csr-1")
    assert (script.renewals, len(script.sent)) == (1, 2)


@pytest.mark.parametrize(
    ("answers", "kind", "message"),
    [
        ([Answer(404, b'{"message": "gone"}')], ObjectNotFoundError, "certificate signing request csr-1 not found: gone (HTTP status 404)"),
        ([Answer(403)], ForbiddenError, "API server refuses to get certificate signing request csr-1: HTTP status 403"),
        ([Answer(401), Answer(401)], ForbiddenError, "API server refuses to get certificate signing request csr-1: HTTP status 401"),
        ([Answer(409)], TryAgainLaterError, "cannot get certificate signing request csr-1: HTTP status 409"),
        ([Answer(503)], TryAgainLaterError, "cannot get certificate signing request csr-1: HTTP status 503"),
        ([Answer(NO_ANSWER, error="refused")], TryAgainLaterError, "cannot get certificate signing request csr-1: refused"),
        ([Answer(422)], MultusError, "cannot get certificate signing request csr-1: HTTP status 422"),
        ([Answer(200, b"[]")], DecodingError, "certificate signing request csr-1 is a list, an object is expected"),
    ],
)
def test_a_failure_is_an_error_of_its_kind(answers: list[Answer], kind: type[MultusError], message: str) -> None:
    with pytest.raises(MultusError) as caught:
        SigningCalls(Script(*answers)).read("csr-1")
    assert (type(caught.value), caught.value.msg) == (kind, message)


def test_closing_closes_the_connection() -> None:
    script = Script()
    SigningCalls(script).close()
    assert script.is_closed
