"""The SQL of a search: one statement, so that a search is one round trip and sees one state of the data.

``search_sql`` joins its parts: ``facts`` of the collection, the ``found`` and ``counted`` matches
(``matches``), the ``chosen`` plan, the legs ``dense`` and ``best_by_words`` with their fusion ``nearest``
(``vectors``, ``words``, ``fusion``), and the details of the best. There are several statements for one search
(``SearchPlan``); each returns the right rows, or reports that it did not, with the ``reason``:

- ``few``: all matches are compared. Where no index is used and many match, all vectors are compared instead,
  and the filter is tested on the nearest, one by one: no look-up by key for each match.
- ``many``: the HNSW index is searched. It may return too few rows, since it ends after ``scan_tuples``
  vectors; then the search is repeated with another plan.
- ``crowded``: the index ended among the vectors of others, so nearer ones may follow. Then likewise.
- ``sparse``: compared completely, because the collection is so small a part of the index that it
  would pass over more of the others' vectors than it may.
- ``unindexed``: compared completely, because there is no HNSW index.

An exact comparison orders by the bare column, which no index is made on, so the planner cannot answer it from
an HNSW index and lose rows. A branch that is not taken costs nothing: its condition is a subquery that is
evaluated once, before the branch
(https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/executor/nodeResult.c).
Embeddings exist for current chunks only; a chunk's vector is deleted when the chunk is retired.
"""

from collections.abc import Iterator
from functools import lru_cache, partial
from typing import Final, NamedTuple
from uuid import UUID

from vectorforge.types import SearchMode
from vectorforge.vectorstore.search.fusion import NEAREST_IDS, ranked
from vectorforge.vectorstore.search.matches import (
    NARROW_PART,
    SearchPlan,
    SearchShape,
    counted,
    match_everything,
    passes,
    passes_among_words,
    pruning,
)
from vectorforge.vectorstore.search.vectors import nearest_by_index, nearest_compared, nearest_passing
from vectorforge.vectorstore.search.words import lexical_ctes

MAX_SCAN_TUPLES: Final = 20_000
"""``hnsw.max_scan_tuples``: number of vectors after which an index scan ends."""
_LEAST_COMPARED = 500
_COMPARED_FACTOR = 4
"""Matches compared instead of searching an index; see ``_COUNTING``. At twice the root, 5,032 of 500,000
went to the index, which found 87 % of the nearest and took the database longer (49 ms of CPU, not 39); at
three times, 9,859 of a million, of which it found 92 % (50 ms, not 81)."""


class SearchConstants(NamedTuple):
    """Values that stand in the statement.

    The planner needs them to choose the index of one collection and to know how few rows are wanted. As
    parameters they would make it plan a prepared statement again at each execution, a fifth of a search's
    CPU time (docs/decisions/retrieval.md).
    """

    collection: UUID
    space: str
    """Partition of the vectors."""
    top_k: int
    limit: int
    """Matches that are compared instead of searching an index."""
    depth: int
    """Candidates of each leg."""
    candidates: int
    """Vectors whose distances are computed at full precision."""
    ef_search: int


def search_sql(
    shape: SearchShape, plan: SearchPlan, constants: SearchConstants, filter_sql: str = "TRUE"
) -> str:
    """Return the statement, in psycopg's ``%(name)s`` style.

    It takes ``tenant``, the filter's parameters and ``narrowing``; with vectors ``query, scan_tuples``, with
    words ``query_text, context_text``, with both ``dense_weight``, and for one profile ``profile``.

    Rows, best first: at least one if the collection exists, with its ``dimension, distance_metric,
    by_profile, chunk_count, space, data_version``, the ``indexed_rows`` of the index that it is searched with
    (maybe an estimate; NULL without one), how many match (``matching``, ``complete`` if that is all), the
    ``reason``, and how many vectors of the index were ``needed``, if known; the columns of a chunk are NULL
    where nothing was found.

    Args:
        shape: Shape of the search.
        plan: Plan for the nearest vectors; ``INDEX`` needs a vector.
        constants: Values that stand in it.
        filter_sql: The filter.
    """
    return _with_constants(shape, plan, constants).replace("{filter}", filter_sql)


@lru_cache(maxsize=1024)
def _with_constants(shape: SearchShape, plan: SearchPlan, constants: SearchConstants) -> str:
    statement = _template(shape, plan)
    for name, value in constants._asdict().items():
        literal = str(value) if isinstance(value, int) else "'{}'".format(str(value).replace("'", "''"))
        statement = statement.replace(f"%({name})s", literal.replace("%", "%%"))
    return statement


