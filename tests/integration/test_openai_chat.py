"""``/v1/chat/completions`` with the unmodified ``openai`` package, over a real server and a fake vendor."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import httpx2
import openai
import pytest
from openai import AsyncOpenAI, OpenAI
from openai.types.chat import ChatCompletionChunk
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    finished_job,
    key_of,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "# Kettle\n\nThe kettle switches itself off when the water boils at 100 degrees.\n",
    "bread": "# Bread\n\nLet the dough rise for two hours before baking it at 230 degrees.\n",
}
MODEL = "vectorforge/handbook"
ASKED: Any = [{"role": "user", "content": "How long must the dough rise?"}]


@pytest.fixture
async def vendor() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str, vendor: FakeOpenAI) -> AsyncIterator[LiveApi]:
    provider = OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    query = QuerySettings(degraded_answers=False)
    config = settings_for(postgres_server.app_url, [tenant], query=query)
    async with live_api(config, provider) as running, running.client(tenant) as native:
        await add_documents(native, await new_collection(native, "handbook"), **GUIDES)
        web = {"source": "https://example.org/bike", "text": "Oil the chain.", "metadata": {"kind": "bike"}}
        posted = await native.post("/v1/collections", json={"name": "web"})
        path = f"/v1/collections/{posted.json()['id']}/documents"
        job = await native.post(path, json={"documents": [{**web, "title": "On [bikes]"}]})
        await finished_job(native, job.json()["id"])
        yield running


@pytest.fixture
async def client(api: LiveApi, tenant: str) -> AsyncIterator[AsyncOpenAI]:
    async with AsyncOpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as opened:
        yield opened


def content_of(chunks: list[ChatCompletionChunk]) -> str:
    return "".join(c.choices[0].delta.content or "" for c in chunks if c.choices)


def cited(content: str, annotations: Any) -> list[tuple[str, str]]:
    """(label, title) of annotations as the package gives them: objects, or dictionaries of a delta."""
    found = [a if isinstance(a, dict) else a.to_dict() for a in annotations]
    assert {a["type"] for a in found} == {"url_citation"}
    places = [a["url_citation"] for a in found]
    return [(content[place["start_index"] : place["end_index"]], place["title"]) for place in places]


async def streamed(client: AsyncOpenAI, **options: Any) -> list[ChatCompletionChunk]:
    stream = await client.chat.completions.create(model=MODEL, messages=ASKED, stream=True, **options)
    return [chunk async for chunk in stream]


async def test_chat_answer_is_cited_in_text_and_annotations(
    client: AsyncOpenAI, vendor: FakeOpenAI, api: LiveApi, tenant: str
) -> None:
    vendor.script(Reply(texts=("Two hours [Source 1], then bake [Source 1, 2].",)))
    completion = await client.chat.completions.create(model=MODEL, messages=ASKED)
    (choice,) = completion.choices
    assert choice.message.content == "Two hours [1], then bake [1][2]."
    assert cited(choice.message.content, choice.message.annotations) == [
        ("[1]", "Bread"),
        ("[1]", "Bread"),
        ("[2]", "Kettle"),
    ]
    assert (choice.finish_reason, choice.message.role, completion.model) == ("stop", "assistant", MODEL)
    assert completion.usage is not None
    assert (completion.usage.prompt_tokens, completion.usage.total_tokens) == (11, 18)

    # Annotations of documents without a web address lead to their text on this server.
    assert choice.message.annotations
    url = choice.message.annotations[0].url_citation.url
    async with api.client(tenant) as native:
        assert "two hours" in (await native.get(url)).json()["text"]
        logged = await native.get(f"/v1/queries/{completion.id.removeprefix('chatcmpl-')}")
        assert logged.json()["query_text"] == ASKED[0]["content"]
    own = completion.to_dict()["vectorforge"]
    assert isinstance(own, dict)
    assert (own["outcome"], own["provider"], len(own["sources"])) == ("answered", "openai", 2)


async def test_stream_split_inside_labels_matches_the_whole_answer(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    answer = "Two hours 🙂 [Source 1], then bake [Source 1, 2]."
    vendor.script(Reply(texts=(answer,)), Reply(texts=tuple(answer), pause_s=0.002))
    whole = await client.chat.completions.create(model=MODEL, messages=ASKED)
    chunks = await streamed(client, extra_headers={"Cache-Control": "no-cache"})
    assert len(chunks) > 4
    assert content_of(chunks) == whole.choices[0].message.content == "Two hours 🙂 [1], then bake [1][2]."
    *_, annotated, last = chunks
    expected = [annotation.to_dict() for annotation in whole.choices[0].message.annotations or []]
    assert annotated.choices[0].delta.to_dict() == {"annotations": expected}
    assert [c.choices[0].finish_reason for c in chunks] == [None] * (len(chunks) - 1) + ["stop"]
    assert last.choices[0].delta.to_dict() == {}
    assert chunks[0].choices[0].delta.role == "assistant"
    assert len({chunk.id for chunk in chunks}) == 1
    assert all("usage" not in chunk.to_dict() for chunk in chunks)
    own = annotated.to_dict()["vectorforge"]
    assert isinstance(own, dict)
    assert own["query_id"] == annotated.id.removeprefix("chatcmpl-")


async def test_usage_chunk_is_sent_on_request(client: AsyncOpenAI) -> None:
    *chunks, last = await streamed(client, stream_options={"include_usage": True})
    assert last.choices == []
    assert last.usage is not None
    assert (last.usage.prompt_tokens, last.usage.completion_tokens, last.usage.total_tokens) == (11, 7, 18)
    assert all(chunk.usage is None for chunk in chunks)
    assert chunks[-1].choices[0].finish_reason == "stop"


async def test_sdk_stream_helper_returns_annotations(client: AsyncOpenAI) -> None:
    async with client.chat.completions.stream(
        model=MODEL, messages=ASKED, stream_options={"include_usage": True}
    ) as stream:
        deltas = [event.delta async for event in stream if event.type == "content.delta"]
        completion = await stream.get_final_completion()
    message = completion.choices[0].message
    assert message.content == "".join(deltas) == "The answer is 42 [1]."
    assert cited(message.content, message.annotations) == [("[1]", "Bread")]
    assert completion.choices[0].finish_reason == "stop"
    assert completion.usage is not None
    assert completion.usage.total_tokens == 18


async def test_synchronous_client_returns_whole_and_streamed_answer(api: LiveApi, tenant: str) -> None:
    def ask() -> list[str | None]:
        with OpenAI(base_url=f"{api.url}/v1", api_key=key_of(tenant), max_retries=0) as sync:
            whole = sync.chat.completions.create(model=MODEL, messages=ASKED)
            chunks = list(sync.chat.completions.create(model=MODEL, messages=ASKED, stream=True))
            return [whole.choices[0].message.content, content_of(chunks)]

    assert await asyncio.to_thread(ask) == ["The answer is 42 [1]."] * 2


async def test_append_sources_adds_source_list_to_the_text(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    vendor.script(Reply(texts=("Oil it [Source", " 1].")), Reply(texts=("Two hours [Source 1].",)))
    body: Any = {"messages": ASKED, "extra_body": {"append_sources": True}}
    whole = await client.chat.completions.create(model="vectorforge/web", **body)
    text = "Oil it [1].\n\n**Sources**\n\n- [1] [On \\[bikes\\]](https://example.org/bike)"
    assert whole.choices[0].message.content == text
    stream = await client.chat.completions.create(model="vectorforge/web", stream=True, **body)
    assert content_of([chunk async for chunk in stream]) == text
    own = await client.chat.completions.create(model=MODEL, **body)
    assert own.choices[0].message.content == "Two hours [1].\n\n**Sources**\n\n- [1] Bread (bread.md)"

    # What the client sends back next time goes to the model without its sources and labels.
    turns: Any = [*ASKED, {"role": "assistant", "content": text}, {"role": "user", "content": "And then?"}]
    await client.chat.completions.create(model=MODEL, messages=turns)
    assert [m["content"] for m in vendor.bodies[-1]["messages"][1:]] == [
        ASKED[0]["content"],
        "Oil it.",
        "And then?",
    ]


async def test_request_parameters_control_search_and_generation(
    client: AsyncOpenAI, vendor: FakeOpenAI
) -> None:
    system: Any = {"role": "system", "content": "Answer like a pirate."}
    completion = await client.chat.completions.create(
        model=MODEL,
        messages=[system, *ASKED],
        temperature=0.1,
        top_p=0.5,
        max_completion_tokens=77,
        seed=1,
        user="ann",
        tools=[{"type": "function", "function": {"name": "f", "parameters": {}}}],
        extra_body={"filters": {"kind": "kettle"}, "top_k": 1, "min_score": None},
    )
    own: Any = completion.to_dict()["vectorforge"]
    assert [source["document_source"] for source in own["sources"]] == ["kettle.md"]
    body = vendor.bodies[-1]
    assert (body["temperature"], body["top_p"]) == (0.1, 0.5)
    assert body.get("max_completion_tokens", body.get("max_tokens")) == 77
    prompt, kept, question = body["messages"]
    assert "100 degrees" in prompt["content"]  # our grounding prompt stays
    assert (kept["content"], question["content"]) == (system["content"], ASKED[0]["content"])


async def test_docrag_model_sources_are_numbered(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    said = {
        "answer": "Two hours. Source: bread.md - Bread",
        "examples": [],
        "sources": [],
        "confidence": "low",
    }
    vendor.script(*[Reply(texts=tuple(json.dumps(said)), pause_s=0.002)] * 2)
    options: Any = {"model": "docrag/handbook", "messages": ASKED, "extra_body": {"min_score": -1}}
    whole = await client.chat.completions.create(**options)
    fresh = {"Cache-Control": "no-cache"}
    stream = await client.chat.completions.create(stream=True, extra_headers=fresh, **options)
    chunks = [chunk async for chunk in stream]
    assert content_of(chunks) == whole.choices[0].message.content == "Two hours. Source: bread.md - Bread [1]"
    assert cited(content_of(chunks), whole.choices[0].message.annotations) == [("[1]", "Bread")]
    assert len(chunks) > 4


async def test_error_before_the_stream_raises_sdk_exception_class(
    client: AsyncOpenAI, api: LiveApi, vendor: FakeOpenAI
) -> None:
    for stream in (False, True):
        with pytest.raises(openai.NotFoundError) as unknown:
            await client.chat.completions.create(model="vectorforge/none", messages=ASKED, stream=stream)
        assert (unknown.value.code, unknown.value.param) == ("model_not_found", "model")
        with pytest.raises(openai.BadRequestError) as refused:
            await client.chat.completions.create(model=MODEL, messages=ASKED, n=2, stream=stream)
        assert (refused.value.code, refused.value.param) == ("invalid_input", "n")
    with pytest.raises(openai.BadRequestError) as wrong:
        await streamed(client, extra_body={"filters": {"kind": {"$near": 1}}})
    assert wrong.value.code == "invalid_filter"
    too_much: Any = [*ASKED, {"role": "user", "content": "x" * 100_001}]
    with pytest.raises(openai.BadRequestError) as long:
        await client.chat.completions.create(model=MODEL, messages=too_much)
    assert long.value.param == "messages.1.content.0.text"
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


async def logged(native: httpx2.AsyncClient, query_id: str) -> dict[str, Any]:
    while True:  # until the server has noticed that the client is gone
        row: dict[str, Any] = (await native.get(f"/v1/queries/{query_id}")).json()
        if row.get("outcome", "started") != "started":
            return row
        await asyncio.sleep(0.02)
