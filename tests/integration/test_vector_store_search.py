"""Searching PostgreSQL: the two ways to an answer, and filters compared with the reference evaluator."""

import random
import re
from collections.abc import AsyncIterator, Callable, Sequence
from typing import Any, LiteralString
from uuid import UUID

import psycopg
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from psycopg import sql
from psycopg.conninfo import make_conninfo

from tests.support.postgres.pin_detector import PinDetector
from tests.support.postgres.vector_indexes import index_new_spaces
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, expected_distance, random_vector
from tests.support.rag.random_filters import NAMES, POOL, random_metadata
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError, FilterError, NotFoundError
from vectorforge.types import DistanceMetric, RetrievedChunk, SearchMode
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.pgvector import PgVectorStore
from vectorforge.vectorstore.search import statement as search_sql
from vectorforge.vectorstore.search.branches import SearchPlan
from vectorforge.vectorstore.validation import single_precision, wire_vector

COSINE = DistanceMetric.COSINE


async def fill(
    db: TenantDatabase,
    dimension: int,
    metadata: list[dict[str, Any]],
    *,
    metric: DistanceMetric = COSINE,
    seed: int = 1,
) -> tuple[UUID, list[list[float]]]:
    """One document with a random vector for each metadata; the chunks' texts are their positions."""
    generator = random.Random(seed)
    collection_id = await insert_collection(db, dimension, metric)
    vectors = [random_vector(generator, dimension) for _ in metadata]
    chunks = chunk_drafts([str(position) for position in range(len(metadata))], vectors, metadata)
    await PgVectorStore(db).replace_document(collection_id, document_draft(chunks), chunks)
    return collection_id, vectors


def nearest(vectors: list[list[float]], query: list[float], metric: DistanceMetric = COSINE) -> list[str]:
    order = sorted(range(len(vectors)), key=lambda n: expected_distance(metric, vectors[n], query))
    return [str(position) for position in order]


def accepted(filters: dict[str, Any]) -> bool:
    try:
        parse(filters)
    except FilterError:
        return False
    return True


def texts(found: Sequence[RetrievedChunk]) -> list[str]:
    return [result.chunk.text for result in found]


scalars = (
    st.sampled_from(POOL)
    | st.floats(allow_nan=False, allow_infinity=False)
    | st.integers(-(10**30), 10**30)
    | st.text(st.characters(exclude_characters="\0", exclude_categories=["Cs"]), max_size=3)
)
keys = st.lists(st.sampled_from(NAMES), min_size=1, max_size=2).map(".".join)
comparable = scalars.filter(lambda value: value is not None and not isinstance(value, bool))
operators = st.one_of(
    st.tuples(st.sampled_from(["$eq", "$ne"]), scalars | st.lists(scalars, max_size=3)),
    st.tuples(st.sampled_from(["$gt", "$gte", "$lt", "$lte"]), comparable),
    st.tuples(st.sampled_from(["$in", "$nin"]), st.lists(scalars, max_size=12)),
    st.tuples(st.just("$contains"), scalars),
    st.tuples(st.just("$exists"), st.booleans()),
)
tests_of_a_key = st.lists(operators, min_size=1, max_size=2).map(dict)
conditions = st.one_of(
    scalars,
    st.lists(scalars, max_size=3),
    tests_of_a_key,
    st.builds(lambda inner: {"$not": inner}, tests_of_a_key),
)
filters_by_key = st.dictionaries(keys, conditions, min_size=1, max_size=2)
random_filters = st.recursive(
    filters_by_key,
    lambda inner: st.one_of(
        st.builds(
            lambda name, parts: {name: parts}, st.sampled_from(["$and", "$or"]), st.lists(inner, min_size=1)
        ),
        st.builds(lambda part: {"$not": part}, inner),
        st.builds(lambda left, right: {**left, **right}, inner, filters_by_key),
    ),
    max_leaves=4,
)


