"""Profiles: rows and documents to chunks of one profile, which readers see change in one step."""

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import (
    ConflictError,
    DimensionMismatchError,
    EmbeddingModelChangedError,
    ExtractionError,
)
from vectorforge.ingestion.chunk import ChunkingConfig, chunk_text
from vectorforge.ingestion.drafts import embedded_text
from vectorforge.ingestion.extract import media
from vectorforge.ingestion.profile_text import (
    Drafted,
    ProfileDocument,
    Row,
    draft_profile,
    parent_source,
    profile_documents,
)
from vectorforge.ingestion.types import Charge, ExtractionLimits, TextSpan
from vectorforge.profile_types import SourceType, VectorChunk
from vectorforge.retriever.profile import ProfilesNow, ProfileVectorStore
from vectorforge.tokens import estimate_tokens
from vectorforge.types import ReplacedProfile, Vector
from vectorforge.vectorstore.validation import checked_profile

__all__ = ["ChunkingConfig", "ProfileDocument", "RAGIngestionPipeline", "SourceType", "chunk_text"]

_WRITE_ATTEMPTS = 3
"""Attempts; a store rejects a write after a concurrent change of the profile. Each attempt embeds less."""


@dataclass(frozen=True, slots=True)
class IngestedProfile:
    """Result of a call that writes a profile."""

    profile_id: int
    documents: int
    """Rows and documents with text."""
    documents_unchanged: int
    documents_removed: int
    chunks_added: int
    chunks_kept: int
    """Unchanged chunks: same id, same embedding."""
    chunks_removed: int


