"""Ingestion of documents: extract, chunk, embed new chunks, replace the document in one step."""

import asyncio
import logging
from collections.abc import Callable, Mapping, Sequence
from contextlib import suppress
from typing import Any

from vectorforge.config import IngestionSettings
from vectorforge.db.repositories.document_repo import CurrentDocument, DocumentRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    ExtractionError,
    VectorForgeError,
    log_unexpected,
)
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.drafts import draft_chunks, draft_document
from vectorforge.ingestion.embedding_prefetch import (
    AT_A_TIME,
    ChunkVectors,
    CollectionModels,
    KnownVectors,
    PrefetchItem,
    is_small,
    make_ahead,
)
from vectorforge.ingestion.extract import PartReader
from vectorforge.ingestion.types import (
    Charge,
    DocumentPart,
    DocumentResult,
    DocumentStatus,
    ExtractedDocument,
    ExtractionLimits,
    IngestionStage,
)
from vectorforge.types import Collection, StoredDocument
from vectorforge.vectorstore.base import VectorStore

logger = logging.getLogger(__name__)

OnStage = Callable[[IngestionStage], None]
"""Called when a document enters a stage."""
OnProgress = Callable[[int, int], None]
"""Called with (chunks embedded so far, chunks to embed)."""

_WRITE_ATTEMPTS = 3
"""Attempts; a store rejects a write after a concurrent replacement. Each attempt embeds less."""


