"""Types of ingestion jobs."""

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import TYPE_CHECKING, Any, Final, Self
from uuid import UUID

if TYPE_CHECKING:
    from psycopg import AsyncConnection


JOB_COLUMNS = """
id, collection_id, status, stage, documents_total, documents_done, documents_failed, chunks_added,
chunks_kept, chunks_removed, error_code, error_message, created_at, started_at, finished_at
"""
ITEM_COLUMNS = """
job_id, ordinal, source, parent_source, media_type, title, metadata, status, stage, attempts, error_code,
error_message, document_id, warnings, chunks_added, chunks_kept, chunks_removed
"""
ITEM_CONTENT = """CASE WHEN content <> '' THEN content ELSE (
    SELECT f.content FROM vectorforge.uploaded_files AS f
    WHERE f.tenant_id = item.tenant_id AND f.job_id = item.job_id AND f.ordinal = item.ordinal
) END"""
"""Content of an ``item``: that of an uploaded file stays in its own table."""

MAX_ATTEMPTS = 3
"""Maximum attempts of an item, so that one that crashes its worker does not do so forever."""
MAX_ERROR_CHARS = 2000
MAX_WARNINGS = 10
"""Maximum number of warnings of an item."""
MAX_WARNING_CHARS = 300


def bounded(warnings: Sequence[str]) -> list[str]:
    """Return the first warnings, each cut to the maximum length."""
    return [warning[:MAX_WARNING_CHARS] for warning in warnings[:MAX_WARNINGS]]


@dataclass(frozen=True, slots=True)
class JobError:
    """Reason for a failed job or item, in our words."""

    code: str
    message: str


@dataclass(frozen=True, slots=True)
class NewJobItem:
    """A document to be ingested, as it was sent."""

    source: str
    media_type: str | None
    content: bytes
    title: str | None = None
    metadata: Mapping[str, Any] = field(default_factory=dict)
    parent_source: str | None = None
    """The JSONL file that this is a line of."""


@dataclass(frozen=True, slots=True)
class IngestionJob:
    """Documents accepted together, with their progress."""

    id: UUID
    collection_id: UUID
    status: str
    """queued | running | succeeded | partial | failed"""
    stage: str | None
    documents_total: int
    documents_done: int
    """Stored, or found unchanged."""
    documents_failed: int
    chunks_added: int
    chunks_kept: int
    chunks_removed: int
    error: JobError | None
    """Reason of its end, or of its return to the queue, as of a full disk."""
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    version: int | None = None
    """Version of the collection after the end of the job, if it was read."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Convert a row."""
        return cls(**_with_error(row))


@dataclass(frozen=True, slots=True)
class JobOutcome:
    """Outcome of a job, without its documents."""

    id: UUID
    status: str
    """As ``IngestionJob.status``."""
    ended: bool
    unchanged: bool
    """True if every document was stored unchanged already."""
    error_code: str | None
    """Error code of the job, or of its first failed document."""


@dataclass(frozen=True, slots=True)
class IngestionJobItem:
    """One document of a job."""

    job_id: UUID
    ordinal: int
    """Position in the job, from 0."""
    source: str
    parent_source: str | None
    """The JSONL file that this is a line of."""
    media_type: str | None
    title: str | None
    metadata: Mapping[str, Any]
    status: str
    """queued | running | succeeded | unchanged | failed"""
    stage: str | None
    attempts: int
    """Number of attempts."""
    error: JobError | None
    document_id: UUID | None
    """Its document; of an uploaded file known before it is stored."""
    warnings: Sequence[str]
    """Characters or structure replaced or guessed during extraction."""
    chunks_added: int
    chunks_kept: int
    chunks_removed: int
    content: bytes | None = None
    """Only where an item is begun."""

    @classmethod
    def of(cls, row: Mapping[str, Any]) -> Self:
        """Convert a row."""
        return cls(**_with_error(row))


@dataclass(frozen=True, slots=True)
class StoredItem:
    """Result of one document of a job that is stored."""

    job_id: UUID
    ordinal: int
    document_id: UUID | None = None
    chunks_added: int = 0
    chunks_kept: int = 0
    chunks_removed: int = 0
    unchanged: bool = False
    """It was stored already."""
    warnings: Sequence[str] = ()


def _with_error(row: Mapping[str, Any]) -> dict[str, Any]:
    values = dict(row)
    code, message = values.pop("error_code"), values.pop("error_message")
    values["error"] = JobError(code, message or "") if code is not None else None
    return values


_BATCH_ITEMS: Final = 1_000
_BATCH_BYTES: Final = 8_388_608
"""Content of one statement, unless one item has more: driver and server hold it several times."""

_APPEND: Final = """
INSERT INTO vectorforge.ingestion_job_items
    (tenant_id, job_id, ordinal, source, parent_source, media_type, title, metadata, content)
SELECT %(tenant_id)s, %(job_id)s, stored.next + new.place - 1, new.source, new.parent_source, new.media_type,
       new.title, new.metadata, new.content
FROM (
    SELECT coalesce(max(ordinal) + 1, 0) AS next FROM vectorforge.ingestion_job_items
    WHERE tenant_id = %(tenant_id)s AND job_id = %(job_id)s
) AS stored
CROSS JOIN unnest(
    %(sources)b::text[], %(parent_sources)b::text[], %(media_types)b::text[], %(titles)b::text[],
    %(metadata)b::text[]::jsonb[], %(contents)b::bytea[]
) WITH ORDINALITY AS new (source, parent_source, media_type, title, metadata, content, place)
"""


async def append_items(
    connection: "AsyncConnection[dict[str, Any]]", tenant_id: str, job_id: UUID, items: Sequence[NewJobItem]
) -> None:
    """Append queued items to a job, in their order; the caller is in a transaction and counts them."""
    for batch in _batches(items):
        values = {
            "tenant_id": tenant_id,
            "job_id": job_id,
            "sources": [item.source for item in batch],
            "parent_sources": [item.parent_source for item in batch],
            "media_types": [item.media_type for item in batch],
            "titles": [item.title for item in batch],
            "metadata": [json.dumps(dict(item.metadata)) for item in batch],
            "contents": [item.content for item in batch],
        }
        await connection.execute(_APPEND, values)


def _batches(items: Sequence[NewJobItem]) -> Iterator[list[NewJobItem]]:
    batch: list[NewJobItem] = []
    size = 0
    for item in items:
        if batch and (len(batch) == _BATCH_ITEMS or size + len(item.content) > _BATCH_BYTES):
            yield batch
            batch, size = [], 0
        batch.append(item)
        size += len(item.content)
    if batch:
        yield batch
