"""Alarms of PostgreSQL and RDS Proxy. Actions: docs/operate/runbook.md."""

from collections.abc import Iterator

from aws_cdk import aws_cloudwatch as cloudwatch

from infra.monitoring.alarm_rules import AlarmRule
from infra.monitoring.metrics import ServiceMetrics
from infra.stage_settings import StageSettings

_Missing = cloudwatch.TreatMissingData

BORROW_MICROSECONDS = 1_000_000
"""The proxy times out after eight seconds."""


def database_alarm_rules(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    """Yield the alarms of PostgreSQL and RDS Proxy."""
    yield from _instance(stage, metrics)
    yield AlarmRule(
        "database-connections",
        "More than 80 % of the connections that PostgreSQL or RDS Proxy accepts are in use.",
        metrics.connections_percent("percent"),
        80,
        periods=2,
    )
    if stage.database.proxy:
        yield from _proxy(metrics)


def _instance(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    gib = 1024**3
    memory_gib = stage.database.memory_gib
    yield AlarmRule(
        "database-cpu",
        "PostgreSQL uses more than 80 % of its CPU, or is down and reports nothing.",
        metrics.database("CPUUtilization", "Average"),
        80,
        periods=3,
        missing=_Missing.BREACHING,
    )
    if stage.database.instance_type.startswith("t"):
        yield AlarmRule(
            "database-credits",
            "PostgreSQL uses more CPU than its instance class earns in a day: the rest is billed.",
            metrics.database("CPUSurplusCreditsCharged", "Maximum"),
            0.01,
            periods=3,
        )
    yield AlarmRule(
        "database-memory",
        "Less than a twentieth of PostgreSQL's memory is free.",
        metrics.database("FreeableMemory", "Average"),
        memory_gib * gib / 20,
        periods=3,
        below=True,
        missing=_Missing.IGNORE,
    )
    yield AlarmRule(
        "database-storage",
        "Storage is nearly full, and was not extended automatically in fifteen minutes.",
        metrics.database("FreeStorageSpace", "Minimum"),
        max(2.0, stage.database.storage_gib / 10) * gib,
        periods=3,
        below=True,
        missing=_Missing.IGNORE,
    )


def _proxy(metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "database-pinned",
        "A statement pins a connection of RDS Proxy to one client, which exhausts the pool.",
        metrics.proxy("DatabaseConnectionsCurrentlySessionPinned", "Maximum"),
        1,
    )
    yield AlarmRule(
        "database-borrowing-slow",
        "Statements wait a second on average for a connection of RDS Proxy, which times out after eight.",
        metrics.proxy("DatabaseConnectionsBorrowLatency", "Average"),
        BORROW_MICROSECONDS,
        periods=2,
    )
