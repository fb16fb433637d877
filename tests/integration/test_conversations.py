"""Stored conversations over HTTP: resumed, kept apart, never half, trimmed, and rewritten questions."""

import asyncio
import hashlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import pytest
from pydantic import SecretStr

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
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.types import Completion, ProviderCall
from vectorforge.local.postgres import EmbeddedPostgres

GUIDES = {
    "kettle": "The kettle boils one litre of water. It takes three minutes.",
    "bread": "The bread rises in a warm place. It takes two hours.",
    "laundry": "The laundry is washed at forty degrees. It takes fifty minutes.",
    "printer": "The printer warms up by itself. It takes half a minute.",
    "sauna": "The sauna is heated with wood. It takes a quarter of an hour.",
}
RAG = "/v1/rag/query"


class DigestLLM(BaseLLMProvider):
    """Answers with a digest of everything it was sent."""

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


@pytest.fixture
def tenant(make_tenant: Callable[[], str]) -> str:
    return make_tenant()


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        yield server


def provider(openai: FakeOpenAI) -> OpenAIProvider:
    return OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)


@pytest.fixture
async def api(postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI) -> AsyncIterator[LiveApi]:
    query = QuerySettings(max_conversations=3, max_conversation_messages=40, degraded_answers=False)
    async with live_api(
        settings_for(postgres_server.app_url, [tenant], query=query), provider(openai)
    ) as running:
        async with running.client(tenant) as client:
            await add_documents(client, await new_collection(client), **GUIDES)
        yield running


async def begin(client: Any, **body: Any) -> str:
    response = await client.post("/v1/conversations", json=body)
    assert response.status_code == 201, response.text
    assert response.headers["Location"] == f"/v1/conversations/{response.json()['id']}"
    return str(response.json()["id"])


async def ask(client: Any, query: str, conversation_id: str | None, **body: Any) -> dict[str, Any]:
    response = await client.post(RAG, json={"query": query, "conversation_id": conversation_id, **body})
    assert response.status_code == 200, response.text
    answer: dict[str, Any] = response.json()
    return answer


async def said(client: Any, conversation_id: str) -> list[tuple[str, str]]:
    conversation = (await client.get(f"/v1/conversations/{conversation_id}")).json()
    assert conversation["message_count"] == len(conversation["messages"])
    return [(message["role"], message["content"]) for message in conversation["messages"]]


def sent(openai: FakeOpenAI, number: int = -1) -> list[tuple[str, str]]:
    """Roles and contents that the vendor got after the system message."""
    return [(m["role"], m["content"]) for m in openai.requests[number].body["messages"][1:]]


async def test_conversation_is_resumed_by_id_after_restart(
    api: LiveApi, postgres_server: EmbeddedPostgres, tenant: str, openai: FakeOpenAI
) -> None:  # P9
    openai.script(Reply(("It takes three minutes [Context 1].",)))
    async with api.client(tenant) as client:
        conversation = await begin(client)
        answer = await ask(client, "How long does the kettle take?", conversation)
        assert answer["conversation_id"] == conversation

    restarted = live_api(settings_for(postgres_server.app_url, [tenant]), provider(openai))
    async with restarted as second, second.client(tenant) as client:
        events = await ask_streaming(
            client, RAG, {"query": "And the bread?", "conversation_id": conversation}
        )
        messages = await said(client, conversation)
        listed = (await client.get("/v1/conversations")).json()["conversations"]
    # The label is gone: it named a passage of the first question.
    assert sent(openai) == [
        ("user", "How long does the kettle take?"),
        ("assistant", "It takes three minutes."),
        ("user", "And the bread?"),
    ]
    assert events[0].data["conversation_id"] == events[-1].data["conversation_id"] == conversation
    assert [role for role, _ in messages] == ["user", "assistant"] * 2
    assert messages[1] == ("assistant", "It takes three minutes [Context 1].")  # as it was given
    assert messages[2] == ("user", "And the bread?")
    assert [(one["id"], one["title"]) for one in listed] == [(conversation, "How long does the kettle take?")]


async def test_conversation_is_listed_shown_and_deleted(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as client:
        first, second = await begin(client, title="One"), await begin(client)
        page = (await client.get("/v1/conversations", params={"limit": 1})).json()
        assert [one["id"] for one in page["conversations"]] == [second]
        shown = (await client.get(f"/v1/conversations/{first}")).json()
        assert (shown["title"], shown["message_count"], shown["messages"]) == ("One", 0, [])
        assert (await client.delete(f"/v1/conversations/{first}")).status_code == 204
        assert (await client.delete(f"/v1/conversations/{first}")).status_code == 404
        assert (await client.get(f"/v1/conversations/{first}")).status_code == 404
        refused = await client.post(RAG, json={"query": "Why?", "conversation_id": first})
        assert refused.status_code == 404
        assert (await client.post("/v1/conversations", json={"title": "x" * 201})).status_code == 422
        body = {"query": "?", "conversation_id": second, "messages": [{"role": "user", "content": "a"}]}
        both = await client.post(RAG, json=body)
        assert (both.status_code, both.json()["errors"][0]["field"]) == (422, "messages")


async def test_conversation_of_other_tenant_is_inaccessible(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], openai: FakeOpenAI
) -> None:
    mine, theirs = make_tenant(), make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [mine, theirs]), provider(openai)) as api:
        async with api.client(mine) as client:
            await add_documents(client, await new_collection(client), **GUIDES)
            conversation = await begin(client)
            await ask(client, "How long does the kettle take?", conversation)
        async with api.client(theirs) as client:
            await add_documents(client, await new_collection(client), **GUIDES)
            path = f"/v1/conversations/{conversation}"
            answers = [
                await client.get(path),
                await client.delete(path),
                await client.post(RAG, json={"query": "And?", "conversation_id": conversation}),
            ]
            assert [answer.status_code for answer in answers] == [404, 404, 404]
            assert (await client.get("/v1/conversations")).json()["conversations"] == []
        async with api.client(mine) as client:
            assert len(await said(client, conversation)) == 2


