"""The calls to the API server about CertificateSigningRequests, over any transport; each is attempted once.

Who calls tries again in its own time: a request is made with a new key, and a decision is taken on a fresh object.
"""

from __future__ import annotations

import time

from multus.errors import TryAgainLaterError
from multus.protocol import documents, objects, signing_requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

    from multus.protocol.api_calls import Transport
    from multus.protocol.api_errors import Answer
    from multus.types.certificates import SigningRequest

LIMIT_S = 10.0
"""Of one call."""
_JSON = "application/json"
_CONFLICT = 409


class SigningCalls:
    """``ports.SigningRequests``; one thread at a time.

    Raises:
        ObjectNotFoundError: Code 102, there is no such request any more.
        ForbiddenError: Code 100, the API server refuses our credentials, or the call.
        TryAgainLaterError: Code 11, it did not answer, failed, or somebody else changed the object meanwhile.
        MultusError: What no further attempt would mend.
    """

    def __init__(self, transport: Transport, component: str = objects.COMPONENT) -> None:
        """``component`` is who tells events."""
        self._transport = transport
        self._component = component

    def create(self, request: bytes, expiration_s: int) -> SigningRequest:
        """Ask for a certificate, by a PKCS #10 request in PEM; the object as it was created."""
        what = "certificate signing request"
        answer = self._call("POST", signing_requests.PATH, "create", what, signing_requests.new(request, expiration_s))
        return signing_requests.from_document(documents.load_object(answer.body, f"answer to the creation of a {what}"))

    def read(self, name: str) -> Mapping[str, object]:
        """The object as it is now."""
        answer = self._call("GET", signing_requests.path(name), "get", _what(name))
        return documents.load_object(answer.body, _what(name))

    def update_approval(self, name: str, document: Mapping[str, object]) -> None:
        """Replace the conditions, unless the object was changed since ``document`` was read."""
        self._call("PUT", f"{signing_requests.path(name)}/approval", "update", f"approval of {_what(name)}", document)

    def create_event(self, about: SigningRequest, kind: str, reason: str, message: str) -> None:
        """``kind`` is Normal or Warning."""
        namespace = signing_requests.EVENTS_NAMESPACE
        reference = signing_requests.reference(about)
        event = objects.event_about(reference, namespace, kind, reason, message, time.time_ns(), self._component)
        self._call("POST", objects.events_path(namespace), "create", f"event {reason} of {_what(about.name)}", event)

    def close(self) -> None:
        self._transport.close()

    def _call(self, method: str, target: str, verb: str, what: str, document: Mapping[str, object] | None = None) -> Answer:
        body = b"" if document is None else documents.dumps(document).encode()
        content_type = "" if document is None else _JSON
        answer = self._transport.exchange(method, target, content_type, body, LIMIT_S)
        if answer.status == 401:
            self._transport.renew()
            answer = self._transport.exchange(method, target, content_type, body, LIMIT_S)
        if answer.is_passing_failure or answer.status == _CONFLICT:
            raise TryAgainLaterError(f"cannot {verb} {what}: {answer.reason}") from answer.cause
        if not answer.is_success:
            raise answer.failure(verb, what)
        return answer


def _what(name: str) -> str:
    return f"certificate signing request {name}"
