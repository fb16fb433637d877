"""Parts of a search's statement that define the matches; ``statement`` joins them.

``lexical`` has those that order them; ``statement`` explains each.
"""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final

from vectorforge.vectorstore.search.lexical import numbers_of


class SearchPlan(StrEnum):
    """Plan of a statement for the nearest vectors."""

    CHOSEN = "chosen"
    """Count the matches, check for an index, and choose."""
    COMPARED = "compared"
    """Compare all matches: there is no index, or it must not be used."""
    INDEX = "index"
    """Search the index, without counting the matches."""


MAX_SCAN_TUPLES: Final = 20_000
"""``hnsw.max_scan_tuples``: number of vectors after which an index scan ends."""
LEAST_COMPARED: Final = 500
COMPARED_FACTOR: Final = 3
"""Matches compared instead of searching an index; see ``counting``. At twice the root, 5,032 of 500,000
went to the index, which found 87 % of the nearest and took the database longer (49 ms of CPU, not 39)."""
_LOOSENESS = 2
"""Candidates that the index over metadata may give per requested match: a filter drops some."""
_NARROW_PART = 8
"""Divisor of a collection's size: below that many matches the index over metadata beats a scan."""
_MOST_NUMBERED: Final = 3_000
"""Matching chunks up to which each is looked up by key to compare the ranking with. With more, fewer of the
ranking are looked up before there are enough: of 100,000 chunks, 100 that match among 3,300."""

FACTS: Final = """
facts AS MATERIALIZED (
    SELECT dimension, distance_metric, by_profile, chunk_count, term_scope, language, term_count,
        coalesce(space, distance_metric || '_' || dimension) AS space,
        coalesce((
            SELECT i.indisvalid FROM pg_catalog.pg_index i
            WHERE i.indexrelid = to_regclass(%(partition)s || '_hnsw')
        ), false) AS indexed,
        (SELECT p.reltuples FROM pg_catalog.pg_class p WHERE p.oid = to_regclass(%(partition)s))
        AS partition_rows
    FROM vectorforge.collections WHERE tenant_id = %(tenant)s AND id = %(collection)s
)
"""
FACTS_FOR_WORDS: Final = """
facts AS (
    SELECT dimension, distance_metric, by_profile, chunk_count, term_scope, language, term_count,
        coalesce(space, distance_metric || '_' || dimension) AS space,
        false AS indexed, 0::real AS partition_rows
    FROM vectorforge.collections WHERE tenant_id = %(tenant)s AND id = %(collection)s
)
"""

# An index is searched if it need not pass over too many vectors of others.
_COUNTING = """
counting AS MATERIALIZED (
    SELECT CASE WHEN indexed AND partition_rows * %(candidates)s <= chunk_count * {most}.0
        THEN {up_to} END AS up_to
    FROM facts
)
"""
_UP_TO = "least(%(limit)s, greatest({least}, {factor} * sqrt(%(depth)s::float8 * chunk_count)))::bigint"


def counting(*, everything: bool) -> str:
    """``up_to``: how many matches are compared rather than asking the index.

    NULL: all are compared. What an index passes over grows as what matches gets less: for ``depth`` rows
    ``depth * chunk_count / matching``. So the two ways take equally long at a multiple of the root of
    ``depth * chunk_count``.
    """
    up_to = _UP_TO.replace("{least}", str(LEAST_COMPARED)).replace("{factor}", str(COMPARED_FACTOR))
    written = _COUNTING.replace("{up_to}", "%(limit)s" if everything else up_to)
    return written.replace("{most}", str(MAX_SCAN_TUPLES))


# The collection's own count, kept by a trigger: counting 10,001 vectors takes longer than the index does.
_COUNT_ALL = "counted AS MATERIALIZED (SELECT chunk_count AS matching FROM facts)"
_COUNT_FOUND = "counted AS MATERIALIZED (SELECT count(*) AS matching FROM found)"
NOT_COUNTED: Final = "counted AS MATERIALIZED (SELECT count(*) AS matching FROM by_index)"
WORDS: Final = "scope AS (SELECT * FROM facts)"
WORDS_IF_ENOUGH: Final = (
    "scope AS (SELECT facts.* FROM facts CROSS JOIN counted WHERE counted.matching = %(depth)s)"
)
"""Without a row the words are not looked up; the search is repeated with another plan."""

