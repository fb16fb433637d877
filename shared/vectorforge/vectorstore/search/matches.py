"""The part of a search's statement that decides which chunks match; ``statement`` joins the parts."""

from collections.abc import Iterator
from enum import StrEnum
from typing import Final, NamedTuple

from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.search.vectors import IndexKind
from vectorforge.vectorstore.search.words import Pruning, numbers_of

_LOOSENESS = 2
"""Candidates that the index over metadata may give per requested match: a filter drops some."""
NARROW_PART: Final = 8
"""Divisor of a collection's size: below that many matches the index over metadata beats a
scan, and look-ups of their vectors beat comparing all."""
_MOST_NUMBERED = 3_000
"""Matching chunks up to which each is looked up by key to compare the ranking with. With more, fewer of the
ranking are looked up before there are enough: of 100,000 chunks, 100 that match among 3,300."""


class SearchPlan(StrEnum):
    """Plan of a statement for the nearest vectors."""

    CHOSEN = "chosen"
    """Count the matches, check for an index, and choose."""
    COMPARED = "compared"
    """Compare all matches: there is no index, or it must not be used."""
    INDEX = "index"
    """Search the index, without counting the matches."""


class SearchShape(NamedTuple):
    """Properties that a search's statement depends on, but for the text of its filter."""

    mode: SearchMode
    metric: DistanceMetric
    dimension: int
    """Dimension of the query's vector, since a type cannot be a parameter; 0 without one."""
    kind: IndexKind
    """Kind of the partition's index."""
    filtered: bool
    of_profile: bool
    """Search only the documents of one profile."""
    narrowed: bool
    """The index over metadata covers a part of the filter, ``narrowing``."""
    with_vectors: bool = False
    """Return the chunks' vectors."""
    large: bool = False
    """The collection has so many chunks that the rarer words of the query choose the candidates."""


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
    WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s {of_documents}
        AND f.to_version IS NULL AND {{filter}}
    {limit}
)
"""
# Where the index over metadata gives all that the filter may let through, or enough, these alone are looked
# at. Else reading the collection until enough are found takes less time.
_MOST_NARROW = "(SELECT least({up_to} * {looseness}, greatest({up_to}, chunk_count / {part})) FROM facts)"
_FOUND_NARROWED = """
narrow AS MATERIALIZED (
    SELECT f.id, {{filter}} AS matches
    FROM vectorforge.filter_candidates(%(narrowing)s::jsonpath, {most} + 1) f
),
is_narrow AS MATERIALIZED (
    SELECT count(*) <= {most} OR count(*) FILTER (WHERE matches) > {up_to} AS it FROM narrow
),
found AS MATERIALIZED (
    SELECT id FROM (
        SELECT id FROM narrow WHERE (SELECT it FROM is_narrow) AND matches
        UNION ALL
        SELECT f.id FROM vectorforge.chunks f
        WHERE f.tenant_id = %(tenant)s AND f.collection_id = %(collection)s AND NOT (SELECT it FROM is_narrow)
            AND f.to_version IS NULL AND {{filter}}
    ) f
    {limit}
)
"""


def match_everything(shape: SearchShape) -> bool:
    """Return True if every chunk of the collection matches."""
    return not (shape.filtered or shape.of_profile)


def counted(shape: SearchShape, up_to: str | None) -> Iterator[str]:
    """Write ``counted``: how many chunks match; before it ``found``: their ids, unless all match.

    Both stop after the number ``up_to``, SQL or NULL; None for no limit.
    """
    if match_everything(shape):
        # The collection's own count, by a trigger: counting 10,001 vectors takes longer than the index does.
        yield "counted AS MATERIALIZED (SELECT chunk_count AS matching FROM facts)"
        return
    limit = "" if up_to is None else f"LIMIT {up_to} + 1"
    if shape.narrowed and up_to is not None and not shape.of_profile:
        most = _MOST_NARROW.format(up_to=up_to, looseness=_LOOSENESS, part=NARROW_PART)
        yield _FOUND_NARROWED.format(most=most, up_to=up_to, limit=limit)
    else:
        yield _FOUND.format(of_documents=_OF_DOCUMENTS if shape.of_profile else "", limit=limit)
    yield "counted AS MATERIALIZED (SELECT count(*) AS matching FROM found)"


_PASSES = (
    "(SELECT {conditions} FROM vectorforge.chunks f WHERE f.tenant_id = %(tenant)s AND f.id = {chunk_id})"
)
_IS_OF_PROFILE = (
    "EXISTS (SELECT FROM vectorforge.profile_documents p WHERE p.tenant_id = %(tenant)s "
    "AND p.document_id = f.document_id AND p.profile_id = %(profile)s)"
)


def passes(shape: SearchShape, chunk_id: str) -> str:
    """Write the condition that a chunk matches, as a look-up by its key.

    A subquery for each candidate, not a join, so that the order of an index or a ranking is preserved and the
    scan ends as soon as there are enough.
    """
    if match_everything(shape):
        return "TRUE"
    conditions = ["f.to_version IS NULL AND {filter}"] if shape.filtered else []
    if shape.of_profile:
        conditions.append(_IS_OF_PROFILE)
    return _PASSES.format(conditions=" AND ".join(conditions), chunk_id=chunk_id)


# IS TRUE keeps the planner from making a join of it, which it could only guess the size of: it is hashed.
_NUMBER_FOUND = f"""
CASE WHEN {{complete}} AND (SELECT matching FROM counted) <= {_MOST_NUMBERED}
    THEN (ranked.number IN ({numbers_of("found")})) IS TRUE ELSE TRUE END
"""  # noqa: S608 -- the only insertions are our own
_CHUNK_FOUND = f"""
CASE WHEN NOT {{complete}} THEN {{candidate}}
    WHEN (SELECT matching FROM counted) <= {_MOST_NUMBERED} THEN TRUE
    ELSE (t.chunk_id IN (SELECT id FROM found)) IS TRUE END
"""  # noqa: S608 -- the only insertion is our own


def pruning(shape: SearchShape, plan: SearchPlan) -> Pruning | None:
    """Return bounds for the words of a large collection, of which nearly all chunks match, or many."""
    if not shape.large:
        return None
    if match_everything(shape):
        return Pruning()
    # Of these the filter leaves a part; narrower ones are compared completely, with another plan.
    return Pruning(candidates=10_000) if plan is SearchPlan.INDEX else None


def passes_among_words(shape: SearchShape, plan: SearchPlan) -> tuple[str, str]:
    """Write the conditions that a chunk with words of the query matches, as ``lexical_ctes`` takes them."""
    if match_everything(shape):
        return "TRUE", "TRUE"
    candidate = passes(shape, "t.chunk_id")
    if plan is SearchPlan.INDEX:
        return "TRUE", candidate
    complete = "(SELECT complete FROM chosen)"
    return _NUMBER_FOUND.format(complete=complete), _CHUNK_FOUND.format(
        complete=complete, candidate=candidate
    )
