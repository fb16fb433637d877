"""The lexical leg of a search's statement: BM25 of the query's words.

    score = sum of idf * f * (k1 + 1) / (f + k1 * (1 - b + b * length / mean length)), k1 = 1.5, b = 0.75
    idf = ln(1 + (N - df + 0.5) / (df + 0.5))

with f for how often a chunk has the word
(https://lucene.apache.org/core/10_0_0/core/org/apache/lucene/search/similarities/BM25Similarity.html).
N and the mean length are maintained by triggers with each write, and df is counted here, so the score is
exact. All three are those of the whole collection: a filter excludes chunks and changes no score.
"""

from typing import Final, NamedTuple

K1: Final = 1.5
"""Saturation of repeated words."""
B: Final = 0.75
"""Length normalization, 0 (none) to 1 (proportional)."""
CONTEXT_SHARE: Final = 0.3
"""Weight of a word that only the context has, as a share of its weight in the query. Of .2 to 1, follow-ups
about the project's own documentation find the most with .3; above, changes of topic find less."""

PRUNED_FROM: Final = 50_000
"""Chunks of a collection above which the rarer words choose the candidates; see ``Pruning``."""
PRUNED_FROM_IF_FILTERED: Final = 200_000
"""The same behind a filter, which needs more candidates; among 100,000 it would take longer."""


class Pruning(NamedTuple):
    """Bounds on what the rarer words of a query find, before all words score it."""

    postings: int = 20_000
    """Maximum of the words that choose the candidates, the rarest first; they have at least four times as
    many as rows are wanted, if there are."""
    candidates: int = 2_000
    """Chunks that all words score; at least four times as many as rows are wanted."""


_NUMBER_BITS: Final = 23
"""A posting's bits below the chunk's number: 8 of the frequency less one, 15 of the chunk's length."""

_TERMS = f"""
terms AS MATERIALIZED (
    SELECT ln(1 + (greatest(scope.chunk_count - df, 0) + 0.5) / (df + 0.5)) * {K1 + 1}
               * CASE WHEN term.in_query THEN 1 ELSE {CONTEXT_SHARE} END AS weight,
           {K1 * B} / greatest(scope.term_count::float8 / greatest(scope.chunk_count, 1), 1) AS per_word,
           term.postings, df
    FROM scope
    CROSS JOIN LATERAL vectorforge.query_terms(
        scope.term_scope, scope.languages, %(query_text)s::text, %(context_text)s::text
    ) AS term
    CROSS JOIN LATERAL (SELECT cardinality(term.postings)::float8 AS df) AS counted
),
"""  # noqa: S608 -- the only insertions are the constants above
# unnest() among the results: behind FROM, it would store a word's postings before the first one is read.
_SCORED = f"""
    SELECT posting >> {_NUMBER_BITS} AS number,
           sum(weight / (
               1 + ({K1 * (1 - B):.6g} + per_word * (posting & 32767)) / ((posting >> 15 & 255) + 1)
           )) AS lexical_score
    FROM (SELECT weight, per_word, unnest(postings) AS posting FROM {{terms}}) AS posted
    {{condition}}
    GROUP BY 1
"""  # noqa: S608 -- the only insertions are the constants above and our own names
_SCORED_WHOLE = f"scored AS ({_SCORED.format(terms='terms', condition='')}),"
# As in MaxScore (https://doi.org/10.1016/0306-4573(95)00020-H), frequent words choose no candidates. A chunk
# that only they would have brought among the best may be missing: see docs/decisions/retrieval.md.
_CHOSEN_BY_RARE = f"""
rare AS (
    SELECT weight, per_word, postings FROM (
        SELECT *, sum(df) OVER (ORDER BY df, weight ROWS UNBOUNDED PRECEDING) AS up_to_it FROM terms
    ) AS ordered
    WHERE up_to_it <= {{postings}} OR up_to_it - df < 4 * %(depth)s
),
kept AS MATERIALIZED (
    SELECT number FROM (
        SELECT number FROM ({_SCORED.format(terms="rare", condition="")}) AS by_rare
        ORDER BY lexical_score DESC, number LIMIT greatest({{candidates}}, 4 * %(depth)s)
    ) AS best
    {{nearest}}
),
scored AS ({
    _SCORED.format(
        terms="terms", condition=f"WHERE (posting >> {_NUMBER_BITS} IN (SELECT number FROM kept)) IS TRUE"
    )
}),
"""  # noqa: S608 -- as above
CHUNK_OF: Final = """
CROSS JOIN LATERAL (
    SELECT chunk_id, document_id FROM vectorforge.chunk_terms
    WHERE scope = (SELECT term_scope FROM scope) AND number = {relation}.number
    LIMIT 1
) AS t
"""
"""Join of a relation of chunks' numbers with ``t``, their ``chunk_id, document_id``: one look-up for each."""