@lru_cache(maxsize=256)
def _template(shape: SearchShape, plan: SearchPlan) -> str:
    lexical = shape.mode is SearchMode.LEXICAL
    ctes = [*(_by_words(shape, plan) if lexical else _by_vectors(shape, plan)), _SCOPE]
    if plan is SearchPlan.INDEX and not match_everything(shape):
        ctes[-1] = _SCOPE_IF_ENOUGH
    if shape.mode is not SearchMode.DENSE:
        nearest = "" if lexical else NEAREST_IDS
        conditions = passes_among_words(shape, plan)
        ctes.append(lexical_ctes(*conditions, pruning=pruning(shape, plan), nearest=nearest))
    ctes.append(ranked(shape.mode, shape.metric))
    details = _WITH_DETAILS.format(
        candidates="0" if lexical else "(SELECT count(*) FROM dense)",
        needed=_NEEDED if plan is SearchPlan.INDEX else "NULL",
        vector=", v.embedding" if shape.with_vectors else "",
        vectors=_VECTORS if shape.with_vectors else "",
    )
    return " ".join(f"WITH {','.join(ctes)}{details}".split())  # blanks would count against the 16 KB


def _by_words(shape: SearchShape, plan: SearchPlan) -> Iterator[str]:
    yield _FACTS.format(how="", indexed_rows="NULL::real")
    up_to = None if plan is SearchPlan.COMPARED else _UP_TO_BY_WORDS
    yield from counted(shape, up_to)
    yield _BY_WORDS.format(complete="TRUE" if up_to is None else f"matching <= {up_to}")


def _by_vectors(shape: SearchShape, plan: SearchPlan) -> Iterator[str]:
    yield _FACTS.format(how="MATERIALIZED ", indexed_rows=_INDEXED_ROWS)
    everything = match_everything(shape)
    by_index = partial(nearest_by_index, shape.kind, shape.metric, shape.dimension)
    if plan is SearchPlan.INDEX:
        # Tested on what one batch of the scan gives: its later ones find less of the nearest.
        tested = f"WHERE {passes(shape, 'near.chunk_id')}"
        yield by_index(limit="ef_search", condition=tested)
        yield _CROWDED_OR_MANY
        yield f"dense AS ({_BY_INDEX_ROWS})"
        yield "counted AS MATERIALIZED (SELECT count(*) AS matching FROM by_index)"
    elif plan is SearchPlan.COMPARED:
        yield from counted(shape, None)
        yield _FEW_OR_UNINDEXED
        yield f"dense AS MATERIALIZED ({nearest_compared(shape.metric, everything=everything)})"
    else:
        yield _COUNTING.format(
            most=MAX_SCAN_TUPLES,
            up_to="%(limit)s" if everything else _UP_TO,
            up_to_unindexed="chunk_count" if everything else _UP_TO_UNINDEXED,
        )
        yield from counted(shape, "(SELECT up_to FROM counting)")
        yield _CHOSEN
        # Others' vectors close together hold back the nearest: a batch has them, the first few rows may not.
        yield by_index(
            limit="ef_search" if everything else "candidates",
            passes=passes(shape, "e.chunk_id"),
            if_chosen=" FROM chosen WHERE reason = 'many'",
        )
        complete = " AND (SELECT complete FROM chosen)"
        legs = [nearest_compared(shape.metric, everything=everything, condition=complete), _BY_INDEX_ROWS]
        if not everything:
            legs.insert(1, nearest_passing(shape.metric, passes=passes(shape, "ranked.chunk_id")))
        yield f"dense AS MATERIALIZED ({' UNION ALL '.join(legs)})"


_FACTS = """
facts AS {how}(
    SELECT dimension, distance_metric, by_profile, chunk_count, data_version, term_scope, term_count,
        coalesce(languages, ARRAY[language]) AS languages,
        coalesce(space, distance_metric || '_' || dimension) AS space,
        {indexed_rows} AS indexed_rows
    FROM vectorforge.collections WHERE tenant_id = %(tenant)s AND id = %(collection)s
)
"""
_INDEXED_ROWS = "vectorforge.indexed_rows(%(space)s, %(collection)s, chunk_count)"

