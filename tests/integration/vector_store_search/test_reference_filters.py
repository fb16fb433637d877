"""Filters in PostgreSQL compared with the reference evaluator."""

import random
from collections.abc import Callable
from typing import Any
from uuid import UUID

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.integration.vector_store_search.conftest import COSINE, fill, texts
from tests.support.postgres.pin_detector import PinDetector
from tests.support.rag.random_filters import NAMES, POOL, random_metadata
from vectorforge.db.connection import Database
from vectorforge.errors import FilterError
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.pgvector import PgVectorStore


def accepted(filters: dict[str, Any]) -> bool:
    try:
        parse(filters)
    except FilterError:
        return False
    return True


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
        max_examples=250,
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

    # C34: a statement over 16 KB pins a connection of RDS Proxy, so no filter may cause one
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
