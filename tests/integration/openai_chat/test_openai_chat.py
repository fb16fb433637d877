"""``/v1/chat/completions`` with the unmodified ``openai`` package, over a real server and a fake vendor."""

import asyncio
import json
from typing import Any

import pytest
from openai import AsyncOpenAI, OpenAI

from tests.integration.openai_chat.conftest import ASKED, MODEL, content_of, streamed
from tests.support.http.live_api import (
    LiveApi,
    key_of,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply

pytestmark = pytest.mark.asyncio(loop_scope="module")


def cited(content: str, annotations: Any) -> list[tuple[str, str]]:
    """Return (label, title) of the package's annotations: objects, or dictionaries of a delta."""
    found = [a if isinstance(a, dict) else a.to_dict() for a in annotations]
    assert {a["type"] for a in found} == {"url_citation"}
    places = [a["url_citation"] for a in found]
    return [(content[place["start_index"] : place["end_index"]], place["title"]) for place in places]


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

    # Annotations of documents without a web address link to the page of this server that shows them.
    assert choice.message.annotations
    url = choice.message.annotations[0].url_citation.url
    async with api.client(tenant) as native:
        page = await native.get(url)
        assert (page.status_code, page.headers["content-type"]) == (200, "text/html; charset=utf-8")
        chunk = await native.get(f"/v1/chunks/{url.partition('chunk=')[2]}")
        assert "two hours" in chunk.json()["text"]
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

    # Answers in the history are sent to the model without sources and labels.
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
    prompt, history, question = body["messages"]
    assert "100 degrees" in prompt["content"]  # our grounding prompt is still there
    assert (history["content"], question["content"]) == (system["content"], ASKED[0]["content"])


async def test_docrag_model_sources_are_numbered(client: AsyncOpenAI, vendor: FakeOpenAI) -> None:
    answer_message = {
        "answer": "Two hours. Source: bread.md - Bread",
        "examples": [],
        "sources": [],
        "confidence": "low",
    }
    vendor.script(*[Reply(texts=tuple(json.dumps(answer_message)), pause_s=0.002)] * 2)
    options: Any = {"model": "docrag/handbook", "messages": ASKED, "extra_body": {"min_score": -1}}
    whole = await client.chat.completions.create(**options)
    fresh = {"Cache-Control": "no-cache"}
    stream = await client.chat.completions.create(stream=True, extra_headers=fresh, **options)
    chunks = [chunk async for chunk in stream]
    assert content_of(chunks) == whole.choices[0].message.content == "Two hours. Source: bread.md - Bread [1]"
    assert cited(content_of(chunks), whole.choices[0].message.annotations) == [("[1]", "Bread")]
    assert len(chunks) > 4
