"""Vectors on their way to PostgreSQL in one piece: the driver takes a list of them apart one by one."""

import struct
import sys
from array import array
from collections.abc import Sequence


class WireVectors:
    """Vectors for a parameter ``%b`` of type ``vector[]``; connections of the application know the type.

    Args:
        vectors: Checked, of 4-byte floats; not to be changed until they are sent.
    """

    def __init__(self, vectors: "Sequence[array[float]]") -> None:
        self._vectors = vectors

    def packed(self, oid: int) -> bytes:
        """An array of one dimension, as ``array_recv`` and ``vector_recv`` read it.

        https://github.com/postgres/postgres/blob/REL_17_STABLE/src/backend/utils/adt/arrayfuncs.c and
        https://github.com/pgvector/pgvector/blob/master/src/vector.c.

        Args:
            oid: Of the type ``vector`` in the database.
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
