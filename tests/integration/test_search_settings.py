"""Search settings of a collection, set at creation and later, in the repository and over HTTP."""

import asyncio
from collections.abc import AsyncIterator, Callable
from typing import Any
from uuid import uuid4

import httpx2
import pytest

from tests.support.http.live_api import live_api, new_collection, settings_for
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import InvalidInputError
from vectorforge.types import DistanceMetric, SearchMode, SearchSettings
from vectorforge.vectorstore.pgvector import PgVectorStore

BY_DEFAULT = ("hybrid", 0.5, "english")


def settings_of(body: dict[str, Any]) -> tuple[str, float, str]:
    return body["search_mode"], body["dense_weight"], body["language"]


class TestRepository:
    async def test_partial_change_updates_given_fields_only(self, tenant_db: TenantDatabase) -> None:
        repo = CollectionRepository(tenant_db)
        collection_id = await insert_collection(tenant_db, 2, DistanceMetric.COSINE)
        other = await insert_collection(tenant_db, 2, DistanceMetric.COSINE)
        changed = await repo.set_search(collection_id, SearchSettings(dense_weight=0))
        assert changed is not None
        assert (changed.search_mode, changed.dense_weight, changed.language) == ("hybrid", 0, "english")
        changed = await repo.set_search(collection_id, SearchSettings(SearchMode.DENSE, language="german"))
        assert changed is not None
        assert (changed.search_mode, changed.dense_weight, changed.language) == ("dense", 0, "german")
        assert await repo.find_by_id(collection_id) == changed
        untouched = await repo.find_by_id(other)
        assert untouched is not None
        assert (untouched.search_mode, untouched.dense_weight, untouched.language) == BY_DEFAULT
        assert await repo.set_search(uuid4(), SearchSettings(dense_weight=0)) is None

    async def test_settings_change_increments_data_version(self, tenant_db: TenantDatabase) -> None:
        repo = CollectionRepository(tenant_db)
        collection_id = await insert_collection(tenant_db, 2, DistanceMetric.COSINE)
        for number, weight in enumerate((0.1, 0.2), 1):
            changed = await repo.set_search(collection_id, SearchSettings(dense_weight=weight))
            assert changed is not None
            assert changed.data_version == number

    async def test_language_change_alone_triggers_term_reading(self, tenant_db: TenantDatabase) -> None:
        repo = CollectionRepository(tenant_db)
        collection_id = await insert_collection(tenant_db, 2, DistanceMetric.COSINE)
        for language, complete in (("english", True), ("german", False), ("german", False)):
            changed = await repo.set_search(collection_id, SearchSettings(language=language))
            assert changed is not None
            assert changed.terms_complete is complete

    @pytest.mark.parametrize(
        ("settings", "field"),
        [
            (SearchSettings(dense_weight=-0.1), "dense_weight"),
            (SearchSettings(dense_weight=1.1), "dense_weight"),
            (SearchSettings(dense_weight=float("nan")), "dense_weight"),
            (SearchSettings(language="klingon"), "language"),
            (SearchSettings(language="English"), "language"),
            (SearchSettings(language="public.english"), "language"),
        ],
    )
    async def test_settings_out_of_range_are_rejected(
        self, tenant_db: TenantDatabase, settings: SearchSettings, field: str
    ) -> None:
        collection_id = await insert_collection(tenant_db, 2, DistanceMetric.COSINE)
        with pytest.raises(InvalidInputError) as caught:
            await CollectionRepository(tenant_db).set_search(collection_id, settings)
        assert caught.value.field == field

    async def test_language_change_waits_for_writers(self, tenant_db: TenantDatabase) -> None:
        repo, store = CollectionRepository(tenant_db), PgVectorStore(tenant_db)
        collection_id = await insert_collection(tenant_db, 2, DistanceMetric.COSINE)
        chunks = chunk_drafts(["Häuser"], [[1.0, 0.0]])
        async with tenant_db.transaction() as connection:
            await connection.execute(
                "SELECT FROM vectorforge.collections WHERE id = %s FOR KEY SHARE", (collection_id,)
            )  # as a writer does first
            change = asyncio.create_task(repo.set_search(collection_id, SearchSettings(language="german")))
            await asyncio.sleep(0.2)
            assert not change.done()
        assert (await change) is not None
        await store.replace_document(collection_id, document_draft(chunks), chunks)
        rows = await tenant_db.fetch_all("SELECT language FROM vectorforge.chunk_terms")
        assert rows == [{"language": "german"}]


class TestHttp:
    @pytest.fixture
    async def client(self, app_url: str, make_tenant: Callable[[], str]) -> AsyncIterator[httpx2.AsyncClient]:
        tenant = make_tenant()
        async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as opened:
            yield opened

    async def test_search_settings_are_created_and_changed(self, client: httpx2.AsyncClient) -> None:
        path = f"/v1/collections/{await new_collection(client, 'handbook')}"
        assert settings_of((await client.get(path)).json()) == BY_DEFAULT
        wanted = {"search_mode": "lexical", "dense_weight": 0.25, "language": "french"}
        made = await client.post("/v1/collections", json={"name": "manuel", **wanted})
        assert made.status_code == 201
        assert settings_of(made.json()) == ("lexical", 0.25, "french")
        changed = await client.patch(path, json={"dense_weight": 0.75})
        assert changed.status_code == 200
        assert settings_of(changed.json()) == ("hybrid", 0.75, "english")
        assert (await client.get(path)).json() == changed.json()
        assert changed.json()["terms_complete"] is True

    @pytest.mark.parametrize(
        ("body", "field"),
        [
            ({}, "search_mode"),
            ({"search_mode": "sparse"}, "search_mode"),
            ({"dense_weight": 2}, "dense_weight"),
            ({"dense_weight": "much"}, "dense_weight"),
            ({"language": "klingon"}, "language"),
            ({"dimension": 3}, "dimension"),
        ],
    )
    async def test_invalid_search_settings_return_422_unchanged(
        self, client: httpx2.AsyncClient, body: dict[str, Any], field: str
    ) -> None:
        path = f"/v1/collections/{await new_collection(client, 'handbook')}"
        response = await client.patch(path, json=body)
        assert response.status_code == 422
        assert field in response.text
        assert settings_of((await client.get(path)).json()) == BY_DEFAULT
