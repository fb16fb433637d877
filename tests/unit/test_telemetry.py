"""Metric names, kinds and tags, and the measurement of a step."""

import pytest

from vectorforge.telemetry import METRICS, InMemoryMetrics, instrument, measure

DESIGN = {
    "retriever.search.duration_ms": ("histogram", {"retriever_type"}),
    "retriever.search.calls": ("counter", {"retriever_type"}),
    "retriever.search.errors": ("counter", {"retriever_type", "error_type"}),
    "retriever.results_returned": ("histogram", {"retriever_type"}),
    "retriever.empty_results": ("counter", {"retriever_type"}),
    "context.build.duration_ms": ("histogram", set()),
    "context.tokens_used": ("histogram", set()),
    "context.chunks_included": ("histogram", set()),
    "context.chunks_truncated": ("counter", set()),
    "llm.generate.duration_ms": ("histogram", {"provider", "model"}),
    "llm.generate.calls": ("counter", {"provider", "model"}),
    "llm.generate.errors": ("counter", {"provider", "model", "error_type"}),
    "llm.generate.retries": ("counter", {"provider", "model"}),
    "llm.tokens_input": ("counter", {"provider", "model"}),
    "llm.tokens_output": ("counter", {"provider", "model"}),
    "llm.streaming.chunks": ("counter", {"provider", "model"}),
    "llm.streaming.first_token_ms": ("histogram", {"provider", "model"}),
    "pipeline.query.duration_ms": ("histogram", set()),
    "pipeline.query.calls": ("counter", set()),
    "pipeline.query.errors": ("counter", {"stage", "error_type"}),
}


@pytest.mark.parametrize("name", DESIGN)
def test_design_metrics_have_kind_and_tags(name: str) -> None:
    spec = METRICS[name]
    assert (spec.kind, set(spec.tags)) == DESIGN[name]


def test_histograms_and_counters_record_values() -> None:
    metrics = InMemoryMetrics()
    metrics.observe("context.tokens_used", 10)
    metrics.observe("context.tokens_used", 30)
    metrics.increment("context.chunks_truncated", 2)
    metrics.increment("context.chunks_truncated")
    series = metrics.get("context.tokens_used")
    assert (series.count, series.total, list(series.values)) == (2, 40, [10, 30])
    assert metrics.total("context.chunks_truncated") == 3


@pytest.mark.parametrize(
    ("name", "tags"),
    [("no.such.metric", {}), ("context.tokens_used", {"tenant": "a"}), ("retriever.search.calls", {})],
)
def test_unknown_metric_or_tag_raises_key_error(name: str, tags: dict[str, str]) -> None:
    with pytest.raises(KeyError):
        InMemoryMetrics().increment(name, tags=tags)


def test_in_memory_metrics_are_bounded() -> None:
    metrics = InMemoryMetrics()
    for value in range(5000):
        metrics.observe("context.tokens_used", value)
    assert len(metrics.get("context.tokens_used").values) == 1000
    assert metrics.get("context.tokens_used").count == 5000
    for number in range(6000):
        metrics.increment("llm.generate.calls", tags={"provider": "p", "model": f"m{number}"})
    assert len(metrics.items()) == 5000


def test_measured_step_emits_calls_duration_and_errors() -> None:
    metrics = InMemoryMetrics()

    def fail() -> None:
        with measure(metrics, "pipeline.query") as measurement:
            measurement.error_tags["stage"] = "retrieve"
            raise LookupError

    with pytest.raises(LookupError):
        fail()
    assert metrics.total("pipeline.query.calls") == 1
    assert metrics.get("pipeline.query.duration_ms").count == 1
    tags = {"stage": "retrieve", "error_type": "LookupError"}
    assert metrics.get("pipeline.query.errors", tags).total == 1


async def test_instrumented_method_emits_calls() -> None:
    class Step:
        def __init__(self) -> None:
            self.metrics = InMemoryMetrics()

        @instrument("retriever.search", lambda _: {"retriever_type": "dense"})
        async def run(self, value: int) -> int:
            return value + 1

    step = Step()
    assert await step.run(1) == 2
    assert step.metrics.get("retriever.search.calls", {"retriever_type": "dense"}).total == 1


def test_metric_with_other_kind_raises_key_error() -> None:
    metrics = InMemoryMetrics()
    metrics.observe("context.tokens_used", 3)
    with pytest.raises(KeyError):
        metrics.increment("context.tokens_used")


def test_tag_order_does_not_create_another_series() -> None:
    metrics = InMemoryMetrics()
    for _ in range(2):
        metrics.increment("llm.generate.calls", tags={"provider": "p", "model": "m"})
        metrics.increment("llm.generate.calls", tags={"model": "m", "provider": "p"})
    ((_, tags, series),) = metrics.items()
    assert (tags, series.total) == ({"provider": "p", "model": "m"}, 4)
    with pytest.raises(KeyError):
        metrics.observe("llm.generate.calls", 1, {"provider": "p", "model": "m"})
