"""An SQS queue with its dead-letter queue, and the event source that feeds a function."""

from aws_cdk import ArnFormat, Duration, Stack
from aws_cdk import aws_lambda as lambda_
from aws_cdk import aws_sqs as sqs
from constructs import Construct

from infra.constructs.encryption import customer_key
from infra.constructs.python_function import PythonFunction
from infra.constructs.retention import removal
from infra.setting_types import MESSAGE_DAYS, FunctionSettings
from infra.stage_settings import StageSettings

_MAX_MESSAGE_BYTES = 1_048_576
"""The most that SQS allows."""
_DELIVERIES = 5
_TIMEOUTS = 6


class MessageQueue(Construct):
    """A standard queue whose messages move to a dead-letter queue after five deliveries. Encrypted, TLS only.

    Args:
        name: Name after the stage's prefix.
        consumer: Settings of the function that reads it: a message stays out of sight for six times its
            timeout, and the time that a batch may wait to fill.
            https://docs.aws.amazon.com/lambda/latest/dg/services-sqs-configure.html
        window_s: Longest wait for a batch to fill, in seconds.

    Attributes:
        queue: The queue. Messages that failed five times are kept until 14 days after they were first sent.
    """

    def __init__(
        self,
        scope: Construct,
        construct_id: str,
        *,
        stage: StageSettings,
        name: str,
        consumer: FunctionSettings,
        window_s: int = 0,
    ) -> None:
        super().__init__(scope, construct_id)
        self._consumer = consumer
        self._window_s = window_s
        name = f"{stage.prefix}-{name}"
        key = customer_key(self, stage)
        encryption = sqs.QueueEncryption.KMS if key else sqs.QueueEncryption.SQS_MANAGED
        dead_letter_queue = sqs.Queue(
            self,
            "DeadLetters",
            queue_name=f"{name}-dead",
            encryption=encryption,
            encryption_master_key=key,
            enforce_ssl=True,
            max_message_size_bytes=_MAX_MESSAGE_BYTES,
            retention_period=Duration.days(MESSAGE_DAYS),
            redrive_allow_policy=sqs.RedriveAllowPolicy(source_queues=[self._by_name(name)]),
            removal_policy=removal(stage),
        )
        self.queue = sqs.Queue(
            self,
            "Queue",
            queue_name=name,
            encryption=encryption,
            encryption_master_key=key,
            enforce_ssl=True,
            max_message_size_bytes=_MAX_MESSAGE_BYTES,
            retention_period=Duration.days(MESSAGE_DAYS),
            visibility_timeout=Duration.seconds(_TIMEOUTS * consumer.timeout_s + window_s),
            dead_letter_queue=sqs.DeadLetterQueue(queue=dead_letter_queue, max_receive_count=_DELIVERIES),
            removal_policy=removal(stage),
        )

    def feed(self, function: PythonFunction, *, batch_size: int) -> None:
        """Invoke a function with the queue's messages; it reports which of them have failed."""
        function.allow(
            "sqs:ReceiveMessage",
            "sqs:DeleteMessage",
            "sqs:GetQueueAttributes",
            "sqs:ChangeMessageVisibility",
            on=[self.queue.queue_arn],
        )
        lambda_.EventSourceMapping(
            self,
            "Source",
            target=function.alias,
            event_source_arn=self.queue.queue_arn,
            batch_size=batch_size,
            max_batching_window=Duration.seconds(self._window_s) if self._window_s else None,
            report_batch_item_failures=True,
            max_concurrency=self._consumer.max_concurrency,
        )

    def allow_sending(self, function: PythonFunction) -> None:
        """Let a function send messages."""
        function.allow("sqs:SendMessage", on=[self.queue.queue_arn])

    def _by_name(self, name: str) -> sqs.IQueue:
        """Return the queue before it exists: each of the two refers to the other."""
        arn = Stack.of(self).format_arn(service="sqs", resource=name, arn_format=ArnFormat.NO_RESOURCE_NAME)
        return sqs.Queue.from_queue_arn(self, "ByName", arn)
