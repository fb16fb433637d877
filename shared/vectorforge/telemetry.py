"""Metrics: names of all metrics, collectors, timing. Spans are in ``spans``.

Each metric is emitted in one place only. On a laptop and in tests metrics stay in memory
(``InMemoryMetrics``); on AWS the same calls become CloudWatch metrics (``aws.observability``).
"""

import functools
import threading
import time
from collections import deque
from collections.abc import Callable, Coroutine, Iterator, Mapping
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass, field
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
        spec = METRICS[name]
        if spec.kind != kind or set(spec.tags) != set(tags or {}):
            raise KeyError(f"{name} is a {spec.kind} with tags {spec.tags}")
        key = (name, _key(tags))
        with self._lock:
            series = self._series.get(key)
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
