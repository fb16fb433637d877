"""Profiles of one tenant: the collection that holds them, and both pipelines over it."""

from collections.abc import Awaitable, Callable

from vectorforge.bootstrap.tenant_parts import CollectionCatalogue
from vectorforge.config import VectorForgeConfig
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConflictError, NotFoundError
from vectorforge.ingestion.chunk import ChunkingConfig
from vectorforge.ingestion.profile import RAGIngestionPipeline
from vectorforge.ingestion.types import ExtractionLimits
from vectorforge.pipeline.profile import RAGRetrievalPipeline
from vectorforge.retriever.base import CollectionChoice, QueryPreprocessor
from vectorforge.retriever.profile import ProfileVectorStore
from vectorforge.types import Collection
from vectorforge.vectorstore.base import VectorStore

_NO_PROFILES = "There are no profiles yet."


class ProfileServices:
    """Profiles of one tenant."""

    def __init__(
        self,
        config: VectorForgeConfig,
        catalog: CollectionCatalogue,
        embeddings: EmbeddingProviderRegistry,
        store: VectorStore,
        *,
        charge: Callable[[int], Awaitable[None]],
    ) -> None:
        self._config = config
        self._catalog = catalog
        self._embeddings = embeddings
        self._vector_store = store
        self._charge = charge
        self._name = config.query.profile_collection

    async def collection(self) -> Collection:
        """Return the collection that holds the profiles.

        Raises:
            NotFoundError: There are no profiles yet.
            ConflictError: The collection of this name was not made for profiles.
        """
        collection = await self._catalog.collections.find_by_name(self._name)
        if collection is None:
            raise NotFoundError(_NO_PROFILES)
        return self._checked(collection)

    @property
    def choice(self) -> CollectionChoice:
        """``collection`` as the choice of a query, with the same errors."""
        return CollectionChoice((self._name,), lambda _: NotFoundError(_NO_PROFILES), self._checked)

    def _checked(self, collection: Collection) -> Collection:
        if not collection.by_profile:
            raise ConflictError(
                f"The collection {self._name!r} was not made for profiles; name another one with "
                "VECTORFORGE_PROFILE_COLLECTION."
            )
        return collection

    async def ingestion(self, chunking: ChunkingConfig | None = None) -> RAGIngestionPipeline:
        """Return the ingestion pipeline of profiles; create their collection if it is missing.

        Args:
            chunking: Sizes of the chunks; None for the settings'.

        Raises:
            ConflictError: The collection of this name was not made for profiles.
            ConfigurationError: The collection's embedding provider is not available here.
        """
        settings = self._config.ingestion
        collection = await self._catalog.find_or_create_collection(
            self._name, description="Profiles: every question and search names one.", by_profile=True
        )
        store, provider = self._store(self._checked(collection))
        return RAGIngestionPipeline(
            store,
            provider,
            chunking=chunking or ChunkingConfig.from_settings(settings),
            limits=ExtractionLimits.from_settings(settings),
            now=self._now,
            charge=self._charge,
        )

    async def retrieval(self) -> RAGRetrievalPipeline:
        """Return the retrieval pipeline of profiles.

        Raises:
            NotFoundError: There are no profiles yet.
            ConflictError: The collection of this name was not made for profiles.
            ConfigurationError: The collection's embedding provider is not available here.
        """
        settings = self._config.query
        store, provider = self._store(await self.collection())
        return RAGRetrievalPipeline(
            store,
            provider,
            preprocessor=QueryPreprocessor(settings.max_query_length),
            max_top_k=settings.max_top_k,
            now=self._now,
        )

    async def delete(self, profile_id: int) -> int:
        """Delete a profile and return the number of its chunks.

        Raises:
            NotFoundError: No such profile.
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
        provider = self._embeddings.get(collection.embedding_provider)
        return ProfileVectorStore(provider, store=self._vector_store, collection=collection), provider
