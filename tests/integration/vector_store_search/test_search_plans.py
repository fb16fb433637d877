"""Query plans of a search, and the indexes that they use."""

import re
from collections.abc import Callable
from typing import Any
from uuid import UUID, uuid4

import pytest

from tests.integration.vector_store_search.conftest import fill
from tests.support.rag.collections import insert_collection
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.filters.sql import SearchFilter
from vectorforge.vectorstore.search.matches import SearchPlan, SearchShape
from vectorforge.vectorstore.search.search import PlanCache
from vectorforge.vectorstore.search.statement import SearchConstants, search_sql
from vectorforge.vectorstore.search.vectors import index_kind
from vectorforge.vectorstore.search.words import PRUNED_FROM, PRUNED_FROM_IF_FILTERED
from vectorforge.vectorstore.validation import single_precision, wire_vector


async def explain(db: TenantDatabase, statement: str, params: dict[str, Any]) -> str:
    """Return the plan of a statement after entering a search, as the store runs it."""
    async with db.transaction() as connection:
        await connection.execute("SELECT vectorforge.enter_tenant(%s)", (db.tenant_id,))
        rows = await (await connection.execute(f"EXPLAIN {statement}".encode(), params)).fetchall()
    return "\n".join(row["QUERY PLAN"][:200] for row in rows)  # without the vector


def search_params(db: TenantDatabase, query: list[float], condition: SearchFilter | None) -> dict[str, Any]:
    return {
        **(condition.params if condition else {}),
        "tenant": db.tenant_id,
        "scan_tuples": None,
        "query": wire_vector(single_precision(query, field="query_vector")),
        "query_text": "text",
        "context_text": None,
        "dense_weight": 0.5,
    }


def sql(
    collection_id: UUID,
    mode: SearchMode,
    metric: DistanceMetric,
    dimension: int,
    condition: SearchFilter | None,
    *,
    plan: SearchPlan = SearchPlan.CHOSEN,
    of_profile: bool = False,
    large: bool = False,
) -> str:
    space = f"{metric.value}_{dimension}"
    kind = index_kind(space, dimension)
    shape = SearchShape(
        mode, metric, dimension, kind, condition is not None, of_profile, narrowed=False, large=large
    )
    constants = SearchConstants(
        collection_id,
        space,
        top_k=10,
        limit=10_000,
        depth=10,
        candidates=10 * kind.candidates_per_row,
        ef_search=200,
    )
    return search_sql(shape, plan, constants, condition.sql if condition else "TRUE")


# C14 C34 D2
@pytest.mark.parametrize("filters", [None, {"kind": "rare"}])
@pytest.mark.parametrize("metric", list(DistanceMetric))
@pytest.mark.parametrize("dimension", [8, 3072])
@pytest.mark.parametrize("mode", [SearchMode.DENSE, SearchMode.HYBRID])
@pytest.mark.parametrize("way", list(SearchPlan))
async def test_search_plan_uses_expected_index(
    indexed_database: Database,
    make_tenant: Callable[[], str],
    way: SearchPlan,
    mode: SearchMode,
    dimension: int,
    metric: DistanceMetric,
    filters: dict[str, Any] | None,
) -> None:
    db = indexed_database.for_tenant(make_tenant())
    collection_id, vectors = await fill(db, dimension, [{"kind": "rare"}] * 3, metric=metric)
    condition = SearchFilter.of(parse(filters), collection_id) if filters else None
    statement = sql(collection_id, mode, metric, dimension, condition, plan=way)
    partition = f"embeddings_{metric.value}_{dimension}"
    plan = await explain(db, statement, search_params(db, vectors[0], condition))
    parts = {part.split("\n")[0]: part for part in plan.split("\n  CTE ")}
    for name, part in parts.items():  # one partition, and its index only where it is used
        assert "embeddings_" not in part.replace(partition, ""), plan
        assert (f"Index Scan using {partition}_hnsw" in part) == (name == "near"), plan
    assert ("near" in parts) == (way is not SearchPlan.COMPARED)
    # unused branches are not executed, and an index scan's settings precede it
    if way is not SearchPlan.COMPARED:
        assert re.search(r"One-Time Filter: \(*InitPlan \d+\)\.col1", parts["near"]), plan
    if way is SearchPlan.CHOSEN:
        legs = 3 if filters else 1  # all compared by key, or the collection's in two parts
        assert len(re.findall(r"One-Time Filter: .*InitPlan \d+\)\.col", parts["dense"])) == legs, plan


# A profile's chunks are found by its documents, also before the tables have statistics
@pytest.mark.parametrize("filters", [None, {"lang": "en"}])
async def test_profile_search_plan_restricts_embeddings_by_document_index(
    indexed_database: Database, make_tenant: Callable[[], str], filters: dict[str, Any] | None
) -> None:
    db = indexed_database.for_tenant(make_tenant())
    collection_id = await insert_collection(db, 4, DistanceMetric.COSINE, by_profile=True)
    condition = SearchFilter.of(parse(filters), collection_id) if filters else None
    statement = sql(collection_id, SearchMode.HYBRID, DistanceMetric.COSINE, 4, condition, of_profile=True)
    params = {**search_params(db, [1, 0, 0, 0], condition), "profile": 7}
    plan = await explain(db, statement, params)
    assert "Index Cond: ((tenant_id = " in plan
    assert "(document_id = ANY (" in plan
    assert "Join Filter: (p.document_id" not in plan
    assert "_hnsw" in plan


# Issue 18: where all words are rare, the statement of a large collection finds the same
@pytest.mark.parametrize("filters", [None, {"kind": "rare"}])
@pytest.mark.parametrize(
    ("mode", "way"),
    [(SearchMode.LEXICAL, SearchPlan.CHOSEN), (SearchMode.HYBRID, SearchPlan.CHOSEN),
     (SearchMode.HYBRID, SearchPlan.INDEX)],
)  # fmt: skip
async def test_statement_of_large_collection_returns_the_same_rows(
    indexed_database: Database,
    make_tenant: Callable[[], str],
    mode: SearchMode,
    way: SearchPlan,
    filters: dict[str, Any] | None,
) -> None:
    db = indexed_database.for_tenant(make_tenant())
    collection_id, vectors = await fill(db, 8, [{"kind": "rare"}, {"kind": "other"}] * 15)
    condition = SearchFilter.of(parse(filters), collection_id) if filters else None
    params = {**search_params(db, vectors[0], condition), "scan_tuples": 1_000, "query_text": "heading 4 16"}
    found = []
    for large in (False, True):
        statement = sql(collection_id, mode, DistanceMetric.COSINE, 8, condition, plan=way, large=large)
        rows = await db.fetch_all(statement, params)
        found.append({row["ordinal"]: (row["lexical_score"], row["relevance"]) for row in rows})
    assert found[0].keys() >= {4, 16}
    assert found[1].keys() == found[0].keys()
    for ordinal, scores in found[0].items():
        assert found[1][ordinal] == pytest.approx(scores, rel=1e-9)


def test_plan_cache_knows_large_collections_until_they_shrink() -> None:
    cache, collection = PlanCache(), uuid4()
    for chunks, large in ((PRUNED_FROM, False), (PRUNED_FROM + 1, True), (10, False)):
        cache.note_size(collection, chunks)
        assert cache.is_large(collection, filtered=False) is large
        assert not cache.is_large(collection, filtered=True)
    cache.note_size(collection, PRUNED_FROM_IF_FILTERED + 1)
    assert cache.is_large(collection, filtered=True)
