"""The ladder: what answers when the model does not. The first step that works is taken, and it is marked.

1. the model that was asked; 2. another provider, in the configured order ("provider"); 3. the answer that the
same question got before on the same documents, although it has expired ("stale"); 4. the passages, quoted
("passages"); 5. the door's fixed sentence, if it has one ("template"); 6. 503 with Retry-After.

Where the question cannot be embedded, a hybrid search goes on by words alone ("lexical"), and the steps above
follow. Where the search itself fails, 3, 5 and 6 remain; a model is asked without passages only when the
caller allowed it ("ungrounded"). A step is taken before the first token or not at all.
"""

from collections.abc import AsyncGenerator, Iterable, Iterator
from contextlib import aclosing

from vectorforge.errors import (
    DatabaseError,
    DeadlineExceededError,
    EmbeddingError,
    LLMError,
    VectorForgeError,
)
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import LLMProviderRegistry, ModelTarget
from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.answer_cache.cache import replay, restore_chunks
from vectorforge.pipeline.answer_cache.stored_answer import StoredAnswer
from vectorforge.pipeline.fallback.quoting import (
    is_final,
    may_answer_without_search,
    quote_passages,
    unavailable,
)
from vectorforge.pipeline.fallback.shortening import BuildContext, generate_within_context
from vectorforge.pipeline.prompts import NO_RESULTS_ANSWER
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import (
    Degradation,
    DegradedEvent,
    QueryEvent,
    SourcesEvent,
    TokenEvent,
    UsageEvent,
)
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector

_KEPT_BACK_S = 2.0
"""Of the time, for the steps after the last model; a fifth of it when it is short."""


