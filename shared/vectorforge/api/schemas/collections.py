"""Bodies of ``/v1/collections``."""

from datetime import datetime
from typing import Annotated, Self
from uuid import UUID

from pydantic import BaseModel, Field, StringConstraints

from vectorforge.api.schemas.base import MAX_NAME_CHARS, ModelName, ProviderName, RequestBody
from vectorforge.types import Collection, DistanceMetric, VectorIndex


class CollectionRequest(RequestBody):
    """A collection to be made; what is left out comes from the embedding provider."""

    name: Annotated[str, StringConstraints(strip_whitespace=True, min_length=1, max_length=MAX_NAME_CHARS)]
    description: str = Field(default="", max_length=2000)
    embedding_provider: ProviderName | None = None
    embedding_model: ModelName | None = None
    dimension: Annotated[int, Field(ge=1, le=16_000)] | None = None
    distance_metric: DistanceMetric = DistanceMetric.COSINE
    query_prefix: str | None = Field(default=None, max_length=500)
    document_prefix: str | None = Field(default=None, max_length=500)
    vector_index: VectorIndex = Field(
        default=VectorIndex.FULL,
        description="What the index of the vectors is made of, once there are more than 10,000: the "
        "vectors, the vectors in half precision, or their signs. What it finds is ranked by the full ones.",
    )


class CollectionBody(BaseModel):
    """A set of documents that share one embedding model."""

    id: UUID
    name: str
    description: str
    embedding_provider: str
    embedding_model: str
    dimension: int
    distance_metric: DistanceMetric
    vector_index: VectorIndex
    by_profile: bool = Field(
        description="True: every document belongs to a profile, and every question and search names one."
    )
    document_count: int
    chunk_count: int
    created_at: datetime | None

    @classmethod
    def of(cls, collection: Collection) -> Self:
        """The body for the collection."""
        return cls(
            id=collection.id,
            name=collection.name,
            description=collection.description,
            embedding_provider=collection.embedding_provider,
            embedding_model=collection.embedding_model,
            dimension=collection.dimension,
            distance_metric=collection.distance_metric,
            vector_index=collection.vector_index,
            by_profile=collection.by_profile,
            document_count=collection.document_count,
            chunk_count=collection.chunk_count,
            created_at=collection.created_at,
        )


class CollectionList(BaseModel):
    """All collections, by name."""

    collections: list[CollectionBody]
