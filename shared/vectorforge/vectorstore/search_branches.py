"""The parts of a search's statement; ``search_sql`` puts them together and says what each is for."""

from collections.abc import Iterator
from typing import Final

from vectorforge.types import DistanceMetric, SearchMode

SHARPNESS: Final = 1.5
"""Exponent of the score by vector over the best one: cosines of what is beside the point are high, too."""
DOCUMENT_SHARE: Final = 0.2
"""Of a passage's relevance that is the mean of its document's candidates."""

_SCORES: Final = {
    DistanceMetric.COSINE: "1 - distance",
    DistanceMetric.INNER_PRODUCT: "-distance",
    DistanceMetric.L2: "1 / (1 + distance)",
}
"""As ``validation.score_of``."""

SCOPE: Final = """
scope AS (
    SELECT dimension, distance_metric, by_profile, chunk_count, term_scope, language, term_count,
        coalesce(space, distance_metric || '_' || dimension) AS space
    FROM vectorforge.collections WHERE tenant_id = %(tenant)s AND id = %(collection)s
)
"""

# The collection's own count, kept by a trigger: counting 10,001 vectors takes longer than the index does.
_COUNT_ALL = "counted AS MATERIALIZED (SELECT least(chunk_count, %(limit)s + 1) AS matching FROM scope)"
_COUNT_FOUND = "counted AS MATERIALIZED (SELECT count(*) AS matching FROM found)"

# An array, not a join: without statistics the planner would read the whole collection for each document.
_OF_DOCUMENTS = """
AND {row}.document_id = ANY (ARRAY(
    SELECT p.document_id FROM vectorforge.profile_documents p
    WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s AND p.profile_id = %(profile)s
))
"""
_MATCHING = """
SELECT f.id FROM vectorforge.chunks f
WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s {of_profile}
    AND f.to_version IS NULL AND {filter}
"""


def matching(*, of_profile: bool) -> str:
    """The ids of the chunks that match, as a query."""
    return _MATCHING.replace("{of_profile}", _OF_DOCUMENTS.replace("{row}", "f") if of_profile else "")


def count(*, everything: bool, of_profile: bool) -> Iterator[str]:
    """``counted``: how many chunks match, at most limit + 1; ``found``: their ids, unless all match."""
    if everything:
        yield _COUNT_ALL
        return
    yield f"found AS MATERIALIZED ({matching(of_profile=of_profile)} LIMIT %(limit)s + 1)"
    yield _COUNT_FOUND


def passes(*, filtered: bool, of_profile: bool) -> str:
    """Whether the chunk ``{id}`` passes, as a look-up by its key.

    A subquery for each candidate, not a join, so that the order of an index or a ranking is kept and the scan
    ends as soon as there are enough.
    """
    conditions = []
    if filtered:
        conditions.append("f.to_version IS NULL AND {filter}")
    if of_profile:
        conditions.append(
            "EXISTS (SELECT FROM vectorforge.profile_documents p WHERE p.tenant_id = %(tenant)s "
            "AND p.document_id = f.document_id AND p.profile_id = %(profile)s)"
        )
    if not conditions:
        return "TRUE"
    return (
        f"(SELECT {' AND '.join(conditions)} FROM vectorforge.chunks f "  # noqa: S608 -- only our own parts
        "WHERE f.tenant_id = %(tenant)s AND f.id = {id})"
    )


BY_WORDS_ONLY: Final = "scan AS (SELECT 'words' AS reason)"


def wanted_words(passes: str, *, everything: bool, whole: bool) -> str:
    """Whether a passage with words of the question, ``ranked.chunk_id``, matches."""
    if everything:
        return "TRUE"
    # IS TRUE keeps the planner from making a join of it, which it could only guess the size of: it is hashed.
    found = "(ranked.chunk_id IN (SELECT id FROM found)) IS TRUE"
    if whole:
        return found
    few = "(SELECT matching FROM counted) <= %(limit)s"
    return f"CASE WHEN {few} THEN {found} ELSE {passes.replace('{id}', 'ranked.chunk_id')} END"