class IngestionPipeline:
    """Stores documents of one tenant.

    Args:
        vector_store: Store for the chunks.
        document_repo: Stored documents of the same tenant.
        embedding_registry: Registry with the providers of the collections.
        settings: Sizes and limits.
        models: Current embedding models of the same tenant's collections. None: the model of the
            collection that is passed in.
        charge: Counts embedded tokens against the tenant's limits; None: no limits.

    Raises:
        InvalidInputError: The overlap of the settings is more than half of their chunk size.
    """

    def __init__(
        self,
        vector_store: VectorStore,
        document_repo: DocumentRepository,
        embedding_registry: EmbeddingProviderRegistry,
        settings: IngestionSettings,
        *,
        models: CollectionModels | None = None,
        charge: Charge | None = None,
    ) -> None:
        self._store = vector_store
        self._documents = document_repo
        self._embeddings = embedding_registry
        self._models = models
        self._charge = charge
        self._reader = PartReader(ExtractionLimits.from_settings(settings))
        self._chunking = ChunkingConfig.from_settings(settings)

    async def ingest_bytes(
        self,
        collection: Collection,
        content: bytes,
        source: str,
        media_type: str | None = None,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
    ) -> list[DocumentResult]:
        """Read a file and store what is in it; see ``split`` and ``ingest_part``.

        Args:
            collection: Target collection.
            content: The file.
            source: Its path, URL or key; a document with the same source is replaced.
            media_type: Declared media type; see ``extract.media.detect``.
            title: Overrides the title in the file, but not that of a JSONL record.
            metadata: Added to every document of the file; a JSONL record's own win.
            on_stage: Called with each document's stages.
            on_progress: Called with the progress of embedding.

        Returns:
            One result for each document of the file, in order: several for JSONL, otherwise one. Failures are
            results, too; only cancellation is raised.
        """
        try:
            parts = await self.split(content, source, media_type)
        except VectorForgeError as exc:
            return [DocumentResult.of_failure(source, exc)]
        results: list[DocumentResult] = []
        for start in range(0, len(parts), AT_A_TIME):
            group = parts[start : start + AT_A_TIME]
            prefetched = await self.embedding_prefetch(
                collection, [PrefetchItem(p, title, metadata or {}) for p in group]
            )
            for part in group:
                result = await self.ingest_part(
                    collection,
                    part,
                    title,
                    metadata,
                    on_stage=on_stage,
                    on_progress=on_progress,
                    prefetched=prefetched,
                )
                results.append(result)
        try:
            await self.delete_left_out(collection, parts, results)
        except VectorForgeError as exc:
            results.append(DocumentResult.of_failure(source, exc))
        return results

    async def delete_left_out(
        self, collection: Collection, parts: Sequence[DocumentPart], results: Sequence[DocumentResult]
    ) -> int:
        """Delete the documents of a JSONL file that are no longer in the file.

        Args:
            collection: Collection of the file.
            parts: Every part of the file.
            results: Their results; if one failed, nothing is deleted.

        Returns:
            Number of deleted documents; 0 for other files.

        Raises:
            DatabaseError: The database failed; nothing was deleted.
        """
        parent_source = parts[0].parent_source
        if parent_source is None or any(result.status is DocumentStatus.FAILED for result in results):
            return 0
        return await self.keep_only(collection, parent_source, [part.source for part in parts])

    async def keep_only(self, collection: Collection, parent_source: str, sources: Sequence[str]) -> int:
        """Delete the documents of a JSONL file except these sources; returns the number of deleted ones."""
        return await self._store.delete_left_out(collection.id, parent_source, sources)

    async def split(self, content: bytes, source: str, media_type: str | None) -> list[DocumentPart]:
        """Cut a file into its documents (JSONL: the lines; else one), off the event loop.

        Raises:
            ExtractionError: The file as a whole cannot be read.
            InvalidInputError: ``source`` is empty or too long.
        """
        return await self._reader.split(content, source, media_type)

    async def ingest_part(
        self,
        collection: Collection,
        part: DocumentPart,
        title: str | None = None,
        metadata: Mapping[str, Any] | None = None,
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
        prefetched: KnownVectors | None = None,
    ) -> DocumentResult:
        """Read and store one document; a failure is a result, so that other documents continue.

        ``prefetched`` are vectors; see ``embedding_prefetch``.
        """
        warnings: tuple[str, ...] = ()
        try:
            _tell(on_stage, IngestionStage.EXTRACT)
            document = await self._reader.read(part, title, metadata or {})
            warnings = document.warnings
            stored = await self.ingest_document(
                collection, document, on_stage=on_stage, on_progress=on_progress, prefetched=prefetched
            )
        except VectorForgeError as exc:
            return DocumentResult.of_failure(part.source, exc, warnings)
        except Exception as exc:  # noqa: BLE001 - a bug with one document must not fail the others
            log_unexpected(logger, "Ingestion of a document failed unexpectedly", exc)
            return DocumentResult.of_failure(part.source, VectorForgeError(), warnings)
        return DocumentResult.of(document, stored)

    async def ingest_document(
        self,
        collection: Collection,
        document: ExtractedDocument,
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
        prefetched: KnownVectors | None = None,
    ) -> StoredDocument:
        """Store an extracted document, or replace the one with the same source.

        Readers see the old or the new version. An unchanged document is neither embedded nor written;
        otherwise only chunks that were not in the document before are embedded.

        Raises:
            ExtractionError: ``empty`` or ``too_large``, in characters or chunks; nothing was embedded.
            EmbeddingError: The provider failed; nothing was written.
            ConfigurationError: The collection's provider is not available here.
            LimitExceededError: The tenant's daily tokens are used up; nothing was embedded.
            ConflictError: Concurrent replacements of the same document, or a vector has a wrong dimension.
            NotFoundError: The collection was deleted.
            DatabaseError: The database failed; nothing was written.
        """
        limit = self._reader.limits.max_chars
        if len(document.text) > limit:
            raise ExtractionError(f"The text is longer than {limit:,} characters.", reason="too_large")
        draft = await asyncio.to_thread(draft_document, document, self._chunking)
        current = await self._documents.current_hashes(collection.id, document.source)
        if current is not None and current.content_hash == draft.content_hash:
            return _unchanged(current)
        _tell(on_stage, IngestionStage.CHUNK)
        chunks = await asyncio.to_thread(draft_chunks, document, self._chunking)
        self._reader.limits.check_chunks(len(chunks))
        vectors = ChunkVectors(self._embeddings, collection, draft.title, self._models, prefetched)
        for attempt in range(1, _WRITE_ATTEMPTS + 1):
            stored = current.chunk_hashes if current else frozenset()
            new = [c for c in chunks if c.content_hash not in stored]
            if new:
                _tell(on_stage, IngestionStage.EMBED)
                if self._charge is not None and attempt == 1:
                    await self._charge(sum(chunk.token_count for chunk in new))
                await vectors.make(new, on_progress)
            ready = [vectors.given(chunk) for chunk in chunks]
            _tell(on_stage, IngestionStage.STORE)
            try:
                return await self._store.replace_document(collection.id, draft, ready)
            except DimensionMismatchError:
                raise
            except ConflictError:
                if attempt == _WRITE_ATTEMPTS:
                    raise
            current = await self._documents.current_hashes(collection.id, document.source)
        raise AssertionError("the last attempt returns or raises")

    async def embedding_prefetch(
        self, collection: Collection, upcoming: Sequence[PrefetchItem]
    ) -> KnownVectors:
        """Embed the small ones among the next documents in one request.

        Returns:
            Vectors for ``ingest_part``; empty if that would save no request.
        """
        documents = []
        for part, title, metadata in upcoming if len(upcoming) > 1 else ():
            if is_small(part):
                with suppress(Exception):  # reported when it is ingested
                    documents.append(await self._reader.read(part, title, metadata))
        return await self.vectors_of(collection, documents)

    async def vectors_of(
        self, collection: Collection, documents: Sequence[ExtractedDocument]
    ) -> KnownVectors:
        """Embed small documents that have been read already; see ``embedding_prefetch``."""
        if len(documents) < 2:
            return {}
        vectors = ChunkVectors(self._embeddings, collection, None, self._models)
        return await make_ahead(documents, collection.id, self._documents, self._chunking, vectors)


def _unchanged(current: CurrentDocument) -> StoredDocument:
    return StoredDocument(
        document_id=current.document_id,
        version=current.version,
        chunks_added=0,
        chunks_kept=len(current.chunk_hashes),
        chunks_removed=0,
        unchanged=True,
    )


def _tell(on_stage: OnStage | None, stage: IngestionStage) -> None:
    if on_stage is not None:
        on_stage(stage)
