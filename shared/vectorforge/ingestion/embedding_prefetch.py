"""Embedding of documents: vectors of a document's chunks, and prefetch for several small documents.

A provider embeds sixty chunks in little more time than one, and a JSONL record often is a single chunk. Only
vectors are prefetched: each document is still read, compared, stored and reported separately, and requests
the missing vectors.
"""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any, Final, NamedTuple, Protocol, TypeAlias
from uuid import UUID

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import EmbeddingInputError, VectorForgeError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks, draft_document, embedded_text
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.types import DocumentPart, ExtractedDocument
from vectorforge.types import ChunkDraft, Collection, Vector

logger = logging.getLogger(__name__)


class CollectionModels(Protocol):
    """Interface of ``EmbeddingModelRepository`` that ingestion needs."""

    async def of(self, collection_id: UUID) -> list[EmbeddingModel]:
        """The collection's own model, then the other one while that is being changed."""
        ...


class ChunkVectors:
    """Embeds the chunks of a document, and caches the vectors across write attempts.

    Args:
        embeddings: Registry with the providers of the collections.
        collection: Collection of the document.
        title: Title of the document.
        models: Current embedding models of the collection; None: the model of ``collection``.
        prefetched: Vectors that exist already.
    """

    def __init__(
        self,
        embeddings: EmbeddingProviderRegistry,
        collection: Collection,
        title: str | None,
        models: CollectionModels | None,
        prefetched: Mapping[tuple[EmbeddingModel, bytes], Vector] | None = None,
    ) -> None:
        self._embeddings = embeddings
        self._collection = collection
        self._title = title
        self._repo = models
        self._models = [EmbeddingModel.of(collection)]
        self._made: dict[tuple[EmbeddingModel, bytes], Vector] = {}
        self._prefetched = prefetched or {}

    @property
    def made(self) -> Mapping[tuple[EmbeddingModel, bytes], Vector]:
        """The vectors, by model and the chunk's content hash."""
        return self._made

    async def make(
        self, chunks: Sequence[ChunkDraft], on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Embed the chunks that have no vector yet.

        Raises:
            EmbeddingError: The collection's model failed. A failure of the second model is only logged: the
                backfill retries it.
            ConfigurationError: The collection's provider is not available here.
            NotFoundError: The collection was deleted.
        """
        await self.make_of([(self._title, chunk) for chunk in chunks], on_progress)

    async def make_of(
        self,
        chunks: Sequence[tuple[str | None, ChunkDraft]],
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """Embed chunks of several documents, given with their documents' titles; see ``make``."""
        if self._repo is not None:
            self._models = await self._repo.of(self._collection.id)
        await self._make(self._models[0], chunks, on_progress)
        for other in self._models[1:]:
            try:
                await self._make(other, chunks, None)
            except VectorForgeError as exc:
                logger.warning("A document was embedded with one of two models only: %s", exc.message)

    def given(self, chunk: ChunkDraft) -> ChunkDraft:
        """Return the chunk with its vectors; unchanged if there are none."""
        found = {
            model.space: self._made[model, chunk.content_hash]
            for model in self._models
            if (model, chunk.content_hash) in self._made
        }
        return replace(chunk, vector=found.get(self._models[0].space), vectors=found) if found else chunk

    async def _make(
        self,
        model: EmbeddingModel,
        chunks: Sequence[tuple[str | None, ChunkDraft]],
        on_progress: Callable[[int, int], None] | None,
    ) -> None:
        missing, found = [], 0
        for title, chunk in chunks:
            key = (model, chunk.content_hash)
            if key in self._made:
                continue
            if key in self._prefetched:
                self._made[key] = self._prefetched[key]
                found += 1
            else:
                missing.append((title, chunk))
        provider = self._embeddings.get(model.provider)
        texts = [
            model.document_prefix + embedded_text(title, chunk.heading, chunk.text)
            for title, chunk in missing
        ]
        progress = on_progress or (lambda _done, _total: None)
        if found:
            progress(found, found + len(texts))
        vectors = await provider.embed_chunks(
            texts, model=model.model, on_progress=lambda done: progress(found + done, found + len(texts))
        )
        for (_, chunk), vector in zip(missing, vectors, strict=True):
            self._made[model, chunk.content_hash] = vector


KnownVectors: TypeAlias = Mapping[tuple[EmbeddingModel, bytes], Vector]
"""By model and the chunk's content hash."""

AT_A_TIME: Final = 32
"""Documents embedded together: about 400 chunks, 2.5 MB of 1,536 dimensions."""
SMALL_BYTES: Final = 8_192
"""Larger documents fill a request by themselves."""
_TRIES = 3
"""Attempts; each drops the text that the model rejected."""
_READ_AT_ONCE = (media.RECORD, media.PLAIN, media.MARKDOWN)
"""Types that are read in milliseconds, in process."""


class PrefetchItem(NamedTuple):
    """A document to store, with the arguments for ``IngestionPipeline.ingest_part``."""

    part: DocumentPart
    title: str | None
    metadata: Mapping[str, Any]


class CurrentDocuments(Protocol):
    """Interface of ``DocumentRepository`` that the prefetch needs."""

    async def current_hashes_of(
        self, collection_id: UUID, sources: Sequence[str]
    ) -> Mapping[str, CurrentDocument]:
        """Return the stored documents of these sources."""
        ...


def is_small(part: DocumentPart) -> bool:
    """Return True if a document is small enough to be embedded together with others."""
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
    vectors: ChunkVectors,
) -> KnownVectors:
    """Embed the chunks of several small documents.

    Args:
        documents: Small documents.
        collection_id: Target collection.
        repo: Stored documents; unchanged ones are not embedded.
        chunking: Chunk sizes.
        vectors: Embeds them.

    Returns:
        The vectors; empty if the model or the database failed: each document then reports its own error.
    """
    try:
        current = await repo.current_hashes_of(collection_id, [document.source for document in documents])
        missing = await asyncio.to_thread(_missing, documents, current, chunking)
        for _ in range(_TRIES):
            if len(missing) < 2:
                break
            try:
                await vectors.make_of(missing)
            except EmbeddingInputError as exc:
                if exc.index is None:
                    break
                del missing[exc.index]  # reported when that document is ingested
            else:
                break
    except VectorForgeError:
        return {}
    return vectors.made


def _missing(
    documents: Sequence[ExtractedDocument], current: Mapping[str, CurrentDocument], chunking: ChunkingConfig
) -> list[tuple[str | None, ChunkDraft]]:
    """Return the chunks to embed, each with its document's title."""
    found: dict[bytes, tuple[str | None, ChunkDraft]] = {}
    for document in documents:
        stored, draft = current.get(document.source), draft_document(document, chunking)
        if stored is not None and stored.content_hash == draft.content_hash:
            continue
        try:
            chunks = draft_chunks(document, chunking)
        except VectorForgeError:  # reported when it is ingested
            continue
        prefetched = stored.chunk_hashes if stored is not None else frozenset()
        found |= {c.content_hash: (draft.title, c) for c in chunks if c.content_hash not in prefetched}
    return list(found.values())
