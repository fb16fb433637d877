"""Graphs of the dashboard."""

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
    """Return a graph whose axes begin at zero."""
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


def scaled(metric: cloudwatch.Metric, label: str, units: float) -> cloudwatch.MathExpression:
    """Return a metric in another unit."""
    key = metric.metric_name[0].lower() + metric.metric_name[1:]
    return cloudwatch.MathExpression(expression=f"{key} / {units}", using_metrics={key: metric}, label=label)
