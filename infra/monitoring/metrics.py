"""Metrics of alarms and dashboard. Those of AWS services are free of charge.

Names are literals, not attributes of resources: alarms that stop a deployment must not refer to what the
deployment changes, and stacks stay independent. Tests compare the names with the templates and with
``vectorforge.aws.observability.ESSENTIAL``.
"""

from collections.abc import Iterator, Mapping, Sequence
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch
from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.constructs.python_function import ALIAS, PythonFunction
from infra.stage_settings import StageSettings

MINUTE: Final = Duration.minutes(1)
FIVE_MINUTES: Final = Duration.minutes(5)
QUARTER: Final = Duration.minutes(15)

RECORDS_PRINTED: Final = "query_log.printed"
KEYS_UNREADABLE: Final = "provider_keys.unreadable"
"""Both are counted by metric filters on the functions' logs."""

FUNCTIONS: Final = ("query", "log-writer", "ingest", "migrate")


class ServiceMetrics:
    """The metrics of one deployment."""

    def __init__(self, stage: StageSettings) -> None:
        self._stage = stage

    def own(
        self,
        name: str,
        statistic: str,
        *,
        service: str | None = "query",
        period: Duration = FIVE_MINUTES,
        label: str | None = None,
        **dimensions: str,
    ) -> cloudwatch.Metric:
        """Return one of the functions' own metrics.

        Args:
            name: A name of ``vectorforge.telemetry.METRICS``, or of a metric filter.
            statistic: "Sum", "p50" and so on.
            service: Whose; None for those counted by filters, which have no dimensions.
            period: Period of one point.
            label: In the dashboard's legend.
            **dimensions: Dimensions in addition to ``service``.
        """
        if service is not None:
            dimensions = {"service": service, **dimensions}
        return self._metric(self._stage.metrics_namespace, name, statistic, dimensions, period, label)

    def function(
        self,
        name: str,
        statistic: str,
        *,
        function: str = "query",
        period: Duration = FIVE_MINUTES,
        label: str | None = None,
    ) -> cloudwatch.Metric:
        """Return a metric of a function's alias; during a canary it covers both versions."""
        function_name = f"{self._stage.prefix}-{function}"
        dimensions = {"FunctionName": function_name, "Resource": f"{function_name}:{ALIAS}"}
        return self._metric("AWS/Lambda", name, statistic, dimensions, period, label)

    def recursions_stopped(self) -> cloudwatch.MathExpression:
        """Return the invocations of all functions that Lambda dropped as recursive loops.

        https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
        """
        dropped = {
            function.replace("-", "_"): self._metric(
                "AWS/Lambda",
                "RecursiveInvocationsDropped",
                "Sum",
                {"FunctionName": f"{self._stage.prefix}-{function}"},
            )
            for function in (*FUNCTIONS, *_of_stage(self._stage))
        }
        return cloudwatch.MathExpression(
            expression=" + ".join(f"FILL({function}, 0)" for function in dropped),
            using_metrics=dropped,
            period=FIVE_MINUTES,
            label="dropped",
        )

    def cold_starts(self, label: str | None = None) -> cloudwatch.Metric:
        """Return the cold starts of the query function."""
        return self.own("ColdStart", "Sum", label=label, function_name=f"{self._stage.prefix}-query")

    def api(self, name: str, statistic: str, *, period: Duration = FIVE_MINUTES) -> cloudwatch.Metric:
        """Return a metric of the REST API."""
        dimensions = {"ApiName": self._stage.prefix, "Stage": self._stage.stage}
        return self._metric("AWS/ApiGateway", name, statistic, dimensions, period)

    def queue(self, name: str, statistic: str, *, queue: str, label: str | None = None) -> cloudwatch.Metric:
        """Return a metric of SQS."""
        dimensions = {"QueueName": f"{self._stage.prefix}-{queue}"}
        return self._metric("AWS/SQS", name, statistic, dimensions, label=label)

    def database(self, name: str, statistic: str, *, label: str | None = None) -> cloudwatch.Metric:
        """Return a metric of the database's instance."""
        dimensions = {"DBInstanceIdentifier": self._stage.prefix}
        return self._metric("AWS/RDS", name, statistic, dimensions, label=label)

    def proxy(self, name: str, statistic: str, *, label: str | None = None) -> cloudwatch.Metric:
        """Return a metric of RDS Proxy.

        https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.monitoring.html
        """
        dimensions = {"ProxyName": self._stage.prefix}
        return self._metric("AWS/RDS", name, statistic, dimensions, label=label)

    def connections_percent(self, label: str) -> cloudwatch.MathExpression:
        """Return the share of RDS Proxy's connections that is borrowed, or of the instance's that is open.

        Every node of a proxy reports each minute; their sum is the proxy's, and the minutes cancel out.
        """
        if not self._stage.database.proxy:
            return cloudwatch.MathExpression(
                expression=f"100 * opened / {self._stage.database.max_connections}",
                using_metrics={"opened": self.database("DatabaseConnections", "Maximum")},
                period=FIVE_MINUTES,
                label=label,
            )
        return cloudwatch.MathExpression(
            expression="100 * borrowed / allowed",
            using_metrics={
                "borrowed": self.proxy("DatabaseConnectionsCurrentlyBorrowed", "Sum"),
                "allowed": self.proxy("MaxDatabaseConnectionsAllowed", "Sum"),
            },
            period=FIVE_MINUTES,
            label=label,
        )

    def schedule(self, name: str, statistic: str, *, rule: str) -> cloudwatch.Metric:
        """Return a metric of an EventBridge rule, named without the stage's prefix."""
        dimensions = {"RuleName": f"{self._stage.prefix}-{rule}"}
        return self._metric("AWS/Events", name, statistic, dimensions)

    def log_bytes(self, function: str, label: str | None = None) -> cloudwatch.Metric:
        """Return the bytes of a function's log, which are billed."""
        dimensions = {"LogGroupName": f"/aws/lambda/{self._stage.prefix}-{function}"}
        return self._metric("AWS/Logs", "IncomingBytes", "Sum", dimensions, label=label)

    def _metric(
        self,
        namespace: str,
        name: str,
        statistic: str,
        dimensions: Mapping[str, str],
        period: Duration = FIVE_MINUTES,
        label: str | None = None,
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=name,
            statistic=statistic,
            dimensions_map=dict(dimensions) or None,
            period=period,
            label=label,
        )


