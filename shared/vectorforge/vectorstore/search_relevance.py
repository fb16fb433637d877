"""The parts of a search's statement that order and show what matches; ``search_sql`` puts them together."""

from typing import Final

from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.lexical_sql import scores_of

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
        SELECT chunk_id, NULL, lexical_score FROM ({lexical_scores}) of_dense
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
    written = written.replace("{lexical_scores}", scores_of("dense"))
    constants = {"{sharpness}": SHARPNESS, "{document_share}": DOCUMENT_SHARE}
    for name, constant in constants.items():
        written = written.replace(name, str(constant))
    return written


# LATERAL with LIMIT: a look-up by primary key for each row, also while the tables have no statistics yet and
# the planner takes every join for one of a few rows.
_WITH_DETAILS = """
SELECT facts.dimension, facts.distance_metric, facts.by_profile, facts.chunk_count, facts.space,
    facts.indexed, facts.partition_rows, counted.matching, chosen.reason, {candidates} AS candidates,
    nearest.chunk_id, nearest.distance, nearest.lexical_score, nearest.relevance,
    c.document_id, c.ordinal, c.text, c.start_offset, c.end_offset, c.token_count, c.heading, c.metadata,
    d.source, d.title
FROM facts
CROSS JOIN counted
CROSS JOIN chosen
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


def with_details(mode: SearchMode) -> str:
    """The rows: ``nearest`` with the columns of chunk and document, and what the search was."""
    candidates = "0" if mode is SearchMode.LEXICAL else "(SELECT count(*) FROM dense)"
    return _WITH_DETAILS.replace("{candidates}", candidates)
