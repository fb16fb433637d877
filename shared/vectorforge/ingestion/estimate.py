"""Dry run of ingestion: the tokens and the cost of embedding documents and of writing their contexts."""

import asyncio
from collections.abc import Sequence
from dataclasses import dataclass, field

from vectorforge.db.repositories.document_repo import CurrentDocument, DocumentRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import VectorForgeError, reason_of
from vectorforge.ingestion.contexts import CONTEXT_TOKENS, EstimateCost, context_calls, prompt_size
from vectorforge.ingestion.drafts import draft_chunks, draft_document, embedded_text
from vectorforge.ingestion.group import DocumentItem
from vectorforge.ingestion.pipeline import IngestionPipeline
from vectorforge.ingestion.types import ExtractedDocument
from vectorforge.tokens import estimate_tokens
from vectorforge.types import Collection


@dataclass(slots=True)
class IngestEstimate:
    """Estimated effort of ingesting documents."""

    collection: str
    documents: int = 0
    unchanged: int = 0
    failed: int = 0
    """Documents that cannot be read."""
    failures: list[dict[str, str]] = field(default_factory=list)
    """Source and error of each."""
    chunks: int = 0
    """Chunks of documents that are new or changed."""
    chunks_to_embed: int = 0
    """Those that are not stored."""
    embedding_tokens: int = 0
    """Includes the contexts."""
    embedding_cost_usd: float | None = 0.0
    """By the price list; None for a model that is not on it."""
    context_model: str | None = None
    """Provider and model that write contexts; None: no model does."""
    context_calls: int = 0
    context_prompt_tokens: int = 0
    """Includes those that a vendor takes from its prompt cache."""
    context_completion_tokens: int = 0
    context_cost_usd: float | None = 0.0
    """By the price list, without a discount for cached prompts; None for a model that is not on it."""

    def add_failure(self, source: str, error: Exception) -> None:
        """Count a document that cannot be read."""
        self.failed += 1
        self.failures.append({"source": source, "error": reason_of(error)})


@dataclass(eq=False, slots=True)
class IngestionEstimator:
    """Estimates ingestions; reads and chunks documents, writes nothing and calls no model."""

    pipeline: IngestionPipeline
    documents: DocumentRepository
    embeddings: EmbeddingProviderRegistry
    estimate_cost: EstimateCost

    async def add(
        self, estimate: IngestEstimate, collection: Collection, items: Sequence[DocumentItem]
    ) -> None:
        """Add documents to an estimate.

        Raises:
            ConfigurationError: The collection's embedding provider is not available here.
            DatabaseError: The stored documents could not be read.
        """
        sources = [item.part.source for item in items]
        current = await self.documents.current_hashes_of(collection.id, sources)
        for item, read in zip(
            items, await self.pipeline.reader.read_all(items, ocr=collection.ocr), strict=True
        ):
            estimate.documents += 1
            if isinstance(read, ExtractedDocument):
                await asyncio.to_thread(self._add, estimate, collection, read, current.get(read.source))
            else:
                estimate.add_failure(item.part.source, read)
        if self.embeddings.get(collection.embedding_provider).is_remote:
            estimate.embedding_cost_usd = self.estimate_cost(
                collection.embedding_provider, collection.embedding_model, estimate.embedding_tokens, 0
            )

    def _add(
        self,
        estimate: IngestEstimate,
        collection: Collection,
        document: ExtractedDocument,
        current: CurrentDocument | None,
    ) -> None:
        contexts = self.pipeline.contexts_of(collection)
        draft = draft_document(document, contexts.chunking)
        if current is not None and current.content_hash == draft.content_hash:
            estimate.unchanged += 1
            return
        try:
            chunks = draft_chunks(document, contexts.chunking)
        except VectorForgeError as exc:
            estimate.add_failure(document.source, exc)
            return
        stored = current.chunk_hashes if current else frozenset()
        new = [chunk for chunk in chunks if chunk.content_hash not in stored]
        estimate.chunks += len(chunks)
        estimate.chunks_to_embed += len(new)
        texts = (embedded_text(document.title, one.heading, one.text, one.index_context) for one in new)
        estimate.embedding_tokens += sum(map(estimate_tokens, texts))
        if contexts.model is None or len(chunks) < 2:
            return
        provider, model = contexts.model.provider.name, contexts.model.model
        estimate.context_model = f"{provider}/{model}"
        estimate.embedding_tokens += CONTEXT_TOKENS * len(new)
        wanted = frozenset(chunk.content_hash for chunk in new)
        for call in context_calls(document.title, document.text, chunks, wanted):
            sent, received = prompt_size(call, model), CONTEXT_TOKENS * len(call.chunks)
            estimate.context_calls += 1
            estimate.context_prompt_tokens += sent
            estimate.context_completion_tokens += received
            cost = self.estimate_cost(provider, model, sent, received)
            before = estimate.context_cost_usd
            estimate.context_cost_usd = None if cost is None or before is None else before + cost
