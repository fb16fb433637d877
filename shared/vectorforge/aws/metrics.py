"""Measurements as CloudWatch metrics, in the embedded metric format that Lambda's log carries.

A custom metric is billed for each name with each set of dimensions, so by default only the pipeline's metrics
and those that the alarms watch become some (``ESSENTIAL``), without dimensions that callers choose; the rest,
and all tags, are fields of the same lines, for Logs Insights.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import json
import math
import os
import re
import sys
import threading
from collections import defaultdict
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

from vectorforge.telemetry import METRICS, Tags

if TYPE_CHECKING:
    from aws_lambda_powertools.metrics import EphemeralMetrics

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
        self._lines: dict[_TagSet, _Line] = {}
        self._known_sets: set[_TagSet] = set()
        self._known_values: defaultdict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def observe(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add a value to a histogram; unknown names and tags raise ``KeyError``."""
        self._add(name, value, tags, "histogram")

    def increment(self, name: str, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter; unknown names and tags raise ``KeyError``."""
        self._add(name, value, tags, "counter")

    def add_cold_start(self, context: Any) -> None:
        """Print ``ColdStart`` on a line of its own, with the dimensions ``function_name`` and ``service``.

        Skipped for services without the metric, unless all are sent; log lines always have ``cold_start``.

        Args:
            context: Lambda context with ``function_name``.
        """
        if self._selection == "all" or COLD_START in self._essential:
            self._new_document((), ()).add_cold_start_metric(context)

    def flush(self) -> None:
        """Print the measurements since the last call, if any."""
        with self._lock:
            lines, self._lines = self._lines, {}
            for line in lines.values():
                line.flush()

    def _add(self, name: str, value: float, tags: Tags | None, kind: str) -> None:
        spec = METRICS[name]
        if spec.kind != kind or set(spec.tags) != set(tags or {}):
            raise KeyError(f"{name} is a {spec.kind} with tags {spec.tags}")
        if not math.isfinite(value):
            return  # not valid in JSON; CloudWatch would drop the whole line
        dimension_sets = self._dimension_sets(name, spec.tags)
        with self._lock:
            folded = self._fold(tags or {})
            line = self._lines.get(folded)
            if line is None:
                line = self._lines[folded] = _Line(self._service, folded, self._new_document)
            if dimension_sets:
                unit = "Milliseconds" if name.endswith("_ms") else "Count"
                line.document(dimension_sets).add_metric(name, unit, value)
            else:
                line.add_field(name, value, is_sum=kind == "counter")

    def _dimension_sets(self, name: str, tags: tuple[str, ...]) -> _DimensionSets:
        """Return the sets of tags that are dimensions: none for a field, two for two metrics."""
        sets: dict[tuple[str, ...], None] = {}
        if self._selection == "all":
            sets[tuple(sorted(tags))] = None
        if name in self._essential:
            sets[self._essential[name]] = None
        return tuple(sets)

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

    def _fold(self, tags: Tags) -> _TagSet:
        """Return the sorted tags, with "other" for values beyond the limits."""
        folded = tuple(sorted((name, self._fold_value(name, value)) for name, value in tags.items()))
        if folded not in self._known_sets:
            if len(self._known_sets) >= MAX_TAG_SETS:
                return tuple((name, OTHER) for name, _ in folded)
            self._known_sets.add(folded)
        return folded

    def _fold_value(self, name: str, value: str) -> str:
        # A dimension's value is 1 to 1024 printable ASCII characters:
        # https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html
        value = _UNFIT_FOR_CLOUDWATCH.sub("?", value).strip()[:_MAX_VALUE_LENGTH] or "unknown"
        known = self._known_values[name]
        if value not in known:
            if len(known) >= MAX_VALUES_PER_TAG:
                return OTHER
            known.add(value)
        return value


class _Line:
    """Measurements with one set of tags: metrics by their dimensions, and fields.

    Fields are part of the metrics' document, or of a separate line if there are no metrics.
    """

    def __init__(
        self,
        service: str,
        tags: _TagSet,
        new_document: Callable[[_TagSet, _DimensionSets], "EphemeralMetrics"],
    ) -> None:
        self._service = service
        self._tags = tags
        self._new_document = new_document
        self._documents: dict[_DimensionSets, EphemeralMetrics] = {}
        self._fields: dict[str, list[float]] = {}

    def document(self, dimension_sets: _DimensionSets) -> "EphemeralMetrics":
        """Return the document of metrics with these dimensions."""
        document = self._documents.get(dimension_sets)
        if document is None:
            document = self._documents[dimension_sets] = self._new_document(self._tags, dimension_sets)
        return document

    def add_field(self, name: str, value: float, *, is_sum: bool) -> None:
        """Add to a field: a counter's sum, or a histogram's values."""
        values = self._fields.setdefault(name, [])
        if is_sum and values:
            values[0] += value
        else:
            values.append(value)
        if len(values) == _MAX_VALUES:
            self._print_fields()

    def flush(self) -> None:
        """Print everything."""
        # Empty when Powertools has just printed the hundredth value.
        documents = [document for document in self._documents.values() if document.metric_set]
        if not documents and self._fields:
            self._print_fields()
        for name, values in self._fields.items():
            documents[0].add_metadata(name, _plain(values))
        for document in documents:
            document.flush_metrics()

    def _print_fields(self) -> None:
        """Print the fields as a log line with level and message."""
        fields = {name: _plain(values) for name, values in self._fields.items()}
        line = {"level": "INFO", "message": "Measured", "service": self._service, **dict(self._tags)}
        sys.stdout.write(json.dumps({**line, **fields}) + "\n")
        self._fields = {}


def _plain(values: list[float]) -> float | list[float]:
    """Return a single number if possible: Logs Insights has no functions for lists."""
    return values[0] if len(values) == 1 else values
