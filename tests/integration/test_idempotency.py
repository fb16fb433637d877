"""A repeated request with its Idempotency-Key gets the first one's answer: logged and charged once."""

import asyncio
import subprocess
import sys
from collections.abc import AsyncIterator, Callable
from decimal import Decimal
from typing import Any

import httpx2
import pytest

from tests.integration.keyed_servers import (
    ASKED,
    QUESTION,
    RAG,
    REPLAYED,
    STREAM,
    KeyedServers,
    keyed_servers,
    new_key,
)
from tests.support.http.event_stream import check_order, read_events
from tests.support.http.live_api import add_documents, new_collection
from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import StreamSettings
from vectorforge.db.connection import Database
from vectorforge.errors import LLMError
from vectorforge.limits.settings import Limits, TenantLimits

COMPLETION = {"model": "vectorforge/default", "messages": [{"role": "user", "content": ASKED}]}
RESPONSE = {"model": "vectorforge/default", "input": ASKED}
CHAT = {"id": "1", "messages": [{"id": "1", "role": "user", "parts": [{"type": "text", "text": ASKED}]}]}
SURFACES: list[tuple[str, dict[str, Any]]] = [
    (RAG, QUESTION),
    (RAG, STREAM),
    (RAG, {**STREAM, "resumable": True}),
    ("/v1/collections/{collection}/query", QUESTION),
    ("/v1/collections/{collection}/query", STREAM),
    ("/v1/docrag/query", QUESTION),
    ("/v1/docrag/query", STREAM),
    ("/v1/chat/completions", COMPLETION),
    ("/v1/chat/completions", {**COMPLETION, "stream": True}),
    ("/v1/responses", RESPONSE),
    ("/v1/responses", {**RESPONSE, "stream": True}),
    ("/api/chat", CHAT),
]
BOTH = pytest.mark.parametrize("body", [QUESTION, STREAM], ids=["json", "stream"])


@pytest.fixture
def tenants(make_tenant: Callable[[], str]) -> tuple[str, str]:
    return make_tenant(), make_tenant()


@pytest.fixture
async def servers(app_url: str, tenants: tuple[str, str]) -> AsyncIterator[KeyedServers]:
    async with keyed_servers(app_url, tenants) as started:
        yield started


def assert_one_answer(responses: list[httpx2.Response]) -> None:
    """Check that one response is the answer and the others repeat it."""
    assert [response.status_code for response in responses] == [200] * len(responses), responses[-1].text
    assert len({response.content for response in responses}) == 1
    assert len({response.headers["content-type"] for response in responses}) == 1
    marks = [response.headers.get(REPLAYED) for response in responses]
    assert sorted(marks, key=str) == [None, *["true"] * (len(responses) - 1)]


