"""Lexical leg of a search, BM25 of a query's words as common table expressions, and the ranking.

    score = sum of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length)), k1 = 1.5, b = 0.75
    idf = ln(1 + (N - df + 0.5) / (df + 0.5))

with f for how often a chunk has the word
(https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/search/similarities/BM25Similarity.html).
N and the mean length are kept by triggers with each write, and df is counted here, so the score is exact.
All three are those of the whole collection: a filter leaves out chunks, and changes no score.

The second half orders the matches and adds their details; ``statement`` joins the parts.
"""

from typing import Final

from vectorforge.types import DistanceMetric, SearchMode

K1: Final = 1.5
"""Saturation of repeated words."""
B: Final = 0.75
"""Length normalization, 0 (none) to 1 (proportional)."""

_NUMBER_BITS: Final = 23
"""A posting's bits below the chunk's number: 8 of the frequency less one, 15 of the chunk's length."""

# LATERAL with OFFSET: one scan of the index for each word, also without statistics. Its postings are
# read twice, to count them and to score them: to keep them in between takes twice as long as the second scan.
_TERMS = f"""
terms AS MATERIALIZED (
    SELECT scope.term_scope, read.term, counted.df,
           ln(1 + (greatest(scope.chunk_count - df, 0) + 0.5) / (df + 0.5)) * {K1 + 1} AS weight,
           {K1 * B} / greatest(scope.term_count::float8 / greatest(scope.chunk_count, 1), 1) AS per_word
    FROM scope
    CROSS JOIN LATERAL (
        SELECT DISTINCT vectorforge.term_hash(word.lexeme) AS term
        FROM unnest(to_tsvector(scope.language::regconfig, %(query_text)s)) AS word
        OFFSET 0
    ) AS read
    CROSS JOIN LATERAL (
        SELECT sum(postings)::float8 AS df FROM (
            SELECT count(*) AS postings FROM vectorforge.packed_postings AS p
            WHERE p.scope = scope.term_scope AND p.term = read.term
            UNION ALL
            SELECT coalesce(sum(cardinality(p.postings)), 0) FROM vectorforge.grouped_postings AS p
            WHERE p.scope = scope.term_scope AND p.term = read.term
        ) AS both_tables
    ) AS counted
),
"""  # noqa: S608 -- the only insertions are the constants above

_SCORE = f"""
sum(terms.weight * p.frequency / (p.frequency + {K1 * (1 - B):.6g} + terms.per_word * p.length))
"""
_UNPACKED = f"""
SELECT posting >> {_NUMBER_BITS} AS number, ((posting >> 15 & 255) + 1)::float8 AS frequency,
       (posting & 32767)::float8 AS length
FROM (
    SELECT posting FROM vectorforge.packed_postings
    WHERE scope = terms.term_scope AND term = terms.term
    UNION ALL
    SELECT unnest(postings) FROM vectorforge.grouped_postings
    WHERE scope = terms.term_scope AND term = terms.term
) AS both_tables
"""  # noqa: S608 -- the only insertions are the constants above

_SCORED = f"""
scored AS (
    SELECT p.number, {_SCORE} AS lexical_score
    FROM terms CROSS JOIN LATERAL ({_UNPACKED} OFFSET 0) AS p {{among}}
    GROUP BY p.number
)
"""  # noqa: S608 -- the only insertions are the constants above
_CHUNK_OF = """
(
    SELECT chunk_id FROM vectorforge.chunk_terms
    WHERE scope = (SELECT term_scope FROM scope) AND number = {number}
)
"""

# OFFSET keeps the condition out of the sort: it is tested on the best, one by one, until there are enough.
_BEST = """
best_by_words AS MATERIALIZED (
    SELECT {chunk_of_best} AS chunk_id, best.lexical_score
    FROM (
        SELECT ranked.number, ranked.lexical_score
        FROM (SELECT number, lexical_score FROM scored ORDER BY lexical_score DESC, number OFFSET 0) AS ranked
        WHERE {condition}
        LIMIT %(lexical_limit)s
    ) AS best
)
"""