# C18 B-024 B-025
class TestReferenceFilters:
    """200 chunks of random metadata: a search must find exactly what the reference evaluator finds."""

    @pytest.fixture
    async def seed(self) -> int:
        return random.randrange(2**32)

    @pytest.fixture
    async def stored(
        self, direct_database: Database, make_tenant: Callable[[], str], seed: int
    ) -> tuple[PgVectorStore, UUID, list[dict[str, Any]]]:
        db = direct_database.for_tenant(make_tenant())
        generator = random.Random(seed)
        metadata = [random_metadata(generator) for _ in range(200)]
        collection_id, _ = await fill(db, 3, metadata)
        return PgVectorStore(db), collection_id, metadata

    async def compare(
        self, stored: tuple[PgVectorStore, UUID, list[dict[str, Any]]], filters: dict[str, Any], seed: int
    ) -> None:
        store, collection_id, metadata = stored
        found = await store.search(
            query_vector=[1, 0, 0], top_k=200, collection_id=collection_id, metric=COSINE, filters=filters
        )
        condition = parse(filters)
        expected = {str(position) for position, entry in enumerate(metadata) if matches(condition, entry)}
        assert set(texts(found)) == expected, f"seed {seed}"
        assert len(found) == len(expected)

    @settings(
        max_examples=1000,
        deadline=None,
        suppress_health_check=[HealthCheck.function_scoped_fixture, HealthCheck.too_slow],
    )
    @given(filters=random_filters)
    async def test_random_filters_match_the_reference(
        self, stored: tuple[PgVectorStore, UUID, list[dict[str, Any]]], seed: int, filters: dict[str, Any]
    ) -> None:
        await self.compare(stored, filters, seed)

    async def test_scalar_operators_match_the_reference(
        self, stored: tuple[PgVectorStore, UUID, list[dict[str, Any]]], seed: int
    ) -> None:
        for value in POOL:
            await self.compare(stored, {"a": value}, seed)
            await self.compare(stored, {"a": {"$contains": value}}, seed)
            await self.compare(stored, {"a": [value]}, seed)
            if value is not None and not isinstance(value, bool):
                await self.compare(stored, {"$or": [{"a": {"$lt": value}}, {"b": {"$gte": value}}]}, seed)
        await self.compare(stored, {"a": {"$in": POOL}}, seed)

    async def test_largest_filter_matches_the_reference(
        self, stored: tuple[PgVectorStore, UUID, list[dict[str, Any]]], seed: int
    ) -> None:
        many = [*range(500), *(f"value {number}" for number in range(500))]
        await self.compare(stored, {"$or": [{name: {"$in": many}} for name in NAMES]}, seed)
        await self.compare(stored, {"$or": [{"a": {"$eq": number}} for number in range(99)]}, seed)
        await self.compare(stored, {".".join(["a"] * 10): {"$exists": False}}, seed)

    # C34: a statement over 16 KB pins a connection of RDS Proxy, so none may come of a filter
    async def test_longest_filter_matches_the_reference_within_statement_limit(
        self,
        stored: tuple[PgVectorStore, UUID, list[dict[str, Any]]],
        seed: int,
        pin_detector: PinDetector,
    ) -> None:
        for condition in ({"a": {"$contains": "x"}}, {".".join(["a"] * 10): {"$nin": [1, "x"]}}):
            number = next(n for n in range(100, 0, -1) if accepted({"$or": [condition] * n}))
            assert 10 < number < 99
            await self.compare(stored, {"$or": [condition] * number}, seed)
            assert 11_000 < pin_detector.longest_statement <= 16 * 1024


def app_url_with(settings: list[LiteralString], admin_url: str) -> str:
    """The app's URL of a database that has these settings. In a URL they would not pass RDS Proxy."""
    with psycopg.connect(admin_url, autocommit=True) as connection:
        name = sql.Identifier(connection.info.dbname)
        for setting in settings:
            connection.execute(sql.SQL("ALTER DATABASE {} SET {}").format(name, sql.SQL(setting)))
    return make_conninfo(admin_url, user="vectorforge_app")


@pytest.fixture
async def indexed_database(make_database: Callable[..., str]) -> AsyncIterator[Database]:
    """A database whose planner takes an ordered index wherever one fits, though the tables are small."""
    index_new_spaces(superuser := make_database())
    url = app_url_with(["enable_sort = off"], superuser)
    async with Database(url, pool_size=5, timeout_s=10) as opened:
        yield opened


@pytest.fixture
async def impatient_database(make_database: Callable[..., str]) -> AsyncIterator[Database]:
    """The same, where index scans give up after their first candidates (as large ones do after 20,000)."""
    index_new_spaces(superuser := make_database())
    url = app_url_with(["enable_sort = off", "hnsw.max_scan_tuples = 1"], superuser)
    async with Database(url, pool_size=5, timeout_s=10) as opened:
        yield opened


async def explain(db: TenantDatabase, statement: str, params: dict[str, Any]) -> str:
    """The plan of a statement after entering a search, as the store would run it."""
    async with db.transaction() as connection:
        await connection.execute("SELECT vectorforge.enter_tenant(%s)", (db.tenant_id,))
        rows = await (await connection.execute(f"EXPLAIN {statement}".encode(), params)).fetchall()
    return "\n".join(row["QUERY PLAN"][:200] for row in rows)  # without the vector


