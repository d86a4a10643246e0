"""Takes up the requests for nodes' certificates, each until it is decided.

It keeps nothing that matters: what was not decided when it ended is undecided in the API server, and is taken up again.

Spec: 14-helpers.md of the behaviour notes, §5.
"""

from __future__ import annotations

from multus.core import approval
from multus.errors import DecodingError, MultusError, ObjectNotFoundError
from multus.protocol import signing_requests
from multus.types.certificates import Condition

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable

    from multus.core.ports import Log, SigningRequests, WallClock
    from multus.types.certificates import RequestContent, SigningRequest

ATTEMPTS = 6
"""A first one, and five more."""
_DELAYS_S = (1.0, 2.0, 4.0, 8.0, 16.0)
RESYNC_S = 3600.0
"""After that long, what was given up is taken up again."""


class Approver:
    """Approves and denies; one thread."""

    def __init__(self, calls: SigningRequests, parse: Callable[[bytes], RequestContent], clock: WallClock, log: Log) -> None:
        """
        Args:
            parse: Reads PKCS #10 in PEM; raises DecodingError.
        """
        self._calls = calls
        self._parse = parse
        self._clock = clock
        self._log = log
        self._settled: dict[str, str] = {}
        """By UID, the version at which nothing is left to do."""
        self._failures: dict[str, tuple[int, float]] = {}
        """By UID: how often it failed, and when it may be tried again."""
        self._resync_at = clock.monotonic() + RESYNC_S

    def sweep(self, requests: Iterable[SigningRequest], is_stopping: Callable[[], bool] = lambda: False) -> float:
        """Take up every request whose time has come; the seconds until it comes for another one.

        Args:
            requests: All that there are.
            is_stopping: Asked before each of them.
        """
        now = self._clock.monotonic()
        if now >= self._resync_at:
            self._settled.clear()
            self._resync_at = now + RESYNC_S
        seen = set()
        for request in requests:
            if is_stopping():
                return 0.0
            seen.add(request.uid)
            is_due = self._failures.get(request.uid, (0, now))[1] <= now
            if is_due and self._settled.get(request.uid) != request.version:
                self._take(request)
        for known in (self._settled, self._failures):
            for uid in known.keys() - seen:
                del known[uid]
        now = self._clock.monotonic()
        return min((max(0.0, due_at - now) for _, due_at in self._failures.values()), default=self._resync_at - now)

    def _take(self, request: SigningRequest) -> None:
        log = self._log.bind(request=request.name)
        try:
            if self._concerns_us(request, log):
                self._decide(request, log)
        except ObjectNotFoundError:
            log.verbose("request.gone")
        except MultusError as exc:
            count = self._failures.get(request.uid, (0, 0.0))[0] + 1
            log.error("request.failed", times=count, error=exc)
            if count < ATTEMPTS:
                self._failures[request.uid] = (count, self._clock.monotonic() + _DELAYS_S[count - 1])
                return
            log.error("request.given_up", until=f"it changes, or {RESYNC_S / 60:g} minutes have passed")
        self._failures.pop(request.uid, None)
        self._settled[request.uid] = request.version

    def _concerns_us(self, request: SigningRequest, log: Log) -> bool:
        if request.is_decided or request.signer != signing_requests.SIGNER:
            return False
        try:
            return approval.is_ours(request, self._parse(request.request))
        except DecodingError as exc:
            log.verbose("request.unreadable", error=exc)
            return False

    def _decide(self, known: SigningRequest, log: Log) -> None:
        """Decide on the object as it is now, which may be newer than what we know."""
        document = self._calls.read(known.name)
        request = signing_requests.from_document(document)
        if request.uid != known.uid:
            raise ObjectNotFoundError(f"certificate signing request {known.name} with UID {known.uid} not found")
        verdict = approval.decide(request, self._parse)
        if verdict is None:
            return
        condition = Condition("Approved" if verdict.is_approval else "Denied", _reason(verdict), verdict.message)
        self._calls.update_approval(request.name, signing_requests.with_condition(document, condition, self._clock.time()))
        event = "request.approved" if verdict.is_approval else "request.denied"
        log.verbose(event, user=request.username, because=verdict.message)
        try:
            kind, reason = ("Normal", "CSRApproved") if verdict.is_approval else ("Warning", "CSRDenied")
            self._calls.create_event(request, kind, reason, verdict.message)
        except MultusError as exc:
            log.error("event.failed", error=exc)


def _reason(verdict: approval.Verdict) -> str:
    return "AutoApproved" if verdict.is_approval else "CSRDenied"
