"""When somebody should look, and how sure an alarm is before it says so. Actions: docs/runbook.md.

Alarms on counts of failures treat a period without data as good: nothing is counted while nobody asks. Gauges
that AWS reports always keep their state through a gap. Latencies look at three periods, since one slow vendor
or one cold start is nobody's work; periods with few samples count, since a quiet deployment has no others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.service_metrics import (
    FIVE_MINUTES,
    KEYS_UNREADABLE,
    MINUTE,
    RECORDS_PRINTED,
    ServiceMetrics,
)
from infra.settings import StageSettings

_Missing = cloudwatch.TreatMissingData

FAULT_PERCENT = 5
FEWEST_QUESTIONS = 40
"""With fewer in a minute, faults are counted as if it had been so many: two of them ring, one does not."""
FIRST_TOKEN_MS = 5_000
SEARCH_MS = 1_500
QUERY_LOG_WAIT = Duration.minutes(30)
"""A record is tried again after 30 s, 3 and 18 minutes; poison is in the dead-letter queue after 15."""
INGESTION_WAIT = Duration.hours(1)
"""A message is replaced while its job waits, and held while it runs, 15 minutes at most."""
BORROW_MICROSECONDS = 1_000_000
"""The proxy gives up after eight seconds."""


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """One alarm.

    Rings when ``breaching`` of the last ``periods`` points are at or above ``threshold``; ``below`` turns it
    round.
    """

    name: str
    """Without the stage's prefix; a heading of docs/runbook.md."""
    means: str
    metric: cloudwatch.IMetric
    threshold: float
    periods: int = 1
    breaching: int | None = None
    """None: all of them."""
    below: bool = False
    missing: cloudwatch.TreatMissingData = _Missing.NOT_BREACHING
    stops_deployment: bool = False
    """Whether a new version goes back while this rings. Such a rule refers to no resource of the stack."""


def alarm_rules(
    stage: StageSettings, metrics: ServiceMetrics, *, bulk_load: cloudwatch.IMetric
) -> Iterator[AlarmRule]:
    """The alarms of a deployment.

    Args:
        stage: The stage's settings.
        metrics: Of the deployment.
        bulk_load: Executions of the state machine that failed.
    """
    yield from _questions(stage, metrics)
    yield from _query_log(metrics)
    yield from _ingestion(metrics, bulk_load)
    yield from _database(stage, metrics)


