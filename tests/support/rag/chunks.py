"""Chunks for tests that need no database."""

from collections.abc import Mapping, Sequence
from typing import Any
from uuid import UUID, uuid4

from vectorforge.tokens import estimate_tokens
from vectorforge.types import Chunk, Location, RetrievedChunk


def make_chunk(
    text: str,
    score: float = 0.5,
    *,
    index: int = 0,
    start_offset: int = 10,
    source: str = "guide.md",
    document_id: UUID | None = None,
    metadata: Mapping[str, Any] | None = None,
    title: str | None = None,
    locations: Sequence[Location] = (),
) -> RetrievedChunk:
    """Return a retrieved chunk with this text and score (cosine)."""
    chunk = Chunk(
        id=uuid4(),
        document_id=document_id or uuid4(),
        index=index,
        text=text,
        start_offset=start_offset,
        end_offset=start_offset + len(text),
        token_count=estimate_tokens(text),
        metadata=metadata or {},
        locations=locations,
    )
    return RetrievedChunk(chunk, score, distance=1 - score, document_source=source, document_title=title)
