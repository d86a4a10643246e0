"""The calls of ``ports.Kube`` over any transport: requests, time limit, attempts, errors.

Who carries a request to the API server, and with which credentials, is the transport's business (adapters).
"""

from __future__ import annotations

import os
import time

from multus.errors import ObjectNotFoundError, TryAgainLaterError
from multus.protocol import api_errors, documents, objects

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Mapping
    from typing import Protocol

    from multus.core.ports import Clock
    from multus.protocol.api_errors import Answer
    from multus.types.delegate import NetAttachDef
    from multus.types.pod import Node, Pod

    class Transport(Protocol):
        """Carries single requests to the API server; one thread at a time."""

        def exchange(self, method: str, target: str, content_type: str, body: bytes, limit_s: float) -> Answer:
            """Send a request once and read the answer, in ``limit_s`` seconds at most.

            Raises:
                MultusError: What no further attempt would mend: a certificate that is not trusted, a missing key file,
                    an answer that is not HTTP.
            """
            ...

        def renew(self) -> None:
            """Read our credentials again: the API server does not know us by the present ones."""
            ...

        def close(self) -> None: ...


ATTEMPT_LIMIT_S = 10.0
"""Of one attempt, so that a connection that hangs leaves time for another one."""
EVENT_LIMIT_S = 2.0
CONFLICT_ATTEMPTS = 5
_JSON = "application/json"
_MERGE_PATCH = "application/merge-patch+json"


class ApiCalls:
    """``ports.Kube`` over a transport, for one request of a container runtime; one thread at a time.

    All calls together spend at most ``deadline_s`` seconds in here.  What happens between them, a slow delegate above
    all, does not count.
    """

    def __init__(self, transport: Transport, clock: Clock, deadline_s: float, jitter: Callable[[], float] | None = None) -> None:
        """``jitter``: answers a number from 0 to 1 for each delay; random when None."""
        self._transport = transport
        self._clock = clock
        self._deadline_s = deadline_s
        self._left_s = deadline_s
        self._jitter = jitter or _random_fraction

    def pod(self, namespace: str, name: str, uid: str = "") -> Pod:
        """The pod, read live, whatever its UID."""
        document = self._read(objects.pod_path(namespace, name), f"pod {namespace}/{name}")
        return objects.pod_from(document, namespace, name)

    def net_attach_def(self, namespace: str, name: str) -> NetAttachDef:
        document = self._read(objects.net_attach_def_path(namespace, name), f"net-attach-def {namespace}/{name}")
        return objects.net_attach_def_from(document, namespace, name)

    def get(self, path: str, query: Mapping[str, str] | None = None) -> Mapping[str, object]:
        """Any object or list; ``path`` and ``query`` are plain text, not percent-encoded yet."""
        return self._read(objects.quoted_path(path, query), path)

    def annotate_status(self, pod: Pod, key: str, value: str) -> None:
        """Set one annotation by one PATCH; a pod of that name with another UID is an ObjectNotFoundError."""
        what = f"status of pod {pod.namespace}/{pod.name}"
        patch = objects.annotation_patch(pod, key, value)
        target = objects.pod_path(pod.namespace, pod.name) + "/status"
        answer = self._call("PATCH", target, what, _MERGE_PATCH, documents.dumps(patch).encode())
        if answer.is_success:
            return
        if answer.is_of_another_uid or (answer.status == 409 and self._is_gone(pod)):
            raise ObjectNotFoundError(f"pod {pod} not found: another pod has its name")
        if answer.status == 409:
            raise TryAgainLaterError(f"cannot patch {what}: {CONFLICT_ATTEMPTS} conflicts, the last one: {answer.reason}")
        raise answer.failure("patch", what)

    def create_event(self, about: Pod | Node, kind: str, reason: str, message: str) -> None:
        """Create an event by a single attempt of 2 seconds, which the time limit of the other calls leaves alone."""
        what = f"event {reason} of {objects.described(about)}"
        body = documents.dumps(objects.event(about, kind, reason, message, time.time_ns())).encode()
        answer = self._transport.exchange("POST", objects.events_path(about.namespace), _JSON, body, EVENT_LIMIT_S)
        if answer.is_passing_failure:
            raise TryAgainLaterError(f"cannot create {what}: {answer.reason}") from answer.cause
        if not answer.is_success:
            raise answer.failure("create", what)

    def close(self) -> None:
        self._transport.close()

    def _read(self, target: str, what: str) -> dict[str, object]:
        answer = self._call("GET", target, what)
        if not answer.is_success:
            raise answer.failure("get", what)
        return documents.load_object(answer.body, f"answer to GET {target}")

    def _is_gone(self, pod: Pod) -> bool:
        """Whether the pod that we know is no more: the name is free, or another pod's."""
        if not pod.uid or pod.is_static:
            return False
        try:
            return self.pod(pod.namespace, pod.name).uid != pod.uid
        except ObjectNotFoundError:
            return True

    def _call(self, method: str, target: str, what: str, content_type: str = "", body: bytes = b"") -> Answer:
        """One idempotent request, attempted until it is answered for good or the time is up."""
        started = self._clock.monotonic()
        end = started + self._left_s
        try:
            return self._attempt_until(end, method, target, what, content_type, body)
        finally:
            self._left_s = max(0.0, end - self._clock.monotonic())

    def _attempt_until(self, end: float, method: str, target: str, what: str, content_type: str, body: bytes) -> Answer:
        attempt = conflicts = 0
        renewed = False
        reason = "no time left"
        cause = None
        while (left_s := end - self._clock.monotonic()) > 0:
            attempt += 1
            answer = self._transport.exchange(method, target, content_type, body, min(left_s, ATTEMPT_LIMIT_S))
            if answer.status == 401 and not renewed:
                renewed = True
                self._transport.renew()
                continue
            if answer.status == 409:
                conflicts += 1
            if not answer.is_passing_failure and (answer.status != 409 or conflicts == CONFLICT_ATTEMPTS):
                return answer
            reason, cause = answer.reason, answer.cause
            delay_s = api_errors.delay_s(attempt, answer.retry_after, self._jitter())
            if delay_s >= end - self._clock.monotonic():
                break
            self._clock.sleep(delay_s)
        raise TryAgainLaterError(
            f"cannot {method.lower()} {what}: no success within {self._deadline_s:g} s, attempt {attempt}: {reason}"
        ) from cause


def _random_fraction() -> float:
    return os.urandom(1)[0] / 255  # the module random costs 4 ms at import
