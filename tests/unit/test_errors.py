"""The tree of errors: codes, texts, the object for the caller, the place put in front."""

from __future__ import annotations

import json

import pytest

from multus import errors
from multus.errors import DelegateError, InvalidConfigError, MultusError, TryAgainLaterError


@pytest.mark.parametrize(
    ("kind", "code"),
    [
        (MultusError, 999),
        (errors.IncompatibleVersionError, 1),
        (errors.UnsupportedFieldError, 2),
        (errors.UnknownContainerError, 3),
        (errors.InvalidEnvironmentError, 4),
        (errors.IOFailureError, 5),
        (errors.DecodingError, 6),
        (InvalidConfigError, 7),
        (errors.InvalidNetnsError, 8),
        (TryAgainLaterError, 11),
        (errors.NotAvailableError, 50),
        (errors.LimitedConnectivityError, 51),
        (errors.ForbiddenError, 100),
        (errors.DelegateNotFoundError, 101),
        (errors.ObjectNotFoundError, 102),
    ],
)
def test_each_class_has_the_code_of_the_specification(kind: type[MultusError], code: int) -> None:
    assert (kind("no way").code, issubclass(kind, MultusError)) == (code, True)


def test_the_text_is_the_message_with_its_details() -> None:
    assert [str(MultusError("no way")), str(MultusError("no way", "blocked"))] == ["no way", "no way; blocked"]


def test_the_document_is_an_error_object_of_the_callers_version() -> None:
    document = InvalidConfigError("key \"a\" is bad", "$.a").document("1.1.0")
    assert document == {"cniVersion": "1.1.0", "code": 7, "msg": "key \"a\" is bad", "details": "$.a"}


def test_a_document_without_details_has_no_such_key() -> None:
    assert json.loads(json.dumps(TryAgainLaterError("later").document("0.4.0"))) == {"cniVersion": "0.4.0", "code": 11, "msg": "later"}


def test_a_delegates_error_keeps_its_own_code_behind_a_place() -> None:
    error = DelegateError("link busy", "in pool", 77).prefixed("plugin 'a'").prefixed("[ns/pod]")
    assert (type(error), error.code, error.msg, error.details) == (DelegateError, 77, "[ns/pod]: plugin 'a': link busy", "in pool")


def test_a_delegate_without_a_code_of_its_own_has_999() -> None:
    assert DelegateError("link busy").code == 999


def test_a_prefixed_error_is_a_twin_with_the_same_cause_and_the_original_is_as_it_was() -> None:
    original = InvalidConfigError("key \"a\" is bad", "$.a")
    original.__cause__ = cause = ValueError("a")
    twin = original.prefixed("here")
    assert (type(twin), twin.code, twin.args, twin.__cause__) == (InvalidConfigError, 7, ("here: key \"a\" is bad", "$.a"), cause)
    assert (original.msg, original.args) == ("key \"a\" is bad", ("key \"a\" is bad", "$.a"))
