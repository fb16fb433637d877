"""Vectors of several small documents from one request to the model, before they take their turns.

A model answers a request for sixty passages in little more time than one for a single passage, and a record
of JSONL is often no more than that. Only vectors are made ahead: each document is still read, compared,
stored and reported by itself, and what could not be made here it asks for itself.
"""

import asyncio
from collections.abc import Mapping, Sequence
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.db.repositories.embedding_models import EmbeddingModel
from vectorforge.errors import EmbeddingInputError, VectorForgeError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks, draft_document
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.passage_vectors import PassageVectors
from vectorforge.ingestion.types import DocumentPart, ExtractedDocument
from vectorforge.types import ChunkDraft, Vector

KnownVectors: TypeAlias = Mapping[tuple[EmbeddingModel, bytes], Vector]
"""By model and the chunk's content hash."""

AT_A_TIME: Final = 32
"""Documents whose vectors are made together: some 400 passages at most, 2.5 MB of 1,536 dimensions."""
SMALL_BYTES: Final = 8_192
"""Larger documents fill requests of their own."""
_TRIES = 3
"""Each time without the text that the model has refused."""
_READ_AT_ONCE = (media.RECORD, media.PLAIN, media.MARKDOWN)
"""Reading these takes milliseconds and cannot fail in a way that would take the turn of another along."""


class Upcoming(NamedTuple):
    """A document that will be stored, with what ``IngestionPipeline.ingest_part`` is told of it."""

    part: DocumentPart
    title: str | None
    metadata: Mapping[str, Any]


class CurrentDocuments(Protocol):
    """What is asked of ``DocumentRepository``."""

    async def current_hashes_of(
        self, collection_id: UUID, sources: Sequence[str]
    ) -> Mapping[str, CurrentDocument]:
        """What is stored of these sources now."""
        ...


def is_small(part: DocumentPart) -> bool:
    """Whether a document's vectors are worth to be made together with others'."""
    if not 0 < len(part.content) <= SMALL_BYTES:
        return False
    try:
        return media.detect(part.content, part.source, part.media_type) in _READ_AT_ONCE
    except VectorForgeError:
        return False


async def make_ahead(
    documents: Sequence[ExtractedDocument],
    collection_id: UUID,
    repo: CurrentDocuments,
    chunking: ChunkingConfig,
    vectors: PassageVectors,
) -> KnownVectors:
    """Make the vectors that documents will ask for.

    Args:
        documents: Small ones.
        collection_id: Where they will be stored.
        repo: Tells what is stored of them: what has not changed is not embedded.
        chunking: How they will be cut.
        vectors: Makes them; of no document in particular.

    Returns:
        The vectors; none when the model or the database failed, which each document will find out itself.
    """
    try:
        current = await repo.current_hashes_of(collection_id, [document.source for document in documents])
        lacking = await asyncio.to_thread(_lacking, documents, current, chunking)
        for _ in range(_TRIES):
            if len(lacking) < 2:
                break
            try:
                await vectors.make_of(lacking)
            except EmbeddingInputError as exc:
                if exc.index is None:
                    break
                del lacking[exc.index]  # told when its document's turn comes
            else:
                break
    except VectorForgeError:
        return {}
    return vectors.made


def _lacking(
    documents: Sequence[ExtractedDocument], current: Mapping[str, CurrentDocument], chunking: ChunkingConfig
) -> list[tuple[str | None, ChunkDraft]]:
    """The chunks to embed, each with its document's title."""
    found: dict[bytes, tuple[str | None, ChunkDraft]] = {}
    for document in documents:
        stored, draft = current.get(document.source), draft_document(document, chunking)
        if stored is not None and stored.content_hash == draft.content_hash:
            continue
        try:
            chunks = draft_chunks(document, chunking)
        except VectorForgeError:  # told when its turn comes
            continue
        known = stored.chunk_hashes if stored is not None else frozenset()
        found |= {c.content_hash: (draft.title, c) for c in chunks if c.content_hash not in known}
    return list(found.values())
