"""Stored conversations: renamed, deleted and listed by their credential, and reloaded with their sources."""

import json
from collections.abc import Callable
from typing import Any

from tests.integration.conversations.conftest import ask, begin, provider, sent
from tests.support.http.live_api import LiveApi, add_documents, live_api, new_collection, settings_for
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.config import QuerySettings
from vectorforge.db.connection import Database
from vectorforge.db.repositories.api_key_repo import ApiKeyRepository
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Scope

PATH = "/v1/conversations"


async def test_conversation_is_reloaded_with_collections_and_sources_of_its_answers(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    openai.script(Reply(("It takes three minutes [Context 1].",)))
    async with api.client(tenant) as client:
        conversation = await begin(client)
        answer = await ask(client, "How long does the kettle take?", conversation)
        await ask(client, "And the bread?", conversation, k=1)
        plain = (await client.get(f"{PATH}/{conversation}")).json()["messages"]
        shown = (await client.get(f"{PATH}/{conversation}", params={"sources": True})).json()["messages"]
        collection = (await client.get("/v1/collections")).json()["collections"][0]["id"]
        document = shown[3]["sources"][0]["document_id"]
        assert (await client.delete(f"/v1/documents/{document}")).status_code < 300
        erased = (await client.get(f"{PATH}/{conversation}", params={"sources": True})).json()["messages"]
    assert {(m["sources"], m["collection_id"]) for m in plain} == {(None, None)}
    assert {m["collection_id"] for m in shown} == {collection}
    assert [m["provider"] for m in shown] == [None, "openai"] * 2
    assert shown[1]["model"] == answer["model"]
    assert [m["sources"] is None for m in shown] == [True, False, True, False]
    labeled = [entry for entry in answer["context"] if entry["label"]]
    assert [f"[Context {s['number']}]" for s in shown[1]["sources"]] == [one["label"] for one in labeled]
    assert [s["chunk_id"] for s in shown[1]["sources"]] == [one["chunk_id"] for one in labeled]
    first = shown[1]["sources"][0]
    assert first["text"] in "The kettle boils one litre of water. It takes three minutes."
    assert (first["document_source"], first["start_offset"], first["end_offset"]) == ("kettle.md", 0, 60)
    assert document not in json.dumps(erased)


async def test_conversation_is_renamed_and_keeps_the_name(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    async with api.client(tenant) as client:
        conversation = await begin(client)
        renamed = await client.patch(f"{PATH}/{conversation}", json={"title": "  \u202eKettles\nat home "})
        await ask(client, "How long does the kettle take?", conversation)
        shown = (await client.get(f"{PATH}/{conversation}")).json()
        refused = [await client.patch(f"{PATH}/{conversation}", json=body) for body in INVALID]
        unnamed = await begin(client)
        await ask(client, "How long\ndoes the kettle take?", unnamed)
        default = (await client.get(f"{PATH}/{unnamed}")).json()["title"]
        await client.delete(f"{PATH}/{conversation}")
        gone = await client.patch(f"{PATH}/{conversation}", json={"title": "Gone"})
    assert (renamed.status_code, renamed.json()["title"]) == (200, "Kettles at home")
    assert (shown["title"], shown["message_count"]) == ("Kettles at home", 2)
    assert [(one.status_code, one.json()["errors"][0]["field"]) for one in refused] == [(422, "title")] * 3
    assert default == "How long does the kettle take?"
    assert gone.status_code == 404


INVALID: list[dict[str, Any]] = [{"title": " "}, {"title": "x" * 201}, {}]


async def test_reader_lists_renames_and_deletes_only_conversations_of_its_own_key(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], openai: FakeOpenAI
) -> None:
    tenant = make_tenant()
    async with Database(postgres_server.app_url, pool_size=1) as database:
        keys = ApiKeyRepository(database.for_tenant(tenant))
        ann, bob, editor = [
            (await keys.create(name, scope)).secret
            for name, scope in (("ann", Scope.READ), ("bob", Scope.READ), ("editor", Scope.WRITE))
        ]
    settings = settings_for(postgres_server.app_url, query=QuerySettings())
    async with live_api(settings, provider(openai)) as api, api.client(None) as client:

        async def call(key: str, method: str, path: str, **options: Any) -> Any:
            return await client.request(method, path, headers={"X-Api-Key": key}, **options)

        mine = (await call(ann, "POST", PATH, json={"title": "Ann's"})).json()["id"]
        his = (await call(bob, "POST", PATH, json={"title": "Bob's"})).json()["id"]
        for key, own in ((ann, mine), (bob, his)):
            listed = (await call(key, "GET", PATH, params={"own": True})).json()["conversations"]
            assert [one["id"] for one in listed] == [own]
        everyone = (await call(ann, "GET", PATH)).json()["conversations"]
        assert {one["id"] for one in everyone} == {mine, his}
        for method in ("PATCH", "DELETE"):
            body = {"json": {"title": "Mine now"}} if method == "PATCH" else {}
            assert (await call(ann, method, f"{PATH}/{his}", **body)).status_code == 404
            assert (await call(ann, method, f"{PATH}/{mine}", **body)).status_code in {200, 204}
        assert (await call(bob, "GET", f"{PATH}/{his}")).json()["title"] == "Bob's"
        assert (await call(editor, "DELETE", f"{PATH}/{his}")).status_code == 204


async def test_collection_is_renamed_unless_the_name_is_taken(api: LiveApi, tenant: str) -> None:
    async with api.client(tenant) as client:
        first = await new_collection(client, name="first")
        await new_collection(client, name="second")
        await add_documents(client, first, note="The lamp is blue.")
        path = f"/v1/collections/{first}"
        taken = await client.patch(path, json={"name": "second"})
        renamed = await client.patch(path, json={"name": " lamps "})
        same = await client.patch(path, json={"name": "lamps", "dense_weight": 0.25})
        found = await client.post("/v1/search", json={"query": "lamp", "collection": "lamps"})
        former = await client.post("/v1/search", json={"query": "lamp", "collection": "first"})
        invalid = [await client.patch(path, json=body) for body in ({"name": " "}, {"name": "x" * 201}, {})]
    assert (taken.status_code, taken.json()["detail"]) == (409, "A collection named 'second' already exists.")
    assert (renamed.status_code, renamed.json()["name"]) == (200, "lamps")
    assert (same.json()["name"], same.json()["dense_weight"]) == ("lamps", 0.25)
    assert found.json()["results"][0]["text"] == "The lamp is blue."
    assert former.status_code == 404
    assert [one.status_code for one in invalid] == [422, 422, 422]


async def test_regenerated_answer_replaces_the_last_exchange_only(
    api: LiveApi, tenant: str, openai: FakeOpenAI
) -> None:
    async def chat(query: str, **body: Any) -> None:
        messages = [{"role": "user", "parts": [{"type": "text", "text": query}]}]
        openai.script(Reply((f"Answer {len(openai.requests)}.",)))
        response = await client.post(
            "/api/chat", json={"messages": messages, "conversation_id": conversation, **body}
        )
        assert '"type": "finish"' in response.text

    async with api.client(tenant) as client:
        conversation = await begin(client)
        path = f"/v1/conversations/{conversation}"
        await chat("How long does the kettle take?")
        await chat("How long does the bread rise?")
        before = (await client.get(path)).json()
        await chat("How long does the bread rise?", trigger="regenerate-message")
        after, prompt = (await client.get(path)).json(), sent(openai)
        # another query than the last one is added
        await chat("How long does the sauna take?", trigger="regenerate-message")
        last = (await client.get(path)).json()
    assert (before["message_count"], after["message_count"], last["message_count"]) == (4, 4, 6)
    assert after["messages"][:2] == before["messages"][:2]
    assert last["messages"][:4] == after["messages"]
    assert after["messages"][2]["content"] == before["messages"][2]["content"]
    assert after["messages"][3]["content"] != before["messages"][3]["content"]
    assert [role for role, _ in prompt] == ["user", "assistant", "user"]
