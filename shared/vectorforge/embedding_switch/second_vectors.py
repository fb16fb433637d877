"""Missing vectors during an embedding model switch, and superfluous ones afterwards.

No writer of documents waits for this: documents that one of them holds are left to the next pass.
"""

# ruff: noqa: S608
# (Statements are put together from constants of this module only; values are bound.)

import asyncio
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.errors import ConflictError
from vectorforge.types import Vector
from vectorforge.vectorstore.validation import single_precision, wire_vector

if TYPE_CHECKING:
    from psycopg import AsyncConnection

_LOCK_ATTEMPTS: Final = 100
_LOCK_PAUSE_S: Final = 0.1
_DOCUMENTS: Final = 200
"""Documents checked in one step."""
_VECTOR_BATCH: Final = 50
"""Vectors in one INSERT: each walks the HNSW graph, and a statement must end well within its timeout."""
_REMOVED: Final = 2_000
"""Vectors deleted in one step."""

# NOWAIT: who waited here could form a ring with two writers that are about to raise the collection's counts.
_LOCK_OUT_WRITERS = """
SELECT FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection)s FOR UPDATE NOWAIT
"""
_LOCK_SWITCH_NOW = """
SELECT FROM vectorforge.embedding_switches
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s FOR UPDATE NOWAIT
"""
_SWITCH = """
SELECT id, state, space, position, failures FROM vectorforge.embedding_switches
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s
"""
_NEXT_DOCUMENTS = """
SELECT id FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND id > %(position)s
ORDER BY id LIMIT %(documents)s
"""
_HAS = """
EXISTS (
    SELECT FROM vectorforge.embeddings AS e
    WHERE e.tenant_id = %(tenant_id)s AND e.chunk_id = f.id AND e.space = {space}
)
"""
_FIRST, _SECOND = "(%(spaces)s::text[])[1]", "(%(spaces)s::text[])[2]"
_LACKING = f"""
SELECT * FROM (
    SELECT f.id, f.document_id, d.title, f.heading, f.index_context, f.text, array_remove(ARRAY[
        CASE WHEN NOT {_HAS.format(space=_FIRST)} THEN {_FIRST} END,
        CASE WHEN NOT {_HAS.format(space=_SECOND)} THEN {_SECOND} END
    ], NULL) AS spaces
    FROM vectorforge.chunks AS f
    JOIN vectorforge.documents AS d ON d.tenant_id = f.tenant_id AND d.id = f.document_id
    WHERE f.tenant_id = %(tenant_id)s AND f.collection_id = %(collection)s AND f.document_id = ANY (%(ids)s)
        AND f.to_version IS NULL
) AS passages
WHERE spaces <> '{{}}' ORDER BY document_id, id LIMIT %(limit)s
"""
_COLLECTION = """
SELECT array_remove(ARRAY[coalesce(space, distance_metric || '_' || dimension), other_space], NULL) AS spaces
FROM vectorforge.collections WHERE tenant_id = %(tenant_id)s AND id = %(collection)s FOR KEY SHARE
"""
# Held against their writers, so that no chunk is retired while it gets a vector. SKIP LOCKED: writers hold
# several, in an order of their own.
_HOLD_DOCUMENTS = """
SELECT id FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND id = ANY (%(ids)s) FOR KEY SHARE SKIP LOCKED
"""
_INSERT = """
INSERT INTO vectorforge.embeddings (tenant_id, space, collection_id, document_id, chunk_id, embedding)
SELECT f.tenant_id, %(space)s, f.collection_id, f.document_id, f.id, new.embedding
FROM unnest(%(chunks)b::uuid[], %(vectors)b::public.vector[]) AS new (chunk_id, embedding)
JOIN vectorforge.chunks AS f ON f.tenant_id = %(tenant_id)s AND f.id = new.chunk_id
WHERE f.collection_id = %(collection)s AND f.to_version IS NULL AND f.document_id = ANY (%(held)s)
ON CONFLICT DO NOTHING
"""
_ADVANCE = """
UPDATE vectorforge.embedding_switches
SET position = %(position)s, failures = 0, error_code = NULL, error_message = NULL,
    leased_until = CASE WHEN %(pause)s > interval '0' THEN now() + %(pause)s END
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND id = %(switch)s
"""
_HOLD_SWITCH = """
SELECT FROM vectorforge.embedding_switches
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND id = %(switch)s FOR UPDATE
"""
_ANY_LACKING = f"""
SELECT EXISTS (
    SELECT FROM vectorforge.chunks AS f
    WHERE f.tenant_id = %(tenant_id)s AND f.collection_id = %(collection)s AND f.to_version IS NULL
        AND NOT ({_HAS.format(space=_FIRST)} AND {_HAS.format(space=_SECOND)})
) AS lacking
"""
_FINISH = """
UPDATE vectorforge.embedding_switches
SET complete = NOT %(lacking)s, position = '00000000-0000-0000-0000-000000000000', failures = 0,
    error_code = NULL, error_message = NULL, leased_until = CASE WHEN %(lacking)s THEN now() + %(pause)s END
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND id = %(switch)s
"""
_FAIL = """
UPDATE vectorforge.embedding_switches
SET failures = failures + 1, error_code = %(code)s, error_message = %(message)s,
    leased_until = now() + %(pause)s
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND id = %(switch)s
"""
_REMOVE = """
DELETE FROM vectorforge.embeddings
WHERE tenant_id = %(tenant_id)s AND space = %(space)s AND chunk_id IN (
    SELECT chunk_id FROM vectorforge.embeddings
    WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s AND space = %(space)s LIMIT %(limit)s
)
"""
_FORGET = """
DELETE FROM vectorforge.embedding_switches WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection)s
"""


