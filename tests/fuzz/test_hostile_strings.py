"""Thirty hostile strings, with the app's role: no row of another tenant."""

import asyncio
import json
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any
from urllib.parse import quote

import httpx2
import psycopg
import pytest

from tests.fuzz.hostile_strings import STATEMENTS, VALUES, filters_of
from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from tests.support.postgres.pin_rules import PinRule
from vectorforge.db.connection import Database
from vectorforge.local.postgres import EmbeddedPostgres

CANARY = "canary-of-alice"
ENTER = "SELECT vectorforge.enter_tenant(%s)"


@dataclass(frozen=True)
class Tenants:
    """Alice with one document, and Bob, who has another and queries."""

    alice: str
    bob: str
    alices: httpx2.AsyncClient
    bobs: httpx2.AsyncClient
    collection_id: str
    """Return Bob's client."""


@pytest.fixture
async def tenants(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[Tenants]:
    alice, bob = make_tenant(), make_tenant()
    async with (
        live_api(settings_for(postgres_server.app_url, [alice, bob])) as api,
        api.client(alice) as alices,
        api.client(bob) as bobs,
    ):
        await add_documents(alices, await new_collection(alices), secret=f"{CANARY} opens the vault.")
        collection_id = await new_collection(bobs)
        await add_documents(bobs, collection_id, ours="The vault is blue.")
        yield Tenants(alice, bob, alices, bobs, collection_id)


def test_hostile_string_corpus_has_thirty_entries() -> None:
    assert len(set(VALUES) | set(STATEMENTS)) == 30


async def ask_with(tenants: Tenants, text: str) -> list[httpx2.Response]:
    """Send the text as Bob in every field that accepts text."""
    documents = f"/v1/collections/{tenants.collection_id}/documents"
    bodies = [
        ("/v1/search", {"query": text}),
        ("/v1/search", {"query": "vault", "collection": text}),
        ("/v1/rag/query", {"query": text, "conversation_id": text}),
        ("/v1/collections", {"name": text, "language": text}),
        ("/v1/chat/completions", {"model": text, "messages": [{"role": "user", "content": text}]}),
        *(("/v1/search", {"query": "vault", "filters": chosen}) for chosen in filters_of(text)),
        *((f"{documents}/delete", {"filters": chosen, "dry_run": True}) for chosen in filters_of(text)),
    ]
    lists = [{"filters": json.dumps(chosen)} for chosen in filters_of(text)]
    return await asyncio.gather(
        *(tenants.bobs.post(path, json=body) for path, body in bodies),
        *(tenants.bobs.get(documents, params=one) for one in lists),
        tenants.bobs.get(f"/v1/documents/{quote(text, safe='')}"),
    )


async def test_hostile_value_in_requests_leaks_no_data_and_causes_no_error(
    tenants: Tenants,
) -> None:  # security 1, 8
    for text in VALUES:
        responses = await ask_with(tenants, text)
        assert not [r for r in responses if r.status_code >= 500], text
        assert any(r.status_code == 200 for r in responses), text
        assert not [r for r in responses if CANARY in r.text], text
    assert (await tenants.alices.post("/v1/search", json={"query": "vault"})).json()["results"]


async def response_to(connection: psycopg.AsyncConnection[Any], statement: str) -> str:
    """Return all rows of the statement, or its error."""
    rows: list[object] = []
    try:
        cursor = await connection.execute(statement)
        more: bool | None = True
        while more:
            rows += await cursor.fetchall() if cursor.description else []
            more = cursor.nextset()
    except psycopg.Error as refused:
        rows.append(refused)
    await connection.rollback()
    return str(rows)


@pytest.mark.pins(PinRule.SETTING, PinRule.TEMPORARY)
async def test_hostile_statement_of_other_tenant_returns_no_data(
    tenants: Tenants, postgres_server: EmbeddedPostgres
) -> None:  # security 1, 2
    notices: list[str] = []
    async with await psycopg.AsyncConnection.connect(postgres_server.app_url) as connection:
        connection.add_notice_handler(lambda notice: notices.append(notice.message_primary or ""))
        for statement in STATEMENTS:
            await connection.execute(ENTER, (tenants.bob,))
            response = await response_to(connection, statement.replace("{alice}", f"'{tenants.alice}'"))
            assert CANARY not in f"{response} {notices}", statement
            assert tenants.alice not in response, statement
    assert (await tenants.alices.post("/v1/search", json={"query": "vault"})).json()["results"]


async def test_connection_without_tenant_returns_no_rows(tenants: Tenants, direct_database: Database) -> None:
    async with direct_database.connection() as connection:
        for table in ("chunks", "documents", "collections"):
            found = await connection.execute(f"SELECT * FROM vectorforge.{table}")
            assert await found.fetchall() == []
    assert (await tenants.alices.get("/v1/collections")).json()["collections"]
