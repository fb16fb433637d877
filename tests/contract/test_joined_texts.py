"""Texts of a vendor's stream that arrive together are joined; none is lost before an error."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

import pytest
from aiohttp import web

from tests.contract.suites.llm import collect
from vectorforge.errors import LLMError
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import LLMStreamEvent, StreamEnd, TextDelta

_WORDS = ("one", " two", " three")
_OPENAI = "".join(f'data: {{"choices": [{{"delta": {{"content": "{word}"}}}}]}}\n\n' for word in _WORDS)
_ANTHROPIC = "".join(
    f'data: {{"type": "content_block_delta", "delta": {{"text": "{word}"}}}}\n\n' for word in _WORDS
)
VENDORS = [
    pytest.param(
        OpenAIProvider, _OPENAI, "data: [DONE]\n\n", 'data: {"error": {"code": 500}}\n\n', id="openai"
    ),
    pytest.param(
        AnthropicProvider,
        _ANTHROPIC,
        'data: {"type": "message_stop"}\n\n',
        'data: {"type": "error", "error": {"type": "api_error"}}\n\n',
        id="anthropic",
    ),
]


@asynccontextmanager
async def vendor(make: type[BaseLLMProvider], body: str) -> AsyncIterator[BaseLLMProvider]:
    """Start a provider whose vendor sends this stream in one piece."""

    async def answer(_: web.Request) -> web.Response:
        return web.Response(text=body, content_type="text/event-stream")

    app = web.Application()
    app.router.add_post("/{path:.*}", answer)
    runner = web.AppRunner(app)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    port = runner.addresses[0][1]
    provider = make("key", base_url=f"http://127.0.0.1:{port}", retries=0)  # type: ignore[call-arg]  # vendors'
    try:
        yield provider
    finally:
        await provider.aclose()
        await runner.cleanup()


#
@pytest.mark.parametrize(("make", "words", "end", "error"), VENDORS)
async def test_texts_received_together_are_one_delta(
    make: type[BaseLLMProvider], words: str, end: str, error: str
) -> None:
    async with vendor(make, words + end) as provider:
        first, last = await collect(provider)
    assert first == TextDelta("one two three")
    assert isinstance(last, StreamEnd)
    assert last.response.content == "one two three"


# A-072 C23
@pytest.mark.parametrize(("make", "words", "end", "error"), VENDORS)
async def test_texts_before_an_error_are_emitted(
    make: type[BaseLLMProvider], words: str, end: str, error: str
) -> None:
    seen: list[LLMStreamEvent] = []
    async with vendor(make, words + error + end) as provider:
        with pytest.raises(LLMError) as caught:
            await collect(provider, into=seen)
    assert seen == [TextDelta("one two three")]
    assert caught.value.retryable is False
