"""Alarms of the probe and of the service objective: how fast its error budget is spent.

Burn rates and windows: https://sre.google/workbook/alerting-on-slos/, table 5-8, without the short windows,
which would double the alarms and only end them sooner.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.monitoring.alarm_rules import FIRST_TOKEN_MS, AlarmRule, share
from infra.monitoring.metrics import FIVE_MINUTES, ServiceMetrics
from infra.setting_types import ServiceObjective
from infra.stage_settings import StageSettings

FEWEST_ANSWERS = 20
"""Answers in a window below which their first tokens say little."""


@dataclass(frozen=True, slots=True)
class BurnRate:
    """Speed at which an error budget of 30 days is spent."""

    name: str
    rate: float
    """Multiple of the speed that spends the budget in exactly 30 days."""
    window: Duration


_LATENCY = "llm.streaming.first_token_ms"

BURN_RATES = (
    BurnRate("fast", 14.4, Duration.hours(1)),  # 2 % of the budget in an hour
    BurnRate("slow", 6.0, Duration.hours(6)),  # 5 % in six hours
)


def objective_alarm_rules(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    """Yield the alarms of a stage with a probe, and of one with an objective."""
    if stage.probe is not None:
        yield AlarmRule(
            "probe-failed",
            "The probe's query was not answered as expected, or the probe was not invoked.",
            metrics.function("Errors", "Sum", function="probe", period=FIVE_MINUTES),
            1,
            periods=3,
            breaching=2,
            missing=cloudwatch.TreatMissingData.BREACHING,
        )
    if stage.objective is not None:
        for burn in BURN_RATES:
            yield _errors(stage.objective, metrics, burn)
            yield _slow(stage.objective, metrics, burn)


def _errors(objective: ServiceObjective, metrics: ServiceMetrics, burn: BurnRate) -> AlarmRule:
    return AlarmRule(
        f"error-budget-{burn.name}",
        f"Failed queries spend the error budget {burn.rate:g} times too fast.",
        share(
            metrics.own("pipeline.query.faults", "Sum"),
            metrics.own("pipeline.query.calls", "Sum"),
            burn.window,
        ),
        _threshold(objective.answered_percent, burn),
    )


def _slow(objective: ServiceObjective, metrics: ServiceMetrics, burn: BurnRate) -> AlarmRule:
    return AlarmRule(
        f"latency-budget-{burn.name}",
        f"Slow first tokens spend the latency budget {burn.rate:g} times too fast.",
        cloudwatch.MathExpression(
            expression=f"IF(total >= {FEWEST_ANSWERS}, slow, 0)",
            using_metrics={
                "slow": metrics.own(_LATENCY, f"PR({FIRST_TOKEN_MS}:)"),
                "total": metrics.own(_LATENCY, "SampleCount"),
            },
            period=burn.window,
            label="percent",
        ),
        _threshold(objective.fast_percent, burn),
    )


def _threshold(objective_percent: float, burn: BurnRate) -> float:
    """Return the percentage of bad events at which the budget is spent at the given rate, at most all."""
    return min(round(burn.rate * (100 - objective_percent), 3), 100.0)
