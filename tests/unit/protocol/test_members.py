"""Members of our own files: the right type, or an error that names the key."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from multus.errors import DecodingError
from multus.protocol import members


def test_members_are_returned_as_they_are() -> None:
    document = {"t": "a", "l": ["a", "b"], "f": False, "p": [["k", "v"]]}
    assert ("a", ("a", "b"), False, (("k", "v"),)) == (
        members.text(document, "t"), members.texts(document, "l"), members.flag(document, "f"), members.pairs(document, "p"),
    )
    assert ({"a": 1}, ({"a": 1},)) == (members.an_object({"a": 1}, "x"), members.objects([{"a": 1}], "x"))


def test_what_is_missing_or_null_is_empty() -> None:
    for document in ({}, {"k": None}):
        assert ("", None, ()) == (members.text(document, "k"), members.texts(document, "k"), members.pairs(document, "k"))


@pytest.mark.parametrize(
    ("read", "message"),
    [
        (lambda: members.text({"k": 1}, "k"), 'key "k" is a number, a string is expected'),
        (lambda: members.texts({"k": "a"}, "k"), 'key "k" is not a list of strings'),
        (lambda: members.texts({"k": [1]}, "k"), 'key "k" is not a list of strings'),
        (lambda: members.flag({}, "k"), 'key "k" is null, a boolean is expected'),
        (lambda: members.pairs({"k": "a"}, "k"), 'key "k" is a string, a list of pairs is expected'),
        (lambda: members.pairs({"k": [["a"]]}, "k"), 'key "k" is not a list of pairs of strings'),
        (lambda: members.pairs({"k": [["a", 1]]}, "k"), 'key "k" is not a list of pairs of strings'),
        (lambda: members.an_object([], "the record"), "the record is a list, an object is expected"),
        (lambda: members.objects({}, "plugins"), "plugins is an object, a list is expected"),
        (lambda: members.objects([1], "plugins"), "an element of plugins is a number, an object is expected"),
    ],
)
def test_a_wrong_type_is_an_error_that_names_the_key(read: Callable[[], object], message: str) -> None:
    with pytest.raises(DecodingError) as caught:
        read()
    assert message == caught.value.msg
