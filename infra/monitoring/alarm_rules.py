"""Alarms of the query function, front doors, queues and ingestion. Actions: docs/operate/runbook.md.

Alarms on failure counts treat missing data as good: nothing is counted without traffic. Gauges that AWS
always reports keep their state through a gap. Latencies use three periods, since one slow vendor or one cold
start needs no action; periods with few samples count, since a deployment with low traffic has no others.
"""

from collections.abc import Iterator
from dataclasses import dataclass

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.monitoring.metrics import (
    FIVE_MINUTES,
    KEYS_UNREADABLE,
    MINUTE,
    QUARTER,
    RECORDS_PRINTED,
    ServiceMetrics,
)
from infra.stage_settings import StageSettings


@dataclass(frozen=True, slots=True)
class AlarmRule:
    """One alarm.

    Fires when ``breaching`` of the last ``periods`` points are at or above ``threshold``, or below it with
    ``below``.
    """

    name: str
    """Without the stage's prefix; a heading of docs/operate/runbook.md."""
    meaning: str
    metric: cloudwatch.IMetric
    threshold: float
    periods: int = 1
    breaching: int | None = None
    """None: all of them."""
    below: bool = False
    missing: cloudwatch.TreatMissingData = cloudwatch.TreatMissingData.NOT_BREACHING
    stops_deployment: bool = False
    """Roll back a new version while this fires. Such a rule refers to no resource of the stack."""
    notifies: bool = True
    """Publish to the topic. A rule that only stops deployments is reported by the deployment."""


FAULT_PERCENT = 5
FEWEST_QUESTIONS = 40
"""Smallest denominator of a minute's fault rate: two faults at low traffic fire the alarm, one does not."""
LOW_TRAFFIC_FAULTS = 3
"""Faults in 15 minutes below which no outage is assumed, and in 5 minutes of a canary no rollback."""
OUTAGE_PERCENT = 50
FIRST_TOKEN_MS = 5_000
SEARCH_MS = 1_500
QUERY_LOG_WAIT = Duration.minutes(30)
"""A record is retried after 30 s, 3 and 18 minutes; poison reaches the dead-letter queue after 15."""
INGESTION_WAIT = Duration.hours(1)
"""A message is replaced while its job waits, and in flight while it runs, at most 15 minutes."""


def alarm_rules(
    stage: StageSettings, metrics: ServiceMetrics, *, bulk_load: cloudwatch.IMetric
) -> Iterator[AlarmRule]:
    """Yield the alarms of a deployment; ``bulk_load`` counts failed bulk loads."""
    yield from _failed_queries(stage, metrics)
    yield from _front_doors(stage, metrics)
    yield from _slow_queries(metrics)
    yield from _query_log(metrics)
    yield from _ingestion(metrics, bulk_load)


