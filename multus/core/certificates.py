"""One certificate that never runs out: asked for when there is none, and for the next one ahead of its end.

The present certificate stays in use until the next one is stored, whatever fails in between.

Spec: 03-networks.md of the behaviour notes, §11; client-go's certificate manager.
"""

from __future__ import annotations

from multus.errors import ForbiddenError, MultusError, ObjectNotFoundError, TryAgainLaterError
from multus.protocol import signing_requests

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable

    from multus.core.ports import CertificateStore, Keys, Log, SigningRequests, WallClock
    from multus.types.certificates import Certificate, Identity, SigningRequest

SIGNING_LIMIT_S = 900.0
"""For a request to be approved and signed."""
_RENEW_FROM, _RENEW_TO = 0.7, 0.9
"""Of the lifetime: renewed at a random point between them, so that a cluster's nodes do not all come at once."""
_FIRST_DELAY_S, _MAX_DELAY_S = 2.0, 32.0
_DELAY_JITTER = 0.1
_FIRST_LOOK_S, _MAX_LOOK_S = 0.2, 5.0
"""Between two looks at a request that waits."""
_NONE = float("-inf")


class CertificateManager:
    """Call ``step`` again and again, from one thread; the rest is for any."""

    def __init__(
        self,
        identity: Identity,
        lifetime_s: int,
        store: CertificateStore,
        keys: Keys,
        own: Callable[[], SigningRequests],
        bootstrap: Callable[[], SigningRequests],
        pause: Callable[[float], object],
        clock: WallClock,
        log: Log,
        *,
        on_renewed: Callable[[], None],
        on_failed: Callable[[str], None],
        fraction: Callable[[], float],
    ) -> None:
        """
        Args:
            own: Connects with the present certificate.
            bootstrap: Connects with the identity that asks for the first one.
            pause: Waits so many seconds; answers something true if we are to stop.
            on_renewed: Called after a certificate was stored.
            on_failed: Called with the problem after the first failure in a row.
            fraction: Answers a number from 0 to 1.
        """
        self._identity = identity
        self._lifetime_s = lifetime_s
        self._store = store
        self._keys = keys
        self._own = own
        self._bootstrap = bootstrap
        self._pause = pause
        self._clock = clock
        self._log = log
        self._on_renewed = on_renewed
        self._on_failed = on_failed
        self._fraction = fraction
        self._failures = 0
        self._due: tuple[Certificate | None, float] = (None, 0.0)
        self._ends_at = _NONE
        self.problem = ""
        """What keeps us from a certificate, or from the next one; empty: nothing that we know of."""

    def seconds_left(self) -> float:
        """Until the present certificate is over; 0 when it is, or there is none."""
        return max(0.0, self._ends_at - self._clock.time())

    def step(self) -> float:
        """Ask for a certificate if it is time; the seconds until the next step is due.

        Raises:
            IOFailureError, InvalidConfigError: The store is not as it should be, which no certificate would mend.
        """
        certificate = self._usable()
        if certificate is not None:
            due_s = self._due_at(certificate) - self._clock.time()
            if due_s > 0:
                return due_s
        try:
            renewed = self._renew(certificate)
        except _Stopped:
            return 0.0
        except MultusError as exc:
            return self._failed(exc)
        self._failures, self.problem = 0, ""
        self._log.verbose("certificate.stored", user=self._identity.common_name, seconds=round(renewed.not_after - self._clock.time()))
        self._on_renewed()
        return max(0.0, self._due_at(renewed) - self._clock.time())

    def _usable(self) -> Certificate | None:
        """The certificate of the store, if it is ours and in force."""
        try:
            certificate = self._keys.certificate(self._store.read())
        except TryAgainLaterError as exc:
            self.problem = self.problem or exc.msg
            self._ends_at = _NONE
            return None
        is_usable = certificate.identity == self._identity and certificate.not_after > self._clock.time()
        self._ends_at = certificate.not_after if is_usable else _NONE
        return certificate if is_usable else None

    def _due_at(self, certificate: Certificate) -> float:
        """When it is to be renewed, drawn once for each."""
        if self._due[0] != certificate:
            part = _RENEW_FROM + (_RENEW_TO - _RENEW_FROM) * self._fraction()
            self._due = certificate, certificate.not_before + part * (certificate.not_after - certificate.not_before)
        return self._due[1]

    def _failed(self, error: MultusError) -> float:
        self._failures += 1
        self.problem = error.msg
        delay_s = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(self._failures - 1, 10)) * (1 + _DELAY_JITTER * self._fraction())
        left_s = round(self.seconds_left())
        self._log.error("certificate.failed", error=error, times=self._failures, retry_s=round(delay_s, 1), seconds_left=left_s)
        if self._failures == 1:
            present = f"the present one ends in {left_s} s" if left_s else "there is none"
            self._on_failed(f"no new certificate for {self._identity.common_name}, {present}: {error.msg}")
        return delay_s

    def _renew(self, present: Certificate | None) -> Certificate:
        """A new certificate, stored."""
        key, request = self._keys.new_request(self._identity)
        calls, name = self._create(request, (self._bootstrap,) if present is None else (self._own, self._bootstrap))
        try:
            pair = self._signed(calls, name).rstrip(b"\n") + b"\n" + key
        finally:
            calls.close()
        try:
            renewed = self._keys.certificate(pair)
        except MultusError as exc:
            raise exc.prefixed(f"certificate signing request {name}: what was signed") from exc
        if renewed.identity != self._identity:
            signed = f"{renewed.identity.common_name} of {renewed.identity.organization}"
            raise MultusError(f"certificate signing request {name}: {signed} was signed, not {self._identity.common_name}")
        if renewed.not_after <= self._clock.time():
            raise MultusError(f"certificate signing request {name}: a certificate was signed that is over already")
        self._store.replace(pair)
        self._ends_at = renewed.not_after
        return renewed

    def _create(self, request: bytes, identities: tuple[Callable[[], SigningRequests], ...]) -> tuple[SigningRequests, str]:
        """Create the request, as the first of the identities that may; the connection that did, and the request's name."""
        for position, connect in enumerate(identities, 1):
            calls = None
            try:
                calls = connect()
                name = calls.create(request, self._lifetime_s).name
            except MultusError as exc:
                if calls is not None:
                    calls.close()
                if isinstance(exc, TryAgainLaterError) or position == len(identities):
                    raise
                self._log.warning("certificate.own.refused", error=exc, then="the bootstrap kubeconfig is used")
                continue
            self._log.verbose("certificate.requested", request=name, seconds=self._lifetime_s)
            return calls, name
        raise MultusError("no identity asks for certificates")

    def _signed(self, calls: SigningRequests, name: str) -> bytes:
        """Wait until a request was signed; the chain, in PEM."""
        what = f"certificate signing request {name}"
        end = self._clock.monotonic() + SIGNING_LIMIT_S
        look_s, state = _FIRST_LOOK_S, "waits for approval"
        while True:
            try:
                request = signing_requests.from_document(calls.read(name))
            except ObjectNotFoundError as exc:
                raise MultusError(f"{what} was deleted before it was signed") from exc
            except TryAgainLaterError as exc:
                state = f"cannot be read: {exc.msg}"
            else:
                if request.certificate:
                    return request.certificate
                state = _state(request, what)
            self.problem = f"{what} {state}"
            if self._clock.monotonic() > end:
                raise TryAgainLaterError(f"{what} {state}, for {SIGNING_LIMIT_S:g} s now")
            if self._pause(look_s):
                raise _Stopped
            look_s = min(_MAX_LOOK_S, look_s * 2)


class _Stopped(Exception):
    """We are to end."""


def _state(request: SigningRequest, what: str) -> str:
    """What a request waits for.  Raises ForbiddenError, MultusError: it waits for nothing any more."""
    denied, failed = request.condition("Denied"), request.condition("Failed")
    if denied is not None:
        raise ForbiddenError(f"{what} was denied: {denied.reason}: {denied.message}")
    if failed is not None:
        raise MultusError(f"signing of {what} failed: {failed.reason}: {failed.message}")
    return "was approved, and waits to be signed" if request.condition("Approved") else "waits for approval"
