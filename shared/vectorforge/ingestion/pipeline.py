"""Ingestion of documents: extract, chunk, embed new chunks, replace the document in one step."""

import asyncio
import logging
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import aclosing
from dataclasses import replace
from typing import Final

from vectorforge.config import IngestionSettings
from vectorforge.db.repositories.document_repo import DocumentRepository
from vectorforge.db.repositories.embedding_space_repo import EmbeddingModelRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConflictError, DimensionMismatchError, VectorForgeError, log_unexpected
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.contexts import ContextModel, ContextWriter
from vectorforge.ingestion.drafts import ChunkVectors, KnownVectors, draft_chunks, draft_document
from vectorforge.ingestion.extract import PartReader, media, split
from vectorforge.ingestion.group import DocumentGroup, DocumentItem
from vectorforge.ingestion.originals import OriginalKeeper
from vectorforge.ingestion.types import (
    Charge,
    DocumentPart,
    DocumentResult,
    DocumentStatus,
    ExtractedDocument,
    ExtractionLimits,
    IngestionStage,
    OnProgress,
    OnStage,
)
from vectorforge.types import Collection, StoredDocument
from vectorforge.vectorstore.base import VectorStore

logger = logging.getLogger(__name__)

_WRITE_ATTEMPTS: Final = 3
"""Attempts; a store rejects a write after a concurrent replacement. Each attempt embeds less."""

PlacedResults = Sequence[tuple[int, DocumentResult]]
"""Results, each with the place of its document among those given."""


