"""The metrics that alarms and dashboard show, by what they tell. Those of AWS's services are free of charge.

Names are written out, not taken from resources: alarms that stop a deployment may refer to nothing that the
deployment changes, and stacks stay independent. Tests hold the names to the templates and to what the
functions print (``vectorforge.aws.metrics.ESSENTIAL``).
"""

from collections.abc import Mapping
from typing import Final

from aws_cdk import Duration
from aws_cdk import aws_cloudwatch as cloudwatch

from infra.python_function import ALIAS
from infra.settings import StageSettings

MINUTE: Final = Duration.minutes(1)
FIVE_MINUTES: Final = Duration.minutes(5)
QUARTER: Final = Duration.minutes(15)

RECORDS_PRINTED: Final = "query_log.printed"
KEYS_UNREADABLE: Final = "provider_keys.unreadable"
"""Both counted by metric filters in the functions' logs (``infra.log_metrics``)."""

FUNCTIONS: Final = ("query", "log-writer", "ingest", "migrate")


class ServiceMetrics:
    """The metrics of one deployment.

    Args:
        stage: The stage's settings.
    """

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
        """A metric of the functions' own.

        Args:
            name: As in ``vectorforge.telemetry.METRICS``, or counted by a filter.
            statistic: "Sum", "p50" and so on.
            service: Whose; None for those counted by filters, which have no dimensions.
            period: Of one point.
            label: In the dashboard's legend.
            **dimensions: Beside ``service``.
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
        """A metric of Lambda, of a function's alias: both versions while a new one is on its way in."""
        function_name = f"{self._stage.prefix}-{function}"
        dimensions = {"FunctionName": function_name, "Resource": f"{function_name}:{ALIAS}"}
        return self._metric("AWS/Lambda", name, statistic, dimensions, period, label)

    def recursions_stopped(self) -> cloudwatch.MathExpression:
        """Invocations, of all functions, that Lambda dropped because it took them for an endless loop.

        https://docs.aws.amazon.com/lambda/latest/dg/invocation-recursion.html
        """
        dropped = {
            function.replace("-", "_"): self._metric(
                "AWS/Lambda",
                "RecursiveInvocationsDropped",
                "Sum",
                {"FunctionName": f"{self._stage.prefix}-{function}"},
                FIVE_MINUTES,
                None,
            )
            for function in (*FUNCTIONS, *(["authorizer"] if self._stage.has_authorizer else []))
        }
        return cloudwatch.MathExpression(
            expression=" + ".join(f"FILL({function}, 0)" for function in dropped),
            using_metrics=dropped,
            period=FIVE_MINUTES,
            label="dropped",
        )

    def cold_starts(self, label: str | None = None) -> cloudwatch.Metric:
        """New processes of the query function that somebody waited for."""
        return self.own("ColdStart", "Sum", label=label, function_name=f"{self._stage.prefix}-query")

    def api(self, name: str, statistic: str, *, period: Duration = FIVE_MINUTES) -> cloudwatch.Metric:
        """A metric of the REST API."""
        dimensions = {"ApiName": self._stage.prefix, "Stage": self._stage.stage}
        return self._metric("AWS/ApiGateway", name, statistic, dimensions, period, None)

    def queue(self, name: str, statistic: str, *, queue: str, label: str | None = None) -> cloudwatch.Metric:
        """A metric of SQS.

        Args:
            name: Of the metric.
            statistic: "Maximum" and so on.
            queue: Of the queue, without the stage's prefix: "query-log", "ingestion-dead".
            label: In the dashboard's legend.
        """
        dimensions = {"QueueName": f"{self._stage.prefix}-{queue}"}
        return self._metric("AWS/SQS", name, statistic, dimensions, FIVE_MINUTES, label)

    def database(self, name: str, statistic: str, *, label: str | None = None) -> cloudwatch.Metric:
        """A metric of the database's instance."""
        dimensions = {"DBInstanceIdentifier": self._stage.prefix}
        return self._metric("AWS/RDS", name, statistic, dimensions, FIVE_MINUTES, label)

    def proxy(self, name: str, statistic: str, *, label: str | None = None) -> cloudwatch.Metric:
        """A metric of RDS Proxy.

        https://docs.aws.amazon.com/AmazonRDS/latest/UserGuide/rds-proxy.monitoring.html
        """
        dimensions = {"ProxyName": self._stage.prefix}
        return self._metric("AWS/RDS", name, statistic, dimensions, FIVE_MINUTES, label)

    def proxy_connections_percent(self, label: str) -> cloudwatch.MathExpression:
        """How much of the connections that RDS Proxy may open is borrowed.

        Every node of a proxy reports its own part each minute; their sum is the proxy's, and how many minutes
        a period has cancels out.
        """
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
        """A metric of a rule of EventBridge, named without the stage's prefix."""
        dimensions = {"RuleName": f"{self._stage.prefix}-{rule}"}
        return self._metric("AWS/Events", name, statistic, dimensions, FIVE_MINUTES, None)

    def log_bytes(self, function: str, label: str | None = None) -> cloudwatch.Metric:
        """What a function's log takes in; billed by size."""
        dimensions = {"LogGroupName": f"/aws/lambda/{self._stage.prefix}-{function}"}
        return self._metric("AWS/Logs", "IncomingBytes", "Sum", dimensions, FIVE_MINUTES, label)

    def _metric(
        self,
        namespace: str,
        name: str,
        statistic: str,
        dimensions: Mapping[str, str],
        period: Duration,
        label: str | None,
    ) -> cloudwatch.Metric:
        return cloudwatch.Metric(
            namespace=namespace,
            metric_name=name,
            statistic=statistic,
            dimensions_map=dict(dimensions) or None,
            period=period,
            label=label,
        )
