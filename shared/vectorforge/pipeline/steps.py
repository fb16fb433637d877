"""Steps of a query in their order: look up, preprocess, retrieve, build the context, generate."""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from dataclasses import dataclass, replace
from uuid import UUID

from vectorforge.deadline import concurrently, off_event_loop, time_limit
from vectorforge.embedding.cache import FRESH_VECTORS
from vectorforge.errors import InvalidInputError, VectorForgeError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.answer_cache.cache import AnswerCache, restore_chunks
from vectorforge.pipeline.answer_cache.lookup import QueryLookupService
from vectorforge.pipeline.citations.wording import assess
from vectorforge.pipeline.context import ContextBuilder, ContextPayload
from vectorforge.pipeline.conversation import ConversationMemory, QueryRewriter
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.query_log import QueryLogging
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.step_types import QueryStep, StepEvent
from vectorforge.pipeline.types import QueryEvent, SourcesEvent
from vectorforge.retriever.base import (
    BaseRetriever,
    QueryLookup,
    QueryPreprocessor,
    RetrievalRequest,
    RetrievedChunks,
)
from vectorforge.telemetry import MetricsCollector, SpanName, Tracer

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class QuerySteps:
    """Steps of a query; ``QueryService`` describes the parts."""

    retriever: BaseRetriever
    context_builder: ContextBuilder
    llm_registry: LLMProviderRegistry
    preprocessor: QueryPreprocessor
    query_log: QueryLogging
    memory: ConversationMemory
    rewriter: QueryRewriter
    ladder: DegradationLadder
    lookup: QueryLookupService | None
    answer_cache: AnswerCache | None
    metrics: MetricsCollector
    tracer: Tracer
    timeout_s: float
    """Time limit of step 0; the others have the query's deadline."""

    async def look_up(self, run: QueryRun) -> None:
        """Step 0: clean the query, choose the provider, find the collection and reserve the run's claim.

        An error of the query itself is noted in the run and raised by step 1, which is logged.

        Raises:
            InvalidInputError: The collection is named, and there is no look-up service.
            DeadlineExceededError: The time ran out.
            VectorForgeError: As ``QueryLookupService.look_up``.
        """
        try:
            run.prepare(self.preprocessor.clean(run.query), self.llm_registry)
        except VectorForgeError as exc:
            run.request_error = exc
        if self.lookup is None:
            run.collection_id = _collection_id(run.choice.names[0])
            return
        async with time_limit(self.timeout_s):
            await self.lookup.look_up(run)

    async def events(self, run: QueryRun) -> AsyncGenerator[QueryEvent, None]:
        """Run the steps after step 0.

        Yields:
            From ``MetaEvent`` to ``UsageEvent``.

        Raises:
            VectorForgeError: The step ``run.stage`` failed, and no fallback worked.
        """
        with self._stage(run, "preprocess"):
            await self._preprocess(run)
        try:
            with self._stage(run, "retrieve"):
                async with aclosing(self._search(run)) as found:
                    async for event in found:
                        yield event
        except VectorForgeError as exc:
            self.ladder.check_search(run, exc)
            answer = self.ladder.without_search(run, exc, self._build_context)
        else:
            with self._stage(run, "context"):
                payload = self._build_context(run)
            yield SourcesEvent(payload.sources, run.retrieved, run.timings.retrieval_ms)
            for step in self.ladder.search_steps(run):
                yield step
            answer = self.ladder.answer(run, self._build_context)
        with self._stage(run, "generate"):
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
        if run.links_removed:
            self.metrics.increment("pipeline.answers.links_removed", run.links_removed)
        if not run.cache.hit and run.outcome != "aborted":
            await off_event_loop(len(run.answer), lambda: _note_quality(run, self.metrics))

    async def prompt_only(self, run: QueryRun) -> ContextPayload:
        """Run the steps up to the prompt, without a model, a cached answer or a log record.

        Raises:
            VectorForgeError: A step failed.
        """
        await self._preprocess(run)
        await self.rewriter.rewrite(run, calling_model=False)
        await self._retrieve(run, _drop, calling_model=False)
        return self._build_context(run)

    async def _preprocess(self, run: QueryRun) -> None:
        if run.request_error is not None:
            raise run.request_error
        if not run.config.history and run.config.conversation_id is None:
            return
        async with time_limit(run.deadline.remaining_s()):
            await self.memory.recall(run)

    async def _search(self, run: QueryRun) -> AsyncGenerator[QueryEvent, None]:
        """Find chunks or a cached answer; the query's start is logged before the first event is yielded."""
        if self.answer_cache is not None and run.is_cacheable:
            run.cache.hit = await self.answer_cache.look_up(run)
        has_table = self.query_log.table is not None
        is_logged_once = has_table and run.cache.hit  # with its end
        async with nullcontext() if is_logged_once else concurrently(self.query_log.start(run)) as started:
            await self._rewrite(run)
            steps = asyncio.Queue[QueryStep | None]() if run.config.has_steps else None
            # One connection at a time: a full pool would reject queries that it can serve in turn.
            after = started if has_table else None
            async with concurrently(self._find_chunks(run, steps, after)) as search:
                if started is not None:
                    await started
                yield run.meta()
                if steps is not None:
                    async for event in _events_of(search, steps):
                        yield event
                await search

    async def _rewrite(self, run: QueryRun) -> None:
        """Set the text to search for, unless the answer is cached: then it is the one of that search."""
        if run.cache.hit and run.cache.stored is not None:
            run.rewritten_query = run.cache.stored.rewritten_query
        elif run.config.history and run.config.search_tool is None:
            await self.rewriter.rewrite(run)

    async def _find_chunks(
        self,
        run: QueryRun,
        steps: "asyncio.Queue[QueryStep | None] | None",
        after: asyncio.Task[None] | None,
    ) -> None:
        """Search, unless the answer is cached; put the steps into the queue as they end."""
        emit = _drop if steps is None else steps.put_nowait
        if run.cache.hit and run.cache.stored is not None:
            restore_chunks(run, run.cache.stored)
            for step in run.steps:
                emit(step)
        else:
            await self._retrieve(run, emit, after)

    def _stage(self, run: QueryRun, name: SpanName) -> AbstractContextManager[None]:
        run.stage = name
        return self.tracer.span(name, run.trace)

    async def _retrieve(
        self,
        run: QueryRun,
        emit: Callable[[QueryStep], None],
        after: asyncio.Task[None] | None = None,
        *,
        calling_model: bool = True,
    ) -> None:
        if run.config.search_tool is not None:
            run.search = self._search_for(run)
            return
        started, request = time.perf_counter(), replace(self._request(run), after=after)
        fresh = FRESH_VECTORS.set(not run.config.use_cache)
        try:
            async with time_limit(run.deadline.remaining_s()):
                if run.config.has_steps:
                    from vectorforge.pipeline.planning.search import StepSearch  # most queries have one step

                    search = StepSearch(self.retriever, self.llm_registry, run, request, emit, calling_model)
                    run.retrieved = await search.search()
                else:
                    run.retrieved = await self.retriever.find(request)
        finally:
            FRESH_VECTORS.reset(fresh)  # for what its task does next
        run.timings.retrieval_ms = _ms_since(started)

    def _search_for(self, run: QueryRun) -> Callable[[str, int], Awaitable[RetrievedChunks]]:
        """Return the search of a model's calls, in the scope of the query."""

        async def search(query: str, top_k: int) -> RetrievedChunks:
            request, text = self._request(run), self.preprocessor.clean(query).text
            lookup = run.lookup and QueryLookup(run.lookup.collection, text)
            top_k = min(top_k, request.top_k)
            async with time_limit(run.deadline.remaining_s()):
                return await self.retriever.find(replace(request, query=text, lookup=lookup, top_k=top_k))

        return search

    def _request(self, run: QueryRun) -> RetrievalRequest:
        config, expansion = run.config, run.expansion
        return RetrievalRequest(
            run.quoted_query,
            run.collection_id,
            config.top_k,
            config.filters,
            config.min_score,
            config.embedding_provider,
            profile_id=config.profile_id,
            deadline=run.deadline,
            search_mode=config.search_mode,
            allow_lexical_fallback=self.ladder.enabled,
            lookup=run.lookup,
            words=None if expansion is None else run.search_text,
            context=None if expansion is None else expansion.context,
            distinct=True,
            mmr_lambda=config.mmr_lambda,
            min_version=config.min_version,
            note_version=run.note_searched,
        )

    def _build_context(self, run: QueryRun) -> ContextPayload:
        started = time.perf_counter()
        payload = run.payload = self.context_builder.build(
            run.search_text, run.retrieved, run.preset.context_config(run.config, run.context_limit)
        )
        elapsed_ms = _ms_since(started)
        run.timings.context_ms += elapsed_ms
        self.metrics.observe("context.build.duration_ms", elapsed_ms)
        self.metrics.observe("context.tokens_used", payload.counted_tokens)
        self.metrics.observe("context.chunks_included", payload.chunks_used)
        self.metrics.increment("context.chunks_truncated", payload.chunks_truncated)
        return payload