class IngestionPipeline:
    """Stores documents of one tenant.

    Attributes:
        reader: Reads files and their parts.

    Args:
        models: Current embedding models of the same tenant's collections. None: the model of the
            collection that is passed in.
        charge: Counts embedded tokens against the tenant's limits; None: no limits.
        originals: Keeps the files of documents; None: they are not kept.
        context_model: Writes the contexts of contextual collections; None: they are outlines.
    """

    def __init__(
        self,
        vector_store: VectorStore,
        document_repo: DocumentRepository,
        embedding_registry: EmbeddingProviderRegistry,
        settings: IngestionSettings,
        *,
        models: EmbeddingModelRepository | None = None,
        charge: Charge | None = None,
        originals: OriginalKeeper | None = None,
        context_model: ContextModel | None = None,
    ) -> None:
        self._context_model = context_model
        self._store = vector_store
        self._originals = originals
        self._documents = document_repo
        self._embeddings = embedding_registry
        self._models = models
        self._charge = charge
        self.reader = PartReader(ExtractionLimits.from_settings(settings))
        self._chunking = ChunkingConfig.from_settings(settings)

    def contexts_of(self, collection: Collection) -> ContextWriter:
        """Return a writer of contexts for some documents."""
        return ContextWriter(self._context_model, self._chunking, collection)

    async def delete_left_out(
        self, collection: Collection, parts: Sequence[DocumentPart], results: Sequence[DocumentResult]
    ) -> int:
        """Delete the documents of a JSONL file that are not among all its parts, unless one failed.

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
        return await asyncio.to_thread(
            split, content, source=source, media_type=media_type, limits=self.reader.limits
        )

    async def ingest_parts(
        self,
        collection: Collection,
        items: Sequence[DocumentItem],
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[PlacedResults, None]:
        """Read and store documents with different sources, the new ones among several together.

        Yields:
            Results as soon as they are final, each with the place of its item, and each item once. A failure
            is a result, so that other documents continue.
        """
        group = await self.prepare_parts(collection, items, on_stage=on_stage, on_progress=on_progress)
        ingested = self.ingest_group(collection, group, on_stage=on_stage, on_progress=on_progress)
        async with aclosing(ingested) as stored:
            async for results in stored:
                yield results

    async def prepare_parts(
        self,
        collection: Collection,
        items: Sequence[DocumentItem],
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
    ) -> DocumentGroup:
        """Read documents with different sources, and embed several together; writes nothing."""
        _tell(on_stage, IngestionStage.EXTRACT)
        read: dict[int, ExtractedDocument] = {}
        failures: list[tuple[int, DocumentResult]] = []
        for place, result in enumerate(await self.reader.read_all(items, ocr=collection.ocr)):
            if isinstance(result, Exception):
                failures.append((place, _failure(items[place].part.source, result)))
            else:
                read[place] = result
        group = await self.prepare_documents(collection, read, failures, on_progress=on_progress)
        parts = {place: items[place].part for place in read}
        group.contents = {
            place: part.content for place, part in parts.items() if part.media_type != media.RECORD
        }
        return group

    async def prepare_documents(
        self,
        collection: Collection,
        documents: Mapping[int, ExtractedDocument],
        failures: Sequence[tuple[int, DocumentResult]] = (),
        *,
        on_progress: OnProgress | None = None,
    ) -> DocumentGroup:
        """Embed extracted documents with different sources, given by place, if there are several."""
        vectors = ChunkVectors(self._embeddings, collection, self._models)
        limits, contexts = self.reader.limits, self.contexts_of(collection)
        group = DocumentGroup(
            self._store, self._documents, collection.id, contexts, limits, vectors, documents, failures
        )
        if len(documents) > 1:
            await group.prepare(self._charge, on_progress)
        return group

    async def ingest_group(
        self,
        collection: Collection,
        group: DocumentGroup,
        *,
        on_stage: OnStage | None = None,
        on_progress: OnProgress | None = None,
    ) -> AsyncGenerator[PlacedResults, None]:
        """Store what ``prepare_parts`` or ``prepare_documents`` has prepared; see ``ingest_parts``."""
        if group.failures:
            yield group.failures
        stored = await group.store()
        if stored:
            yield await self._with_originals(collection, group, stored)
        for place, document in group.documents.items():
            if place in stored:
                continue
            try:
                one = await self.write_document(
                    collection,
                    document,
                    on_stage=on_stage,
                    on_progress=on_progress,
                    prefetched=group.vectors.made,
                    charged=place in group.charged,
                    contexts=group.contexts,
                )
            except Exception as exc:  # noqa: BLE001 - a bug with one document must not fail the others
                yield [(place, _failure(document.source, exc, document.warnings))]
            else:
                yield await self._with_originals(collection, group, {place: one})

    async def write_document(
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
        self.reader.limits.check_chars(len(document.text))
        contexts = contexts or self.contexts_of(collection)
        draft = await asyncio.to_thread(draft_document, document, contexts.chunking)
        current = await self._documents.current_hashes(collection.id, document.source)
        if current is not None and current.content_hash == draft.content_hash:
            return current.unchanged()
        _tell(on_stage, IngestionStage.CHUNK)
        chunks = await asyncio.to_thread(draft_chunks, document, contexts.chunking)
        self.reader.limits.check_chunks(len(chunks))
        vectors = ChunkVectors(self._embeddings, collection, self._models, prefetched)
        for attempt in range(1, _WRITE_ATTEMPTS + 1):
            stored = current.chunk_hashes if current else frozenset()
            new = [c for c in chunks if c.content_hash not in stored]
            if new:
                _tell(on_stage, IngestionStage.EMBED)
                if self._charge is not None and attempt == 1 and not charged:
                    await self._charge(sum(chunk.token_count for chunk in new))
            written = await contexts.write(document, draft, chunks, stored)
            new = [c for c in written.chunks if c.content_hash not in stored]
            if new:
                await vectors.make([(draft.title, chunk) for chunk in new], on_progress)
            ready = [vectors.given(chunk) for chunk in written.chunks]
            _tell(on_stage, IngestionStage.STORE)
            try:
                done = await self._store.replace_document(collection.id, written.draft, ready)
                return replace(done, warnings=written.warnings)
            except ConflictError as exc:
                if attempt == _WRITE_ATTEMPTS or isinstance(exc, DimensionMismatchError):
                    raise
            current = await self._documents.current_hashes(collection.id, document.source)
        raise AssertionError("the last attempt returns or raises")

    async def _with_originals(
        self, collection: Collection, group: DocumentGroup, stored: Mapping[int, StoredDocument]
    ) -> PlacedResults:
        """Return the results of stored documents after keeping their files; without its file each failed."""
        documents = group.documents
        try:
            if self._originals is not None:
                await self._originals.keep_group(collection, group, stored)
        except Exception as exc:  # noqa: BLE001 - the next attempt finds the documents stored
            return [(place, _failure(documents[place].source, exc)) for place in stored]
        return [(place, DocumentResult.of(documents[place], one)) for place, one in stored.items()]


def _failure(source: str, exc: Exception, warnings: tuple[str, ...] = ()) -> DocumentResult:
    if not isinstance(exc, VectorForgeError):
        log_unexpected(logger, "Ingestion of a document failed unexpectedly", exc)
        exc = VectorForgeError()
    return DocumentResult.of_failure(source, exc, warnings)


def _tell(on_stage: OnStage | None, stage: IngestionStage) -> None:
    if on_stage is not None:
        on_stage(stage)
