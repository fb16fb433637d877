"""Metrics as CloudWatch reads them off the log: complete, valid, each value once, and bounded in number."""

import math
import threading
from types import SimpleNamespace

import pytest

from vectorforge.aws.metrics import MAX_TAG_SETS, MAX_VALUES_PER_TAG, EmfMetrics
from vectorforge.telemetry import METRICS
from vectorforge.testing.emf import Measured, read_emf, units_of

MODEL = {"provider": "openai", "model": "gpt-4o"}
Capture = pytest.CaptureFixture[str]


def dimensions(**tags: str) -> frozenset[tuple[str, str]]:
    return frozenset({"service": "query", **tags}.items())


def printed(capsys: Capture) -> Measured:
    return read_emf(capsys.readouterr().out.splitlines())


def test_every_metric_is_printed_with_its_unit_and_tags(capsys: Capture) -> None:  # C26, F-005
    metrics = EmfMetrics("query")
    for name, spec in METRICS.items():
        tags = {tag: f"a-{tag}" for tag in spec.tags}
        add = metrics.observe if spec.kind == "histogram" else metrics.increment
        add(name, 3, tags)
    assert capsys.readouterr().out == ""  # nothing before the end of the invocation
    metrics.flush()
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) == len({spec.tags for spec in METRICS.values()})  # one line for each set of tags
    expected = {
        (name, dimensions(**{tag: f"a-{tag}" for tag in spec.tags})): [3.0] for name, spec in METRICS.items()
    }
    assert read_emf(lines) == expected
    for name, unit in units_of(lines).items():
        assert unit == ("Milliseconds" if name.endswith("_ms") else "Count"), name


def test_a_histogram_keeps_its_values_and_tags_keep_apart(capsys: Capture) -> None:  # C26
    metrics = EmfMetrics("query")
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
def test_more_values_than_a_line_holds_are_neither_lost_nor_doubled(capsys: Capture, count: int) -> None:
    metrics = EmfMetrics("query")
    for value in range(count):
        metrics.observe("retriever.results_returned", value, {"retriever_type": "dense"})
        metrics.increment("retriever.search.calls", tags={"retriever_type": "dense"})
    metrics.flush()
    found = printed(capsys)
    assert found["retriever.results_returned", dimensions(retriever_type="dense")] == list(range(count))
    assert sum(found["retriever.search.calls", dimensions(retriever_type="dense")]) == count


def test_a_second_flush_prints_what_came_since_the_first(capsys: Capture) -> None:
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


def test_callers_cannot_make_the_bill_grow(capsys: Capture) -> None:
    metrics = EmfMetrics("query")
    metrics.increment("llm.generate.calls", tags=MODEL)
    for number in range(1000):
        metrics.increment("llm.generate.calls", tags={**MODEL, "model": f"model-{number}"})
        if number % 10 == 0:
            metrics.flush()  # the limit is the process's, not the invocation's
    metrics.increment("llm.generate.calls", tags=MODEL)  # known before the limit was reached
    metrics.flush()
    found = printed(capsys)
    assert sum(sum(values) for values in found.values()) == 1002
    assert len(found) == MAX_VALUES_PER_TAG + 1
    assert sum(found["llm.generate.calls", dimensions(**MODEL)]) == 2
    others = found["llm.generate.calls", dimensions(provider="openai", model="other")]
    assert sum(others) == 1001 - MAX_VALUES_PER_TAG
    # Tags that callers do not choose are still told apart.
    metrics.increment("retriever.search.calls", tags={"retriever_type": "dense"})
    metrics.flush()
    assert list(printed(capsys)) == [("retriever.search.calls", dimensions(retriever_type="dense"))]


def test_combinations_of_tags_are_bounded_too(capsys: Capture) -> None:
    metrics = EmfMetrics("query")
    for model in range(30):
        for error in range(30):
            tags = {"provider": "openai", "model": f"model-{model}", "error_type": f"Error{error}"}
            metrics.increment("llm.generate.errors", tags=tags)
    metrics.flush()
    found = printed(capsys)
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
def test_values_that_cloudwatch_refuses_are_made_fit(capsys: Capture, model: str, sent: str) -> None:
    metrics = EmfMetrics("query")
    metrics.increment("llm.generate.calls", tags={**MODEL, "model": model})
    metrics.flush()
    assert list(printed(capsys)) == [("llm.generate.calls", dimensions(provider="openai", model=sent))]


def test_what_is_no_number_does_not_cost_the_others(capsys: Capture) -> None:
    metrics = EmfMetrics("query")
    for value in (math.nan, math.inf, -math.inf, 4.0):
        metrics.observe("context.build.duration_ms", value)
    metrics.flush()
    assert printed(capsys) == {("context.build.duration_ms", dimensions()): [4]}


def test_unknown_names_and_tags_are_typing_errors() -> None:
    metrics = EmfMetrics("query")
    with pytest.raises(KeyError):
        metrics.increment("no.such.metric")
    with pytest.raises(KeyError, match="histogram"):
        metrics.increment("context.build.duration_ms")
    with pytest.raises(KeyError, match="retriever_type"):
        metrics.increment("retriever.search.calls")


def test_a_cold_start_names_its_function(capsys: Capture) -> None:
    EmfMetrics("query").add_cold_start(SimpleNamespace(function_name="vectorforge-query"))
    cold = frozenset({"service": "query", "function_name": "vectorforge-query"}.items())
    assert printed(capsys) == {("ColdStart", cold): [1]}


def test_threads_may_measure_at_the_same_time(capsys: Capture) -> None:
    metrics = EmfMetrics("query")

    def measure() -> None:
        for _ in range(500):
            metrics.increment("llm.generate.calls", tags=MODEL)

    threads = [threading.Thread(target=measure) for _ in range(4)]
    for thread in threads:
        thread.start()
    while any(thread.is_alive() for thread in threads):
        metrics.flush()
    metrics.flush()
    assert sum(printed(capsys)["llm.generate.calls", dimensions(**MODEL)]) == 2000
