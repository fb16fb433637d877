"""Search of a query in several steps: plain search and plan at the same time, sub-queries, fusion, rounds."""

import asyncio
import logging
import time
from collections import defaultdict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field, replace
from typing import Final, TypeAlias
from uuid import UUID

from vectorforge.deadline import Deadline
from vectorforge.errors import DeadlineExceededError, VectorForgeError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.citations.wording import completeness
from vectorforge.pipeline.planning.planner import Plan, can_plan, checked, make_plan, split
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.step_types import QueryStep, StepOrigin
from vectorforge.retriever.base import BaseRetriever, QueryLookup, RetrievalRequest, RetrievedChunks
from vectorforge.types import RetrievedChunk

logger = logging.getLogger(__name__)

LEAST_COVERAGE: Final = 0.8
"""Share of the query's content words in the best chunks below which ``auto`` searches further."""
_COVERING: Final = 3
"""Best chunks that are compared with the query."""
_PLAN_TIMEOUT_S: Final = 6.0
"""Longest wait for one plan. All plans and searches for sub-queries end within half of the query's time."""
_ROUNDS: Final = 2
"""Further rounds of ``medium``."""
_READ_CHUNKS: Final = 4
"""Chunks of a document that is read, of the best so many."""
_RANK: Final = 2.0
"""Constant of the reciprocal rank: small, so that the first chunk of each sub-query stays."""

_Planned: TypeAlias = tuple[Plan | None, QueryStep]