async def test_concurrent_queries_of_one_conversation_are_serialized(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    questions = [f"How long does the kettle take, asks guest {n}?" for n in range(12)]
    async with api.client(tenant) as client:
        conversation = await begin(client)
        answers = await asyncio.gather(*(ask(client, question, conversation) for question in questions))
        shown = (await client.get(f"/v1/conversations/{conversation}")).json()
    messages = shown["messages"]
    assert shown["message_count"] == len(messages) == 24
    pairs = list(zip(messages[::2], messages[1::2], strict=True))
    assert all((one["role"], two["role"]) == ("user", "assistant") for one, two in pairs)
    assert all(one["query_id"] == two["query_id"] for one, two in pairs)
    asked = {f"ragq_{one['query_id']}": one["content"] for one, _ in pairs}
    assert asked == {answer["id"]: question for answer, question in zip(answers, questions, strict=True)}


async def test_completed_exchanges_alone_are_stored(api: LiveApi, tenant: str, openai: FakeOpenAI) -> None:
    first_text = asyncio.Event()

    async def hold(number: int) -> None:
        if number == 1:
            first_text.set()
            await asyncio.Event().wait()

    async with api.client(tenant) as client:
        conversation = await begin(client)
        body = {"query": "How long does the kettle take?", "conversation_id": conversation}
        openai.script(Failure(500), Reply(ending="cut"), Reply(gate=hold))
        assert (await client.post(RAG, json={**body, "provider": "openai"})).status_code >= 500
        assert (await ask_streaming(client, RAG, body))[-1].name == "error"
        async with client.stream("POST", RAG, json={**body, "stream": True}) as response:
            async for _ in response.aiter_lines():
                if first_text.is_set():
                    break
        await asyncio.wait_for(openai.requests[-1].client_closed.wait(), 10)
        assert await said(client, conversation) == []
        await ask(client, "How long does the kettle take?", conversation)
        assert len(await said(client, conversation)) == 2


async def test_conversation_count_and_message_limits_are_enforced(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as client:
        conversation = await begin(client)
        for _ in range(2):
            await begin(client)
        refused = await client.post("/v1/conversations", json={})
        assert (refused.status_code, "3 conversations" in refused.json()["detail"]) == (409, True)
        for number in range(20):
            await ask(client, f"How long does the kettle take, {number}?", conversation)
        full = await client.post(RAG, json={"query": "And?", "conversation_id": conversation})
        assert (full.status_code, "40 messages" in full.json()["detail"]) == (409, True)
        assert len(await said(client, conversation)) == 40


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
        said_before: dict[str, Any] = {"conversation_id": await begin(client)}
        for number in range(4):
            await client.post(path, json={"query": f"kettle {number}", **said_before})
        if not stored:
            messages = (await client.get(f"/v1/conversations/{said_before['conversation_id']}")).json()[
                "messages"
            ]
            said_before = {"messages": [{k: m[k] for k in ("role", "content")} for m in messages]}
        answer = (await client.post(path, json={"query": question, **said_before})).json()
    earlier = [content for role, content in sent(openai)[:-1] if role == "user"]
    assert earlier == ["kettle 2", "kettle 3"]  # whole exchanges, the oldest went
    assert [s["chunk_id"] for s in answer["sources"]] == [s["chunk_id"] for s in alone["sources"]]


@pytest.mark.parametrize("door", ["rag", "collection"])
async def test_conversations_differing_in_third_last_turn_get_different_answers(
    postgres_server: EmbeddedPostgres, tenant: str, door: str
) -> None:  # C20
    digests = live_api(settings_for(postgres_server.app_url, [tenant]), DigestLLM())
    async with digests as api, api.client(tenant) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        path, field = (
            (RAG, "response") if door == "rag" else (f"/v1/collections/{collection}/query", "answer")
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
"""Guide -> first question, follow-up, and what a model makes of that."""


async def recall(api: LiveApi, tenant: str, openai: FakeOpenAI, *, rewrite: bool) -> float:
    """Share of the follow-ups whose guide is the first passage."""
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
            assert (answer["outcome"], answer["rewritten_query"]) == ("answered", None)

        before = len(openai.requests)
        await ask(client, "How long does the kettle take?", None, rewrite=True)
        assert len(openai.requests) - before == 1  # nothing was said before


async def test_unknown_conversation_returns_404_without_model_call(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    async with api.client(tenant) as client:
        response = await client.post(
            RAG, json={"query": "Why?", "conversation_id": str(uuid4()), "stream": True}
        )
    assert response.status_code == 404
    assert openai.requests == []