# Fault 44
class TestReplay:
    @pytest.mark.parametrize(("path", "body"), SURFACES)
    async def test_sequential_requests_with_one_key_replay_one_answer(
        self, servers: KeyedServers, path: str, body: dict[str, Any]
    ) -> None:
        key, path = new_key(), path.format(collection=servers.collection_id)
        responses = [await servers.ask(number, key, body, path) for number in range(5)]
        assert_one_answer(responses)
        assert REPLAYED not in responses[0].headers
        first, last = (dict(response.headers) for response in (responses[0], responses[-1]))
        varying = {"date", "x-request-id", REPLAYED, "content-length", "transfer-encoding"}
        assert {name: first[name] for name in first.keys() - varying} == {
            name: last[name] for name in last.keys() - varying
        }
        assert (servers.generations, len(await servers.logs())) == (1, 1)

    @BOTH
    async def test_concurrent_requests_with_one_key_replay_one_answer(
        self, app_url: str, tenants: tuple[str, str], body: dict[str, Any]
    ) -> None:
        key, llms = new_key(), [ScriptedLLM(delay_s=0.5) for _ in range(2)]
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            responses = await asyncio.gather(*(servers.ask(number, key, body) for number in range(5)))
            assert_one_answer(responses)
            assert (servers.generations, len(await servers.logs())) == (1, 1)

    async def test_replayed_stream_is_complete_and_ordered(self, servers: KeyedServers) -> None:
        key = new_key()
        await servers.ask(0, key, STREAM)
        async with servers.clients[1].stream("POST", RAG, json=STREAM, headers=key) as response:
            events = [event async for event in read_events(response.aiter_lines())]
        check_order(events)
        assert events[-1].name == "done"

    async def test_other_key_or_no_key_generates_new_answer(self, servers: KeyedServers) -> None:
        keys = [new_key(), new_key(), {}, {}]
        responses = [await servers.ask(0, key) for key in keys]
        assert len({response.json()["id"] for response in responses}) == 4
        assert not any(REPLAYED in response.headers for response in responses)
        assert (servers.generations, len(await servers.logs())) == (4, 4)

    async def test_degraded_answer_is_replayed(self, app_url: str, tenants: tuple[str, str]) -> None:
        llms = [ScriptedLLM((), error=LLMError("no")) for _ in range(2)]
        async with keyed_servers(app_url, tenants, llms=llms) as servers:
            key = new_key()
            responses = [await servers.ask(number, key) for number in range(2)]
            assert_one_answer(responses)
            assert responses[1].json()["degraded"] == ["passages"]
            assert len(await servers.logs()) == 1

    @BOTH
    async def test_repeated_request_is_charged_once(
        self, app_url: str, tenants: tuple[str, str], direct_database: Database, body: dict[str, Any]
    ) -> None:
        limits = TenantLimits(direct_database.for_tenant(tenants[0]))
        await limits.change(
            Limits(tokens_per_day=1_000_000, concurrent_streams=1, cost_per_month_usd=Decimal(50))
        )
        async with keyed_servers(app_url, tenants) as servers:
            before, key = (await limits.usage()).tokens, new_key()
            await asyncio.gather(*(servers.ask(number, key, body) for number in range(5)))
            used = await limits.usage()
            assert (used.tokens - before, used.streams) == (110, 0)


class TestStoredBytes:
    @pytest.mark.parametrize("path", [RAG, "/v1/collections/{collection}/query", "/v1/docrag/query"])
    async def test_dry_run_with_key_stores_nothing(self, servers: KeyedServers, path: str) -> None:
        key, path = new_key(), path.format(collection=servers.collection_id)
        for number in range(2):
            dry = await servers.ask(number, key, {**QUESTION, "dry_run": True}, path)
            assert (dry.status_code, REPLAYED in dry.headers) == (200, False)
            assert dry.json()["dry_run"] is True
        assert await stored_bytes(servers) == []
        answer = await servers.ask(0, key, QUESTION, path)  # the key is still free
        assert (answer.status_code, servers.generations) == (200, 1)

    async def test_dry_run_with_invalid_key_is_rejected(self, servers: KeyedServers) -> None:
        body = {**QUESTION, "dry_run": True}
        assert (await servers.ask(0, {"Idempotency-Key": "a b"}, body)).status_code == 422

    @BOTH
    async def test_answers_over_quota_are_dropped_and_not_regenerated(
        self, app_url: str, tenants: tuple[str, str], body: dict[str, Any]
    ) -> None:
        quota = 10_000
        streams = StreamSettings(idempotency_max_bytes=quota)
        async with keyed_servers(app_url, tenants, streams=streams) as servers:
            keys = [new_key() for _ in range(15)]
            first = [(await servers.ask(number, key, body)).content for number, key in enumerate(keys)]
            stored = await stored_bytes(servers)
            assert quota / 2 < sum(stored) <= quota
            assert len(stored) < len(keys)
            newest = await servers.ask(0, keys[-1], body)
            assert (newest.content, newest.headers[REPLAYED]) == (first[-1], "true")
            oldest = await servers.ask(0, keys[0], body)
            assert (oldest.status_code, oldest.json()["code"]) == (409, "idempotent_answer_too_long")
            assert servers.generations == len(keys)


async def stored_bytes(servers: KeyedServers) -> list[int]:
    """Return the bytes of each stored part of an answer."""
    db = servers.database.for_tenant(servers.tenant)
    rows = await db.fetch_all(
        "SELECT octet_length(events) AS size FROM vectorforge.answer_stream_batches WHERE tenant_id = %s",
        (servers.tenant,),
    )
    return [row["size"] for row in rows]


