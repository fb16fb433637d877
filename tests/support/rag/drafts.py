"""Documents, chunks and vectors for tests, and the distances between vectors by their textbook formulas."""

import hashlib
import math
import random
from collections.abc import Mapping, Sequence
from typing import Any

from vectorforge.types import ChunkDraft, DistanceMetric, DocumentDraft, RetrievedChunk, Vector


def chunk_drafts(
    texts: Sequence[str],
    vectors: Sequence[Vector | None],
    metadata: Sequence[Mapping[str, Any]] | None = None,
) -> list[ChunkDraft]:
    """Make one draft for each text, with its vector and metadata; offsets as if joined by line breaks."""
    drafts: list[ChunkDraft] = []
    offset = 0
    for index, (text, vector) in enumerate(zip(texts, vectors, strict=True)):
        drafts.append(
            ChunkDraft(
                index=index,
                text=text,
                start_offset=offset,
                end_offset=offset + len(text),
                token_count=len(text.split()),
                content_hash=hashlib.sha256(text.encode()).digest(),
                heading=f"Heading {index}",
                metadata=metadata[index] if metadata else {},
                vector=vector,
            )
        )
        offset += len(text) + 1
    return drafts


def document_draft(
    chunks: Sequence[ChunkDraft],
    *,
    source: str = "guide.md",
    title: str | None = "Guide",
    metadata: Mapping[str, Any] | None = None,
) -> DocumentDraft:
    """Make the document whose text is the chunks' texts joined by line breaks."""
    text = "\n".join(chunk.text for chunk in chunks)
    described = repr((text, title, sorted((metadata or {}).items()), [chunk.metadata for chunk in chunks]))
    return DocumentDraft(
        source=source,
        text=text,
        media_type="text/markdown",
        content_hash=hashlib.sha256(described.encode()).digest(),
        title=title,
        metadata=metadata or {},
    )


def random_vector(generator: random.Random, dimension: int) -> list[float]:
    """Make a vector of independent normal numbers."""
    return [generator.gauss(0, 1) for _ in range(dimension)]


def expected_distance(metric: DistanceMetric, left: Vector, right: Vector) -> float:
    """Compute a distance by its textbook formula: 1 - cosine, the negative inner product, or Euclid's."""
    product = sum(a * b for a, b in zip(left, right, strict=True))
    if metric is DistanceMetric.INNER_PRODUCT:
        return -product
    if metric is DistanceMetric.L2:
        return math.sqrt(sum((a - b) ** 2 for a, b in zip(left, right, strict=True)))
    return 1 - product / math.sqrt(sum(a * a for a in left) * sum(b * b for b in right))


def expected_score(metric: DistanceMetric, distance: float) -> float:
    """Compute the score of a distance."""
    return {
        DistanceMetric.COSINE: 1 - distance,
        DistanceMetric.INNER_PRODUCT: -distance,
        DistanceMetric.L2: 1 / (1 + distance),
    }[metric]


def texts_of(results: Sequence[RetrievedChunk]) -> list[str]:
    """The chunks' texts, in order."""
    return [result.chunk.text for result in results]
