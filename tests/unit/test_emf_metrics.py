"""Metrics as CloudWatch reads them from the log: complete, valid, each value once, and bounded in number."""

import json
import math
import threading
from types import SimpleNamespace
from typing import Literal

import pytest

from tests.support.aws.emf import Measured, read_emf, read_fields, units_of
from vectorforge.aws.observability import COLD_START, ESSENTIAL, MAX_TAG_SETS, MAX_VALUES_PER_TAG, EmfMetrics
from vectorforge.telemetry import METRICS

MODEL = {"provider": "openai", "model": "gpt-4o"}
Capture = pytest.CaptureFixture[str]


BOTH = pytest.mark.parametrize("selection", ["essential", "all"])
Selection = Literal["essential", "all"]


def dimensions(**tags: str) -> frozenset[tuple[str, str]]:
    return frozenset({"service": "query", **tags}.items())


def all_metrics() -> EmfMetrics:
    return EmfMetrics("query", selection="all")


def measure_everything(metrics: EmfMetrics, value: float = 3) -> None:
    for name, spec in METRICS.items():
        add = metrics.observe if spec.kind == "histogram" else metrics.increment
        add(name, value, {tag: f"a-{tag}" for tag in spec.tags})


def printed(capsys: Capture) -> Measured:
    return read_emf(capsys.readouterr().out.splitlines())


def test_all_metrics_are_printed_with_unit_and_tags(capsys: Capture) -> None:  # C26, F-005
    metrics = all_metrics()
    measure_everything(metrics)
    assert capsys.readouterr().out == ""  # nothing before the end of the invocation
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    found = read_emf(lines)
    for name, spec in METRICS.items():
        assert found.pop((name, dimensions(**{tag: f"a-{tag}" for tag in spec.tags}))) == [3.0]
    # The rest are the essential ones again, with the dimensions of alarms and dashboard.
    assert found == {
        (name, dimensions(**{tag: f"a-{tag}" for tag in tags})): [3.0]
        for name, tags in ESSENTIAL["query"].items()
        if name != COLD_START and tags != METRICS[name].tags
    }
    assert read_fields(lines) == {}
    for name, unit in units_of(lines).items():
        assert unit == ("Milliseconds" if name.endswith("_ms") else "Count"), name


@pytest.mark.parametrize("service", ["query", "log_writer", "ingest", "migrate"])
def test_essential_selection_emits_essential_metrics_only(capsys: Capture, service: str) -> None:
    metrics = EmfMetrics(service)
    measure_everything(metrics)
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    essential = {name: tags for name, tags in ESSENTIAL.get(service, {}).items() if name != COLD_START}
    assert read_emf(lines) == {
        (name, frozenset({"service": service, **{tag: f"a-{tag}" for tag in tags}}.items())): [3.0]
        for name, tags in essential.items()
    }
    # everything else is still measured, with all its tags.
    assert read_fields(lines) == {
        (name, frozenset({"service": service, **{tag: f"a-{tag}" for tag in spec.tags}}.items())): [3.0]
        for name, spec in METRICS.items()
        if name not in essential
    }
    for line in map(json.loads, lines):
        assert "_aws" in line or (line["level"], line["message"]) == ("INFO", "Measured")


def test_essential_metric_dimensions_are_not_caller_controlled() -> None:
    for service, metrics in ESSENTIAL.items():
        for name, tags in metrics.items():
            if name != COLD_START:
                assert set(tags) <= set(METRICS[name].tags), (service, name)
                assert not set(tags) & {"model", "route", "error_type", "status"}, (service, name)


def test_non_dimension_tags_are_emitted_as_fields(capsys: Capture) -> None:
    metrics = EmfMetrics("query")
    metrics.observe("embedding.duration_ms", 312, MODEL)
    metrics.increment("embedding.texts", 40, MODEL)
    metrics.increment("embedding.texts", 2, MODEL)
    route = {"route": "/v1/search", "method": "POST"}
    for milliseconds in (4, 5):
        metrics.observe("http.request.duration_ms", milliseconds, route)
    metrics.flush()
    lines = [json.loads(line) for line in capsys.readouterr().out.splitlines()]
    embedded = next(line for line in lines if "embedding.duration_ms" in line)
    assert (embedded["provider"], embedded["model"]) == ("openai", "gpt-4o")
    assert embedded["embedding.texts"] == 42  # Logs Insights sums numbers, not lists
    assert next(line["http.request.duration_ms"] for line in lines if "route" in line) == [4, 5]
    assert len(lines) == 2


