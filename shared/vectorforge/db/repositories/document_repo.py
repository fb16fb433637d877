"""Documents, their chunks and parts of their texts, for reading; ``vectorstore`` writes and deletes them."""

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from hashlib import sha256
from typing import Any
from uuid import UUID

from vectorforge.db.repositories.paging import SqlCondition, checked_page
from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import ROW_VERSION, Chunk, Location, StoredDocument

DOCUMENT_COLUMNS = f"""
id, collection_id, source, title, media_type, metadata - '{ROW_VERSION}' AS metadata, version, chunk_count,
size_chars, created_at, updated_at
"""
_CHUNK_COLUMNS = """
id, document_id, ordinal AS index, text, start_offset, end_offset, token_count, heading, metadata,
locations
"""

_BY_ID = f"SELECT {DOCUMENT_COLUMNS} FROM vectorforge.documents WHERE tenant_id = %s AND id = %s"
_BY_SOURCE = f"""
SELECT {DOCUMENT_COLUMNS} FROM vectorforge.documents
WHERE tenant_id = %s AND collection_id = %s AND source_key = vectorforge.source_key(%s)
"""
_LIST = f"""
SELECT {DOCUMENT_COLUMNS} FROM vectorforge.documents d
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND {{condition}}
ORDER BY updated_at DESC, id DESC LIMIT %(limit)s OFFSET %(offset)s
"""
_COUNT = """
SELECT count(*) AS total FROM vectorforge.documents d
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND {condition}
"""
# Maintained by every writer; counting would read all documents for each page.
_COUNT_ALL = """
SELECT coalesce(sum(document_count), 0)::bigint AS total FROM vectorforge.collections
WHERE tenant_id = %(tenant_id)s AND id = %(collection_id)s
"""
_EVERY_DOCUMENT = SqlCondition()
_TEXT = "SELECT text FROM vectorforge.documents WHERE tenant_id = %s AND id = %s"

_CHUNKS = f"""
SELECT {_CHUNK_COLUMNS} FROM vectorforge.chunks
WHERE tenant_id = %(tenant_id)s AND document_id = %(document_id)s AND to_version IS NULL
ORDER BY ordinal LIMIT %(limit)s OFFSET %(offset)s
"""
# A retired chunk was last part of the version before the one that retired it.
_CHUNK = f"""
SELECT {_CHUNK_COLUMNS}, to_version IS NOT NULL AS retired, coalesce(to_version - 1, (
    SELECT d.version FROM vectorforge.documents d WHERE d.tenant_id = c.tenant_id AND d.id = c.document_id
)) AS document_version
FROM vectorforge.chunks c WHERE tenant_id = %s AND id = %s
"""

_LANGUAGES = """
SELECT DISTINCT substring(lower(metadata ->> 'language') FROM '^[a-z]{2}(?=$|[-_])') AS language
FROM vectorforge.documents WHERE tenant_id = %s AND collection_id = %s
"""

_METADATA_OF_PARENT = """
SELECT source, metadata ->> %(name)s AS value FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND id = ANY (ARRAY(
    SELECT vectorforge.documents_of_parent(%(collection_id)s, %(parent_source)s)
)) AND parent_source = %(parent_source)s
"""

_CURRENT = """
SELECT d.source, d.id AS document_id, d.version, d.content_hash, array(
    SELECT c.content_hash FROM vectorforge.chunks c
    WHERE c.tenant_id = d.tenant_id AND c.document_id = d.id AND c.to_version IS NULL
) AS chunk_hashes
FROM vectorforge.documents d
WHERE d.tenant_id = %s AND d.collection_id = %s
    AND d.source_key = ANY (%b::bytea[])
"""
# A chunk has its document's metadata and its own, which win.
_SET_METADATA = """
WITH before AS (
    SELECT id, metadata FROM vectorforge.documents
    WHERE tenant_id = %(tenant_id)s AND id = %(id)s AND collection_id = %(collection_id)s FOR UPDATE
), now AS (
    SELECT id, metadata AS old, jsonb_strip_nulls(
        jsonb_build_object('language', metadata -> 'language')) || %(metadata)s::jsonb AS new
    FROM before
), changed AS (
    UPDATE vectorforge.documents AS d SET metadata = now.new, updated_at = clock_timestamp()
    FROM now WHERE d.tenant_id = %(tenant_id)s AND d.id = now.id
)
UPDATE vectorforge.chunks AS c SET metadata = now.new || coalesce((
    SELECT jsonb_object_agg(own.key, own.value) FROM jsonb_each(c.metadata) AS own
    WHERE now.old -> own.key IS DISTINCT FROM own.value
), '{}')
FROM now
WHERE c.tenant_id = %(tenant_id)s AND c.collection_id = %(collection_id)s AND c.document_id = now.id
    AND c.to_version IS NULL
"""

_FILES_BELOW = """
SELECT id, coalesce(parent_source, source) AS file FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND collection_id = %(collection_id)s AND id > %(after)s
    AND starts_with(source, %(folder)s)
ORDER BY id LIMIT %(limit)s
"""
_FILES = 10_000

