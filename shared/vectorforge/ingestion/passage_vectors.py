"""The vectors of one document's passages: of its collection's model, and of the one to come."""

import logging
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Protocol
from uuid import UUID

from vectorforge.db.repositories.embedding_models import EmbeddingModel
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import VectorForgeError
from vectorforge.ingestion.embedded_text import embedded_text
from vectorforge.types import ChunkDraft, Collection, Vector

logger = logging.getLogger(__name__)


class CollectionModels(Protocol):
    """What is asked of ``EmbeddingModelRepository``."""

    async def of(self, collection_id: UUID) -> list[EmbeddingModel]:
        """The collection's own model, then the other one while that is being changed."""
        ...


class PassageVectors:
    """Makes vectors, and keeps them while the document is tried to be stored.

    Args:
        embeddings: Has the providers that collections name.
        collection: Whose passages these are.
        title: The document's.
        models: Tells by what the collection is embedded at the time; None: always by what it says.
        known: Vectors made before.
    """

    def __init__(
        self,
        embeddings: EmbeddingProviderRegistry,
        collection: Collection,
        title: str | None,
        models: CollectionModels | None,
        known: Mapping[tuple[EmbeddingModel, bytes], Vector] | None = None,
    ) -> None:
        self._embeddings = embeddings
        self._collection = collection
        self._title = title
        self._repo = models
        self._models = [EmbeddingModel.of(collection)]
        self._made: dict[tuple[EmbeddingModel, bytes], Vector] = {}
        self._known = known or {}

    @property
    def made(self) -> Mapping[tuple[EmbeddingModel, bytes], Vector]:
        """The vectors, by model and the chunk's content hash."""
        return self._made

    async def make(
        self, chunks: Sequence[ChunkDraft], on_progress: Callable[[int, int], None] | None = None
    ) -> None:
        """Make the vectors that chunks lack, none twice.

        Raises:
            EmbeddingError: The collection's model failed. That the other does is only logged: the backfill
                tries it again.
            ConfigurationError: The collection's provider is not available here.
            NotFoundError: The collection is gone.
        """
        await self.make_of([(self._title, chunk) for chunk in chunks], on_progress)

    async def make_of(
        self,
        chunks: Sequence[tuple[str | None, ChunkDraft]],
        on_progress: Callable[[int, int], None] | None = None,
    ) -> None:
        """As ``make``, of chunks with the titles of their documents."""
        if self._repo is not None:
            self._models = await self._repo.of(self._collection.id)
        await self._make(self._models[0], chunks, on_progress)
        for other in self._models[1:]:
            try:
                await self._make(other, chunks, None)
            except VectorForgeError as exc:
                logger.warning("A document gets vectors of one model only: %s", exc.message)

    def given(self, chunk: ChunkDraft) -> ChunkDraft:
        """The chunk with the vectors made for it; as it is, if none were."""
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
        lacking, found = [], 0
        for title, chunk in chunks:
            key = (model, chunk.content_hash)
            if key in self._made:
                continue
            if key in self._known:
                self._made[key] = self._known[key]
                found += 1
            else:
                lacking.append((title, chunk))
        provider = self._embeddings.get(model.provider)
        texts = [
            model.document_prefix + embedded_text(title, chunk.heading, chunk.text)
            for title, chunk in lacking
        ]
        progress = on_progress or (lambda _done, _total: None)
        if found:
            progress(found, found + len(texts))
        vectors = await provider.embed_passages(
            texts, model=model.model, on_progress=lambda done: progress(found + done, found + len(texts))
        )
        for (_, chunk), vector in zip(lacking, vectors, strict=True):
            self._made[model, chunk.content_hash] = vector
