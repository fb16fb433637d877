"""Provider errors and client disconnects while a query is answered over HTTP."""

import asyncio
from collections.abc import AsyncIterator
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.integration.api_answers.conftest import RAG, ask, texts
from tests.support.http.event_stream import read_events
from tests.support.http.live_api import (
    LiveApi,
    ask_streaming,
    live_api,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider


@pytest.fixture
async def strict_client(
    model_client: httpx2.AsyncClient, model_api: LiveApi, tenant: str, openai: FakeOpenAI
) -> AsyncIterator[httpx2.AsyncClient]:
    """The same documents behind a server that reports failures instead of degrading the answer."""
    config = model_api.application.config
    strict = config.model_copy(update={"query": QuerySettings(degraded_answers=False)})
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with live_api(strict, provider) as running, running.client(tenant) as opened:
        yield opened


async def logged(client: httpx2.AsyncClient, query_id: str) -> dict[str, Any]:
    """Return the log record after its end, which is written when the server has noticed the disconnect."""
    async with asyncio.timeout(30):
        while True:
            response = await client.get(f"/v1/queries/{query_id}")
            if response.status_code == 200:
                row: dict[str, Any] = response.json()
                if row["outcome"] != "started":
                    return row
            await asyncio.sleep(0.02)


async def test_slow_model_does_not_block_other_requests(
    model_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # B-037, C24
    openai.script(Reply(ending="stall"))
    waiting = asyncio.create_task(ask(model_client))
    async with asyncio.timeout(20):
        while not openai.requests:  # noqa: ASYNC110 - the fake announces nothing
            await asyncio.sleep(0.01)
        assert (await model_client.post("/v1/search", json={"query": "dough"})).status_code == 200
        assert (await ask(model_client))["outcome"] == "answered"
    assert not waiting.done()
    waiting.cancel()


@pytest.mark.parametrize("ending", ["eof", "cut", "error"])
async def test_interrupted_answer_ends_with_one_error_event(
    model_client: httpx2.AsyncClient, openai: FakeOpenAI, ending: Any
) -> None:
    openai.script(Reply(ending=ending))
    events = await ask_streaming(model_client, RAG, {"query": "dough?"})
    assert [e.name for e in events].count("error") == 1
    problem = events[-1].data
    assert (events[-1].name, problem["stage"], problem["status"]) == ("error", "generate", 502)
    assert problem["detail"].startswith("RAG query error: ")  # C22
    assert problem["partial_answer"] == texts(events)
    row = (await model_client.get(f"/v1/queries/{events[0].data['request_id']}")).json()
    assert (row["outcome"], row["error_stage"]) == ("error", "generate")


# B-040, C22
async def test_provider_error_returns_502_without_its_text(
    strict_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.script(Failure(500, message="postgresql://admin:hunter2@10.0.0.1 is down"))
    response = await strict_client.post(RAG, json={"query": "dough?"})
    problem = response.json()
    assert (response.status_code, problem["code"]) == (502, "llm_error")
    assert problem["detail"].startswith("RAG query error: ")
    assert problem["request_id"] == response.headers["x-request-id"]
    assert "hunter2" not in response.text


async def test_rate_limit_of_the_provider_returns_429_with_retry_after(
    strict_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:  # C22, fault 2
    openai.script(Failure(429, retry_after="17"))
    response = await strict_client.post(RAG, json={"query": "dough?"})
    assert (response.status_code, response.headers["retry-after"]) == (429, "17")


# fault 15, C31
async def test_client_disconnect_closes_provider_stream_and_is_logged(
    model_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.script(Reply(texts=("one ", "two "), ending="stall"))
    async with model_client.stream("POST", RAG, json={"query": "dough?", "stream": True}) as response:
        async for event in read_events(response.aiter_lines()):
            if event.name == "meta":
                query_id = event.data["request_id"]
            if event.name == "token":
                break
    async with asyncio.timeout(20):
        await openai.requests[-1].client_closed.wait()
    row = await logged(model_client, query_id)
    assert row["outcome"] == "aborted"
    assert row["generated_response"].startswith("one ")


async def test_client_disconnect_without_streaming_stops_the_model(
    model_client: httpx2.AsyncClient, openai: FakeOpenAI
) -> None:
    openai.script(Reply(pause_s=60))
    query_task = asyncio.create_task(model_client.post(RAG, json={"query": "dough?"}))
    async with asyncio.timeout(20):
        while not openai.requests:  # noqa: ASYNC110 - the fake has no event for it
            await asyncio.sleep(0.01)
        query_task.cancel()
        await openai.requests[-1].client_closed.wait()
    with pytest.raises(asyncio.CancelledError):
        await query_task