def _of_stage(stage: StageSettings) -> Iterator[str]:
    """Yield the functions that only some stages have."""
    if stage.has_authorizer:
        yield "authorizer"
    if stage.probe is not None:
        yield "probe"


class LogMetrics(Construct):
    """Metric filters on log lines that need a human action; filters are free, their metrics are billed.

    Args:
        query: Query function; it prints records that SQS rejects, for ``vectorforge logs replay``.
        key_readers: Functions that read vendors' keys, and warn if a refresh fails.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        query: PythonFunction,
        key_readers: Sequence[PythonFunction],
    ) -> None:
        super().__init__(scope, construct_id)
        self._stage = stage
        # Only lines that are such an object (``vectorforge.aws.query_log_lines``): others may contain one.
        printed = logs.FilterPattern.string_value("$.type", "=", "vectorforge.query_log")
        self._count("Printed", query, printed, RECORDS_PRINTED)
        unreadable = logs.FilterPattern.all(
            logs.FilterPattern.string_value("$.name", "=", "vectorforge.aws.secrets"),
            logs.FilterPattern.string_value("$.level", "=", "WARNING"),
        )
        for function in key_readers:
            self._count(f"Keys-{function.name}", function, unreadable, KEYS_UNREADABLE)

    def _count(
        self, construct_id: str, function: PythonFunction, pattern: logs.IFilterPattern, metric: str
    ) -> None:
        logs.MetricFilter(
            self,
            construct_id,
            log_group=function.log_group,
            filter_pattern=pattern,
            metric_namespace=self._stage.metrics_namespace,
            metric_name=metric,
            metric_value="1",
        )