class RAGIngestionPipeline:
    """Stores profiles; never calls a language model.

    Args:
        vector_store: Collection of a tenant's profiles.
        chunking: Sizes of the chunks; default 800 characters, 150 overlapping.
        limits: Limits of each text, and of the chunks of one call.
        now: Returns store and provider after a change of the collection's embedding model; None: that
            raises.
        charge: See ``IngestionPipeline``.

    Raises:
        ConfigurationError: The provider is not the collection's.
    """

    def __init__(
        self,
        vector_store: ProfileVectorStore,
        embedding_provider: EmbeddingProvider,
        *,
        chunking: ChunkingConfig | None = None,
        limits: ExtractionLimits | None = None,
        now: ProfilesNow | None = None,
        charge: Charge | None = None,
    ) -> None:
        vector_store.check_provider(embedding_provider)
        self._profiles = (vector_store, embedding_provider)
        self._now = now
        self._charge = charge
        self._chunking = chunking or ChunkingConfig()
        self._limits = limits or ExtractionLimits()

    async def ingest_profile_data(
        self,
        profile_id: int,
        profile_summary: str,
        experiences: Sequence[Row],
        projects: Sequence[Row],
        skills: Sequence[Row | str] = (),
        education: Sequence[Row] = (),
    ) -> IngestedProfile:
        """Store or replace the documents of rows; other documents of the profile stay.

        Rows are as a database gives them, see ``profile_text``; one with the same ``id`` is replaced. Skills
        may be names, and are one document, which is replaced. An empty summary is none.

        Raises:
            InvalidInputError: A row comes twice, something cannot be stored, or there are too many chunks.
            ExtractionError: ``too_large``: a text is longer than the limit, or makes too many chunks.
            EmbeddingError: The provider failed; nothing was written.
            ConflictError: Concurrent changes of the same profile.
            DatabaseError: The database failed; nothing was written.
        """
        documents = profile_documents(profile_summary, experiences, projects, skills, education)
        return await self._write(profile_id, documents, removing=())

    async def ingest_document(
        self,
        profile_id: int,
        document_text: str,
        source_type: SourceType,
        *,
        source_id: str = "1",
        title: str | None = None,
        media_type: str = media.PLAIN,
        metadata: Mapping[str, Any] | None = None,
        spans: Sequence[TextSpan] = (),
    ) -> IngestedProfile:
        """Store a CV or another text, or replace the one with the same type and id.

        ``ingestion.extract`` reads files. ``source_id`` has 1 to 1,000 characters, Markdown is cut by its
        headings, and ``spans`` are as in ``ExtractedDocument``.

        Raises:
            ExtractionError: ``empty`` or ``too_large``.
            VectorForgeError: As ``ingest_profile_data``.
        """
        if not document_text.strip():
            raise ExtractionError("The document contains no text.", reason="empty")
        document = ProfileDocument(
            source_type, source_id, document_text, title, media_type, metadata or {}, tuple(spans)
        )
        return await self._write(profile_id, [document], removing=())

    async def reingest_profile(
        self,
        profile_id: int,
        profile_summary: str,
        experiences: Sequence[Row],
        projects: Sequence[Row],
        skills: Sequence[Row | str] = (),
        education: Sequence[Row] = (),
        *,
        documents: Sequence[ProfileDocument] | None = None,
    ) -> IngestedProfile:
        """Replace the profile in one step: readers see all of the old one or all of the new one.

        Called again with the same data it changes nothing, and what has not changed is not embedded again.
        Chunks of the summary and the rows are always replaced. CVs and other texts, which the database of
        profiles does not hold, stay unless ``documents`` is given: ``documents=[]`` removes them all.

        Raises:
            VectorForgeError: As ``ingest_profile_data``; nothing was written.
        """
        given = profile_documents(profile_summary, experiences, projects, skills, education)
        removing = [parent_source(profile_id, of_rows=True)]
        if documents is not None:
            given += documents
            removing.append(parent_source(profile_id, of_rows=False))
        return await self._write(profile_id, given, removing=removing)

    async def _write(
        self, profile_id: int, documents: Sequence[ProfileDocument], *, removing: Sequence[str]
    ) -> IngestedProfile:
        checked_profile(profile_id)
        drafted = await asyncio.to_thread(draft_profile, profile_id, documents, self._chunking, self._limits)
        vectors: dict[bytes, Vector] = {}
        for attempt in range(1, _WRITE_ATTEMPTS + 1):
            store, provider = self._profiles
            stored = await store.stored(profile_id)
            texts = _without_vector(drafted, stored, vectors)
            if self._charge is not None and texts and attempt == 1:
                await self._charge(sum(map(estimate_tokens, texts.values())))
            if texts:
                prefixed = [store.collection.document_prefix + text for text in texts.values()]
                made = await provider.embed_chunks(prefixed, model=store.collection.embedding_model)
                vectors.update(zip(texts, made, strict=True))
            ready = [
                (document, [_with_vector(chunk, vectors) for chunk in chunks]) for document, chunks in drafted
            ]
            try:
                done = await store.upsert_chunks(profile_id, ready, removing=removing)
            except EmbeddingModelChangedError:
                if attempt == _WRITE_ATTEMPTS or self._now is None:
                    raise
                self._profiles = await self._now()
                vectors.clear()
            except ConflictError as exc:
                if attempt == _WRITE_ATTEMPTS or isinstance(exc, DimensionMismatchError):
                    raise
            else:
                return _result(profile_id, done)
        raise AssertionError("the last attempt returns or raises")


def _without_vector(
    drafted: Sequence[Drafted], stored: Mapping[str, CurrentDocument], vectors: Mapping[bytes, Vector]
) -> dict[bytes, str]:
    """Return the texts to embed by chunk hash: chunks of changed documents without a stored or new vector."""
    texts: dict[bytes, str] = {}
    for document, chunks in drafted:
        current = stored.get(document.source)
        if current is not None and current.content_hash == document.content_hash:
            continue
        stored_hashes = current.chunk_hashes if current else frozenset()
        for draft in (chunk.draft for chunk in chunks):
            if draft.content_hash not in stored_hashes and draft.content_hash not in vectors:
                texts[draft.content_hash] = embedded_text(document.title, draft.heading, draft.text)
    return texts


def _with_vector(chunk: VectorChunk, vectors: Mapping[bytes, Vector]) -> VectorChunk:
    return replace(chunk, draft=replace(chunk.draft, vector=vectors.get(chunk.draft.content_hash)))


def _result(profile_id: int, done: ReplacedProfile) -> IngestedProfile:
    return IngestedProfile(
        profile_id=profile_id,
        documents=len(done.stored),
        documents_unchanged=sum(document.unchanged for document in done.stored),
        documents_removed=done.documents_removed,
        chunks_added=sum(document.chunks_added for document in done.stored),
        chunks_kept=sum(document.chunks_kept for document in done.stored),
        chunks_removed=sum(document.chunks_removed for document in done.stored) + done.chunks_removed,
    )
