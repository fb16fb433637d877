"""A search finds the same with every plan, and chooses the plan by the database's statistics."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import psycopg
import pytest
from psycopg.conninfo import make_conninfo

from tests.integration.index_scans import index_scans
from tests.support.postgres.vector_indexes import index_space
from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, expected_distance, random_vector
from tests.support.rag.random_filters import RandomFilters, random_metadata
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric, Scan
from vectorforge.vectorstore.base import NearestChunks
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.pgvector import PgVectorStore
from vectorforge.vectorstore.search.search import LEG_DEPTH

COSINE = DistanceMetric.COSINE
DIMENSION = 24
CHUNKS = 4_000
SHARES = {"half": 2, "tenth": 10, "hundredth": 100, "thousandth": 1_000}
"""Metadata keys: every n-th chunk of the large collection has the key."""


@pytest.fixture
def owner_url(make_database: Callable[..., str]) -> str:
    """Create a database whose planner uses an ordered index wherever one fits, although tables are small."""
    owner_url = make_database()
    set_for_all(owner_url, "enable_sort = off")
    return owner_url


def set_for_all(owner_url: str, setting: str) -> None:
    """Change a setting for all new connections."""
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute(f"ALTER DATABASE {connection.info.dbname} SET {setting}".encode())


@pytest.fixture
async def opened(owner_url: str) -> Any:
    async with Database(make_conninfo(owner_url, user="vectorforge_app")) as database:
        yield database


class Stored:
    """A collection with the vectors of its chunks, whose texts are their numbers."""

    def __init__(self, db: TenantDatabase, collection_id: UUID, vectors: list[list[float]]) -> None:
        self.db = db
        self.collection_id = collection_id
        self.vectors = vectors

    async def search(self, store: PgVectorStore, query: list[float], **options: Any) -> NearestChunks:
        return await store.search(
            query_vector=query, top_k=10, collection_id=self.collection_id, metric=COSINE, **options
        )

    def recall(self, found: NearestChunks, query: list[float], every: int = 1) -> float:
        """Return the share of the nearest matches that was found."""
        matching = range(0, len(self.vectors), every)
        nearest = sorted(matching, key=lambda n: expected_distance(COSINE, self.vectors[n], query))[:10]
        return len({str(n) for n in nearest} & {hit.chunk.text for hit in found}) / len(nearest)


async def fill(db: TenantDatabase, count: int, seed: int, *, around: list[float] | None = None) -> Stored:
    generator = random.Random(seed)
    vectors = [random_vector(generator, DIMENSION) for _ in range(count)]
    if around is not None:
        vectors = [[a + 0.1 * b for a, b in zip(around, vector, strict=True)] for vector in vectors]
    collection_id = await insert_collection(db, DIMENSION, COSINE)
    metadata = [{name: n % every for name, every in SHARES.items()} for n in range(count)]
    chunks = chunk_drafts([str(n) for n in range(count)], vectors, metadata)
    await PgVectorStore(db).replace_document(collection_id, document_draft(chunks), chunks)
    return Stored(db, collection_id, vectors)


def analyze(owner_url: str) -> None:
    with psycopg.connect(owner_url, autocommit=True) as connection:
        connection.execute("ANALYZE")


# D2: the campaign of tests/benchmarks/figures/selectivity.py at a small size
async def test_search_on_mixed_partition_returns_full_top_k_with_recall(
    opened: Database, owner_url: str
) -> None:
    large = await fill(opened.for_tenant("large"), CHUNKS, 1)
    centre = random_vector(random.Random(2), DIMENSION)
    clustered = [
        await fill(opened.for_tenant(f"small-{count}"), count, 3, around=centre) for count in (4, 100, 1_000)
    ]
    index_space(owner_url, f"cosine_{DIMENSION}")
    analyze(owner_url)
    store = PgVectorStore(large.db, exact_scan_limit=500)
    generator = random.Random(4)
    for name, every in [("", 1), *SHARES.items()]:
        recalls = []
        for _ in range(20):
            query = random_vector(generator, DIMENSION)
            found = await large.search(store, query, filters={name: 0} if name else None)
            assert len(found) == min(10, CHUNKS // every), name
            recalls.append(large.recall(found, query, every))
        assert sum(recalls) / len(recalls) >= 0.97, (name, recalls)
    for small in clustered:
        store = PgVectorStore(small.db, exact_scan_limit=500)
        for _ in range(10):
            query = [a + 0.1 * b for a, b in zip(centre, random_vector(generator, DIMENSION), strict=True)]
            found = await small.search(store, query)
            assert len(found) == min(10, len(small.vectors))
            assert small.recall(found, query) >= 0.9


# D2: the nearest are behind the vectors of another tenant, whose batches come first
@pytest.mark.slow
async def test_clustered_vectors_of_other_tenant_do_not_reduce_recall(
    opened: Database, owner_url: str
) -> None:
    centre = random_vector(random.Random(2), DIMENSION)
    await fill(opened.for_tenant("others"), CHUNKS, 3, around=centre)
    mine = await fill(opened.for_tenant("mine"), CHUNKS, 1)
    index_space(owner_url, f"cosine_{DIMENSION}")
    analyze(owner_url)
    store, generator, recalls = PgVectorStore(mine.db, exact_scan_limit=500), random.Random(4), []
    for _ in range(40):
        query = [a + 0.7 * b for a, b in zip(centre, random_vector(generator, DIMENSION), strict=True)]
        found = await mine.search(store, query)
        assert found.scan == Scan("index", "many")
        recalls.append(mine.recall(found, query))
    assert sum(recalls) / len(recalls) >= 0.97, recalls


class TestScanReasons:
    async def test_filter_with_few_matches_uses_exact_scan(self, opened: Database, owner_url: str) -> None:
        stored = await fill(opened.for_tenant("a"), CHUNKS, 1)
        index_space(owner_url, f"cosine_{DIMENSION}")
        store, query = PgVectorStore(stored.db, exact_scan_limit=1_000), stored.vectors[7]
        for _ in range(3):  # also once the collection's index is cached
            found = await stored.search(store, query, filters={"thousandth": 0})
            assert (found.scan, found.matched, found.matched_is_at_least) == (Scan("exact", "few"), 4, False)

    async def test_known_index_is_searched_without_counting_matches(
        self, opened: Database, owner_url: str
    ) -> None:
        stored = await fill(opened.for_tenant("a"), CHUNKS, 1)
        index_space(owner_url, f"cosine_{DIMENSION}")
        store, query = PgVectorStore(stored.db, exact_scan_limit=1_000), stored.vectors[7]
        first, second = [await stored.search(store, query, filters={"half": 1}) for _ in range(2)]
        assert first == second
        assert first.scan == second.scan == Scan("index", "many")
        assert first.matched_is_at_least
        assert second.matched_is_at_least
        assert (second.matched or 0) < (first.matched or 0) <= CHUNKS // 2

    async def test_filter_with_insufficient_batch_uses_wider_batch_afterwards(
        self, opened: Database, owner_url: str
    ) -> None:
        stored = await fill(opened.for_tenant("a"), CHUNKS, 1)
        index_space(owner_url, f"cosine_{DIMENSION}")
        store, query = PgVectorStore(stored.db, exact_scan_limit=1_000), stored.vectors[7]
        counted, short, wide = [
            await stored.search(store, query, filters={"half": 1}, query_text="7 9 11") for _ in range(3)
        ]
        assert [hit.chunk.id for hit in counted] == [hit.chunk.id for hit in wide]
        assert counted.scan == short.scan == wide.scan == Scan("index", "many")
        assert counted.matched == 1_000  # half of the batch matched, so all were recounted
        assert short.matched == counted.matched
        assert wide.matched == LEG_DEPTH

    @pytest.mark.parametrize("filters", [{"half": 0}, {"half": {"$lt": 1}}])
    @pytest.mark.parametrize("words", [None, "7 9 12"])
    async def test_many_matches_without_index_are_compared_without_counting_all(
        self, opened: Database, filters: dict[str, Any], words: str | None
    ) -> None:
        stored = await fill(opened.for_tenant("a"), CHUNKS, 1)
        store, query = PgVectorStore(stored.db), stored.vectors[7]
        found = await stored.search(store, query, filters=filters, query_text=words)
        assert (found.scan, found.matched_is_at_least) == (Scan("exact", "few"), True)
        assert 500 <= (found.matched or 0) < CHUNKS // 2
        assert words or stored.recall(found, query, 2) == 1
        assert all(int(hit.chunk.text) % 2 == 0 for hit in found)

    async def test_matches_beyond_nearest_vectors_are_found(self, opened: Database) -> None:
        """The chunks that match are those farthest from the query."""
        stored = await fill(opened.for_tenant("a"), 0, 1)
        vectors = [[1.0, n / 1_000, *[0.0] * (DIMENSION - 2)] for n in range(2_000)]
        metadata = [{"far": n >= 1_000} for n in range(2_000)]
        chunks = chunk_drafts([str(n) for n in range(2_000)], vectors, metadata)
        store = PgVectorStore(stored.db)
        await store.replace_document(stored.collection_id, document_draft(chunks), chunks)
        found = await stored.search(store, vectors[0], filters={"far": True})
        assert found.matched_is_at_least
        assert [hit.chunk.text for hit in found] == [str(n) for n in range(1_000, 1_010)]

    async def test_dropped_index_is_detected(self, opened: Database, owner_url: str) -> None:
        stored = await fill(opened.for_tenant("a"), CHUNKS, 1)
        index_space(owner_url, f"cosine_{DIMENSION}")
        store, query = PgVectorStore(stored.db, exact_scan_limit=1_000), stored.vectors[7]
        assert (await stored.search(store, query)).scan == Scan("index", "many")
        with psycopg.connect(owner_url, autocommit=True) as connection:
            connection.execute(f"DROP INDEX vectorforge.embeddings_cosine_{DIMENSION}_hnsw".encode())
        found = await stored.search(store, query)
        assert stored.recall(found, query) == 1
        assert (await stored.search(store, query)).scan == Scan("exact", "unindexed")

    async def test_small_share_of_large_partition_uses_exact_scan(
        self, opened: Database, owner_url: str
    ) -> None:
        await fill(opened.for_tenant("large"), CHUNKS, 1)
        small = await fill(opened.for_tenant("small"), 5, 2)
        index_space(owner_url, f"cosine_{DIMENSION}")
        analyze(owner_url)
        query = small.vectors[3]
        # a hybrid search needs 30 candidates, and of 801 vectors one is the small collection's
        found = await small.search(PgVectorStore(small.db, exact_scan_limit=4), query, query_text="3")
        assert found.scan == Scan("exact", "sparse")
        assert len(found) == 5
        assert small.recall(await small.search(PgVectorStore(small.db), query), query) == 1

    @pytest.mark.parametrize("times", [1, 2])
    async def test_short_index_result_falls_back_to_exact_scan(
        self, opened: Database, owner_url: str, times: int
    ) -> None:
        """The small collection is far from the query, beyond the vectors of another tenant."""
        near, far = random_vector(random.Random(5), DIMENSION), random_vector(random.Random(6), DIMENSION)
        await fill(opened.for_tenant("large"), CHUNKS, 1, around=near)
        small = await fill(opened.for_tenant("small"), 300, 2, around=far)
        index_space(owner_url, f"cosine_{DIMENSION}")
        set_for_all(owner_url, "hnsw.max_scan_tuples = 1")
        async with Database(make_conninfo(owner_url, user="vectorforge_app")) as impatient:
            store = PgVectorStore(impatient.for_tenant("small"), exact_scan_limit=100, ef_search=10)
            for _ in range(times):
                found = await small.search(store, near)
        assert found.scan == Scan("exact", "short")
        assert (len(found), found.matched, small.recall(found, near)) == (10, 300, 1)


# B-024: the metadata index returns a superset of the matches
class TestMetadataIndex:
    async def test_metadata_index_matches_reference_evaluator(self, owner_url: str) -> None:
        generator = random.Random(seed := random.randrange(2**32))
        metadata = [random_metadata(generator) for _ in range(150)]
        async with Database(make_conninfo(owner_url, user="vectorforge_app")) as database:
            db = database.for_tenant("a")
            collection_id = await insert_collection(db, 3, COSINE)
            vectors = [random_vector(generator, 3) for _ in metadata]
            chunks = chunk_drafts([str(n) for n in range(150)], vectors, metadata)
            await PgVectorStore(db).replace_document(collection_id, document_draft(chunks), chunks)
            # far more than match: the collection is read only if the index is no help
            store = PgVectorStore(db, exact_scan_limit=1_000)
            random_filters = RandomFilters(generator, metadata)
            for _ in range(300):
                filters = random_filters.make()
                found = await store.search(
                    query_vector=[1, 0, 0], top_k=150, collection_id=collection_id, metric=COSINE,
                    filters=filters,
                )  # fmt: skip
                condition = parse(filters)
                expected = {str(n) for n, entry in enumerate(metadata) if matches(condition, entry)}
                assert {hit.chunk.text for hit in found} == expected, (seed, filters)
        assert index_scans(owner_url, "chunks_by_metadata") > 0

    async def test_metadata_index_reveals_nothing_of_other_tenant(self, opened: Database) -> None:
        mine = await fill(opened.for_tenant("a"), 20, 1)
        path = f'$."{mine.collection_id}"."half" == 0'
        ask = "SELECT id FROM vectorforge.filter_candidates(%s::jsonpath, 100)"
        assert len(await mine.db.fetch_all(ask, (path,))) == 10
        assert await opened.for_tenant("b").fetch_all(ask, (path,)) == []
        assert await opened.fetch_untenanted(ask, (path,)) is None
