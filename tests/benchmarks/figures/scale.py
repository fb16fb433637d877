"""A large collection among the collections of other tenants, generated, and stored once for several runs."""

import asyncio
import hashlib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, TypeAlias
from uuid import UUID

import numpy as np
from figures.database import DIMENSION, settle
from figures.measuring import progress
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
_BATCH = 500
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
        vectors = places @ self._basis + 0.05 * rng.standard_normal((len(centers), DIMENSION)) / np.sqrt(
            DIMENSION
        )
        found: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
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


async def store(database: Database, owner_url: str, scale: Scale) -> dict[str, UUID]:
    """Store the chunks, then build the index; return ids of the collections by tenant."""
    generator, collections = Generator(), {}
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
    progress.print("  building the index, where it pays")
    await build_indexes(owner_url, larger_than=EXACT_SCAN_LIMIT)
    settle(owner_url)
    return collections


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
