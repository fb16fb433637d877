"""Collections of one tenant found by id or name, and created for an embedding provider's model."""

from uuid import UUID

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import DimensionMismatchError, NotFoundError
from vectorforge.types import Collection, DistanceMetric, SearchSettings, VectorIndex


class CollectionCatalogue:
    """Collections of one tenant, with defaults from its embedding providers."""

    def __init__(self, collections: CollectionRepository, embeddings: EmbeddingProviderRegistry) -> None:
        self._collections = collections
        self._embeddings = embeddings

    async def find_collection(self, name_or_id: str) -> Collection:
        """Return a collection by id or name; an id wins.

        Raises:
            NotFoundError: No such collection.
        """
        try:
            found = await self._collections.find_by_id(UUID(name_or_id))
        except ValueError:
            found = None
        found = found or await self._collections.find_by_name(name_or_id)
        if found is None:
            raise NotFoundError(f"Collection {name_or_id} not found")
        return found

    async def create_collection(
        self,
        name: str,
        *,
        description: str = "",
        embedding_provider: str | None = None,
        embedding_model: str | None = None,
        dimension: int | None = None,
        distance_metric: DistanceMetric = DistanceMetric.COSINE,
        query_prefix: str | None = None,
        document_prefix: str | None = None,
        by_profile: bool = False,
        search: SearchSettings | None = None,
        vector_index: VectorIndex = VectorIndex.FULL,
    ) -> Collection:
        """Create a collection; None takes a value from the embedding provider.

        Raises:
            InvalidInputError: A value is invalid, or the provider or its model is unknown.
            ConflictError: The name is taken.
            DimensionMismatchError: The model's vectors do not have the requested dimension.
            EmbeddingError: The model's dimension had to be measured, and that failed.
        """
        from vectorforge.embedding_switch.service import chosen_model

        provider, model, actual = await chosen_model(self._embeddings, embedding_provider, embedding_model)
        if dimension is not None and dimension != actual:
            raise DimensionMismatchError(expected=dimension, actual=actual, what=f"model {model}")
        return await self._collections.create(
            name,
            description=description,
            embedding_provider=provider.provider_name(),
            embedding_model=model,
            dimension=actual,
            distance_metric=distance_metric,
            query_prefix=provider.query_prefix if query_prefix is None else query_prefix,
            document_prefix=provider.document_prefix if document_prefix is None else document_prefix,
            by_profile=by_profile,
            search=search or SearchSettings(),
            vector_index=vector_index,
        )