class DegradationLadder:
    """Finds who or what answers.

    Args:
        registry: Has the models, their order and their breakers.
        quoter: Quotes passages (``ExtractiveProvider``); None gives the best passages as they are.
        enabled: Whether there are steps below the models; without them errors are raised as they are.
        metrics: Where ``pipeline.query.degraded`` goes.
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
        """The answer after a search, or the one that was found in the cache.

        Args:
            run: Has its prompt.
            build_context: Makes a shorter one.

        Yields:
            At most one ``DegradedEvent``, then tokens and citations, then one ``UsageEvent``.

        Raises:
            LLMError: The answer broke off; or no step works and the error says more than that.
            DeadlineExceededError: The time ran out.
            AnswerUnavailableError: No step works.
        """
        if (known := self._known(run)) is not None:
            for event in known:
                yield event
            return
        try:
            async with aclosing(self._written(run, build_context)) as events:
                async for event in events:
                    yield event
            return
        except (LLMError, DeadlineExceededError) as exc:
            if not self.enabled or run.provider is None or is_final(run, exc):
                raise
            error: VectorForgeError = exc
        for event in await self._instead(run, error):
            yield event

    def without_vectors(self, run: QueryRun) -> Iterator[DegradedEvent]:
        """What there is to say of a search whose passages were found by words only because of a fault.

        Yields:
            At most one ``DegradedEvent``.
        """
        if run.retrieved.vectors_error is not None:
            yield self._step(run, "lexical", run.retrieved.vectors_error)

    def _known(self, run: QueryRun) -> Iterator[QueryEvent] | None:
        """The answer that no model is asked for: from the cache, or the sentence when nothing was found."""
        if run.cache.hit and run.cache.stored is not None:
            return replay(run, run.cache.stored)
        if run.retrieved:
            return None
        run.outcome = "empty"
        if run.preset.on_empty == "generate":
            return None
        run.finish_reason = "empty"
        return _say(run, NO_RESULTS_ANSWER)

    async def _instead(self, run: QueryRun, error: VectorForgeError) -> Iterable[QueryEvent]:
        """The answer when no model gives one."""
        stored = run.cache.stored
        if stored is not None and [c.chunk.id for c in stored.retrieved] == [
            c.chunk.id for c in run.retrieved
        ]:  # else its labels would name other chunks
            return self._stale(run, stored, error)
        run.structured = None  # what a model that failed has begun
        if run.config.quote_passages and run.payload is not None and run.used:
            step = self._step(run, "passages", error, quoter=self._quoter)
            return [step, *await quote_passages(run, run.payload, self._quoter)]
        return self._last(run, error)

    def check_search(self, run: QueryRun, error: VectorForgeError) -> None:
        """Raise unless a step may be taken in place of a search that failed.

        Raises:
            VectorForgeError: ``error``, if it says more than ``AnswerUnavailableError``.
        """
        may_write = self._may_write(run, error)
        is_outage = may_answer_without_search(error) or (may_write and isinstance(error, DatabaseError))
        if not self.enabled or not is_outage:
            raise error
        if run.cache.stored is None and not may_write and run.preset.unavailable_answer is None:
            raise unavailable(error) from error

    async def without_search(
        self, run: QueryRun, error: VectorForgeError, build_context: BuildContext
    ) -> AsyncGenerator[QueryEvent, None]:
        """The answer after a search that failed with an error that ``check_search`` let pass.

        Args:
            run: Has no passages.
            error: Why.
            build_context: Makes the prompt of what the run has.

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
        if self._may_write(run, error):
            try:
                written = self._written(run, build_context, ("ungrounded", error))
                async with aclosing(written) as events:
                    async for event in events:
                        yield event
                return
            except LLMError as exc:
                if is_final(run, exc):
                    raise
                error = exc
        for event in self._last(run, error):
            yield event

    def _may_write(self, run: QueryRun, error: VectorForgeError) -> bool:
        """Whether a model may be asked without passages after a search that failed with this."""
        allowed = run.config.allow_ungrounded
        if allowed == "after_embedding":
            allowed = not isinstance(error, EmbeddingError)
        return allowed and run.provider is not None and not _quotes(run.provider)

    async def _written(
        self, run: QueryRun, build_context: BuildContext, *taken: tuple[Degradation, VectorForgeError]
    ) -> AsyncGenerator[QueryEvent, None]:
        """The answer by the first model that gives one, after the steps taken."""
        writers = self._writers(run)
        steps = list(taken)
        for number, writer in enumerate(writers, start=1):
            breaker = self._registry.breakers.find(writer.provider.name, writer.model)
            limit_s = self._limit_s(run, is_last=number == len(writers))
            answer = generate_within_context(run, writer, breaker, build_context, limit_s=limit_s)
            try:
                has_begun = False
                async with aclosing(answer) as events:
                    async for event in events:
                        if not has_begun:  # only now it is certain who answers
                            has_begun = True
                            run.provider, run.llm_model = writer.provider, writer.model
                            for step, error in steps:
                                yield self._step(run, step, error)
                        yield event
                return
            except (LLMError, DeadlineExceededError) as exc:
                if number == len(writers) or is_final(run, exc):
                    raise
                steps = [*taken, ("provider", exc)]

    def _writers(self, run: QueryRun) -> list[ModelTarget]:
        """Who may be asked, in order. A provider that the caller names is not replaced by another vendor."""
        if run.provider is None or run.model is None:
            raise LLMError(
                "No LLM providers configured: set VECTORFORGE_OPENAI_API_KEY or another provider's key."
            )
        others = [] if run.config.llm_provider else self._registry.fallbacks_of(run.provider)
        return [ModelTarget(run.provider, run.model), *others]

    def _limit_s(self, run: QueryRun, *, is_last: bool) -> float | None:
        """Time for the first token, or a whole buffered answer, so that some is left for the steps below."""
        left_s = run.deadline.remaining_s()
        if left_s == float("inf") or (is_last and not self.enabled):
            return None
        if is_last:
            return max(left_s - min(_KEPT_BACK_S, left_s / 5), 0.0)
        return left_s / 2

    def _stale(self, run: QueryRun, stored: StoredAnswer, error: VectorForgeError) -> Iterator[QueryEvent]:
        yield self._step(run, "stale", error)
        yield from replay(run, stored)

    def _last(self, run: QueryRun, error: VectorForgeError) -> Iterator[QueryEvent]:
        sentence = run.preset.unavailable_answer
        if sentence is None:
            raise unavailable(error) from error
        run.provider = run.llm_model = None
        yield self._step(run, "template", error)
        yield from _say(run, sentence)

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
            self._metrics.increment("pipeline.query.faults")  # the alarm on an outage must not fall silent
        if step == "passages":
            run.provider, run.llm_model = quoter, None
        return DegradedEvent(
            step=step,
            reason=error.code,
            provider=run.provider.name if run.provider else None,
            model=run.model,
            extractive=step == "passages" or (run.provider is not None and _quotes(run.provider)),
        )


def _quotes(provider: BaseLLMProvider) -> bool:
    return ProviderCapability.EXTRACTIVE in provider.capabilities


def _say(run: QueryRun, sentence: str) -> Iterator[QueryEvent]:
    """A fixed sentence as an answer."""
    run.answer, run.use.cost_usd = sentence, 0.0
    yield TokenEvent(sentence)
    yield UsageEvent(0, 0, 0)
