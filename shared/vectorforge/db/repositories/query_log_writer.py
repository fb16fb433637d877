"""Storing the records of many tenants at once: what the log writer may do, and all it may do."""

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLog, storable
from vectorforge.db.tenant_id import checked_tenant

_WRITE = "SELECT stored, already_there FROM vectorforge.write_query_logs(%s)"
_TEXTS = (
    "query_text",
    "generated_response",
    "provider",
    "model",
    "error_code",
    "error_stage",
    "preset",
    "variant",
)


@dataclass(frozen=True, slots=True)
class WrittenLogs:
    """What became of a batch; records of the same query count once."""

    stored: int
    """New rows, and rows "started" that the record of the query's end has completed."""
    already_there: int


class QueryLogWriter:
    """Writes query logs as the role ``vectorforge_log_writer``, which cannot read them.

    Args:
        database: Open, as that role; the app's role may not do this.
    """

    def __init__(self, database: Database) -> None:
        self._database = database

    async def write(self, logs: Sequence[tuple[str, QueryLog]]) -> WrittenLogs:
        """Store (tenant, record) pairs in one statement: all of them or, after an error, none.

        Records may come twice, in any order and in several calls: there is one row for each query, and of its
        records the one with another outcome than "started" stays.

        Args:
            logs: Their texts together well below 256 MB, which is PostgreSQL's limit for jsonb.

        Raises:
            InvalidInputError: A value that PostgreSQL cannot store.
            DatabaseUnavailableError: No connection, or it was lost; the records may have been stored.
            DatabaseError: The database refused the statement.
        """
        from psycopg.types.json import Jsonb

        rows = [_row(tenant_id, log) for tenant_id, log in logs]
        found = await self._database.fetch_untenanted(_WRITE, (Jsonb(rows),))
        return WrittenLogs(**found) if found else WrittenLogs(0, 0)


def _row(tenant_id: str, log: QueryLog) -> dict[str, Any]:
    """The record as the function of the database takes it: JSON types only."""
    row: dict[str, Any] = {name: getattr(log, name) for name in QueryLog.__dataclass_fields__}
    row |= {name: storable(row[name]) for name in _TEXTS if row[name] is not None}
    return row | {
        "tenant_id": checked_tenant(tenant_id),
        "id": str(log.id),
        "collection_id": str(log.collection_id),
        "retrieved_chunk_ids": [str(chunk_id) for chunk_id in log.retrieved_chunk_ids],
        "used_chunk_ids": [str(chunk_id) for chunk_id in log.used_chunk_ids],
        "created_at": log.created_at.isoformat() if log.created_at else None,
        "conversation_id": str(log.conversation_id) if log.conversation_id else None,
        "degraded": list(log.degraded),
        "quality": dict(log.quality) if log.quality else None,
    }
