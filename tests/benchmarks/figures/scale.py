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
"""Keys of the metadata, and how many values each has: a filter for one of them lets that share through."""
TENANTS = (10, 100, 1_000, 10_000)
"""Chunks of the small tenants, each around one center, where the large tenant has vectors, too."""
OWNER = "large"
_CENTERS = 1_000
_SUBSPACE = 48
"""Dimensions in which texts' vectors differ much; those of the local model behave alike."""
_STOP_WORDS = 20
_SHARE_UP_TO = np.cumsum(1 / (np.arange(_STOP_WORDS, 50_000) + 2.7))
_BATCH = 500
_PARALLEL = 4


@dataclass(frozen=True)
class Scale:
    """How much there is.

    Args:
        chunks: Of the large tenant.
        words: In each chunk's text.
    """

    chunks: int
    words: int = 40

    @property
    def database(self) -> str:
        """Name of the database."""
        return f"scale_{self.chunks}"


class Generator:
    """Vectors around centers in a subspace, with noise: neighbours are near each other, as texts' are.

    Args:
        seed: Equal seeds give equal vectors.
    """

    def __init__(self, seed: int = 7) -> None:
        rng = np.random.default_rng(seed)
        self._basis = rng.standard_normal((_SUBSPACE, DIMENSION)) / np.sqrt(DIMENSION)
        self._centers = rng.standard_normal((_CENTERS, _SUBSPACE))

    def around(self, centers: Sequence[int] | np.ndarray[Any, Any], seed: int) -> Vectors:
        """A unit vector near each of these centers."""
        rng = np.random.default_rng(seed)
        places = self._centers[np.asarray(centers)] + 0.7 * rng.standard_normal((len(centers), _SUBSPACE))
        vectors = places @ self._basis + 0.05 * rng.standard_normal((len(centers), DIMENSION)) / np.sqrt(
            DIMENSION
        )
        found: Vectors = (vectors / np.linalg.norm(vectors, axis=1, keepdims=True)).astype(np.float32)
        return found

    def anywhere(self, count: int, seed: int) -> Vectors:
        """Unit vectors near centers chosen at random."""
        chosen = np.random.default_rng(seed).integers(0, _CENTERS, count)
        return self.around(chosen, seed + 1)


@dataclass(frozen=True)
class Holding:
    """What one tenant has; made anew from its seed wherever it is wanted."""

    tenant: str
    chunks: int
    seed: int
    center: int | None = None
    """None: spread over all of them."""

    def vectors(self, generator: Generator) -> Vectors:
        """Its vectors, by the chunk's number."""
        if self.center is None:
            return generator.anywhere(self.chunks, self.seed)
        return generator.around([self.center] * self.chunks, self.seed)

    def questions(self, generator: Generator, count: int) -> Vectors:
        """Vectors that somebody could ask it for: as its own, but others."""
        if self.center is None:
            return generator.anywhere(count, self.seed + 1_000_000)
        return generator.around([self.center] * count, self.seed + 1_000_000)

    def metadata(self) -> list[Metadata]:
        """The chunks' metadata."""
        rng = np.random.default_rng(self.seed + 2_000_000)
        columns = {key: rng.integers(0, values, self.chunks).tolist() for key, values in SHARES.items()}
        return [{key: column[number] for key, column in columns.items()} for number in range(self.chunks)]


def holdings(scale: Scale) -> list[Holding]:
    """The large tenant's, and those of the small ones that are not larger than it."""
    small = [
        Holding(f"small-{chunks}", chunks, seed=100 + number, center=number)
        for number, chunks in enumerate(TENANTS)
        if chunks <= scale.chunks
    ]
    return [Holding(OWNER, scale.chunks, seed=11), *small]


async def store(database: Database, owner_url: str, scale: Scale) -> dict[str, UUID]:
    """Store everything, chunks first, then the index; ids of the collections, by tenant."""
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
    """A document of the next chunks; each knows its number."""
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
    """Words as frequent as words are (Zipf's law), without the most frequent, which are stop words.

    Six words of one passage meet about 17,000 postings of 100,000 passages, as real questions do. One word
    is the number.
    """
    drawn = np.random.default_rng(number).random(words)
    ranks = np.searchsorted(_SHARE_UP_TO, drawn * _SHARE_UP_TO[-1])
    return " ".join(["number", str(number), *(f"w{rank}" for rank in ranks)])
