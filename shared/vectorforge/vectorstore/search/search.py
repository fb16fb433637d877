"""One search of PostgreSQL: checked inputs, statements, their rows, and facts cached for later searches."""

from collections import OrderedDict
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextvars import ContextVar
from dataclasses import dataclass, field, replace
from math import ceil, isqrt
from typing import TYPE_CHECKING, Any, Final, TypeAlias
from uuid import UUID

from vectorforge.db.tenant_database import TenantDatabase
from vectorforge.types import Chunk, DistanceMetric, NearestChunks, RetrievedChunk, Scan, SearchMode
from vectorforge.vectorstore.search.matches import SearchPlan, SearchShape
from vectorforge.vectorstore.search.statement import MAX_SCAN_TUPLES, SearchConstants, search_sql
from vectorforge.vectorstore.search.words import PRUNED_FROM, PRUNED_FROM_IF_FILTERED

if TYPE_CHECKING:  # only a database with read replicas needs it
    from vectorforge.db.reader import Reader

LEG_DEPTH: Final = 30
"""Candidates of each leg of a hybrid search, at least. 50 gain nothing: see docs/decisions/retrieval.md."""
_MAX_REPEATED_FILTER: Final = 2_000
"""Characters of a filter that stands in every branch. A longer one stands once, and what it lets through is
always compared completely: a statement over 16 KB pins a connection of RDS Proxy
(https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy-pinning.html)."""
_NO_LIMIT: Final = 2**62
_LIMITED_DIMENSION: Final = 384
_MAX_EF_SEARCH: Final = 1_000
_MAX_CACHED: Final = 10_000
_MAX_FILTERS: Final = 1_000
_EF_LEAST: Final = 48
"""Smallest candidate list, for up to 5,760 vectors; see docs/decisions/retrieval.md."""
_EF_STEP: Final = 8
"""It stands in the statement, and follows a mean: in steps there are few statements to plan."""
_WIDENING: Final = 1.25
"""Factor on the batch that would have sufficed for one query; others have fewer matches nearby."""
_SMOOTHING: Final = 0.2
"""Weight of the last query in the mean of the batches that would have sufficed."""
_TUPLES_FACTOR: Final = 2
"""Vectors that an index may pass over, of the root of rows wanted times vectors. Beyond, comparing what
matches takes less time; see ``statement._COUNTING``."""


FetchAll: TypeAlias = Callable[[TenantDatabase, str, Mapping[str, Any]], Awaitable[list[dict[str, Any]]]]
SEARCH_BATCH: ContextVar[FetchAll | None] = ContextVar("search_batch", default=None)
"""Sends a statement with those of other searches; None: alone. See ``batch.search_together``."""


def score_of(metric: DistanceMetric, distance: float) -> float:
    """Return the score of a distance as pgvector's operators return it; higher is better.

    Args:
        metric: Operator: ``<=>`` (1 - cosine), ``<#>`` (negative inner product) or ``<->`` (Euclidean).
        distance: Distance from that operator.

    Returns:
        Cosine: 1 - distance; inner product: -distance; L2: 1 / (1 + distance).
    """
    match metric:
        case DistanceMetric.COSINE:
            return 1.0 - distance
        case DistanceMetric.INNER_PRODUCT:
            return -distance
        case DistanceMetric.L2:
            return 1.0 / (1.0 + distance)


