"""Lines over time, as all of the dashboard's graphs have them."""

from collections.abc import Sequence
from typing import Final

from aws_cdk import aws_cloudwatch as cloudwatch

WIDTH: Final = 24
"""Columns of a row."""
HEIGHT: Final = 6


def graph(
    title: str,
    left: Sequence[cloudwatch.IMetric],
    right: Sequence[cloudwatch.IMetric] = (),
    *,
    unit: str,
    right_unit: str | None = None,
    width: int = WIDTH // 3,
    stacked: bool = False,
) -> cloudwatch.GraphWidget:
    """A graph whose axes begin at zero.

    Args:
        title: What the lines answer.
        left: Metrics of the left axis.
        right: Metrics of the right axis.
        unit: Of the left axis.
        right_unit: Of the right axis.
        width: In columns.
        stacked: Whether the lines add up.
    """
    return cloudwatch.GraphWidget(
        title=title,
        left=list(left),
        right=list(right),
        left_y_axis=cloudwatch.YAxisProps(min=0, label=unit, show_units=False),
        right_y_axis=cloudwatch.YAxisProps(min=0, label=right_unit, show_units=False) if right else None,
        width=width,
        height=HEIGHT,
        stacked=stacked,
    )


def scaled(metric: cloudwatch.Metric, label: str, units: int) -> cloudwatch.MathExpression:
    """A metric in a larger unit.

    Args:
        metric: The metric.
        label: In the legend.
        units: How many of its units the larger one has.
    """
    key = metric.metric_name[0].lower() + metric.metric_name[1:]
    return cloudwatch.MathExpression(expression=f"{key} / {units}", using_metrics={key: metric}, label=label)