def test_histogram_values_are_preserved_per_tag_set(capsys: Capture) -> None:  # C26
    metrics = all_metrics()
    for value in (5, 1.5, 20):
        metrics.observe("llm.generate.duration_ms", value, MODEL)
    metrics.observe("llm.generate.duration_ms", 7, {**MODEL, "model": "gpt-4o-mini"})
    metrics.increment("llm.tokens_input", 120, MODEL)
    metrics.increment("llm.tokens_input", 30, MODEL)
    metrics.flush()
    found = printed(capsys)
    assert found[("llm.generate.duration_ms", dimensions(**MODEL))] == [5, 1.5, 20]
    assert found["llm.generate.duration_ms", dimensions(provider="openai", model="gpt-4o-mini")] == [7]
    assert sum(found["llm.tokens_input", dimensions(**MODEL)]) == 150


@pytest.mark.parametrize("count", [99, 100, 101, 200, 250])
def test_fields_over_line_limit_are_emitted_once(capsys: Capture, count: int) -> None:
    metrics = EmfMetrics("query")
    for value in range(count):
        metrics.observe("llm.generate.duration_ms", value, MODEL)  # a metric
        metrics.increment("embedding.calls", tags=MODEL)
        metrics.observe("http.request.duration_ms", value, {"route": "/", "method": "GET"})
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    assert read_emf(lines) == {("llm.generate.duration_ms", dimensions()): list(range(count))}
    assert read_fields(lines) == {
        ("embedding.calls", dimensions(**MODEL)): [count],
        ("http.request.duration_ms", dimensions(route="/", method="GET")): list(range(count)),
    }


@pytest.mark.parametrize("count", [99, 100, 101, 200, 250])
def test_values_over_line_limit_are_emitted_once(capsys: Capture, count: int) -> None:
    metrics = all_metrics()
    for value in range(count):
        metrics.observe("retriever.results_returned", value, {"retriever_type": "dense"})
        metrics.increment("retriever.search.calls", tags={"retriever_type": "dense"})
    metrics.flush()
    found = printed(capsys)
    assert found["retriever.results_returned", dimensions(retriever_type="dense")] == list(range(count))
    assert sum(found["retriever.search.calls", dimensions(retriever_type="dense")]) == count


def test_second_flush_prints_new_values_only(capsys: Capture) -> None:
    metrics = EmfMetrics("query")
    metrics.flush()
    assert capsys.readouterr().out == ""
    metrics.increment("pipeline.query.calls")
    metrics.flush()
    metrics.flush()
    assert printed(capsys) == {("pipeline.query.calls", dimensions()): [1]}
    metrics.increment("pipeline.query.calls", 2)
    metrics.flush()
    assert printed(capsys) == {("pipeline.query.calls", dimensions()): [2]}


def test_tag_values_are_bounded(capsys: Capture) -> None:
    metrics = all_metrics()
    metrics.increment("embedding.calls", tags=MODEL)
    for number in range(1000):
        metrics.increment("embedding.calls", tags={**MODEL, "model": f"model-{number}"})
        if number % 10 == 0:
            metrics.flush()  # the limit is the process's, not the invocation's
    metrics.increment("embedding.calls", tags=MODEL)  # seen before the limit was reached
    metrics.flush()
    found = printed(capsys)
    assert sum(sum(values) for values in found.values()) == 1002
    assert len(found) == MAX_VALUES_PER_TAG + 1
    assert sum(found["embedding.calls", dimensions(**MODEL)]) == 2
    others = found["embedding.calls", dimensions(provider="openai", model="other")]
    assert sum(others) == 1001 - MAX_VALUES_PER_TAG
    # Tags that callers do not choose are still distinguished.
    metrics.increment("pipeline.variant.calls", tags={"variant": "precise"})
    metrics.flush()
    assert list(printed(capsys)) == [("pipeline.variant.calls", dimensions(variant="precise"))]


