"""Conversation history in the request to the model: its budget, and queries rewritten from it."""

import hashlib
import json
from collections.abc import AsyncGenerator
from typing import Any

import pytest

from tests.integration.conversations.conftest import GUIDES, RAG, ask, begin, provider, sent
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.rag.fenced import without_number
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.config import QuerySettings
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import Completion, ProviderCall
from vectorforge.local.postgres import EmbeddedPostgres


class DigestLLM(BaseLLMProvider):
    """Answers with a digest of all messages."""

    def __init__(self) -> None:
        super().__init__(default_model="digest-1")

    def provider_name(self) -> str:
        return "digest"

    async def _list_models(self) -> list[str]:
        return [self.default_model]

    async def _call_api(self, call: ProviderCall) -> Completion:
        text = json.dumps(without_number([dict(message) for message in call.messages]))
        return Completion(self.default_model, "stop", hashlib.sha256(text.encode()).hexdigest())

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        yield (completion := await self._call_api(call)).content
        yield completion


@pytest.mark.parametrize("stored", [True, False])
async def test_history_over_budget_drops_oldest_exchanges_and_no_chunk(
    postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI, stored: bool
) -> None:  # C06
    query = QuerySettings(history_max_tokens=120)
    openai.unscripted = Reply(("word " * 40,))
    async with (
        live_api(settings_for(postgres_server.app_url, [tenant], query=query), provider(openai)) as api,
        api.client(tenant) as client,
    ):
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        path, question = f"/v1/collections/{collection}/query", "How long does the kettle take?"
        alone = (await client.post(path, json={"query": question})).json()
        history: dict[str, Any] = {"conversation_id": await begin(client)}
        for number in range(4):
            await client.post(path, json={"query": f"kettle {number}", **history})
        if not stored:
            messages = (await client.get(f"/v1/conversations/{history['conversation_id']}")).json()[
                "messages"
            ]
            history = {"messages": [{k: m[k] for k in ("role", "content")} for m in messages]}
        history["rewrite"] = False
        answer = (await client.post(path, json={"query": question, **history})).json()
    earlier = [content for role, content in sent(openai)[:-1] if role == "user"]
    assert earlier == ["kettle 2", "kettle 3"]  # whole exchanges, the oldest dropped
    assert [s["chunk_id"] for s in answer["sources"]] == [s["chunk_id"] for s in alone["sources"]]


@pytest.mark.parametrize("surface", ["rag", "collection"])
async def test_conversations_differing_in_third_last_turn_get_different_answers(
    postgres_server: EmbeddedPostgres, tenant: str, surface: str
) -> None:  # C20
    digests = live_api(settings_for(postgres_server.app_url, [tenant]), DigestLLM())
    async with digests as api, api.client(tenant) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        path, field = (
            (RAG, "response") if surface == "rag" else (f"/v1/collections/{collection}/query", "answer")
        )
        answers = []
        for third_last in ("the kettle", "the bread", "the kettle"):
            conversation = [
                {"role": role, "content": content}
                for content in (third_last, "the laundry", "the sauna")
                for role in ("user", "assistant")
            ]
            body = {"query": "How long does it take?", "messages": conversation}
            answers.append((await client.post(path, json=body)).json()[field])
    assert answers[0] == answers[2] != answers[1]


FOLLOW_UPS = {
    "kettle": (
        "Tell me of the kettle",
        "And how long?",
        "How long does the kettle take to boil one litre of water?",
    ),
    "bread": ("Tell me of the bread", "And how long?", "How long does the bread rise in a warm place?"),
    "laundry": (
        "Tell me of the laundry",
        "How long, then?",
        "How long is the laundry washed at forty degrees?",
    ),
    "printer": (
        "Tell me of the printer",
        "And for how long?",
        "How long does the printer warm up by itself?",
    ),
    "sauna": ("Tell me of the sauna", "How long is that?", "How long is the sauna heated with wood?"),
}
"""Guide -> first query, follow-up, and its rewrite."""


