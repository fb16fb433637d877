"""Chunks as they are stored: embedded text, content hashes, locations, and vectors."""

import hashlib
import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any, TypeAlias

from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel, EmbeddingModelRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ExtractionError, VectorForgeError
from vectorforge.ingestion.chunk import ChunkingConfig, ContextKind, chunk_text
from vectorforge.ingestion.locations import find_headings, locations_of, outline_contexts, place_of
from vectorforge.ingestion.types import ExtractedDocument, OnProgress
from vectorforge.tokens import estimate_tokens
from vectorforge.types import ChunkDraft, Collection, DocumentDraft, Vector

logger = logging.getLogger(__name__)

KnownVectors: TypeAlias = Mapping[tuple[EmbeddingModel, bytes], Vector]
"""By model and the chunk's content hash."""

_MAX_HEADER_CHARS = 200
"""Maximum length of title and heading path: small models read about 1,200 characters in total."""


def embedded_text(title: str | None, heading: str | None, text: str, context: str | None = None) -> str:
    """Join title, heading path, context and text, a line each, without a title that the heading starts with.

    Chunks rarely repeat their topic; titles add it. ``vectorforge.add_terms`` of the database indexes the
    words of the same four, but not only the first 200 characters of the title and the last of the heading.
    """
    named = title if title and not (heading or "").startswith(title) else ""
    header = (named[:_MAX_HEADER_CHARS], (heading or "")[-_MAX_HEADER_CHARS:], context)
    return "\n".join([*filter(None, header), text])


FORMAT = "5"
"""Part of every document's hash. Change it when the stored form of documents changes."""


def draft_document(document: ExtractedDocument, chunking: ChunkingConfig) -> DocumentDraft:
    """Return the document with a hash over everything that affects its stored form.

    The embedding model is not part of it: a model change replaces no document.
    """
    decisive: list[Any] = [
        FORMAT,
        document.text,
        document.title,
        document.media_type,
        document.metadata,
        document.spans,
        document.parent_source,
        chunking.chunk_size,
        chunking.chunk_overlap,
    ]
    if chunking.context is not None:
        decisive.append(["context", chunking.context])
    if document.chunks is not None:
        decisive.append([[c.index, c.start_offset, c.end_offset, c.metadata] for c in document.chunks])
    return DocumentDraft(
        source=document.source,
        text=document.text,
        media_type=document.media_type,
        content_hash=_hash(decisive),
        title=document.title,
        metadata=document.metadata,
        parent_source=document.parent_source,
        document_id=document.document_id,
    )


def draft_chunks(document: ExtractedDocument, chunking: ChunkingConfig) -> list[ChunkDraft]:
    """Cut a document into chunks without vectors, in about a second per million characters.

    A chunk's hash covers what is embedded (``embedded_text``) and how many equal chunks came before it in
    the document, so that hashes are unique and each identifies one stored embedding. For a context that a
    model has to write it covers the document's source instead: such a chunk keeps the context it has got.

    Returns:
        Chunks in the order of the text, with their locations; page, slide or sheet of the first is metadata.
    """
    seen: Counter[str] = Counter()
    drafts = []
    chunks = document.chunks
    if chunks is None:
        chunks = tuple(
            chunk_text(document.text, chunking, media_type=document.media_type, spans=document.spans)
        )
    # the only chunk is its document, and needs no context
    kind = chunking.context if len(chunks) > 1 else None
    contexts = (
        outline_contexts(document.text, chunks) if kind is ContextKind.OUTLINE else [None] * len(chunks)
    )
    headings = find_headings(document.text, document.media_type, document.spans)
    for chunk, context in zip(chunks, contexts, strict=True):
        embedded = embedded_text(document.title, chunk.heading, chunk.text, context)
        locations = chunk.locations or locations_of(
            document.text, document.spans, chunk.start_offset, chunk.end_offset, headings
        )
        drafts.append(
            ChunkDraft(
                index=chunk.index,
                text=chunk.text,
                start_offset=chunk.start_offset,
                end_offset=chunk.end_offset,
                token_count=estimate_tokens(chunk.text),
                content_hash=_hash(
                    [embedded, seen[embedded]]
                    if kind is not ContextKind.MODEL
                    else [embedded, seen[embedded], ContextKind.MODEL, document.source]
                ),
                heading=chunk.heading,
                metadata={**place_of(locations), **chunk.metadata},
                locations=locations,
                index_context=context,
            )
        )
        seen[embedded] += 1
    if not drafts:
        raise ExtractionError("The document contains no text.", reason="empty")
    return drafts


def _hash(decisive: list[Any]) -> bytes:
    return hashlib.sha256(json.dumps(decisive, sort_keys=True, default=dict).encode()).digest()


class ChunkVectors:
    """Embeds chunks of one collection, and caches the vectors across write attempts.

    Args:
        models: Current embedding models of the collection; None: the model of ``collection``.
    """

    def __init__(
        self,
        embeddings: EmbeddingProviderRegistry,
        collection: Collection,
        models: EmbeddingModelRepository | None,
        prefetched: KnownVectors | None = None,
    ) -> None:
        self._embeddings = embeddings
        self._collection = collection
        self._repo = models
        self._models = [EmbeddingModel.of(collection)]
        self.made: dict[tuple[EmbeddingModel, bytes], Vector] = {}
        """The vectors, by model and the chunk's content hash."""
        self._prefetched = prefetched or {}

    async def make(
        self,
        chunks: Sequence[tuple[str | None, ChunkDraft]],
        on_progress: OnProgress | None = None,
    ) -> None:
        """Embed the chunks that have no vector yet, given with the titles of their documents.

        Raises:
            EmbeddingError: The collection's model failed. A failure of the second model is only logged: the
                backfill retries it.
            ConfigurationError: The collection's provider is not available here.
            NotFoundError: The collection was deleted.
        """
        if self._repo is not None:
            self._models = await self._repo.of(self._collection.id)
        await self._make(self._models[0], chunks, on_progress)
        for other in self._models[1:]:
            try:
                await self._make(other, chunks, None)
            except VectorForgeError as exc:
                logger.warning("A document was embedded with one of two models only: %s", exc.message)

    def given(self, chunk: ChunkDraft) -> ChunkDraft:
        """Return the chunk with its vectors, if there are any."""
        vectors = {
            model.space: self.made[model, chunk.content_hash]
            for model in self._models
            if (model, chunk.content_hash) in self.made
        }
        if not vectors:
            return chunk
        return replace(chunk, vector=vectors.get(self._models[0].space), vectors=vectors)

    async def _make(
        self,
        model: EmbeddingModel,
        chunks: Sequence[tuple[str | None, ChunkDraft]],
        on_progress: OnProgress | None,
    ) -> None:
        missing, ready = [], 0
        for title, chunk in chunks:
            key = (model, chunk.content_hash)
            if key in self.made:
                continue
            if key in self._prefetched:
                self.made[key] = self._prefetched[key]
                ready += 1
            else:
                missing.append((title, chunk))
        provider = self._embeddings.get(model.provider)
        texts = [
            model.document_prefix + embedded_text(title, chunk.heading, chunk.text, chunk.index_context)
            for title, chunk in missing
        ]

        def report(done: int) -> None:
            if on_progress is not None:
                on_progress(ready + done, ready + len(texts))

        if ready:
            report(0)
        vectors = await provider.embed_chunks(texts, model=model.model, on_progress=report)
        for (_, chunk), vector in zip(missing, vectors, strict=True):
            self.made[model, chunk.content_hash] = vector
