"""``QueryService``: look up, preprocess, retrieve, build the context, generate, check citations, log.

``query()``, ``query_stream()`` and every API surface are views of one stream of events.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import aclosing, nullcontext
from uuid import UUID, uuid4

from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError, log_unexpected
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.answer_cache.lookup import QueryLookupService
from vectorforge.pipeline.context import ContextBuilder
from vectorforge.pipeline.conversation import ConversationMemory, QueryRewriter
from vectorforge.pipeline.dry_run import DryRun, describe_request
from vectorforge.pipeline.fallback.ladder import DegradationLadder
from vectorforge.pipeline.guardrails.log_text import LogTexts
from vectorforge.pipeline.prices import PUBLISHED_PRICES, PriceList
from vectorforge.pipeline.query_log import QueryEndWrites, QueryLogging, QueryLogSink
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.steps import QuerySteps
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import DoneEvent, ErrorEvent, QueryConfig, QueryEvent, QueryResult, TokenEvent
from vectorforge.retriever.base import (
    BaseRetriever,
    CollectionChoice,
    QueriedCollection,
    QueryPreprocessor,
    check_query,
)
from vectorforge.telemetry import InMemoryMetrics, MetricsCollector, NoTracer, Tracer, measure

logger = logging.getLogger(__name__)


class QueryService:
    """Answers queries of one tenant.

    Args:
        retriever: Bound to the tenant.
        context_builder: Builds the prompt.
        llm_registry: Answering models by name.
        query_log_repo: Sink of the log records of the tenant. The first is awaited before the first event,
            the second before the last event: nothing runs after a response on Lambda.
        metrics: Collector of ``pipeline.*`` and ``context.*``.
        tracer: Collector of the spans of ``SPAN_NAMES``.
        timeout_s: Time limit of a query.
        log_timeout_s: Longest wait of the first event, and of the last, for the log.
        prices: Prices for the estimated cost of an answer.
        memory: Conversations of the same tenant; None: only messages that the request sends.
        rewriter: Makes follow-up queries self-contained; None for one with default settings.
        ladder: Fallbacks if the model fails; None: errors are raised.
        lookup: Step 0, of the same tenant; None: collections are given by id, and the retriever reads them.
        answer_cache: Cache of the same tenant; None: answers are not cached.
        log_table: The sink as the table, if records go to the database.
        end_writes: Writes batched with the final log record; given with ``lookup``. None: answers are not
            stored, and the retriever stores vectors itself.
        log_texts: Policy of the same tenant for logged texts; None: texts are logged in full.
        export_trace: See ``QueryLogging``.
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
        rewriter: QueryRewriter | None = None,
        ladder: DegradationLadder | None = None,
        lookup: QueryLookupService | None = None,
        answer_cache: AnswerCache | None = None,
        log_table: QueryLogRepository | None = None,
        end_writes: QueryEndWrites | None = None,
        log_texts: LogTexts | None = None,
        export_trace: Callable[[QueryLog], None] | None = None,
    ) -> None:
        self.metrics: MetricsCollector = metrics or InMemoryMetrics()
        self._timeout_s = timeout_s
        self._prices = prices
        self._retriever = retriever
        self._context_builder = context_builder
        self._llm_registry = llm_registry
        self._query_log_repo = query_log_repo
        self._preprocessor = preprocessor or QueryPreprocessor()
        self._tracer: Tracer = tracer or NoTracer()
        self._memory = memory or ConversationMemory()
        self._rewriter = rewriter or QueryRewriter(llm_registry)
        self._ladder = ladder or DegradationLadder(llm_registry, enabled=False, metrics=self.metrics)
        self._lookup = lookup
        self._answer_cache = answer_cache
        self._query_log = QueryLogging(
            query_log_repo,
            metrics=self.metrics,
            tracer=self._tracer,
            timeout_s=log_timeout_s,
            table=log_table,
            end_writes=end_writes,
            texts=log_texts,
            export=export_trace,
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
            self._rewriter,
            self._ladder,
            self._lookup,
            self._answer_cache,
            self.metrics,
            self._tracer,
            self._timeout_s,
        )

    async def query(
        self,
        query: str,
        collection_id: QueriedCollection,
        config: QueryConfig | None = None,
        *,
        request_id: UUID | None = None,
        deadline: Deadline | None = None,
    ) -> QueryResult:
        """Return the complete answer.

        Args:
            query: Text in any language of the embedding model.
            collection_id: Collection to search; an id wins over a name.
            config: None for ``QueryConfig()``.
            request_id: Id of the log record; None for a new one.
            deadline: None for ``timeout_s`` from now.

        Raises:
            InvalidInputError: The query or a setting is invalid.
            NotFoundError: The collection does not exist.
            LimitExceededError: A limit of the tenant is reached.
            EmbeddingError, LLMError: Query not embedded, or answer not generated.
            AnswerUnavailableError: Neither worked, and no fallback.
            DatabaseError: The search failed.
        """
        run = await self.begin(
            query, collection_id, config, request_id=request_id, deadline=deadline, buffered=True
        )
        return await self.result(run)

    async def result(
        self, run: QueryRun, observe: Callable[[QueryEvent], Awaitable[None]] | None = None
    ) -> QueryResult:
        """Return the complete answer of a run that ``begin`` returned; raises as ``query``."""
        async with aclosing(self.events(run)) as events:
            async for event in events:
                if isinstance(event, DoneEvent):
                    return event.result
                if isinstance(event, ErrorEvent):
                    raise event.error
                if observe is not None:
                    await observe(event)
        raise VectorForgeError("The query ended without a result.")

    async def query_stream(
        self,
        query: str,
        collection_id: QueriedCollection,
        config: QueryConfig | None = None,
        *,
        collector: Callable[[QueryResult], None] | None = None,
    ) -> AsyncGenerator[str, None]:
        """Yield the answer's text, piece by piece; then call ``collector`` with the complete result.

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
        collection_id: QueriedCollection,
        config: QueryConfig | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> AsyncGenerator[QueryEvent, None]:
        """Yield the query as typed events in the order of ``pipeline.types``; a failure is the last event.

        Closing the iterator early stops the model and logs the query as aborted.
        """
        try:
            run = await self.begin(query, collection_id, config, deadline=deadline)
        except VectorForgeError as exc:
            yield ErrorEvent(error=exc, stage="retrieve")
            return
        async with aclosing(self.events(run)) as events:
            async for event in events:
                yield event

    async def dry_run(
        self,
        query: str,
        collection_id: QueriedCollection,
        config: QueryConfig | None = None,
        *,
        deadline: Deadline | None = None,
    ) -> DryRun:
        """Return the request that the model would get, streamed or buffered as ``config.stream`` says.

        The search runs; no model is called; nothing is logged, stored or taken from the answer cache.

        Raises:
            InvalidInputError: As ``query``, or the query would have to be rewritten first.
            VectorForgeError: As ``query``, from the look-up and the search.
        """
        buffered = not (config or QueryConfig()).stream
        run = await self.begin(query, collection_id, config, deadline=deadline, buffered=buffered)
        return describe_request(run, await self._steps.prompt_only(run))

    async def begin(
        self,
        query: str,
        collection_id: QueriedCollection,
        config: QueryConfig | None = None,
        *,
        request_id: UUID | None = None,
        deadline: Deadline | None = None,
        buffered: bool = False,
        stop: StopSignal | None = None,
    ) -> QueryRun:
        """Run step 0, in one round trip; ``events`` or ``result`` runs the others.

        Arguments as for ``query``; ``buffered`` requests the whole answer at once, ``stop`` ends it early.

        Raises:
            VectorForgeError: The query is not text, the collection does not exist, a limit is reached, or the
                database failed; the query is not logged.
        """
        check_query(query)
        run = QueryRun(
            query=query,
            choice=CollectionChoice.of(collection_id),
            config=config or QueryConfig(),
            request_id=request_id or uuid4(),
            deadline=deadline or Deadline.after(self._timeout_s),
            buffered=buffered,
            prices=self._prices,
            stop=stop,
        )
        await self._steps.look_up(run)
        return run

    async def events(self, run: QueryRun) -> AsyncGenerator[QueryEvent, None]:
        """Yield the events of a run that ``begin`` returned; as ``query_events``."""
        variant = run.config.variant
        with self._tracer.span("query", run.trace):
            try:
                with (
                    measure(self.metrics, "pipeline.query") as measurement,
                    measure(self.metrics, "pipeline.variant", {"variant": variant})
                    if variant
                    else nullcontext(),
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
            except BaseException:  # a disconnect (GeneratorExit) or a shutdown (CancelledError)
                run.outcome = "aborted"
                await self._end(run)
                raise
            await self._end(run)
        yield last

    async def _end(self, run: QueryRun) -> None:
        """Log the query, and store its exchange concurrently."""
        if run.config.conversation_id is None:
            await self._log_query(run)
            return
        memory = self._memory
        of_conversation = memory.drop_begun if run.outcome == "aborted" else memory.store_exchange
        await asyncio.gather(self._log_query(run), of_conversation(run))

    async def _log_query(self, run: QueryRun) -> None:
        await self._query_log.end(run)

    def _fail(self, run: QueryRun, error: VectorForgeError) -> ErrorEvent:
        if error.is_fault:
            self.metrics.increment("pipeline.query.faults")
        return run.fail(error)
