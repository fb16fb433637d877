"""Last step of a query: its log record, and the writes batched with it. No failure here fails the query."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import KW_ONLY, dataclass, fields
from typing import TYPE_CHECKING, Any, Protocol

from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogRepository
from vectorforge.db.repositories.query_lookup_repo import QueryVectorRepository
from vectorforge.errors import VectorForgeError, reason_of
from vectorforge.llm.types import LLMRequestConfig, Message
from vectorforge.pipeline.answer_cache.cache import AnswerCache
from vectorforge.pipeline.guardrails.log_text import LogTexts
from vectorforge.pipeline.presets import preset_text
from vectorforge.pipeline.prompts import FENCE, prompt_digest
from vectorforge.pipeline.run import QueryRun
from vectorforge.telemetry import MetricsCollector, Tracer, measure

if TYPE_CHECKING:
    from vectorforge.db.tenant_database import Call, TenantDatabase
    from vectorforge.limits.admission import Admission

logger = logging.getLogger(__name__)

_WRITE_TIMEOUT_S = 1.0
"""Time limit of the batched writes: without caches there would be no such wait."""
_LATE_S = 1.0
"""Time limit of the record of a query without time left: Lambda stops the process two seconds later."""


_SETTINGS = [field.name for field in fields(LLMRequestConfig)]
_DEFAULTS = LLMRequestConfig("")
_LATER = (
    "schema_name", "strict_schema", "is_callers_schema", "json_object",
    "tools", "tool_choice", "parallel_tool_calls",
)  # fmt: skip
"""Settings that earlier versions did not have: left out of the hash if not used, which so stays the same."""


class QueryLogSink(Protocol):
    """Destination of log records: the table (``QueryLogRepository``), or a queue before it."""

    async def start(self, query_log: QueryLog) -> None:
        """Store the record of a query that has begun, so that a killed process leaves a trace."""
        ...

    async def create(self, query_log: QueryLog) -> None:
        """Store the record of a query's end; a second one with the same id changes nothing."""
        ...


@dataclass(eq=False, slots=True)
class QueryEndWrites:
    """Statements that are run at a query's end: cached answer, cached vector, settled limits.

    Args:
        db: Database of the tenant.
        answers: Answer cache of the same tenant; None: answers are not cached.
        vectors: Vector cache of the same tenant; None: vectors are not cached.
        admission: Admission of the query's request; None: it has no limits.
    """

    db: "TenantDatabase"
    _: KW_ONLY
    answers: AnswerCache | None
    vectors: QueryVectorRepository | None
    admission: "Admission | None" = None

    def statements(self, run: QueryRun) -> "list[Call]":
        """Return the statements, which may be run twice. A cached answer settles no tokens and no cost."""
        calls: list[Call] = []
        if self.admission is not None:
            calls += self.admission.settling(run.used_tokens, run.cost_usd if run.used_tokens else None)
        if self.vectors is not None and run.retrieved.new_vector is not None:
            calls.append(self.vectors.end_write(*run.retrieved.new_vector))
        if self.answers is not None and run.is_cacheable:
            calls += self.answers.end_write(run)
        return calls

    def confirm(self) -> None:
        """Note that the statements were committed."""
        if self.admission is not None:
            self.admission.confirm()

    async def run(self, calls: "Sequence[Call]") -> bool:
        """Run the statements in a transaction of their own; return False if that failed."""
        try:
            async with asyncio.timeout(_WRITE_TIMEOUT_S):
                await self.db.run(calls, repeatable=True)
        except (VectorForgeError, TimeoutError) as exc:
            logger.warning("The answer was not stored: %s", reason_of(exc))
            return False
        return True


