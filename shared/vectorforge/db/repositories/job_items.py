"""Insertion of a job's documents: one statement for some hundred of them."""

import json
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING, Any, Final
from uuid import UUID

from vectorforge.db.repositories.job_types import NewJobItem

if TYPE_CHECKING:
    from psycopg import AsyncConnection

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
