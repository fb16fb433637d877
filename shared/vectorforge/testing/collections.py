"""Collections in PostgreSQL, for tests of what stands on them."""

from uuid import UUID, uuid4

from vectorforge.db.connection import TenantDatabase
from vectorforge.types import DistanceMetric


async def insert_collection(db: TenantDatabase, dimension: int, metric: DistanceMetric) -> UUID:
    """Make an empty collection of the tenant, with any name, and return its id."""
    collection_id = uuid4()
    await db.fetch_all("SELECT vectorforge.ensure_embedding_space(%s, %s)", (metric.value, dimension))
    await db.execute(
        "INSERT INTO vectorforge.collections (tenant_id, id, name, embedding_provider, embedding_model,"
        " dimension, distance_metric) VALUES (%s, %s, %s, 'local', 'test', %s, %s)",
        (db.tenant_id, collection_id, f"collection {collection_id}", dimension, metric.value),
    )
    return collection_id
