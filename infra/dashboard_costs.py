"""The dashboard's third part: what questions cost at the prices of ``infra.prices``, and what drives it."""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.bill import gb
from infra.dashboard_graph import HEIGHT, WIDTH, graph
from infra.prices import PRICES, REGION
from infra.question_bill import stage_models
from infra.service_metrics import FUNCTIONS, ServiceMetrics
from infra.settings import FunctionSettings, StageSettings

_HOUR: Final = Duration.hours(1)
_QUARTER: Final = WIDTH // 4

_Metrics = Mapping[str, cloudwatch.IMetric]


class CostExpressions:
    """Dollars by metric math.

    Left out: what idle costs, and a few per cent that no metric tells by itself: queues, traces, traffic.

    Args:
        stage: The stage's settings.
        metrics: Of the deployment.
    """

    def __init__(self, stage: StageSettings, metrics: ServiceMetrics) -> None:
        self._stage = stage
        self._metrics = metrics

    def parts(self) -> list[cloudwatch.MathExpression]:
        """Functions, front door, logs and the model of each vendor, in dollars an hour."""
        return [
            self._expression(*self._functions(), "functions"),
            self._expression(*self._door(), "front door"),
            self._expression(*self._logs(), "logs"),
            *(self._expression(*self._model(provider), provider) for provider in stage_models(self._stage)),
        ]

    def per_thousand(self) -> cloudwatch.MathExpression:
        """Dollars for 1,000 questions."""
        sums = [self._functions(), self._door(), self._logs()]
        sums += [self._model(provider) for provider in stage_models(self._stage)]
        metrics: dict[str, cloudwatch.IMetric] = {
            "questions": self._metrics.own("pipeline.query.calls", "Sum", period=_HOUR)
        }
        for _, used in sums:
            metrics.update(used)
        dollars = " + ".join(f"({expression})" for expression, _ in sums)
        return self._expression(f"1000 * ({dollars}) / questions", metrics, "$ for 1,000 questions")

    def _functions(self) -> tuple[str, _Metrics]:
        each = PRICES.lambda_gb_second(self._stage.code.architecture).each
        terms, metrics = [], dict[str, cloudwatch.IMetric]()
        for function in FUNCTIONS:
            key = function.replace("-", "")
            metrics[f"n_{key}"] = self._metrics.function(
                "Invocations", "Sum", function=function, period=_HOUR
            )
            metrics[f"ms_{key}"] = self._metrics.function("Duration", "Sum", function=function, period=_HOUR)
            a_ms = gb(settings_of(self._stage, function)) * each / 1000
            terms.append(f"FILL(n_{key}, 0) * {PRICES.lambda_request.each:.10f}")
            terms.append(f"FILL(ms_{key}, 0) * {a_ms:.13f}")
        return " + ".join(terms), metrics

    def _door(self) -> tuple[str, _Metrics]:
        if self._stage.front_door == "function_url":
            requests = self._metrics.function("UrlRequestCount", "Sum", period=_HOUR)
            each = PRICES.cloudfront_request.each
        else:
            requests = self._metrics.api("Count", "Sum", period=_HOUR)
            each = PRICES.api_request.each + (PRICES.web_acl_request.each if self._stage.web_acl else 0)
        return f"FILL(requests, 0) * {each:.10f}", {"requests": requests}

    def _logs(self) -> tuple[str, _Metrics]:
        metrics = {
            f"log_{function.replace('-', '')}": self._metrics.log_bytes(function).with_(period=_HOUR)
            for function in FUNCTIONS
        }
        size = " + ".join(f"FILL({key}, 0)" for key in metrics)
        return f"({size}) * {PRICES.log_gb.each / 1e9:.13f}", metrics

    def _model(self, provider: str) -> tuple[str, _Metrics]:
        price = stage_models(self._stage)[provider]
        metrics = {
            f"{direction}_{provider}": self._metrics.own(
                f"llm.tokens_{direction}put", "Sum", period=_HOUR, provider=provider
            )
            for direction in ("in", "out")
        }
        expression = (
            f"FILL(in_{provider}, 0) * {price.tokens_in / 1e6:.10f}"
            f" + FILL(out_{provider}, 0) * {price.tokens_out / 1e6:.10f}"
        )
        return expression, metrics

    def _expression(self, expression: str, metrics: _Metrics, label: str) -> cloudwatch.MathExpression:
        return cloudwatch.MathExpression(
            expression=expression, using_metrics=dict(metrics), label=label, period=_HOUR
        )


def cost_widgets(stage: StageSettings, metrics: ServiceMetrics) -> list[list[cloudwatch.IWidget]]:
    """Two rows: dollars, and what drives them.

    Args:
        stage: The stage's settings.
        metrics: Of the deployment.
    """
    dollars = CostExpressions(stage, metrics)
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
                "traces and traffic are not in it: see `docs/costs.md`.",
                width=_QUARTER,
                height=HEIGHT,
            ),
        ],
        [
            graph("Invocations", _invocations(metrics), unit="in 5 minutes", width=_QUARTER),
            graph("Time times memory", _gb_seconds(stage, metrics), unit="GB-seconds", width=_QUARTER),
            graph("Tokens in and out, by vendor", _tokens(stage), unit="tokens", width=_QUARTER),
            graph("Bytes of logs", _log_bytes(metrics), unit="bytes", width=_QUARTER),
        ],
    ]


def settings_of(stage: StageSettings, function: str) -> FunctionSettings:
    """Size and time of a function, by the end of its name."""
    found: FunctionSettings = getattr(stage, function.replace("-", "_"))
    return found


def _invocations(metrics: ServiceMetrics) -> list[cloudwatch.IMetric]:
    return [metrics.function("Invocations", "Sum", function=name, label=name) for name in FUNCTIONS]


def _gb_seconds(stage: StageSettings, metrics: ServiceMetrics) -> list[cloudwatch.IMetric]:
    lines: list[cloudwatch.IMetric] = []
    for name in FUNCTIONS:
        key = f"ms_{name.replace('-', '')}"
        lines.append(
            cloudwatch.MathExpression(
                expression=f"{key} * {gb(settings_of(stage, name)) / 1000:.7f}",
                using_metrics={key: metrics.function("Duration", "Sum", function=name)},
                label=name,
            )
        )
    return lines


def _tokens(stage: StageSettings) -> list[cloudwatch.IMetric]:
    """Only the metrics know which vendors there are; alarms may not search, dashboards may."""
    schema = f'{{"{stage.metrics_namespace}",service,provider}} service="query"'
    return [
        cloudwatch.SearchExpression(
            expression=f"SEARCH('{schema} MetricName=\"llm.tokens_{direction}put\"', 'Sum', 300)",
            label=direction,
        )
        for direction in ("in", "out")
    ]


def _log_bytes(metrics: ServiceMetrics) -> list[cloudwatch.IMetric]:
    return [metrics.log_bytes(name, label=name) for name in FUNCTIONS]
