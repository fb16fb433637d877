"""Ids with the prefixes of OpenAI's API: ``vs_`` and 32 hexadecimal digits; bare UUIDs are accepted, too."""

import re
from typing import Final
from uuid import UUID

from vectorforge.db.repositories.query_lookup_repo import as_uuid

VECTOR_STORE: Final = "vs_"
FILE: Final = "file-"
FILE_BATCH: Final = "vsfb_"
CONVERSATION: Final = "conv_"

_VECTOR_STORE_ID = re.compile(rf"{VECTOR_STORE}[0-9a-f]{{32}}")


def prefixed(prefix: str, id_: UUID) -> str:
    """Return an id as OpenAI's clients get it."""
    return prefix + id_.hex


def parse_id(prefix: str, text: str) -> UUID | None:
    """Return the id of a text with or without its prefix; None if it is none."""
    return as_uuid(text.removeprefix(prefix))


def collection_reference(vector_store_id: str) -> str:
    """Return the id or the name of the collection that a vector store is."""
    is_id = _VECTOR_STORE_ID.fullmatch(vector_store_id)
    return str(UUID(vector_store_id.removeprefix(VECTOR_STORE))) if is_id else vector_store_id