_PART = """
SELECT substr(text, %(start)s::int + 1, %(length)s::int) AS text FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND id = %(document_id)s
    AND version = coalesce(%(version)s::int, version)
"""
_CURRENT_CHUNKS = """
vectorforge.chunks AS c
WHERE c.tenant_id = %(tenant_id)s AND c.document_id = %(document_id)s AND c.to_version IS NULL
"""
_PAGE = f"""
SELECT min(c.start_offset) AS start, max(c.end_offset) AS end FROM {_CURRENT_CHUNKS}
    AND jsonb_path_exists(
        c.locations, '$[*] ? (@.page == $number || @.slide == $number)',
        jsonb_build_object('number', %(number)s::int)
    )
"""
# The section of the first heading that contains the words: all whose headings begin alike up to there.
_SECTION = f"""
WITH first AS (
    SELECT c.heading, strpos(lower(c.heading), lower(%(heading)s)) + length(%(heading)s) - 1 AS upto
    FROM {_CURRENT_CHUNKS} AND strpos(lower(c.heading), lower(%(heading)s)) > 0
    ORDER BY c.ordinal LIMIT 1
)
SELECT min(c.start_offset) AS start, max(c.end_offset) AS end FROM first, {_CURRENT_CHUNKS}
    AND left(c.heading, first.upto) = left(first.heading, first.upto)
"""
_HEADINGS = f"""
SELECT c.heading FROM {_CURRENT_CHUNKS} AND c.heading IS NOT NULL
GROUP BY c.heading ORDER BY min(c.ordinal) LIMIT %(limit)s
"""
_PLACES = f"""
SELECT place.heading, coalesce(place.locations, '[]') AS locations
FROM unnest(%(offsets)s::int[]) WITH ORDINALITY AS wanted (at, number)
LEFT JOIN LATERAL (
    SELECT c.heading, c.locations FROM {_CURRENT_CHUNKS}
        AND c.start_offset <= wanted.at AND c.end_offset > wanted.at
    ORDER BY c.ordinal LIMIT 1
) AS place ON true
ORDER BY wanted.number
"""


@dataclass(frozen=True, slots=True)
class Document:
    """A stored document, without its text."""

    id: UUID
    collection_id: UUID
    source: str
    """Identity within the collection: path, URL or key."""
    title: str | None
    media_type: str
    metadata: Mapping[str, Any] = field(default_factory=dict)
    version: int = 1
    """1 for the first; grows by one with every change."""
    chunk_count: int = 0
    size_chars: int = 0
    """Length of the extracted text."""
    created_at: datetime | None = None
    updated_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class CurrentDocument:
    """Stored state of a source, enough to compute what would change."""

    document_id: UUID
    version: int
    content_hash: bytes
    chunk_hashes: frozenset[bytes]
    """Hashes of the current chunks; a chunk with one of these is not embedded again."""

    def unchanged(self) -> StoredDocument:
        """Return the result of storing the document again as it is."""
        kept = len(self.chunk_hashes)
        return StoredDocument(self.document_id, self.version, 0, kept, 0, unchanged=True)


@dataclass(frozen=True, slots=True)
class CitedChunk:
    """A chunk, and the text that its offsets count in."""

    chunk: Chunk
    retired: bool
    """True if the document has changed since and no longer holds the chunk."""
    document_version: int
    """The document's version that the offsets belong to: the current one, or the last that held the chunk."""


@dataclass(frozen=True, slots=True)
class Place:
    """Heading and locations of the chunk that holds a character."""

    heading: str | None
    """Headings above it, outermost first."""
    locations: Sequence[Location]


