"""What an answer of the API server means: done, once more, or which of our errors."""

from __future__ import annotations

from multus.errors import DecodingError, ForbiddenError, MultusError, ObjectNotFoundError
from multus.protocol import documents
from multus.types.named import NamedTuple

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Mapping

NO_ANSWER = 0
_PASSING = frozenset((NO_ANSWER, 429, 500, 502, 503, 504))
_MAX_MESSAGE_CHARACTERS = 300
_FIRST_DELAY_S = 0.05
_MAX_DELAY_S = 1.0


class Answer(NamedTuple):
    """The answer to one attempt; status 0 (``NO_ANSWER``) with the ``error`` when none came."""

    status: int
    body: bytes = b""
    retry_after: str = ""
    """The header's text."""
    error: str = ""
    cause: BaseException | None = None

    @property
    def is_success(self) -> bool:
        return 200 <= self.status < 300

    @property
    def is_passing_failure(self) -> bool:
        """Whether the same request may well succeed in a moment."""
        return self.status in _PASSING

    @property
    def reason(self) -> str:
        """Why it failed, in the API server's own words where it has any; at most 300 characters, on one line."""
        if self.status == NO_ANSWER:
            return self.error
        message = self._status_document().get("message")
        if not isinstance(message, str) or not message:
            return f"HTTP status {self.status}"
        line = "".join(character if character.isprintable() else " " for character in message)
        return f"{line[:_MAX_MESSAGE_CHARACTERS]} (HTTP status {self.status})"

    @property
    def is_of_another_uid(self) -> bool:
        """Whether a patch was refused because the object has another UID than the patch.

        The API server takes a UID in a patch for a change of an immutable field: 422, with the field as a cause.
        """
        if self.status != 422:
            return False
        details = self._status_document().get("details")
        causes = details.get("causes") if isinstance(details, dict) else None
        return isinstance(causes, list) and any(isinstance(cause, dict) and cause.get("field") == "metadata.uid" for cause in causes)

    def failure(self, verb: str, what: str) -> MultusError:
        """Our error for a failure that no further attempt will mend.

        Args:
            verb: What we asked for: ``get``, ``patch``, …
            what: The object, by kind and name.
        """
        if self.status == 404:
            return ObjectNotFoundError(f"{what} not found: {self.reason}")
        if self.status in (401, 403):
            return ForbiddenError(f"API server refuses to {verb} {what}: {self.reason}")
        return MultusError(f"cannot {verb} {what}: {self.reason}")

    def _status_document(self) -> Mapping[str, object]:
        try:
            return documents.load_object(self.body, "status")
        except DecodingError:
            return {}  # a proxy's page, or nothing: the status code alone must do


def delay_s(attempt: int, retry_after: str, jitter: float) -> float:
    """Seconds to wait after a failed attempt: doubling from 50 ms to 1 s, and no less than the server asks for.

    Args:
        attempt: 1 for the first.
        retry_after: The header's text; only its form in seconds is known.
        jitter: From 0 to 1; takes away up to half of our own delay.
    """
    own = min(_MAX_DELAY_S, _FIRST_DELAY_S * 2.0 ** min(attempt - 1, 10)) * (1 - jitter / 2)
    asked = int(retry_after) if retry_after.isascii() and retry_after.isdigit() and len(retry_after) < 10 else 0
    return max(own, asked)
