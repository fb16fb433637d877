"""The statement of a search: one, so that a search is one round trip and sees one state of the data.

It runs the legs (vectors, words, or both), fuses them, and joins the details of the best. There are several
statements for one search (``SearchPlan``); each returns the right rows, or reports that it did not, with the
``reason``:

- ``few``: all matches are compared.
- ``many``: the HNSW index is searched. It may return too few rows, since it ends after ``scan_tuples``
  vectors; then the search is repeated with another plan.
- ``crowded``: the index ended among the vectors of others, so nearer ones may follow. Then likewise.
- ``sparse``: compared completely, because the collection is so small a part of its partition that the index
  would pass over more of the others' vectors than it may.
- ``unindexed``: compared completely, because the partition has no HNSW index.

An exact comparison orders by the bare column, which no index is made on, so the planner cannot answer it from
an HNSW index and lose rows. A branch that is not taken costs nothing: its condition is a subquery that is
evaluated once, before the branch
(https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/executor/nodeResult.c).
Embeddings exist for current chunks only; a chunk's vector is deleted when the chunk is retired.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final, NamedTuple

from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore.filters.language import And, Filter
from vectorforge.vectorstore.filters.sql import FilterCompiler
from vectorforge.vectorstore.search import branches as branches
from vectorforge.vectorstore.search import lexical as relevance
from vectorforge.vectorstore.search.branches import SearchPlan
from vectorforge.vectorstore.search.lexical import lexical_ctes
from vectorforge.vectorstore.search.nearest import OPERATORS, Nearest, index_kind

LEG_DEPTH: Final = 100
"""Candidates of each leg of a hybrid search, at least; 50 lose 0.002 nDCG, without more gain above 100."""
_MAX_REPEATED_FILTER: Final = 2_000
"""Characters of a filter that stands in every branch. A longer one stands once, and what it lets through is
always compared completely: a statement over 16 KB pins a connection of RDS Proxy
(https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html)."""
_FILTER = "{filter}"


@dataclass(frozen=True, slots=True)
class SearchStatement:
    """Statement of one search, in psycopg's ``%(name)s`` style.

    Takes ``tenant, collection, top_k, limit``, the ``filter_params`` and ``narrowing``; with vectors
    ``partition, space, query, depth, candidates, ef_search, scan_tuples``, with words ``query_text,
    lexical_limit``, with both ``dense_weight``, and for one profile ``profile``.

    Rows, best first: at least one if the collection exists, with its ``dimension, distance_metric,
    by_profile, chunk_count, space``, whether its partition is ``indexed`` and about how many
    ``partition_rows`` it has, how many match (``matching``, as far as they were counted) and the ``reason``;
    the columns of a chunk are NULL where nothing was found.
    """

    sql: str
    filter_params: dict[str, Any]
    filter_sql: str
    """The filter in it, without values."""
    plan: SearchPlan
    candidates_per_row: int
    """Candidates of the index per requested row."""
    least_candidates: int
    """Minimum number of candidates."""
    counts_all: bool
    """True if all matches must be counted and compared for this filter."""
    of_everything: bool
    """True if every chunk of the collection matches, so that ``chunk_count`` is their number."""


class CompiledFilter(NamedTuple):
    """A filter as it stands in the statements of one search."""

    sql: str
    params: dict[str, Any]
    holds_always: bool


def compile_filter(condition: Filter) -> CompiledFilter:
    """Compile a parsed filter, once for all statements of a search."""
    compiler = FilterCompiler("f.metadata")
    return CompiledFilter(compiler.compile(condition), compiler.params, condition == And(()))


def build(
    mode: SearchMode,
    metric: DistanceMetric,
    dimension: int,
    condition: CompiledFilter,
    *,
    of_profile: bool = False,
    kind: str = "",
    plan: SearchPlan = SearchPlan.CHOSEN,
    narrowed: bool = False,
) -> SearchStatement:
    """Return the statement.

    Args:
        mode: Legs of the search.
        metric: Metric of the collection.
        dimension: Dimension of the query's vector, since a type cannot be a parameter; 0 without one.
        condition: The filter.
        of_profile: Search only the documents of one profile.
        kind: Kind of the partition's index, see ``nearest.index_kind``.
        plan: Plan for the nearest vectors; ignored without a vector.
        narrowed: ``narrowing`` (``filters.sql.necessary_path``) will be given.
    """
    filter_sql, filter_params, unfiltered = condition
    counts_all = len(filter_sql) > _MAX_REPEATED_FILTER
    if counts_all:
        plan = SearchPlan.COMPARED
    shape = _Shape(mode, metric, dimension, unfiltered, of_profile, kind, plan, narrowed)
    index = index_kind(kind, dimension)
    return SearchStatement(
        sql=_template(shape).replace(_FILTER, filter_sql),
        filter_params=filter_params,
        filter_sql=filter_sql,
        plan=plan,
        candidates_per_row=index.candidates_per_row,
        least_candidates=index.least_candidates,
        counts_all=counts_all,
        of_everything=unfiltered and not of_profile,
    )


class _Shape(NamedTuple):
    mode: SearchMode
    metric: DistanceMetric
    dimension: int
    unfiltered: bool
    of_profile: bool
    kind: str
    plan: SearchPlan
    narrowed: bool

    @property
    def everything(self) -> bool:
        return self.unfiltered and not self.of_profile

    @property
    def passes(self) -> str:
        return branches.passes(filtered=not self.unfiltered, of_profile=self.of_profile)

    def counted(self, up_to: str | None = None) -> Iterator[str]:
        return branches.count(
            everything=self.everything, of_profile=self.of_profile, narrowed=self.narrowed, up_to=up_to
        )


@lru_cache(maxsize=256)
def _template(shape: _Shape) -> str:
    """Return the statement with a placeholder for the filter, cached by the shape of the search."""
    parts = [*(_by_words(shape) if shape.mode is SearchMode.LEXICAL else _by_vectors(shape))]
    if shape.mode is not SearchMode.DENSE:
        wanted = branches.wanted_words(
            shape.passes,
            everything=shape.everything,
            plan=shape.plan,
            words_only=shape.mode is SearchMode.LEXICAL,
        )
        parts.append(lexical_ctes(condition=wanted))
    parts.append(relevance.ranked(shape.mode, shape.metric, OPERATORS[shape.metric]))
    statement = f"WITH {','.join(parts)}{relevance.with_details(shape.mode)}"
    return " ".join(statement.split())  # blanks would count against the 16 KB


def _by_words(shape: _Shape) -> Iterator[str]:
    yield branches.FACTS_FOR_WORDS
    yield from shape.counted(None if shape.plan is SearchPlan.COMPARED else "%(limit)s")
    yield branches.BY_WORDS_ONLY
    yield branches.WORDS


def _by_vectors(shape: _Shape) -> Iterator[str]:
    nearest = Nearest(shape.metric, index_kind(shape.kind, shape.dimension), shape.everything)
    yield branches.FACTS
    if shape.plan is SearchPlan.INDEX:
        yield from nearest.by_index(shape.passes)
        yield branches.NOT_COUNTED
        yield branches.WORDS if shape.everything else branches.WORDS_IF_ENOUGH
    elif shape.plan is SearchPlan.COMPARED:
        yield from shape.counted()
        yield from nearest.compared()
        yield branches.WORDS
    else:
        yield branches.counting(everything=shape.everything)
        yield from shape.counted("(SELECT up_to FROM counting)")
        yield from nearest.chosen(shape.passes)
        yield branches.WORDS
