"""One search of PostgreSQL: its statements, their rows, and facts cached for later searches."""

from collections import OrderedDict
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil, isqrt
from typing import Any, Final
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Chunk, DistanceMetric, RetrievedChunk, Scan, SearchMode
from vectorforge.vectorstore.base import NearestChunks
from vectorforge.vectorstore.search import statement as search_sql
from vectorforge.vectorstore.search.branches import MAX_SCAN_TUPLES, SearchPlan
from vectorforge.vectorstore.search.nearest import compared_at_most, space_kind
from vectorforge.vectorstore.search.statement import CompiledFilter, SearchStatement
from vectorforge.vectorstore.validation import score_of

_NO_LIMIT: Final = 2**62
_MAX_EF_SEARCH: Final = 1_000
_MAX_CACHED: Final = 10_000
_MAX_FILTERS: Final = 1_000
_EF_LEAST: Final = 80
_WIDENING: Final = 1.25
"""Factor on the batch that would have sufficed for one query; others have fewer matches nearby."""
_TUPLES_FACTOR: Final = 2
"""Vectors that an index may pass over, of the root of rows wanted times vectors. Beyond, comparing what
matches takes less time; see ``branches.counting``."""


@dataclass(slots=True)
class IndexedCollection:
    """Facts about a collection that is searched through an index."""

    chunks: int
    partition_rows: float
    """Estimate; below 0 while unknown to the server."""
    futile: set[str] = field(default_factory=set)
    """Filters, without their values, with too few matches for the index."""

    widths: dict[str, float] = field(default_factory=dict)
    """Vectors in the index's batch per requested row, by filter, after a batch that was too small."""

    def ef_search(self, most: int) -> int:
        """Return the candidate list's size: a larger index needs more for the same recall."""
        return min(most, max(_EF_LEAST, isqrt(int(max(self.partition_rows, self.chunks)) * 2 // 5)))

    def width(self, filter_sql: str, wanted: int) -> int:
        """Return the batch size from which ``wanted`` vectors are expected to match."""
        return ceil(self.widths.get(filter_sql, 1) * wanted)

    def was_short(self, filter_sql: str, batch: int, matching: int) -> None:
        """Note a batch with too few matches, so that the next one is larger."""
        if len(self.widths) >= _MAX_FILTERS:
            self.widths.clear()
        self.widths[filter_sql] = _WIDENING * batch / max(matching, 1)

    def scan_tuples(self, depth: int) -> int:
        """Return the number of vectors after which the index is slower than comparing all matches."""
        return min(MAX_SCAN_TUPLES, _TUPLES_FACTOR * isqrt(depth * self.chunks))


class PlanCache:
    """The collections of all tenants that were searched last, without their contents."""

    def __init__(self) -> None:
        self._collections: OrderedDict[UUID, IndexedCollection] = OrderedDict()

    def get(self, collection_id: UUID, filter_sql: str) -> IndexedCollection | None:
        """Return the collection if its index suits the filter, by earlier searches."""
        facts = self._collections.get(collection_id)
        return None if facts is None or filter_sql in facts.futile else facts

    def note(self, collection_id: UUID, filter_sql: str, row: Mapping[str, Any], *, enough: bool) -> None:
        """Note the facts from the rows of a search.

        Args:
            collection_id: The collection.
            filter_sql: As in the statement, without values.
            row: Row of the result.
            enough: The index returned enough rows.
        """
        if not row["indexed"]:
            self._collections.pop(collection_id, None)
            return
        facts = self._collections.setdefault(collection_id, IndexedCollection(0, 0))
        facts.chunks, facts.partition_rows = row["chunk_count"], row["partition_rows"]
        (facts.futile.discard if enough else facts.futile.add)(filter_sql)
        if len(facts.futile) > _MAX_FILTERS:
            facts.futile.clear()
        self._collections.move_to_end(collection_id)
        if len(self._collections) > _MAX_CACHED:
            self._collections.popitem(last=False)


_plan_cache = PlanCache()


@dataclass(frozen=True, slots=True)
class Search:
    """A validated search."""

    collection_id: UUID
    mode: SearchMode
    metric: DistanceMetric
    condition: CompiledFilter
    top_k: int
    dimension: int
    """Dimension of the query's vector; 0 without one."""
    space: str
    of_profile: bool
    params: Mapping[str, Any]
    """``tenant, profile, query, query_text, dense_weight, narrowing``"""

    @property
    def depth(self) -> int:
        """Number of candidates of each leg."""
        return self.top_k if self.mode is SearchMode.DENSE else max(self.top_k, search_sql.LEG_DEPTH)

    def statement(self, plan: SearchPlan) -> SearchStatement:
        """Return the statement for a plan."""
        return search_sql.build(
            self.mode,
            self.metric,
            self.dimension,
            self.condition,
            of_profile=self.of_profile,
            kind=space_kind(self.space),
            plan=plan,
            narrowed=self.params["narrowing"] is not None,
        )


@dataclass(frozen=True, slots=True)
class SearchRows:
    """The rows of a statement; at least one."""

    statement: SearchStatement
    rows: Sequence[Mapping[str, Any]]
    reason: Any
    limit: int

    @property
    def total(self) -> int | None:
        """Number of matching chunks; None if unknown."""
        row = self.rows[0]
        if self.statement.of_everything:
            return int(row["chunk_count"])
        if self.reason == "words":
            return row["matching"] if row["matching"] <= self.limit else None
        return None if self.reason == "many" else row["matching"]

    def is_short(self, depth: int) -> bool:
        """Return True if the index returned fewer rows than match."""
        candidates = self.rows[0]["candidates"]
        if self.reason == "crowded":
            return True
        if self.reason != "many" or candidates >= depth:
            return False
        return self.total is None or candidates < self.total

    def nearest_chunks(self, search: Search) -> NearestChunks:
        """Return the rows as chunks."""
        row = self.rows[0]
        chunks = [
            _retrieved(row, search.metric, search.mode) for row in self.rows if row["chunk_id"] is not None
        ]
        at_least = (
            row["candidates"] if self.statement.plan is SearchPlan.INDEX else max(row["matching"] - 1, 0)
        )
        matched = at_least if self.total is None else self.total
        return NearestChunks(
            chunks,
            matched=max(matched, len(chunks)),
            matched_is_at_least=self.total is None,
            scan=Scan.for_reason(self.reason),
        )


class Searcher:
    """Searches the collections of one tenant.

    Args:
        db: The database as the tenant sees it.
        exact_scan_limit: As for ``PgVectorStore``.
        ef_search: As for ``PgVectorStore``.
    """

    def __init__(self, db: TenantDatabase, exact_scan_limit: int, ef_search: int) -> None:
        self._db = db
        self._exact_scan_limit = exact_scan_limit
        self._ef_search = ef_search

    async def search(self, search: Search) -> SearchRows | None:
        """Run a search, nearly always as one statement; return None for an unknown collection.

        Raises:
            As ``TenantDatabase.fetch_all``.
        """
        facts = _plan_cache.get(search.collection_id, search.condition.sql) if search.dimension else None
        if facts and not search.of_profile and facts.chunks > self._limit(search):
            result = await self._run(search, search.statement(SearchPlan.INDEX), facts)
            if result is None or not result.is_short(search.depth):
                return result
        result = await self._run(search, search.statement(SearchPlan.CHOSEN))
        if result is None or not result.is_short(search.depth):
            return result
        result = await self._run(search, search.statement(SearchPlan.COMPARED))
        return result and replace(result, reason="short")

    async def _run(
        self, search: Search, statement: SearchStatement, facts: IndexedCollection | None = None
    ) -> SearchRows | None:
        limit = _NO_LIMIT if statement.counts_all else self._limit(search)
        candidates = max(search.depth * statement.candidates_per_row, statement.least_candidates)
        ef_search = self._ef_search
        if facts is not None:
            width = facts.width(statement.filter_sql, search.depth)
            ef_search = max(facts.ef_search(ef_search), width)
        ef_search = min(max(ef_search, candidates), _MAX_EF_SEARCH)
        params = {
            **statement.filter_params,
            **search.params,
            "collection": search.collection_id,
            "space": search.space,
            "partition": f"vectorforge.embeddings_{search.space}",
            "top_k": search.top_k,
            "limit": limit,
            "depth": search.depth,
            "candidates": candidates,
            "lexical_limit": search.depth,
            "ef_search": ef_search,
            "scan_tuples": None if facts is None else facts.scan_tuples(max(candidates, ef_search)),
        }
        rows = await self._db.fetch_all(statement.sql, params, repeatable=True)
        if not rows:
            return None
        result = SearchRows(statement, rows, rows[0]["reason"], limit)
        if search.dimension and statement.plan is not SearchPlan.COMPARED:
            enough = result.reason == "many" and not result.is_short(search.depth)
            _plan_cache.note(search.collection_id, statement.filter_sql, rows[0], enough=enough)
            if facts is not None and result.reason == "many" and not enough and ef_search < _MAX_EF_SEARCH:
                facts.was_short(statement.filter_sql, ef_search, rows[0]["candidates"])
        return result

    def _limit(self, search: Search) -> int:
        return compared_at_most(self._exact_scan_limit, search.dimension)


def _retrieved(row: Mapping[str, Any], metric: DistanceMetric, mode: SearchMode) -> RetrievedChunk:
    chunk = Chunk(
        id=row["chunk_id"],
        document_id=row["document_id"],
        index=row["ordinal"],
        text=row["text"],
        start_offset=row["start_offset"],
        end_offset=row["end_offset"],
        token_count=row["token_count"],
        heading=row["heading"],
        metadata=row["metadata"],
    )
    by_words = mode is SearchMode.LEXICAL
    return RetrievedChunk(
        chunk=chunk,
        score=row["relevance"] if by_words else score_of(metric, row["distance"]),
        distance=1 - row["relevance"] if by_words else row["distance"],
        document_source=row["source"],
        document_title=row["title"],
        relevance=None if mode is SearchMode.DENSE else row["relevance"],
        lexical_score=row["lexical_score"],
    )
