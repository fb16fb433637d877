"""The vector types of a connection; apart, because what only migrates has no need of them."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info

if TYPE_CHECKING:
    from psycopg.types import TypeInfo

    from vectorforge.db.session import Session


def register_vectors(connection: "Session", types: "Sequence[TypeInfo]") -> None:
    """Teach a connection the vector types, found once: asking again would cost it four queries."""
    register = {"vector": register_vector_info, "halfvec": register_halfvec_info}
    for info in types:
        register[info.name](connection, info)
