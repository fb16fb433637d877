"""Ids with the prefixes of OpenAI's API: ``vs_`` and 32 hexadecimal digits; bare UUIDs are accepted, too.

Lists have pages before or after the object of an id.
https://developers.openai.com/api/reference/resources/vector_stores/methods/list
"""

import re
from typing import Annotated, Final, Literal
from uuid import UUID

from fastapi import Depends, Query

from vectorforge.db.repositories.paging import CursorPage
from vectorforge.db.repositories.query_lookup_repo import as_uuid
from vectorforge.errors import InvalidInputError

VECTOR_STORE: Final = "vs_"
FILE: Final = "file-"
FILE_BATCH: Final = "vsfb_"
CONVERSATION: Final = "conv_"
RESPONSE: Final = "resp_"
MAX_CURSOR_PAGE = 100

_VECTOR_STORE_ID = re.compile(rf"{VECTOR_STORE}[0-9a-f]{{32}}")


def prefixed(prefix: str, id_: UUID) -> str:
    """Return an id as OpenAI's clients get it."""
    return prefix + id_.hex


def parse_id(prefix: str, text: str) -> UUID | None:
    """Return the id of a text with or without its prefix; None if it is none."""
    return as_uuid(text.removeprefix(prefix))


def response_key(query_id: UUID, conversation_id: UUID | None) -> str:
    """Return what the ids of a response and its items share: its query and, if stored, its conversation."""
    return query_id.hex + (conversation_id.hex if conversation_id else "")


def parse_response_id(response_id: str) -> tuple[UUID, UUID]:
    """Return query and conversation of a stored response.

    Raises:
        InvalidInputError: The response was not stored, or the id is malformed.
    """
    ids = response_id.removeprefix(RESPONSE)
    try:
        return UUID(ids[:32]), UUID(ids[32:])
    except ValueError:
        raise InvalidInputError(
            "This response was not stored: use `store: true`, or send the conversation in `input`.",
            field="previous_response_id",
        ) from None


def collection_reference(vector_store_id: str) -> str:
    """Return the id or the name of the collection that a vector store is."""
    is_id = _VECTOR_STORE_ID.fullmatch(vector_store_id)
    return str(UUID(vector_store_id.removeprefix(VECTOR_STORE))) if is_id else vector_store_id


async def read_page(
    limit: Annotated[int, Query(ge=1, le=MAX_CURSOR_PAGE, description="Objects to return.")] = 20,
    order: Annotated[Literal["asc", "desc"], Query(description="By created_at.")] = "desc",
    after: Annotated[str | None, Query(description="Id of the last object of the page before.")] = None,
    before: Annotated[str | None, Query(description="Id of the first object of the page behind.")] = None,
) -> CursorPage:
    """Return the requested page.

    Raises:
        InvalidInputError: Two cursors, or a malformed one.
    """
    if after is not None and before is not None:
        raise InvalidInputError("Send after or before, not both.", field="before")
    given = after if before is None else before
    cursor = None if given is None else as_uuid(given.removeprefix(FILE).removeprefix(VECTOR_STORE))
    page = CursorPage(limit, order == "desc", cursor, backwards=before is not None)
    if given is not None and cursor is None:
        raise InvalidInputError(f"{page.field} must be the id of an object of the list.", field=page.field)
    return page


Page = Annotated[CursorPage, Depends(read_page)]
