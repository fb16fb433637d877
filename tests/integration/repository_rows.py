"""Rows that tests of repositories begin with."""

from typing import Any

from vectorforge.db.repositories.collection_repo import CollectionRepository
from vectorforge.db.repositories.job_repo import NewJobItem
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Collection, DistanceMetric


async def make_collection(db: TenantDatabase, name: str = "notes", **options: Any) -> Collection:
    options = {
        "embedding_provider": "local",
        "embedding_model": "m",
        "dimension": 3,
        "distance_metric": DistanceMetric.COSINE,
        **options,
    }
    return await CollectionRepository(db).create(name, **options)


def make_items(count: int = 2) -> list[NewJobItem]:
    return [NewJobItem(f"{n}.txt", "text/plain", b"\x00\xff%d" % n, None, {"n": n}) for n in range(count)]


async def count(db: TenantDatabase, table: str) -> int:
    row = await db.fetch_one(f"SELECT count(*) AS n FROM vectorforge.{table}")
    assert row is not None
    return int(row["n"])
