"""Indexing of words of chunks stored without them, by an older version or in another language.

Each small step is its own transaction, and any process continues where the last one ended.
"""

import asyncio
import time
from collections.abc import AsyncIterator, Callable
from typing import TYPE_CHECKING, Any, Literal, NamedTuple, cast
from uuid import UUID

from vectorforge.db.connection import Database
from vectorforge.db.schema.migrate import migrator_connection

if TYPE_CHECKING:
    from psycopg import AsyncConnection

CHUNKS_PER_STEP = 500
"""Chunks read in one transaction: a fraction of a second, in which their documents cannot be written."""
_PAUSE_S = 0.2
_PATIENCE_S = 10.0
"""Longest wait while all remaining documents are being written; a worker indexes what is left."""

_UNREAD = "SELECT tenant_id, id, document_count FROM vectorforge.unread_collections()"
_ENTER = "SELECT vectorforge.enter_tenant(%s)"
_READ = "SELECT documents, passages, state FROM vectorforge.read_terms(%s, %s)"


class UnreadCollection(NamedTuple):
    """A collection with chunks whose words are not indexed."""

    tenant_id: str
    id: UUID
    document_count: int


class ReadStep(NamedTuple):
    """Result of a step."""

    documents: int
    """Documents completed."""
    passages: int
    """Chunks whose words were indexed."""
    state: Literal["more", "busy", "complete"]
    """busy: the next document is being written."""


class TermReader:
    """Indexes words of all tenants' chunks when a worker is idle."""

    def __init__(self, database: Database, *, chunks_per_step: int = CHUNKS_PER_STEP) -> None:
        self._database = database
        self._chunks_per_step = chunks_per_step

    async def step(self) -> bool:
        """Run one step in one of the collections.

        Returns:
            False if nothing is left, or all that is left is being written now.

        Raises:
            VectorForgeError: The database failed; nothing of the step is left.
        """
        async with self._database.connection() as connection:
            unread = await _unread(connection)
        for collection in unread:
            async with self._database.for_tenant(collection.tenant_id).transaction() as connection:
                step = await _read(connection, collection.id, self._chunks_per_step)
            if step.state != "busy":
                return True
        return False


async def read_unread_terms(
    conninfo: str,
    *,
    on_progress: Callable[[int, int], None] | None = None,
    chunks_per_step: int = CHUNKS_PER_STEP,
) -> tuple[int, bool]:
    """Index the words of every chunk whose words are not indexed.

    Args:
        conninfo: Connection string of the role that migrates.
        on_progress: Called after each step with the documents done by this call, and how many there are.
        chunks_per_step: Chunks in one transaction, 1 to 10,000.

    Returns:
        The number of chunks indexed, and True if none is left.

    Raises:
        DatabaseUnavailableError: As ``migrator_connection``.
    """
    from psycopg.rows import dict_row

    documents = chunks = 0
    give_up_at = time.monotonic() + _PATIENCE_S
    async with migrator_connection(conninfo) as connection:
        connection.row_factory = dict_row
        while unread := await _unread(connection):
            total = documents + sum(collection.document_count for collection in unread)
            steps = []
            for collection in unread:
                async for step in _steps(connection, collection, chunks_per_step):
                    steps.append(step)
                    documents, chunks = documents + step.documents, chunks + step.passages
                    if on_progress:
                        on_progress(documents, max(total, documents))
            if any(step.state != "busy" for step in steps):
                give_up_at = time.monotonic() + _PATIENCE_S
            elif time.monotonic() > give_up_at:
                return chunks, False
            else:
                await asyncio.sleep(_PAUSE_S)
    return chunks, True


async def _steps(
    connection: "AsyncConnection[dict[str, Any]]", collection: UnreadCollection, most: int
) -> AsyncIterator[ReadStep]:
    state = "more"
    while state == "more":
        async with connection.transaction():
            await connection.execute(_ENTER, (collection.tenant_id,))
            step = await _read(connection, collection.id, most)
        state = step.state
        yield step


async def _unread(connection: "AsyncConnection[dict[str, Any]]") -> list[UnreadCollection]:
    rows = await (await connection.execute(_UNREAD)).fetchall()
    return [UnreadCollection(**row) for row in rows]


async def _read(connection: "AsyncConnection[dict[str, Any]]", collection_id: UUID, most: int) -> ReadStep:
    row = await (await connection.execute(_READ, (collection_id, most))).fetchone()
    return ReadStep(**cast("dict[str, Any]", row))
