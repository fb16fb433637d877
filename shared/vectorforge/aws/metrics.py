"""Measurements as CloudWatch metrics, in the embedded metric format that Lambda's log carries.

https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
"""

import math
import re
import threading
from collections import defaultdict
from typing import TYPE_CHECKING, Any, Final

from vectorforge.telemetry import METRICS, Tags

if TYPE_CHECKING:
    from aws_lambda_powertools.metrics import EphemeralMetrics

NAMESPACE: Final = "VectorForge"
MAX_TAG_SETS: Final = 200
"""Combinations of tag values that one process sends as they are; each is billed as metrics of its own."""
MAX_VALUES_PER_TAG: Final = 40
"""Values of one tag that one process sends; callers choose some of them (models), the code has fewer."""
OTHER: Final = "other"
"""What stands for the values above these limits."""

_MAX_VALUE_LENGTH: Final = 250
_UNFIT_FOR_CLOUDWATCH = re.compile(r"[^\x20-\x7e]")

_TagSet = tuple[tuple[str, str], ...]


class EmfMetrics:
    """Collects the metrics of one invocation and prints them at its end, one line for each set of tags.

    A histogram keeps all its values, so that CloudWatch can compute percentiles; tags are dimensions beside
    ``service``. Powertools prints early what would not fit into a line (100 values, 100 metrics), and once
    printed it is forgotten, so that nothing is lost and nothing is doubled.

    May be used from several threads.

    Args:
        service: Value of the dimension ``service``, e.g. "query".
    """

    def __init__(self, service: str) -> None:
        from aws_lambda_powertools.metrics import EphemeralMetrics

        self._service = service
        self._new_line = EphemeralMetrics
        self._lines: dict[_TagSet, EphemeralMetrics] = {}
        self._known_sets: set[_TagSet] = set()
        self._known_values: defaultdict[str, set[str]] = defaultdict(set)
        self._lock = threading.Lock()

    def observe(self, name: str, value: float, tags: Tags | None = None) -> None:
        """Add a value to a histogram. Unknown names and tags raise ``KeyError``: they are typing errors."""
        self._add(name, value, tags, "histogram")

    def increment(self, name: str, value: float = 1, tags: Tags | None = None) -> None:
        """Add to a counter. Unknown names and tags raise ``KeyError``."""
        self._add(name, value, tags, "counter")

    def add_cold_start(self, context: Any) -> None:
        """Print ``ColdStart`` on a line of its own, with the dimensions ``function_name`` and ``service``.

        Args:
            context: Of the invocation; has ``function_name``.
        """
        self._new_line(namespace=NAMESPACE, service=self._service).add_cold_start_metric(context)

    def flush(self) -> None:
        """Print what was measured since the last time; nothing measured prints nothing."""
        with self._lock:
            lines, self._lines = self._lines, {}
            for line in lines.values():
                if line.metric_set:  # empty when Powertools has just printed the hundredth value
                    line.flush_metrics()

    def _add(self, name: str, value: float, tags: Tags | None, kind: str) -> None:
        spec = METRICS[name]
        if spec.kind != kind or set(spec.tags) != set(tags or {}):
            raise KeyError(f"{name} is a {spec.kind} with tags {spec.tags}")
        if not math.isfinite(value):
            return  # JSON has no word for it, and CloudWatch would drop the whole line
        unit = "Milliseconds" if name.endswith("_ms") else "Count"
        with self._lock:
            self._line_for(self._fold(tags or {})).add_metric(name, unit, value)

    def _line_for(self, tags: _TagSet) -> "EphemeralMetrics":
        line = self._lines.get(tags)
        if line is None:
            dimensions = {"service": self._service, **dict(tags)}
            line = self._new_line(namespace=NAMESPACE, service=self._service, dimension_set=dimensions)
            self._lines[tags] = line
        return line

    def _fold(self, tags: Tags) -> _TagSet:
        """The tags as dimensions, with "other" for values that would make the bill grow without bound."""
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
