"""Hybrid, dense and lexical searches through the API surfaces, and their reported modes."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest

from tests.support.postgres.vector_indexes import index_space
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, expected_distance, random_vector
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import DistanceMetric, Scan, ScanReason
from vectorforge.vectorstore.pgvector import PgVectorStore

COSINE = DistanceMetric.COSINE


async def fill(db: TenantDatabase, vectors: list[list[float]]) -> UUID:
    """Create one chunk for each vector; its text is its position."""
    collection_id = await insert_collection(db, len(vectors[0]), COSINE)
    chunks = chunk_drafts([f"n{position}" for position in range(len(vectors))], vectors)
    await PgVectorStore(db).replace_document(collection_id, document_draft(chunks), chunks)
    return collection_id


# D2: PgBouncer sends every call to any backend, and no plan may be cached between calls
async def test_hybrid_search_over_fifty_calls_reaches_recall_by_exact_and_index_scan(
    database: Database, make_tenant: Callable[[], str], postgres_server: EmbeddedPostgres
) -> None:
    db = database.for_tenant(make_tenant())
    generator = random.Random(5)
    vectors = [random_vector(generator, 37) for _ in range(1500)]  # no other test's dimension
    collection_id = await fill(db, vectors)
    index_space(postgres_server.migrator_url, "cosine_37")
    ways: list[tuple[int, ScanReason]] = [(10_000, "few"), (100, "many")]
    for exact_scan_limit, reason in ways:
        store = PgVectorStore(db, exact_scan_limit=exact_scan_limit)
        found_in_all = 0
        for _ in range(50):
            query = random_vector(generator, 37)
            found = await store.search(
                query_vector=query, query_text="n7", top_k=10, dense_weight=1.0,
                collection_id=collection_id, metric=COSINE,
            )  # fmt: skip
            order = sorted(range(1500), key=lambda n: expected_distance(COSINE, vectors[n], query))
            assert len(found) == 10
            assert found.scan == Scan.for_reason(reason)
            found_in_all += len({f"n{n}" for n in order[:10]} & {hit.chunk.text for hit in found})
        assert found_in_all >= 0.97 * 500


@pytest.mark.parametrize("reason", ["few", "unindexed"])
async def test_exact_scan_reports_its_reason(tenant_db: TenantDatabase, reason: ScanReason) -> None:
    vectors = [random_vector(random.Random(number), 4001) for number in range(12)]
    collection_id = await fill(tenant_db, vectors)
    store = PgVectorStore(tenant_db, exact_scan_limit=10_000 if reason == "few" else 3)
    options: dict[str, Any] = {"top_k": 20, "collection_id": collection_id, "metric": COSINE}
    found = await store.search(query_vector=vectors[0], query_text="n3", **options)
    assert found.scan == Scan("exact", reason)
    assert (len(found), found.matched) == (12, 12)


# a filter is combined with the ranking in one of three plans, by its selectivity
@pytest.mark.parametrize("exact_scan_limit", [5, 25, 10_000])
async def test_lexical_search_with_filter_returns_all_matches(
    tenant_db: TenantDatabase, exact_scan_limit: int
) -> None:
    collection_id = await insert_collection(tenant_db, 2, COSINE)
    texts = [f"cats n{position}" for position in range(60)]
    chunks = chunk_drafts(texts, [[1.0, 0.0]] * 60, [{"even": position % 2 == 0} for position in range(60)])
    await PgVectorStore(tenant_db).replace_document(collection_id, document_draft(chunks), chunks)
    store = PgVectorStore(tenant_db, exact_scan_limit=exact_scan_limit)
    options: dict[str, Any] = {"collection_id": collection_id, "metric": COSINE, "query_text": "cats"}
    found = await store.search(query_vector=None, top_k=60, filters={"even": True}, **options)
    assert {hit.chunk.text for hit in found} == set(texts[::2])
