"""Read a function's output as CloudWatch does, and check it against the embedded metric format.

Limits: https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch_Embedded_Metric_Format_Specification.html
and, for what the values of dimensions may be,
https://docs.aws.amazon.com/AmazonCloudWatch/latest/APIReference/API_Dimension.html
"""

import json
import math
from collections import defaultdict
from collections.abc import Iterable, Mapping
from typing import Any

MAX_EVENT_BYTES = 256 * 1024
"""Maximum size of a log event; now 1 MB, but older agents still cut here."""
MAX_DIMENSIONS = 30
MAX_METRICS = 100
MAX_VALUES = 100

_SIZES = [scale + unit for scale in ("", "kilo", "mega", "giga", "tera") for unit in ("bytes", "bits")]
UNITS = frozenset(
    ["Seconds", "Microseconds", "Milliseconds", "Percent", "None"]
    + [amount.capitalize() + rate for amount in ("count", *_SIZES) for rate in ("", "/Second")]
)

Measured = dict[tuple[str, frozenset[tuple[str, str]]], list[float]]
"""Values by name and dimensions, or tags, in the order in which they were printed."""

_OF_LOG_LINES = frozenset({"level", "message", "timestamp"})


def read_emf(lines: Iterable[str]) -> Measured:
    """The values that CloudWatch would extract from these lines of a log.

    Raises:
        AssertionError: A line is a metric document that violates the format.
    """
    measured: Measured = defaultdict(list)
    for line in lines:
        document = _parse(line)
        if document is None:
            continue
        assert len(line.encode()) <= MAX_EVENT_BYTES
        check_emf(document)
        for directive in document["_aws"]["CloudWatchMetrics"]:
            for names in directive["Dimensions"]:
                dimensions = frozenset((name, document[name]) for name in names)
                for metric in directive["Metrics"]:
                    value = document[metric["Name"]]
                    values = value if isinstance(value, list) else [value]
                    measured[metric["Name"], dimensions].extend(values)
    return dict(measured)


def read_fields(lines: Iterable[str]) -> Measured:
    """Return the measurements in these log lines that Logs Insights finds and that are not metrics.

    Their names have dots; of their tags, ``service`` is one.
    """
    measured: Measured = defaultdict(list)
    for line in lines:
        if not line.startswith("{"):
            continue
        document = json.loads(line, parse_constant=_refuse)
        directives = document.pop("_aws", {}).get("CloudWatchMetrics", [])
        metrics = {metric["Name"] for directive in directives for metric in directive["Metrics"]}
        texts = {name: value for name, value in document.items() if isinstance(value, str)}
        tags = frozenset((name, value) for name, value in texts.items() if name not in _OF_LOG_LINES)
        for name, value in document.items():
            if "." in name and name not in metrics:
                _check_values(value)
                measured[name, tags].extend(value if isinstance(value, list) else [value])
    return dict(measured)


def units_of(lines: Iterable[str]) -> dict[str, str]:
    """Unit of each metric in these lines of a log."""
    documents = [document for document in map(_parse, lines) if document is not None]
    return {
        metric["Name"]: metric["Unit"]
        for document in documents
        for directive in document["_aws"]["CloudWatchMetrics"]
        for metric in directive["Metrics"]
    }


def check_emf(document: Mapping[str, Any]) -> None:
    """Check one document against the format.

    Raises:
        AssertionError: The document violates the format.
    """
    metadata = document["_aws"]
    assert isinstance(metadata["Timestamp"], int)
    assert metadata["CloudWatchMetrics"]
    for directive in metadata["CloudWatchMetrics"]:
        assert set(directive) == {"Namespace", "Dimensions", "Metrics"}
        assert 1 <= len(directive["Namespace"]) <= 1024
        assert directive["Dimensions"]
        for names in directive["Dimensions"]:
            assert len(names) == len(set(names)) <= MAX_DIMENSIONS
            for name in names:
                _check_dimension(name, document[name])
        metric_names = [metric["Name"] for metric in directive["Metrics"]]
        assert len(metric_names) == len(set(metric_names))
        assert 1 <= len(metric_names) <= MAX_METRICS
        for metric in directive["Metrics"]:
            assert set(metric) <= {"Name", "Unit", "StorageResolution"}
            assert 1 <= len(metric["Name"]) <= 1024
            assert metric["Unit"] in UNITS
            _check_values(document[metric["Name"]])


def _check_dimension(name: str, value: object) -> None:
    assert 1 <= len(name) <= 250
    assert not name.startswith(":")
    assert isinstance(value, str)
    assert 1 <= len(value) <= 1024
    assert value.strip()
    assert all(" " <= character <= "~" for character in value)


def _check_values(value: object) -> None:
    values = value if isinstance(value, list) else [value]
    assert 1 <= len(values) <= MAX_VALUES
    for number in values:
        assert isinstance(number, int | float)
        assert math.isfinite(number)


def _parse(line: str) -> dict[str, Any] | None:
    """The document in a line of a log; None for other lines."""
    try:
        document = json.loads(line, parse_constant=_refuse)
    except json.JSONDecodeError:
        return None
    return document if isinstance(document, dict) and "_aws" in document else None


def _refuse(constant: str) -> float:
    raise AssertionError(f"{constant} is not JSON")