async def recall(api: LiveApi, tenant: str, openai: FakeOpenAI, *, rewrite: bool) -> float:
    """Return the share of follow-ups whose guide is the first chunk."""
    found = 0
    async with api.client(tenant) as client:
        for guide, (first, follow_up, alone) in FOLLOW_UPS.items():
            conversation = await begin(client)
            await ask(client, first, conversation)
            before = len(openai.requests)
            openai.script(*[Reply((alone,))] * rewrite)
            answer = await ask(client, follow_up, conversation, k=1, rewrite=rewrite)
            assert len(openai.requests) - before == 1 + rewrite  # C32: without it the answer is the only call
            assert answer["rewritten_query"] == (alone if rewrite else None)
            assert sent(openai)[-1] == ("user", follow_up)
            found += answer["context"][0]["source"] == f"{guide}.md"
            await client.delete(f"/v1/conversations/{conversation}")
    return found / len(FOLLOW_UPS)


async def test_rewriting_increases_recall(api: LiveApi, tenant: str, openai: FakeOpenAI) -> None:  # P8, C32
    off = await recall(api, tenant, openai, rewrite=False)
    on = await recall(api, tenant, openai, rewrite=True)
    assert (on, off < on) == (1.0, True)


async def test_follow_up_without_model_finds_the_earlier_subject_in_json_and_stream(
    postgres_server: EmbeddedPostgres, tenant: str
) -> None:
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **GUIDES)
        messages = [
            {"role": "user", "content": "Tell me of the bread"},
            {"role": "assistant", "content": "-"},
        ]
        body = {"query": "And where does it rise?", "messages": messages, "k": 1}
        answer = (await client.post(RAG, json=body)).json()
        events = await ask_streaming(client, RAG, body)
    searched = "And where does it rise? bread"
    assert (answer["context"][0]["source"], answer["rewritten_query"]) == ("bread.md", searched)
    assert "warm place" in answer["response"]
    assert [events[place].data["rewritten_query"] for place in (0, -1)] == [searched, searched]


async def test_cached_answer_of_a_follow_up_calls_no_model(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    messages = [{"role": "user", "content": "The kettle?"}, {"role": "assistant", "content": "It boils."}]
    body = {"query": "How long does it take?", "messages": messages, "k": 1}
    openai.script(Reply(("How long does the kettle take?",)), Reply(("It takes three minutes. [Context 1]",)))
    async with api.client(tenant) as client:
        first = (await client.post(RAG, json=body)).json()
        calls = len(openai.requests)
        second = (await client.post(RAG, json=body)).json()
        events = await ask_streaming(client, RAG, body)
    assert (calls, len(openai.requests)) == (2, 2)
    assert (first["cached"], second["cached"]) == (False, True)
    for answer in (first, second, events[0].data):
        assert answer["rewritten_query"] == "How long does the kettle take?"


async def test_rewrite_is_reported_in_stream_and_falls_back_on_failure(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:  # C32
    async with api.client(tenant) as client:
        messages = [
            {"role": "user", "content": "The kettle?"},
            {"role": "assistant", "content": "It boils [1]."},
        ]
        body = {"query": "How long?", "messages": messages, "rewrite": True, "k": 1}
        openai.script(Reply(('"How long does the kettle take?"\n',)))
        events = await ask_streaming(client, RAG, body)
        assert events[0].data["rewritten_query"] == "How long does the kettle take?"
        assert events[-1].data["rewritten_query"] == "How long does the kettle take?"
        rewriting = openai.requests[-2].body
        assert rewriting["temperature"] == 0.0
        assert "assistant: It boils." in rewriting["messages"][1]["content"]

        for useless in (
            Failure(500),
            Reply(("",)),
            Reply(("x" * 3000,)),
            Reply(("A cut off",), finish="length"),
        ):
            openai.script(useless)
            answer = (await client.post(RAG, json=body)).json()
            assert (answer["outcome"], answer["rewritten_query"]) == ("answered", "How long? kettle")

        before = len(openai.requests)
        await ask(client, "How long does the kettle take?", None, rewrite=True)
        assert len(openai.requests) - before == 1  # no earlier messages


async def test_erased_exchange_is_not_part_of_the_history(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    async with api.client(tenant) as client:
        conversation = await begin(client)
        first = await ask(client, "How long does the kettle take?", conversation, k=1)
        document = first["context"][0]["document_id"]
        assert (await client.delete(f"/v1/documents/{document}")).status_code < 300
        messages = (await client.get(f"/v1/conversations/{conversation}")).json()["messages"]
        answer = await ask(client, "And the bread?", conversation, rewrite=True)
    assert [m["content"] for m in messages] == ["[erased]"] * 2
    assert [role for role, _ in sent(openai)] == ["user"]
    assert answer["rewritten_query"] is None
