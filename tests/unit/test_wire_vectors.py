"""Vectors packed in one piece, against what the driver and pgvector's own adapter make of them."""

import random
from array import array

import pytest
from pgvector import Vector
from pgvector.psycopg.vector import register_vector_info
from psycopg import adapters
from psycopg.adapt import AdaptersMap, PyFormat, Transformer
from psycopg.types import TypeInfo

from vectorforge.db.types import WireVectors

_OID, _ARRAY_OID = 70_001, 70_002


class _Context:
    """What the adapters of a connection are registered on."""

    connection = None

    def __init__(self) -> None:
        self.adapters = AdaptersMap(adapters)


@pytest.mark.parametrize(("count", "dimension"), [(0, 0), (1, 1), (3, 1536), (2, 16_000)])
def test_packed_as_the_driver_packs_a_list(count: int, dimension: int) -> None:
    rng = random.Random(count)
    vectors = [array("f", [rng.gauss(0, 1) for _ in range(dimension)]) for _ in range(count)]
    context = _Context()
    register_vector_info(context, TypeInfo("vector", _OID, _ARRAY_OID))  # type: ignore[arg-type]  # no connection
    transformer = Transformer(context)
    listed = [Vector(vector.tolist()) for vector in vectors]
    [dumped] = transformer.dump_sequence([listed or [Vector([1.0])]], [PyFormat.BINARY])

    packed = WireVectors(vectors).packed(_OID)

    assert dumped is not None
    if vectors:
        # The driver says in the flags that there is no NULL by 0, too; its bounds begin with 1.
        assert packed == bytes(dumped)
    else:
        assert packed == bytes(8) + bytes(dumped)[8:12]


def test_what_is_packed_is_not_changed() -> None:
    vector = array("f", [1.0, -2.0])
    packing = WireVectors([vector])
    assert packing.packed(_OID) == packing.packed(_OID)
    assert vector.tolist() == [1.0, -2.0]