# IS TRUE keeps the planner from making a join of it, which it could only guess the size of: it is hashed. All
# scores are read again in less time than the postings are searched for each chunk and word.
_SCORES_OF = """
SELECT {chunk_of} AS chunk_id, own.lexical_score
FROM (SELECT number, lexical_score FROM scored WHERE (number IN ({numbers})) IS TRUE OFFSET 0) AS own
"""


def lexical_ctes(*, among: str | None = None, condition: str = "TRUE") -> str:
    """Write the expressions, without WITH, to stand behind one named ``scope``.

    ``scope`` has the collection's ``term_scope, language, chunk_count, term_count`` in one row. The statement
    takes ``query_text`` and ``lexical_limit``, and with ``among`` the ``tenant``.

    Args:
        among: A relation (of at most some ten thousand rows) whose ``id`` are the only chunks wanted. It is
            joined before scores are summed.
        condition: An expression over ``ranked.number`` or, which takes a look-up each time,
            ``ranked.chunk_id`` that tells whether a chunk is wanted, for when they are too many to join. It
            is tested from the best chunk downwards until there are enough.

    Returns:
        SQL with ``best_by_words``, whose rows ``chunk_id, lexical_score`` (float8, above 0) are the best
        chunks with any of the words (within ``among``) that meet the condition, equal ones in the order in
        which they were stored. Before it ``terms``: the words' hashes and ``df``; and ``scored``, every
        chunk with any of the words, by its number.
    """
    join = "" if among is None else f"JOIN ({numbers_of(among)}) AS wanted ON wanted.number = p.number"
    chunk_of_best, chunk_of_ranked = (
        _CHUNK_OF.format(number=f"{name}.number") for name in ("best", "ranked")
    )
    condition = condition.replace("ranked.chunk_id", chunk_of_ranked)
    best = _BEST.format(condition=condition, chunk_of_best=chunk_of_best)
    return f"{_TERMS}{_SCORED.format(among=join)},{best}"


def numbers_of(relation: str) -> str:
    """Write a query for the ``number`` of each chunk, by key, of a relation of ``id``; takes ``tenant``."""
    return f"""
        SELECT t.number FROM {relation} AS wanted CROSS JOIN LATERAL (
            SELECT number FROM vectorforge.chunk_terms WHERE tenant_id = %(tenant)s AND chunk_id = wanted.id
            OFFSET 0
        ) AS t
    """  # noqa: S608 -- only our own names of relations


def scores_of(relation: str) -> str:
    """Write a query for the ``chunk_id, lexical_score`` of single chunks, to stand behind ``lexical_ctes``.

    Args:
        relation: Relation of some hundred rows ``chunk_id``; those without the words are left out. The
            statement takes ``tenant``.
    """
    numbers = numbers_of(f"(SELECT chunk_id AS id FROM {relation})")  # noqa: S608 -- only our own names
    return _SCORES_OF.format(chunk_of=_CHUNK_OF.format(number="own.number"), numbers=numbers)


SHARPNESS: Final = 1.5
"""Exponent of the vector score over the best one: cosines of irrelevant chunks are high, too."""
DOCUMENT_SHARE: Final = 0.2
"""Weight of the document mean in a chunk's relevance."""

_SCORES: Final = {
    DistanceMetric.COSINE: "1 - distance",
    DistanceMetric.INNER_PRODUCT: "-distance",
    DistanceMetric.L2: "1 / (1 + distance)",
}
"""As ``validation.score_of``."""

# Grouped by chunk, not joined: that is hashed, whatever the planner believes of the sizes. A chunk near the
# query that is not among the best by words has its score by words all the same.
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
    """Return the rows: ``nearest`` with the columns of chunk and document, and what the search was."""
    candidates = "0" if mode is SearchMode.LEXICAL else "(SELECT count(*) FROM dense)"
    return _WITH_DETAILS.replace("{candidates}", candidates)
