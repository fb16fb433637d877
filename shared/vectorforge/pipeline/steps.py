"""The steps of a query, in their order; ``rag.QueryService`` is around them."""

import asyncio
import time
from collections.abc import AsyncGenerator, Coroutine
from contextlib import AbstractContextManager, aclosing, asynccontextmanager
from dataclasses import dataclass
from typing import Any

from vectorforge.embedding.cache import FRESH_VECTORS
from vectorforge.errors import DeadlineExceededError, VectorForgeError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.citations.quality import note_quality
from vectorforge.pipeline.context import ContextBuilder, ContextPayload
from vectorforge.pipeline.conversation import ConversationMemory
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.presets import find_preset
from vectorforge.pipeline.query_log import QueryLogging
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryEvent, SourcesEvent
from vectorforge.retriever.base import BaseRetriever, QueryPreprocessor
from vectorforge.telemetry import MetricsCollector, Tracer
from vectorforge.threads import off_event_loop


@dataclass(frozen=True, slots=True)
class QuerySteps:
    """Preprocess, retrieve, build the context, generate. What each part is, ``QueryService`` says."""

    retriever: BaseRetriever
    context_builder: ContextBuilder
    llm_registry: LLMProviderRegistry
    preprocessor: QueryPreprocessor
    query_log: QueryLogging
    memory: ConversationMemory
    ladder: DegradationLadder
    answer_cache: AnswerCache | None
    metrics: MetricsCollector
    tracer: Tracer

    async def events(self, run: QueryRun) -> AsyncGenerator[QueryEvent, None]:
        """All of them; fills in ``run``.

        Yields:
            From ``MetaEvent`` to ``UsageEvent``.

        Raises:
            VectorForgeError: A step failed, ``run.stage``, and nothing else could answer.
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
            yield SourcesEvent(payload.sources, run.retrieved, run.retrieval_ms)
            for step in self.ladder.without_vectors(run):
                yield step
            answer = self.ladder.answer(run, self._build_context)
        with self._stage(run, "generate"):
            async with aclosing(answer) as events:
                async for event in events:
                    yield event
        if run.links_removed:
            self.metrics.increment("pipeline.answers.links_removed", run.links_removed)
        if not run.cached and run.outcome != "aborted":
            await off_event_loop(len(run.answer), lambda: note_quality(run, self.metrics))

    async def until_the_model(self, run: QueryRun) -> ContextPayload:
        """The steps before a model is asked, without one, and without a cache or a record; fills in ``run``.

        Raises:
            VectorForgeError: A step failed.
        """
        await self._preprocess(run, rewriting=False)
        await self._retrieve(run)
        return self._build_context(run)

    async def _preprocess(self, run: QueryRun, *, rewriting: bool = True) -> None:
        clean = self.preprocessor.clean(run.query)
        run.search_text, run.query_truncated = clean.text, clean.truncated
        find_preset(run.config.preset)
        run.choose_provider(self.llm_registry)
        try:
            async with asyncio.timeout_at(run.loop_deadline()):
                await self.memory.recall(run, rewriting=rewriting)
        except TimeoutError as exc:
            raise DeadlineExceededError from exc

    async def _search(self, run: QueryRun) -> AsyncGenerator[QueryEvent, None]:
        """Find passages or a cached answer; before the event leaves, the log knows of the query."""
        if self.query_log.goes_elsewhere:
            async with concurrently(self.query_log.start(run)) as started:
                run.cached = await self._look_up(run)
                async with concurrently(self._find_chunks(run)) as search:
                    await started
                    yield run.meta()
                    await search
            return
        run.cached = await self._look_up(run)
        if not run.cached:  # else its end is near, and its row is written at once
            await self.query_log.start(run)
        yield run.meta()
        await self._find_chunks(run)

    async def _look_up(self, run: QueryRun) -> bool:
        return self.answer_cache is not None and await self.answer_cache.look_up(run)

    async def _find_chunks(self, run: QueryRun) -> None:
        """Search, unless the answer is there already."""
        if run.cached and run.stored is not None:
            run.stored.restore_chunks(run)
        else:
            await self._retrieve(run)

    def _stage(self, run: QueryRun, name: str) -> AbstractContextManager[None]:
        run.stage = name
        return self.tracer.span(name)

    async def _retrieve(self, run: QueryRun) -> None:
        started = time.perf_counter()
        fresh = FRESH_VECTORS.set(not run.config.use_cache)
        known = {} if run.known is None else {"known": run.known}
        try:
            async with asyncio.timeout_at(run.loop_deadline()):
                run.retrieved = await self.retriever.retrieve(
                    run.rewritten_query or run.search_text,
                    run.collection_id,
                    run.config.top_k,
                    run.config.filters,
                    run.config.min_score,
                    run.config.embedding_provider,
                    profile_id=run.config.profile_id,
                    deadline=run.deadline,
                    search_mode=run.config.search_mode,
                    allow_lexical_fallback=self.ladder.enabled,
                    **known,
                )
        except TimeoutError as exc:
            raise DeadlineExceededError from exc
        finally:
            FRESH_VECTORS.reset(fresh)  # for what its task does next
        run.retrieval_ms = _ms_since(started)

    def _build_context(self, run: QueryRun) -> ContextPayload:
        started = time.perf_counter()
        payload = run.payload = self.context_builder.build(
            run.search_text, run.retrieved, run.context_config()
        )
        elapsed_ms = _ms_since(started)
        run.context_ms += elapsed_ms
        self.metrics.observe("context.build.duration_ms", elapsed_ms)
        self.metrics.observe("context.tokens_used", payload.token_count)
        self.metrics.observe("context.chunks_included", payload.chunks_used)
        self.metrics.increment("context.chunks_truncated", payload.chunks_truncated)
        return payload


@asynccontextmanager
async def concurrently(step: Coroutine[Any, Any, None]) -> AsyncGenerator[asyncio.Task[None], None]:
    """Run a step while the block goes on with something else; it has ended when the block has."""
    task = asyncio.create_task(step)
    try:
        yield task
    finally:
        task.cancel()
        await asyncio.gather(task, return_exceptions=True)


def _ms_since(started: float) -> float:
    return (time.perf_counter() - started) * 1000
