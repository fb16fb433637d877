"""Embedding model switches: start, exchange and end; ``second_vectors`` stores the vectors.

The vectors of both models exist side by side from start to end, so that an exchange is one
small transaction in either direction.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from enum import StrEnum
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID, uuid4

from vectorforge.db.repositories.embedding_space_repo import EmbeddingModel, second_space
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.embedding_switch.second_vectors import lock_out_writers
from vectorforge.errors import ConflictError, NotFoundError

if TYPE_CHECKING:
    from psycopg import AsyncConnection


_COLLECTION = """
SELECT coalesce(space, distance_metric || '_' || dimension) AS space, distance_metric AS metric
FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection)s
"""
_START = """
INSERT INTO vectorforge.embedding_switches (
    tenant_id, collection_id, id, embedding_provider, embedding_model, dimension, query_prefix,
    document_prefix, space
) VALUES (
    %(tenant_id)s, %(collection)s, %(id)s, %(provider)s, %(model)s, %(dimension)s, %(query_prefix)s,
    %(document_prefix)s, %(space)s
) ON CONFLICT (tenant_id, collection_id) DO NOTHING
"""
_SHOW_OTHER_SPACE = """
UPDATE vectorforge.collections SET other_space = %(space)s
WHERE tenant_id = %(tenant_id)s AND id = %(collection)s
"""
# Embeddings exist of current chunks only, so the two counts are equal when none lacks a vector.
_STATUS = """
SELECT s.id, s.state, s.embedding_provider AS provider, s.embedding_model AS model, s.dimension,
       s.query_prefix, s.document_prefix, s.space, s.complete, s.failures, s.error_code, s.error_message,
       s.gate, s.created_at, s.switched_at, c.chunk_count AS passages, (
           SELECT count(*) FROM vectorforge.embeddings AS e
           WHERE e.tenant_id = %(tenant_id)s AND e.collection_id = %(collection)s AND e.space = s.space
       ) AS vectors
FROM vectorforge.embedding_switches AS s
JOIN vectorforge.collections AS c ON c.tenant_id = s.tenant_id AND c.id = s.collection_id
WHERE s.tenant_id = %(tenant_id)s AND s.collection_id = %(collection)s
"""
_LOCK_SWITCH = """
SELECT state, space FROM vectorforge.embedding_switches
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s FOR UPDATE
"""
_LACKING = """
SELECT count(*) AS lacking FROM vectorforge.chunks AS f
WHERE f.tenant_id = %(tenant_id)s AND f.collection_id = %(collection)s AND f.to_version IS NULL
    AND NOT EXISTS (
        SELECT FROM vectorforge.embeddings AS e
        WHERE e.tenant_id = %(tenant_id)s AND e.chunk_id = f.id AND e.space = %(space)s
    )
"""
# A writer of the version before retires chunks without a look at a second space.
_DELETE_STRAYS = """
DELETE FROM vectorforge.embeddings AS e
WHERE e.tenant_id = %(tenant_id)s AND e.collection_id = %(collection)s AND e.space = %(space)s
    AND NOT EXISTS (
        SELECT FROM vectorforge.chunks AS f
        WHERE f.tenant_id = %(tenant_id)s AND f.id = e.chunk_id AND f.to_version IS NULL
    )
"""
_EXCHANGE = """
WITH before AS (
    SELECT embedding_provider, embedding_model, dimension, query_prefix, document_prefix,
           coalesce(space, distance_metric || '_' || dimension) AS space
    FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection)s
), taken AS (
    UPDATE vectorforge.collections AS c
    SET embedding_provider = s.embedding_provider, embedding_model = s.embedding_model,
        dimension = s.dimension, query_prefix = s.query_prefix, document_prefix = s.document_prefix,
        space = s.space, other_space = before.space, data_version = c.data_version + 1
    FROM vectorforge.embedding_switches AS s, before
    WHERE s.tenant_id = %(tenant_id)s AND s.collection_id = %(collection)s
        AND c.tenant_id = %(tenant_id)s AND c.id = %(collection)s
)
UPDATE vectorforge.embedding_switches AS s
SET embedding_provider = before.embedding_provider, embedding_model = before.embedding_model,
    dimension = before.dimension, query_prefix = before.query_prefix,
    document_prefix = before.document_prefix, space = before.space, state = %(state)s,
    switched_at = CASE %(state)s WHEN 'switched' THEN now() END