class TestKeyScope:
    async def test_same_key_of_other_tenant_is_independent(self, servers: KeyedServers) -> None:
        key = new_key()
        answer = await servers.ask(0, key)
        async with servers.apis[1].client(servers.stranger) as stranger:
            assert (await stranger.post(RAG, json=QUESTION, headers=key)).status_code == 404
            await add_documents(stranger, await new_collection(stranger), cup=f"{ASKED} A cup.")
            other = await stranger.post(RAG, json=QUESTION, headers=key)
            assert (other.status_code, REPLAYED in other.headers) == (200, False)
            assert other.json()["id"] != answer.json()["id"]
        assert (await servers.ask(1, key)).content == answer.content

    @pytest.mark.parametrize(
        ("path", "body"),
        [
            (RAG, {**QUESTION, "k": 4}),
            (RAG, STREAM),
            ("/v1/docrag/query", QUESTION),
            ("/v1/collections/{collection}/query", QUESTION),
        ],
        ids=["field", "stream", "path", "path with a parameter"],
    )
    async def test_key_reused_for_other_request_is_rejected(
        self, servers: KeyedServers, path: str, body: dict[str, Any]
    ) -> None:
        key = new_key()
        answer = await servers.ask(0, key)
        refused = await servers.ask(1, key, body, path.format(collection=servers.collection_id))
        assert (refused.status_code, refused.headers["content-type"]) == (422, "application/problem+json")
        problem = refused.json()
        assert problem["code"] == "idempotency_key_reused"
        assert [error["field"] for error in problem["errors"]] == ["Idempotency-Key"]
        assert (await servers.ask(1, key)).content == answer.content
        assert servers.generations == 1

    async def test_key_reuse_on_openai_surface_returns_openai_error(self, servers: KeyedServers) -> None:
        key, path = new_key(), "/v1/chat/completions"
        assert (await servers.ask(0, key, COMPLETION, path)).status_code == 200
        refused = await servers.ask(1, key, {**COMPLETION, "temperature": 0}, path)
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "Idempotency-Key")

    @pytest.mark.parametrize(
        "given",
        [[b""], [b"k" * 256], [b"a b"], [b"\xc3\xa9"], [b"a", b"b"]],
        ids=["empty", "too long", "a blank", "not ASCII", "two"],
    )
    async def test_invalid_key_is_rejected(self, servers: KeyedServers, given: list[bytes]) -> None:
        headers = [(b"Idempotency-Key", value) for value in given]
        response = await servers.clients[0].post(RAG, json=QUESTION, headers=headers)
        assert response.status_code == 422
        (error,) = response.json()["errors"]
        assert error["field"] == "Idempotency-Key"
        assert "1 to 255 visible ASCII" in error["message"]
        assert servers.generations == 0

    async def test_key_of_255_characters_is_accepted(self, servers: KeyedServers) -> None:
        key = {"Idempotency-Key": "".join(map(chr, range(0x21, 0x7F))).ljust(255, "k")}
        assert_one_answer([await servers.ask(number, key) for number in range(2)])


class TestResumableStreams:
    async def test_resumable_stream_with_key_can_be_followed(self, servers: KeyedServers) -> None:
        key = new_key()
        answer = await servers.ask(0, key, {**STREAM, "resumable": True})
        async with servers.clients[0].stream("POST", RAG, json={**STREAM, "resumable": True}) as response:
            await anext(response.aiter_bytes())
        query_id = (await servers.logs())[-1].id
        followed = await servers.clients[1].get(f"/v1/queries/{query_id}/events")
        assert followed.content.endswith(answer.content)

    @BOTH
    async def test_stream_without_resumable_cannot_be_followed(
        self, servers: KeyedServers, body: dict[str, Any]
    ) -> None:
        await servers.ask(0, new_key(), body)
        (log,) = await servers.logs()
        path = f"/v1/queries/{log.id}"
        assert (await servers.clients[0].get(f"{path}/events")).status_code == 404
        assert (await servers.clients[0].post(f"{path}/stop")).status_code == 404


def test_app_import_loads_no_idempotency_module() -> None:
    program = (
        "import sys; from vectorforge.api.openapi import create_routes; create_routes();"
        "print([name for name in sys.modules if 'idempoten' in name])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "[]"