# Grouped by chunk, not joined: that is hashed, whatever the planner believes of the sizes. A chunk near the
# question that is not among the best by words has its score by words all the same.
_UNITED = """
united AS (
    SELECT chunk_id, max(distance) AS distance, max(lexical_score) AS lexical_score
    FROM (
        SELECT chunk_id, distance, NULL::float8 AS lexical_score FROM dense
        UNION ALL
        SELECT chunk_id, NULL, lexical_score FROM best_by_words
        UNION ALL
        SELECT chunk_id, NULL, lexical_score FROM scored
        WHERE (scored.chunk_id IN (SELECT chunk_id FROM dense)) IS TRUE
    ) legs
    GROUP BY chunk_id
),
measured AS (
    SELECT united.chunk_id, coalesce(united.distance, there.distance) AS distance,
           coalesce(lexical_score, 0) AS lexical_score
    FROM united LEFT JOIN LATERAL (
        SELECT e.embedding {operator} %(query)b::public.vector AS distance FROM vectorforge.embeddings e
        WHERE united.distance IS NULL
            AND e.tenant_id = %(tenant)s AND e.chunk_id = united.chunk_id AND e.space = %(space)s
        LIMIT 1
    ) there ON true
    WHERE united.distance IS NOT NULL OR there.distance IS NOT NULL
),
compared AS (
    SELECT *, {score} AS score, least(0, min({score}) OVER ()) AS lowest, max({score}) OVER () AS highest
    FROM measured
),
fused AS (
    SELECT compared.chunk_id, distance, lexical_score, score, c.document_id,
           %(dense_weight)s::float8
           * coalesce(power((score - lowest) / nullif(highest - lowest, 0), {sharpness}), 0)
           + (1 - %(dense_weight)s::float8)
           * coalesce(lexical_score / (SELECT max(lexical_score) FROM best_by_words), 0) AS own
    FROM compared
    JOIN vectorforge.chunks c ON c.tenant_id = %(tenant)s AND c.id = compared.chunk_id
),
nearest AS (
    SELECT chunk_id, distance, lexical_score,
           (1 - {document_share}) * own + {document_share} * avg(own) OVER (PARTITION BY document_id)
           AS relevance
    FROM fused
    ORDER BY relevance DESC, score DESC, chunk_id
    LIMIT %(top_k)s
)
"""
_BY_VECTORS = """
nearest AS (
    SELECT chunk_id, distance, NULL::float8 AS lexical_score, -distance AS relevance FROM dense
    ORDER BY distance, chunk_id LIMIT %(top_k)s
)
"""
_BY_WORDS = """
nearest AS (
    SELECT chunk_id, NULL::float8 AS distance, lexical_score,
           lexical_score / (SELECT max(lexical_score) FROM best_by_words) AS relevance
    FROM best_by_words
    ORDER BY relevance DESC, chunk_id LIMIT %(top_k)s
)
"""


def ranked(mode: SearchMode, metric: DistanceMetric, operator: str) -> str:
    """``nearest``: the ``top_k`` best of the legs' candidates."""
    if mode is SearchMode.DENSE:
        return _BY_VECTORS
    if mode is SearchMode.LEXICAL:
        return _BY_WORDS
    written = _UNITED.replace("{operator}", operator).replace("{score}", f"({_SCORES[metric]})")
    constants = {"{sharpness}": SHARPNESS, "{document_share}": DOCUMENT_SHARE}
    for name, constant in constants.items():
        written = written.replace(name, str(constant))
    return written


# LATERAL with LIMIT: a look-up by primary key for each row, also while the tables have no statistics yet and
# the planner takes every join for one of a few rows.
WITH_DETAILS: Final = """
SELECT scope.dimension, scope.distance_metric, scope.by_profile, scope.chunk_count, scope.space,
    counted.matching,
    scan.reason, nearest.chunk_id, nearest.distance, nearest.lexical_score, nearest.relevance,
    c.document_id, c.ordinal, c.text, c.start_offset, c.end_offset, c.token_count, c.heading, c.metadata,
    d.source, d.title
FROM scope
CROSS JOIN counted
CROSS JOIN scan
LEFT JOIN nearest ON true
LEFT JOIN LATERAL (
    SELECT document_id, ordinal, text, start_offset, end_offset, token_count, heading, metadata
    FROM vectorforge.chunks WHERE tenant_id = %(tenant)s AND id = nearest.chunk_id LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT source, title FROM vectorforge.documents
    WHERE tenant_id = %(tenant)s AND id = c.document_id LIMIT 1
) d ON true
ORDER BY nearest.relevance DESC, nearest.chunk_id
"""
