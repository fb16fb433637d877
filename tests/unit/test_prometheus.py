"""Metrics in Prometheus' format equal the measurements."""

import pytest
from prometheus_client.parser import text_string_to_metric_families

from vectorforge.api.native.statistics import exposition
from vectorforge.telemetry import METRICS, InMemoryMetrics

Samples = dict[tuple[str, tuple[tuple[str, str], ...]], float]


def read(text: str) -> tuple[Samples, dict[str, str]]:
    """Parse samples by name and labels, and the type of each family, with Prometheus' own parser."""
    families = list(text_string_to_metric_families(text))
    samples = {
        (sample.name, tuple(sorted(sample.labels.items()))): sample.value
        for family in families
        for sample in family.samples
    }
    assert len(samples) == sum(len(family.samples) for family in families)  # none twice
    return samples, {family.name: family.type for family in families}


def test_counters_and_summaries_are_exposed() -> None:  # A-143, C26
    metrics = InMemoryMetrics()
    metrics.increment("pipeline.query.calls")
    metrics.increment("pipeline.query.calls", 2)
    for value in range(1, 101):
        metrics.observe("llm.generate.duration_ms", value * 10, {"provider": "openai", "model": "gpt-4o"})
    metrics.observe("context.tokens_used", 1200)
    samples, types = read(exposition(metrics))
    model = (("model", "gpt-4o"), ("provider", "openai"))
    assert samples["vectorforge_pipeline_query_calls_total", ()] == 3
    name = "vectorforge_llm_generate_duration_ms"
    assert samples[f"{name}_count", model] == 100
    assert samples[f"{name}_sum", model] == pytest.approx(50_500)
    quantiles = [samples[name, (*model, ("quantile", share))] for share in ("0.5", "0.95", "0.99")]
    assert quantiles == pytest.approx([510, 950, 990])
    assert samples["vectorforge_context_tokens_used_sum", ()] == 1200
    assert types == {
        "vectorforge_pipeline_query_calls": "counter",
        name: "summary",
        "vectorforge_context_tokens_used": "summary",
    }


def test_metric_names_are_unique_and_valid_in_prometheus() -> None:
    metrics = InMemoryMetrics()
    for name, spec in METRICS.items():
        tags = dict.fromkeys(spec.tags, "x")
        if spec.kind == "counter":
            metrics.increment(name, tags=tags)
        else:
            metrics.observe(name, 1.0, tags)
    _, types = read(exposition(metrics))
    assert len(types) == len(METRICS)


@pytest.mark.parametrize("name", ['a"b', "a\\b", "a\nb", "a\\nb", "ä{}=,# TYPE"])
def test_model_name_in_tag_cannot_inject_a_line(name: str) -> None:
    metrics = InMemoryMetrics()
    metrics.increment("llm.generate.calls", tags={"provider": "openai", "model": name})
    samples, _ = read(exposition(metrics))
    assert samples == {
        ("vectorforge_llm_generate_calls_total", (("model", name), ("provider", "openai"))): 1.0
    }


def test_empty_metrics_expose_empty_text() -> None:
    assert exposition(InMemoryMetrics()) == ""
