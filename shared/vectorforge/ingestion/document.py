"""Storing of one document: embed its new chunks, then replace the stored one in a single step."""

import asyncio
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass, replace
from typing import Final

from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModelRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConflictError, DimensionMismatchError
from vectorforge.ingestion.contexts.writer import ContextWriter
from vectorforge.ingestion.drafts import ChunkVectors, KnownVectors, draft_chunks, draft_document
from vectorforge.ingestion.types import (
    Charge,
    ExtractedDocument,
    ExtractionLimits,
    IngestionStage,
    OnProgress,
    OnStage,
)
from vectorforge.types import Collection, StoredDocument
from vectorforge.vectorstore.base import VectorStore

_WRITE_ATTEMPTS: Final = 3
"""Attempts; a store rejects a write after a concurrent replacement. Each attempt embeds less."""


@dataclass(eq=False, slots=True)
class DocumentWriter:
    """Stores extracted documents of one tenant, one at a time.

    Args:
        store: Store for the chunks.
        documents: Stored documents of the same tenant.
        embeddings: Registry with the providers of the collections.
        contexts_of: Returns a writer of contexts for a collection.
        limits: Limits of a document.
        models: Current embedding models of the collections; None: the model of the collection passed in.
        charge: Counts embedded tokens against the tenant's limits; None: no limits.
    """

    store: VectorStore
    documents: DocumentRepository
    embeddings: EmbeddingProviderRegistry
    contexts_of: Callable[[Collection], ContextWriter]
    limits: ExtractionLimits
    _: KW_ONLY
    models: EmbeddingModelRepository | None
    charge: Charge | None

    async def write(
        self,
        collection: Collection,
        document: ExtractedDocument,
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
        prefetched: KnownVectors | None = None,
        charged: bool = False,
        contexts: ContextWriter | None = None,
    ) -> StoredDocument:
        """Store a document, or replace the one with the same source.

        Readers see the old or the new version. An unchanged document is neither embedded nor written;
        otherwise only chunks that were not in the document before are embedded. ``prefetched`` are vectors
        that exist already; ``charged``: its tokens have been counted against the tenant's limits;
        ``contexts`` are those written already.

        Raises:
            ExtractionError: ``empty`` or ``too_large``, in characters or chunks; nothing was embedded.
            EmbeddingError: The provider failed; nothing was written.
            ConfigurationError: The collection's provider is not available here.
            LimitExceededError: The tenant's daily tokens are used up; nothing was embedded.
            ConflictError: Concurrent replacements of the same document, or a vector has a wrong dimension.
            NotFoundError: The collection was deleted.
            DatabaseError: The database failed; nothing was written.
        """
        self.limits.check_chars(len(document.text))
        contexts = contexts or self.contexts_of(collection)
        draft = await asyncio.to_thread(draft_document, document, contexts.chunking)
        current = await self.documents.current_hashes(collection.id, document.source)
        if current is not None and current.content_hash == draft.content_hash:
            return current.unchanged()
        _tell(on_stage, IngestionStage.CHUNK)
        chunks = await asyncio.to_thread(draft_chunks, document, contexts.chunking)
        self.limits.check_chunks(len(chunks))
        vectors = ChunkVectors(self.embeddings, collection, self.models, prefetched)
        for attempt in range(1, _WRITE_ATTEMPTS + 1):
            stored = current.chunk_hashes if current else frozenset()
            new = [c for c in chunks if c.content_hash not in stored]
            if new:
                _tell(on_stage, IngestionStage.EMBED)
                if self.charge is not None and attempt == 1 and not charged:
                    await self.charge(sum(chunk.token_count for chunk in new))
            written = await contexts.write(document, draft, chunks, stored)
            new = [c for c in written.chunks if c.content_hash not in stored]
            if new:
                await vectors.make([(draft.title, chunk) for chunk in new], on_progress)
            ready = [vectors.given(chunk) for chunk in written.chunks]
            _tell(on_stage, IngestionStage.STORE)
            try:
                done = await self.store.replace_document(collection.id, written.draft, ready)
                return replace(done, warnings=written.warnings)
            except DimensionMismatchError:
                raise
            except ConflictError:
                if attempt == _WRITE_ATTEMPTS:
                    raise
            current = await self.documents.current_hashes(collection.id, document.source)
        raise AssertionError("the last attempt returns or raises")


def _tell(on_stage: OnStage | None, stage: IngestionStage) -> None:
    if on_stage is not None:
        on_stage(stage)
