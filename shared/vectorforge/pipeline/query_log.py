"""The log of a query: where its two records go, and that nothing about it is ever the query's failure."""

import asyncio
import logging
from collections.abc import Coroutine
from types import TracebackType
from typing import Any, Protocol

from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.answer_cache.end_writes import KEEP_TIMEOUT_S, QueryEndWrites
from vectorforge.pipeline.guardrails.log_text import LogTexts
from vectorforge.pipeline.run import QueryRun
from vectorforge.telemetry import MetricsCollector, Tracer, measure

logger = logging.getLogger(__name__)

_LATE_S = 1.0
"""For the record of a query that has used up its time: Lambda stops the process two seconds after that."""


class QueryLogSink(Protocol):
    """Takes the records of a query: the table itself (``QueryLogRepository``), or a queue before it."""

    async def start(self, query_log: QueryLog) -> None:
        """Note that the query has begun: then it is known even if this process is killed before its end."""
        ...

    async def create(self, query_log: QueryLog) -> None:
        """Keep the record of the query's end; a second one with the same id changes nothing."""
        ...


class QueryLogging:
    """Hands records to a sink.

    Args:
        sink: Bound to the tenant.
        metrics: Where ``query_log.write.*`` goes: one measurement for each query, of its end.
        tracer: Where the span log goes.
        timeout_s: Longest time for one record.
        end_write: The statements that are to be run at a query's end beside its record; None: there are none.
        texts: What may be kept of the texts, of the same tenant; None: all of it.
    """

    def __init__(
        self,
        sink: QueryLogSink,
        *,
        metrics: MetricsCollector,
        tracer: Tracer,
        timeout_s: float,
        end_write: QueryEndWrites | None = None,
        texts: LogTexts | None = None,
    ) -> None:
        self._sink = sink
        self._metrics = metrics
        self._tracer = tracer
        self._timeout_s = timeout_s
        self._keeping = end_write
        self._texts = texts

    @property
    def goes_elsewhere(self) -> bool:
        """Whether records go to another place than the database.

        Then a query's beginning is logged beside the search. In the database the two would need two
        connections at a time, and a full pool would refuse requests that it serves now.
        """
        return not isinstance(self._sink, QueryLogRepository)

    async def start(self, run: QueryRun) -> None:
        """Log that the query has begun. Never raises, except to go on being cancelled."""
        await shielded(self._start(run))

    async def end(self, run: QueryRun) -> None:
        """Log how the query ended. Never raises, except to go on being cancelled."""
        await shielded(self._end(run))

    async def _start(self, run: QueryRun) -> None:
        with _FailuresAreWarnings():
            async with asyncio.timeout(self._timeout_s):
                await self._sink.start(await self._allowed(run.start_record()))

    async def _end(self, run: QueryRun) -> None:
        limit_s = self._timeout_s if run.deadline.remaining_s() > 0 else min(self._timeout_s, _LATE_S)
        # The limit is innermost, so that running out of time counts as an error.
        with _FailuresAreWarnings(), self._tracer.span("log"), measure(self._metrics, "query_log.write"):
            async with asyncio.timeout(limit_s):
                await self._create(run)

    async def _create(self, run: QueryRun) -> None:
        end_write, record = self._keeping, await self._allowed(run.log_record())
        beside = [] if end_write is None else end_write.statements(run)
        if not beside or end_write is None or run.deadline.remaining_s() <= 0:  # settled by the request's end
            await self._sink.create(record)
        elif isinstance(self._sink, QueryLogRepository):
            if await self._sink.create_with(record, beside, timeout_s=KEEP_TIMEOUT_S):
                end_write.confirm()
        else:
            await asyncio.gather(self._sink.create(record), end_write.run(beside))

    async def _allowed(self, record: QueryLog) -> QueryLog:
        return record if self._texts is None else await self._texts.apply(record)


class _FailuresAreWarnings:
    """Whatever is wrong with the log, the query goes on (A-117)."""

    __slots__ = ()

    def __enter__(self) -> None:
        return

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> bool:
        if not isinstance(exc, Exception):
            return False
        # Only our own errors' texts are known to hold no secret.
        logger.warning(
            f"Failed to log query: {exc if isinstance(exc, VectorForgeError) else type(exc).__name__}"
        )
        return True


async def shielded(step: Coroutine[Any, Any, None]) -> None:
    """Log, also when the client goes away meanwhile; then the cancellation goes on."""
    task = asyncio.create_task(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
