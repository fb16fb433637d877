"""Third part of the dashboard: the cost of queries at list prices (``infra.costs``), and its drivers."""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.costs.bill import gb, stage_models
from infra.costs.prices import PRICES, REGION
from infra.monitoring.graphs import HEIGHT, WIDTH, graph
from infra.monitoring.metrics import FUNCTIONS, ServiceMetrics
from infra.stage_settings import StageSettings

_HOUR: Final = Duration.hours(1)
_QUARTER: Final = WIDTH // 4


def cost_widgets(stage: StageSettings, metrics: ServiceMetrics) -> list[list[cloudwatch.IWidget]]:
    """Return two rows of widgets: dollars, and their drivers."""
    dollars = _CostExpressions(stage, metrics)
    priced = ", ".join(f"{provider} as {model.model}" for provider, model in stage_models(stage).items())
    return [
        [
            cloudwatch.SingleValueWidget(
                title="In the time shown",
                metrics=[dollars.per_thousand()],
                set_period_to_time_range=True,
                width=_QUARTER,
                height=HEIGHT,
            ),
            graph("Dollars an hour", dollars.parts(), unit="$", width=WIDTH // 2, stacked=True),
            cloudwatch.TextWidget(
                markdown=f"**Estimated** at list prices of {REGION}: {priced}. Other vendors, queues, "
                "traces and traffic are not included: see `docs/operate/costs.md`.",
                width=_QUARTER,
                height=HEIGHT,
            ),
        ],
        [
            graph(
                "Invocations",
                [metrics.function("Invocations", "Sum", function=name, label=name) for name in FUNCTIONS],
                unit="in 5 minutes",
                width=_QUARTER,
            ),
            graph("Time times memory", _gb_seconds(stage, metrics), unit="GB-seconds", width=_QUARTER),
            graph("Tokens in and out, by vendor", _tokens(stage), unit="tokens", width=_QUARTER),
            graph(
                "Bytes of logs",
                [metrics.log_bytes(name, label=name) for name in FUNCTIONS],
                unit="bytes",
                width=_QUARTER,
            ),
        ],
    ]


class _CostExpressions:
    """Dollars by metric math.

    Left out: the idle cost, and a few percent that no metric shows: queues, traces, traffic.
    """

    def __init__(self, stage: StageSettings, metrics: ServiceMetrics) -> None:
        self._stage = stage
        self._metrics = metrics
        self._used: dict[str, cloudwatch.IMetric] = {}
        self._terms = {"functions": self._functions(), "front door": self._door(), "logs": self._logs()}
        self._terms |= {provider: self._model(provider) for provider in stage_models(stage)}

    def parts(self) -> list[cloudwatch.MathExpression]:
        """Return functions, front door, logs and the model of each vendor, in dollars an hour."""
        return [self._expression(term, self._names(term), label) for label, term in self._terms.items()]

    def per_thousand(self) -> cloudwatch.MathExpression:
        """Return dollars for 1,000 queries."""
        queries = self._metrics.own("pipeline.query.calls", "Sum", period=_HOUR)
        dollars = " + ".join(f"({term})" for term in self._terms.values())
        used = {"queries": queries, **self._used}
        return self._expression(f"1000 * ({dollars}) / queries", used, "$ for 1,000 queries")

    def _names(self, term: str) -> dict[str, cloudwatch.IMetric]:
        return {key: metric for key, metric in self._used.items() if f"({key}, 0)" in term}

    def _use(self, key: str, metric: cloudwatch.IMetric) -> str:
        self._used[key] = metric
        return f"FILL({key}, 0)"

    def _functions(self) -> str:
        each = PRICES[f"lambda_{self._stage.code.architecture}"].each
        terms = []
        for name in FUNCTIONS:
            key, function = name.replace("-", ""), self._metrics.function
            count = self._use(f"n_{key}", function("Invocations", "Sum", function=name, period=_HOUR))
            spent = self._use(f"ms_{key}", function("Duration", "Sum", function=name, period=_HOUR))
            a_ms = _memory_gb(self._stage, name) * each / 1000
            terms += [f"{count} * {PRICES['lambda_request'].each:.10f}", f"{spent} * {a_ms:.13f}"]
        return " + ".join(terms)

    def _door(self) -> str:
        if self._stage.front_door == "function_url":
            requests = self._metrics.function("UrlRequestCount", "Sum", period=_HOUR)
            each = PRICES["cloudfront_request"].each
        else:
            requests = self._metrics.api("Count", "Sum", period=_HOUR)
            firewall = PRICES["web_acl_request"].each if self._stage.web_acl else 0
            each = PRICES["api_request"].each + firewall
        return f"{self._use('requests', requests)} * {each:.10f}"

    def _logs(self) -> str:
        sizes = [
            self._use(f"log_{name.replace('-', '')}", self._metrics.log_bytes(name).with_(period=_HOUR))
            for name in FUNCTIONS
        ]
        return f"({' + '.join(sizes)}) * {PRICES['log_gb'].each / 1e9:.13f}"

    def _model(self, provider: str) -> str:
        price, terms = stage_models(self._stage)[provider], []
        for direction, each in (("in", price.tokens_in), ("out", price.tokens_out)):
            name = f"llm.tokens_{direction}put"
            tokens = self._metrics.own(name, "Sum", period=_HOUR, provider=provider)
            terms.append(f"{self._use(f'{direction}_{provider}', tokens)} * {each / 1e6:.10f}")
        return " + ".join(terms)

    def _expression(
        self, expression: str, metrics: Mapping[str, cloudwatch.IMetric], label: str
    ) -> cloudwatch.MathExpression:
        return cloudwatch.MathExpression(
            expression=expression, using_metrics=dict(metrics), label=label, period=_HOUR
        )


def _memory_gb(stage: StageSettings, function: str) -> float:
    """Return the memory of a function, named without the stage's prefix."""
    return gb(getattr(stage, function.replace("-", "_")))


def _gb_seconds(stage: StageSettings, metrics: ServiceMetrics) -> list[cloudwatch.IMetric]:
    lines: list[cloudwatch.IMetric] = []
    for name in FUNCTIONS:
        key = f"ms_{name.replace('-', '')}"
        spent = metrics.function("Duration", "Sum", function=name)
        expression = f"{key} * {_memory_gb(stage, name) / 1000:.7f}"
        lines.append(cloudwatch.MathExpression(expression=expression, using_metrics={key: spent}, label=name))
    return lines


def _tokens(stage: StageSettings) -> list[cloudwatch.IMetric]:
    """Return a search over all vendors that have metrics; dashboards may search, alarms may not."""
    schema = f'{{"{stage.metrics_namespace}",service,provider}} service="query"'
    return [
        cloudwatch.SearchExpression(
            expression=f"SEARCH('{schema} MetricName=\"llm.tokens_{direction}put\"', 'Sum', 300)",
            label=direction,
        )
        for direction in ("in", "out")
    ]
