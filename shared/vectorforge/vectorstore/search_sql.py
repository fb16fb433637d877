"""The statement of a search: one, so that a search is one round trip and sees one state of the data.

It counts what matches, at most one more than its limit, chooses the way to the nearest vectors, runs the legs
(vectors, words, or both), fuses them, and joins the details of the best. The ways, by ``reason``:

- ``few``: what matches is compared completely.
- ``many``: the HNSW index is asked; where it gives too few (it ends after ``hnsw.max_scan_tuples``), all that
  matches is compared after all: ``short``.
- ``sparse``: compared completely, because the collection is so small a part of its partition that the index
  would pass over more of the others' vectors than it may.
- ``unindexed``: compared completely, because the partition has no HNSW index.

An exact comparison orders by the bare column, which no index is made on, so the planner cannot answer it from
an HNSW index and lose rows. A branch that is not taken costs nothing: its condition is a subquery that is
evaluated once, before the branch
(https://github.com/postgres/postgres/blob/REL_18_STABLE/src/backend/executor/nodeResult.c).
Embeddings exist of current chunks only; a chunk's vector goes when the chunk is retired.
"""

from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Final

from vectorforge.types import DistanceMetric, SearchMode
from vectorforge.vectorstore import search_branches as branches
from vectorforge.vectorstore.filter_ast import And, Filter
from vectorforge.vectorstore.lexical_sql import lexical_ctes
from vectorforge.vectorstore.search_nearest import OPERATORS, Nearest, index_kind
from vectorforge.vectorstore.sql_filters import FilterCompiler

LEG_DEPTH: Final = 100
"""Candidates of each leg of a hybrid search, at least; 50 lose 0.002 nDCG, without more gain above 100."""
_MAX_REPEATED_FILTER: Final = 2_000
"""Characters of a filter that stands in every branch. A longer one stands once, and what it lets through is
always compared completely: a statement over 16 KB pins a connection of RDS Proxy
(https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html)."""
_FILTER = "{filter}"


@dataclass(frozen=True, slots=True)
class SearchStatement:
    """What to ask for one search, in psycopg's ``%(name)s`` style.

    Takes ``tenant, collection, top_k, limit`` and the ``filter_params``; with vectors ``space, query, depth,
    candidates``, with words ``query_text, lexical_limit``, with both ``dense_weight``, and for one profile
    ``profile``.

    Rows, best first: at least one if the collection exists, with its ``dimension, distance_metric,
    by_profile, chunk_count``, how many match (``matching``, at most limit + 1) and the ``reason`` of the way
    that was taken; the columns of a chunk are NULL where nothing was found.
    """

    sql: str
    filter_params: dict[str, Any]
    candidates_per_row: int
    """How many candidates the index should give for each row wanted."""
    least_candidates: int
    """How many it should give at least."""
    of_everything: bool
    """Whether every chunk of the collection matches, so that ``chunk_count`` is their number."""
    counts_all: bool
    """Whether ``limit`` has to be beyond any number: there is no other way than to compare all."""


def build(
    mode: SearchMode,
    metric: DistanceMetric,
    dimension: int,
    condition: Filter,
    *,
    of_profile: bool = False,
    kind: str = "",
) -> SearchStatement:
    """Write the statement.

    Args:
        mode: Which legs.
        metric: The collection's.
        dimension: Length of the query's vector; a type's name cannot be a parameter. 0: none.
        condition: The parsed filter.
        of_profile: Whether only the documents of one profile are searched.
        kind: What the partition's index is made of, see ``search_nearest.index_kind``.
    """
    compiler = FilterCompiler("f.metadata")
    unfiltered = condition == And(())
    filter_sql = compiler.compile(condition)
    whole = len(filter_sql) > _MAX_REPEATED_FILTER
    template = _template(mode, metric, dimension, unfiltered, of_profile, whole, kind)
    index = index_kind(kind, dimension)
    return SearchStatement(
        sql=template.replace(_FILTER, filter_sql),
        filter_params=compiler.params,
        candidates_per_row=index.candidates_per_row,
        least_candidates=index.least_candidates,
        of_everything=unfiltered and not of_profile,
        counts_all=whole,
    )


@lru_cache(maxsize=256)
def _template(
    mode: SearchMode,
    metric: DistanceMetric,
    dimension: int,
    unfiltered: bool,
    of_profile: bool,
    whole: bool,
    kind: str,
) -> str:
    """The statement with a gap for the filter, made once for each shape of search."""
    everything = unfiltered and not of_profile
    parts = [branches.SCOPE, *branches.count(everything=everything, of_profile=of_profile)]
    vectors = mode is not SearchMode.LEXICAL
    words = mode is not SearchMode.DENSE
    passes = branches.passes(filtered=not unfiltered, of_profile=of_profile)
    if vectors:
        nearest = Nearest(metric, index_kind(kind, dimension), everything, of_profile)
        parts += nearest.whole() if whole else nearest.chosen(passes)
    else:
        parts.append(branches.BY_WORDS_ONLY)
    if words:
        parts.append(
            lexical_ctes(condition=branches.wanted_words(passes, everything=everything, whole=whole))
        )
    parts.append(branches.ranked(mode, metric, OPERATORS[metric]))
    statement = f"WITH {','.join(parts)}{branches.WITH_DETAILS}"
    return " ".join(statement.split())  # blanks would count against the 16 KB
