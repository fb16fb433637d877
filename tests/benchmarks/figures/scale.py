"""A large collection among the collections of other tenants, generated, and stored once for several runs."""

import asyncio
import hashlib
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias, TypedDict
from uuid import UUID

import numpy as np
from figures.database import DIMENSION, settle
from figures.measuring import PeakMemory, postgres_cpu_s, progress
from psycopg import connect
from rich.progress import track

from vectorforge.db.connection import Database
from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.schema.index_building import build_indexes
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import EXACT_SCAN_LIMIT, ChunkDraft, DistanceMetric, DocumentDraft
from vectorforge.vectorstore.pgvector import PgVectorStore

Vectors: TypeAlias = np.ndarray[Any, np.dtype[np.float32]]
Metadata: TypeAlias = dict[str, int]

SHARES = {"half": 2, "tenth": 10, "hundredth": 100, "thousandth": 1_000}
"""Keys of the metadata and their number of values: a filter for one of n values matches 1/n of the chunks."""
TENANTS = (10, 100, 1_000, 10_000)
"""Chunks of the small tenants, each around one center, among the large tenant's vectors."""
OWNER = "large"
_CENTERS = 1_000
_SUBSPACE = 48
"""Dimensions in which the vectors differ much, similar to those of the local model."""
_STOP_WORDS = 20
_SHARE_UP_TO = np.cumsum(1 / (np.arange(_STOP_WORDS, 50_000) + 2.7))
_SIZES = """
SELECT pg_database_size(current_database()), coalesce(sum(pg_relation_size(i.indexrelid)), 0)
FROM pg_index i JOIN pg_class c ON c.oid = i.indexrelid JOIN pg_am a ON a.oid = c.relam
WHERE a.amname = 'hnsw' AND c.relkind = 'i'
"""
_BATCH = 500
_SLICE = 50_000
_PARALLEL = 4


@dataclass(frozen=True)
class Scale:
    """Size of the data.

    Args:
        chunks: Chunks of the large tenant.
        words: Number of words in each chunk's text.
    """

    chunks: int
    words: int = 40

    @property
    def database(self) -> str:
        """Return the name of the database."""
        return f"scale_{self.chunks}"


