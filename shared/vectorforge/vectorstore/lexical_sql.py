"""The lexical leg of a search: BM25 of a question's words, as common table expressions.

    score = sum of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length)), k1 = 1.2, b = 0.75
    idf = ln(1 + (N - df + 0.5) / (df + 0.5))

with f for how often a passage has the word
(https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/search/similarities/BM25Similarity.html).
N and the mean length are kept by triggers with each write, and df is counted here, so the score is exact.
All three are those of the whole collection: a filter leaves out passages, and changes no score.
"""

from typing import Final

K1: Final = 1.2
"""How soon a word's further occurrences stop to count."""
B: Final = 0.75
"""How much a long passage's occurrences count less, 0 (not at all) to 1 (in proportion)."""

# LATERAL with OFFSET: one scan of the index for each word, also while there are no statistics.
_MATCHED = """
terms AS MATERIALIZED (
    SELECT DISTINCT scope.term_scope, vectorforge.term_hash(word.lexeme) AS term
    FROM scope CROSS JOIN LATERAL unnest(to_tsvector(scope.language::regconfig, %(query_text)s)) AS word
),
matched AS MATERIALIZED (
    SELECT terms.term, p.chunk_id, p.frequency, p.length
    FROM terms CROSS JOIN LATERAL (
        SELECT chunk_id, frequency, length FROM vectorforge.postings
        WHERE scope = terms.term_scope AND term = terms.term
        OFFSET 0
    ) AS p
),
frequencies AS MATERIALIZED (
    SELECT term, ln(1 + (greatest(scope.chunk_count - df, 0) + 0.5) / (df + 0.5)) AS idf,
           greatest(scope.term_count::float8 / greatest(scope.chunk_count, 1), 1) AS mean_length
    FROM (SELECT term, count(*)::float8 AS df FROM matched GROUP BY term) AS counted CROSS JOIN scope
),
"""

_SCORED = f"""
scored AS MATERIALIZED (
    SELECT matched.chunk_id, sum(
        idf * frequency * {K1 + 1} / (frequency + {K1} * ({1 - B} + {B} * length / mean_length))
    ) AS lexical_score
    FROM matched JOIN frequencies USING (term) {{among}}
    GROUP BY matched.chunk_id
)
"""  # noqa: S608 -- the only insertions are the constants above

# OFFSET keeps the condition out of the sort: it is tested on the best, one by one, until there are enough.
_BEST = """
best_by_words AS MATERIALIZED (
    SELECT ranked.chunk_id, ranked.lexical_score
    FROM (SELECT * FROM scored ORDER BY lexical_score DESC, chunk_id OFFSET 0) AS ranked
    WHERE {condition}
    LIMIT %(lexical_limit)s
)
"""


def lexical_ctes(*, among: str | None = None, condition: str = "TRUE") -> str:
    """Write the expressions, without WITH, to stand behind one named ``scope``.

    ``scope`` has the collection's ``term_scope, language, chunk_count, term_count`` in one row. The statement
    takes ``query_text`` and ``lexical_limit``.

    Args:
        among: A relation (of at most some ten thousand rows) whose ``id`` are the only passages wanted. It is
            joined before scores are summed.
        condition: An expression over ``ranked.chunk_id`` that tells whether a passage is wanted, for when
            they are too many to join. It is tested from the best passage downwards until there are enough.

    Returns:
        SQL that ends with two relations of ``chunk_id, lexical_score`` (float8, above 0): ``scored``, every
        passage with any of the words (within ``among``), and ``best_by_words``, the best of them that meet
        the condition, equal ones by id.
    """
    join = "" if among is None else f"JOIN {among} AS wanted ON wanted.id = matched.chunk_id"
    return f"{_MATCHED}{_SCORED.format(among=join)},{_BEST.format(condition=condition)}"
