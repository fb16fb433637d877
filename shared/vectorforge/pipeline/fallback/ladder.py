"""Degradation ladder: fallbacks of an answer. The first one that works is used, and reported.

1. the chosen model; 2. another provider, in the configured order ("provider"); 3. an expired cached answer to
the same query on the same documents ("stale"); 4. quoted chunks ("chunks"); 5. the fixed sentence of the
API surface, if it has one ("template"); 6. 503 with Retry-After.

If the query cannot be embedded, a hybrid search falls back to a lexical one ("lexical"); if the reranker
fails, the order of the search is used ("not_reranked"). The steps above follow. If the search fails, 3, 5 and
6 remain; a model is called without chunks only if the request allows it ("ungrounded"). No fallback is used
after the first token.
"""

import time
from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing
from functools import partial

from vectorforge.errors import (
    DatabaseError,
    DeadlineExceededError,
    EmbeddingError,
    LLMContextOverflowError,
    LLMError,
    VectorForgeError,
)
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry, ModelTarget
from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.answer_cache.cache import replay, restore_chunks
from vectorforge.pipeline.fallback.quoting import (
    BuildContext,
    is_final,
    may_answer_without_search,
    quote_passages,
    shorten_prompt,
    unavailable,
)
from vectorforge.pipeline.generation import generate_answer
from vectorforge.pipeline.prompts import NO_RESULTS_ANSWER
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.stored_answer import StoredAnswer
from vectorforge.pipeline.types import (
    Degradation,
    DegradedEvent,
    QueryEvent,
    SourcesEvent,
)
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector

_RESERVED_S = 2.0
"""Time reserved for the steps after the last model; at most a fifth of the rest."""