class Generator:
    """Vectors around centers in a subspace, with noise: neighbors are close, like those of texts.

    Args:
        seed: Equal seeds give equal vectors.
    """

    def __init__(self, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self._basis = rng.standard_normal((_SUBSPACE, DIMENSION)) / np.sqrt(DIMENSION)
        self._centers = rng.standard_normal((_CENTERS, _SUBSPACE))

    def around(self, centers: Sequence[int] | np.ndarray[Any, Any], seed: int) -> Vectors:
        """Return a unit vector near each of these centers."""
        rng = np.random.default_rng(seed)
        places = self._centers[np.asarray(centers)] + 0.7 * rng.standard_normal((len(centers), _SUBSPACE))
        found: Vectors = np.empty((len(centers), DIMENSION), np.float32)
        for start in range(0, len(centers), _SLICE):  # a million in double precision would take 9 GB
            part = places[start : start + _SLICE]
            noise = 0.05 * rng.standard_normal((len(part), DIMENSION)) / np.sqrt(DIMENSION)
            vectors = part @ self._basis + noise
            found[start : start + _SLICE] = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
        return found

    def anywhere(self, count: int, seed: int) -> Vectors:
        """Return unit vectors near random centers."""
        chosen = np.random.default_rng(seed).integers(0, _CENTERS, count)
        return self.around(chosen, seed + 1)


@dataclass(frozen=True)
class Holding:
    """Data of one tenant, generated from its seed on demand."""

    tenant: str
    chunks: int
    seed: int
    center: int | None = None
    """Center of its vectors, or None for all centers."""

    def vectors(self, generator: Generator) -> Vectors:
        """Return its vectors by the chunk's number."""
        if self.center is None:
            return generator.anywhere(self.chunks, self.seed)
        return generator.around([self.center] * self.chunks, self.seed)

    def questions(self, generator: Generator, count: int) -> Vectors:
        """Return query vectors from the distribution of its own."""
        if self.center is None:
            return generator.anywhere(count, self.seed + 1_000_000)
        return generator.around([self.center] * count, self.seed + 1_000_000)

    def metadata(self) -> list[Metadata]:
        """Return the chunks' metadata."""
        rng = np.random.default_rng(self.seed + 2_000_000)
        columns = {key: rng.integers(0, values, self.chunks).tolist() for key, values in SHARES.items()}
        return [{key: column[number] for key, column in columns.items()} for number in range(self.chunks)]


def holdings(scale: Scale) -> list[Holding]:
    """Return the data of the large tenant, and of the small ones that are not larger."""
    small = [
        Holding(f"small-{chunks}", chunks, seed=100 + number, center=number)
        for number, chunks in enumerate(TENANTS)
        if chunks <= scale.chunks
    ]
    return [Holding(OWNER, scale.chunks, seed=11), *small]


class Stored(TypedDict):
    """Record of stored data: how long it took, and what it takes."""

    collections: dict[str, str]
    """Ids of the collections by tenant."""
    chunks: int
    store_s: float
    store_cpu_s: float
    """CPU seconds of the server, as ``index_cpu_s``: less dependent on the machine's load."""
    index_s: float
    """Seconds of building the HNSW index, and none where all vectors are compared."""
    index_cpu_s: float
    index_memory_bytes: int
    """Largest memory of the server during the build, without shared pages counted twice."""
    database_bytes: int
    index_bytes: int


async def store(database: Database, owner_url: str, postgres: int, scale: Scale) -> Stored:
    """Store the chunks, then build the index.

    Args:
        database: Database as the service's role.
        owner_url: Connection string of the owner.
        postgres: Process id of the server.
        scale: Size of the data.
    """
    generator, collections = Generator(), {}
    begun, cpu_begun = time.perf_counter(), postgres_cpu_s(postgres)
    for holding in holdings(scale):
        db = database.for_tenant(holding.tenant)
        made = await CollectionRepository(db).create(
            "scale",
            embedding_provider="none",
            embedding_model="none",
            dimension=DIMENSION,
            distance_metric=DistanceMetric.COSINE,
        )
        collections[holding.tenant] = made.id
        await _store_holding(db, made.id, holding, generator, scale.words)
    stored, cpu_stored = time.perf_counter(), postgres_cpu_s(postgres)
    progress.print("  building the index, where it pays")
    with PeakMemory(postgres) as memory:
        await build_indexes(owner_url, larger_than=EXACT_SCAN_LIMIT)
    built, cpu_built = time.perf_counter(), postgres_cpu_s(postgres)
    settle(owner_url)
    with connect(owner_url) as connection:
        sizes = connection.execute(_SIZES).fetchone()
    assert sizes is not None
    return Stored(
        collections={tenant: str(id_) for tenant, id_ in collections.items()},
        chunks=sum(holding.chunks for holding in holdings(scale)),
        store_s=stored - begun,
        store_cpu_s=cpu_stored - cpu_begun,
        index_s=built - stored,
        index_cpu_s=cpu_built - cpu_stored,
        index_memory_bytes=memory.bytes,
        database_bytes=int(sizes[0]),
        index_bytes=int(sizes[1]),
    )


async def _store_holding(
    db: TenantDatabase, collection_id: UUID, holding: Holding, generator: Generator, words: int
) -> None:
    vectors, metadata = holding.vectors(generator), holding.metadata()
    vector_store = PgVectorStore(db)
    label = f"  {holding.tenant}: storing {holding.chunks:,} chunks"
    starts = track(range(0, holding.chunks, _BATCH), label, console=progress, transient=True)
    waiting = iter(starts)

    async def work() -> None:
        for start in waiting:
            rows = vectors[start : start + _BATCH].tolist()
            document, chunks = _document(start, rows, metadata[start : start + _BATCH], words)
            await vector_store.replace_document(collection_id, document, chunks)

    await asyncio.gather(*(work() for _ in range(_PARALLEL)))


def _document(
    start: int, vectors: Sequence[Sequence[float]], metadata: Sequence[Mapping[str, int]], words: int
) -> tuple[DocumentDraft, list[ChunkDraft]]:
    """Return a document of the next chunks, each with its number."""
    chunks, offset = [], 0
    for index, (vector, facts) in enumerate(zip(vectors, metadata, strict=True)):
        content = text(start + index, words)
        chunks.append(
            ChunkDraft(
                index=index,
                text=content,
                start_offset=offset,
                end_offset=offset + len(content),
                token_count=len(content) // 4,
                content_hash=hashlib.sha256(content.encode()).digest(),
                metadata={**facts, "number": start + index},
                vector=vector,
            )
        )
        offset += len(content)
    whole = "".join(chunk.text for chunk in chunks)
    digest = hashlib.sha256(whole.encode()).digest()
    return DocumentDraft(f"document-{start}", whole, "text/plain", digest), chunks


def text(number: int, words: int) -> str:
    """Generate words by Zipf's law, without the most frequent ones, the stop words.

    Six words of one chunk match about 17,000 postings of 100,000 chunks, as real questions do. One word
    is the number.
    """
    drawn = np.random.default_rng(number).random(words)
    ranks = np.searchsorted(_SHARE_UP_TO, drawn * _SHARE_UP_TO[-1])
    return " ".join(["number", str(number), *(f"w{rank}" for rank in ranks)])