async def _events_of(
    search: asyncio.Task[None], steps: "asyncio.Queue[QueryStep | None]"
) -> AsyncGenerator[QueryEvent, None]:
    """Yield the steps of a search as they end, until it has ended."""
    search.add_done_callback(lambda _: steps.put_nowait(None))
    while (step := await steps.get()) is not None:
        yield StepEvent(step)


def _drop(_: QueryStep) -> None:
    """Receive a step of a query that shows none."""


def _collection_id(name: str) -> UUID:
    try:
        return UUID(name)
    except ValueError:
        raise InvalidInputError(
            "A query service without a look-up finds collections by id only.", field="collection"
        ) from None


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000


def _note_quality(run: QueryRun, metrics: MetricsCollector) -> None:
    """Set ``run.quality``; count and log a low one. Only texts from chunks have one."""
    is_text = run.config.response_format is None and not (run.response and run.response.tool_calls)
    if not run.used or not is_text or "template" in run.degraded:
        return
    chunks = [chunk.chunk.text for chunk in run.used]
    run.quality = quality = assess(
        run.search_text,
        run.answer,
        chunks,
        run.citations,
        invalid=run.invalid_citations,
        uncited=run.uncited_sentences,
    )
    if not quality.low:
        return
    metrics.increment("pipeline.answers.low_quality")
    logger.warning(
        "Low answer quality in query %s: relevance %.2f, %d of %d citations unsupported, %d name no source",
        run.request_id, quality.relevance, quality.unsupported_citations, len(run.citations),
        run.invalid_citations,
    )  # fmt: skip
