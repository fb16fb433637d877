"""Profiles of one collection: a vector store restricted to one profile per call.

A filter can narrow a search within the profile, never widen it.
"""

from collections.abc import Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Self, TypeAlias
from uuid import UUID, uuid4

from vectorforge.db.repositories.document_repo import CurrentDocument
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import ConfigurationError, ConflictError, RetrievalError
from vectorforge.profile_types import ChunkMetadata, SourceType, VectorChunk
from vectorforge.types import ChunkDraft, Collection, DistanceMetric, DocumentDraft, ReplacedProfile, Vector
from vectorforge.types import RetrievedChunk as FoundChunk
from vectorforge.vectorstore.base import VectorStore

__all__ = ["ProfileVectorStore", "ProfilesNow", "RetrievedChunk"]


@dataclass(frozen=True, slots=True)
class RetrievedChunk:
    """Chunk found in a profile: ``types.RetrievedChunk`` with a profile's metadata."""

    found: FoundChunk
    metadata: ChunkMetadata

    @classmethod
    def of(cls, found: FoundChunk) -> Self:
        """Return the profile's view of a chunk.

        Raises:
            RetrievalError: The chunk belongs to no profile.
        """
        try:
            return cls(found, ChunkMetadata.of(found.chunk.metadata, found.document_title))
        except (KeyError, ValueError) as exc:
            raise RetrievalError("A chunk lacks the metadata of a profile.") from exc

    @property
    def id(self) -> UUID:
        """Id of the chunk, the same on every API surface."""
        return self.found.chunk.id

    @property
    def text(self) -> str:
        """Text of the chunk."""
        return self.found.chunk.text

    @property
    def score(self) -> float:
        """See ``DistanceMetric``; higher is better."""
        return self.found.score

    @property
    def profile_id(self) -> int:
        """Profile of the chunk."""
        return self.metadata.profile_id

    @property
    def source_type(self) -> SourceType:
        """Kind of its source."""
        return self.metadata.source_type

    @property
    def source_id(self) -> str:
        """Id of its source."""
        return self.metadata.source_id


class ProfileVectorStore:
    """Stores and searches the profiles of one collection of one tenant.

    Args:
        embedding_provider: Provider of the collection's vectors.
        store: Bound to the tenant; None for one in memory, which lives as long as this object and searches by
            vectors only.
        collection: Collection for profiles; None for one of the provider's default model, in memory.

    Raises:
        ConfigurationError: The provider is not the collection's.
        ConflictError: The collection is not one for profiles.
    """

    def __init__(
        self,
        embedding_provider: EmbeddingProvider,
        *,
        store: VectorStore | None = None,
        collection: Collection | None = None,
    ) -> None:
        collection = collection or _default_collection(embedding_provider)
        self.collection = collection
        if store is None:
            from vectorforge.vectorstore.memory import InMemoryVectorStore  # not needed by functions

            store = InMemoryVectorStore()
        self._store = store
        self.check_provider(embedding_provider)
        if not collection.by_profile:
            raise ConflictError(f"The collection {collection.name!r} was not made for profiles.")

    def check_provider(self, embedding_provider: EmbeddingProvider) -> None:
        """Check that the provider is the collection's.

        Raises:
            ConfigurationError: It is not.
        """
        if embedding_provider.name != self.collection.embedding_provider:
            raise ConfigurationError(
                f"The collection {self.collection.name!r} is embedded by "
                f"{self.collection.embedding_provider!r}, not by {embedding_provider.name!r}."
            )

    async def upsert_chunks(
        self,
        profile_id: int,
        documents: Sequence[tuple[DocumentDraft, Sequence[VectorChunk]]],
        *,
        removing: Sequence[str] = (),
    ) -> ReplacedProfile:
        """Store and remove documents of a profile in one step; see ``VectorStore.replace_profile``.

        Raises:
            EmbeddingModelChangedError: The collection's model has changed since the vectors were made.
        """
        drafts = [
            (document, [self._placed(chunk.draft) for chunk in chunks]) for document, chunks in documents
        ]
        return await self._store.replace_profile(self.collection.id, profile_id, drafts, removing=removing)

    async def delete_profile_chunks(self, profile_id: int) -> int:
        """Remove a profile; return its number of chunks."""
        return await self._store.delete_profile_chunks(self.collection.id, profile_id)

    async def stored(self, profile_id: int) -> Mapping[str, CurrentDocument]:
        """Return the stored documents of a profile, by source."""
        return await self._store.profile_documents(self.collection.id, profile_id)

    async def search(
        self,
        query_vector: Vector | None,
        profile_id: int,
        top_k: int = 5,
        filters: Mapping[str, Any] | None = None,
        *,
        query_text: str | None = None,
        with_vectors: bool = False,
    ) -> list[RetrievedChunk]:
        """Return the profile's chunks for a vector, a text or both, best first; as ``VectorStore.search``."""
        optional: dict[str, Any] = {"with_vectors": True} if with_vectors else {}  # not every store knows it
        found = await self._store.search(
            query_vector=query_vector,
            query_text=query_text,
            dense_weight=self.collection.dense_weight,
            top_k=top_k,
            collection_id=self.collection.id,
            metric=self.collection.distance_metric,
            filters=filters,
            profile_id=profile_id,
            space=self.collection.space,
            **optional,
        )
        return [RetrievedChunk.of(chunk) for chunk in found]

    def _placed(self, draft: ChunkDraft) -> ChunkDraft:
        """Return the draft with its vector under its space: two models may have vectors of one length."""
        if draft.vector is None:
            return draft
        return replace(draft, vectors={self.collection.space: draft.vector})


def _default_collection(provider: EmbeddingProvider) -> Collection:
    traits = provider.traits()
    return Collection(
        id=uuid4(),
        name="profiles",
        embedding_provider=provider.name,
        embedding_model=provider.default_model,
        dimension=provider.dimension() or 0,
        distance_metric=DistanceMetric.COSINE,
        query_prefix=traits.query_prefix,
        document_prefix=traits.document_prefix,
        by_profile=True,
    )


ProfilesNow: TypeAlias = Callable[[], Awaitable[tuple[ProfileVectorStore, EmbeddingProvider]]]
"""Reads the current collection of profiles and its embedding provider."""
