"""Stored conversations over HTTP: resuming, isolation, atomicity, trimming, and rewritten queries."""

import asyncio
from collections.abc import Callable
from typing import Any
from uuid import uuid4

from tests.integration.conversations.conftest import GUIDES, RAG, ask, begin, provider, sent
from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.local.postgres import EmbeddedPostgres


async def stored_texts(client: Any, conversation_id: str) -> list[tuple[str, str]]:
    conversation = (await client.get(f"/v1/conversations/{conversation_id}")).json()
    assert conversation["message_count"] == len(conversation["messages"])
    return [(message["role"], message["content"]) for message in conversation["messages"]]


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
        messages = await stored_texts(client, conversation)
        listed = (await client.get("/v1/conversations")).json()["conversations"]
    # The label is gone: it named a chunk of the first query.
    assert sent(openai) == [
        ("user", "How long does the kettle take?"),
        ("assistant", "It takes three minutes."),
        ("user", "And the bread?"),
    ]
    assert events[0].data["conversation_id"] == events[-1].data["conversation_id"] == conversation
    assert [role for role, _ in messages] == ["user", "assistant"] * 2
    assert messages[1] == ("assistant", "It takes three minutes [Context 1].")  # as submitted
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
            assert len(await stored_texts(client, conversation)) == 2


async def test_concurrent_queries_of_one_conversation_are_serialized(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    questions = [f"How long does the kettle take, asks guest {n}?" for n in range(12)]
    async with api.client(tenant) as client:
        conversation = await begin(client)
        answers = await asyncio.gather(*(ask(client, question, conversation) for question in questions))
        response = await client.get(f"/v1/conversations/{conversation}")
    assert response.status_code == 200, response.text
    shown = response.json()
    messages = shown["messages"]
    assert shown["message_count"] == len(messages) == 24
    pairs = list(zip(messages[::2], messages[1::2], strict=True))
    assert all((one["role"], two["role"]) == ("user", "assistant") for one, two in pairs)
    assert all(one["query_id"] == two["query_id"] for one, two in pairs)
    contents = {f"ragq_{one['query_id']}": one["content"] for one, _ in pairs}
    assert contents == {answer["id"]: question for answer, question in zip(answers, questions, strict=True)}


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
        assert await stored_texts(client, conversation) == []
        await ask(client, "How long does the kettle take?", conversation)
        assert len(await stored_texts(client, conversation)) == 2


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
        assert len(await stored_texts(client, conversation)) == 40


async def test_unknown_conversation_returns_404_without_model_call(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    async with api.client(tenant) as client:
        response = await client.post(
            RAG, json={"query": "Why?", "conversation_id": str(uuid4()), "stream": True}
        )
    assert response.status_code == 404
    assert openai.requests == []
