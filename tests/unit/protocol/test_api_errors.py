"""What an answer means."""

from __future__ import annotations

import json

import pytest
from hypothesis import given
from hypothesis import strategies as st

from multus.errors import ForbiddenError, MultusError, ObjectNotFoundError
from multus.protocol import api_errors
from multus.protocol.api_errors import Answer


def status(**fields: object) -> bytes:
    return json.dumps({"kind": "Status", **fields}).encode()


@pytest.mark.parametrize(("code", "success"), [(199, False), (200, True), (201, True), (299, True), (300, False)])
def test_success_is_any_2xx(code: int, success: bool) -> None:
    assert Answer(code).is_success == success


@pytest.mark.parametrize("code", [0, 429, 500, 502, 503, 504])
def test_failure_that_passes(code: int) -> None:
    assert Answer(code).is_passing_failure


@pytest.mark.parametrize("code", [200, 301, 400, 401, 403, 404, 409, 410, 422, 501, 505])
def test_failure_that_stays(code: int) -> None:
    assert not Answer(code).is_passing_failure


@pytest.mark.parametrize(
    ("code", "kind", "message"),
    [
        (404, ObjectNotFoundError, "pod a/b not found: why (HTTP status 404)"),
        (401, ForbiddenError, "API server refuses to get pod a/b: why (HTTP status 401)"),
        (403, ForbiddenError, "API server refuses to get pod a/b: why (HTTP status 403)"),
        (422, MultusError, "cannot get pod a/b: why (HTTP status 422)"),
        (302, MultusError, "cannot get pod a/b: why (HTTP status 302)"),
    ],
)
def test_failure_becomes_the_error_of_its_code(code: int, kind: type[MultusError], message: str) -> None:
    error = Answer(code, status(message="why")).failure("get", "pod a/b")
    assert (type(error), error.msg) == (kind, message)


@pytest.mark.parametrize("body", [b"", b"<html>secret</html>", b"[]", status(), status(message=""), status(message=7)])
def test_reason_without_a_status_document_is_the_code(body: bytes) -> None:
    assert Answer(418, body).reason == "HTTP status 418"


def test_reason_is_trimmed_and_on_one_line() -> None:
    assert Answer(400, status(message="a\nb" + "x" * 1000)).reason == "a b" + "x" * 297 + " (HTTP status 400)"


def test_reason_of_no_answer_is_the_error() -> None:
    assert Answer(api_errors.NO_ANSWER, error="refused").reason == "refused"


def test_other_uid_is_seen_by_its_cause() -> None:
    body = status(details={"causes": [{"field": "spec"}, {"field": "metadata.uid"}]})
    assert Answer(422, body).is_of_another_uid
    assert not Answer(409, body).is_of_another_uid


@pytest.mark.parametrize("details", [None, [], {}, {"causes": None}, {"causes": [None, {"field": "metadata.annotations"}]}])
def test_other_invalid_fields_are_not_another_uid(details: object) -> None:
    assert not Answer(422, status(details=details, message="metadata.uid")).is_of_another_uid


def test_delay_doubles_from_50_ms_to_1_s() -> None:
    assert [api_errors.delay_s(attempt, "", 0.0) for attempt in range(1, 8)] == [0.05, 0.1, 0.2, 0.4, 0.8, 1.0, 1.0]


def test_jitter_takes_up_to_half() -> None:
    assert api_errors.delay_s(3, "", 1.0) == 0.1


@given(st.integers(1, 10_000), st.floats(0, 1))
def test_delay_is_always_between_25_ms_and_1_s(attempt: int, jitter: float) -> None:
    assert 0.025 <= api_errors.delay_s(attempt, "", jitter) <= 1.0


@pytest.mark.parametrize(
    ("header", "expected"),
    [("3", 3), ("0", 0.05), ("-1", 0.05), ("1.5", 0.05), ("Wed, 21 Oct 2015 07:28:00 GMT", 0.05), ("9" * 5000, 0.05), ("²", 0.05)],
)
def test_server_can_ask_for_a_longer_delay_in_seconds(header: str, expected: float) -> None:
    assert api_errors.delay_s(1, header, 0.0) == expected
