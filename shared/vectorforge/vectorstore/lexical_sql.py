"""The lexical leg of a search: BM25 of a question's words, as common table expressions.

    score = sum of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length)), k1 = 1.5, b = 0.75
    idf = ln(1 + (N - df + 0.5) / (df + 0.5))

with f for how often a passage has the word
(https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/search/similarities/BM25Similarity.html).
N and the mean length are kept by triggers with each write, and df is counted here, so the score is exact.
All three are those of the whole collection: a filter leaves out passages, and changes no score.
"""

from typing import Final

K1: Final = 1.5
"""How soon a word's further occurrences stop to count."""
B: Final = 0.75
"""How much a long passage's occurrences count less, 0 (not at all) to 1 (in proportion)."""

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
        SELECT count(*)::float8 AS df FROM vectorforge.postings AS p
        WHERE p.scope = scope.term_scope AND p.term = read.term
    ) AS counted
),
"""  # noqa: S608 -- the only insertions are the constants above

_SCORED = f"""
scored AS (
    SELECT p.chunk_id, sum(
        terms.weight * p.frequency / (p.frequency + {K1 * (1 - B):.6g} + terms.per_word * p.length)
    ) AS lexical_score
    FROM terms CROSS JOIN LATERAL (
        SELECT chunk_id, frequency::float8 AS frequency, length::float8 AS length FROM vectorforge.postings
        WHERE scope = terms.term_scope AND term = terms.term
        OFFSET 0
    ) AS p {{among}}
    GROUP BY p.chunk_id
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
        SQL with two relations of ``chunk_id, lexical_score`` (float8, above 0): ``scored``, every passage
        with any of the words (within ``among``), and ``best_by_words``, the best of them that meet the
        condition, equal ones by id. Before them ``terms``: the words' hashes and ``df``.
    """
    join = "" if among is None else f"JOIN {among} AS wanted ON wanted.id = p.chunk_id"
    return f"{_TERMS}{_SCORED.format(among=join)},{_BEST.format(condition=condition)}"
