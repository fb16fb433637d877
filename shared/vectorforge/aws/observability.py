"""Telemetry of a Lambda function: JSON log lines, and metrics in the embedded metric format.

A custom metric is billed for each name with each set of dimensions, so by default only the pipeline's metrics
and those that the alarms watch become some (``ESSENTIAL``), without dimensions that callers choose; the rest,
and all tags, are fields of the same lines, for Logs Insights.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import json
import logging
import math
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from vectorforge.config import VectorForgeConfig
from vectorforge.errors import VectorForgeError, describe_exception, log_unexpected
from vectorforge.telemetry import CREDENTIAL, METRICS, REQUEST_ID, NoTracer, RecordingTracer, Tags, Tracer

if TYPE_CHECKING:
    from aws_lambda_powertools import Logger
    from aws_lambda_powertools.metrics import EphemeralMetrics

logger = logging.getLogger(__name__)

DEFAULT_NAMESPACE: Final = "VectorForge"
"""Default of ``POWERTOOLS_METRICS_NAMESPACE``, which separates the stages of one account."""
MAX_TAG_SETS: Final = 200
"""Combinations of tag values that one process sends unchanged; each is billed as separate metrics."""
MAX_VALUES_PER_TAG: Final = 40
"""Values of one tag that one process sends; callers choose some of them (models)."""
OTHER: Final = "other"
"""Replacement of values above these limits."""

Selection: TypeAlias = Literal["essential", "all"]
"""Measurements sent as metrics: ``ESSENTIAL``, or also all others with all tags as dimensions."""

COLD_START: Final = "ColdStart"

ESSENTIAL: Final[Mapping[str, Mapping[str, tuple[str, ...]]]] = {
    "query": {
        "retriever.search.duration_ms": (),
        "retriever.search.calls": (),
        "retriever.search.errors": (),
        "retriever.results_returned": (),
        "retriever.empty_results": (),
        "context.build.duration_ms": (),
        "context.tokens_used": (),
        "context.chunks_included": (),
        "context.chunks_truncated": (),
        "llm.generate.duration_ms": (),
        "llm.generate.calls": (),
        "llm.generate.errors": (),
        "llm.generate.retries": (),
        "llm.tokens_input": ("provider",),
        "llm.tokens_output": ("provider",),
        "llm.streaming.chunks": (),
        "llm.streaming.first_token_ms": (),
        "pipeline.query.duration_ms": (),
        "pipeline.query.calls": (),
        "pipeline.query.errors": (),
        "pipeline.query.faults": (),
        "embedding.duration_ms": (),
        COLD_START: ("function_name",),
    },
    "log_writer": {"query_log.rows_stored": ()},
}
"""Dimensions in addition to ``service``, by service and name; fixed, since alarms depend on them."""

_MAX_VALUE_LENGTH: Final = 250
_MAX_VALUES: Final = 100  # in a line, as the format has it for metrics
_UNFIT_FOR_CLOUDWATCH = re.compile(r"[^\x20-\x7e]")

_TagSet = tuple[tuple[str, str], ...]
_DimensionSets = tuple[tuple[str, ...], ...]


@dataclass(slots=True)
class _Line:
    """Measurements with one set of tags: metrics by their dimensions, and fields of the same line."""

    documents: dict[_DimensionSets, "EphemeralMetrics"] = field(default_factory=dict)
    fields: defaultdict[str, list[float]] = field(default_factory=lambda: defaultdict(list))


class EmfMetrics:
    """Collector that prints the measurements of an invocation at its end, one line per set of tags.

    Histograms retain all values, so that CloudWatch can compute percentiles. Measurements that do not fit
    into a line (100 values, 100 metrics) are printed early. Thread-safe.

    Args:
        service: Value of the dimension ``service``, e.g. "query".
        selection: Measurements that become metrics.
    """

    def __init__(self, service: str, *, selection: Selection = "essential") -> None:
        from aws_lambda_powertools.metrics import EphemeralMetrics  # loaded in the init phase

        self._document_type = EphemeralMetrics
        self._service = service
        self._selection = selection
        self._essential = ESSENTIAL.get(service, {})
        self._namespace = os.environ.get("POWERTOOLS_METRICS_NAMESPACE") or DEFAULT_NAMESPACE
        self._lines: defaultdict[_TagSet, _Line] = defaultdict(_Line)
        self._known_sets: set[_TagSet] = set()
        self._known_values: defaultdict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def observe(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add a value to a histogram; unknown names and tags raise ``KeyError``."""
        self._add(name, value, tags or {}, "histogram")

    def increment(self, name: str, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter; unknown names and tags raise ``KeyError``."""
        self._add(name, value, tags or {}, "counter")

    def add_cold_start(self, context: Any) -> None:
        """Print ``ColdStart`` on a line of its own, with the dimensions ``function_name`` and ``service``.

        Skipped for services without the metric, unless all are sent; log lines always have ``cold_start``.
        """
        if self._selection == "all" or COLD_START in self._essential:
            self._new_document((), ()).add_cold_start_metric(context)

    def flush(self) -> None:
        """Print the measurements since the last call, if any."""
        with self._lock:
            for tags, line in self._lines.items():
                # Empty when Powertools has just printed the hundredth value.
                documents = [document for document in line.documents.values() if document.metric_set]
                if documents:
                    for name, values in line.fields.items():
                        documents[0].add_metadata(name, _plain(values))
                elif line.fields:
                    self._print_fields(tags, line)
                for document in documents:
                    document.flush_metrics()
            self._lines.clear()

    def _add(self, name: str, value: float, tags: Tags, kind: str) -> None:
        spec = METRICS[name]
        if spec.kind != kind or set(spec.tags) != set(tags):
            raise KeyError(f"{name} is a {spec.kind} with tags {spec.tags}")
        if not math.isfinite(value):
            return  # not valid in JSON; CloudWatch would drop the whole line
        dimension_sets = self._dimension_sets(name, spec.tags)
        with self._lock:
            folded = self._fold(tags)
            line = self._lines[folded]
            if dimension_sets:
                if dimension_sets not in line.documents:
                    line.documents[dimension_sets] = self._new_document(folded, dimension_sets)
                unit = "Milliseconds" if name.endswith("_ms") else "Count"
                line.documents[dimension_sets].add_metric(name, unit, value)
                return
            values = line.fields[name]
            if kind == "counter" and values:
                values[0] += value
            else:
                values.append(value)
            if len(values) == _MAX_VALUES:
                self._print_fields(folded, line)

    def _dimension_sets(self, name: str, tags: tuple[str, ...]) -> _DimensionSets:
        """Return the sets of tags that are dimensions: none for a field, two for two metrics."""
        sets = [tuple(sorted(tags))] if self._selection == "all" else []
        if name in self._essential:
            sets.append(self._essential[name])
        return tuple(dict.fromkeys(sets))

    def _new_document(self, tags: _TagSet, dimension_sets: _DimensionSets) -> "EphemeralMetrics":
        values = dict(tags)
        first, *more = [
            {"service": self._service, **{name: values[name] for name in names}}
            for names in dimension_sets or ((),)
        ]
        document = self._document_type(namespace=self._namespace, service=self._service, dimension_set=first)
        for dimensions in more:
            document.add_dimensions(**dimensions)
        for name, value in tags:
            if not any(name in names for names in dimension_sets):
                document.add_metadata(name, value)
        return document

    def _print_fields(self, tags: _TagSet, line: _Line) -> None:
        """Print the fields as a log line with level and message."""
        fields = {name: _plain(values) for name, values in line.fields.items()}
        head = {"level": "INFO", "message": "Measured", "service": self._service, **dict(tags)}
        sys.stdout.write(json.dumps({**head, **fields}) + "\n")
        line.fields.clear()

    def _fold(self, tags: Tags) -> _TagSet:
        """Return the sorted tags, with "other" for values beyond the limits."""
        folded = tuple(sorted((name, self._fold_value(name, value)) for name, value in tags.items()))
        if folded not in self._known_sets and len(self._known_sets) >= MAX_TAG_SETS:
            return tuple((name, OTHER) for name, _ in folded)
        self._known_sets.add(folded)
        return folded

    def _fold_value(self, name: str, value: str) -> str:
        # A dimension's value is 1 to 1024 printable ASCII characters:
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html
        value = _UNFIT_FOR_CLOUDWATCH.sub("?", value).strip()[:_MAX_VALUE_LENGTH] or "unknown"
        known = self._known_values[name]
        if value not in known and len(known) >= MAX_VALUES_PER_TAG:
            return OTHER
        known.add(value)
        return value


def _plain(values: list[float]) -> float | list[float]:
    """Return a single number if possible: Logs Insights has no functions for lists."""
    return values[0] if len(values) == 1 else values


def structure_logs(service: str) -> "Logger":
    """Print log records of ``vectorforge`` as JSON, one object per line, on standard output.

    Each line has timestamp, level, logger (``name``), message, ``service``, X-Ray trace id and, during a
    request, ``correlation_id`` (its ``X-Request-Id``) and ``credential`` (name of the key or identity, never
    the key). Exceptions are shown by type and location, since their texts may hold keys, URLs or rows. Other
    libraries log through the handler of Lambda's runtime on the root logger.
    """
    from aws_lambda_powertools import Logger

    library_logger = logging.getLogger("vectorforge")
    # The root logger has a handler of Lambda's runtime, which would print every line once more; Powertools'
    # own filter against that is for handlers that are there already.
    library_logger.propagate = False
    # Powertools configures the logger named like its service, so the name of the function comes after.
    logger = Logger(service="vectorforge", utc=True, use_rfc3339=True, name="%(name)s")
    logger.append_keys(service=service)
    library_logger.handlers[0].addFilter(_add_context)  # adding it again does nothing
    return logger


def _add_context(record: logging.LogRecord) -> bool:
    """Add request and credential to a record, and remove the text of its exception."""
    if (request_id := REQUEST_ID.get()) is not None:
        record.correlation_id = request_id
    if (credential := CREDENTIAL.get()) is not None:
        record.credential = credential
    if record.exc_info and record.exc_info[1] is not None:
        record.msg, record.args = f"{record.getMessage()}: {describe_exception(record.exc_info[1])}", ()
        record.exc_info = record.exc_text = None
    return True


class FunctionTelemetry:
    """Logs, metrics and spans of one function; created once per process, before its first invocation.

    Args:
        service: Name of the function, e.g. "query".
        config: ``config.aws`` selects the metrics, ``config.tracing`` the tracer.
    """

    def __init__(self, service: str, config: VectorForgeConfig) -> None:
        from aws_lambda_powertools.metrics.provider import cold_start

        self.metrics = EmfMetrics(service, selection=config.aws.cloudwatch_metrics)
        self.tracer: Tracer = NoTracer()
        if config.tracing.tracing == "otel":
            self.tracer = RecordingTracer()
        elif config.tracing.tracing == "xray":
            from vectorforge.aws.tracing import XRayTracer

            self.tracer = XRayTracer(service)
        self._logger = structure_logs(service)
        self._is_cold = cold_start.is_cold_start  # False with provisioned concurrency

    @contextmanager
    def invocation(self, context: Any) -> Iterator[None]:
        """Wrap one invocation: its ids on every log line, its metrics printed once at the end.

        Our own errors pass unchanged. Any other becomes a general ``VectorForgeError``, because Lambda's
        runtime logs and returns texts, which may hold secrets; its type and location are logged.
        """
        is_cold, self._is_cold = self._is_cold, False
        self._logger.append_keys(function_request_id=context.aws_request_id, cold_start=is_cold)
        try:
            yield
        except Exception as exc:
            log_unexpected(logger, "The invocation failed", exc)
            if type(exc).__module__.startswith("vectorforge."):
                raise
            raise VectorForgeError(f"The invocation failed with {type(exc).__name__}; see the log.") from None
        finally:
            if is_cold:
                self.metrics.add_cold_start(context)
            self.metrics.flush()
