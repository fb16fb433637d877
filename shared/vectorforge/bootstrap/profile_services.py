"""The profiles of one tenant: the collection that holds them, and both pipelines over it."""

from typing import TYPE_CHECKING

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import ConflictError, NotFoundError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.ingestion.types import ExtractionLimits
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.pipeline.query import QueryPreprocessor
from vectorforge.retriever.base import CollectionChoice
from vectorforge.retriever.profile import ProfileVectorStore
from vectorforge.types import Collection

if TYPE_CHECKING:
    from vectorforge.bootstrap.application import Application
    from vectorforge.bootstrap.tenant_services import TenantServices


_NO_PROFILES = "There are no profiles yet."


class ProfileServices:
    """What one tenant can do with profiles."""

    def __init__(self, tenant: "TenantServices", application: "Application") -> None:
        self._tenant = tenant
        self._application = application

    async def collection(self) -> Collection:
        """The collection that holds the profiles.

        Raises:
            NotFoundError: There is none before the first profile.
            ConflictError: The collection of this name was not made for profiles.
        """
        found = await self._tenant.collections.find_by_name(self._name)
        if found is None:
            raise NotFoundError(_NO_PROFILES)
        return self._checked(found)

    @property
    def choice(self) -> CollectionChoice:
        """``collection`` as the choice of a query, with the same errors."""
        return CollectionChoice((self._name,), NotFoundError(_NO_PROFILES), self._checked)

    @property
    def _name(self) -> str:
        return self._application.config.query.profile_collection

    def _checked(self, found: Collection) -> Collection:
        if not found.by_profile:
            raise ConflictError(
                f"The collection {self._name!r} was not made for profiles; name another one with "
                "VECTORFORGE_PROFILE_COLLECTION."
            )
        return found

    async def ingestion(self, chunking: ChunkingConfig | None = None) -> RAGIngestionPipeline:
        """Stores profiles; their collection is made when it is missing.

        Args:
            chunking: Sizes of the chunks; None takes those of the settings.

        Raises:
            ConflictError: The collection of this name was not made for profiles.
            ConfigurationError: The collection's embedding provider is not available here.
        """
        settings = self._application.config.ingestion
        store, provider = self._store(await self._collection_or_new())
        return RAGIngestionPipeline(
            store,
            provider,
            chunking=chunking or ChunkingConfig.from_settings(settings),
            limits=ExtractionLimits.from_settings(settings),
            now=self._now,
            charge=self._tenant.limits.charge,
        )

    async def retrieval(self) -> RAGRetrievalPipeline:
        """Searches profiles.

        Raises:
            NotFoundError: There are no profiles yet.
            ConflictError: The collection of this name was not made for profiles.
            ConfigurationError: The collection's embedding provider is not available here.
        """
        settings = self._application.config.query
        store, provider = self._store(await self.collection())
        return RAGRetrievalPipeline(
            store,
            provider,
            preprocessor=QueryPreprocessor(settings.max_query_length),
            max_top_k=settings.max_top_k,
            now=self._now,
        )

    async def delete(self, profile_id: int) -> int:
        """Remove a profile; returns how many chunks it had.

        Raises:
            NotFoundError: There is no such profile.
        """
        store, _ = self._store(await self.collection())
        stored = await store.stored(profile_id)
        chunks = await store.delete_profile_chunks(profile_id)
        if not stored and not chunks:
            raise NotFoundError(f"Profile {profile_id} not found")
        return chunks

    async def _now(self) -> tuple[ProfileVectorStore, EmbeddingProvider]:
        return self._store(await self.collection())

    def _store(self, collection: Collection) -> tuple[ProfileVectorStore, EmbeddingProvider]:
        provider = self._tenant.embeddings.get(collection.embedding_provider)
        return ProfileVectorStore(provider, store=self._tenant.vector_store, collection=collection), provider

    async def _collection_or_new(self) -> Collection:
        try:
            return await self.collection()
        except NotFoundError:
            pass
        try:
            return await self._tenant.create_collection(
                self._application.config.query.profile_collection,
                description="Profiles: every question and search names one.",
                by_profile=True,
            )
        except ConflictError:  # another request was a moment faster
            return await self.collection()