class DocumentRepository:
    """The documents of one tenant; offsets count characters (code points) from 0."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def find_by_id(self, document_id: UUID) -> Document | None:
        """Return the document, or None."""
        row = await self._db.fetch_one(_BY_ID, (self._db.tenant_id, document_id))
        return Document(**row) if row else None

    async def find_by_source(self, collection_id: UUID, source: str) -> Document | None:
        """Return the collection's document from exactly this source, or None."""
        row = await self._db.fetch_one(_BY_SOURCE, (self._db.tenant_id, collection_id, source))
        return Document(**row) if row else None

    async def chunks(
        self, document_id: UUID, *, limit: int | None = None, offset: int = 0
    ) -> Sequence[Chunk]:
        """Return a page of the current chunks, in order; no limit: all. ``checked_page`` has the bounds."""
        checked_page(limit or 1, offset)
        values = {"document_id": document_id, "limit": limit, "offset": offset}
        return [Chunk(**row) for row in await self._db.fetch_all(_CHUNKS, values)]

    async def list(
        self,
        collection_id: UUID,
        *,
        limit: int = 50,
        offset: int = 0,
        condition: SqlCondition = _EVERY_DOCUMENT,
    ) -> tuple[list[Document], int]:
        """Return a page of a collection's documents, the latest change first, and how many there are in all.

        ``condition`` is from ``vectorstore.filters.documents``; ``checked_page`` has the bounds.
        """
        checked_page(limit, offset)
        values = {**condition.params, "collection_id": collection_id, "limit": limit, "offset": offset}
        count = _COUNT_ALL if condition == _EVERY_DOCUMENT else _COUNT
        calls = [(text.format(condition=condition.text), values) for text in (_LIST, count)]
        (rows, _), (counts, _) = await self._db.run(calls)
        return [Document(**row) for row in rows], counts[0]["total"]

    async def languages(self, collection_id: UUID) -> set[str | None]:
        """Return the languages of all documents of a collection, ISO 639-1; None for unknown."""
        rows = await self._db.fetch_all(_LANGUAGES, (self._db.tenant_id, collection_id))
        return {row["language"] for row in rows}

    async def text(self, document_id: UUID) -> str | None:
        """Return the whole extracted text, or None; offsets of its chunks count its characters."""
        row = await self._db.fetch_one(_TEXT, (self._db.tenant_id, document_id))
        return str(row["text"]) if row else None

    async def chunk(self, chunk_id: UUID) -> CitedChunk | None:
        """Return a chunk, or None, even one retired by its document's last change: it may still be cited."""
        row = await self._db.fetch_one(_CHUNK, (self._db.tenant_id, chunk_id))
        if row is None:
            return None
        retired, version = row.pop("retired"), row.pop("document_version")
        return CitedChunk(Chunk(**row), retired, version)

    async def metadata_of_parent(
        self, collection_id: UUID, parent_source: str, name: str
    ) -> dict[str, str | None]:
        """Return one metadata value, as text, of each document of a file or table, by source."""
        values = {"collection_id": collection_id, "parent_source": parent_source, "name": name}
        rows = await self._db.fetch_all(_METADATA_OF_PARENT, values)
        return {row["source"]: row["value"] for row in rows}

    async def files_below(self, collection_id: UUID, folder: str) -> dict[UUID, str]:
        """Return the documents whose source begins with ``folder``, each with the file that contains it."""
        found: dict[UUID, str] = {}
        values = {"collection_id": collection_id, "folder": folder, "limit": _FILES}
        rows: Sequence[Mapping[str, Any]] = [{"id": UUID(int=0)}]
        while rows:
            rows = await self._db.fetch_all(_FILES_BELOW, {**values, "after": rows[-1]["id"]})
            found |= {row["id"]: row["file"] for row in rows}
        return found

    async def current_hashes(self, collection_id: UUID, source: str) -> CurrentDocument | None:
        """Return the stored state of a source, or None."""
        return (await self.current_hashes_of(collection_id, [source])).get(source)

    async def current_hashes_of(
        self, collection_id: UUID, sources: Sequence[str]
    ) -> dict[str, CurrentDocument]:
        """Return the stored state of sources, by source, without those that have no document."""
        keys = [sha256(source.encode()).digest() for source in sources]  # as vectorforge.source_key
        values = (self._db.tenant_id, collection_id, keys)
        rows = await self._db.fetch_all(_CURRENT, values, repeatable=True)
        return {
            row.pop("source"): CurrentDocument(**{**row, "chunk_hashes": frozenset(row["chunk_hashes"])})
            for row in rows
        }

    async def set_metadata(self, collection_id: UUID, document_id: UUID, metadata: Mapping[str, Any]) -> None:
        """Replace a document's metadata, except ``language`` if the new ones have none; not its vectors."""
        values = {"collection_id": collection_id, "id": document_id, "metadata": json.dumps(dict(metadata))}
        await self._db.execute(_SET_METADATA, values)

    async def part(
        self, document_id: UUID, start: int, length: int, *, version: int | None = None
    ) -> str | None:
        """Return at most ``length`` characters from ``start``, or None without the document or version."""
        values = {"document_id": document_id, "start": start, "length": length, "version": version}
        row = await self._db.fetch_one(_PART, values)
        return None if row is None else str(row["text"])

    async def page(self, document_id: UUID, number: int) -> tuple[int, int] | None:
        """Return start and end of the chunks on a page or slide, from 1, or None if there are none."""
        return await self._range(_PAGE, {"document_id": document_id, "number": number})

    async def section(self, document_id: UUID, heading: str) -> tuple[int, int] | None:
        """Return start and end of the first section whose heading contains the words, or None."""
        return await self._range(_SECTION, {"document_id": document_id, "heading": heading})

    async def headings(self, document_id: UUID, limit: int) -> Sequence[str]:
        """Return the first headings in order, each with those above it."""
        rows = await self._db.fetch_all(_HEADINGS, {"document_id": document_id, "limit": limit})
        return [row["heading"] for row in rows]

    async def places(self, document_id: UUID, offsets: Sequence[int]) -> Sequence[Place]:
        """Return the place of each character, in the order of ``offsets``."""
        rows = await self._db.fetch_all(_PLACES, {"document_id": document_id, "offsets": list(offsets)})
        return [Place(**row) for row in rows]

    async def _range(self, query: str, values: dict[str, object]) -> tuple[int, int] | None:
        row = await self._db.fetch_one(query, values)
        return None if row is None or row["start"] is None else (row["start"], row["end"])
