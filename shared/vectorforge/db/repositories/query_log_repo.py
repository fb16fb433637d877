"""The query log: one record per query, the log writer's batches, and a tenant's policy for its texts."""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields
from datetime import datetime
from typing import TYPE_CHECKING, Any
from uuid import UUID

from pydantic_core import to_json

from vectorforge.db.connection import Database
from vectorforge.db.repositories.paging import CONDITIONS, QueryFilter, checked_page
from vectorforge.db.tenant_database import TenantDatabase, checked_tenant, storable_text
from vectorforge.errors import DatabaseUnavailableError, VectorForgeError, reason_of
from vectorforge.telemetry import TraceRecord

if TYPE_CHECKING:
    from psycopg.rows import DictRow

    from vectorforge.db.tenant_database import Call


logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QueryLog:
    """One query and its outcome."""

    id: UUID
    """The request's id, so that a log delivered twice is stored once."""
    collection_id: UUID
    query_text: str
    retrieved_chunk_ids: Sequence[UUID]
    """Best first."""
    generated_response: str
    latency_ms: float
    outcome: str = "answered"
    """started | answered | empty | error | aborted | cached | deadline

    "started" until the end is recorded, and forever if the process was killed before that."""
    used_chunk_ids: Sequence[UUID] = field(default_factory=list)
    """Those that fitted into the context, in its order."""
    provider: str | None = None
    model: str | None = None
    prompt_tokens: int | None = None
    completion_tokens: int | None = None
    retrieval_ms: float | None = None
    generation_ms: float | None = None
    error_code: str | None = None
    error_stage: str | None = None
    created_at: datetime | None = None
    """None: now, on the database's clock."""
    preset: str | None = None
    """Preset of the API surface; see ``pipeline.presets``."""
    variant: str | None = None
    conversation_id: UUID | None = None
    cached: bool = False
    degraded: Sequence[str] = ()
    """Steps down from the full answer, in order; see ``pipeline.types.Degradation``."""
    quality: Mapping[str, Any] | None = None
    """See ``pipeline.types.AnswerQuality``."""
    context_ms: float | None = None
    first_token_ms: float | None = None
    cost_usd: float | None = None
    request: Mapping[str, Any] | None = None
    """See ``pipeline.query_log.logged_request``; None: no request went to a model."""
    steps: Sequence[Mapping[str, Any]] = ()
    """Figures of the steps of a search with ``effort``; see ``pipeline.step_types.QueryStep.figures``."""
    trace: TraceRecord | None = field(default=None, metadata={"is_column": False})
    """See ``telemetry.QueryTrace.record``; exported and not stored."""


_FIELDS = [field.name for field in fields(QueryLog) if field.metadata.get("is_column", True)]
_COLUMNS = ", ".join(_FIELDS)
_VALUES = ", ".join(
    "coalesce(%(created_at)s, now())" if name == "created_at" else f"%({name})s" for name in _FIELDS
)
# Without a conflict target this needs no right to read, which the log writer does not have.
_CREATE = f"""
INSERT INTO vectorforge.query_logs (tenant_id, {_COLUMNS}) VALUES (%(tenant_id)s, {_VALUES})
ON CONFLICT DO NOTHING
"""
# What takes the place of a row "started" is a new row: the app may add and remove rows, not change them.
_END_START = "DELETE FROM vectorforge.query_logs WHERE tenant_id = %s AND id = %s AND outcome = 'started'"
_BY_ID = f"SELECT {_COLUMNS} FROM vectorforge.query_logs WHERE tenant_id = %s AND id = %s"
_LIST = f"""
SELECT {_COLUMNS} FROM vectorforge.query_logs
WHERE {CONDITIONS}
  AND (%(after_time)s::timestamptz IS NULL OR (created_at, id) < (%(after_time)s, %(after_id)s::uuid))
ORDER BY created_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
"""


