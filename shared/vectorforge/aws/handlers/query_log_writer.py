"""Log-writer function: moves records from the queue into the table, up to 16 MiB per statement.

A message that can never be stored (poison) fails alone, and the queue moves it to its dead-letter queue after
``maxReceiveCount`` attempts. While the database or the bucket is unavailable, messages fail and are retried
with backoff.
"""

import asyncio
import logging
from collections.abc import Mapping, Sequence
from contextlib import AsyncExitStack
from typing import TYPE_CHECKING, Any

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.database_login import database_password
from vectorforge.aws.handlers.query_log_batch import QueryLogBatch, is_poison
from vectorforge.aws.observability import FunctionTelemetry
from vectorforge.aws.query_log_queue import QueryLogOverflow
from vectorforge.aws.queues import ReceivedMessage, RetryWaits, SqsQueue, delay_messages
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.deadline import Deadline
from vectorforge.errors import ConfigurationError, DatabaseError, DeadlineExceededError, VectorForgeError
from vectorforge.telemetry import measure
from vectorforge.threads import LoopThread

if TYPE_CHECKING:
    from aws_lambda_powertools.utilities.batch.types import PartialItemFailureResponse

logger = logging.getLogger(__name__)

RETRY_WAITS = RetryWaits(first_s=30, factor=6, longest_s=3 * 3600)
"""Half a minute, 3, 18 and 108: with five deliveries, an outage of two hours costs no record."""
_ANSWER_S = 0.5
"""Seconds of an invocation that are for its answer alone."""


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
            deadline = Deadline.after(context.get_remaining_time_in_millis() / 1000)
            batch = started.store(event["Records"], deadline)
            started.report(batch, event["Records"])
            return _partial_response(event, batch.failures)

    def _start(self) -> "_Started":
        if self._started is None or self._started.is_stale:
            self._started = _Started(VectorForgeConfig.from_environment())
        return self._started


class _Started:
    """State of a process between events: one connection, and the AWS clients."""

    def __init__(self, config: VectorForgeConfig) -> None:
        from aws_lambda_powertools.utilities import batch  # noqa: F401 - loaded in the init phase

        url = config.database.log_writer_database_url
        if url is None:
            raise ConfigurationError("Set VECTORFORGE_LOG_WRITER_DATABASE_URL to the role that writes logs.")
        # One connection: the function handles one event at a time. A dead one is replaced after a thaw.
        self._database = Database(
            url.get_secret_value(),
            pool_size=1,
            timeout_s=config.database.database_timeout_s,
            password=database_password(config.database),
        )
        self._loop: LoopThread | None = None
        self._clients = AwsClients(read_timeout_s=3.0)
        self._queue: SqsQueue | None = None
        if config.aws.query_log_queue_url:
            self._queue = SqsQueue(self._clients, config.aws.query_log_queue_url)
            self._clients.warm("sqs")
        self._overflow: QueryLogOverflow | None = None
        if config.aws.query_log_overflow_bucket:
            self._overflow = QueryLogOverflow(self._clients, config.aws.query_log_overflow_bucket)
            self._clients.warm("s3")
        self.telemetry = FunctionTelemetry("log_writer", config)

    @property
    def is_stale(self) -> bool:
        """True if its loop is gone, as in a fork, whose resources belong to the other process."""
        return self._loop is not None and not self._loop.is_running

    def store(self, messages: Sequence[Mapping[str, Any]], deadline: Deadline) -> QueryLogBatch:
        """Store records before ``deadline`` and delay the rest."""
        if self._loop is None:  # not at startup: a snapshot or a fork would lose the thread
            self._loop = LoopThread(AsyncExitStack(), name="query-log-writer")
        remaining_s = deadline.remaining_s()
        # What is left then is for answering, and for the queue (``_put_off``).
        storing_s = remaining_s - min(max(remaining_s / 5, 1.0), 6.0)
        batch = QueryLogBatch()
        batch.read(messages)
        try:
            with measure(self.telemetry.metrics, "query_log.write"):
                self._loop.run(lambda: self._store(batch, storing_s))
        except VectorForgeError as exc:
            batch.fail_rest(exc)
        again = [
            ReceivedMessage.of(message)
            for message in messages
            if (error := batch.failures.get(message["messageId"])) is not None and not is_poison(error)
        ]
        if again:
            self._loop.run(lambda: self._put_off(again, deadline))
        return batch

    async def _store(self, batch: QueryLogBatch, seconds: float) -> None:
        try:
            async with asyncio.timeout(seconds):
                await self._database.open()
                await batch.store(QueryLogWriter(self._database), self._overflow)
        except TimeoutError as exc:
            raise DeadlineExceededError("The invocation's time was over.") from exc
        except DatabaseError:
            await self._database.close()  # after a failover, only a new connection finds the successor
            raise

    async def _put_off(self, messages: Sequence[ReceivedMessage], deadline: Deadline) -> None:
        if self._queue is None:
            logger.warning("VECTORFORGE_QUERY_LOG_QUEUE_URL is not set: messages cannot be put off")
            return
        try:
            async with asyncio.timeout(deadline.remaining_s() - _ANSWER_S):
                await delay_messages(self._queue, messages, RETRY_WAITS)
        except TimeoutError:
            logger.warning("The queue did not answer in time: not all messages were put off")

    def report(self, batch: QueryLogBatch, messages: Sequence[Mapping[str, Any]]) -> None:
        """Log the result of the batch: ids and reasons, never the content of a record."""
        self.telemetry.metrics.increment("query_log.rows_stored", batch.stored)
        for text in {e.message for e in batch.failures.values() if isinstance(e, ConfigurationError)}:
            logger.error("The log writer is not set up: %s", text)
        for message in messages:
            message_id = message["messageId"]
            error = batch.failures.get(message_id)
            if error is None:
                continue
            poison = is_poison(error)
            self.telemetry.metrics.increment("query_log.messages_refused", int(poison))
            query_id = batch.query_ids.get(message_id)
            logger.warning(
                "A query log message was refused" if poison else "A query log message has to come again",
                extra={
                    "message_id": message_id,
                    "receive_count": message.get("attributes", {}).get("ApproximateReceiveCount"),
                    "query_id": str(query_id) if query_id else None,
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
        loop, self._loop = self._loop, None
        if loop is not None and loop.is_running:
            loop.run(self._database.close)
            loop.close()
        self._clients.close()


def _partial_response(
    event: dict[str, Any], failures: Mapping[str, VectorForgeError]
) -> "PartialItemFailureResponse":
    """Report failed messages in the format of Lambda's event source."""
    from aws_lambda_powertools.utilities.batch import BatchProcessor, EventType, process_partial_response
    from aws_lambda_powertools.utilities.data_classes.sqs_event import SQSRecord

    def outcome(record: SQSRecord) -> None:
        if record.message_id in failures:
            raise failures[record.message_id]

    # A batch of poison alone is no failure of the function: it is answered like any other.
    processor = BatchProcessor(event_type=EventType.SQS, raise_on_entire_batch_failure=False)
    return process_partial_response(event, outcome, processor)
