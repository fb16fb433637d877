"""The metrics that alarms and dashboard of a template name, and those that the functions send."""

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
from vectorforge.aws.metrics import EmfMetrics
from vectorforge.telemetry import METRICS

_SEARCH = re.compile(
    r"""SEARCH\('\{"(?P<namespace>[^"]+)",(?P<dimensions>[\w,]+)\} service="(?P<service>\w+)" """
    r"""MetricName="(?P<name>[^"]+)"', '(?P<statistic>\w+)', (?P<period>\d+)\)"""
)


@dataclass(frozen=True, slots=True)
class WatchedMetric:
    """A metric as alarms and dashboards name one."""

    namespace: str
    name: str
    dimensions: frozenset[tuple[str, str]]
    """Names and values; "*" is a value that is searched for."""

    @property
    def values(self) -> dict[str, str]:
        """By the dimension's name."""
        return dict(self.dimensions)


def metric(namespace: str, name: str, **dimensions: str) -> WatchedMetric:
    """Short for the constructor."""
    return WatchedMetric(namespace, name, frozenset(dimensions.items()))


def dashboard_body(template: StackTemplate) -> dict[str, Any]:
    """What CloudWatch will read."""
    (dashboard,) = template.of_kind("AWS::CloudWatch::Dashboard").values()
    body: dict[str, Any] = json.loads(text(dashboard["DashboardBody"]))
    return body


def alarm_metrics(alarm: dict[str, Any]) -> list[WatchedMetric]:
    """Those of one alarm, which are billed each."""
    if "Metrics" not in alarm:
        return [_of_alarm(alarm)]
    return [_of_alarm(one["MetricStat"]["Metric"]) for one in alarm["Metrics"] if "MetricStat" in one]


def dashboard_metrics(body: dict[str, Any]) -> set[WatchedMetric]:
    """Those of all graphs, also of expressions and searches."""
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
    """A graph's lines with "." (as in the line before) written out."""
    before: list[Any] = []
    for entry in entries:
        full = [before[place] if part == "." else part for place, part in enumerate(entry)]
        before = full
        yield full


def sent_metrics(
    namespace: str, prefix: str, selection: Literal["essential", "all"] = "essential"
) -> set[WatchedMetric]:
    """What the four functions of a stage send when they measure everything they can, once.

    Args:
        namespace: Theirs.
        prefix: What the functions' names begin with.
        selection: Which measurements become metrics.
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
"""Beginnings of the names that each function measures; an empty tuple begins none."""


def _of_alarm(properties: dict[str, Any]) -> WatchedMetric:
    dimensions = {one["Name"]: text(one["Value"]) for one in properties.get("Dimensions", [])}
    return metric(properties["Namespace"], properties["MetricName"], **dimensions)


def _searched(expression: str) -> Iterator[WatchedMetric]:
    for match in _SEARCH.finditer(expression):
        names = match["dimensions"].split(",")
        values = {name: match["service"] if name == "service" else "*" for name in names}
        yield metric(match["namespace"], match["name"], **values)
