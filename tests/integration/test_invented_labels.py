"""A label without a chunk is removed from the answer on every surface, buffered and streamed (N10)."""

import json
from collections.abc import AsyncIterator, Callable

import httpx2
import pytest
from pydantic import SecretStr

from tests.support.http.live_api import (
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

QUESTION = "How long does the kettle take?"
PIECES = (
    "It takes three minutes [Context 1], says [Con",
    "text ",
    "9",
    "] page `a [9]`. Or [Source 8, 1] two [9].",
)
ANSWER = "It takes three minutes [Context 1], says page `a [9]`. Or [Source 1] two ."
REWRITTEN = "It takes three minutes [1], says page `a [9]`. Or [1] two ."


@pytest.fixture
async def client(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[httpx2.AsyncClient]:
    tenant, vendor = make_tenant(), FakeOpenAI()
    vendor.unscripted = Reply(texts=PIECES)
    async with vendor:
        provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
        async with (
            live_api(settings_for(postgres_server.app_url, [tenant]), provider) as api,
            api.client(tenant) as client,
        ):
            await add_documents(
                client,
                await new_collection(client),
                kettle="The kettle boils a litre of water in three minutes.",
            )
            yield client


async def test_whole_answer_and_its_log_have_no_invented_label(client: httpx2.AsyncClient) -> None:
    answer = (await client.post("/v1/rag/query", json={"query": QUESTION})).json()
    assert answer["response"] == ANSWER
    cited = [ANSWER[found["start"] : found["end"]] for found in answer["citations"]]
    assert cited == ["[Context 1]", "[Source 1]"]
    row = (await client.get(f"/v1/queries/{answer['id'].removeprefix('ragq_')}")).json()
    assert row["generated_response"] == ANSWER


async def test_streamed_answer_has_no_invented_label(client: httpx2.AsyncClient) -> None:
    events = await ask_streaming(client, "/v1/rag/query", {"query": QUESTION})
    found = [(event.name, event.data) for event in events]
    assert "".join(data["text"] for name, data in found if name == "token") == ANSWER
    cited = [ANSWER[data["start"] : data["end"]] for name, data in found if name == "citation"]
    assert cited == ["[Context 1]", "[Source 1]"]
    assert [data["invalid_citations"] for name, data in found if name == "done"] == [3]


@pytest.mark.parametrize("stream", [False, True])
async def test_openai_chat_has_no_invented_label(client: httpx2.AsyncClient, stream: bool) -> None:
    messages = [{"role": "user", "content": QUESTION}]
    body = {"model": "vectorforge/default", "messages": messages, "stream": stream}
    answer = await client.post("/v1/chat/completions", json=body)
    assert answer.status_code == 200, answer.text
    if not stream:
        assert answer.json()["choices"][0]["message"]["content"] == REWRITTEN
        return
    lines = [line.removeprefix("data: ") for line in answer.text.splitlines() if line.startswith("data: {")]
    choices = [choice for line in lines for choice in json.loads(line)["choices"]]
    assert "".join(choice["delta"].get("content") or "" for choice in choices) == REWRITTEN
