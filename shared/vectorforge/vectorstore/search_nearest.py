"""The leg of the vectors in a search's statement; ``search_sql`` says how the way to them is chosen."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.search_branches import matching
from vectorforge.vectorstore.validation import MAX_HALFVEC_INDEX_DIMENSION, MAX_VECTOR_INDEX_DIMENSION

EXACT_SCAN_LIMIT: Final = 10_000
"""Matching vectors up to which every distance is computed; docs/performance.md has the times."""
MAX_SCAN_TUPLES: Final = 20_000
"""``hnsw.max_scan_tuples``: after that many vectors an index scan gives up."""

OPERATORS: Final = {
    DistanceMetric.COSINE: "<=>",
    DistanceMetric.INNER_PRODUCT: "<#>",
    DistanceMetric.L2: "<->",
}


@dataclass(frozen=True, slots=True)
class IndexKind:
    """What a partition's HNSW index is made of."""

    order: str
    """The indexed expression and its distance to the query: with ``{operator}`` and ``{dimension}``."""
    candidates_per_row: int
    """How many candidates to ask for, for each row wanted; their distances are computed again in full."""
    least_candidates: int = 0
    """How many to ask for at least; those of few rows lie too close together for their signs to tell."""


_FULL = IndexKind(
    "e.embedding::public.vector({dimension}) {operator} %(query)b::public.vector({dimension})", 1
)
_HALF = IndexKind(
    "e.embedding::public.halfvec({dimension}) {operator} "
    "%(query)b::public.vector::public.halfvec({dimension})",
    4,
)
_BINARY = IndexKind(
    "public.binary_quantize(e.embedding)::bit({dimension}) OPERATOR(public.<~>) "
    "public.binary_quantize(%(query)b::public.vector)::bit({dimension})",
    4,
    400,
)
INDEX_KINDS: Final = {"": _FULL, "half": _HALF, "binary": _BINARY}
"""By the suffix of the partition's name."""


def space_kind(space: str) -> str:
    """The kind of a partition, from its name: "cosine_384_half" is of the kind "half"."""
    return next((part for part in reversed(space.split("_")) if part and part in INDEX_KINDS), "")


def index_kind(kind: str, dimension: int) -> IndexKind:
    """What the index of a partition is made of.

    Args:
        kind: The suffix of its name after metric and dimension; "" for none.
        dimension: Of its vectors; too long ones are indexed in half precision without being asked.
    """
    if not kind and MAX_VECTOR_INDEX_DIMENSION < dimension <= MAX_HALFVEC_INDEX_DIMENSION:
        return _filled(_HALF, dimension)
    return _filled(INDEX_KINDS.get(kind, _FULL), dimension)


def _filled(kind: IndexKind, dimension: int) -> IndexKind:
    return replace(kind, order=kind.order.replace("{dimension}", str(dimension)))


# How an index would fare is read off the catalogue, and only where more match than are compared in any case:
# the partition's size, of which the collection is a part, and whether it has an index.
_CHOSEN = f"""
chosen AS MATERIALIZED (
    SELECT CASE WHEN counted.matching <= %(limit)s THEN 'few' ELSE coalesce((
        SELECT CASE WHEN c.reltuples * %(candidates)s > scope.chunk_count * {MAX_SCAN_TUPLES}.0
            THEN 'sparse' ELSE 'many' END
        FROM pg_catalog.pg_class c
        WHERE c.oid = to_regclass(format('vectorforge.%%I', 'embeddings_' || %(space)s)) AND EXISTS (
            SELECT FROM pg_catalog.pg_index i
            JOIN pg_catalog.pg_class x ON x.oid = i.indexrelid JOIN pg_catalog.pg_am a ON a.oid = x.relam
            WHERE i.indrelid = c.oid AND i.indisvalid AND a.amname = 'hnsw'
        )
    ), 'unindexed') END AS reason
    FROM scope CROSS JOIN counted
)
"""  # noqa: S608 -- the only insertion is the constant above
_REASON = """
scan AS MATERIALIZED (
    SELECT CASE WHEN reason = 'many' AND (SELECT count(*) FROM by_index) < %(depth)s
        THEN 'short' ELSE reason END AS reason
    FROM chosen
)
"""
_WHOLE = "scan AS (SELECT 'few' AS reason)"

_IN_COLLECTION = "e.tenant_id = %(tenant)s AND e.collection_id = %(collection)s AND e.space = %(space)s"
_BY_INDEX = """
by_index AS MATERIALIZED (
    SELECT near.chunk_id, near.embedding {operator} %(query)b::public.vector AS distance
    FROM (
        SELECT e.chunk_id, e.embedding FROM vectorforge.embeddings e
        WHERE {in_collection} AND (SELECT reason FROM chosen) = 'many' AND {passes}
        ORDER BY {order}
        LIMIT %(candidates)s
    ) near
    ORDER BY distance, near.chunk_id
    LIMIT %(depth)s
)
"""
_COMPARED = """
(
    SELECT e.chunk_id, e.embedding {operator} %(query)b::public.vector AS distance
    FROM {source}
    WHERE {condition}
    ORDER BY distance, e.chunk_id
    LIMIT %(depth)s
)
"""
_DENSE = "dense AS MATERIALIZED (SELECT chunk_id, distance FROM ({legs}) legs)"
_KEPT = "(SELECT chunk_id, distance FROM by_index WHERE (SELECT reason FROM scan) = 'many')"

_ALL = "vectorforge.embeddings e"
_FOUND = "found JOIN vectorforge.embeddings e ON e.chunk_id = found.id"
# Without the collection, of which the chunks found are anyway: it would tempt the planner, while there are no
# statistics, to read the whole collection for each of them.
_IN_FOUND = "e.tenant_id = %(tenant)s AND e.space = %(space)s"


@dataclass(frozen=True, slots=True)
class Nearest:
    """``dense``: the ``depth`` nearest of what matches, with ``distance``; and ``scan``, the way there."""

    metric: DistanceMetric
    kind: IndexKind
    everything: bool
    of_profile: bool

    def whole(self) -> Iterator[str]:
        """Without a choice: what was found is all that matches."""
        yield _WHOLE
        yield self._dense(self._compared(_FOUND, _IN_FOUND))

    def chosen(self, passes: str) -> Iterator[str]:
        """By the way that fits; ``passes`` tells of one candidate whether it matches."""
        operator = OPERATORS[self.metric]
        yield _CHOSEN
        yield (
            _BY_INDEX.replace("{in_collection}", _IN_COLLECTION)
            .replace("{order}", self.kind.order)
            .replace("{operator}", operator)
            .replace("{passes}", passes.replace("{id}", "e.chunk_id"))
        )
        yield _REASON
        way = "(SELECT reason FROM scan)"
        if self.everything:
            yield self._dense(self._compared(_ALL, f"{_IN_COLLECTION} AND {way} <> 'many'"), _KEPT)
            return
        rest = f"(e.chunk_id IN ({matching(of_profile=self.of_profile)})) IS TRUE"  # hashed, not joined
        yield self._dense(
            self._compared(_FOUND, f"{_IN_FOUND} AND {way} = 'few'"),
            self._compared(_ALL, f"{_IN_COLLECTION} AND {way} NOT IN ('few', 'many') AND {rest}"),
            _KEPT,
        )

    def _compared(self, source: str, condition: str) -> str:
        compared = _COMPARED.replace("{source}", source).replace("{condition}", condition)
        return compared.replace("{operator}", OPERATORS[self.metric])

    def _dense(self, *legs: str) -> str:
        return _DENSE.replace("{legs}", " UNION ALL ".join(legs))