class QueryLogRepository:
    """The query logs of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def start(self, log: QueryLog) -> None:
        """Store the row of a started query, as ``create``; the record of its end replaces it."""
        await self._db.execute(*self._inserting(log), repeatable=True)

    async def create(self, log: QueryLog) -> None:
        """Store a log; one that is stored already stays as it is, unless it is "started".

        Characters that PostgreSQL cannot hold become U+FFFD, so that no record is lost.
        """
        await self._db.run(self._creating(log), repeatable=True)

    async def create_with(self, log: QueryLog, statements: "Sequence[Call]", *, timeout_s: float) -> bool:
        """Store a record and the other writes at a query's end in one transaction.

        If that fails or takes too long, the record is stored alone, and False is returned.

        Args:
            log: See ``create``.
            statements: Repeatable statements of the same tenant.
            timeout_s: Longest time for all together.
        """
        creating = self._creating(log)
        try:
            async with asyncio.timeout(timeout_s):
                await self._db.run([*creating, *statements], repeatable=True)
            return True
        except DatabaseUnavailableError:
            raise
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("The answer was not cached: %s", reason_of(exc))
            await self._db.run(creating, repeatable=True)
            return False

    def _creating(self, log: QueryLog) -> "list[Call]":
        return [(_END_START, (self._db.tenant_id, log.id)), self._inserting(log)]

    def _inserting(self, log: QueryLog) -> "Call":
        from psycopg.types.json import Jsonb

        values: dict[str, Any] = {name: getattr(log, name) for name in _FIELDS}
        values |= {
            "query_text": storable_text(log.query_text),
            "generated_response": storable_text(log.generated_response),
            "retrieved_chunk_ids": Jsonb(list(log.retrieved_chunk_ids), dumps=to_json),
            "used_chunk_ids": Jsonb(list(log.used_chunk_ids), dumps=to_json),
            "degraded": Jsonb(list(log.degraded), dumps=to_json),
            "quality": Jsonb(dict(log.quality), dumps=to_json) if log.quality else None,
            "request": Jsonb(dict(log.request), dumps=to_json) if log.request else None,
            "steps": Jsonb(list(log.steps), dumps=to_json) if log.steps else None,
        }
        return _CREATE, values

    async def find_by_id(self, log_id: UUID) -> QueryLog | None:
        """Return the log, or None."""
        row = await self._db.fetch_one(_BY_ID, (self._db.tenant_id, log_id))
        return _query_log(row) if row else None

    async def list(
        self,
        collection_id: UUID | None = None,
        *,
        limit: int = 50,
        offset: int = 0,
        outcome: str | None = None,
    ) -> list[QueryLog]:
        """Return a page of logs, of one collection and outcome if given, newest first; see ``find``."""
        matching = QueryFilter(collection_id=collection_id, outcome=outcome)
        return [*await self.find(matching, limit=limit, offset=offset)]

    async def find(
        self,
        matching: QueryFilter,
        *,
        limit: int = 50,
        offset: int = 0,
        after: tuple[datetime, UUID] | None = None,
    ) -> Sequence[QueryLog]:
        """Return a page of the logs that match all conditions, newest first.

        Args:
            matching: The conditions.
            limit: Logs of the page; see ``checked_page``.
            offset: Records before the page; they shift as newer queries arrive.
            after: Time and id of the last record of the previous page: no record is repeated or skipped, even
                if others were added meanwhile.
        """
        checked_page(limit, offset)
        after_time, after_id = after or (None, None)
        place = {"limit": limit, "offset": offset, "after_time": after_time, "after_id": after_id}
        values = {**matching.values, **place}
        return [_query_log(row) for row in await self._db.fetch_all(_LIST, values)]


def _query_log(row: "DictRow") -> QueryLog:
    ids = {name: [UUID(value) for value in row[name]] for name in ("retrieved_chunk_ids", "used_chunk_ids")}
    return QueryLog(**{**row, **ids, "degraded": tuple(row["degraded"]), "steps": tuple(row["steps"] or ())})


_WRITE = "SELECT stored, already_there FROM vectorforge.write_query_logs(%s)"


@dataclass(frozen=True, slots=True)
class WrittenLogs:
    """Outcome of a batch; records of the same query count once."""

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

        Records may be repeated, in any order and in several calls: each query has one row, and a record with
        another outcome than "started" wins.

        Args:
            logs: Records with texts well below 256 MB in all, which is PostgreSQL's limit for jsonb.

        Raises:
            InvalidInputError: A value that PostgreSQL cannot store.
            DatabaseUnavailableError: No connection, or it was lost; the records may have been stored.
            DatabaseError: The database refused the statement.
        """
        from psycopg.types.json import Jsonb

        rows = [_row(tenant_id, log) for tenant_id, log in logs]
        row = await self._database.fetch_untenanted(_WRITE, (Jsonb(rows),))
        return WrittenLogs(**row) if row else WrittenLogs(0, 0)


def _row(tenant_id: str, log: QueryLog) -> dict[str, Any]:
    """Return the record as the database function accepts it."""
    values = json_fields(log)
    row = {name: values[name] for name in _FIELDS}
    return {**row, "tenant_id": checked_tenant(tenant_id), "steps": row["steps"] or None}


def json_fields(log: QueryLog) -> dict[str, Any]:
    """Return a record's fields as JSON types; empty objects become null, texts ``storable_text``."""
    return {field.name: _json_value(getattr(log, field.name)) for field in fields(log)}


def _json_value(value: Any) -> Any:
    match value:
        case str():
            return storable_text(value)
        case UUID():
            return str(value)
        case datetime():
            return value.isoformat()
        case Mapping():
            return dict(value) or None
        case Sequence():
            return [_json_value(item) for item in value]
    return value


_LOG_TEXT = "SELECT log_text FROM vectorforge.tenants WHERE tenant_id = %s"
_SET_LOG_TEXT = """
INSERT INTO vectorforge.tenants (tenant_id, log_text) VALUES (%s, %s)
ON CONFLICT (tenant_id) DO UPDATE SET log_text = EXCLUDED.log_text, updated_at = now()
"""


class TenantSettingsRepository:
    """The settings of one tenant."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def log_text(self) -> str | None:
        """Return the tenant's policy for texts in the query log; None for the server's setting."""
        row = await self._db.fetch_one(_LOG_TEXT, (self._db.tenant_id,), repeatable=True)
        return row["log_text"] if row else None

    async def set_log_text(self, policy: str | None) -> None:
        """Set the policy; None restores the server's setting. Processes apply it within a minute.

        Raises:
            DatabaseError: There is no such policy.
        """
        await self._db.execute(_SET_LOG_TEXT, (self._db.tenant_id, policy), repeatable=True)
