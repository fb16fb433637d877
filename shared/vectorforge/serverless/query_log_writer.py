"""The log-writer function: records out of the queue, into the table; a batch is one statement.

A message that can never be stored (poison) fails alone, and the queue moves it to its dead-letter queue after
``maxReceiveCount`` attempts. While the database or the bucket is not there, messages fail to come again.
"""

import logging
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.query_log_overflow import QueryLogOverflow
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_writer import QueryLogWriter
from vectorforge.errors import ConfigurationError, VectorForgeError
from vectorforge.loop_thread import LoopThread
from vectorforge.serverless.query_log_batch import QueryLogBatch, is_poison
from vectorforge.serverless.telemetry import FunctionTelemetry
from vectorforge.telemetry import measure

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

logger = logging.getLogger(__name__)


class QueryLogWriterFunction:
    """Stores the query logs of SQS events. The event source must report batch item failures."""

    def __init__(self) -> None:
        self._started: _Started | None = None

    def startup(self) -> None:
        """Read the settings and load what is needed, in the init phase; nothing connects before an event.

        Raises:
            ConfigurationError: A setting is missing or wrong.
        """
        self._start()

    def shutdown(self) -> None:
        """Close what was opened; an event after that starts again."""
        started, self._started = self._started, None
        if started is not None:
            started.close()

    def __call__(self, event: dict[str, Any], context: Any) -> "PartialItemFailureResponse":
        """Store one batch; the answer names the messages that were not stored."""
        started = self._start()
        with started.telemetry.invocation(context):
            batch = started.store(event["Records"])
            started.report(batch, event["Records"])
            return _partial_response(event, batch.failures)

    def _start(self) -> "_Started":
        if self._started is None:
            self._started = _Started(VectorForgeConfig.from_environment())
        return self._started


class _Started:
    """What one process keeps from event to event: one connection, and the clients of AWS."""

    def __init__(self, config: VectorForgeConfig) -> None:
        from aws_lambda_powertools.utilities import batch  # noqa: F401 - loaded in the init phase

        url = config.database.log_writer_database_url
        if url is None:
            raise ConfigurationError("Set VECTORFORGE_LOG_WRITER_DATABASE_URL to the role that writes logs.")
        # One connection: the function answers one event at a time. Found dead after a thaw, it is replaced.
        self._database = Database(
            url.get_secret_value(), pool_size=1, timeout_s=config.database.database_timeout_s
        )
        self._loop_thread: LoopThread | None = None
        self._clients = AwsClients()
        self._overflow: QueryLogOverflow | None = None
        if config.aws.query_log_overflow_bucket:
            self._overflow = QueryLogOverflow(self._clients, config.aws.query_log_overflow_bucket)
            self._clients.warm("s3")
        self.telemetry = FunctionTelemetry("log_writer", config)

    def store(self, messages: Sequence[Mapping[str, Any]]) -> QueryLogBatch:
        batch = QueryLogBatch()
        batch.read(messages, self._overflow)
        writer = QueryLogWriter(self._database)
        try:
            with measure(self.telemetry.metrics, "query_log.write"):
                self._open_loop_thread().run(lambda: batch.store(writer))
        except VectorForgeError as exc:  # from opening: the database is not there, or not ours
            batch.fail_all(exc)
        return batch

    def report(self, batch: QueryLogBatch, messages: Sequence[Mapping[str, Any]]) -> None:
        """Say what became of the batch: ids and reasons, never what a record holds."""
        self.telemetry.metrics.increment("query_log.rows_stored", batch.stored)
        for message in messages:
            message_id = message["messageId"]
            error = batch.failures.get(message_id)
            if error is None:
                continue
            poison = is_poison(error)
            self.telemetry.metrics.increment("query_log.messages_refused", int(poison))
            record = batch.records.get(message_id)
            logger.warning(
                "A query log message was refused" if poison else "A query log message has to come again",
                extra={
                    "message_id": message_id,
                    "receive_count": message.get("attributes", {}).get("ApproximateReceiveCount"),
                    "query_id": str(record.id) if record else None,
                    "error_code": error.code,
                    "reason": error.message,
                },
            )
        logger.info(
            "Query logs stored",
            extra={
                "messages": len(messages),
                "rows_stored": batch.stored,
                "rows_already_there": batch.already_there,
                "messages_failed": len(batch.failures),
            },
        )

    def close(self) -> None:
        if self._loop_thread is not None:
            self._loop_thread.close()
        self._clients.close()

    def _open_loop_thread(self) -> LoopThread:
        if self._loop_thread is None or not self._loop_thread.is_running:
            self._loop_thread = LoopThread(self._database, name="query-log-writer")
        return self._loop_thread


def _partial_response(
    event: dict[str, Any], failures: Mapping[str, VectorForgeError]
) -> "PartialItemFailureResponse":
    """What Lambda's event source wants to hear. The messages have been handled together before."""
    from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

    def outcome(record: SQSRecord) -> None:
        if record.message_id in failures:
            raise failures[record.message_id]

    # A batch of poison alone is no failure of the function: it is answered like any other.
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event, outcome, processor)
