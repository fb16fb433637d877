"""One dashboard that answers three questions, in this order: is it healthy, is it fast, is it cheap?"""

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.alarms import RUNBOOK, Alarms
from infra.bill import total
from infra.dashboard_costs import cost_widgets
from infra.dashboard_graph import WIDTH, graph, scaled
from infra.idle_bill import idle_bill
from infra.service_metrics import KEYS_UNREADABLE, RECORDS_PRINTED, ServiceMetrics
from infra.settings import StageSettings


class Dashboard(Construct):
    """The dashboard; every line in it is a metric that alarms watch or that explains one.

    Args:
        scope: Of the construct.
        construct_id: Of the construct.
        stage: The stage's settings.
        alarms: Shown on top.
    """

    def __init__(self, scope: Construct, construct_id: str, *, stage: StageSettings, alarms: Alarms) -> None:
        super().__init__(scope, construct_id)
        metrics = ServiceMetrics(stage)
        idle = total(idle_bill(stage))
        cloudwatch.Dashboard(
            self,
            "Dashboard",
            dashboard_name=stage.prefix,
            default_interval=Duration.days(1),
            widgets=[
                [
                    _heading(
                        "Is it healthy?",
                        "Yes, while every alarm is green and nothing fails, waits or is given up. "
                        f"A red one: see `{RUNBOOK}` under its name.",
                    )
                ],
                [
                    cloudwatch.AlarmStatusWidget(
                        title="Alarms", alarms=list(alarms.all), width=WIDTH, height=4
                    )
                ],
                *_health(stage, metrics),
                [
                    _heading(
                        "Is it fast?",
                        "Half of all askers see at most p50, nineteen of twenty at most p95; the phases say "
                        "whose time it is: the vendor's, the search's or a new process's.",
                    )
                ],
                *_speed(metrics),
                [
                    _heading(
                        "Is it cheap?",
                        f"Idle, this stage costs about ${idle:.0f} a month (`docs/costs.md`); below is what "
                        "questions add, at list prices, and who causes it.",
                    )
                ],
                *cost_widgets(stage, metrics),
            ],
        )
        CfnOutput(
            Stack.of(self),
            "DashboardUrl",
            description="Is it healthy, fast, cheap?",
            value=f"https://console.aws.amazon.com/cloudwatch/home?region={Stack.of(self).region}"
            f"#dashboards/dashboard/{stage.prefix}",
        )


def _heading(question: str, sentence: str) -> cloudwatch.TextWidget:
    return cloudwatch.TextWidget(markdown=f"# {question}\n{sentence}", width=WIDTH, height=2)


def _health(stage: StageSettings, metrics: ServiceMetrics) -> list[list[cloudwatch.IWidget]]:
    return [
        [
            graph(
                "Questions, and those that failed",
                [
                    metrics.own("pipeline.query.calls", "Sum", label="asked"),
                    metrics.own("pipeline.query.faults", "Sum", label="failed, not by the caller's fault"),
                    metrics.own("llm.generate.errors", "Sum", label="of these: the model"),
                    *_server_errors(stage, metrics),
                    metrics.function("Errors", "Sum", label="function crashed"),
                    metrics.function("Throttles", "Sum", label="throttled"),
                ],
                unit="in 5 minutes",
            ),
            graph(
                "Waiting: age of the oldest message",
                [
                    metrics.queue(
                        "ApproximateAgeOfOldestMessage", "Maximum", queue="query-log", label="query log"
                    ),
                    metrics.queue(
                        "ApproximateAgeOfOldestMessage", "Maximum", queue="ingestion", label="documents"
                    ),
                ],
                unit="seconds",
            ),
            graph(
                "Database: how much is in use",
                [
                    metrics.database("CPUUtilization", "Average", label="CPU"),
                    metrics.proxy_connections_percent("connections"),
                ],
                unit="percent",
            ),
        ],
        [
            graph(
                "Given up, or about to be lost",
                [
                    metrics.queue(
                        "ApproximateNumberOfMessagesVisible",
                        "Maximum",
                        queue=f"{queue}-dead",
                        label=f"dead letters: {label}",
                    )
                    for queue, label in (("query-log", "query log"), ("ingestion", "documents"))
                ]
                + [
                    metrics.own(RECORDS_PRINTED, "Sum", service=None, label="records printed, not sent"),
                    metrics.own(KEYS_UNREADABLE, "Sum", service=None, label="keys not readable"),
                ],
                unit="number",
            ),
            graph(
                "Query log: two writes a question",
                [
                    metrics.own("pipeline.query.calls", "Sum", label="questions"),
                    metrics.own(
                        "query_log.rows_stored", "Sum", service="log_writer", label="rows made or completed"
                    ),
                ],
                unit="in 5 minutes",
            ),
            graph(
                "Database: what is left",
                [scaled(metrics.database("FreeableMemory", "Average"), "memory", 1024**3)],
                [scaled(metrics.database("FreeStorageSpace", "Minimum"), "storage (right)", 1024**3)],
                unit="GiB",
                right_unit="GiB",
            ),
        ],
    ]


def _server_errors(stage: StageSettings, metrics: ServiceMetrics) -> list[cloudwatch.IMetric]:
    """5xx of each front door."""
    lines: list[cloudwatch.IMetric] = []
    if stage.front_door != "function_url":
        lines.append(metrics.api("5XXError", "Sum").with_(label="5xx of API Gateway"))
    if stage.front_door != "rest_api":
        lines.append(metrics.function("Url5xxCount", "Sum", label="5xx of the function URL"))
    return lines


def _speed(metrics: ServiceMetrics) -> list[list[cloudwatch.IWidget]]:
    return [
        [
            graph(
                "First token of the model",
                [
                    metrics.own("llm.streaming.first_token_ms", percentile, label=percentile)
                    for percentile in ("p50", "p95")
                ],
                unit="ms",
            ),
            graph(
                "Whole answer",
                [
                    metrics.own("pipeline.query.duration_ms", percentile, label=percentile)
                    for percentile in ("p50", "p95")
                ],
                unit="ms",
            ),
            graph(
                "New processes, and how many work at a time",
                [metrics.cold_starts("cold starts")],
                [metrics.function("ConcurrentExecutions", "Maximum", label="at a time (right)")],
                unit="in 5 minutes",
                right_unit="processes",
            ),
        ],
        [
            graph(
                "Phases of a question, p50",
                [
                    metrics.own("embedding.duration_ms", "p50", label="embedding, part of the search"),
                    metrics.own("retriever.search.duration_ms", "p50", label="search"),
                    metrics.own("llm.streaming.first_token_ms", "p50", label="model, to its first token"),
                    metrics.own("llm.generate.duration_ms", "p50", label="model, whole"),
                ],
                unit="ms",
                width=WIDTH * 2 // 3,
            ),
            graph(
                "Database: waiting and answering",
                [
                    scaled(
                        metrics.proxy("DatabaseConnectionsBorrowLatency", "Average"), "for a connection", 1000
                    ),
                    scaled(metrics.proxy("QueryDatabaseResponseLatency", "Average"), "for an answer", 1000),
                ],
                [
                    metrics.proxy(
                        "DatabaseConnectionsCurrentlySessionPinned", "Maximum", label="pinned (right): 0"
                    )
                ],
                unit="ms",
                right_unit="connections",
            ),
        ],
    ]
