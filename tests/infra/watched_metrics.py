"""The metrics in a template's alarms and dashboard, and those that the functions send."""

import io
import json
import re
from collections.abc import Iterator
from contextlib import redirect_stdout
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any, Literal

from tests.infra.stack_template import StackTemplate, text
from tests.support.aws.emf import read_emf
from vectorforge.aws.observability import EmfMetrics
from vectorforge.telemetry import METRICS

_SEARCH = re.compile(
    r"""SEARCH\('\{"(?P<namespace>[^"]+)",(?P<dimensions>[\w,]+)\} service="(?P<service>\w+)" """
    r"""MetricName="(?P<name>[^"]+)"', '(?P<statistic>\w+)', (?P<period>\d+)\)"""
)


@dataclass(frozen=True, slots=True)
class WatchedMetric:
    """A metric in an alarm or dashboard."""

    namespace: str
    name: str
    dimensions: frozenset[tuple[str, str]]
    """Names and values of dimensions; "*" is a search for all values."""

    @property
    def values(self) -> dict[str, str]:
        """Return the values by dimension."""
        return dict(self.dimensions)


def metric(namespace: str, name: str, **dimensions: str) -> WatchedMetric:
    """Return a metric with these dimensions."""
    return WatchedMetric(namespace, name, frozenset(dimensions.items()))


def dashboard_body(template: StackTemplate) -> dict[str, Any]:
    """Return the dashboard's body as CloudWatch reads it."""
    (dashboard,) = template.of_kind("AWS::CloudWatch::Dashboard").values()
    body: dict[str, Any] = json.loads(text(dashboard["DashboardBody"]))
    return body


def alarm_metrics(alarm: dict[str, Any]) -> list[WatchedMetric]:
    """Return the metrics of one alarm, each of which is billed."""
    if "Metrics" not in alarm:
        return [_of_alarm(alarm)]
    return [_of_alarm(one["MetricStat"]["Metric"]) for one in alarm["Metrics"] if "MetricStat" in one]


def dashboard_metrics(body: dict[str, Any]) -> set[WatchedMetric]:
    """Return the metrics of all graphs, expressions and searches included."""
    found: set[WatchedMetric] = set()
    for widget in body["widgets"]:
        for entry in full_entries(widget["properties"].get("metrics", [])):
            options = entry[-1] if isinstance(entry[-1], dict) else {}
            if "expression" in options:
                found |= set(_searched(options["expression"]))
            else:
                namespace, name, *rest = [part for part in entry if not isinstance(part, dict)]
                found.add(metric(namespace, name, **dict(zip(rest[::2], rest[1::2], strict=True))))
    return found


def full_entries(entries: list[list[Any]]) -> Iterator[list[Any]]:
    """Return a graph's lines with "." (repetition of the previous line) expanded."""
    before: list[Any] = []
    for entry in entries:
        full = [before[place] if part == "." else part for place, part in enumerate(entry)]
        before = full
        yield full


def sent_metrics(
    namespace: str, prefix: str, selection: Literal["essential", "all"] = "essential"
) -> set[WatchedMetric]:
    """Return the metrics that the four functions of a stage send if each measurement occurs once.

    Args:
        namespace: Namespace of the metrics.
        prefix: Prefix of the functions' names.
        selection: Selects the measurements that become metrics.
    """
    found: set[WatchedMetric] = set()
    for service, measures in MEASURED_BY.items():
        printed = io.StringIO()
        with redirect_stdout(printed):
            metrics = EmfMetrics(service, selection=selection)
            for name, spec in METRICS.items():
                if name.startswith(measures):
                    add = metrics.observe if spec.kind == "histogram" else metrics.increment
                    add(name, 1, {tag: f"a-{tag}" for tag in spec.tags})
            metrics.flush()
            context = SimpleNamespace(function_name=f"{prefix}-{service.replace('_', '-')}")
            metrics.add_cold_start(context)
        for name, dimensions in read_emf(printed.getvalue().splitlines()):
            found.add(WatchedMetric(namespace, name, dimensions))
    return found


MEASURED_BY: dict[str, tuple[str, ...]] = {
    "query": ("pipeline.", "retriever.", "context.", "llm.", "embedding.", "http.", "query_log.write."),
    "log_writer": ("query_log.",),
    "ingest": ("embedding.",),
    "migrate": (),
}
"""Prefixes of the names that each function measures; an empty tuple has none."""


def _of_alarm(properties: dict[str, Any]) -> WatchedMetric:
    dimensions = {one["Name"]: text(one["Value"]) for one in properties.get("Dimensions", [])}
    return metric(properties["Namespace"], properties["MetricName"], **dimensions)


def _searched(expression: str) -> Iterator[WatchedMetric]:
    for match in _SEARCH.finditer(expression):
        names = match["dimensions"].split(",")
        values = {name: match["service"] if name == "service" else "*" for name in names}
        yield metric(match["namespace"], match["name"], **values)
