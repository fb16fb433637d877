"""JSON from the database is read to the values that the standard library reads."""

import json
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from vectorforge.db.session import read_json

VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False, allow_infinity=False) | st.text(),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(), inner, max_size=3),
    max_leaves=10,
)


@given(VALUES)
@settings(deadline=None, max_examples=200)
def test_read_json_matches_standard_library(value: Any) -> None:
    text = json.dumps(value, ensure_ascii=False).encode("utf-8", "replace")
    ours, theirs = read_json(text), json.loads(text)
    assert (ours, repr(ours)) == (theirs, repr(theirs))  # 1 is no True, and no 1.0


@pytest.mark.parametrize(
    "text",
    [
        b"[" * 500 + b"]" * 500,  # deeper than the faster reader goes
        b"123456789012345678901234567890",  # wider than 64 bits
        b"-0.0",
        b"1e400",
        b'{"a": 1, "a": 2}',
    ],
)
def test_read_json_of_unusual_values_matches_standard_library(text: bytes) -> None:
    assert repr(read_json(text)) == repr(json.loads(text))