# ``up_to``: how many matches are compared by key. In an index, if it need not pass over too many vectors of
# others (``indexed``), the rest is left to it. What it passes over grows as the matches get fewer: for
# ``depth`` rows ``depth * chunk_count / matching``. So both take equally long at a multiple of the root of
# ``depth * chunk_count``.
_COUNTING = """
counting AS MATERIALIZED (
    SELECT indexed, CASE WHEN indexed THEN {up_to} ELSE {up_to_unindexed} END AS up_to
    FROM (SELECT chunk_count, indexed_rows * %(candidates)s <= chunk_count * {most}.0 AS indexed FROM facts) _
)
"""
_UP_TO = (
    f"least(%(limit)s, greatest({_LEAST_COMPARED}, "
    f"{_COMPARED_FACTOR} * sqrt(%(depth)s::float8 * chunk_count)))::bigint"
)
# Where more match, the best by words are looked up, one by one, until enough match: both take equally long at
# the root.
_UP_TO_BY_WORDS = (
    f"(SELECT least(%(limit)s, greatest({_LEAST_COMPARED}, sqrt(%(depth)s::float8 * chunk_count)))::bigint "  # noqa: S608 -- our own constant
    "FROM facts)"
)
_BY_WORDS = "chosen AS MATERIALIZED (SELECT 'words' AS reason, {complete} AS complete FROM counted)"
_UP_TO_UNINDEXED = f"greatest({_LEAST_COMPARED}, chunk_count / {NARROW_PART})"
_CHOSEN = """
chosen AS MATERIALIZED (
    SELECT complete, CASE
        WHEN indexed AND NOT complete THEN 'many'
        WHEN CASE WHEN complete THEN matching ELSE chunk_count END <= %(limit)s THEN 'few'
        WHEN indexed_rows IS NULL THEN 'unindexed'
        ELSE 'sparse'
    END AS reason
    FROM facts CROSS JOIN counting CROSS JOIN (
        SELECT matching, matching <= (SELECT up_to FROM counting) AS complete FROM counted
    ) AS counted
)
"""
_FEW_OR_UNINDEXED = """
chosen AS MATERIALIZED (
    SELECT CASE WHEN matching <= %(limit)s THEN 'few' ELSE 'unindexed' END AS reason, TRUE AS complete
    FROM counted
)
"""
# The index gave up before its batch was full: it passed over mostly others', and nearer ones may follow.
_CROWDED_OR_MANY = """
chosen AS (
    SELECT CASE WHEN (SELECT count(*) FROM near) < %(ef_search)s THEN 'crowded' ELSE 'many' END AS reason,
        FALSE AS complete
)
"""
_NEEDED = "(SELECT count(*) FROM near WHERE distance <= (SELECT max(distance) FROM by_index))"
_BY_INDEX_ROWS = "SELECT chunk_id, document_id, distance FROM by_index"
_SCOPE = "scope AS (SELECT * FROM facts)"
# Without a row the words are not looked up; the search is repeated with another plan.
_SCOPE_IF_ENOUGH = (
    "scope AS (SELECT facts.* FROM facts CROSS JOIN counted WHERE counted.matching = %(depth)s)"
)

# LATERAL with LIMIT: a look-up by primary key for each row, also while the tables have no statistics yet and
# the planner takes every join for one of a few rows.
_WITH_DETAILS = """
SELECT facts.dimension, facts.distance_metric, facts.by_profile, facts.chunk_count, facts.space,
    facts.data_version, facts.indexed_rows, counted.matching, chosen.reason, chosen.complete,
    {candidates} AS candidates, {needed} AS needed,
    nearest.chunk_id, nearest.distance, nearest.lexical_score, nearest.relevance,
    c.document_id, c.ordinal, c.text, c.start_offset, c.end_offset, c.token_count, c.heading, c.metadata,
    c.locations, d.source, d.title{vector}
FROM facts
CROSS JOIN counted
CROSS JOIN chosen
LEFT JOIN nearest ON true
LEFT JOIN LATERAL (
    SELECT document_id, ordinal, text, start_offset, end_offset, token_count, heading, metadata, locations
    FROM vectorforge.chunks WHERE tenant_id = %(tenant)s AND id = nearest.chunk_id LIMIT 1
) c ON true
LEFT JOIN LATERAL (
    SELECT source, title FROM vectorforge.documents
    WHERE tenant_id = %(tenant)s AND id = c.document_id LIMIT 1
) d ON true {vectors}
ORDER BY nearest.relevance DESC, nearest.chunk_id
"""
_VECTORS = """
LEFT JOIN LATERAL (
    SELECT embedding FROM vectorforge.embeddings
    WHERE tenant_id = %(tenant)s AND chunk_id = nearest.chunk_id AND space = facts.space LIMIT 1
) v ON true
"""
