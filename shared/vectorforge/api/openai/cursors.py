"""Query parameters of OpenAI's lists (https://developers.openai.com/api/reference/resources/vector_stores)."""

from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Annotated, Literal
from uuid import UUID

from fastapi import Depends, Query

from vectorforge.db.repositories.cursor_page import CursorPage
from vectorforge.errors import InvalidInputError, NotFoundError

MAX_CURSOR_PAGE = 100


@dataclass(frozen=True, slots=True)
class AskedPage:
    """A page, and the parameter that says where it begins."""

    page: CursorPage
    field: Literal["after", "before"]

    @contextmanager
    def naming_the_cursor(self) -> Iterator[None]:
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
) -> AskedPage:
    """The page that the parameters ask for.

    Raises:
        InvalidInputError: There are two cursors, or one that is no id.
    """
    if after is not None and before is not None:
        raise InvalidInputError("Send after or before, not both.", field="before")
    field: Literal["after", "before"] = "after" if before is None else "before"
    given = after if before is None else before
    try:
        cursor = UUID(given) if given is not None else None
    except ValueError:
        raise InvalidInputError(f"{field} must be the id of an object of the list.", field=field) from None
    return AskedPage(CursorPage(limit, order == "desc", cursor, backwards=before is not None), field)


Page = Annotated[AskedPage, Depends(read_page)]