def test_tag_combinations_are_bounded(capsys: Capture) -> None:
    metrics = all_metrics()
    for model in range(30):
        for error in range(30):
            tags = {"provider": "openai", "model": f"model-{model}", "error_type": f"Error{error}"}
            metrics.increment("llm.generate.errors", tags=tags)
    metrics.flush()
    found = printed(capsys)
    assert sum(found.pop(("llm.generate.errors", dimensions()))) == 900
    assert sum(sum(values) for values in found.values()) == 900
    assert len(found) == MAX_TAG_SETS + 1
    folded = dimensions(provider="other", model="other", error_type="other")
    assert sum(found["llm.generate.errors", folded]) == 900 - MAX_TAG_SETS


@pytest.mark.parametrize(
    ("model", "sent"),
    [
        ("", "unknown"),
        ("  ", "unknown"),
        ("modèle\n\x00x", "mod?le??x"),
        ("模型", "??"),
        ("m" * 2000, "m" * 250),
    ],
)
def test_invalid_dimension_values_are_sanitized(capsys: Capture, model: str, sent: str) -> None:
    metrics = all_metrics()
    metrics.increment("embedding.calls", tags={**MODEL, "model": model})
    metrics.flush()
    assert list(printed(capsys)) == [("embedding.calls", dimensions(provider="openai", model=sent))]


@BOTH
def test_non_finite_values_are_dropped_without_others(capsys: Capture, selection: Selection) -> None:
    metrics = EmfMetrics("query", selection=selection)
    for value in (math.nan, math.inf, -math.inf, 4.0):
        metrics.observe("context.build.duration_ms", value)
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    assert {**read_emf(lines), **read_fields(lines)} == {("context.build.duration_ms", dimensions()): [4]}


def test_unknown_metric_or_tag_raises_key_error() -> None:
    metrics = EmfMetrics("query")
    with pytest.raises(KeyError):
        metrics.increment("no.such.metric")
    with pytest.raises(KeyError, match="histogram"):
        metrics.increment("context.build.duration_ms")
    with pytest.raises(KeyError, match="retriever_type"):
        metrics.increment("retriever.search.calls")


def test_cold_start_metric_names_function(capsys: Capture) -> None:
    EmfMetrics("query").add_cold_start(SimpleNamespace(function_name="vectorforge-query"))
    cold = frozenset({"service": "query", "function_name": "vectorforge-query"}.items())
    assert printed(capsys) == {("ColdStart", cold): [1]}


def test_background_cold_start_is_emitted_with_all_selection_only(capsys: Capture) -> None:
    context = SimpleNamespace(function_name="vectorforge-ingest")
    EmfMetrics("ingest").add_cold_start(context)
    assert capsys.readouterr().out == ""
    EmfMetrics("ingest", selection="all").add_cold_start(context)
    assert len(printed(capsys)) == 1


@BOTH
def test_namespace_is_read_from_environment(
    capsys: Capture, selection: Selection, monkeypatch: pytest.MonkeyPatch
) -> None:
    for variable, expected in (("VectorForge/prod", "VectorForge/prod"), ("", "VectorForge")):
        monkeypatch.setenv("POWERTOOLS_METRICS_NAMESPACE", variable)
        metrics = EmfMetrics("query", selection=selection)
        metrics.increment("pipeline.query.calls")
        metrics.flush()
        (document,) = map(json.loads, capsys.readouterr().out.splitlines())
        assert document["_aws"]["CloudWatchMetrics"][0]["Namespace"] == expected


@BOTH
def test_concurrent_threads_lose_no_measurements(capsys: Capture, selection: Selection) -> None:
    metrics = EmfMetrics("query", selection=selection)

    def measure() -> None:
        for _ in range(500):
            metrics.increment("embedding.calls", tags=MODEL)

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.flush()
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    measured = {**read_emf(lines), **read_fields(lines)}
    assert sum(measured["embedding.calls", dimensions(**MODEL)]) == 2000
