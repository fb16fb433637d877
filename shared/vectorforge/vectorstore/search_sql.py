"""The statements of a search.

``exact`` counts what matches, at most one more than its limit, and computes every distance if the limit was
not exceeded. It orders by the bare column, which no index is made on, so the planner cannot answer it from an
HNSW index and lose rows. ``through_index`` orders by the indexed expression.
Embeddings exist of current chunks only; a chunk's vector goes when the chunk is retired.
"""

from dataclasses import dataclass
from typing import Any

from vectorforge.types import DistanceMetric
from vectorforge.vectorstore.filter_ast import And, Filter
from vectorforge.vectorstore.sql_filters import FilterCompiler
from vectorforge.vectorstore.validation import MAX_HALFVEC_INDEX_DIMENSION, MAX_VECTOR_INDEX_DIMENSION

_OPERATORS = {
    DistanceMetric.COSINE: "<=>",
    DistanceMetric.INNER_PRODUCT: "<#>",
    DistanceMetric.L2: "<->",
}
_RESCORED = 4
"""Candidates a half-precision index gives for each row wanted; their distances are computed again in full."""

# LATERAL with LIMIT: a look-up by primary key for each row, also while the tables have no statistics yet and
# the planner takes every join for one of a few rows.
_DETAILS = """
LEFT JOIN LATERAL (
    SELECT ordinal, text, start_offset, end_offset, token_count, heading, metadata
    FROM vectorforge.chunks WHERE tenant_id = %(tenant)s AND id = nearest.chunk_id LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT source, title FROM vectorforge.documents
    WHERE tenant_id = %(tenant)s AND id = nearest.document_id LIMIT 1
) d ON true
"""
_COLUMNS = """
    nearest.chunk_id, nearest.document_id, nearest.distance, c.ordinal, c.text, c.start_offset, c.end_offset,
    c.token_count, c.heading, c.metadata, d.source, d.title
"""

_IN_COLLECTION = "e.tenant_id = %(tenant)s AND e.collection_id = %(collection)s AND e.space = %(space)s"

# The collection's own count, kept by a trigger: counting 10,001 vectors takes longer than the index does.
_COUNT_ALL = """
    counted AS MATERIALIZED (SELECT least(chunk_count, %(limit)s + 1) AS matching FROM scope)
"""

_COUNT_FILTERED = """
    found AS MATERIALIZED (
        SELECT f.id FROM vectorforge.chunks f
        WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s AND f.to_version IS NULL
            AND {filter}
        LIMIT %(limit)s + 1
    ),
    counted AS MATERIALIZED (SELECT count(*) AS matching FROM found)
"""

# An array, not a join: without statistics the planner would read the whole collection for each document.
_COUNT_PROFILE = """
    found AS MATERIALIZED (
        SELECT f.id FROM vectorforge.chunks f
        WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s
            AND f.document_id = ANY (ARRAY(
                SELECT p.document_id FROM vectorforge.profile_documents p
                WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s
                    AND p.profile_id = %(profile)s
            ))
            AND f.to_version IS NULL AND {filter}
        LIMIT %(limit)s + 1
    ),
    counted AS MATERIALIZED (SELECT count(*) AS matching FROM found)
"""

_EXACT = """
WITH scope AS (
        SELECT dimension, distance_metric, by_profile, chunk_count,
            coalesce(space, distance_metric || '_' || dimension) AS space
        FROM vectorforge.collections
        WHERE tenant_id = %(tenant)s AND id = %(collection)s
    ),
    {count}
SELECT scope.dimension, scope.distance_metric, scope.by_profile, scope.chunk_count, scope.space,
    counted.matching,
    {columns}
FROM scope
CROSS JOIN counted
LEFT JOIN LATERAL (
    SELECT e.chunk_id, e.document_id, e.embedding {operator} %(query)b::public.vector AS distance
    FROM {source}
    WHERE {scope} AND counted.matching <= %(limit)s
    ORDER BY distance, e.chunk_id
    LIMIT %(top_k)s
) nearest ON true
{details}
ORDER BY nearest.distance, nearest.chunk_id
"""

