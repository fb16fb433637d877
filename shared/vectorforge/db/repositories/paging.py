"""Limits of a page of rows.

Pages that begin after a row instead of at a number, so that new rows do not move them.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Generic, TypeVar
from uuid import UUID

from vectorforge.errors import InvalidInputError

MAX_PAGE = 1000
MAX_OFFSET = 2**31 - 1


def checked_page(limit: int, offset: int) -> tuple[int, int]:
    """The same values, if they are usable.

    Raises:
        InvalidInputError: ``limit`` is not 1 to 1,000, or ``offset`` is negative or beyond 2^31 - 1.
    """
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidInputError(f"limit must be between 1 and {MAX_PAGE}.", field="limit")
    if not 0 <= offset <= MAX_OFFSET:
        raise InvalidInputError(f"offset must be between 0 and {MAX_OFFSET}.", field="offset")
    return limit, offset


Row = TypeVar("Row")
Other = TypeVar("Other")


@dataclass(frozen=True, slots=True)
class CursorPage:
    """Page of rows ordered by creation time, then id."""

    limit: int = 20
    """Rows of the page, 1 to 1,000."""
    newest_first: bool = True
    cursor: UUID | None = None
    """The row that the page lies beside; None: the page is the first one."""
    backwards: bool = False
    """True for the page before the cursor."""

    @property
    def ordering(self) -> str:
        """``ORDER BY`` and ``LIMIT`` of the statement; one row more tells whether there are others.

        A page before a cursor is read from the cursor on, and so comes in the other direction.
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

    def cut(self, rows: Sequence[Row]) -> "FoundPage[Row]":
        """The page of the rows that the statement gave."""
        page = list(rows[: self.limit])
        return FoundPage(page[::-1] if self.backwards else page, has_more=len(rows) > self.limit)


@dataclass(frozen=True, slots=True)
class FoundPage(Generic[Row]):
    """Rows of one page, in the order asked for."""

    rows: Sequence[Row]
    has_more: bool
    """True if more rows follow in the same direction."""

    def map(self, make: Callable[[Row], Other]) -> "FoundPage[Other]":
        """Return the page with each row converted by ``make``."""
        return FoundPage([make(row) for row in self.rows], self.has_more)