# An array, not a join: without statistics the planner would read the whole collection for each document.
_OF_DOCUMENTS = """
AND f.document_id = ANY (ARRAY(
    SELECT p.document_id FROM vectorforge.profile_documents p
    WHERE p.tenant_id = %(tenant)s AND p.collection_id = %(collection)s AND p.profile_id = %(profile)s
))
"""
_FOUND = """
found AS MATERIALIZED (
    SELECT f.id FROM vectorforge.chunks f
    WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s {of_profile}
        AND f.to_version IS NULL AND {filter}
    {limit}
)
"""


# Where the index over metadata gives all that the filter may let through, these alone are looked at. Where it
# gives more than are wanted, reading the collection until enough are found takes less time.
_MOST_NARROW = "(SELECT coalesce({up_to} * {looseness}, chunk_count / {part}) FROM facts)"
_NARROWED = """
narrow AS MATERIALIZED (
    SELECT f.id, {filter} AS matches
    FROM vectorforge.filter_candidates(%(narrowing)s::jsonpath, {most} + 1) f
),
is_narrow AS MATERIALIZED (SELECT count(*) <= {most} AS it FROM narrow),
found AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM narrow WHERE (SELECT it FROM is_narrow) AND matches
        UNION ALL
        SELECT f.id FROM vectorforge.chunks f
        WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s AND NOT (SELECT it FROM is_narrow)
            AND f.to_version IS NULL AND {filter}
    ) f
    {limit}
)
"""


def count(*, everything: bool, of_profile: bool, narrowed: bool, up_to: str | None) -> Iterator[str]:
    """``counted``: how many chunks match; ``found``: their ids, unless all match.

    Args:
        everything: All chunks of the collection match.
        of_profile: Only chunks of one profile match.
        narrowed: The index over metadata covers a part of the filter.
        up_to: SQL of a number after which both stop, or NULL; None for no limit.
    """
    if everything:
        yield _COUNT_ALL
        return
    limit = "" if up_to is None else f"LIMIT {up_to} + 1"
    if narrowed and up_to is not None and not of_profile:
        most = _MOST_NARROW.format(up_to=up_to, looseness=_LOOSENESS, part=_NARROW_PART)
        yield _NARROWED.replace("{most}", most).replace("{limit}", limit)
    else:
        found = _FOUND.replace("{of_profile}", _OF_DOCUMENTS if of_profile else "")
        yield found.replace("{limit}", limit)
    yield _COUNT_FOUND


def passes(*, filtered: bool, of_profile: bool) -> str:
    """Return the condition for chunk ``{id}``, as a look-up by its key.

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


BY_WORDS_ONLY: Final = "chosen AS (SELECT 'words' AS reason)"


# IS TRUE keeps the planner from making a join of it, which it could only guess the size of: it is hashed.
_AMONG_FOUND: Final = f"""
CASE WHEN (SELECT matching FROM counted) <= {_MOST_NUMBERED}
    THEN (ranked.number IN ({numbers_of("found")})) IS TRUE
    ELSE (ranked.chunk_id IN (SELECT id FROM found)) IS TRUE END
"""  # noqa: S608 -- the only insertions are our own


def wanted_words(passes: str, *, everything: bool, plan: SearchPlan, words_only: bool) -> str:
    """Return the condition for a chunk with words of the query, ``ranked.chunk_id``."""
    if everything:
        return "TRUE"
    if plan is SearchPlan.COMPARED:
        return _AMONG_FOUND
    candidate = passes.replace("{id}", "ranked.chunk_id")
    if plan is SearchPlan.INDEX and not words_only:
        return candidate
    complete = "(SELECT reason FROM chosen) <> 'many'"
    if words_only:
        complete = "(SELECT matching FROM counted) <= %(limit)s"
    return f"CASE WHEN {complete} THEN {_AMONG_FOUND} ELSE {candidate} END"
