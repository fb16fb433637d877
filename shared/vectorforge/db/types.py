"""Types shared by the database modules: statements, their outcomes, tenant ids and vectors on the wire.

Free of the driver, so that importing them costs a cold start nothing.
"""

import struct
import sys
from array import array
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, TypeAlias

from vectorforge.errors import InvalidInputError

if TYPE_CHECKING:
    from psycopg.rows import DictRow

Params: TypeAlias = Sequence[Any] | Mapping[str, Any]
"""Parameters of a statement, by position or by name."""
Call: TypeAlias = tuple[str, Params]
"""A statement with the driver's placeholders, and its parameters."""
Outcome: TypeAlias = "tuple[list[DictRow], int]"
"""The rows of a statement, and the number of rows that it returned or changed."""

MAX_TENANT_BYTES = 128
"""Longest tenant id, in UTF-8 bytes; the tables check the same."""


def checked_tenant(tenant_id: str) -> str:
    """Return the tenant id unchanged if the tables can hold it.

    Raises:
        InvalidInputError: It is empty, too long, or not text that PostgreSQL can hold.
    """
    try:
        size = len(tenant_id.encode())
    except UnicodeEncodeError as exc:
        raise InvalidInputError("tenant_id is not valid text.", field="tenant_id") from exc
    if not 1 <= size <= MAX_TENANT_BYTES or "\0" in tenant_id:
        raise InvalidInputError(
            f"tenant_id must have 1 to {MAX_TENANT_BYTES} bytes and no NUL.", field="tenant_id"
        )
    return tenant_id


class WireVectors:
    """Vectors for a parameter ``%b`` of type ``vector[]``, packed at once; the driver packs one by one.

    Args:
        vectors: Validated, of 4-byte floats; must not change until they are sent.
    """

    def __init__(self, vectors: "Sequence[array[float]]") -> None:
        self._vectors = vectors

    def packed(self, oid: int) -> bytes:
        """Return an array of one dimension in the format that ``array_recv`` and ``vector_recv`` read.

        https://github.com/postgres/postgres/blob/REL_17_STABLE/src/backend/utils/adt/arrayfuncs.c and
        https://github.com/pgvector/pgvector/blob/master/src/vector.c.

        Args:
            oid: Oid of the type ``vector`` in the database.
        """
        dimensions = struct.pack(">ii", len(self._vectors), 1) if self._vectors else b""
        pieces: list[bytes | array[float]] = [
            struct.pack(">iiI", 1 if self._vectors else 0, 0, oid) + dimensions
        ]
        for vector in self._vectors:
            numbers = vector[:]
            if sys.byteorder == "little":
                numbers.byteswap()
            pieces.append(struct.pack(">iHH", 4 + 4 * len(vector), len(vector), 0))
            pieces.append(numbers)
        return b"".join(pieces)
