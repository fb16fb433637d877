"""Limits of a page of rows."""

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
