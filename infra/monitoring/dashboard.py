"""The dashboard, in three parts: health, latency, cost."""

from functools import partial

from aws_cdk import CfnOutput, Duration, Stack
from aws_cdk import aws_cloudwatch as cloudwatch
from constructs import Construct

from infra.costs.bill import idle_bill, total
from infra.monitoring.alarms import RUNBOOK, Alarms
from infra.monitoring.dashboard_costs import cost_widgets
from infra.monitoring.graphs import WIDTH, graph, scaled
from infra.monitoring.metrics import KEYS_UNREADABLE, RECORDS_PRINTED, ServiceMetrics
from infra.stage_settings import StageSettings


class Dashboard(Construct):
    """The dashboard; every line is a metric of an alarm, or explains one.

    Args:
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
                _heading(
                    "Health",
                    "Healthy while every alarm is green and nothing fails, waits or is dropped. "
                    f"For a red alarm see its section in `{RUNBOOK}`.",
                ),
                [
                    cloudwatch.AlarmStatusWidget(
                        title="Alarms", alarms=list(alarms.all), width=WIDTH, height=4
                    )
                ],
                *_health(stage, metrics),
                _heading(
                    "Latency",
                    "p50 is the median, p95 the slowest of twenty; the phases show its cause: the vendor, "
                    "the search or a cold start.",
                ),
                *_latency(stage, metrics),
                _heading(
                    "Cost",
                    f"Idle, this stage costs about ${idle:.0f} a month (`docs/operate/costs.md`); below is "
                    "the cost of queries at list prices, and its drivers.",
                ),
                *cost_widgets(stage, metrics),
            ],
        )
        CfnOutput(
            Stack.of(self),
            "DashboardUrl",
            description="The dashboard: health, latency, cost",
            value=f"https://console.aws.amazon.com/cloudwatch/home?region={Stack.of(self).region}"
            f"#dashboards/dashboard/{stage.prefix}",
        )


def _heading(title: str, sentence: str) -> list[cloudwatch.IWidget]:
    return [cloudwatch.TextWidget(markdown=f"# {title}\n{sentence}", width=WIDTH, height=2)]


def _health(stage: StageSettings, metrics: ServiceMetrics) -> list[list[cloudwatch.IWidget]]:
    own, function, database = metrics.own, metrics.function, metrics.database
    age = partial(metrics.queue, "ApproximateAgeOfOldestMessage", "Maximum")
    dead = partial(metrics.queue, "ApproximateNumberOfMessagesVisible", "Maximum")
    failures: list[cloudwatch.IMetric] = [
        own("pipeline.query.calls", "Sum", label="queries"),
        own("pipeline.query.faults", "Sum", label="server-side failures"),
        own("llm.generate.errors", "Sum", label="of these: the model"),
        *_server_errors(stage, metrics),
        function("Errors", "Sum", label="function crashed"),
        function("Throttles", "Sum", label="throttled"),
    ]
    waiting = [age(queue="query-log", label="query log"), age(queue="ingestion", label="documents")]
    usage: list[cloudwatch.IMetric] = [
        database("CPUUtilization", "Average", label="CPU"),
        metrics.connections_percent("connections"),
    ]
    lost = [
        dead(queue="query-log-dead", label="dead letters: query log"),
        dead(queue="ingestion-dead", label="dead letters: documents"),
        own(RECORDS_PRINTED, "Sum", service=None, label="records printed, not sent"),
        own(KEYS_UNREADABLE, "Sum", service=None, label="keys not readable"),
    ]
    writes = [
        own("pipeline.query.calls", "Sum", label="queries"),
        own("query_log.rows_stored", "Sum", service="log_writer", label="rows inserted or completed"),
    ]
    memory = scaled(database("FreeableMemory", "Average"), "memory", 1024**3)
    storage = scaled(database("FreeStorageSpace", "Minimum"), "storage (right)", 1024**3)
    return [
        [
            graph("Queries and failures", failures, unit="in 5 minutes"),
            graph("Backlog: age of the oldest message", waiting, unit="seconds"),
            graph("Database: utilization", usage, unit="percent"),
        ],
        [
            graph("Dropped, or about to be lost", lost, unit="number"),
            graph("Query log: two writes per query", writes, unit="in 5 minutes"),
            graph("Database: free resources", [memory], [storage], unit="GiB", right_unit="GiB"),
        ],
    ]


def _server_errors(stage: StageSettings, metrics: ServiceMetrics) -> list[cloudwatch.IMetric]:
    """Return the 5xx responses of each front door."""
    lines: list[cloudwatch.IMetric] = []
    if stage.front_door != "function_url":
        lines.append(metrics.api("5XXError", "Sum").with_(label="5xx of API Gateway"))
    if stage.front_door != "rest_api":
        lines.append(metrics.function("Url5xxCount", "Sum", label="5xx of the function URL"))
    return lines


def _latency(stage: StageSettings, metrics: ServiceMetrics) -> list[list[cloudwatch.IWidget]]:
    own = metrics.own
    percentiles = ("p50", "p95")
    phases = [
        own("embedding.duration_ms", "p50", label="embedding, part of the search"),
        own("retriever.search.duration_ms", "p50", label="search"),
        own("llm.streaming.first_token_ms", "p50", label="model, to its first token"),
        own("llm.generate.duration_ms", "p50", label="model, total"),
    ]
    return [
        [
            graph(
                "First token of the model",
                [own("llm.streaming.first_token_ms", one, label=one) for one in percentiles],
                unit="ms",
            ),
            graph(
                "Total answer",
                [own("pipeline.query.duration_ms", one, label=one) for one in percentiles],
                unit="ms",
            ),
            graph(
                "Cold starts and concurrency",
                [metrics.cold_starts("cold starts")],
                [metrics.function("ConcurrentExecutions", "Maximum", label="concurrent (right)")],
                unit="in 5 minutes",
                right_unit="processes",
            ),
        ],
        [
            graph("Phases of a query, p50", phases, unit="ms", width=WIDTH * 2 // 3),
            _database_latency(stage, metrics),
        ],
    ]


def _database_latency(stage: StageSettings, metrics: ServiceMetrics) -> cloudwatch.IWidget:
    """Return the latency of RDS Proxy, which times statements, or else that of the instance's storage."""
    title, proxy = "Database: latency", metrics.proxy
    if not stage.database.proxy:
        lines = [
            scaled(metrics.database("ReadLatency", "Average"), "read", 0.001),
            scaled(metrics.database("WriteLatency", "Average"), "write", 0.001),
        ]
        return graph(title, lines, unit="ms")
    lines = [
        scaled(proxy("DatabaseConnectionsBorrowLatency", "Average"), "connection", 1000),
        scaled(proxy("QueryDatabaseResponseLatency", "Average"), "response", 1000),
    ]
    pinned = proxy("DatabaseConnectionsCurrentlySessionPinned", "Maximum", label="pinned (right): 0")
    return graph(title, lines, [pinned], unit="ms", right_unit="connections")
