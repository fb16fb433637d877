"""Vectors of questions that were asked before, read in the same statement as their collection."""

# ruff: noqa: S608
# (Statements are put together from constants of this module only; values are bound.)

import sys
from array import array
from uuid import UUID

from vectorforge.db.repositories.collection_repo import COLUMNS, make_collection
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.db.types import Params
from vectorforge.types import Collection, Vector

# The key needs the collection's model and prefix, so it is made where these are: no round trip of its own.
_KEY = """
sha256(convert_to(
    jsonb_build_array(%(settings)s::text, {provider}, {model}, {prefix} || %(query)s::text)::text, 'UTF8'
))
"""
STORED_KEY = _KEY.format(provider="c.embedding_provider", model="c.embedding_model", prefix="c.query_prefix")
"""SQL of the cache key from a collection ``c``, ``%(settings)s`` and ``%(query)s``."""
_FIND = f"""
SELECT c.*, e.vector
FROM (
    SELECT {COLUMNS} FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection_id)s
) AS c
LEFT JOIN vectorforge.cached_embeddings AS e
    ON e.tenant_id = %(tenant_id)s AND e.expires_at > now() AND e.key = {STORED_KEY}
"""
_GIVEN = _KEY.format(provider="%(provider)s::text", model="%(model)s::text", prefix="%(prefix)s::text")
_KEEP = f"""
INSERT INTO vectorforge.cached_embeddings (tenant_id, key, vector, created_at, expires_at)
VALUES (%(tenant_id)s, {_GIVEN}, %(vector)s, now(), now() + make_interval(secs => %(ttl_s)s))
ON CONFLICT (tenant_id, key) DO UPDATE
SET vector = excluded.vector, created_at = excluded.created_at, expires_at = excluded.expires_at
"""


class QueryVectorRepository:
    """The cached vectors of one tenant's questions.

    Args:
        db: Of the tenant.
        settings: What decides a vector beside provider, model and text: addresses and sizes, as one text.
        ttl_s: Seconds for which a vector is kept.
    """

    def __init__(self, db: TenantDatabase, *, settings: str, ttl_s: float) -> None:
        self._db = db
        self._settings = settings
        self._ttl_s = ttl_s

    async def find(self, collection_id: UUID, query: str) -> tuple[Collection | None, Vector | None]:
        """The collection, and the vector of the question in its model's space; each None when not there."""
        values = {
            "tenant_id": self._db.tenant_id,
            "collection_id": collection_id,
            "settings": self._settings,
            "query": query,
        }
        row = await self._db.fetch_one(_FIND, values, repeatable=True)
        if row is None:
            return None, None
        vector = read_vector(row.pop("vector"))
        return make_collection(row), vector

    async def keep(self, collection: Collection, query: str, vector: Vector) -> None:
        """Store the vector that the collection's own model made of the question and the query prefix."""
        await self._db.execute(*self.end_write(collection, query, vector), repeatable=True)

    def end_write(self, collection: Collection, query: str, vector: Vector) -> tuple[str, Params]:
        """The statement that ``keep`` runs, and its values; running it twice changes nothing more."""
        return _KEEP, {
            "tenant_id": self._db.tenant_id,
            "settings": self._settings,
            "provider": collection.embedding_provider,
            "model": collection.embedding_model,
            "prefix": collection.query_prefix,
            "query": query,
            "vector": _bytes(vector),
            "ttl_s": self._ttl_s,
        }


def _bytes(vector: Vector) -> bytes:
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tobytes()


def read_vector(stored: bytes | None) -> list[float] | None:
    """A vector as it is stored; None stays None."""
    if stored is None:
        return None
    values = array("f")
    values.frombytes(stored)
    if sys.byteorder == "big":
        values.byteswap()
    return values.tolist()
