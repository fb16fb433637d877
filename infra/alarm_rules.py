"""When somebody should look, and how sure an alarm is before it says so. Actions: docs/runbook.md.

Alarms on counts of failures treat a period without data as good: nothing is counted while nobody asks. Gauges
that AWS reports always keep their state through a gap. Latencies look at three periods, since one slow vendor
or one cold start is nobody's work; periods with few samples count, since a quiet deployment has no others.
"""

from collections.abc import Iterator

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.alarm_rule import AlarmRule
from infra.database_alarm_rules import database_alarm_rules
from infra.service_metrics import (
    FIVE_MINUTES,
    KEYS_UNREADABLE,
    MINUTE,
    QUARTER,
    RECORDS_PRINTED,
    ServiceMetrics,
)
from infra.settings import StageSettings

FAULT_PERCENT = 5
FEWEST_QUESTIONS = 40
"""With fewer in a minute, faults are counted as if it had been so many: two of them ring, one does not."""
LOW_TRAFFIC_FAULTS = 3
"""What a quarter of an hour has to hold before half of it counts as an outage, and five minutes of a canary
before it goes back."""
OUTAGE_PERCENT = 50
FIRST_TOKEN_MS = 5_000
SEARCH_MS = 1_500
QUERY_LOG_WAIT = Duration.minutes(30)
"""A record is tried again after 30 s, 3 and 18 minutes; poison is in the dead-letter queue after 15."""
INGESTION_WAIT = Duration.hours(1)
"""A message is replaced while its job waits, and held while it runs, 15 minutes at most."""


def alarm_rules(
    stage: StageSettings, metrics: ServiceMetrics, *, bulk_load: cloudwatch.IMetric
) -> Iterator[AlarmRule]:
    """The alarms of a deployment.

    Args:
        stage: The stage's settings.
        metrics: Of the deployment.
        bulk_load: Executions of the state machine that failed.
    """
    yield from _failed_questions(stage, metrics)
    yield from _front_doors(stage, metrics)
    yield from _slow_questions(metrics)
    yield from _query_log(metrics)
    yield from _ingestion(metrics, bulk_load)
    yield from database_alarm_rules(stage, metrics)


def _failed_questions(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    faults = metrics.own("pipeline.query.faults", "Sum")  # the expressions decide for how long
    asked = metrics.own("pipeline.query.calls", "Sum")
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
        "query-failing",
        "Half of the questions or more fail, through no fault of their callers; few are enough.",
        _share(faults, asked, QUARTER),
        OUTAGE_PERCENT,
    )
    if stage.canary:
        yield AlarmRule(
            "new-version-faults",
            "Questions fail while a new version has a tenth of them.",
            _share(faults, asked, FIVE_MINUTES),
            FAULT_PERCENT,
            stops_deployment=True,
            tells=False,
        )
    yield AlarmRule(
        "query-function-errors",
        "The query function crashed, ran out of time or memory, or did not start. It answers every exception "
        "of its own, so one is enough.",
        metrics.function("Errors", "Sum", period=MINUTE),
        1,
        stops_deployment=True,
    )
    yield AlarmRule(
        "recursion-stopped",
        "Lambda dropped an event because it took a function for one that calls itself without an end.",
        metrics.recursions_stopped(),
        1,
    )


def _front_doors(stage: StageSettings, metrics: ServiceMetrics) -> Iterator[AlarmRule]:
    doors = []
    if stage.front_door != "function_url":
        doors.append(("api", metrics.api("5XXError", "Sum"), metrics.api("Count", "Sum")))
        if stage.authorizer is not None:
            means = "The authorizer crashes, and API Gateway refuses whoever asks."
            yield _errors(metrics, "authorizer", means, periods=1)
    if stage.front_door != "rest_api":
        url = (metrics.function("Url5xxCount", "Sum"), metrics.function("UrlRequestCount", "Sum"))
        doors.append(("url", *url))
    for name, failed, asked in doors:
        yield AlarmRule(
            f"{name}-errors",
            "Callers get 5xx from the front door.",
            _percent(failed, asked),
            FAULT_PERCENT,
            periods=3,
            breaching=2,
            stops_deployment=True,
        )
        yield AlarmRule(
            f"{name}-failing",
            "Half of the requests or more get 5xx from the front door; few are enough.",
            _share(failed, asked, QUARTER),
            OUTAGE_PERCENT,
        )


def _slow_questions(metrics: ServiceMetrics) -> Iterator[AlarmRule]:
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


def _percent(failed: cloudwatch.Metric, of: cloudwatch.Metric) -> cloudwatch.MathExpression:
    """Percent of at least ``FEWEST_QUESTIONS``: 100 % of one question at night is nobody's emergency."""
    return cloudwatch.MathExpression(
        expression=f"100 * FILL(failed, 0) / IF(asked > {FEWEST_QUESTIONS}, asked, {FEWEST_QUESTIONS})",
        using_metrics={"failed": failed, "asked": of},
        period=MINUTE,
        label="percent",
    )


def _share(failed: cloudwatch.Metric, of: cloudwatch.Metric, period: Duration) -> cloudwatch.MathExpression:
    """Percent that failed, however few there were; zero with fewer failures than ``LOW_TRAFFIC_FAULTS``.

    CloudWatch looks every minute at the last ``period``:
    https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/alarm-evaluation.html
    """
    return cloudwatch.MathExpression(
        expression=f"IF(failed >= {LOW_TRAFFIC_FAULTS}, 100 * failed / asked, 0)",
        using_metrics={"failed": failed, "asked": of},
        period=period,
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
    yield AlarmRule(
        "look-failed",
        "EventBridge cannot call the ingest function: jobs without a message are not found.",
        metrics.schedule("FailedInvocations", "Sum", rule="look"),
        1,
        periods=3,
    )
    yield _errors(metrics, "migrate", "A migration or the building of an index failed.", periods=1)
    yield AlarmRule("bulk-load-failed", "A bulk load failed; its report says where.", bulk_load, 1)


def _dead_letters(metrics: ServiceMetrics, queue: str, means: str) -> AlarmRule:
    depth = metrics.queue("ApproximateNumberOfMessagesVisible", "Maximum", queue=f"{queue}-dead")
    return AlarmRule(f"{queue}-dead-letters", means, depth, 1)


def _errors(metrics: ServiceMetrics, function: str, means: str, *, periods: int) -> AlarmRule:
    """What a queue delivers is tried again, so one crash repairs itself; three periods do not."""
    errors = metrics.function("Errors", "Sum", function=function)
    return AlarmRule(f"{function}-errors", means, errors, 1, periods=periods)
