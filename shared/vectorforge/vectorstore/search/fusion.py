"""The fusion of a search's legs: the best of their candidates."""

from typing import Final

from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.search.vectors import OPERATORS, SCORES
from vectorforge.vectorstore.search.words import CHUNK_OF, numbers_of

WORDS_SHARE: Final = 2 / 3
"""Similarity that the best match by words counts as. Cosines count as they are: where the embedding model
finds nothing near, as in a language that it does not know, words decide."""
DOCUMENT_SHARE: Final = 0.2
"""Weight of the document mean in a chunk's relevance."""

# Grouped by chunk, not joined: that is hashed, whatever sizes the planner assumes. A chunk near the
# query that is not among the best by words has its score by words all the same: all scores are read again in
# less time than the postings are searched for each chunk and word. IS TRUE keeps the planner from making a
# join of it, which it could only guess the size of: it is hashed.
_UNITED = """
united AS (
    SELECT chunk_id, document_id, max(distance) AS distance, max(lexical_score) AS lexical_score
    FROM (
        SELECT chunk_id, document_id, distance, NULL::float8 AS lexical_score FROM dense
        UNION ALL
        SELECT chunk_id, document_id, NULL, lexical_score FROM best_by_words
        UNION ALL
        SELECT t.chunk_id, t.document_id, NULL, of_dense.lexical_score
        FROM (
            SELECT number, lexical_score FROM scored WHERE (number IN ({numbers})) IS TRUE OFFSET 0
        ) AS of_dense
        {chunk}
    ) legs
    GROUP BY chunk_id, document_id
),
measured AS (
    SELECT united.chunk_id, united.document_id, coalesce(united.distance, there.distance) AS distance,
           coalesce(lexical_score, 0) AS lexical_score
    FROM united LEFT JOIN LATERAL (
        SELECT e.embedding {operator} %(query)b::public.vector AS distance FROM vectorforge.embeddings e
        WHERE united.distance IS NULL
            AND e.tenant_id = %(tenant)s AND e.chunk_id = united.chunk_id AND e.space = %(space)s
        LIMIT 1
    ) there ON true
    WHERE united.distance IS NOT NULL OR there.distance IS NOT NULL
),
compared AS (SELECT *, {score} AS score FROM measured),
fused AS (
    SELECT chunk_id, document_id, distance, lexical_score, score,
           %(dense_weight)s::float8 * {similarity}
           + (1 - %(dense_weight)s::float8) * {words_share}
           * coalesce(lexical_score / (SELECT max(lexical_score) FROM best_by_words), 0) AS own
    FROM compared
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
NEAREST_IDS: Final = "(SELECT chunk_id AS id FROM dense)"
_SIMILARITIES = {
    DistanceMetric.COSINE: "greatest(score, 0)",
    DistanceMetric.INNER_PRODUCT: "greatest(score, 0) / greatest(1, max(score) OVER ())",
    DistanceMetric.L2: "score / max(score) OVER ()",
}
"""Similarity of a chunk to the query, 0 to 1."""
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


def ranked(mode: SearchMode, metric: DistanceMetric) -> str:
    """Write ``nearest``: the ``top_k`` best of the legs' candidates."""
    if mode is SearchMode.DENSE:
        return _BY_VECTORS
    if mode is SearchMode.LEXICAL:
        return _BY_WORDS
    return _UNITED.format(
        chunk=CHUNK_OF.format(relation="of_dense"),
        numbers=numbers_of(NEAREST_IDS),
        operator=OPERATORS[metric],
        score=f"({SCORES[metric]})",
        similarity=_SIMILARITIES[metric],
        words_share=WORDS_SHARE,
        document_share=DOCUMENT_SHARE,
    )
