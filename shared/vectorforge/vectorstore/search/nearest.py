"""Vector leg of a search's statement; ``statement`` explains its plans."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Final

from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.validation import MAX_HALFVEC_INDEX_DIMENSION, MAX_VECTOR_INDEX_DIMENSION

_LIMITED_DIMENSION: Final = 384

OPERATORS: Final = {
    DistanceMetric.COSINE: "<=>",
    DistanceMetric.INNER_PRODUCT: "<#>",
    DistanceMetric.L2: "<->",
}


@dataclass(frozen=True, slots=True)
class IndexKind:
    """Kind of a partition's HNSW index."""

    order: str
    """The indexed expression and its distance to the query: with ``{operator}`` and ``{dimension}``."""
    candidates_per_row: int
    """Candidates per requested row; their distances are recomputed at full precision."""
    least_candidates: int = 0
    """Minimum number of candidates; signs cannot separate the nearest few."""


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


def compared_at_most(limit: int, dimension: int) -> int:
    """Return the number of vectors that take as long as ``limit`` vectors of 384 dimensions."""
    return limit * _LIMITED_DIMENSION // max(dimension, _LIMITED_DIMENSION)


def space_kind(space: str) -> str:
    """Return the kind of a partition, from its name: "cosine_384_half" is of the kind "half"."""
    return next((part for part in reversed(space.split("_")) if part and part in INDEX_KINDS), "")


def index_kind(kind: str, dimension: int) -> IndexKind:
    """Return the kind of a partition's index.

    Args:
        kind: The suffix of its name after metric and dimension; "" for none.
        dimension: Dimension of its vectors; too long ones are indexed in half precision anyway.
    """
    if not kind and MAX_VECTOR_INDEX_DIMENSION < dimension <= MAX_HALFVEC_INDEX_DIMENSION:
        return _filled(_HALF, dimension)
    return _filled(INDEX_KINDS.get(kind, _FULL), dimension)


def _filled(kind: IndexKind, dimension: int) -> IndexKind:
    return replace(kind, order=kind.order.replace("{dimension}", str(dimension)))


# "few" where counting came to its end, if there was one.
_CHOSEN = """
chosen AS MATERIALIZED (
    SELECT CASE
        WHEN counted.matching <= %(limit)s
            AND (counting.up_to IS NULL OR counted.matching <= counting.up_to) THEN 'few'
        WHEN NOT facts.indexed THEN 'unindexed'
        WHEN counting.up_to IS NULL THEN 'sparse'
        ELSE 'many'
    END AS reason
    FROM facts CROSS JOIN counting CROSS JOIN counted
)
"""
_COMPARED_REASON = """
chosen AS MATERIALIZED (
    SELECT CASE WHEN matching <= %(limit)s THEN 'few' ELSE 'unindexed' END AS reason FROM counted
)
"""
# The index gave up before its batch was full: it passed over mostly others', and nearer ones may follow.
_BY_INDEX_REASON = """
chosen AS (
    SELECT CASE WHEN (SELECT count(*) FROM near) < %(ef_search)s THEN 'crowded' ELSE 'many' END AS reason
)
"""

_IN_COLLECTION = "e.tenant_id = %(tenant)s AND e.collection_id = %(collection)s AND e.space = %(space)s"
# The function is called once, before the scan begins.
_BY_INDEX = """
near AS MATERIALIZED (
    SELECT e.chunk_id, e.embedding FROM vectorforge.embeddings e
    WHERE {in_collection} AND {condition} AND {passes}
    ORDER BY {order}
    LIMIT %(candidates)s
),
by_index AS MATERIALIZED (
    SELECT near.chunk_id, near.embedding {operator} %(query)b::public.vector AS distance
    FROM near
    ORDER BY distance, near.chunk_id
    LIMIT %(depth)s
)
"""
_AIMED = "(SELECT vectorforge.aim_index_scan(%(ef_search)s, %(scan_tuples)s){if_many})"
_COMPARED = """
(
    SELECT e.chunk_id, e.embedding {operator} %(query)b::public.vector AS distance
    FROM {source}
    WHERE {condition}
    ORDER BY distance, e.chunk_id
    LIMIT %(depth)s
)
"""
_DENSE = "dense AS MATERIALIZED ({legs})"
_KEPT = "SELECT chunk_id, distance FROM by_index"

_ALL = "vectorforge.embeddings e"
_FOUND = "found JOIN vectorforge.embeddings e ON e.chunk_id = found.id"
# Without the collection, of which the chunks found are anyway: it would tempt the planner, while there are no
# statistics, to read the whole collection for each of them.
_IN_FOUND = "e.tenant_id = %(tenant)s AND e.space = %(space)s"


@dataclass(frozen=True, slots=True)
class Nearest:
    """``dense``: the ``depth`` nearest of what matches, with ``distance``; and ``chosen``, the way there."""

    metric: DistanceMetric
    kind: IndexKind
    everything: bool

    def compared(self) -> Iterator[str]:
        """Yield the comparison of all matches."""
        yield _COMPARED_REASON
        yield _DENSE.replace("{legs}", self._compared())

    def by_index(self, passes: str) -> Iterator[str]:
        """Yield the search of the index; ``passes`` is the condition on one candidate."""
        # Tested on what one batch of the scan gives: its later ones find less of the nearest.
        scan = self._by_index("TRUE", "").replace("LIMIT %(candidates)s", "LIMIT %(ef_search)s")
        near = passes.replace("{id}", "near.chunk_id")
        yield scan.replace("ORDER BY distance, near", f"WHERE {near} ORDER BY distance, near")
        yield _BY_INDEX_REASON
        yield _DENSE.replace("MATERIALIZED ", "").replace("{legs}", _KEPT)

    def chosen(self, passes: str) -> Iterator[str]:
        """Yield the search that fits the count."""
        yield _CHOSEN
        scan = self._by_index(passes, " FROM chosen WHERE reason = 'many'")
        # Others' vectors close together hold back the nearest: a batch has them, the first few rows may not.
        yield scan.replace("LIMIT %(candidates)s", "LIMIT %(ef_search)s") if self.everything else scan
        compared = self._compared("(SELECT reason FROM chosen) <> 'many'")
        yield _DENSE.replace("{legs}", f"{compared} UNION ALL {_KEPT}")

    def _by_index(self, passes: str, if_many: str) -> str:
        return (
            _BY_INDEX.replace("{in_collection}", _IN_COLLECTION)
            .replace("{condition}", _AIMED.replace("{if_many}", if_many))
            .replace("{order}", self.kind.order)
            .replace("{operator}", OPERATORS[self.metric])
            .replace("{passes}", passes.replace("{id}", "e.chunk_id"))
        )

    def _compared(self, *conditions: str) -> str:
        source, within = (_ALL, _IN_COLLECTION) if self.everything else (_FOUND, _IN_FOUND)
        compared = _COMPARED.replace("{source}", source)
        return compared.replace("{condition}", " AND ".join([within, *conditions])).replace(
            "{operator}", OPERATORS[self.metric]
        )