_SORTED = "(SELECT number, lexical_score FROM scored ORDER BY lexical_score DESC, number {limit})"
# With conditions, tested on the best, one by one, until there are enough: the first few are picked out in one
# pass, the others sorted only where these do not suffice (PostgreSQL runs the parts of UNION ALL in turn).
# That is a twentieth of a hybrid search of 10,000 chunks, and more where more chunks have the words.
_RANKED = " UNION ALL ".join(
    (_SORTED.format(limit="LIMIT %(depth)s * 4"), _SORTED.format(limit="OFFSET %(depth)s * 4"))
)
# The candidates first. The others are scored only where too few of these meet the conditions.
_RANKED_IN_PARTS = f"""
(SELECT number, lexical_score FROM scored ORDER BY lexical_score DESC, number)
UNION ALL
(
    SELECT number, lexical_score FROM ({_SCORED.format(terms="terms", condition="")}) AS others
    WHERE (number IN (SELECT number FROM kept)) IS NOT TRUE ORDER BY lexical_score DESC, number
)
"""  # noqa: S608 -- as above
_BEST = """
best_by_words AS MATERIALIZED (
    SELECT t.chunk_id, t.document_id, ranked.lexical_score
    FROM ({ranked}) AS ranked
    {chunk}
    WHERE {number_passes} AND {chunk_passes}
    LIMIT %(depth)s
)
"""


def lexical_ctes(
    number_passes: str = "TRUE",
    chunk_passes: str = "TRUE",
    *,
    pruning: Pruning | None = None,
    nearest: str = "",
) -> str:
    """Write the lexical leg, without WITH, to stand behind an expression ``scope``.

    ``scope`` has the collection's ``term_scope, languages, chunk_count, term_count`` in one row. The
    statement takes ``query_text``, ``context_text`` and ``depth``.

    Args:
        number_passes: Condition over ``ranked.number``, tested before the chunk is looked up.
        chunk_passes: Condition over ``t.chunk_id``. Both are tested from the best chunk downwards until there
            are enough.
        pruning: Let the rarer words choose the candidates, within these bounds; None scores every chunk.
        nearest: Relation of the ``id`` of further candidates; only with ``pruning``.

    Returns:
        SQL with ``best_by_words``, whose rows ``chunk_id, document_id, lexical_score`` (float8, above 0) are
        the best chunks with any of the words that meet the conditions, equal ones in the order in which they
        were stored. Before it ``terms``: a row with the ``postings`` of each word; and ``scored``, every
        chunk with any of the words, by its number; with ``pruning``, the candidates.
    """
    everything = number_passes == chunk_passes == "TRUE"
    if pruning is not None:
        ranked, others = _RANKED_IN_PARTS, f"UNION {numbers_of(nearest)}" if nearest else ""
        scored = _CHOSEN_BY_RARE.format(**pruning._asdict(), nearest=others)
    else:
        ranked, scored = _SORTED.format(limit="LIMIT %(depth)s") if everything else _RANKED, _SCORED_WHOLE
    best = _BEST.format(
        ranked=ranked,
        chunk=CHUNK_OF.format(relation="ranked"),
        number_passes=number_passes,
        chunk_passes=chunk_passes,
    )
    return _TERMS + scored + best


def numbers_of(relation: str) -> str:
    """Write a query for the ``number`` of each chunk, by key, of a relation of ``id``; takes ``tenant``."""
    return f"""
        SELECT t.number FROM {relation} AS wanted CROSS JOIN LATERAL (
            SELECT number FROM vectorforge.chunk_terms WHERE tenant_id = %(tenant)s AND chunk_id = wanted.id
            OFFSET 0
        ) AS t
    """  # noqa: S608 -- only our own names of relations
