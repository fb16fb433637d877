"""The profiles of one collection: a vector store seen through their integer scope.

Every call names a profile, and the store below keeps to it: a filter can narrow a search, never widen it.
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
    """A passage found in a profile: the core's ``types.RetrievedChunk`` with a profile's metadata."""

    found: FoundChunk
    metadata: ChunkMetadata

    @classmethod
    def of(cls, found: FoundChunk) -> Self:
        """The view of a passage.

        Raises:
            RetrievalError: The passage belongs to no profile.
        """
        try:
            return cls(found, ChunkMetadata.of(found.chunk.metadata, found.document_title))
        except (KeyError, ValueError) as exc:
            raise RetrievalError("A passage without the metadata of a profile was found.") from exc

    @property
    def id(self) -> UUID:
        """The chunk's id, the same through every door."""
        return self.found.chunk.id

    @property
    def text(self) -> str:
        """The passage."""
        return self.found.chunk.text

    @property
    def score(self) -> float:
        """See ``DistanceMetric``; higher is better."""
        return self.found.score

    @property
    def profile_id(self) -> int:
        """Whose it is."""
        return self.metadata.profile_id

    @property
    def source_type(self) -> SourceType:
        """What it was cut from."""
        return self.metadata.source_type

    @property
    def source_id(self) -> str:
        """Which one it was cut from."""
        return self.metadata.source_id


class ProfileVectorStore:
    """Stores and searches the profiles of one collection of one tenant.

    Args:
        embedding_provider: Made the collection's vectors.
        store: Bound to the tenant; None: in memory, and gone with this object.
        collection: Made for profiles; None: one of the provider's default model, for a store in memory.

    Raises:
        ConfigurationError: The provider is not the collection's.
        ConflictError: The collection was not made for profiles.
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
            from vectorforge.vectorstore.memory import InMemoryVectorStore  # no function needs it

            store = InMemoryVectorStore()
        self._store = store
        self.check_provider(embedding_provider)
        if not collection.by_profile:
            raise ConflictError(f"The collection {collection.name!r} was not made for profiles.")

    def check_provider(self, embedding_provider: EmbeddingProvider) -> None:
        """Refuse a provider whose vectors cannot be compared with the collection's.

        Raises:
            ConfigurationError: It is not the collection's.
        """
        if embedding_provider.provider_name() != self.collection.embedding_provider:
            raise ConfigurationError(
                f"The collection {self.collection.name!r} is embedded by "
                f"{self.collection.embedding_provider!r}, not by {embedding_provider.provider_name()!r}."
            )

    async def upsert_chunks(
        self,
        profile_id: int,
        documents: Sequence[tuple[DocumentDraft, Sequence[VectorChunk]]],
        *,
        removing: Sequence[str] = (),
    ) -> ReplacedProfile:
        """Store documents of a profile and remove others at once; see ``VectorStore.replace_profile``.

        Raises:
            EmbeddingModelChangedError: The vectors are not of the collection's model any more.
        """
        drafts = [
            (document, [self._placed(chunk.draft) for chunk in chunks]) for document, chunks in documents
        ]
        return await self._store.replace_profile(
            self.collection.id, profile_id, drafts, removing=list(removing)
        )

    async def delete_profile_chunks(self, profile_id: int) -> int:
        """Remove a profile; returns how many chunks it had."""
        return await self._store.delete_profile_chunks(self.collection.id, profile_id)

    async def stored(self, profile_id: int) -> Mapping[str, CurrentDocument]:
        """What is stored of a profile now, by source."""
        return await self._store.profile_documents(self.collection.id, profile_id)

    async def search(
        self,
        query_vector: Vector | None,
        profile_id: int,
        top_k: int = 5,
        filters: Mapping[str, Any] | None = None,
        *,
        query_text: str | None = None,
    ) -> list[RetrievedChunk]:
        """The profile's passages for a vector, a text or both, best first; see ``VectorStore.search``."""
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
        )
        return [RetrievedChunk.of(chunk) for chunk in found]

    def _placed(self, draft: ChunkDraft) -> ChunkDraft:
        """The draft with its vector named by the space it is of: those of two models may have one length."""
        if draft.vector is None:
            return draft
        return replace(draft, vectors={self.collection.space: draft.vector})


def _default_collection(provider: EmbeddingProvider) -> Collection:
    return Collection(
        id=uuid4(),
        name="profiles",
        embedding_provider=provider.provider_name(),
        embedding_model=provider.default_model,
        dimension=provider.dimension() or 0,
        distance_metric=DistanceMetric.COSINE,
        query_prefix=provider.query_prefix,
        document_prefix=provider.document_prefix,
        by_profile=True,
    )


ProfilesNow: TypeAlias = Callable[[], Awaitable[tuple[ProfileVectorStore, EmbeddingProvider]]]
"""Reads the collection of profiles as it is now, and who embeds it."""
