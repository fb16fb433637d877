"""The vendors' own SDKs against the same fakes: the same answers and requests as our providers'."""

from collections.abc import Mapping
from typing import Any

import anthropic as anthropic_sdk
import openai as openai_sdk
import pytest
from anthropic import AsyncAnthropic
from openai import AsyncOpenAI
from pydantic import SecretStr

from tests.contract.suites.llm import MESSAGES, collect
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import RecordedRequest
from tests.support.vendors.vendor_behaviour import SmallContext
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import StreamEnd

SAMPLING = {"model": "m", "max_tokens": 1024}


def _sent(request: RecordedRequest) -> tuple[str, Mapping[str, str]]:
    """Return a request's path and relevant headers."""
    names = ("authorization", "content-type", "anthropic-version", "x-api-key")
    headers = {name.lower(): value for name, value in request.headers.items()}
    return request.path, {name: headers[name] for name in names if name in headers}


async def test_openai_provider_matches_official_sdk() -> None:
    async with FakeOpenAI() as server:
        provider = OpenAIProvider(server.api_key, base_url=server.base_url, default_model="m")
        sdk = AsyncOpenAI(api_key=server.api_key, base_url=server.base_url)
        ours = await provider.generate(MESSAGES)
        *_, end = await collect(provider)
        call_options: dict[str, Any] = {**SAMPLING, "messages": MESSAGES, "temperature": 0.7}
        theirs = await sdk.chat.completions.create(**call_options)
        stream = await sdk.chat.completions.create(
            **call_options, stream=True, stream_options={"include_usage": True}
        )
        chunks = [chunk async for chunk in stream]
        assert await provider.list_models() == [model.id async for model in sdk.models.list()]
        await provider.aclose()
        await sdk.close()
    whole, streamed, sdk_whole, sdk_streamed = server.requests
    assert (whole.body, streamed.body) == (sdk_whole.body, sdk_streamed.body)
    assert _sent(whole) == _sent(streamed) == _sent(sdk_whole) == _sent(sdk_streamed)
    assert isinstance(end, StreamEnd)
    text = "".join(chunk.choices[0].delta.content or "" for chunk in chunks if chunk.choices)
    assert ours.content == end.response.content == theirs.choices[0].message.content == text
    usage = chunks[-1].usage
    assert usage is not None
    assert (end.response.prompt_tokens, end.response.completion_tokens) == (
        usage.prompt_tokens,
        usage.completion_tokens,
    )


async def test_anthropic_provider_matches_official_sdk() -> None:
    system, conversation = MESSAGES[0]["content"], MESSAGES[1:]
    async with FakeAnthropic() as server:
        provider = AnthropicProvider(server.api_key, base_url=server.base_url, default_model="m")
        sdk = AsyncAnthropic(api_key=server.api_key, base_url=server.base_url)
        ours = await provider.generate(MESSAGES)
        *_, end = await collect(provider)
        call_options: dict[str, Any] = {**SAMPLING, "system": system, "messages": conversation}
        call_options["extra_body"] = {"temperature": 0.7}
        theirs = await sdk.messages.create(**call_options)
        events = [event async for event in await sdk.messages.create(**call_options, stream=True)]
        assert await provider.list_models() == [model.id async for model in sdk.models.list()]
        await provider.aclose()
        await sdk.close()
    whole, streamed, sdk_whole, sdk_streamed = server.requests
    assert (whole.body, streamed.body) == (sdk_whole.body, sdk_streamed.body)
    assert _sent(whole) == _sent(streamed) == _sent(sdk_whole) == _sent(sdk_streamed)
    assert isinstance(end, StreamEnd)
    deltas = [event.delta for event in events if event.type == "content_block_delta"]
    text = "".join(delta.text for delta in deltas if delta.type == "text_delta")
    (block,) = theirs.content
    assert block.type == "text"
    assert ours.content == end.response.content == block.text == text


# Fault 11: the SDKs' errors for requests that the fakes reject as too long
async def test_context_overflow_matches_official_sdk_errors() -> None:
    call_options: dict[str, Any] = {**SAMPLING, "messages": MESSAGES[1:]}
    async with FakeOpenAI() as first, FakeAnthropic() as second:
        first.unscripted = second.unscripted = SmallContext(20)
        openai = AsyncOpenAI(api_key=first.api_key, base_url=first.base_url, max_retries=0)
        with pytest.raises(openai_sdk.BadRequestError) as of_openai:
            await openai.chat.completions.create(**call_options)
        anthropic = AsyncAnthropic(api_key=second.api_key, base_url=second.base_url, max_retries=0)
        with pytest.raises(anthropic_sdk.BadRequestError) as of_anthropic:
            await anthropic.messages.create(**call_options)
        await openai.close()
        await anthropic.close()
    error = of_openai.value
    assert (error.code, error.param, error.type) == (
        "context_length_exceeded",
        "messages",
        "invalid_request_error",
    )
    assert "maximum context length is 20 tokens" in error.message
    body = of_anthropic.value.body
    assert isinstance(body, Mapping)
    assert (body["type"], body["error"]["type"]) == ("error", "invalid_request_error")
    assert body["error"]["message"].startswith("prompt is too long: ")


async def test_openai_embeddings_match_official_sdk() -> None:
    async with FakeEmbeddingsServer(dimension=1536, api_key="key") as server:
        provider = OpenAIEmbeddingProvider(api_key=SecretStr("key"), base_url=server.base_url)
        sdk = AsyncOpenAI(api_key="key", base_url=server.base_url)
        ours = await provider.embed_documents(["one", "two"])
        theirs = await sdk.embeddings.create(model="text-embedding-3-small", input=["one", "two"])
        await provider.aclose()
        await sdk.close()
    assert server.requests[0] == server.requests[1]
    assert ours == [pytest.approx(item.embedding) for item in theirs.data]
