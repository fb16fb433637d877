"""10,000 random filters: PostgreSQL and memory match the same chunks as the reference evaluator."""

import json
import random
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

import pytest

from tests.support.rag.collections import insert_collection
from tests.support.rag.drafts import chunk_drafts, document_draft, random_vector
from tests.support.rag.random_filters import RandomFilters, random_metadata
from tests.support.rag.reference_store import ReferenceVectorStore
from vectorforge.db.connection import Database
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.base import VectorStore
from vectorforge.vectorstore.filters.language import matches
from vectorforge.vectorstore.filters.parse import parse
from vectorforge.vectorstore.filters.sql import FilterCompiler
from vectorforge.vectorstore.pgvector import PgVectorStore

SEEDS = range(4)
FILTERS = 1_000
"""Filters for each seed."""
CHUNKS = 100
SEARCHED = 25
"""The first filters of each seed, which are also used in searches, with every plan."""
STATEMENT_CHARS = 13_000
"""Bytes of the conditions in one statement; more than 16 KB would pin a connection of RDS Proxy (C34)."""
OPERATORS = ["$eq", "$ne", "$gt", "$gte", "$lt", "$lte", "$in", "$nin", "$exists", "$contains"]


@dataclass(frozen=True)
class Stored:
    """The same chunks in PostgreSQL and in memory."""

    db: TenantDatabase
    memory: ReferenceVectorStore
    collection_id: UUID
    metadata: Sequence[Mapping[str, Any]]
    """Metadata of the chunk at each position."""


@dataclass(frozen=True)
class Case:
    """A filter, and the positions that match by the reference."""

    filters: Mapping[str, Any]
    expected: Sequence[bool]


async def store_chunks(db: TenantDatabase, generator: random.Random) -> Stored:
    metadata = [random_metadata(generator) for _ in range(CHUNKS)]
    vectors = [random_vector(generator, 3) for _ in metadata]
    chunks = chunk_drafts([f"number {n}" for n in range(CHUNKS)], vectors, metadata)
    collection_id = await insert_collection(db, 3, DistanceMetric.COSINE)
    memory = ReferenceVectorStore()
    for store in (PgVectorStore(db), memory):
        await store.replace_document(collection_id, document_draft(chunks), chunks)
    return Stored(db, memory, collection_id, metadata)


def make_cases(stored: Stored, generator: random.Random, number: int) -> list[Case]:
    filters = RandomFilters(generator, stored.metadata)
    made = [filters.make() for _ in range(number)]
    return [Case(one, reference(one, stored.metadata)) for one in made]


def reference(filters: Mapping[str, Any], metadata: Sequence[Mapping[str, Any]]) -> list[bool]:
    condition = parse(filters)
    return [matches(condition, entry) for entry in metadata]


def statements(cases: Sequence[Case]) -> Iterator[tuple[Sequence[Case], str, dict[str, Any]]]:
    """Yield statements with a column for each filter, as many as fit."""
    columns: list[str] = []
    params: dict[str, Any] = {}
    begun = 0
    for position, case in enumerate(cases):
        compiler = FilterCompiler("f.metadata", prefix=f"f{position}_")
        column = compiler.compile(parse(case.filters))
        if columns and sum(map(len, [*columns, column])) > STATEMENT_CHARS:
            yield cases[begun:position], ", ".join(columns), params
            columns, params, begun = [], {}, position
        columns.append(f"{column} AS c{position}")
        params |= compiler.params
    yield cases[begun:], ", ".join(columns), params


# C18 B-024 B-025
@pytest.mark.parametrize("seed", SEEDS)
async def test_sql_filter_matches_reference_evaluator(
    direct_database: Database, make_tenant: Callable[[], str], seed: int
) -> None:
    generator = random.Random(seed)
    stored = await store_chunks(direct_database.for_tenant(make_tenant()), generator)
    cases = make_cases(stored, generator, FILTERS)
    compared = 0
    for part, columns, params in statements(cases):
        rows = await stored.db.fetch_all(
            f"SELECT {columns} FROM vectorforge.chunks f "
            "WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s ORDER BY f.ordinal",
            {**params, "tenant": stored.db.tenant_id, "collection": stored.collection_id},
        )
        assert len(rows) == CHUNKS
        for case, matched_rows in zip(part, zip(*(row.values() for row in rows), strict=True), strict=True):
            if list(matched_rows) != list(case.expected):
                raise AssertionError(difference(case, matched_rows, stored, seed))
            compared += 1
    assert compared == FILTERS


def difference(case: Case, matched_rows: Sequence[object], stored: Stored, seed: int) -> str:
    wrong = next(n for n in range(CHUNKS) if matched_rows[n] is not case.expected[n])
    return (
        f"seed {seed}: {json.dumps(case.filters)} on {json.dumps(stored.metadata[wrong])} "
        f"is {matched_rows[wrong]} in SQL and {case.expected[wrong]} by the reference"
    )


# C18: the same through a search, exact and through the index, and in memory
@pytest.mark.parametrize("seed", SEEDS)
async def test_filtered_search_matches_reference_evaluator(
    direct_database: Database, make_tenant: Callable[[], str], seed: int
) -> None:
    generator = random.Random(seed)
    stored = await store_chunks(direct_database.for_tenant(make_tenant()), generator)
    stores: list[VectorStore] = [
        PgVectorStore(stored.db),
        PgVectorStore(stored.db, exact_scan_limit=0),
        stored.memory,
    ]
    for case in make_cases(stored, generator, SEARCHED):
        expected = {f"number {n}" for n, holds in enumerate(case.expected) if holds}
        for store in stores:
            found = await store.search(
                query_vector=[1, 0, 0],
                top_k=CHUNKS,
                collection_id=stored.collection_id,
                metric=DistanceMetric.COSINE,
                filters=case.filters,
            )
            assert {hit.chunk.text for hit in found} == expected, (seed, case.filters)
            assert len(found) == len(expected) == found.matched


def test_generated_filters_distinguish_chunks() -> None:
    """Filters that match all or none prove little: half of them, with every operator, match some."""
    deciding: Counter[str] = Counter()
    total = 0
    for seed in SEEDS[:2]:
        generator = random.Random(seed)
        metadata = [random_metadata(generator) for _ in range(CHUNKS)]
        filters = RandomFilters(generator, metadata)
        for made in (filters.make() for _ in range(FILTERS)):
            if len(set(reference(made, metadata))) == 2:
                text = json.dumps(made)
                total += 1
                deciding.update(name for name in [*OPERATORS, "$and", "$or", "$not"] if f'"{name}"' in text)
                deciding["nested"] += any("." in key for key in keys_of(made))
                deciding["plain"] += any(not isinstance(value, dict) for value in made.values())
    assert total > 1_000
    assert min(deciding.values()) > 80, deciding
    assert len(deciding) == len(OPERATORS) + 5


def keys_of(filters: Mapping[str, Any]) -> Iterator[str]:
    for key, value in filters.items():
        yield key
        for part in value if isinstance(value, list) else [value]:
            if isinstance(part, Mapping):
                yield from keys_of(part)
