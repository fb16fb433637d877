"""``QueryService``: preprocess, retrieve, build the context, generate, check citations, log.

``query()``, ``query_stream()`` and every HTTP door are views of one stream of events,
``query_events()``, so that they cannot differ.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable
from contextlib import AbstractContextManager, aclosing, nullcontext
from uuid import UUID, uuid4

from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError, log_unexpected
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.answer_cache.end_writes import QueryEndWrites
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.conversation import ConversationMemory
from vectorforge.pipeline.dry_run import DryRun, describe_request
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.guardrails.log_text import LogTexts
from vectorforge.pipeline.prices import PUBLISHED_PRICES, PriceList
from vectorforge.pipeline.query_log import QueryLogging
from vectorforge.pipeline.query_log import QueryLogSink as QueryLogSink  # belongs to this interface
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.steps import QuerySteps
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import DoneEvent, ErrorEvent, QueryConfig, QueryEvent, QueryResult, TokenEvent
from vectorforge.retriever.base import BaseRetriever, QueryLookup, QueryPreprocessor
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, Tracer, measure

logger = logging.getLogger(__name__)


class QueryService:
    """Answers questions of one tenant.

    Args:
        retriever: Bound to the tenant.
        context_builder: Makes the prompt.
        llm_registry: Where the answering model is found by name.
        query_log_repo: Where records go, bound to the tenant. The first is awaited before the first event,
            beside the search, the second before the last event: nothing runs after a response on Lambda.
        preprocessor: Cleans the question.
        metrics: Where ``pipeline.*`` and ``context.*`` go.
        tracer: Where the spans preprocess, retrieve, context, generate and log go.
        timeout_s: Longest time for one question.
        log_timeout_s: Longest time that the first event, and the last, wait for the log.
        prices: By which an answer's cost is estimated.
        memory: Of the same tenant; None: only conversations that are sent along.
        ladder: Who or what answers when the model does not; None: nobody, errors are raised.
        answer_cache: Of the same tenant; None: every question is answered anew.
        end_write: Writes batched with the final log record; same tenant and cache. None:
            the cache keeps answers by itself, and the retriever vectors.
        log_texts: What records may hold of questions and answers, of the same tenant; None: all.
    """

    def __init__(
        self,
        retriever: BaseRetriever,
        context_builder: ContextBuilder,
        llm_registry: LLMProviderRegistry,
        query_log_repo: QueryLogSink,
        *,
        preprocessor: QueryPreprocessor | None = None,
        metrics: MetricsCollector | None = None,
        tracer: Tracer | None = None,
        timeout_s: float = 120.0,
        log_timeout_s: float = 2.0,
        prices: PriceList = PUBLISHED_PRICES,
        memory: ConversationMemory | None = None,
        ladder: DegradationLadder | None = None,
        answer_cache: AnswerCache | None = None,
        end_write: QueryEndWrites | None = None,
        log_texts: LogTexts | None = None,
    ) -> None:
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self._timeout_s = timeout_s
        self._prices = prices
        self._keeping = end_write
        self._retriever = retriever
        self._context_builder = context_builder
        self._llm_registry = llm_registry
        self._query_log_repo = query_log_repo
        self._preprocessor = preprocessor or QueryPreprocessor()
        self._tracer: Tracer = tracer or NoTracer()
        self._memory = memory or ConversationMemory()
        self._ladder = ladder or DegradationLadder(llm_registry, enabled=False, metrics=self.metrics)
        self._answer_cache = answer_cache
        self._query_log = QueryLogging(
            query_log_repo,
            metrics=self.metrics,
            tracer=self._tracer,
            timeout_s=log_timeout_s,
            end_write=end_write,
            texts=log_texts,
        )

    @property
    def _steps(self) -> QuerySteps:
        return QuerySteps(
            self._retriever,
            self._context_builder,
            self._llm_registry,
            self._preprocessor,
            self._query_log,
            self._memory,
            self._ladder,
            self._answer_cache,
            self.metrics,
            self._tracer,
        )

    async def query(
        self,
        query: str,
        collection_id: UUID,
        config: QueryConfig | None = None,
        *,
        request_id: UUID | None = None,
        deadline: Deadline | None = None,
        data_version: int | None = None,
        known: QueryLookup | None = None,
    ) -> QueryResult:
        """The complete answer.

        Args:
            query: The question, in any language the collection's embedding model knows.
            collection_id: Where to look.
            config: None takes ``QueryConfig()``.
            request_id: Becomes the log record's id; None makes one.
            deadline: None allows ``timeout_s``.
            data_version: Of the collection, when the caller has read it for this question; it saves reading
                it again.
            known: What ``QueryLookupService`` has found for just this question and configuration.

        Raises:
            InvalidInputError: The question or a setting is not usable.
            NotFoundError: There is no such collection.
            EmbeddingError: The question could not be embedded.
            LLMError: The answer could not be generated.
            AnswerUnavailableError: Neither of the two, and no step down from the full answer works.
            DatabaseError: The search failed.
        """
        run = self._start(query, collection_id, config, request_id, deadline, buffered=True)
        self._note_known(run, data_version, known)
        async with aclosing(self._run(run)) as events:
            async for event in events:
                if isinstance(event, DoneEvent):
                    return event.result
                if isinstance(event, ErrorEvent):
                    raise event.error
        raise VectorForgeError("The query ended without a result.")

    async def query_stream(
        self,
        query: str,
        collection_id: UUID,
        config: QueryConfig | None = None,
        *,
        collector: Callable[[QueryResult], None] | None = None,
    ) -> AsyncGenerator[str, None]:
        """The answer's text, piece by piece.

        Args:
            query: The question.
            collection_id: Where to look.
            config: None takes ``QueryConfig()``.
            collector: Called with the complete result after the last piece.

        Raises:
            VectorForgeError: As ``query``; also after some pieces, when the answer breaks off.
        """
        async with aclosing(self.query_events(query, collection_id, config)) as events:
            async for event in events:
                if isinstance(event, TokenEvent):
                    yield event.text
                elif isinstance(event, DoneEvent) and collector is not None:
                    collector(event.result)
                elif isinstance(event, ErrorEvent):
                    raise event.error

    async def query_events(
        self,
        query: str,
        collection_id: UUID,
        config: QueryConfig | None = None,
        *,
        request_id: UUID | None = None,
        deadline: Deadline | None = None,
        data_version: int | None = None,
        known: QueryLookup | None = None,
        stop: StopSignal | None = None,
    ) -> AsyncGenerator[QueryEvent, None]:
        """The query as typed events, in the order that ``pipeline.types`` describes.

        Never raises: a failure is the last event. Closing the iterator early stops the model and logs
        the query as aborted. ``stop`` does the same and lets the events come to their end.
        """
        run = self._start(query, collection_id, config, request_id, deadline, buffered=False)
        self._note_known(run, data_version, known)
        run.stop = stop or run.stop
        async with aclosing(self._run(run)) as events:
            async for event in events:
                yield event

    async def dry_run(
        self,
        query: str,
        collection_id: UUID,
        config: QueryConfig | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> DryRun:
        """What would be sent to the model for this question; the search is made, no model is asked.

        Nothing is logged, stored or taken from a cache. Arguments as ``query``; ``config.stream`` says which
        of the two requests it is.

        Raises:
            InvalidInputError: As ``query``, or the question would have to be rewritten first.
            VectorForgeError: As ``query``, of the search.
        """
        buffered = not (config or QueryConfig()).stream
        run = self._start(query, collection_id, config, None, deadline, buffered=buffered)
        return describe_request(run, await self._steps.until_the_model(run))

    def _start(
        self,
        query: str,
        collection_id: UUID,
        config: QueryConfig | None,
        request_id: UUID | None,
        deadline: Deadline | None,
        *,
        buffered: bool,
    ) -> QueryRun:
        return QueryRun(
            query=query,
            collection_id=collection_id,
            config=config or QueryConfig(),
            request_id=request_id or uuid4(),
            deadline=deadline or Deadline.after(self._timeout_s),
            buffered=buffered,
            prices=self._prices,
        )

    def _note_known(self, run: QueryRun, data_version: int | None, known: QueryLookup | None) -> None:
        run.data_version = data_version if known is None else known.collection.data_version
        if self._keeping is not None:  # who would keep what a search leaves to others
            run.known = known

    async def _run(self, run: QueryRun) -> AsyncGenerator[QueryEvent, None]:
        """The steps, and around them what every outcome needs: metrics, one log record, one last event."""
        try:
            with (
                measure(self.metrics, "pipeline.query") as measurement,
                _measure_variant(self.metrics, run.config.variant),
            ):
                try:
                    async with aclosing(self._steps.events(run)) as events:
                        async for event in events:
                            yield event
                finally:
                    measurement.error_tags["stage"] = run.stage  # the step that was running
            last: QueryEvent = DoneEvent(run.result())
        except VectorForgeError as exc:
            last = self._fail(run, exc)
        except Exception as exc:  # noqa: BLE001 - a bug is an error event like any other failure
            log_unexpected(logger, f"Query {run.request_id} failed in stage {run.stage}", exc)
            error = VectorForgeError("The question could not be answered because of an internal error.")
            error.__cause__ = exc
            last = self._fail(run, error)
        except BaseException:
            # The client went away (GeneratorExit) or the server is stopping (CancelledError).
            run.outcome = "aborted"
            await self._log_query(run)
            raise
        await self._end(run)
        yield last

    async def _end(self, run: QueryRun) -> None:
        """Log the query, keep its answer and its exchange, side by side; none raises."""
        steps = [self._log_query(run)]
        if run.config.conversation_id is not None:
            steps.append(self._memory.keep(run))
        if self._keeping is None and self._answer_cache is not None and run.error is None:
            steps.append(self._answer_cache.keep(run))
        await (steps[0] if len(steps) == 1 else asyncio.gather(*steps))

    async def _log_query(self, run: QueryRun) -> None:
        """Log how a query ended, with or without a result; never raises, except to go on being cancelled."""
        await self._query_log.end(run)

    def _fail(self, run: QueryRun, error: VectorForgeError) -> ErrorEvent:
        if error.is_fault:
            self.metrics.increment("pipeline.query.faults")
        return run.fail(error)


def _measure_variant(metrics: MetricsCollector, name: str | None) -> AbstractContextManager[object]:
    """Measures a query with a variant by that, too; one without leaves no trace."""
    return measure(metrics, "pipeline.variant", {"variant": name}) if name else nullcontext()
