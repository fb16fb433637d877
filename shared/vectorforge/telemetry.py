"""Metrics and spans: names of all of them, collectors, tracers, timing.

Each metric is emitted in one place only. On a laptop and in tests metrics stay in memory
(``InMemoryMetrics``); on AWS the same calls become CloudWatch metrics (``aws.observability``). The spans of a
query become X-Ray subsegments (``aws.tracing``), or a part of its log record (``RecordingTracer``), which
``vectorforge.otlp`` exports.
"""

import functools
import os
import re
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Any, Final, Literal, ParamSpec, Protocol, Self, TypeAlias, TypeVar, get_args

P = ParamSpec("P")
T = TypeVar("T")

Tags = Mapping[str, str]

REQUEST_ID: ContextVar[str | None] = ContextVar("request_id", default=None)
"""``X-Request-Id`` of the current request, added to its log lines."""
CREDENTIAL: ContextVar[str | None] = ContextVar("credential", default=None)
"""Credential of the current request, as ``Principal.credential``; no secret."""


@dataclass(frozen=True, slots=True)
class MetricSpec:
    """Kind and tags of one metric."""

    kind: Literal["histogram", "counter"]
    tags: tuple[str, ...] = ()


def _histogram(*tags: str) -> MetricSpec:
    return MetricSpec("histogram", tags)


def _counter(*tags: str) -> MetricSpec:
    return MetricSpec("counter", tags)


METRICS: Mapping[str, MetricSpec] = {
    "retriever.search.duration_ms": _histogram("retriever_type"),
    "retriever.search.calls": _counter("retriever_type"),
    "retriever.search.errors": _counter("retriever_type", "error_type"),
    "retriever.results_returned": _histogram("retriever_type"),
    "retriever.empty_results": _counter("retriever_type"),
    "database.reader.searches": _counter("outcome"),
    "context.build.duration_ms": _histogram(),
    "context.tokens_used": _histogram(),
    "context.chunks_included": _histogram(),
    "context.chunks_truncated": _counter(),
    "llm.generate.duration_ms": _histogram("provider", "model"),
    "llm.generate.calls": _counter("provider", "model"),
    "llm.generate.errors": _counter("provider", "model", "error_type"),
    "llm.generate.retries": _counter("provider", "model"),
    "llm.tokens_input": _counter("provider", "model"),
    "llm.tokens_output": _counter("provider", "model"),
    "llm.streaming.chunks": _counter("provider", "model"),
    "llm.streaming.first_token_ms": _histogram("provider", "model"),
    "pipeline.query.duration_ms": _histogram(),
    "pipeline.query.calls": _counter(),
    "pipeline.query.errors": _counter("stage", "error_type"),
    # Not in the design's table: errors that no caller caused, since an alarm must ignore typing errors; poor
    # answers (D-039); metrics of the query log, the embedder and the API.
    "pipeline.query.faults": _counter(),
    "pipeline.answers.links_removed": _counter(),
    "pipeline.answers.low_quality": _counter(),
    # Queries with a variant, counted again by its name.
    "pipeline.variant.duration_ms": _histogram("variant"),
    "pipeline.variant.calls": _counter("variant"),
    "pipeline.variant.errors": _counter("variant", "error_type"),
    # Fallbacks from the full answer; answers cached in memory or in the database.
    "pipeline.query.degraded": _counter("step"),
    "pipeline.cache.hits": _counter("tier"),
    "pipeline.cache.misses": _counter(),
    "query_log.write.duration_ms": _histogram(),
    "query_log.write.calls": _counter(),
    "query_log.write.errors": _counter("error_type"),
    "query_log.rows_stored": _counter(),
    "query_log.messages_refused": _counter(),
    "traces.exported": _counter(),
    "traces.dropped": _counter(),
    "embedding.duration_ms": _histogram("provider", "model"),
    "embedding.calls": _counter("provider", "model"),
    "embedding.errors": _counter("provider", "model", "error_type"),
    "embedding.texts": _counter("provider", "model"),
    "embedding.cache_hits": _counter("provider", "model"),
    # record_request of design B (B-039): one entry per request; errors are status 400 and above.
    "http.requests": _counter("route", "method", "status"),
    "http.errors": _counter("route", "method", "status"),
    "http.request.duration_ms": _histogram("route", "method"),
}
"""Every metric VectorForge emits; histograms ending in ``_ms`` are milliseconds."""


