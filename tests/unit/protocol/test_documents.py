"""JSON text to documents and back, exactly."""

from __future__ import annotations

import pytest

from multus.errors import DecodingError
from multus.protocol import documents


@pytest.mark.parametrize("text", ["9007199254740993", "-170141183460469231731687303715884105729", "0", "1.5", '"é"', "[]", "null"])
def test_a_value_comes_back_as_it_was_written(text: str) -> None:
    assert documents.loads(documents.dumps(documents.loads(text, "x")), "x") == documents.loads(text, "x")


def test_large_integers_keep_every_digit() -> None:
    assert documents.dumps(documents.loads('{"vni": 12345678901234567890123456789}', "x")) == '{"vni":12345678901234567890123456789}'


def test_a_whole_number_stays_whole_and_a_float_a_float() -> None:
    assert documents.dumps(documents.loads("[1, 1.0]", "x")) == "[1,1.0]"


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "the file is not JSON: Expecting value at line 1 column 1"),
        ("{\n  \"a\" 1}", "the file is not JSON: Expecting ':' delimiter at line 2 column 7"),
        ("{} {}", "the file is not JSON: Extra data at line 1 column 4"),
        ("NaN", "the file is not JSON that can be kept exactly: NaN is not JSON"),
        ("[-Infinity]", "the file is not JSON that can be kept exactly: -Infinity is not JSON"),
        ("1e999", "the file is not JSON that can be kept exactly: number out of range: 1e999"),
        (b'"\xff"', "the file is not JSON: not UTF-8 at byte 1"),
    ],
)
def test_what_is_not_json_is_refused_with_the_place(text: str | bytes, message: str) -> None:
    with pytest.raises(DecodingError) as caught:
        documents.loads(text, "the file")
    assert (caught.value.msg, caught.value.code) == (message, 6)


@pytest.mark.parametrize("text", ["9" * 5000, "[" * 100_000])
def test_what_no_reader_can_hold_is_refused(text: str) -> None:
    with pytest.raises(DecodingError, match="the file is not JSON that can be kept exactly"):
        documents.loads(text, "the file")


def test_an_error_does_not_show_the_content() -> None:
    with pytest.raises(DecodingError) as caught:
        documents.loads('{"token": "hunter-7" oops}', "the file")
    assert "hunter" not in str(caught.value)


@pytest.mark.parametrize("text", ["[" * 700 + "]" * 700, '{"é":' * 700 + "1" + "}" * 700])
def test_what_is_nested_too_deep_to_indent_is_written_all_the_same(text: str) -> None:
    written = documents.dumps_indented(documents.loads(text, "x"), only_ascii=False)
    assert written.replace("\n", "").replace(" ", "") == text


def test_only_an_object_is_an_object() -> None:
    assert documents.load_object('{"a": 1}', "x") == {"a": 1}
    with pytest.raises(DecodingError, match=r"^x is a list, an object is expected$"):
        documents.load_object("[]", "x")


@pytest.mark.parametrize(
    ("value", "name"),
    [
        (None, "null"),
        (True, "a boolean"),
        ({}, "an object"),
        ([], "a list"),
        ("", "a string"),
        (1, "a number"),
        (1.5, "a number"),
    ],
)
def test_kind_names_a_json_value(value: object, name: str) -> None:
    assert documents.kind(value) == name


def test_lookup_takes_the_key_itself_then_the_key_in_another_case() -> None:
    document = {"CNIVERSION": "a", "cniVersion": "b", "Name": "c"}
    assert [documents.lookup(document, key) for key in ("cniVersion", "cniversion", "name", "type")] == ["b", "a", "c", None]


def test_quote_shows_a_value_as_json_and_cuts_it_at_60_characters() -> None:
    assert [documents.quote({"a": "é"}), documents.quote("a" * 58), documents.quote("a" * 59)] == [
        '{"a": "é"}',
        '"' + "a" * 58 + '"',
        '"' + "a" * 56 + "...",
    ]


def test_what_is_no_json_is_not_written() -> None:
    with pytest.raises(ValueError, match="not JSON compliant"):
        documents.dumps([float("nan")])


def test_quote_can_always_be_printed() -> None:
    assert documents.quote("a\ud800b\0") == '"a\\ud800b\\u0000"'


@pytest.mark.parametrize(("text", "fits"), [("", True), ("/é", True), ("a\0b", False), ("\udc80", False)])
def test_a_path_holds_whole_characters_and_no_nul(text: str, fits: bool) -> None:
    assert documents.is_path_text(text) is fits
