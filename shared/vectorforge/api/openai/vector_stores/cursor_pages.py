"""Parameters of OpenAI's lists: pages before or after an object.

https://developers.openai.com/api/reference/resources/vector_stores/methods/list
"""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal

from fastapi import Depends, Query

from vectorforge.api.openai.ids import FILE, VECTOR_STORE
from vectorforge.db.repositories.paging import CursorPage
from vectorforge.db.repositories.query_lookup_repo import as_uuid
from vectorforge.errors import InvalidInputError, NotFoundError

MAX_CURSOR_PAGE = 100


@dataclass(frozen=True, slots=True)
class RequestedPage:
    """A page, and the parameter of its cursor."""

    page: CursorPage
    field: Literal["after", "before"]

    @contextmanager
    def cursor_errors(self) -> Iterator[None]:
        """Make the block's ``NotFoundError`` one of the parameter.

        Raises:
            InvalidInputError: In place of it.
        """
        try:
            yield
        except NotFoundError as exc:
            raise InvalidInputError(exc.message, field=self.field) from exc


async def read_page(
    limit: Annotated[int, Query(ge=1, le=MAX_CURSOR_PAGE, description="Objects to return.")] = 20,
    order: Annotated[Literal["asc", "desc"], Query(description="By created_at.")] = "desc",
    after: Annotated[str | None, Query(description="Id of the last object of the page before.")] = None,
    before: Annotated[str | None, Query(description="Id of the first object of the page behind.")] = None,
) -> RequestedPage:
    """Return the requested page.

    Raises:
        InvalidInputError: Two cursors, or a malformed one.
    """
    if after is not None and before is not None:
        raise InvalidInputError("Send after or before, not both.", field="before")
    field: Literal["after", "before"] = "after" if before is None else "before"
    given = after if before is None else before
    cursor = None if given is None else as_uuid(given.removeprefix(FILE).removeprefix(VECTOR_STORE))
    if given is not None and cursor is None:
        raise InvalidInputError(f"{field} must be the id of an object of the list.", field=field)
    return RequestedPage(CursorPage(limit, order == "desc", cursor, backwards=before is not None), field)


Page = Annotated[RequestedPage, Depends(read_page)]
