"""Server-sent events whose data is JSON."""

import json

import pytest
from fastapi.sse import format_sse_event
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.api.streaming.sse import encode_json, json_event


@given(st.text())
def test_json_event_matches_fastapi_sse_encoding(text: str) -> None:
    data = encode_json({"text": text})
    plain = data.replace("\x85", "\\u0085").replace("\u2028", "\\u2028").replace("\u2029", "\\u2029")
    assert json_event(data) == format_sse_event(data_str=plain)
    assert json_event(data, event="token") == format_sse_event(data_str=plain, event="token")
    assert json_event(data, event="token", number=3) == format_sse_event(
        data_str=plain, event="token", id="3"
    )
    assert json_event(data, number=3) == format_sse_event(data_str=plain, id="3")


@pytest.mark.parametrize("char", ["\n", "\r", "\x85", "\u2028", "\u2029", "é", "水", '"', "\\"])
def test_json_event_contains_no_line_separators(char: str) -> None:  # clients that split with str.splitlines
    (line, end) = json_event(encode_json(f"a{char}b")).decode().splitlines()
    assert end == ""
    assert json.loads(line.removeprefix("data: ")) == f"a{char}b"
