"""A vendor's stream with unreadable data: the text before it reaches the reader first."""

import json
from collections.abc import Callable, Sequence

import pytest
from aiohttp import web
from aiohttp.test_utils import TestServer
from pydantic import SecretStr

from vectorforge.errors import LLMError
from vectorforge.llm import http as llm_http
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import Message, TextDelta

QUESTION: list[Message] = [{"role": "user", "content": "?"}]


def openai_event(text: str) -> str:
    return json.dumps({"model": "m", "choices": [{"index": 0, "delta": {"content": text}}]})


def anthropic_event(text: str) -> str:
    return json.dumps({"type": "content_block_delta", "delta": {"type": "text_delta", "text": text}})


async def texts_and_error(provider: BaseLLMProvider) -> tuple[str, LLMError]:
    texts: list[str] = []
    try:
        async for event in provider.stream_events(QUESTION):
            assert isinstance(event, TextDelta)
            texts.append(event.text)
    except LLMError as error:
        return "".join(texts), error
    raise AssertionError("The stream ended in good order.")


async def ask_of(kind: str, events: Sequence[str]) -> tuple[str, LLMError]:
    """Run a provider on events that arrive in one read."""
    body = "".join(f"data: {event}\n\n" for event in events).encode()

    async def answer(request: web.Request) -> web.Response:
        return web.Response(body=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    async with TestServer(app) as server:
        url, key = str(server.make_url("")).rstrip("/"), SecretStr("key")
        provider: BaseLLMProvider = (
            OpenAIProvider(key, base_url=f"{url}/v1", retries=0)
            if kind == "openai"
            else AnthropicProvider(key, base_url=url, retries=0)
        )
        try:
            return await texts_and_error(provider)
        finally:
            await provider.aclose()


# Malformed JSON in a vendor's read does not lose the texts before it in the same read.
@pytest.mark.parametrize(
    "broken", ['{"choices": [', "[1, 2]", "null", '{"choices": 7, "type": "message_start"}']
)
@pytest.mark.parametrize(("kind", "event"), [("openai", openai_event), ("anthropic", anthropic_event)])
async def test_texts_before_unreadable_event_are_emitted(
    kind: str, event: Callable[[str], str], broken: str
) -> None:
    answer_texts, error = await ask_of(kind, [event("a"), event("b"), broken, event("never said")])
    assert answer_texts == "ab"
    assert not error.retryable  # a part of the answer was seen


class OneRead:
    """A body that arrives all at once."""

    def __init__(self, body: bytes) -> None:
        self._reads = [body]

    async def chunk(self) -> bytes:
        return self._reads.pop() if self._reads else b""


async def test_events_before_oversized_event_are_emitted() -> None:
    events = llm_http.events(OneRead(b"data: a\n\ndata: " + b"x" * (5 * 1024 * 1024)).chunk)
    assert await anext(events) == [b"a"]
    with pytest.raises(ConnectionError):
        await anext(events)


PLAIN = b"data: {1}\n\ndata: {2}\n\n"
BODIES = [
    (PLAIN, [b"{1}", b"{2}"]),
    (PLAIN + b"data: [DONE]\n\n", [b"{1}", b"{2}", b"[DONE]"]),
    (b": comment\n\n" + PLAIN, [b"{1}", b"{2}"]),
    (PLAIN + b"event: e\ndata: {3}\nid: 1\n\n" + PLAIN, [b"{1}", b"{2}", b"{3}", b"{1}", b"{2}"]),
    (b"data: a\ndata: b\n\n" + PLAIN, [b"a\nb", b"{1}", b"{2}"]),
    (b"data: a\n\n\n" + PLAIN, [b"a", b"{1}", b"{2}"]),
    (b"data: a\r\n\r\n" + PLAIN, [b"a", b"{1}", b"{2}"]),
    (b"data:a\n\ndata:  b\n\n" + PLAIN, [b"a", b" b", b"{1}", b"{2}"]),
    (b"data: \n\ndata: data: a\n\n" + PLAIN, [b"", b"data: a", b"{1}", b"{2}"]),
    (PLAIN + b"data: last", [b"{1}", b"{2}"]),
    (PLAIN + b"data: last\n", [b"{1}", b"{2}", b"last"]),
]


class Reads(OneRead):
    """A body that arrives in parts."""

    def __init__(self, *parts: bytes) -> None:
        self._reads = [part for part in reversed(parts) if part]


# However a body is split into reads, its events are the same, at once or one by one.
@pytest.mark.parametrize(("body", "expected"), BODIES)
async def test_sse_events_split_at_any_two_points_are_equal(body: bytes, expected: list[bytes]) -> None:
    for first in range(len(body) + 1):
        for second in range(first, len(body) + 1):
            reads = Reads(body[:first], body[first:second], body[second:])
            assert [data async for found in llm_http.events(reads.chunk) for data in found] == expected