@dataclass(eq=False, slots=True)
class QueryLogging:
    """Writes the records of a query.

    Args:
        sink: Bound to the tenant.
        metrics: Collector of ``query_log.write.*``: one measurement for each query, of its end.
        tracer: Collector of the span log.
        timeout_s: Time limit of one record.
        table: The sink as the table; None if records go to another place than the database.
        end_writes: Writes batched with the record of the end; None for none.
        texts: Policy of the tenant for logged texts; None: texts are logged in full.
        export: Accepts the record of a query's end for the export of its trace, without waiting; None if the
            reader of the sink exports it.
    """

    sink: QueryLogSink
    _: KW_ONLY
    metrics: MetricsCollector
    tracer: Tracer
    timeout_s: float
    table: QueryLogRepository | None = None
    end_writes: QueryEndWrites | None = None
    texts: LogTexts | None = None
    export: Callable[[QueryLog], None] | None = None

    async def start(self, run: QueryRun) -> None:
        """Log that the query has begun. Raises nothing but a cancellation."""
        await shielded(self._start(run))

    async def end(self, run: QueryRun) -> None:
        """Log the end of the query. Raises nothing but a cancellation."""
        await shielded(self._end(run))

    async def _start(self, run: QueryRun) -> None:
        with _failures_are_warnings():
            record = await self._allowed(run.start_record())
            async with asyncio.timeout(self.timeout_s):
                await self.sink.start(record)

    async def _end(self, run: QueryRun) -> None:
        limit_s = self.timeout_s if run.deadline.remaining_s() > 0 else min(self.timeout_s, _LATE_S)
        # The limit is innermost, so that running out of time counts as an error.
        span, measured = self.tracer.span("log", run.trace), measure(self.metrics, "query_log.write")
        with _failures_are_warnings(), span, measured:
            # Not within the limit: only the sink prints a record that it cannot send in time.
            record = await self._allowed(run.log_record())
            async with asyncio.timeout(limit_s):
                await self._create(run, record)

    async def _create(self, run: QueryRun, record: QueryLog) -> None:
        writes = self.end_writes
        if self.export is not None:
            self.export(record)
        calls = [] if writes is None else writes.statements(run)
        if not calls or writes is None or run.deadline.remaining_s() <= 0:  # the request's end settles
            await self.sink.create(record)
            return
        if self.table is None:
            _, are_committed = await asyncio.gather(self.sink.create(record), writes.run(calls))
        else:
            are_committed = await self.table.create_with(record, calls, timeout_s=_WRITE_TIMEOUT_S)
        if are_committed:
            writes.confirm()

    async def _allowed(self, record: QueryLog) -> QueryLog:
        return record if self.texts is None else await self.texts.apply(record)


def logged_request(run: QueryRun, messages: Sequence[Message], request: LLMRequestConfig) -> dict[str, Any]:
    """Return what the query log has of a request to a model, for a replay: hashes and settings, no texts."""
    settings, logged = {name: getattr(request, name) for name in _SETTINGS}, dict[str, Any]()
    for name in _LATER:
        if settings[name] == getattr(_DEFAULTS, name):
            del settings[name]
    if not settings.keys().isdisjoint(_LATER) or request.stop_sequences:
        from vectorforge.pipeline.output_format import logged_output

        logged = logged_output(request)
    return {
        "sha256": prompt_digest([messages, settings]),
        "prompt_sha256": prompt_digest([run.config.system_prompt or preset_text(run.preset.name), FENCE]),
        **{name: getattr(request, name) for name in ("model", "temperature", "top_p", "max_tokens")},
        "context_limit": run.context_limit,
        "history": len(run.config.history),
        **logged,
    }


@contextmanager
def _failures_are_warnings() -> Iterator[None]:
    try:
        yield
    except Exception as exc:  # noqa: BLE001 - a failed log does not fail the query (A-117)
        logger.warning(f"Failed to log query: {reason_of(exc)}")


async def shielded(step: Coroutine[Any, Any, None]) -> None:
    """Run a step to its end even if the task is canceled meanwhile; then raise the cancellation."""
    task = asyncio.create_task(step)
    try:
        await asyncio.shield(task)
    except asyncio.CancelledError:
        await task
        raise