class DegradationLadder:
    """Calls models in order and falls back to other answers.

    Args:
        registry: Models, their order and their circuit breakers.
        quoter: Quotes chunks (``ExtractiveProvider``); None: the best chunks are quoted whole.
        enabled: Use the steps below the models; without them errors are raised as they are.
        metrics: Collector of ``pipeline.query.degraded``.
    """

    def __init__(
        self,
        registry: LLMProviderRegistry,
        *,
        quoter: BaseLLMProvider | None = None,
        enabled: bool = True,
        metrics: MetricsCollector | None = None,
    ) -> None:
        self._registry = registry
        self._quoter = quoter
        self.enabled = enabled
        self._metrics: MetricsCollector = metrics or InMemoryMetrics()

    async def answer(self, run: QueryRun, build_context: BuildContext) -> AsyncGenerator[QueryEvent, None]:
        """Yield the answer after a search, or the cached one.

        Yields:
            At most one ``DegradedEvent``, then tokens and citations, then one ``UsageEvent``.

        Raises:
            LLMError: The answer broke off; or no step works and the error has a status of its own.
            DeadlineExceededError: The time ran out.
            AnswerUnavailableError: No step works.
        """
        if (ready := self._ready_answer(run)) is not None:
            for event in ready:
                yield event
            return
        try:
            async with aclosing(self._generate(run, build_context)) as events:
                async for event in events:
                    yield event
            return
        except (LLMError, DeadlineExceededError) as exc:
            if not self.enabled or run.provider is None or is_final(run, exc):
                raise
            error: VectorForgeError = exc
        for event in await self._replacement(run, error):
            yield event

    def search_steps(self, run: QueryRun) -> Iterator[DegradedEvent]:
        """Yield a ``DegradedEvent`` for each fallback of the searches that is not reported yet."""
        if (error := run.retrieved.vectors_error) is not None and "lexical" not in run.degraded:
            yield self._step(run, "lexical", error)
        if (error := run.retrieved.rerank_error) is not None and "not_reranked" not in run.degraded:
            yield self._step(run, "not_reranked", error)

    def _ready_answer(self, run: QueryRun) -> Iterator[QueryEvent] | None:
        """Return the answer that needs no model: a cached one, or the sentence for an empty result."""
        if run.cache.hit and run.cache.stored is not None:
            return replay(run, run.cache.stored)
        if run.retrieved:
            return None
        run.outcome = "empty"
        if run.preset.on_empty == "generate" or run.needs_no_chunks:
            return None
        return run.adopt(NO_RESULTS_ANSWER, finish_reason="empty")

    async def _replacement(self, run: QueryRun, error: VectorForgeError) -> Iterable[QueryEvent]:
        """Return the answer after all models have failed."""
        stored = run.cache.stored
        if stored is not None and [c.chunk.id for c in stored.retrieved] == [
            c.chunk.id for c in run.retrieved
        ]:  # else its labels would name other chunks
            return self._stale(run, stored, error)
        is_text = not run.config.needs_model
        if is_text and run.config.quote_passages and run.payload is not None and run.used:
            step = self._step(run, "passages", error, quoter=self._quoter)
            return [step, *await quote_passages(run, run.payload, self._quoter)]
        return self._last(run, error)

    def check_search(self, run: QueryRun, error: VectorForgeError) -> None:
        """Raise unless a fallback may replace a failed search.

        Raises:
            VectorForgeError: ``error`` if it has a status of its own, else ``AnswerUnavailableError``.
        """
        may_generate = self._may_generate(run, error)
        is_outage = may_answer_without_search(error) or (may_generate and isinstance(error, DatabaseError))
        if not self.enabled or not is_outage:
            raise error
        if run.cache.stored is None and not may_generate and run.preset.unavailable_answer is None:
            raise unavailable(error) from error

    async def without_search(
        self, run: QueryRun, error: VectorForgeError, build_context: BuildContext
    ) -> AsyncGenerator[QueryEvent, None]:
        """Yield the answer after a failed search whose error passed ``check_search``.

        Yields:
            ``SourcesEvent``, ``DegradedEvent``, then as ``answer``.

        Raises:
            VectorForgeError: As ``answer``.
        """
        if (stored := run.cache.stored) is not None:
            restore_chunks(run, stored)
            yield SourcesEvent(build_context(run).sources, run.retrieved, run.timings.retrieval_ms)
            for event in self._stale(run, stored, error):
                yield event
            return
        build_context(run)
        yield SourcesEvent([], [], run.timings.retrieval_ms)
        if self._may_generate(run, error):
            try:
                answer = self._generate(run, build_context, ("ungrounded", error))
                async with aclosing(answer) as events:
                    async for event in events:
                        yield event
                return
            except LLMError as exc:
                if is_final(run, exc):
                    raise
                error = exc
        for event in self._last(run, error):
            yield event

    def _may_generate(self, run: QueryRun, error: VectorForgeError) -> bool:
        """Return True if a model may be called without chunks after this error of the search."""
        allowed = run.config.allow_ungrounded
        if allowed == "after_embedding":
            allowed = not isinstance(error, EmbeddingError)
        return allowed and run.provider is not None and not run.is_extractive

    async def _generate(
        self, run: QueryRun, build_context: BuildContext, *taken: tuple[Degradation, VectorForgeError]
    ) -> AsyncGenerator[QueryEvent, None]:
        """Yield the answer of the first model that works, after the fallbacks used so far."""
        targets = self._targets(run)
        steps = list(taken)
        for number, target in enumerate(targets, start=1):
            limit_s = self._limit_s(run, is_last=number == len(targets))
            answer = self._call(run, target, build_context, limit_s)
            try:
                has_begun = False
                async with aclosing(answer) as events:
                    async for event in events:
                        if not has_begun:  # only now the answering model is certain
                            has_begun = True
                            run.provider, run.llm_model = target.provider, target.model
                            for step, error in steps:
                                yield self._step(run, step, error)
                        yield event
                return
            except (LLMError, DeadlineExceededError) as exc:
                if number == len(targets) or is_final(run, exc):
                    raise
                steps = [*taken, ("provider", exc)]

    async def _call(
        self, run: QueryRun, target: ModelTarget, build_context: BuildContext, limit_s: float | None
    ) -> AsyncGenerator[QueryEvent, None]:
        """Yield one model's answer; if it rejects the prompt as too long, it gets a shorter one, once."""
        breaker = None  # quoting calls no vendor
        if ProviderCapability.EXTRACTIVE not in target.provider.capabilities:
            breaker = self._registry.breakers.find(target.provider.name, target.model)
        started, payload = time.monotonic(), run.payload or build_context(run)
        generate = generate_answer
        if run.config.response_format is not None:
            from vectorforge.pipeline.json_output import generate_json as generate
        if run.config.search_tool is not None:
            from vectorforge.pipeline.tool_search import generate_with_searches

            generate = partial(generate_with_searches, build_context=build_context, steps=self.search_steps)
        try:
            async with aclosing(generate(run, payload, target, breaker, limit_s=limit_s)) as events:
                async for event in events:
                    yield event
            return
        except LLMContextOverflowError as exc:
            if run.timings.first_token_ms is not None:
                raise
            payload = shorten_prompt(run, payload, target, build_context, exc)
        if limit_s is not None:
            limit_s = max(limit_s - (time.monotonic() - started), 0.0)
        async with aclosing(generate(run, payload, target, breaker, limit_s=limit_s)) as events:
            async for event in events:
                yield event

    def _targets(self, run: QueryRun) -> list[ModelTarget]:
        """Return the models to call, in order. A provider named by the request is not replaced by another."""
        if run.provider is None or run.model is None:
            raise LLMError(
                "No LLM providers configured: set VECTORFORGE_OPENAI_API_KEY or another provider's key."
            )
        others = [] if run.config.llm_provider else self._registry.fallbacks_of(run.provider)
        if run.config.needs_model:
            quoting = ProviderCapability.EXTRACTIVE
            others = [other for other in others if quoting not in other.provider.capabilities]
        if run.config.search_tool is not None:
            others = [other for other in others if other.provider.calls_tools]
        return [ModelTarget(run.provider, run.model), *others]

    def _limit_s(self, run: QueryRun, *, is_last: bool) -> float | None:
        """Return the time for the first token or a whole buffered answer that leaves some for later steps."""
        left_s = run.deadline.remaining_s()
        if left_s == float("inf") or (is_last and not self.enabled):
            return None
        if is_last:
            return max(left_s - min(_RESERVED_S, left_s / 5), 0.0)
        return left_s / 2

    def _stale(self, run: QueryRun, stored: StoredAnswer, error: VectorForgeError) -> Iterator[QueryEvent]:
        yield self._step(run, "stale", error)
        yield from replay(run, stored)

    def _last(self, run: QueryRun, error: VectorForgeError) -> Iterator[QueryEvent]:
        sentence = run.preset.unavailable_answer
        if sentence is None or run.config.needs_model:
            raise unavailable(error) from error
        run.provider = run.llm_model = None
        yield self._step(run, "template", error)
        yield from run.adopt(sentence)

    def _step(
        self,
        run: QueryRun,
        step: Degradation,
        error: VectorForgeError,
        *,
        quoter: BaseLLMProvider | None = None,
    ) -> DegradedEvent:
        run.degraded.append(step)
        self._metrics.increment("pipeline.query.degraded", tags={"step": step})
        if step != "provider":
            # a fallback must not hide an outage from the alarm
            self._metrics.increment("pipeline.query.faults")
        if step == "passages":
            run.provider, run.llm_model = quoter, None
        return DegradedEvent(
            step=step,
            reason=error.code,
            provider=run.provider.name if run.provider else None,
            model=run.model,
            extractive=step == "passages" or run.is_extractive,
        )
