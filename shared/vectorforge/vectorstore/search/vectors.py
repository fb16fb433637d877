"""The dense leg of a search's statement: the nearest vectors, by an HNSW index or compared completely."""

from functools import lru_cache
from typing import Final, NamedTuple

from vectorforge.db.repositories.embedding_space_repo import MAX_HALF_DIMENSION
from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.validation import MAX_VECTOR_INDEX_DIMENSION

OPERATORS: Final = {
    DistanceMetric.COSINE: "<=>",
    DistanceMetric.INNER_PRODUCT: "<#>",
    DistanceMetric.L2: "<->",
}
SCORES: Final = {
    DistanceMetric.COSINE: "1 - distance",
    DistanceMetric.INNER_PRODUCT: "-distance",
    DistanceMetric.L2: "1 / (1 + distance)",
}
"""As ``search.score_of``."""

_DISTANCE: Final = "e.embedding {operator} %(query)b::public.vector"


class IndexKind(NamedTuple):
    """Kind of a partition's HNSW index; its SQL has ``{operator}`` and ``{dimension}``."""

    order: str
    """The indexed expression and its distance to the query."""
    distance: str = _DISTANCE
    """Distance of the stored vector, where the index compares something else."""
    candidates_per_row: int = 4
    """Candidates per requested row; their distances are recomputed at full precision."""
    least_candidates: int = 0
    """Minimum number of candidates; signs cannot separate the nearest few."""


_FULL = "e.embedding::public.vector({dimension}) {operator} %(query)b::public.vector({dimension})"
_INDEX_KINDS = {
    "": IndexKind(_FULL, _FULL, candidates_per_row=1),  # the same expression, which is computed once
    "half": IndexKind(
        "e.embedding::public.halfvec({dimension}) {operator} "
        "%(query)b::public.vector::public.halfvec({dimension})"
    ),
    "binary": IndexKind(
        "public.binary_quantize(e.embedding)::bit({dimension}) OPERATOR(public.<~>) "
        "public.binary_quantize(%(query)b::public.vector)::bit({dimension})",
        least_candidates=400,
    ),
}


@lru_cache(maxsize=256)
def index_kind(space: str, dimension: int) -> IndexKind:
    """Return the kind of a partition's index.

    Args:
        space: Name of the partition: "cosine_384_half" is indexed in half precision.
        dimension: Dimension of its vectors; too long ones are indexed in half precision anyway.
    """
    name = next((part for part in reversed(space.split("_")) if part and part in _INDEX_KINDS), "")
    if not name and MAX_VECTOR_INDEX_DIMENSION < dimension <= MAX_HALF_DIMENSION:
        name = "half"
    return _INDEX_KINDS[name]


_IN_COLLECTION = "e.tenant_id = %(tenant)s AND e.collection_id = %(collection)s AND e.space = %(space)s"
# The function is called once, before the scan begins. Rows of near have no vectors: to keep them and compute
# distances of 1,536 dimensions again takes a tenth of a dense search.
_BY_INDEX = """
near AS MATERIALIZED (
    SELECT e.chunk_id, e.document_id, {distance} AS distance FROM vectorforge.embeddings e
    WHERE {in_collection}
        AND (SELECT vectorforge.aim_index_scan(%(ef_search)s, %(scan_tuples)s){if_chosen}) AND {passes}
    ORDER BY {order}
    LIMIT %({limit})s
),
by_index AS MATERIALIZED (
    SELECT chunk_id, document_id, distance FROM near {condition}
    ORDER BY distance, chunk_id
    LIMIT %(depth)s
)
"""
_COMPARED = """
(
    SELECT e.chunk_id, e.document_id, {distance} AS distance
    FROM {source}
    WHERE {condition}
    ORDER BY distance, e.chunk_id {rows}
)
"""
# In two parts, as the words' ranking is: a filter that is not rare passes enough of the first.
_PASSING = """
(
    SELECT chunk_id, document_id, distance
    FROM ({first} UNION ALL {others}) AS ranked
    WHERE {passes}
    LIMIT %(depth)s
)
"""


def nearest_by_index(
    kind: IndexKind,
    metric: DistanceMetric,
    dimension: int,
    *,
    limit: str,
    passes: str = "TRUE",
    if_chosen: str = "",
    condition: str = "",
) -> str:
    """Write ``by_index``: the ``depth`` nearest chunks that an index scan returns.

    Its columns are ``chunk_id, document_id, distance``.

    Args:
        kind: Kind of the partition's index.
        metric: Metric of the collection.
        dimension: Length of its vectors.
        limit: Parameter with the number of rows of the scan.
        passes: Condition on each row of the scan, ``e``.
        if_chosen: FROM and WHERE without a row if another plan was chosen.
        condition: WHERE on the rows that the scan returned, ``near``.
    """
    order, distance = (
        sql.format(operator=OPERATORS[metric], dimension=dimension) for sql in (kind.order, kind.distance)
    )
    return _BY_INDEX.format(
        distance=distance,
        in_collection=_IN_COLLECTION,
        if_chosen=if_chosen,
        passes=passes,
        order=order,
        limit=limit,
        condition=condition,
    )


def nearest_compared(
    metric: DistanceMetric, *, everything: bool, condition: str = "", rows: str = "LIMIT %(depth)s"
) -> str:
    """Write the query for the nearest chunks, as many as ``rows``, of ``found`` or of all the collection."""
    if everything:
        source, within = "vectorforge.embeddings e", _IN_COLLECTION
    else:
        # Without the collection, of which the found chunks are anyway: it would tempt the planner, while
        # there are no statistics, to read the whole collection for each of them.
        source = "found JOIN vectorforge.embeddings e ON e.chunk_id = found.id"
        within = "e.tenant_id = %(tenant)s AND e.space = %(space)s"
    distance = _DISTANCE.format(operator=OPERATORS[metric])
    return _COMPARED.format(distance=distance, source=source, condition=within + condition, rows=rows)


def nearest_passing(metric: DistanceMetric, *, passes: str) -> str:
    """Write the query for the ``depth`` nearest chunks of the collection that pass; many of them do."""
    first, others = (
        nearest_compared(
            metric,
            everything=True,
            condition=" AND (SELECT NOT complete AND reason <> 'many' FROM chosen)",
            rows=f"{part} %(depth)s * 16",
        )
        for part in ("LIMIT", "OFFSET")
    )
    return _PASSING.format(first=first, others=others, passes=passes)
