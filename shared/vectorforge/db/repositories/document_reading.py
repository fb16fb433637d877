"""Parts of a document's text: by characters, by page, by heading; and the places of characters."""

from collections.abc import Sequence
from dataclasses import dataclass
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Location

_PART = """
SELECT substr(text, %(start)s::int + 1, %(length)s::int) AS text FROM vectorforge.documents
WHERE tenant_id = %(tenant_id)s AND id = %(document_id)s
"""
_CURRENT = """
vectorforge.chunks AS c
WHERE c.tenant_id = %(tenant_id)s AND c.document_id = %(document_id)s AND c.to_version IS NULL
"""
_PAGE = f"""
SELECT min(c.start_offset) AS start, max(c.end_offset) AS end FROM {_CURRENT}
    AND jsonb_path_exists(
        c.locations, '$[*] ? (@.page == $number || @.slide == $number)',
        jsonb_build_object('number', %(number)s::int)
    )
"""  # noqa: S608 -- the only insertion is the constant above
# The section of the first heading that contains the words: all whose headings begin alike up to there.
_SECTION = f"""
WITH first AS (
    SELECT c.heading, strpos(lower(c.heading), lower(%(heading)s)) + length(%(heading)s) - 1 AS upto
    FROM {_CURRENT} AND strpos(lower(c.heading), lower(%(heading)s)) > 0
    ORDER BY c.ordinal LIMIT 1
)
SELECT min(c.start_offset) AS start, max(c.end_offset) AS end FROM first, {_CURRENT}
    AND left(c.heading, first.upto) = left(first.heading, first.upto)
"""  # noqa: S608 -- the only insertions are the constant above
_HEADINGS = f"""
SELECT c.heading FROM {_CURRENT} AND c.heading IS NOT NULL
GROUP BY c.heading ORDER BY min(c.ordinal) LIMIT %(limit)s
"""  # noqa: S608 -- the only insertion is the constant above
_PLACES = f"""
SELECT place.heading, coalesce(place.locations, '[]') AS locations
FROM unnest(%(offsets)s::int[]) WITH ORDINALITY AS wanted (at, number)
LEFT JOIN LATERAL (
    SELECT c.heading, c.locations FROM {_CURRENT} AND c.start_offset <= wanted.at AND c.end_offset > wanted.at
    ORDER BY c.ordinal LIMIT 1
) AS place ON true
ORDER BY wanted.number
"""  # noqa: S608 -- the only insertion is the constant above


@dataclass(frozen=True, slots=True)
class Place:
    """Heading and locations of the chunk that holds a character."""

    heading: str | None
    """Headings above it, outermost first."""
    locations: Sequence[Location]


class DocumentReadingRepository:
    """Parts of the documents of one tenant; offsets count characters (code points) from 0."""

    def __init__(self, db: TenantDatabase) -> None:
        self._db = db

    async def part(self, document_id: UUID, start: int, length: int) -> str | None:
        """Return at most ``length`` characters from ``start``, or None without the document."""
        row = await self._db.fetch_one(_PART, {"document_id": document_id, "start": start, "length": length})
        return None if row is None else str(row["text"])

    async def page(self, document_id: UUID, number: int) -> tuple[int, int] | None:
        """Return start and end of the chunks on a page or slide, from 1, or None if there are none."""
        return await self._range(_PAGE, {"document_id": document_id, "number": number})

    async def section(self, document_id: UUID, heading: str) -> tuple[int, int] | None:
        """Return start and end of the first section whose heading contains the words, or None."""
        return await self._range(_SECTION, {"document_id": document_id, "heading": heading})

    async def headings(self, document_id: UUID, limit: int) -> list[str]:
        """Return the first headings in order, each with those above it."""
        rows = await self._db.fetch_all(_HEADINGS, {"document_id": document_id, "limit": limit})
        return [row["heading"] for row in rows]

    async def places(self, document_id: UUID, offsets: Sequence[int]) -> list[Place]:
        """Return the place of each character, in the order of ``offsets``."""
        rows = await self._db.fetch_all(_PLACES, {"document_id": document_id, "offsets": list(offsets)})
        return [Place(**row) for row in rows]

    async def _range(self, query: str, values: dict[str, object]) -> tuple[int, int] | None:
        row = await self._db.fetch_one(query, values)
        return None if row is None or row["start"] is None else (row["start"], row["end"])
