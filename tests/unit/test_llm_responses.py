"""Responses of vendors: errors, Retry-After, event streams, rejected parameters."""

import asyncio
from dataclasses import replace
from datetime import UTC, datetime
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from vectorforge.errors import (
    InvalidInputError,
    LLMAuthenticationError,
    LLMError,
    LLMRateLimitError,
    LLMRequestError,
    LLMTimeoutError,
)
from vectorforge.llm import http as llm_http
from vectorforge.llm.failures import error_for_status, named_parameter
from vectorforge.llm.types import (
    LLMRequestConfig,
    check_sampling,
)
from vectorforge.vendors.response import parse_retry_after


# C12
@pytest.mark.parametrize(
    ("change", "field"),
    [
        ({"temperature": -0.1}, "temperature"),
        ({"temperature": float("nan")}, "temperature"),
        ({"top_p": 1.1}, "top_p"),
        ({"frequency_penalty": 2.1}, "frequency_penalty"),
        ({"presence_penalty": -2.1}, "presence_penalty"),
        ({"max_tokens": 0}, "max_tokens"),
        ({"model": ""}, "model"),
    ],
)
def test_sampling_out_of_range_error_names_field(change: dict[str, object], field: str) -> None:
    config = replace(LLMRequestConfig(model="m"), **change)  # type: ignore[arg-type]  # wrong on purpose
    with pytest.raises(InvalidInputError, match=field) as caught:
        check_sampling(config, "p", 2.0)
    assert caught.value.field == field


# A-069 A-070 C23
@pytest.mark.parametrize(
    ("status", "kind", "retryable"),
    [
        (400, LLMRequestError, False),
        (401, LLMAuthenticationError, False),
        (403, LLMAuthenticationError, False),
        (404, LLMRequestError, False),
        (408, LLMTimeoutError, True),
        (409, LLMError, True),
        (413, LLMRequestError, False),
        (429, LLMRateLimitError, True),
        (500, LLMError, True),
        (503, LLMError, True),
        (529, LLMError, True),
    ],
)
def test_http_status_maps_to_error_class(status: int, kind: type[LLMError], retryable: bool) -> None:
    error = error_for_status("p", status, {"retry-after": "7"})
    assert type(error) is kind
    assert error.retryable is retryable
    assert error.retry_after_s == (None if status in (401, 403) else 7)


@pytest.mark.parametrize(
    ("headers", "seconds"),
    [
        ({}, None),
        ({"retry-after": "2"}, 2.0),
        ({"retry-after": "0.5"}, 0.5),
        ({"retry-after-ms": "1500", "retry-after": "60"}, 1.5),
        ({"retry-after": "Sat, 21 Nov 2026 12:00:30 GMT"}, 30.0),
        ({"retry-after": "Sat, 21 Nov 2026 11:00:00 GMT"}, 0.0),
        ({"retry-after": "-1"}, None),
        ({"retry-after": "nan"}, None),
        ({"retry-after": "inf"}, None),
        ({"retry-after": "soon"}, None),
        ({"retry-after": "Mon, 01 Jan 99999999999 00:00:00 GMT"}, None),
        ({"retry-after": "Mon, 01 Jan 2026 00:00:00 +99999999999999"}, None),
        ({"retry-after": "Mon, 99999999999999999999 Jan 2026 00:00:00 GMT"}, None),
    ],
)
def test_retry_after_header_is_parsed(headers: dict[str, str], seconds: float | None) -> None:
    now = datetime(2026, 11, 21, 12, tzinfo=UTC)
    assert parse_retry_after(headers, now=now) == seconds


class Body:
    """A response body that arrives in these pieces."""

    def __init__(self, *pieces: bytes) -> None:
        self._pieces = list(pieces)

    async def chunk(self) -> bytes:
        return self._pieces.pop(0) if self._pieces else b""


async def read(*pieces: bytes) -> list[str]:
    whole = [piece for piece in pieces if piece]  # an empty one is the end
    return [event.decode() async for events in llm_http.events(Body(*whole).chunk) for event in events]


STREAM = (
    'data: {"a": 1}\n\n: ping\n\nevent: x\r\ndata:tight\r\n\r\n'
    "id: 7\n\ndata: one\ndata: twö\n\ndata: [DONE]\n"
)


#
@given(st.lists(st.integers(0, len(STREAM.encode())), max_size=20))
def test_sse_events_are_independent_of_chunk_boundaries(cuts: list[int]) -> None:
    stream = STREAM.encode()
    edges = [0, *sorted(cuts), len(stream)]
    pieces = [stream[a:b] for a, b in pairwise(edges)]
    assert asyncio.run(read(*pieces)) == ['{"a": 1}', "tight", "one\ntwö", "[DONE]"]


async def test_incomplete_line_is_not_an_event() -> None:
    assert await read(b'data: {"a": 1}\n\ndata: {"b"') == ['{"a": 1}']


async def test_endless_event_is_rejected() -> None:
    with pytest.raises(ConnectionError):
        await read(*[b"x" * 1_000_000] * 5)


# C38, defect 8
@pytest.mark.parametrize(
    ("message", "param", "code", "expected"),
    [
        (
            "Unsupported value: 'temperature' does not support 0.7",
            "temperature",
            "unsupported_value",
            "temperature",
        ),
        ("`top_p` is deprecated for this model", None, None, "top_p"),
        ("`temperature` and `top_p` cannot both be specified for this model.", None, None, "temperature"),
        ("Unrecognized request argument supplied: top_p", None, None, "top_p"),
        ("top_p: Extra inputs are not permitted", None, None, "top_p"),
        ("temperature: Input should be less than or equal to 1", None, None, None),
        ("temperature must be in [0, 2]", "temperature", None, None),
        ("2.5 is greater than the maximum of 2 - 'temperature'", None, "invalid_request_error", None),
        ("temperature is too high", "temperature", "decimal_above_max_value", None),
        ("bad value for temperature", "temperature", "invalid_value", None),
        ("the temperature of the prompt", "messages", None, None),
        ("prompt is too long", None, "context_length_exceeded", None),
        ("my_temperature_setting", None, None, None),
    ],
)
def test_rejected_parameter_is_identified_from_error(
    message: str, param: str | None, code: str | None, expected: str | None
) -> None:
    names = ("temperature", "top_p")
    assert named_parameter(names, message=message, param=param, code=code) == expected


async def test_rejected_parameters_are_cached_per_model() -> None:
    memory = llm_http.RefusedParameters()
    sent: list[frozenset[str]] = []

    async def picky(refused: frozenset[str]) -> str:
        sent.append(refused)
        for name in ("temperature", "top_p"):
            if name not in refused:
                raise ValueError(name)
        return "fine"

    async def never_content(refused: frozenset[str]) -> str:
        raise ValueError("temperature")

    def name(exc: Exception, _: frozenset[str]) -> str:
        return str(exc)

    assert await memory.send("a", picky, name) == ("fine", frozenset({"temperature", "top_p"}))
    await memory.send("a", picky, name)
    assert sent == [set(), {"temperature"}, {"temperature", "top_p"}, {"temperature", "top_p"}]
    with pytest.raises(ValueError, match="temperature"):
        await memory.send("b", never_content, name)
    assert memory.of("b") == frozenset()
    for number in range(256):
        await memory.send(f"model {number}", picky, name)
    assert memory.of("a") == frozenset()
    assert memory.of("model 0") == {"temperature", "top_p"}