@dataclass(slots=True)
class StepSearch:
    """One search in steps. A step that fails is noted and left out; only the plain search raises.

    Args:
        retriever: Bound to the tenant; every search has the scope of ``request``.
        registry: Models with their circuit breakers.
        run: The query.
        request: Search for the query itself.
        emit: Receives each step when it has ended.
        calling_model: False never calls a model.
    """

    retriever: BaseRetriever
    registry: LLMProviderRegistry
    run: QueryRun
    request: RetrievalRequest
    emit: Callable[[QueryStep], None]
    calling_model: bool = True
    _lists: list[Sequence[RetrievedChunk]] = field(default_factory=list)
    _known: set[UUID] = field(default_factory=set)
    _searched: list[str] = field(default_factory=list)
    _until: Deadline = field(init=False)

    async def search(self) -> RetrievedChunks:
        """Return the chunks of all steps, best first, at most ``top_k``.

        Raises:
            VectorForgeError: The plain search failed.
        """
        effort, intents = self.run.config.effort, self.run.config.intents
        self._until = Deadline.after(self.run.deadline.remaining_s() / 2)
        uses_model = self.calling_model and can_plan(self.run)
        first: asyncio.Task[_Planned] | None = None
        if uses_model and not intents and effort in ("low", "medium"):
            first = asyncio.create_task(self._plan(1))
        try:
            plain = await self._plain(shows_coverage=effort == "auto" and not intents)
            if intents:
                await self._search_for(1, checked(intents, self.request.query), "request")
            elif effort != "auto" or self._coverage() < LEAST_COVERAGE:
                await self._first_round(first, uses_model=uses_model)
        finally:
            if first is not None:
                first.cancel()
                await asyncio.gather(first, return_exceptions=True)
        if effort == "medium" and uses_model:
            await self._further_rounds()
        plain[:] = fuse(self._lists)
        found = await self.retriever.rerank(self.request, plain)
        most = self.request.top_k if found.matched is None else min(found.matched, self.request.top_k)
        found.below_min_score = max(0, min(found.below_min_score, most - len(found)))
        return found

    async def _plain(self, *, shows_coverage: bool) -> RetrievedChunks:
        started = time.perf_counter()
        (found,) = await self.retriever.find_all([self.request])
        self._lists.append(list(found))
        self._known.update(chunk.chunk.id for chunk in found)
        coverage = round(self._coverage(), 2) if shows_coverage else None
        step = QueryStep(
            "search", 0, "query", (self.request.query,), len(found), len(found), coverage,
            duration_ms=_ms_since(started),
        )  # fmt: skip
        self._note(step)
        return found

    def _coverage(self) -> float:
        texts = [chunk.chunk.text for chunk in self._lists[0][:_COVERING]]
        return completeness(self.request.query, self.request.query, texts)

    async def _first_round(self, first: asyncio.Task[_Planned] | None, *, uses_model: bool) -> None:
        if uses_model:
            plan, step = await (self._plan(1) if first is None else first)
            self._note(step)
            await self._search_for(1, () if plan is None else plan.queries, "model")
        else:
            queries = split(self.run.search_text)
            self._note(QueryStep("plan", 1, "rules", queries))
            await self._search_for(1, queries, "rules")

    async def _further_rounds(self) -> None:
        """Search for what is missing, at most twice, and read one document."""
        has_read = False
        for number in range(2, 2 + _ROUNDS):
            found = fuse(self._lists)
            plan, step = await self._plan(number, found)
            self._note(step)
            if plan is None:
                return
            queries = [text for text in plan.queries if text not in self._searched]
            if plan.read and not has_read:
                has_read = True
                await self._read(number, found[plan.read - 1])
            if not queries:
                return
            await self._search_for(number, queries, "model")

    async def _plan(self, number: int, found: Sequence[RetrievedChunk] = ()) -> _Planned:
        started, plan, error = time.perf_counter(), None, None
        try:
            deadline = Deadline.after(self._until.clamp(_PLAN_TIMEOUT_S))
            plan = await make_plan(self.run, self.registry, deadline, found)
        except VectorForgeError as exc:
            logger.warning("Query %s was not planned: %s", self.run.request_id, exc.message)
            error = exc.code
        queries, tokens = (plan.queries, plan.tokens) if plan else ((), 0)
        elapsed = _ms_since(started)
        return plan, QueryStep(
            "plan", number, "model", queries, tokens=tokens, duration_ms=elapsed, error=error
        )

    async def _search_for(self, number: int, queries: Sequence[str], origin: StepOrigin) -> None:
        if not queries:
            return
        started = time.perf_counter()
        self._searched += queries
        found, error = await self._found(replace(self.request, query=text) for text in queries)
        self._lists += found
        self._end_search(QueryStep("search", number, origin, tuple(queries), error=error), found, started)

    async def _read(self, number: int, chunk: RetrievedChunk) -> None:
        """Add the chunks of a document that suit the query best, in their order; the scope stays."""
        started = time.perf_counter()
        text = f"{chunk.document_title or ''} {self.request.query}".strip()
        lists, error = await self._found([replace(self.request, query=text)])
        own = [one for found in lists for one in found if one.chunk.document_id == chunk.chunk.document_id]
        read = sorted(own[:_READ_CHUNKS], key=lambda one: one.chunk.index)
        self._lists.append(read)
        step = QueryStep("read", number, "model", source=chunk.document_source, error=error)
        self._end_search(step, [read], started)

    async def _found(
        self, requests: Iterable[RetrievalRequest]
    ) -> tuple[list[Sequence[RetrievedChunk]], str | None]:
        """Return the chunks of each request, or none and the code of an error."""
        lookup = self.request.lookup
        own = [
            replace(request, words=None, lookup=lookup and QueryLookup(lookup.collection, request.query))
            for request in requests
        ]
        try:
            async with asyncio.timeout(self._until.clamp(self._until.remaining_s())):
                return list(await self.retriever.find_all(own)), None
        except TimeoutError:
            return [], DeadlineExceededError.code
        except VectorForgeError as exc:
            logger.warning("Query %s: sub-queries failed: %s", self.run.request_id, exc.message)
            return [], exc.code

    def _end_search(self, step: QueryStep, lists: Sequence[Sequence[RetrievedChunk]], started: float) -> None:
        ids = {chunk.chunk.id for found in lists for chunk in found}
        added = len(ids - self._known)
        self._known |= ids
        self._note(replace(step, found=len(ids), added=added, duration_ms=_ms_since(started)))

    def _note(self, step: QueryStep) -> None:
        self.run.steps.append(step)
        self.emit(step)


def fuse(lists: Sequence[Sequence[RetrievedChunk]]) -> list[RetrievedChunk]:
    """Return each chunk once, by its reciprocal ranks in the lists; of equal ones, the first list's first."""
    score: defaultdict[UUID, float] = defaultdict(float)
    chunks: dict[UUID, RetrievedChunk] = {}
    for rank in range(max(map(len, lists), default=0)):
        for found in lists:
            if rank < len(found):
                chunk = chunks.setdefault(found[rank].chunk.id, found[rank])
                score[chunk.chunk.id] += 1 / (_RANK + rank)
    return sorted(chunks.values(), key=lambda chunk: -score[chunk.chunk.id])


def _ms_since(started: float) -> float:
    return round((time.perf_counter() - started) * 1000, 1)
