"""The log of a query: where its two records go, and that nothing about it is ever the query's failure."""

import asyncio
import logging
from collections.abc import Coroutine, Iterator
from contextlib import contextmanager
from typing import Any, Protocol

from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import VectorForgeError
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
    """

    def __init__(
        self, sink: QueryLogSink, *, metrics: MetricsCollector, tracer: Tracer, timeout_s: float
    ) -> None:
        self._sink = sink
        self._metrics = metrics
        self._tracer = tracer
        self._timeout_s = timeout_s

    async def start(self, run: QueryRun) -> None:
        """Log that the query has begun. Never raises, except to go on being cancelled."""
        await _to_the_end(self._start(run))

    async def end(self, run: QueryRun) -> None:
        """Log how the query ended. Never raises, except to go on being cancelled."""
        await _to_the_end(self._end(run))

    async def _start(self, run: QueryRun) -> None:
        with _failures_are_warnings():
            async with asyncio.timeout(self._timeout_s):
                await self._sink.start(run.start_record())

    async def _end(self, run: QueryRun) -> None:
        limit_s = self._timeout_s if run.deadline.remaining_s() > 0 else min(self._timeout_s, _LATE_S)
        # The limit is innermost, so that running out of time counts as an error.
        with _failures_are_warnings(), self._tracer.span("log"), measure(self._metrics, "query_log.write"):
            async with asyncio.timeout(limit_s):
                await self._sink.create(run.log_record())


@contextmanager
def _failures_are_warnings() -> Iterator[None]:
    try:
        yield
    except Exception as e:  # noqa: BLE001 - whatever is wrong with the log, the query goes on (A-117)
        # Only our own errors' texts are known to hold no secret.
        logger.warning(f"Failed to log query: {e if isinstance(e, VectorForgeError) else type(e).__name__}")


async def _to_the_end(step: Coroutine[Any, Any, None]) -> None:
    """Log, also when the client goes away meanwhile; then the cancellation goes on."""
    task = asyncio.create_task(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
