"""Selection of rows: pages by number or by cursor, and filters.

A cursor page begins after a row instead of at a number, so that new rows do not move it.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Generic, Literal, TypeVar
from uuid import UUID

from vectorforge.errors import InvalidInputError

MAX_PAGE = 1000
MAX_OFFSET = 2**31 - 1


def checked_page(limit: int, offset: int) -> tuple[int, int]:
    """Return the values unchanged if they are valid.

    Raises:
        InvalidInputError: ``limit`` is not 1 to 1,000, or ``offset`` is negative or beyond 2^31 - 1.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit must be between 1 and {MAX_PAGE}.", field="limit")
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidInputError(f"offset must be between 0 and {MAX_OFFSET}.", field="offset")
    return limit, offset


Row = TypeVar("Row")


@dataclass(frozen=True, slots=True)
class CursorPage:
    """Page of rows ordered by creation time, then id."""

    limit: int = 20
    """Rows of the page, 1 to 1,000."""
    newest_first: bool = True
    cursor: UUID | None = None
    """Row next to the page; None for the first page."""
    backwards: bool = False
    """True for the page before the cursor."""

    @property
    def field(self) -> Literal["after", "before"]:
        """Name of the cursor in a request."""
        return "before" if self.backwards else "after"

    def missing(self) -> InvalidInputError:
        """Return the error of a cursor that is no row (any more)."""
        return InvalidInputError(f"{self.cursor} not found.", field=self.field)

    @property
    def ordering(self) -> str:
        """``ORDER BY`` and ``LIMIT`` of the statement, with one row more to detect further rows.

        A page before a cursor is read backwards from the cursor.
        """
        direction = "DESC" if self.newest_first is not self.backwards else "ASC"
        return f"ORDER BY created_at {direction}, id {direction} LIMIT {int(self.limit) + 1}"

    @property
    def condition(self) -> str:
        """SQL condition on rows, with ``%(cursor_time)s`` and ``%(cursor)s`` for the cursor's row."""
        if self.cursor is None:
            return "true"
        sign = "<" if self.newest_first is not self.backwards else ">"
        return f"(created_at, id) {sign} (%(cursor_time)s, %(cursor)s)"

    def cut(self, rows: Sequence[Row]) -> "Page[Row]":
        """Return the page from the rows of the statement."""
        page = list(rows[: self.limit])
        return Page(page[::-1] if self.backwards else page, has_more=len(rows) > self.limit)


@dataclass(frozen=True, slots=True)
class Page(Generic[Row]):
    """Rows of one page, in the requested order."""

    rows: Sequence[Row]
    has_more: bool
    """True if more rows follow in the same direction."""


@dataclass(frozen=True, slots=True)
class SqlCondition:
    """A boolean SQL expression that is never NULL, with its parameters; ``TRUE`` by default."""

    text: str = "TRUE"
    """Text in psycopg's ``%(name)s`` style, without values from callers."""
    params: Mapping[str, Any] = field(default_factory=dict)
    """Parameters, with names that begin with ``filter_``."""


# The values are known when a statement without a name is planned, so that conditions without one are dropped:
# https://www.postgresql.org/docs/current/sql-prepare.html (custom plans)
CONDITIONS = """
    tenant_id = %(tenant_id)s
AND (%(since)s::timestamptz IS NULL OR created_at >= %(since)s)
AND (%(until)s::timestamptz IS NULL OR created_at < %(until)s)
AND (%(collection_id)s::uuid IS NULL OR collection_id = %(collection_id)s)
AND (%(outcome)s::text IS NULL OR outcome = %(outcome)s)
AND (%(provider)s::text IS NULL OR provider = %(provider)s)
AND (%(model)s::text IS NULL OR model = %(model)s)
AND (%(variant)s::text IS NULL OR variant = %(variant)s)
AND (%(cached)s::boolean IS NULL OR (cached OR outcome = 'cached') = %(cached)s)
AND (%(degraded)s::boolean IS NULL OR (degraded <> '[]') = %(degraded)s)
AND (%(text)s::text IS NULL OR strpos(lower(query_text), lower(%(text)s)) > 0)
"""
"""WHERE conditions on ``vectorforge.query_logs``; parameters are ``QueryFilter.values`` and ``tenant_id``."""


@dataclass(frozen=True, slots=True)
class QueryFilter:
    """Conditions that all hold; None means any."""

    since: datetime | None = None
    """Not before, with a time zone."""
    until: datetime | None = None
    """Before, with a time zone."""
    collection_id: UUID | None = None
    outcome: str | None = None
    provider: str | None = None
    model: str | None = None
    """As logged: the name the vendor answered with."""
    variant: str | None = None
    cached: bool | None = None
    degraded: bool | None = None
    """Filter by degraded answers."""
    text: str | None = None
    """Part of the query, case-insensitive."""

    @property
    def values(self) -> Mapping[str, Any]:
        """Return the parameters of ``CONDITIONS``, without the tenant."""
        return {name: getattr(self, name) for name in QueryFilter.__dataclass_fields__}