@dataclass(slots=True)
class IndexedCollection:
    """Facts about a collection that is searched through an index."""

    chunks: int
    indexed_rows: float
    """Vectors in the index, of all collections that share it; an estimate, below 0 while there is none."""
    futile: set[str] = field(default_factory=set)
    """Filters, without their values, with too few matches for the index."""
    widths: dict[str, float] = field(default_factory=dict)
    """Vectors in the index's batch per requested row, by filter, since a batch was too small."""

    def ef_search(self, most: int, filter_sql: str, depth: int) -> int:
        """Return the candidate list's size: a larger index needs more for the same recall."""
        for_recall = isqrt(int(max(self.indexed_rows, self.chunks)) * 2 // 5)
        return max(min(most, max(_EF_LEAST, for_recall)), ceil(self.widths.get(filter_sql, 1) * depth))

    def note_short(self, filter_sql: str, batch: int, matching: int) -> None:
        """Note a batch with too few matches, so that the next one is larger."""
        if len(self.widths) >= _MAX_FILTERS:
            self.widths.clear()
        self.widths[filter_sql] = _WIDENING * batch / max(matching, 1)

    def note_enough(self, filter_sql: str, needed: int, depth: int) -> None:
        """Note the number of vectors that would have sufficed for ``depth`` rows."""
        if (width := self.widths.get(filter_sql)) is not None:
            self.widths[filter_sql] = width + _SMOOTHING * (_WIDENING * needed / depth - width)

    def scan_tuples(self, depth: int) -> int:
        """Return the number of vectors after which the index is slower than comparing all matches."""
        return min(MAX_SCAN_TUPLES, _TUPLES_FACTOR * isqrt(depth * self.chunks))


class PlanCache:
    """The collections of all tenants that were searched last, without their contents."""

    def __init__(self) -> None:
        self._collections: OrderedDict[UUID, IndexedCollection] = OrderedDict()
        self._sizes: dict[UUID, int] = {}

    def is_large(self, collection_id: UUID, *, filtered: bool) -> bool:
        """Return True if rarer words choose candidates, by the number of chunks at the last search."""
        least = PRUNED_FROM_IF_FILTERED if filtered else PRUNED_FROM
        return self._sizes.get(collection_id, 0) > least

    def note_size(self, collection_id: UUID, chunks: int) -> None:
        """Note a collection's number of chunks, for ``is_large``."""
        self._sizes.pop(collection_id, None)
        if chunks > PRUNED_FROM and len(self._sizes) < _MAX_CACHED:
            self._sizes[collection_id] = chunks

    def get(self, collection_id: UUID, filter_sql: str) -> IndexedCollection | None:
        """Return the collection if its index suits the filter, by earlier searches."""
        facts = self._collections.get(collection_id)
        return None if facts is None or filter_sql in facts.futile else facts

    def note(self, collection_id: UUID, filter_sql: str, row: Mapping[str, Any], *, enough: bool) -> None:
        """Note the facts from a row of a search, and whether the index returned enough rows."""
        if row["indexed_rows"] is None:
            self._collections.pop(collection_id, None)
            return
        facts = self._collections.setdefault(collection_id, IndexedCollection(0, 0))
        facts.chunks, facts.indexed_rows = row["chunk_count"], row["indexed_rows"]
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
    shape: SearchShape
    space: str
    top_k: int
    filter_sql: str
    """The filter, without its values."""
    params: Mapping[str, Any]
    """``tenant, profile, query, query_text, context_text, dense_weight, narrowing`` and the filter's."""
    min_version: int | None = None
    """Version of the collection that a read replica must have; None: the writer answers."""

    @property
    def depth(self) -> int:
        """Number of candidates of each leg."""
        return self.top_k if self.shape.mode is SearchMode.DENSE else max(self.top_k, LEG_DEPTH)

    def suffices(self, rows: Sequence[Mapping[str, Any]], min_version: int) -> bool:
        """Return True if the rows of a read replica are of this version or a later one."""
        if not rows or rows[0]["data_version"] < min_version:
            return False
        return not self.shape.dimension or bool(rows[0]["space"] == self.space)


@dataclass(frozen=True, slots=True)
class SearchRows:
    """The rows of a statement; at least one."""

    search: Search
    plan: SearchPlan
    rows: Sequence[Mapping[str, Any]]
    reason: Any
    total: int | None
    """Number of matching chunks; None if unknown."""

    def is_short(self) -> bool:
        """Return True if the index returned fewer rows than match."""
        candidates = self.rows[0]["candidates"]
        if self.reason == "crowded":
            return True
        if self.reason != "many" or candidates >= self.search.depth:
            return False
        return self.total is None or candidates < self.total

    def nearest_chunks(self) -> NearestChunks:
        """Return the rows as chunks."""
        shape, row = self.search.shape, self.rows[0]
        with_chunk = [row for row in self.rows if row["chunk_id"] is not None]
        chunks = [_retrieved(row, shape.metric, shape.mode) for row in with_chunk]
        matched = self.total
        if matched is None:
            matched = row["candidates"] if self.plan is SearchPlan.INDEX else max(row["matching"] - 1, 0)
        return NearestChunks(
            chunks,
            matched=max(matched, len(chunks)),
            matched_is_at_least=self.total is None,
            scan=Scan.for_reason(self.reason),
            version=row["data_version"],
        )


class Searcher:
    """Searches the collections of one tenant; arguments as for ``PgVectorStore``."""

    def __init__(
        self, db: TenantDatabase, exact_scan_limit: int, ef_search: int, reader: "Reader | None"
    ) -> None:
        self._db = db
        self._reader = reader
        self._exact_scan_limit = exact_scan_limit
        self._ef_search = ef_search

    async def search(self, search: Search) -> SearchRows | None:
        """Run a search, nearly always as one statement; return None for an unknown collection.

        Raises:
            As ``TenantDatabase.fetch_all``.
        """
        if search.shape.dimension and not search.shape.of_profile:
            facts = _plan_cache.get(search.collection_id, search.filter_sql)
            if facts and facts.chunks > self._limit(search):
                result = await self._run(search, SearchPlan.INDEX, facts)
                if result is None or not result.is_short():
                    return result
        result = await self._run(search, SearchPlan.CHOSEN)
        if result is None or not result.is_short():
            return result
        result = await self._run(search, SearchPlan.COMPARED)
        return result and replace(result, reason="short")

    async def _run(
        self, search: Search, plan: SearchPlan, facts: IndexedCollection | None = None
    ) -> SearchRows | None:
        limit = self._limit(search)
        if len(search.filter_sql) > _MAX_REPEATED_FILTER:
            plan, limit = SearchPlan.COMPARED, _NO_LIMIT
        depth = search.depth
        candidates = max(depth * search.shape.kind.candidates_per_row, search.shape.kind.least_candidates)
        ef_search = self._ef_search
        if facts is not None:
            ef_search = facts.ef_search(ef_search, search.filter_sql, depth)
        ef_search = min(-(-max(ef_search, candidates) // _EF_STEP) * _EF_STEP, _MAX_EF_SEARCH)
        constants = SearchConstants(
            search.collection_id, search.space, search.top_k, limit, depth, candidates, ef_search
        )
        params = {
            **search.params,
            "scan_tuples": None if facts is None else facts.scan_tuples(max(candidates, ef_search)),
        }
        large = _plan_cache.is_large(search.collection_id, filtered=search.shape.filtered)
        statement = search_sql(search.shape._replace(large=large), plan, constants, search.filter_sql)
        rows = await self._fetch(search, statement, params)
        if not rows:
            return None
        _plan_cache.note_size(search.collection_id, rows[0]["chunk_count"])
        result = SearchRows(search, plan, rows, rows[0]["reason"], _total(search.shape, rows[0]))
        if search.shape.dimension and plan is not SearchPlan.COMPARED:
            enough = result.reason == "many" and not result.is_short()
            _plan_cache.note(search.collection_id, search.filter_sql, rows[0], enough=enough)
            if facts is not None and enough:
                facts.note_enough(search.filter_sql, rows[0]["needed"], depth)
            elif facts is not None and result.reason == "many" and ef_search < _MAX_EF_SEARCH:
                facts.note_short(search.filter_sql, ef_search, rows[0]["candidates"])
        return result

    async def _fetch(
        self, search: Search, statement: str, params: Mapping[str, Any]
    ) -> Sequence[Mapping[str, Any]]:
        together, min_version = SEARCH_BATCH.get(), search.min_version

        async def fetch(db: TenantDatabase) -> list[dict[str, Any]]:
            if together is not None:
                return await together(db, statement, params)
            return await db.fetch_all(statement, params, repeatable=True)

        if self._reader is None or min_version is None:
            return await fetch(self._db)
        return await self._reader.fetch(self._db, fetch, lambda rows: search.suffices(rows, min_version))

    def _limit(self, search: Search) -> int:
        """Return the number of vectors that take as long as the limit's of 384 dimensions."""
        return self._exact_scan_limit * _LIMITED_DIMENSION // max(search.shape.dimension, _LIMITED_DIMENSION)


def _total(shape: SearchShape, row: Mapping[str, Any]) -> int | None:
    if not (shape.filtered or shape.of_profile):
        return int(row["chunk_count"])
    return row["matching"] if row["complete"] else None


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
        locations=row["locations"],
    )
    by_words, vector = mode is SearchMode.LEXICAL, row.get("embedding")
    return RetrievedChunk(
        chunk=chunk,
        score=row["relevance"] if by_words else score_of(metric, row["distance"]),
        distance=1 - row["relevance"] if by_words else row["distance"],
        document_source=row["source"],
        document_title=row["title"],
        relevance=None if mode is SearchMode.DENSE else row["relevance"],
        lexical_score=row["lexical_score"],
        vector=vector and vector.to_list(),
    )
