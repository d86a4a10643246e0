"""JSON documents come back exactly, and nothing that is no JSON gets through."""

from __future__ import annotations

import json

from hypothesis import example, given
from hypothesis import strategies as st

from multus.errors import DecodingError
from multus.protocol import documents
from multus.testing import strategies

ANY_VALUE = strategies.json_values() | strategies.any_text()


@given(ANY_VALUE)
@example([2**64 + 1, -(2**200), 1.0, 1, True, -0.0, {"b": 1, "a": 2}, "\ud800\0"])
def test_a_document_comes_back_with_every_digit_type_and_place(value: object) -> None:
    assert repr(documents.loads(documents.dumps(value), "x")) == repr(value)


@given(ANY_VALUE)
def test_bytes_and_text_are_read_alike(value: object) -> None:
    text = documents.dumps(value)
    assert repr(documents.loads(text.encode(), "x")) == repr(documents.loads(text, "x"))


@given(ANY_VALUE, st.booleans())
def test_an_indented_document_is_what_the_standard_library_writes(value: object, only_ascii: bool) -> None:
    assert documents.dumps_indented(value, only_ascii=only_ascii) == json.dumps(value, indent=4, ensure_ascii=only_ascii)


@given(ANY_VALUE, st.sampled_from(["", " ", "\n\t\r "]))
def test_a_document_is_read_as_the_standard_library_reads_it(value: object, blanks: str) -> None:
    text = blanks + json.dumps(value, indent=1) + blanks
    assert repr(documents.loads(text, "x")) == repr(json.loads(text))


@given(st.integers(-(10**300), 10**300))
def test_an_integer_is_written_as_it_was_read(number: int) -> None:
    assert documents.dumps(documents.loads(str(number), "x")) == str(number)


@given(st.binary() | st.text() | st.text("[]{}\",:0123456789.eE+-nulltruefalse\\ud8 ") | strategies.any_text())
@example(b"\xff\xfe\x00")
@example("\ufeff{}")
@example("[" * 2000)
@example("-" + "9" * 5000)
def test_any_content_is_a_document_or_a_decoding_error(content: bytes | str) -> None:
    try:
        found = documents.loads(content, "x")
    except DecodingError as exc:
        found = exc.msg
        assert found.startswith("x is not JSON")
    json.dumps(found, allow_nan=False)


@given(ANY_VALUE)
def test_a_value_can_always_be_quoted_and_printed(value: object) -> None:
    quoted = documents.quote(value)
    assert quoted.encode().decode() == quoted
    assert len(quoted) <= 60


@given(strategies.unknown_keys(), st.text(max_size=4), strategies.json_values())
def test_lookup_finds_a_key_in_any_case(document: dict[str, object], key: str, value: object) -> None:
    if key.lower() == key.upper().lower():
        assert documents.lookup({**document, f"key {key}".upper(): value}, f"key {key}") == value
