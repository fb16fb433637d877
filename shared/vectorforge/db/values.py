"""JSON that comes from the database, read faster than by the standard library and to the same values.

The vector types of a connection; apart, because what only migrates has no need of them.
"""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

from pgvector.psycopg.halfvec import register_halfvec_info
from pgvector.psycopg.vector import register_vector_info
from psycopg.adapt import Dumper
from psycopg.pq import Format
from pydantic_core import from_json

from vectorforge.db.wire_vectors import WireVectors

if TYPE_CHECKING:
    from psycopg.types import TypeInfo

    from vectorforge.db.session import Session


def read_json(data: bytes | str) -> Any:
    """The value; numbers of any length and nesting of any depth as ``json.loads`` knows them.

    Raises:
        ValueError: It is no JSON.
    """
    try:
        return from_json(data)
    except ValueError:  # nested deeper than 200 levels
        return json.loads(data)


class _WireVectorsDumper(Dumper):
    format = Format.BINARY
    element_oid = 0

    def dump(self, obj: WireVectors) -> bytes:
        return obj.packed(self.element_oid)


def register_vectors(connection: "Session", types: "Sequence[TypeInfo]") -> None:
    """Teach a connection the vector types, found once: asking again would cost it four queries."""
    register = {"vector": register_vector_info, "halfvec": register_halfvec_info}
    for info in types:
        register[info.name](connection, info)
        if info.name == "vector":
            oids = {"oid": info.array_oid, "element_oid": info.oid}
            dumper = type("WireVectorsDumper", (_WireVectorsDumper,), oids)
            connection.adapters.register_dumper(WireVectors, dumper)
