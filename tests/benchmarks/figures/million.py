"""A collection larger than the server's shared_buffers: its build, and searches of which none is short."""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID

import numpy as np
from figures import selectivity
from figures.measuring import Table, progress
from figures.scale import SHARES, Generator, Holding, Metadata, Scale, holdings
from figures.selectivity import TOP_K
from peers.database import BenchmarkDatabase
from rich.progress import track

from vectorforge.db.connection import Database
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.pgvector import PgVectorStore

SCALE = Scale(1_000_000)
_SEARCHES_PER_QUESTION = 50
"""10,000 random searches with the usual 200 queries of a kind."""
_MOST_CONDITIONS = 3


def measure(database: BenchmarkDatabase, questions: int) -> dict[str, Any]:
    """``measure_million`` with its million chunks, for callers without an event loop."""
    return asyncio.run(measure_million(database, SCALE, questions))


async def measure_million(database: BenchmarkDatabase, scale: Scale, questions: int) -> dict[str, Any]:
    """Store the chunks unless they exist; search them with every plan, then at random.

    Args:
        database: Server on which the chunks stay in a separate database.
        scale: Size of the data.
        questions: Number of queries in each mode; 50 times as many are random.
    """
    async with selectivity.stored_scale(database, scale) as (opened, stored):
        random = await _search_at_random(
            opened, stored["collections"], scale, questions * _SEARCHES_PER_QUESTION
        )
    searches = await selectivity.measure_scale(database, scale, questions)
    build = {name: value for name, value in stored.items() if name != "collections"}
    return {"build": build, "random": random, "searches": searches}


async def _search_at_random(
    database: Database, collections: Mapping[str, str], scale: Scale, count: int
) -> dict[str, int]:
    """Search with random vectors as random tenants, with filters of at most three conditions.

    Returns:
        Numbers of ``searches``, of those for which fewer than ten chunks match (``few_match``), and of
        ``short`` results, which have fewer rows than match, up to ten.
    """
    rng, held = np.random.default_rng(23), holdings(scale)
    columns = {holding.tenant: _columns(holding.metadata()) for holding in held}
    stores = {holding.tenant: PgVectorStore(database.for_tenant(holding.tenant)) for holding in held}
    queries = Generator().anywhere(count, seed=29)
    found = {"searches": count, "few_match": 0, "short": 0}
    for query in track(queries, f"  {count:,} random searches", console=progress, transient=True):
        holding = _any(held, rng)
        filters = _conditions(rng)
        matching = _matching(holding, columns[holding.tenant], filters)
        rows = await stores[holding.tenant].search(
            top_k=TOP_K,
            collection_id=UUID(collections[holding.tenant]),
            metric=DistanceMetric.COSINE,
            query_vector=query.tolist(),
            filters=filters or None,
        )
        found["few_match"] += matching < TOP_K
        found["short"] += len(rows) < min(TOP_K, matching)
    return found


def _columns(metadata: Sequence[Metadata]) -> "dict[str, np.ndarray[Any, Any]]":
    return {key: np.array([facts[key] for facts in metadata]) for key in SHARES}


def _any(held: Sequence[Holding], rng: np.random.Generator) -> Holding:
    """Return the large tenant for nine of ten searches, else any."""
    return held[0] if rng.random() < 0.9 else held[int(rng.integers(len(held)))]


def _conditions(rng: np.random.Generator) -> dict[str, int]:
    keys = rng.choice(list(SHARES), size=int(rng.integers(_MOST_CONDITIONS + 1)), replace=False)
    return {str(key): int(rng.integers(SHARES[str(key)])) for key in keys}


def _matching(
    holding: Holding, columns: "Mapping[str, np.ndarray[Any, Any]]", filters: Mapping[str, int]
) -> int:
    passing = np.ones(holding.chunks, dtype=bool)
    for key, value in filters.items():
        passing &= columns[key] == value
    return int(passing.sum())


def tables(figures: Mapping[str, Any]) -> list[Table]:
    """Return a table of the build, one of the random searches, and that of searches by filter."""
    build, random = figures["build"], figures["random"]
    built = Table("Build", ("what", "s", "database CPU s", "GB"))
    built.add("chunks stored", build["store_s"], build["store_cpu_s"], build["database_bytes"] / 1e9)
    built.add("index built", build["index_s"], build["index_cpu_s"], build["index_bytes"] / 1e9)
    built.notes.append(
        f"{build['chunks']:,} chunks with the small tenants'; GB of the database, and of its HNSW indexes. "
        f"Memory of the server while it builds: {build['index_memory_bytes'] / 1e9:.1f} GB."
    )
    any_filter = Table(
        "Random searches", ("searches", f"fewer than {TOP_K} match", "results shorter than they must be")
    )
    any_filter.add(random["searches"], random["few_match"], random["short"])
    return [built, *selectivity.tables(figures["searches"]), any_filter]
