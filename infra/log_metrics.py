"""Counts of log lines that somebody has to see; nothing else tells of these two failures."""

from collections.abc import Sequence

from aws_cdk import aws_logs as logs
from constructs import Construct

from infra.python_function import PythonFunction
from infra.service_metrics import KEYS_UNREADABLE, RECORDS_PRINTED
from infra.settings import StageSettings


class LogMetrics(Construct):
    """Metric filters, which are free of charge; what they count is a custom metric, billed while it counts.

    Args:
        scope: Of the construct.
        construct_id: Of the construct.
        stage: The stage's settings.
        query: The query function: prints a record of the query log that SQS does not take in time, for
            ``vectorforge logs replay``.
        key_readers: The functions that read vendors' keys, and warn when they cannot read them again.
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
        # A line that is such an object, as ``vectorforge.aws.query_log_lines`` wants it: the text of a log
        # line may hold one, too, and is somebody's question.
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
