"""Metrics and spans: names of all metrics, collectors, timing.

Each metric is emitted in one place only. On a laptop and in tests metrics stay in memory
(``InMemoryMetrics``); on AWS the same calls become CloudWatch metrics (``aws.metrics``) and the spans
X-Ray subsegments (``aws.observability``).
"""

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Mapping
from contextlib import AbstractContextManager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from types import TracebackType
from typing import Any, Literal, ParamSpec, Protocol, TypeVar

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


class Tracer(Protocol):
    """Destination of spans for the steps of a query."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """Return a span that covers the block and is marked as failed when an ``Exception`` leaves it.

        Spans may overlap, end in any order, and stay open across the ``yield`` of an async generator:
        there is no stack and no context variable.
        """
        ...


class NoTracer:
    """Tracer that records nothing."""

    def span(self, name: str) -> AbstractContextManager[None]:
        """Return a block without a span."""
        return _NO_SPAN


_NO_SPAN = nullcontext()


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
        self._by_call: dict[tuple[object, ...], Series] = {}
        """The same series by name, kind and tags in the caller's order."""
        self._lock = threading.Lock()

    def observe(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add a value to a histogram; unknown names and tags raise ``KeyError``."""
        key = (name, "histogram", *tags.items()) if tags else (name, "histogram")
        with self._lock:
            series = self._by_call.get(key) or self._find(key, name, tags, "histogram")
            series.count += 1
            series.total += value
            series.values.append(value)

    def increment(self, name: str, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter; unknown names and tags raise ``KeyError``."""
        key = (name, "counter", *tags.items()) if tags else (name, "counter")
        with self._lock:
            series = self._by_call.get(key) or self._find(key, name, tags, "counter")
            series.count += 1
            series.total += value

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

    def _find(self, key: tuple[object, ...], name: str, tags: Tags | None, kind: str) -> Series:
        spec = METRICS[name]
        if spec.kind != kind or set(spec.tags) != set(tags or {}):
            raise KeyError(f"{name} is a {spec.kind} with tags {spec.tags}")
        series_key = (name, _key(tags))
        series = self._series.get(series_key)
        if series is None:
            if len(self._series) >= _MAX_SERIES:
                return Series()  # discarded: callers choose names of models, and memory must not grow
            series = self._series[series_key] = Series()
        if len(self._by_call) < 2 * _MAX_SERIES:
            self._by_call[key] = series
        return series


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


class _Measure:
    """Context manager of ``measure``; a generator's context manager takes four times as long."""

    __slots__ = ("_measurement", "_metrics", "_prefix", "_tags")

    def __init__(self, metrics: MetricsCollector, prefix: str, tags: dict[str, str]) -> None:
        self._metrics = metrics
        self._prefix = prefix
        self._tags = tags

    def __enter__(self) -> Measurement:
        self._measurement = Measurement(time.perf_counter())
        self._metrics.increment(f"{self._prefix}.calls", tags=self._tags)
        return self._measurement

    def __exit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if isinstance(exc, Exception):
            error_tags = {**self._tags, **self._measurement.error_tags, "error_type": type(exc).__name__}
            self._metrics.increment(f"{self._prefix}.errors", tags=error_tags)
        self._metrics.observe(f"{self._prefix}.duration_ms", self._measurement.elapsed_ms, self._tags)


def measure(
    metrics: MetricsCollector, prefix: str, tags: Tags | None = None
) -> AbstractContextManager[Measurement]:
    """Emit ``{prefix}.calls``, ``.duration_ms`` and, when the body raises, ``.errors``."""
    return _Measure(metrics, prefix, dict(tags) if tags else {})


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
