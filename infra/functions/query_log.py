"""Query log: a queue for records, a bucket for large ones, and the function that stores them."""

from aws_cdk import aws_secretsmanager as secretsmanager
from constructs import Construct

from infra.constructs.buckets import AccessLogs, private_bucket
from infra.constructs.message_queue import MessageQueue
from infra.constructs.python_function import PythonFunction
from infra.data.data_stack import DataStack
from infra.data.database import LOG_WRITER_ROLE
from infra.setting_types import MESSAGE_DAYS
from infra.stage_settings import StageSettings

_BATCH = 100
_WINDOW_S = 1
"""Lambda requires at least one second for batches above ten."""
_KEPT_DAYS = 3 * MESSAGE_DAYS
"""Retention of a message restarts when the dead-letter queue is redriven; its object must outlive it."""
_OBJECTS = "query-logs/*"


class QueryLog(Construct):
    """Accepts records and stores them within seconds.

    Attributes:
        writer: The log writer.
        environment: Variables of functions that send records.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        data: DataStack,
        access_logs: AccessLogs,
    ) -> None:
        super().__init__(scope, construct_id)
        self._messages = MessageQueue(
            self, "Records", stage=stage, name="query-log", consumer=stage.log_writer, window_s=_WINDOW_S
        )
        self._overflow_bucket = private_bucket(
            self, "Overflow", stage, expires_days=_KEPT_DAYS, access_logs=access_logs
        )
        self.environment = {
            "VECTORFORGE_QUERY_LOG_QUEUE_URL": self._messages.queue.queue_url,
            "VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET": self._overflow_bucket.bucket_name,
        }
        self.writer = PythonFunction(
            self,
            "Writer",
            function="log_writer",
            description="VectorForge: query logs from the queue into the table",
            stage=stage,
            settings=stage.log_writer,
            place=data.places["log_writer"],
            environment={
                "VECTORFORGE_DATABASE_AUTH": "iam",
                "VECTORFORGE_LOG_WRITER_DATABASE_URL": data.database.client_url(self, LOG_WRITER_ROLE),
                **self.environment,
                **self._headers_secret(stage),
            },
        )
        self._allow_exporting(stage)
        data.database.allow_login(self.writer, LOG_WRITER_ROLE)
        # It puts a record back without its texts, once the table has them.
        for action in ("s3:GetObject", "s3:PutObject"):
            self.writer.allow(action, on=[self._overflow_bucket.arn_for_objects(_OBJECTS)])
        self._messages.feed(self.writer, batch_size=_BATCH)

    def _headers_secret(self, stage: StageSettings) -> dict[str, str]:
        secret = stage.otel and stage.otel.headers_secret
        return {"VECTORFORGE_PROVIDER_SECRET_ID": secret} if secret else {}

    def _allow_exporting(self, stage: StageSettings) -> None:
        """Allow the log writer to export traces, to CloudWatch or with the headers of a secret."""
        if stage.otel is None:
            return
        if stage.otel.endpoint is None:
            # Those of AWSXrayWriteOnlyPolicy for OTLP; they take no resource.
            # https://docs.aws.amazon.com/AmazonCloudWatch/latest/monitoring/CloudWatch-OTLP-UsingADOT.html
            self.writer.allow("xray:PutTraceSegments", "xray:PutSpans", "xray:PutSpansForIndexing", on=["*"])
        if stage.otel.headers_secret is not None:
            secret = secretsmanager.Secret.from_secret_name_v2(self, "Headers", stage.otel.headers_secret)
            self.writer.allow("secretsmanager:GetSecretValue", on=[f"{secret.secret_arn}-??????"])

    def allow_sending(self, function: PythonFunction) -> None:
        """Allow a function to send records, not to read them."""
        self._messages.allow_sending(function)
        function.allow("s3:PutObject", on=[self._overflow_bucket.arn_for_objects(_OBJECTS)])
