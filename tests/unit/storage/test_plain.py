from __future__ import annotations

import json
import math
from datetime import UTC, datetime
from decimal import Decimal
from enum import StrEnum
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from storage.plain import plain_integer, plain_json, plain_real, plain_text, to_json

ANY_TEXT = st.text(st.characters(codec=None, categories=None))
ANY_VALUE = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | ANY_TEXT | st.binary(max_size=8),
    lambda inner: st.lists(inner) | st.dictionaries(ANY_TEXT, inner) | st.tuples(inner),
    max_leaves=10,
)


class Word(StrEnum):
    YES = "yes"


@given(ANY_VALUE)
def test_everything_becomes_standard_json(value: object) -> None:
    text = to_json(plain_json(value))
    assert "\\u0000" not in text
    text.encode("utf-8")
    assert plain_json(json.loads(text)) == json.loads(text)


@pytest.mark.parametrize(
    ("value", "expected"),
    [
        ({"a": (1, {2})}, {"a": [1, [2]]}),
        ({1: "x", None: "y"}, {"1": "x", "None": "y"}),
        (np.float32("nan"), None),
        (np.float64(0.5), 0.5),
        (np.int64(7), 7),
        (True, True),
        (Path("/a"), "/a"),
        (b"\xff\0", "\N{REPLACEMENT CHARACTER}" * 2),
        (datetime(2026, 1, 2, tzinfo=UTC), "2026-01-02T00:00:00+00:00"),
        (Decimal("1.5"), "1.5"),
        (Word.YES, "yes"),
    ],
)
def test_values_of_other_kinds(value: object, expected: object) -> None:
    assert plain_json(value) == expected
    assert json.loads(to_json(plain_json(value))) == expected


def test_fine_values_stay_as_they_are() -> None:
    value = {"text": "größe \U0001f600\r\n\x1b[0m", "list": [1, 2.5, None, False], "empty": {}}
    assert plain_json(value) == value


def test_text() -> None:
    assert plain_text("a\0b\ud800c") == "a\N{REPLACEMENT CHARACTER}b?c"


@pytest.mark.parametrize("value", [None, math.nan, math.inf, -math.inf])
def test_no_number_is_null(value: float | None) -> None:
    assert plain_real(value) is None
    assert plain_integer(value) is None


def test_numbers() -> None:
    assert (plain_real(1), plain_real(np.float32(0.5))) == (1.0, 0.5)
    assert (plain_integer(2**40), plain_integer(3.9), plain_integer(np.int64(3))) == (2**40, 3, 3)
    assert plain_integer(2**63 - 1) == 2**63 - 1
    assert plain_integer(2**63) is plain_integer(10**400) is plain_real(10**400) is None
