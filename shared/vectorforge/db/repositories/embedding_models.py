"""Which models make the vectors of a collection: its own, and a second one while that is being changed."""

from dataclasses import dataclass
from typing import Self
from uuid import UUID

from vectorforge.db.connection import TenantDatabase
from vectorforge.errors import NotFoundError
from vectorforge.types import Collection

# One statement, so that both are of the same moment.
_MODELS = """
SELECT c.embedding_provider AS provider, c.embedding_model AS model, c.dimension, c.query_prefix,
       c.document_prefix, coalesce(c.space, c.distance_metric || '_' || c.dimension) AS space,
       0 AS place
FROM vectorforge.collections AS c WHERE c.tenant_id = %(tenant)s AND c.id = %(collection)s
UNION ALL
SELECT s.embedding_provider, s.embedding_model, s.dimension, s.query_prefix, s.document_prefix, s.space, 1
FROM vectorforge.embedding_switches AS s
WHERE s.tenant_id = %(tenant)s AND s.collection_id = %(collection)s AND s.state <> 'removing'
ORDER BY place
"""


@dataclass(frozen=True, slots=True)
class EmbeddingModel:
    """A model, how it is to be asked, and where its vectors are."""

    provider: str
    """Name under which the provider is registered."""
    model: str
    dimension: int
    query_prefix: str
    document_prefix: str
    space: str
    """The partition of the embeddings."""

    @classmethod
    def of(cls, collection: Collection) -> Self:
        """The collection's own."""
        return cls(
            collection.embedding_provider,
            collection.embedding_model,
            collection.dimension,
            collection.query_prefix,
            collection.document_prefix,
            collection.space,
        )


class EmbeddingModelRepository:
    """The models of one tenant's collections."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def of(self, collection_id: UUID) -> list[EmbeddingModel]:
        """The collection's own model, and the other one while a change is open.

        Raises:
            NotFoundError: There is no such collection.
        """
        params = {"tenant": self._db.tenant_id, "collection": collection_id}
        rows = await self._db.fetch_all(_MODELS, params)
        if not rows:
            raise NotFoundError("There is no collection with this id.")
        for row in rows:
            del row["place"]
        return [EmbeddingModel(**row) for row in rows]
