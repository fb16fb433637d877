"""Errors and client disconnects in ``/v1/chat/completions``."""

import asyncio
from typing import Any

import openai
import pytest
from openai import AsyncOpenAI
from openai.types.chat import ChatCompletionChunk

from tests.integration.openai_chat.conftest import ASKED, MODEL, content_of, logged, streamed
from tests.support.http.live_api import (
    LiveApi,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure

pytestmark = pytest.mark.asyncio(loop_scope="module")


async def test_error_before_the_stream_raises_sdk_exception_class(
    client: AsyncOpenAI, api: LiveApi, vendor: FakeOpenAI
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="vectorforge/none", messages=ASKED, stream=stream)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        assert 'There is no collection "none". GET /v1/models lists every model.' in str(unknown.value)
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=ASKED, n=2, stream=stream)
        assert (refused.value.code, refused.value.param) == ("invalid_input", "n")
    with pytest.raises(openai.BadRequestError) as wrong:
        await streamed(client, extra_body={"filters": {"kind": {"$near": 1}}})
    assert wrong.value.code == "invalid_filter"
    too_much: Any = [*ASKED, {"role": "user", "content": "x" * 100_001}]
    with pytest.raises(openai.BadRequestError) as long:
        await client.chat.completions.create(model=MODEL, messages=too_much)
    assert long.value.param == "messages.1.content"
    with pytest.raises(openai.BadRequestError) as too_long:
        await streamed(client, max_completion_tokens=1_000_000)
    assert too_long.value.param == "max_completion_tokens"
    vendor.script(Failure(429, retry_after="17"))
    with pytest.raises(openai.RateLimitError) as limited:
        await client.chat.completions.create(model=MODEL, messages=ASKED)
    assert (limited.value.type, limited.value.response.headers["retry-after"]) == ("rate_limit_error", "17")
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key="wrong", max_retries=0) as stranger:
        with pytest.raises(openai.AuthenticationError):
            await stranger.chat.completions.create(model=MODEL, messages=ASKED)


@pytest.mark.parametrize("ending", ["eof", "cut", "error"])
async def test_error_inside_the_stream_is_raised_after_partial_text(
    client: AsyncOpenAI, vendor: FakeOpenAI, ending: Any
) -> None:
    vendor.script(Reply(texts=("Two ", "hours [Sou"), ending=ending))
    chunks: list[ChatCompletionChunk] = []
    stream = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True)

    async def read() -> None:
        async for chunk in stream:
            chunks.append(chunk)  # noqa: PERF401 - those before the error are wanted

    with pytest.raises(openai.APIError) as broken:
        await read()
    assert content_of(chunks) == "Two hours [Sou"
    assert broken.value.code is not None
    assert broken.value.code.startswith("llm_")
    assert broken.value.type == "server_error"


async def test_client_disconnect_stops_the_model_and_is_logged(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:  # fault 15, C31
    vendor.script(Reply(texts=("one ", "two "), ending="stall"))
    stream = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True)
    async for chunk in stream:
        if chunk.choices[0].delta.content:
            break
    await stream.close()
    async with asyncio.timeout(20):
        await vendor.requests[-1].client_closed.wait()
        async with api.client(tenant) as native:
            row = await logged(native, chunk.id.removeprefix("chatcmpl-"))
    assert row["outcome"] == "aborted"
    assert row["generated_response"].startswith("one ")