def _questions(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    faults = metrics.own("pipeline.query.faults", "Sum", period=MINUTE)
    asked = metrics.own("pipeline.query.calls", "Sum", period=MINUTE)
    yield AlarmRule(
        "query-faults",
        "Questions fail through no fault of their callers, some of them in the middle of an answer.",
        _percent(faults, asked),
        FAULT_PERCENT,
        periods=3,
        breaching=2,
        stops_deployment=True,
    )
    yield AlarmRule(
        "query-function-errors",
        "The query function crashed, ran out of time or memory, or did not start. It answers every exception "
        "of its own, so one is enough.",
        metrics.function("Errors", "Sum", period=MINUTE),
        1,
        stops_deployment=True,
    )
    for name, door in _front_doors(stage, metrics):
        yield AlarmRule(
            name,
            "Callers get 5xx from the front door.",
            door,
            FAULT_PERCENT,
            periods=3,
            breaching=2,
            stops_deployment=True,
        )
    yield AlarmRule(
        "query-throttled",
        "Lambda refuses questions: the concurrency of the account or of the function is used up.",
        metrics.function("Throttles", "Sum"),
        1,
    )
    yield AlarmRule(
        "first-token-slow",
        f"One answer in twenty waits more than {FIRST_TOKEN_MS / 1000:g} s for the model's first token.",
        metrics.own("llm.streaming.first_token_ms", "p95"),
        FIRST_TOKEN_MS,
        periods=3,
    )
    yield AlarmRule(
        "search-slow",
        f"One search in twenty takes more than {SEARCH_MS / 1000:g} s: the embedding, or the database.",
        metrics.own("retriever.search.duration_ms", "p95"),
        SEARCH_MS,
        periods=3,
    )
    yield AlarmRule(
        "keys-unreadable",
        "A vendor's key could not be read again, is gone from the secret, or was refused.",
        metrics.own(KEYS_UNREADABLE, "Sum", service=None),
        1,
    )


def _front_doors(
    stage: StageSettings, metrics: ServiceMetrics
) -> Iterator[tuple[str, cloudwatch.MathExpression]]:
    if stage.front_door != "function_url":
        yield (
            "api-errors",
            _percent(
                metrics.api("5XXError", "Sum", period=MINUTE), metrics.api("Count", "Sum", period=MINUTE)
            ),
        )
    if stage.front_door != "rest_api":
        yield (
            "url-errors",
            _percent(
                metrics.function("Url5xxCount", "Sum", period=MINUTE),
                metrics.function("UrlRequestCount", "Sum", period=MINUTE),
            ),
        )


def _percent(failed: cloudwatch.Metric, of: cloudwatch.Metric) -> cloudwatch.MathExpression:
    """Percent of at least ``FEWEST_QUESTIONS``: 100 % of one question at night is nobody's emergency."""
    return cloudwatch.MathExpression(
        expression=f"100 * FILL(failed, 0) / IF(asked > {FEWEST_QUESTIONS}, asked, {FEWEST_QUESTIONS})",
        using_metrics={"failed": failed, "asked": of},
        period=MINUTE,
        label="percent",
    )


def _query_log(metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "query-log-waiting",
        "Records of the query log are not stored: the log writer fails, or does not reach the database.",
        metrics.queue("ApproximateAgeOfOldestMessage", "Maximum", queue="query-log"),
        QUERY_LOG_WAIT.to_seconds(),
    )
    yield _dead_letters(metrics, "query-log", "Records of the query log were given up after five deliveries.")
    yield AlarmRule(
        "query-log-printed",
        "SQS did not take records of the query log in time: they are in the query function's log.",
        metrics.own(RECORDS_PRINTED, "Sum", service=None),
        1,
    )
    yield _errors(metrics, "log-writer", "The log writer crashes again and again.", periods=3)


def _ingestion(metrics: ServiceMetrics, bulk_load: cloudwatch.IMetric) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "ingestion-waiting",
        "Documents wait: the ingest function fails, or more come in than it works off.",
        metrics.queue("ApproximateAgeOfOldestMessage", "Maximum", queue="ingestion"),
        INGESTION_WAIT.to_seconds(),
    )
    yield _dead_letters(metrics, "ingestion", "Uploads or jobs were given up after five deliveries.")
    yield _errors(metrics, "ingest", "The ingest function crashes again and again.", periods=3)
    yield _errors(metrics, "migrate", "A migration crashed, or its function did.", periods=1)
    yield AlarmRule("bulk-load-failed", "A bulk load failed; its report says where.", bulk_load, 1)


def _dead_letters(metrics: ServiceMetrics, queue: str, means: str) -> AlarmRule:
    depth = metrics.queue("ApproximateNumberOfMessagesVisible", "Maximum", queue=f"{queue}-dead")
    return AlarmRule(f"{queue}-dead-letters", means, depth, 1)


def _errors(metrics: ServiceMetrics, function: str, means: str, *, periods: int) -> AlarmRule:
    """What a queue delivers is tried again, so one crash repairs itself; three periods do not."""
    errors = metrics.function("Errors", "Sum", function=function)
    return AlarmRule(f"{function}-errors", means, errors, 1, periods=periods)


def _database(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    gib = 1024**3
    memory_gib = stage.database.memory_gib
    yield AlarmRule(
        "database-cpu",
        "PostgreSQL uses more than 80 % of its CPU, or reports nothing because it is not there.",
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
        "Storage is nearly full, and has not grown by itself in fifteen minutes.",
        metrics.database("FreeStorageSpace", "Minimum"),
        max(2.0, stage.database.storage_gib / 10) * gib,
        periods=3,
        below=True,
        missing=_Missing.IGNORE,
    )
    borrowed = metrics.proxy("DatabaseConnectionsCurrentlyBorrowed", "Maximum")
    allowed = metrics.proxy("MaxDatabaseConnectionsAllowed", "Maximum")
    yield AlarmRule(
        "database-connections",
        "More than 80 % of the connections that RDS Proxy may open are in use.",
        cloudwatch.MathExpression(
            expression="100 * borrowed / allowed",
            using_metrics={"borrowed": borrowed, "allowed": allowed},
            period=FIVE_MINUTES,
            label="percent",
        ),
        80,
        periods=2,
    )
    yield AlarmRule(
        "database-borrowing-slow",
        "Statements wait a second on average for a connection of RDS Proxy, which gives up after eight.",
        metrics.proxy("DatabaseConnectionsBorrowLatency", "Average"),
        BORROW_MICROSECONDS,
        periods=2,
    )
