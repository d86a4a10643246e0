"""Durations, as Go reads them."""

from __future__ import annotations

import pytest

from multus.errors import InvalidConfigError
from multus.protocol.durations import parse_duration


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("10m", 600.0),
        ("1h30m", 5400.0),
        ("1.5s", 1.5),
        ("0", 0.0),
        ("+0", 0.0),
        ("-2h", -7200.0),
        ("+5s", 5.0),
        ("250ms", 0.25),
        (".5s", 0.5),
        ("5.s", 5.0),
        ("1h1m1s", 3661.0),
        ("1m1h", 3660.0),
        ("8760h", 31_536_000.0),
    ],
)
def test_a_duration_is_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(("text", "seconds"), [("3us", 3e-6), ("3\u00b5s", 3e-6), ("3\u03bcs", 3e-6), ("7ns", 7e-9)])
def test_small_units_are_read(text: str, seconds: float) -> None:
    assert parse_duration(text) == pytest.approx(seconds)


@pytest.mark.parametrize(
    "text", ["", "-", "+", "10", "m", "10x", "1.2.3s", ".s", "10 m", "10M", "1h 5m", "--1s", "1d", "\u0663s", "3000000h", "0 "]
)
def test_what_is_none_is_an_error_that_quotes_it(text: str) -> None:
    with pytest.raises(InvalidConfigError) as caught:
        parse_duration(text)
    assert caught.value.msg == f'"{text}" is no duration, such as 10m or 1h30m'