def search_params(
    db: TenantDatabase, collection_id: UUID, query: list[float], statement: search_sql.SearchStatement
) -> dict[str, Any]:
    return {
        **statement.filter_params,
        "tenant": db.tenant_id,
        "collection": collection_id,
        "space": f"cosine_{len(query)}",
        "partition": f"vectorforge.embeddings_cosine_{len(query)}",
        "ef_search": 200,
        "scan_tuples": None,
        "query": wire_vector(single_precision(query, field="query_vector")),
        "top_k": 10,
        "depth": 10,
        "candidates": 10 * statement.candidates_per_row,
        "limit": 10_000,
        "query_text": "text",
        "lexical_limit": 10,
        "dense_weight": 0.5,
    }


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
    condition = search_sql.compile_filter(parse(filters))
    statement = search_sql.build(mode, metric, dimension, condition, plan=way)
    partition = f"embeddings_{metric.value}_{dimension}"
    params = {
        **search_params(db, collection_id, vectors[0], statement),
        "space": f"{metric.value}_{dimension}",
        "partition": f"vectorforge.{partition}",
    }
    plan = await explain(db, statement.sql, params)
    parts = {part.split("\n")[0]: part for part in plan.split("\n  CTE ")}
    for name, part in parts.items():  # one partition, and its index only where it is asked
        assert "embeddings_" not in part.replace(partition, ""), plan
        assert (f"Index Scan using {partition}_hnsw" in part) == (name == "near"), plan
    assert ("near" in parts) == (way is not SearchPlan.COMPARED)
    # a way not taken is not begun, and the settings of an index scan are made before it begins
    if way is not SearchPlan.COMPARED:
        assert re.search(r"One-Time Filter: \(*InitPlan \d+\)\.col1", parts["near"]), plan
    if way is SearchPlan.CHOSEN:
        assert len(re.findall(r"One-Time Filter: \(*InitPlan \d+\)\.col1 <> 'many'", parts["dense"])) == 1, (
            plan
        )