class MetricsCollector(Protocol):
    """Destination of measurements."""

    def observe(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add a value to a histogram."""
        ...

    def increment(self, name: str, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter."""
        ...


@dataclass(slots=True)
class Series:
    """One metric with one set of tags."""

    count: int = 0
    total: float = 0.0
    values: deque[float] = field(default_factory=lambda: deque(maxlen=1000))
    """The latest 1,000 values of a histogram; empty for a counter."""


_MAX_SERIES = 5000


class InMemoryMetrics:
    """Collector in this process: at most 5,000 series of 1,000 values."""

    def __init__(self) -> None:
        self._series: dict[tuple[str, tuple[tuple[str, str], ...]], Series] = {}
        self._lock = threading.Lock()

    def observe(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add a value to a histogram; unknown names and tags raise ``KeyError``."""
        self._add(name, "histogram", value, tags)

    def increment(self, name: str, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter; unknown names and tags raise ``KeyError``."""
        self._add(name, "counter", value, tags)

    def get(self, name: str, tags: Tags | None = None) -> Series:
        """Return the series of this name and exactly these tags; empty when nothing was measured."""
        with self._lock:
            return self._series.get((name, _key(tags)), Series())

    def total(self, name: str) -> float:
        """Return the sum over all tags."""
        with self._lock:
            return sum(s.total for (series_name, _), s in self._series.items() if series_name == name)

    def names(self) -> set[str]:
        """Return the names measured so far."""
        with self._lock:
            return {name for name, _ in self._series}

    def items(self) -> list[tuple[str, dict[str, str], Series]]:
        """Return a copy of every series: name, tags, values."""
        with self._lock:
            return [
                (name, dict(tags), Series(series.count, series.total, series.values.copy()))
                for (name, tags), series in self._series.items()
            ]

    def _add(self, name: str, kind: str, value: float, tags: Tags | None) -> None:
        spec, key = METRICS[name], (name, _key(tags))
        with self._lock:
            series = self._series.get(key)
            if spec.kind != kind or (series is None and set(spec.tags) != set(tags or {})):
                raise KeyError(f"{name} is a {spec.kind} with tags {spec.tags}")
            if series is None:
                series = Series()
                if len(self._series) < _MAX_SERIES:  # callers choose names of models; memory must not grow
                    self._series[key] = series
            series.count += 1
            series.total += value
            if kind == "histogram":
                series.values.append(value)


def _key(tags: Tags | None) -> tuple[tuple[str, str], ...]:
    return tuple(sorted(tags.items())) if tags else ()


@dataclass(slots=True)
class Measurement:
    """A running measurement; ``error_tags`` may be filled while it runs."""

    started: float
    error_tags: dict[str, str] = field(default_factory=dict)

    @property
    def elapsed_ms(self) -> float:
        """Milliseconds since the start."""
        return (time.perf_counter() - self.started) * 1000


@contextmanager
def measure(metrics: MetricsCollector, prefix: str, tags: Tags | None = None) -> Iterator[Measurement]:
    """Emit ``{prefix}.calls``, ``.duration_ms`` and, when the body raises, ``.errors``."""
    measurement = Measurement(time.perf_counter())
    metrics.increment(f"{prefix}.calls", tags=tags)
    try:
        yield measurement
    except Exception as exc:
        error_tags = {**(tags or {}), **measurement.error_tags, "error_type": type(exc).__name__}
        metrics.increment(f"{prefix}.errors", tags=error_tags)
        raise
    finally:
        metrics.observe(f"{prefix}.duration_ms", measurement.elapsed_ms, tags)


def instrument(
    prefix: str, tags: Callable[[Any], Tags] = lambda _: {}
) -> Callable[[Callable[P, Coroutine[Any, Any, T]]], Callable[P, Coroutine[Any, Any, T]]]:
    """Return ``measure`` as a decorator for an async method of an object with ``metrics``.

    Args:
        prefix: First part of the metric names.
        tags: Computes the tags from the object.
    """

    def decorate(method: Callable[P, Coroutine[Any, Any, T]]) -> Callable[P, Coroutine[Any, Any, T]]:
        @functools.wraps(method)
        async def measured(*args: P.args, **kwargs: P.kwargs) -> T:
            owner: Any = args[0]
            with measure(owner.metrics, prefix, tags(owner)):
                return await method(*args, **kwargs)

        return measured

    return decorate


SpanName: TypeAlias = Literal["query", "preprocess", "retrieve", "context", "generate", "log"]
SPAN_NAMES: Final[tuple[SpanName, ...]] = get_args(SpanName)
"""Names of all spans, with every tracer. The first one is the root, which starts with the look-up."""
SpanRecord: TypeAlias = tuple[SpanName, str, int, int, str | None]
"""Name, id (16 hexadecimal digits), start and end (nanoseconds since 1970), type of its exception."""
TraceRecord: TypeAlias = tuple[str, str | None, Sequence[SpanRecord]]
"""Id (32 hexadecimal digits), span of the caller, and spans, the root first."""

TRACE_PARENT: ContextVar[str | None] = ContextVar("traceparent", default=None)
"""``traceparent`` header of the current request, unchecked."""
_TRACE_PARENT = re.compile(
    r"(?!ff)([0-9a-f]{2})-(?!0{32})([0-9a-f]{32})-(?!0{16})([0-9a-f]{16})-([0-9a-f]{2})(-.*)?"
)
"""https://www.w3.org/TR/trace-context/#traceparent-header"""


@dataclass(slots=True)
class _Span:
    name: SpanName
    start_ns: int
    id: str = field(default_factory=lambda: os.urandom(8).hex())
    end_ns: int | None = None
    error: str | None = None


@dataclass(slots=True)
class QueryTrace:
    """Trace of one query."""

    trace_id: str
    parent_id: str | None = None
    is_recorded: bool = True
    """False: the caller does not record this trace."""
    started_ns: int = field(default_factory=time.time_ns)
    spans: list[_Span] = field(default_factory=list)
    """Spans so far, if the tracer records them here."""

    @classmethod
    def begin(cls) -> Self:
        """Return the trace that the request's ``traceparent`` names, or a new one without a valid header."""
        given = _TRACE_PARENT.fullmatch(TRACE_PARENT.get() or "")
        if given is None or (given[1] == "00" and given[5]):  # only later versions have more fields
            return cls(os.urandom(16).hex())
        return cls(given[2], given[3], is_recorded=bool(int(given[4], 16) & 1))

    def start_ns(self, name: SpanName) -> int:
        """Return the start of a span that begins now."""
        return self.started_ns if name == SPAN_NAMES[0] else time.time_ns()

    def record(self) -> TraceRecord | None:
        """Return the recorded spans, those that are open as ending now; None without spans."""
        now = time.time_ns()
        spans = [(s.name, s.id, s.start_ns, max(s.start_ns, s.end_ns or now), s.error) for s in self.spans]
        return (self.trace_id, self.parent_id, spans) if spans else None


class Tracer(Protocol):
    """Destination of spans for the steps of a query."""

    def span(self, name: SpanName, trace: QueryTrace) -> AbstractContextManager[None]:
        """Return a span that covers the block and is marked as failed when an ``Exception`` leaves it.

        Spans may overlap, end in any order, and stay open across the ``yield`` of an async generator:
        there is no stack and no context variable.
        """
        ...


class NoTracer:
    """Tracer that records nothing."""

    def span(self, name: SpanName, trace: QueryTrace) -> AbstractContextManager[None]:
        """Return a block without a span."""
        return nullcontext()


class RecordingTracer:
    """Tracer that records spans in the trace of their query, unless the caller does not record it."""

    @contextmanager
    def span(self, name: SpanName, trace: QueryTrace) -> Iterator[None]:
        """Record a span; an ``Exception`` is recorded by its type, a cancellation is no failure."""
        span = _Span(name, trace.start_ns(name))
        if trace.is_recorded:
            trace.spans.append(span)
        try:
            yield
        except Exception as exc:
            span.error = type(exc).__name__
            raise
        finally:
            span.end_ns = time.time_ns()