_ALL = "vectorforge.embeddings e"
_FOUND = "found JOIN vectorforge.embeddings e ON e.chunk_id = found.id"
# Without the collection, of which the chunks found are anyway: it would tempt the planner, while there are no
# statistics, to read the whole collection for each of them.
_IN_FOUND = "e.tenant_id = %(tenant)s AND e.space = %(space)s"

# The filter is a subquery for each candidate, not a join, so that the index's order is kept and the scan ends
# as soon as there are enough.
_THROUGH_INDEX = """
SELECT {columns}
FROM (
    SELECT candidates.chunk_id, candidates.document_id,
           candidates.embedding {operator} %(query)b::public.vector AS distance
    FROM (
        SELECT e.chunk_id, e.document_id, e.embedding
        FROM vectorforge.embeddings e
        WHERE {in_collection} AND {condition}
        ORDER BY e.embedding::{indexed} {operator} %(query)b::public.vector::{indexed}
        LIMIT %(candidates)s
    ) candidates
    ORDER BY distance, candidates.chunk_id
    LIMIT %(top_k)s
) nearest
{details}
ORDER BY nearest.distance, nearest.chunk_id
"""

_MATCHES = """
    (SELECT {filter} FROM vectorforge.chunks f WHERE f.tenant_id = %(tenant)s AND f.id = e.chunk_id)
"""
_OF_PROFILE = """
    (SELECT p.profile_id = %(profile)s FROM vectorforge.profile_documents p
     WHERE p.tenant_id = %(tenant)s AND p.document_id = e.document_id)
"""


@dataclass(frozen=True, slots=True)
class SearchStatements:
    """What to ask for one search, in psycopg's ``%(name)s`` style.

    Both take ``tenant, collection, space, query, top_k``, the ``filter_params`` and, for one profile,
    ``profile``; ``exact`` takes ``limit`` and ``through_index`` takes ``candidates``. Rows: nearest first,
    equal distances by chunk id.
    """

    exact: str
    """At least one row if the collection exists: its dimension, metric, ``by_profile``, ``chunk_count`` and
    ``space``, ``matching`` (at most limit + 1), and the nearest chunks where that is within the limit, or
    else NULLs."""
    through_index: str | None
    """The nearest chunks by the HNSW index; None where a dimension is beyond any index."""
    filter_params: dict[str, Any]
    candidates_per_row: int
    """How many candidates the index should give for each row wanted."""
    of_everything: bool
    """Whether every chunk of the collection matches, so that ``chunk_count`` is their number."""


def build(
    metric: DistanceMetric, dimension: int, condition: Filter, *, of_profile: bool = False
) -> SearchStatements:
    """Write the statements.

    Args:
        metric: The collection's.
        dimension: Length of the query's vector; checked, because a type's name cannot be a parameter.
        condition: The parsed filter.
        of_profile: Whether only the documents of one profile are searched.
    """
    operator = _OPERATORS[metric]
    compiler = FilterCompiler("f.metadata")
    unfiltered = condition == And(())
    filter_sql = compiler.compile(condition)
    everything = unfiltered and not of_profile
    count = _COUNT_PROFILE if of_profile else _COUNT_ALL if everything else _COUNT_FILTERED
    exact = _EXACT.format(
        count=count.format(filter=filter_sql),
        columns=_COLUMNS,
        operator=operator,
        source=_ALL if everything else _FOUND,
        scope=_IN_COLLECTION if everything else _IN_FOUND,
        details=_DETAILS,
    )
    conditions = [
        *([_OF_PROFILE] if of_profile else []),
        "TRUE" if unfiltered else _MATCHES.format(filter=filter_sql),
    ]
    halved = dimension > MAX_VECTOR_INDEX_DIMENSION
    through_index = _THROUGH_INDEX.format(
        columns=_COLUMNS,
        operator=operator,
        details=_DETAILS,
        in_collection=_IN_COLLECTION,
        condition=" AND ".join(conditions),
        indexed=f"public.{'halfvec' if halved else 'vector'}({dimension})",
    )
    return SearchStatements(
        exact=exact,
        through_index=through_index if dimension <= MAX_HALFVEC_INDEX_DIMENSION else None,
        filter_params=compiler.params,
        candidates_per_row=_RESCORED if halved else 1,
        of_everything=everything,
    )
