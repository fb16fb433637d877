"""Collections for vector search only store no lexical terms, until a search mode needs them."""

import asyncio
from collections.abc import AsyncIterator, Callable
from uuid import UUID

import httpx2
import pytest
from psycopg.conninfo import make_conninfo

from tests.support.http.live_api import live_api, new_collection, settings_for
from tests.support.postgres.term_check import check_terms
from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.db.term_reading import TermReader
from vectorforge.errors import InvalidInputError
from vectorforge.types import Collection, DistanceMetric, SearchMode, SearchSettings
from vectorforge.vectorstore.pgvector import PgVectorStore

NO_WORDS = SearchSettings(keeps_words=False)


async def make(
    db: TenantDatabase, search: SearchSettings = NO_WORDS, *, by_profile: bool = False
) -> Collection:
    return await CollectionRepository(db).create(
        "vectors", embedding_provider="local", embedding_model="test", dimension=2,
        distance_metric=DistanceMetric.COSINE, by_profile=by_profile, search=search,
    )  # fmt: skip


async def write(db: TenantDatabase, collection_id: UUID, *texts: str, title: str | None = None) -> None:
    chunks = chunk_drafts(texts, [[1.0, 0.0]] * len(texts))
    document = document_draft(chunks, source="a.md", title=title)
    await PgVectorStore(db).replace_document(collection_id, document, chunks)


async def passages_read(db: TenantDatabase) -> int:
    return len(await db.fetch_all("SELECT FROM vectorforge.chunk_terms"))


@pytest.fixture
def owner_url(make_database: Callable[..., str]) -> str:
    return make_database()


@pytest.fixture
async def database(owner_url: str) -> AsyncIterator[Database]:
    async with Database(make_conninfo(owner_url, user="vectorforge_app")) as database:
        yield database


@pytest.fixture
def db(database: Database) -> TenantDatabase:
    return database.for_tenant("alice")


class TestWrites:
    async def test_writes_to_collection_without_words_store_no_terms(self, db: TenantDatabase) -> None:
        collection = await make(db)
        assert (collection.search_mode, collection.keeps_words) == (SearchMode.DENSE, False)
        assert collection.terms_complete
        await write(db, collection.id, "Cats run.", "Dogs sleep.")
        await write(db, collection.id, "Cats run.", "Birds sing.")  # one unchanged, one retired, one new
        await write(db, collection.id, "Cats run.", "Birds sing.", title="Animals")
        assert await passages_read(db) == 0
        found = await PgVectorStore(db).search(
            query_vector=[1.0, 0.0], top_k=5, collection_id=collection.id, metric=DistanceMetric.COSINE
        )
        assert {hit.chunk.text for hit in found} == {"Cats run.", "Birds sing."}

    async def test_other_collections_of_the_tenant_store_terms(
        self, db: TenantDatabase, owner_url: str
    ) -> None:
        await write(db, (await make(db)).id, "Cats run.")
        with_words = await CollectionRepository(db).create(
            "words", embedding_provider="local", embedding_model="test", dimension=2,
            distance_metric=DistanceMetric.COSINE,
        )  # fmt: skip
        assert with_words.keeps_words
        await write(db, with_words.id, "Cats run.", "Dogs sleep.")
        assert await passages_read(db) == 2


class TestEnableWords:
    @pytest.mark.parametrize(
        "settings", [SearchSettings(SearchMode.HYBRID), SearchSettings(keeps_words=True)]
    )
    async def test_mode_that_needs_terms_triggers_term_reading(
        self, db: TenantDatabase, database: Database, owner_url: str, settings: SearchSettings
    ) -> None:
        collection = await make(db)
        await write(db, collection.id, "Cats run.", "Dogs sleep.")
        changed = await CollectionRepository(db).set_search(collection.id, settings)
        assert changed is not None
        assert (changed.keeps_words, changed.terms_complete) == (True, False)
        reader = TermReader(database)
        while await reader.step():
            pass
        assert await check_terms(owner_url, db) == 8  # with those of the heading
        read = await CollectionRepository(db).find_by_id(collection.id)
        assert read is not None
        assert read.terms_complete

    async def test_language_change_alone_reads_no_terms(self, db: TenantDatabase, database: Database) -> None:
        collection = await make(db)
        await write(db, collection.id, "Cats run.")
        changed = await CollectionRepository(db).set_search(collection.id, SearchSettings(language="simple"))
        assert changed is not None
        assert (changed.keeps_words, changed.terms_complete) == (False, True)
        assert not await TermReader(database).step()

    async def test_search_change_waits_for_open_writers(self, db: TenantDatabase) -> None:
        """Writers that have seen the setting without terms end before the terms are built."""
        collection = await make(db)
        async with db.transaction() as connection:
            await connection.execute(
                "SELECT FROM vectorforge.collections WHERE id = %s FOR KEY SHARE", (collection.id,)
            )  # as a writer does first
            repo = CollectionRepository(db)
            change = asyncio.create_task(repo.set_search(collection.id, SearchSettings(SearchMode.LEXICAL)))
            await asyncio.sleep(0.2)
            assert not change.done()
        assert (await change) is not None


class TestRejections:
    @pytest.mark.parametrize("mode", [SearchMode.HYBRID, SearchMode.LEXICAL])
    async def test_search_mode_that_needs_words_is_rejected(
        self, db: TenantDatabase, mode: SearchMode
    ) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await make(db, SearchSettings(mode, keeps_words=False))
        assert caught.value.field == "keeps_words"

    async def test_profile_collection_without_words_is_rejected(self, db: TenantDatabase) -> None:
        with pytest.raises(InvalidInputError) as caught:
            await make(db, by_profile=True)
        assert caught.value.field == "keeps_words"

    async def test_disabling_words_on_existing_collection_is_rejected(self, db: TenantDatabase) -> None:
        collection = await make(db, SearchSettings())
        with pytest.raises(InvalidInputError) as caught:
            await CollectionRepository(db).set_search(collection.id, NO_WORDS)
        assert caught.value.field == "keeps_words"


async def test_keeps_words_setting_is_created_and_enabled_over_http(
    app_url: str, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        assert (await _body(client, await new_collection(client, "all")))["keeps_words"] is True
        made = await client.post("/v1/collections", json={"name": "vectors", "keeps_words": False})
        assert made.status_code == 201
        assert (made.json()["search_mode"], made.json()["keeps_words"]) == ("dense", False)
        query = {"query": "cats", "collection": "vectors"}
        assert (await client.post("/v1/search", json=query)).status_code == 200
        for mode in ("hybrid", "lexical"):
            refused = await client.post("/v1/search", json={**query, "search_mode": mode})
            assert refused.status_code == 422
            assert "keeps no words" in refused.text
        path = f"/v1/collections/{made.json()['id']}"
        changed = await client.patch(path, json={"search_mode": "hybrid"})
        assert changed.json()["keeps_words"] is True
        assert (await client.post("/v1/search", json={**query, "search_mode": "lexical"})).status_code == 200


async def _body(client: httpx2.AsyncClient, collection_id: object) -> dict[str, object]:
    body: dict[str, object] = (await client.get(f"/v1/collections/{collection_id}")).json()
    return body