# D2
class TestIndexSearch:
    async def test_rare_filter_returns_exact_top_k(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        metadata = [{"kind": "rare" if position % 200 == 0 else "common"} for position in range(3000)]
        collection_id, vectors = await fill(db, 16, metadata)
        rare = [vector for position, vector in enumerate(vectors) if position % 200 == 0]
        store = PgVectorStore(db, exact_scan_limit=5, ef_search=10)
        generator = random.Random(3)
        for top_k in (1, 10, 15, 20):
            for _ in range(10):
                query = random_vector(generator, 16)
                found = await store.search(
                    query_vector=query,
                    top_k=top_k,
                    collection_id=collection_id,
                    metric=COSINE,
                    filters={"kind": "rare"},
                )
                assert len(found) == min(top_k, 15)
                assert {result.chunk.metadata["kind"] for result in found} == {"rare"}
                distances = [result.distance for result in found]
                assert distances == sorted(distances)
                if top_k >= 15:
                    assert texts(found) == [str(200 * int(n)) for n in nearest(rare, query)]

    # faults.md 29: other tenants' vectors fill the index
    async def test_small_tenant_among_large_ones_receives_all_its_chunks(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        large, small = (indexed_database.for_tenant(make_tenant()) for _ in range(2))
        await fill(large, 17, [{}] * 3000, seed=5)
        collection_id, vectors = await fill(small, 17, [{}] * 12, seed=6)
        query = random_vector(random.Random(7), 17)
        for limit in (0, 10_000):
            store = PgVectorStore(small, exact_scan_limit=limit, ef_search=10)
            found = await store.search(
                query_vector=query, top_k=12, collection_id=collection_id, metric=COSINE
            )
            assert texts(found) == nearest(vectors, query)

    async def test_aborted_index_scan_falls_back_to_exact_scan(
        self, impatient_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = impatient_database.for_tenant(make_tenant())
        metadata = [{"kind": "rare" if position % 200 == 0 else "common"} for position in range(3000)]
        collection_id, vectors = await fill(db, 18, metadata)
        rare = vectors[::200]
        query = random_vector(random.Random(3), 18)
        found = await PgVectorStore(db, exact_scan_limit=5, ef_search=10).search(
            query_vector=query, top_k=10, collection_id=collection_id, metric=COSINE, filters={"kind": "rare"}
        )
        assert texts(found) == [str(200 * int(n)) for n in nearest(rare, query)[:10]]

    async def test_match_count_is_exact_or_lower_bound(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        metadata = [{"kind": "rare" if position % 10 == 0 else "common"} for position in range(300)]
        collection_id, vectors = await fill(db, 8, metadata)
        store = PgVectorStore(db, exact_scan_limit=100, ef_search=200)

        async def count(top_k: int = 5, **filters: Any) -> tuple[int | None, bool]:
            found = await store.search(
                query_vector=vectors[0],
                top_k=top_k,
                collection_id=collection_id,
                metric=COSINE,
                filters=filters,
            )
            assert len(found) == min(top_k, found.matched or 0)
            return found.matched, found.matched_is_at_least

        assert await count(kind="rare") == (30, False)
        assert await count(kind="none") == (0, False)
        assert await count() == (300, False)  # the collection's own count
        assert await count(kind="common") == (100, True)  # where counting stops
        assert await count(280, kind="common") == (270, False)  # the index gave too few: all were compared

    # C14: HNSW on vector(3072) is impossible; half precision finds, full precision ranks
    @pytest.mark.parametrize("metric", list(DistanceMetric))
    async def test_vectors_above_2000_dimensions_use_half_precision_index(
        self, indexed_database: Database, make_tenant: Callable[[], str], metric: DistanceMetric
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        collection_id, vectors = await fill(db, 3072, [{}] * 60, metric=metric)
        query = random_vector(random.Random(7), 3072)
        found = await PgVectorStore(db, exact_scan_limit=0).search(
            query_vector=query, top_k=10, collection_id=collection_id, metric=metric
        )
        assert texts(found) == nearest(vectors, query, metric)[:10]
        for result in found:
            exact = expected_distance(metric, vectors[int(result.chunk.text)], query)
            assert result.distance == pytest.approx(exact, rel=1e-5, abs=1e-5)

    async def test_vectors_above_4000_dimensions_use_exact_scan(
        self, indexed_database: Database, make_tenant: Callable[[], str]
    ) -> None:
        db = indexed_database.for_tenant(make_tenant())
        collection_id, vectors = await fill(db, 4001, [{}] * 8)
        found = await PgVectorStore(db, exact_scan_limit=0).search(
            query_vector=vectors[3], top_k=3, collection_id=collection_id, metric=COSINE
        )
        assert texts(found) == nearest(vectors, vectors[3])[:3]


# A profile's chunks are found by its documents, also before the tables have statistics
@pytest.mark.parametrize("filters", [None, {"lang": "en"}])
async def test_profile_search_plan_restricts_embeddings_by_document_index(
    indexed_database: Database, make_tenant: Callable[[], str], filters: dict[str, Any] | None
) -> None:
    db = indexed_database.for_tenant(make_tenant())
    collection_id = await insert_collection(db, 4, DistanceMetric.COSINE, by_profile=True)
    condition = search_sql.compile_filter(parse(filters))
    statement = search_sql.build(SearchMode.HYBRID, DistanceMetric.COSINE, 4, condition, of_profile=True)
    params = {**search_params(db, collection_id, [1, 0, 0, 0], statement), "profile": 7}
    plan = await explain(db, statement.sql, params)
    assert "Index Cond: ((tenant_id = " in plan
    assert "(document_id = ANY (" in plan
    assert "Join Filter: (p.document_id" not in plan
    assert "_hnsw" in plan


async def test_search_with_other_metric_raises_conflict(tenant_db: TenantDatabase) -> None:
    collection_id, _ = await fill(tenant_db, 3, [{}] * 3)
    with pytest.raises(ConflictError, match="cosine"):
        await PgVectorStore(tenant_db).search(
            query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=DistanceMetric.L2
        )


# D11: the same ids asked for by another tenant
async def test_collection_of_other_tenant_is_neither_readable_nor_writable(
    tenant_db: TenantDatabase, other_tenant_db: TenantDatabase
) -> None:
    collection_id, _ = await fill(tenant_db, 3, [{"kind": "secret"}] * 3)
    mine, other = PgVectorStore(tenant_db), PgVectorStore(other_tenant_db)
    for limit in (0, 10_000):
        intruder = PgVectorStore(other_tenant_db, exact_scan_limit=limit)
        for filters in (None, {"kind": "secret"}, {"kind": {"$ne": 1}}):
            assert (
                await intruder.search(
                    query_vector=[1, 0, 0],
                    top_k=3,
                    collection_id=collection_id,
                    metric=COSINE,
                    filters=filters,
                )
                == []
            )
    found = await mine.search(query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=COSINE)
    assert len(found) == 3
    assert await other.delete_document(found[0].chunk.document_id) is False
    chunks = chunk_drafts(["x"], [[1, 0, 0]])
    with pytest.raises(NotFoundError):
        await other.replace_document(collection_id, document_draft(chunks), chunks)
    assert (
        await mine.search(query_vector=[1, 0, 0], top_k=3, collection_id=collection_id, metric=COSINE)
        == found
    )