def _failed_queries(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    faults = metrics.own("pipeline.query.faults", "Sum")  # the expressions decide for how long
    total = metrics.own("pipeline.query.calls", "Sum")
    yield AlarmRule(
        "query-faults",
        "Queries fail with server-side errors, some of them during the answer.",
        _percent(faults, total),
        FAULT_PERCENT,
        periods=3,
        breaching=2,
        stops_deployment=True,
    )
    yield AlarmRule(
        "query-failing",
        "At least half of the queries fail with server-side errors, at any traffic.",
        share(faults, total, QUARTER),
        OUTAGE_PERCENT,
    )
    if stage.canary:
        yield AlarmRule(
            "new-version-faults",
            "Queries fail while a new version serves a tenth of the traffic.",
            share(faults, total, FIVE_MINUTES),
            FAULT_PERCENT,
            stops_deployment=True,
            notifies=False,
        )
    yield AlarmRule(
        "query-function-errors",
        "The query function crashed, timed out, ran out of memory, or failed to start. It handles all "
        "exceptions, so one error is enough.",
        metrics.function("Errors", "Sum", period=MINUTE),
        1,
        stops_deployment=True,
    )
    yield AlarmRule(
        "recursion-stopped",
        "Lambda dropped an event because it detected a recursive loop.",
        metrics.recursions_stopped(),
        1,
    )


def _front_doors(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    doors = []
    if stage.front_door != "function_url":
        doors.append(("api", metrics.api("5XXError", "Sum"), metrics.api("Count", "Sum")))
        if stage.authorizer is not None:
            meaning = "The authorizer crashes, and API Gateway rejects all requests."
            yield _errors(metrics, "authorizer", meaning, periods=1)
    if stage.front_door != "rest_api":
        url = (metrics.function("Url5xxCount", "Sum"), metrics.function("UrlRequestCount", "Sum"))
        doors.append(("url", *url))
    for name, failed, total in doors:
        yield AlarmRule(
            f"{name}-errors",
            "Callers get 5xx from the front door.",
            _percent(failed, total),
            FAULT_PERCENT,
            periods=3,
            breaching=2,
            stops_deployment=True,
        )
        yield AlarmRule(
            f"{name}-failing",
            "At least half of the requests get 5xx from the front door, at any traffic.",
            share(failed, total, QUARTER),
            OUTAGE_PERCENT,
        )


def _slow_queries(metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "query-throttled",
        "Lambda throttles queries: the concurrency of the account or of the function is exhausted.",
        metrics.function("Throttles", "Sum"),
        1,
    )
    yield AlarmRule(
        "first-token-slow",
        f"The p95 of the model's first token exceeds {FIRST_TOKEN_MS / 1000:g} s.",
        metrics.own("llm.streaming.first_token_ms", "p95"),
        FIRST_TOKEN_MS,
        periods=3,
    )
    yield AlarmRule(
        "search-slow",
        f"The p95 of searches exceeds {SEARCH_MS / 1000:g} s: the embedding, or the database.",
        metrics.own("retriever.search.duration_ms", "p95"),
        SEARCH_MS,
        periods=3,
    )
    yield AlarmRule(
        "keys-unreadable",
        "A vendor's key could not be refreshed, is missing in the secret, or was rejected.",
        metrics.own(KEYS_UNREADABLE, "Sum", service=None),
        1,
    )


def _percent(failed: cloudwatch.Metric, of: cloudwatch.Metric) -> cloudwatch.MathExpression:
    """Return the percentage of at least ``FEWEST_QUESTIONS``: 100 % of one query at night is no emergency."""
    return cloudwatch.MathExpression(
        expression=f"100 * FILL(failed, 0) / IF(total > {FEWEST_QUESTIONS}, total, {FEWEST_QUESTIONS})",
        using_metrics={"failed": failed, "total": of},
        period=MINUTE,
        label="percent",
    )


def share(failed: cloudwatch.Metric, of: cloudwatch.Metric, period: Duration) -> cloudwatch.MathExpression:
    """Return the percentage at any traffic; zero with fewer failures than ``LOW_TRAFFIC_FAULTS``.

    CloudWatch looks every minute at the last ``period``:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
    """
    return cloudwatch.MathExpression(
        expression=f"IF(failed >= {LOW_TRAFFIC_FAULTS}, 100 * failed / total, 0)",
        using_metrics={"failed": failed, "total": of},
        period=period,
        label="percent",
    )


def _query_log(metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "query-log-waiting",
        "Records of the query log are not stored: the log writer fails, or cannot reach the database.",
        metrics.queue("ApproximateAgeOfOldestMessage", "Maximum", queue="query-log"),
        QUERY_LOG_WAIT.to_seconds(),
    )
    yield _dead_letters(metrics, "query-log", "Records of the query log were dropped after five deliveries.")
    yield AlarmRule(
        "query-log-printed",
        "SQS did not accept records of the query log in time: they are in the query function's log.",
        metrics.own(RECORDS_PRINTED, "Sum", service=None),
        1,
    )
    yield _errors(metrics, "log-writer", "The log writer crashes repeatedly.", periods=3)


def _ingestion(metrics: ServiceMetrics, bulk_load: cloudwatch.IMetric) -> Iterator[AlarmRule]:
    yield AlarmRule(
        "ingestion-waiting",
        "Ingestion is behind: the ingest function fails, or is slower than the uploads.",
        metrics.queue("ApproximateAgeOfOldestMessage", "Maximum", queue="ingestion"),
        INGESTION_WAIT.to_seconds(),
    )
    yield _dead_letters(metrics, "ingestion", "Uploads or jobs were dropped after five deliveries.")
    yield _errors(metrics, "ingest", "The ingest function crashes repeatedly.", periods=3)
    yield AlarmRule(
        "look-failed",
        "EventBridge cannot call the ingest function: jobs without a message are not found.",
        metrics.schedule("FailedInvocations", "Sum", rule="look"),
        1,
        periods=3,
    )
    yield _errors(metrics, "migrate", "A migration or the building of an index failed.", periods=1)
    yield AlarmRule("bulk-load-failed", "A bulk load failed; its report says where.", bulk_load, 1)


def _dead_letters(metrics: ServiceMetrics, queue: str, meaning: str) -> AlarmRule:
    depth = metrics.queue("ApproximateNumberOfMessagesVisible", "Maximum", queue=f"{queue}-dead")
    return AlarmRule(f"{queue}-dead-letters", meaning, depth, 1)


def _errors(metrics: ServiceMetrics, function: str, meaning: str, *, periods: int) -> AlarmRule:
    """Return an alarm on crashes. A queue retries messages: one crash recovers, three periods do not."""
    errors = metrics.function("Errors", "Sum", function=function)
    return AlarmRule(f"{function}-errors", meaning, errors, 1, periods=periods)