FROM before
WHERE s.tenant_id = %(tenant_id)s AND s.collection_id = %(collection)s
"""
_REMOVE = """
UPDATE vectorforge.embedding_switches SET state = 'removing', leased_until = NULL, failures = 0
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s
"""
_FORGET_OTHER_SPACE = """
UPDATE vectorforge.collections SET other_space = NULL WHERE tenant_id = %(tenant_id)s AND id = %(collection)s
"""
_INCOMPLETE = """
UPDATE vectorforge.embedding_switches SET complete = false, leased_until = NULL
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s
"""
_STORE_GATE = """
UPDATE vectorforge.embedding_switches SET gate = %(gate)s::jsonb
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND id = %(id)s
"""


class SwitchState(StrEnum):
    """State of a model switch."""

    FILLING = "filling"
    """Chunks without a vector of the new model are being embedded; the old model is in use."""
    READY = "ready"
    """Every chunk has vectors of both models; the old model is in use."""
    SWITCHED = "switched"
    """The new model is in use; the vectors of the old one remain for a rollback."""
    REMOVING = "removing"
    """The unused vectors are being deleted."""


@dataclass(frozen=True, slots=True)
class EmbeddingSwitch:
    """Switch of a collection's embedding model."""

    id: UUID
    state: SwitchState
    other: EmbeddingModel
    """The new model; once switched, the previous one."""
    complete: bool
    """True if every chunk is known to have vectors of both models."""
    passages: int
    vectors: int
    """Vectors of the other model; one per chunk when complete."""
    failures: int
    """Failed attempts to embed since the last success."""
    error_code: str | None
    error_message: str | None
    gate: Mapping[str, Any] | None
    """Result of the last comparison."""
    created_at: datetime
    switched_at: datetime | None


