"""Collections in PostgreSQL, for tests of the layers above them."""

from uuid import UUID, uuid4

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import DistanceMetric


async def insert_collection(
    db: TenantDatabase, dimension: int, metric: DistanceMetric, *, by_profile: bool = False
) -> UUID:
    """Create an empty collection of the tenant with a random name, and return its id."""
    collection = await CollectionRepository(db).create(
        f"collection {uuid4()}",
        embedding_provider="local",
        embedding_model="test",
        dimension=dimension,
        distance_metric=metric,
        by_profile=by_profile,
    )
    return collection.id
