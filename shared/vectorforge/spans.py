"""Spans of a query: their names, the trace that they form, and the tracers that receive them.

``aws.tracing`` sends X-Ray subsegments. ``RecordingTracer`` records the spans in the query's trace, which is
part of its log record; ``vectorforge.otlp`` exports them from there.
"""

import os
import re
import time
from collections.abc import Iterator, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from contextvars import ContextVar
from dataclasses import dataclass, field
from typing import Final, Literal, Protocol, Self, TypeAlias, get_args

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
        return _NO_SPAN


_NO_SPAN = nullcontext()


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