class EmbeddingSwitchRepository:
    """The changes of one tenant's collections."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def find(self, collection_id: UUID) -> EmbeddingSwitch | None:
        """Return the collection's open switch, or None."""
        row = await self._db.fetch_one(_STATUS, self._db.named(collection=collection_id))
        return _switch_of(row) if row else None

    async def get(self, collection_id: UUID) -> EmbeddingSwitch:
        """Return the collection's open switch.

        Raises:
            NotFoundError: None is open.
        """
        switch = await self.find(collection_id)
        if switch is None:
            raise NotFoundError("No embedding model switch is open for this collection.")
        return switch

    async def start(
        self,
        collection_id: UUID,
        *,
        provider: str,
        model: str,
        dimension: int,
        query_prefix: str,
        document_prefix: str,
    ) -> EmbeddingSwitch:
        """Begin a change; nothing is embedded yet, but writers write vectors of both models from now on.

        Raises:
            NotFoundError: There is no such collection.
            ConflictError: A change is open already, or there are too many partitions.
            DatabaseUnavailableError: The tables for this dimension could not be created now.
        """
        values = self._db.named(collection=collection_id)
        collection = await self._db.fetch_one(_COLLECTION, values)
        if collection is None:
            raise NotFoundError("No collection has this id.")
        space = await second_space(self._db, collection["space"], collection["metric"], dimension)
        values |= {
            "id": uuid4(),
            "provider": provider,
            "model": model,
            "dimension": dimension,
            "query_prefix": query_prefix,
            "document_prefix": document_prefix,
            "space": space,
        }
        async with self._db.transaction() as connection:
            if not (await connection.execute(_START, values)).rowcount:
                raise ConflictError("An embedding model switch is already open for this collection.")
            await connection.execute(_SHOW_OTHER_SPACE, values)
        return await self.get(collection_id)

    async def store_gate(self, collection_id: UUID, switch_id: UUID, gate: Mapping[str, Any]) -> None:
        """Store the result of a comparison."""
        values = {"collection": collection_id, "id": switch_id, "gate": json.dumps(gate)}
        await self._db.execute(_STORE_GATE, values)

    async def switch(self, collection_id: UUID) -> EmbeddingSwitch:
        """Let the new model answer, in one transaction. The old one's vectors stay, and stay current.

        Raises:
            NotFoundError: No switch is open.
            ConflictError: It is switched already or ending, chunks lack a vector of the new model, or
                documents are written without a pause in which the exchange could be made.
        """
        async with self._db.transaction() as connection:
            values = self._db.named(collection=collection_id)
            await lock_out_writers(connection, values)
            values["space"] = await self._locked(connection, values, expected="open")
            row = await (await connection.execute(_LACKING, values)).fetchone()
            lacking: int = (row or {})["lacking"]
            if not lacking:
                await connection.execute(_DELETE_STRAYS, values)
                await connection.execute(_EXCHANGE, {**values, "state": "switched"})
        if lacking:
            await self._db.execute(_INCOMPLETE, values)
            raise ConflictError(f"{lacking:,} chunks have no vector of the new model yet; wait for them.")
        return await self.get(collection_id)

    async def rollback(self, collection_id: UUID) -> EmbeddingSwitch:
        """Let the old model answer again, at once; the change stays open, and may be switched again.

        Raises:
            NotFoundError: No switch is open.
            ConflictError: It was not switched.
        """
        async with self._db.transaction() as connection:
            values = self._db.named(collection=collection_id)
            await self._locked(connection, values, expected="switched")
            await connection.execute(_EXCHANGE, {**values, "state": "open"})
        return await self.get(collection_id)

    async def finish(self, collection_id: UUID) -> None:
        """End a change that was switched: the old model's vectors are deleted, a few at a time.

        Raises:
            NotFoundError: No switch is open.
            ConflictError: It was not switched.
        """
        await self._remove(collection_id, expected="switched")

    async def cancel(self, collection_id: UUID) -> None:
        """End a change that was not switched: the new model's vectors are deleted, a few at a time.

        Raises:
            NotFoundError: No switch is open.
            ConflictError: It was switched.
        """
        await self._remove(collection_id, expected="open")

    async def _remove(self, collection_id: UUID, *, expected: str) -> None:
        async with self._db.transaction() as connection:
            values = self._db.named(collection=collection_id)
            await self._locked(connection, values, expected=expected)
            await connection.execute(_REMOVE, values)
            await connection.execute(_FORGET_OTHER_SPACE, values)

    @staticmethod
    async def _locked(
        connection: "AsyncConnection[dict[str, Any]]", values: Mapping[str, Any], *, expected: str
    ) -> str:
        """Hold the change until the transaction ends; the space of its model."""
        row = await (await connection.execute(_LOCK_SWITCH, values)).fetchone()
        if row is None:
            raise NotFoundError("No embedding model switch is open for this collection.")
        if row["state"] != expected:
            raise ConflictError(_WRONG_STATE[row["state"]])
        return str(row["space"])


_WRONG_STATE: Final = {
    "open": "The model is not switched yet.",
    "switched": "The model is switched already; roll it back, or finish it.",
    "removing": "The switch has ended; its vectors are being deleted.",
}


def _switch_of(row: dict[str, Any]) -> EmbeddingSwitch:
    """Return the switch of a status row; removes the model's columns from the row."""
    model = {name: row.pop(name) for name in EmbeddingModel.__dataclass_fields__}
    state = row.pop("state")
    if state == "open":
        state = SwitchState.READY if row["complete"] else SwitchState.FILLING
    return EmbeddingSwitch(**row, other=EmbeddingModel(**model), state=SwitchState(state))