@dataclass(frozen=True, slots=True)
class SwitchWork:
    """Open work of a model switch."""

    id: UUID
    state: str
    space: str
    position: UUID
    """Last document checked in this pass."""
    failures: int


@dataclass(frozen=True, slots=True)
class UnembeddedChunk:
    """A chunk without a vector of one model, or of both."""

    id: UUID
    document_id: UUID
    title: str | None
    heading: str | None
    index_context: str | None
    text: str
    spaces: Sequence[str]
    """Spaces that lack its vector."""


@dataclass(frozen=True, slots=True)
class Batch:
    """Chunks to embed in one step."""

    passages: Sequence[UnembeddedChunk]
    position: UUID
    """Start of the next step once these have their vectors."""
    is_last: bool
    """True if the pass ends with these."""


class SecondVectors:
    """The vectors of one collection of one tenant, while its model is being changed."""

    def __init__(self, db: TenantDatabase, collection_id: UUID) -> None:
        self._db = db
        self._scope: dict[str, Any] = db.named(collection=collection_id)

    async def work(self) -> SwitchWork | None:
        """Return the open work; None if no switch is open."""
        row = await self._db.fetch_one(_SWITCH, self._scope)
        return SwitchWork(**row) if row else None

    async def next_batch(self, work: SwitchWork, spaces: tuple[str, str], limit: int) -> Batch:
        """Return the next chunks without a vector in one of two spaces, at most ``limit``, at least 1."""
        where = {**self._scope, "position": work.position, "documents": _DOCUMENTS}
        documents = [row["id"] for row in await self._db.fetch_all(_NEXT_DOCUMENTS, where)]
        if not documents:
            return Batch([], work.position, is_last=True)
        values = {**self._scope, "ids": documents, "limit": limit, "spaces": list(spaces)}
        chunks = [UnembeddedChunk(**row) for row in await self._db.fetch_all(_LACKING, values)]
        if len(chunks) < limit:
            return Batch(chunks, documents[-1], is_last=len(documents) < _DOCUMENTS)
        unfinished = chunks[-1].document_id
        done = [document for document in documents if document < unfinished]
        return Batch(chunks, done[-1] if done else work.position, is_last=False)

    async def write(
        self,
        work: SwitchWork,
        batch: Batch,
        vectors: Mapping[str, Mapping[UUID, Vector]],
        *,
        pause_s: float = 0.0,
    ) -> None:
        """Store vectors, and advance to the batch's end.

        Args:
            work: The switch that they belong to.
            batch: The chunks; those retired or being replaced are skipped.
            vectors: Vectors by space, then by chunk.
            pause_s: Seconds until the next step.
        """
        async with self._db.transaction() as connection:
            collection = await (await connection.execute(_COLLECTION, self._scope)).fetchone()
            wanted = collection["spaces"] if collection else []
            ids = sorted({chunk.document_id for chunk in batch.passages})
            held = await connection.execute(_HOLD_DOCUMENTS, {**self._scope, "ids": ids})
            documents = [row["id"] for row in await held.fetchall()]
            for space in vectors.keys() & set(wanted):
                await self._insert(connection, space, vectors[space], documents)
            values = {"switch": work.id, "position": batch.position, "pause": timedelta(seconds=pause_s)}
            await connection.execute(_ADVANCE, {**self._scope, **values})

    async def end_pass(self, work: SwitchWork, spaces: tuple[str, str], *, pause_s: float = 1.0) -> bool:
        """Mark the switch complete if no chunk lacks a vector; otherwise schedule another pass."""
        async with self._db.transaction() as connection:
            values = {**self._scope, "switch": work.id, "spaces": list(spaces)}
            # A writer that stores a chunk with one vector only holds this to its end: then look.
            await connection.execute(_HOLD_SWITCH, values)
            row = await (await connection.execute(_ANY_LACKING, values)).fetchone()
            lacking = bool(row and row["lacking"])
            values |= {"lacking": lacking, "pause": timedelta(seconds=pause_s)}
            await connection.execute(_FINISH, values)
        return not lacking

    async def fail(self, work: SwitchWork, *, code: str, message: str, pause_s: float) -> None:
        """Note a failed step and its reason, and pause the switch."""
        values = {"switch": work.id, "code": code, "message": message, "pause": timedelta(seconds=pause_s)}
        await self._db.execute(_FAIL, {**self._scope, **values})

    async def remove(self) -> None:
        """Delete some of the vectors that are not used any more; with the last ones, the change is over.

        Raises:
            ConflictError: Documents are written without a pause, so the switch cannot end.
        """
        work = await self.work()
        if work is None or work.state != "removing":
            return
        values = {**self._scope, "switch": work.id, "position": work.position, "space": work.space}
        values["limit"] = _REMOVED
        if await self._db.execute(_REMOVE, values) == _REMOVED:
            await self._db.execute(_ADVANCE, {"pause": timedelta(0), **values})
            return
        async with self._db.transaction() as connection:
            # Writers that saw the switch still open have ended by then.
            await lock_out_writers(connection, self._scope)
            await connection.execute(_REMOVE, {**values, "limit": None})
            await connection.execute(_FORGET, self._scope)

    async def _insert(
        self,
        connection: "AsyncConnection[dict[str, Any]]",
        space: str,
        vectors: Mapping[UUID, Vector],
        documents: Sequence[UUID],
    ) -> None:
        rows = list(vectors.items())
        for start in range(0, len(rows), _VECTOR_BATCH):
            part = rows[start : start + _VECTOR_BATCH]
            values = {
                **self._scope,
                "space": space,
                "held": list(documents),
                "chunks": [chunk_id for chunk_id, _ in part],
                "vectors": [wire_vector(single_precision(vector, field="vector")) for _, vector in part],
            }
            await connection.execute(_INSERT, values)


async def lock_out_writers(connection: "AsyncConnection[dict[str, Any]]", values: Mapping[str, Any]) -> None:
    """Lock a collection and its switch for the transaction, once none of its documents is being written.

    Raises:
        ConflictError: Documents were being written for ten seconds.
    """
    from psycopg import errors

    for _ in range(_LOCK_ATTEMPTS):
        try:
            async with connection.transaction():  # a savepoint: the refusal ends only this attempt
                await connection.execute(_LOCK_OUT_WRITERS, values)
                await connection.execute(_LOCK_SWITCH_NOW, values)
        except errors.LockNotAvailable:
            await asyncio.sleep(_LOCK_PAUSE_S)
        else:
            return
    raise ConflictError("Documents of this collection are written without a pause; try again later.")
