"""Log-writer function: moves records from the queue into the table, up to 16 MiB per statement.

A message that can never be stored (poison) fails alone, and the queue moves it to its dead-letter queue after
``maxReceiveCount`` attempts. While the database or the bucket is unavailable, messages fail and are retried
with backoff. So is a message whose trace could not be exported: its record is stored, and stays as it is.
"""

import asyncio
import logging
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import AsyncExitStack
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any
from uuid import UUID

from vectorforge.aws.clients import AwsClients
from vectorforge.aws.database_login import database_password
from vectorforge.aws.observability import FunctionTelemetry
from vectorforge.aws.query_log_queue import QueryLogOverflow
from vectorforge.aws.query_log_record import MAX_RECORD_BYTES, QueryLogPointer, QueryLogRecord, parse_message
from vectorforge.aws.queues import ReceivedMessage, RetryWaits, SqsQueue, delay_messages
from vectorforge.aws.secrets import StoredKeys
from vectorforge.config import VectorForgeConfig
from vectorforge.db.connection import Database
from vectorforge.db.login import log_writer_url
from vectorforge.db.repositories.query_log_repo import QueryLog, QueryLogWriter
from vectorforge.deadline import Deadline
from vectorforge.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailableError,
    DeadlineExceededError,
    InvalidInputError,
    MigrationError,
    NotFoundError,
    RefusedRowError,
    UnsafeRoleError,
    VectorForgeError,
)
from vectorforge.telemetry import measure
from vectorforge.threads import LoopThread

if TYPE_CHECKING:
    from vectorforge.otlp.exporter import OtlpExporter

logger = logging.getLogger(__name__)

RETRY_WAITS = RetryWaits(first_s=30, factor=6, longest_s=3 * 3600)
"""Half a minute, 3, 18 and 108: with five deliveries, an outage of two hours costs no record."""
_RESPONSE_S = 0.5
"""Seconds of an invocation that are for its response alone."""
_SLICE_BYTES = 2 * MAX_RECORD_BYTES
"""Records of one statement, as JSON: a batch of the largest ones has 800 MiB, the function a part of that."""


def is_poison(error: VectorForgeError) -> bool:
    """Return True if the message itself is invalid, so that a retry does not help."""
    return isinstance(error, (InvalidInputError, RefusedRowError))


@dataclass(slots=True)
class QueryLogBatch:
    """One batch, from messages to rows: ``read`` it, ``store`` it, and ``fail_rest`` if that ended early."""

    failures: dict[str, VectorForgeError] = field(default_factory=dict)
    """By message id: why a message was not stored."""
    query_ids: dict[str, UUID] = field(default_factory=dict)
    """By message id: the query of a message that could be understood."""
    stored: int = 0
    """Rows that are new or were completed."""
    already_there: int = 0
    encode: Callable[[str, QueryLog], str] | None = None
    """Encodes the trace of a stored record; None: traces are not exported."""
    traces: dict[str, str] = field(default_factory=dict)
    """By message id: encoded traces of stored records."""
    _inline: dict[str, tuple[QueryLogRecord, int]] = field(default_factory=dict)
    _pointers: dict[str, QueryLogPointer] = field(default_factory=dict)

    def read(self, messages: Iterable[Mapping[str, Any]]) -> None:
        """Validate the messages of an SQS event."""
        for message in messages:
            message_id, body = message["messageId"], message["body"]
            try:
                parsed = parse_message(body)
            except InvalidInputError as exc:
                self.failures[message_id] = exc
                continue
            self.query_ids[message_id] = parsed.id
            if isinstance(parsed, QueryLogRecord):
                self._inline[message_id] = (parsed, len(body))
            else:
                self._pointers[message_id] = parsed

    async def store(self, writer: QueryLogWriter, overflow: QueryLogOverflow | None) -> None:
        """Store the records: first those of the messages, then those in the bucket.

        It may be canceled: what is stored stays stored, and is not failed by ``fail_rest``.

        Raises:
            VectorForgeError: Something that is not about one record, so the others would meet it, too.
        """
        for part in self._slices():
            await self._write(writer, part)
        for message_id, pointer in list(self._pointers.items()):
            if overflow is None:
                raise ConfigurationError("VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET is not set.")
            try:
                record = await overflow.get(pointer)
            except (InvalidInputError, NotFoundError) as exc:  # this one alone
                self._fail(message_id, exc)
                continue
            await self._write(writer, {message_id: record})
            if message_id not in self.failures:  # done once its texts are removed from the object
                await overflow.empty(pointer, record)
                del self._pointers[message_id]

    def fail_rest(self, error: VectorForgeError) -> None:
        """Fail every message that is not stored yet."""
        self.failures |= dict.fromkeys((*self._inline, *self._pointers), error)
        self._inline.clear()
        self._pointers.clear()

    def _slices(self) -> Iterator[dict[str, QueryLogRecord]]:
        part: dict[str, QueryLogRecord] = {}
        size = 0
        for message_id, (record, record_size) in list(self._inline.items()):
            if part and size + record_size > _SLICE_BYTES:
                yield part
                part, size = {}, 0
            part[message_id] = record
            size += record_size
        if part:
            yield part

    async def _write(self, writer: QueryLogWriter, part: Mapping[str, QueryLogRecord]) -> None:
        """Write in one statement, or one by one if the database rejects a record.

        Raises:
            VectorForgeError: The database is unavailable.
        """
        try:
            written = await writer.write([(one.tenant_id, one.query_log()) for one in part.values()])
        except (DatabaseUnavailableError, MigrationError, UnsafeRoleError):
            raise
        except (InvalidInputError, DatabaseError) as exc:
            if len(part) > 1:
                for message_id, record in part.items():
                    await self._write(writer, {message_id: record})
                return
            if not (is_poison(exc) or self.stored or self.already_there):
                raise  # not caused by this record
            self._fail(next(iter(part)), exc)
        else:
            self.stored += written.stored
            self.already_there += written.already_there
            for message_id, record in part.items():
                self._inline.pop(message_id, None)
                if self.encode is not None and (trace := self.encode(record.tenant_id, record.query_log())):
                    self.traces[message_id] = trace

    def _fail(self, message_id: str, error: VectorForgeError) -> None:
        self.failures[message_id] = error
        self._inline.pop(message_id, None)
        self._pointers.pop(message_id, None)


class QueryLogWriterFunction:
    """Stores the query logs of SQS events. The event source must report batch item failures."""

    def __init__(self) -> None:
        self._started: _Started | None = None

    def startup(self) -> "_Started":
        """Read the settings in the init phase; nothing connects before an event.

        Raises:
            ConfigurationError: A setting is missing or wrong.
        """
        if self._started is None or self._started.is_stale:
            self._started = _Started(VectorForgeConfig.from_environment())
        return self._started

    def shutdown(self) -> None:
        """Close what was opened; an event after that starts again."""
        started, self._started = self._started, None
        if started is not None:
            started.close()

    def __call__(self, event: Mapping[str, Any], context: Any) -> dict[str, list[dict[str, str]]]:
        """Store one batch; the response names the messages that were not stored."""
        started = self.startup()
        with started.telemetry.invocation(context):
            deadline = Deadline.after(context.get_remaining_time_in_millis() / 1000)
            messages = event["Records"]
            batch = started.store(messages, deadline)
            started.report(batch, messages)
            failed = [one["messageId"] for one in messages if one["messageId"] in batch.failures]
            return {"batchItemFailures": [{"itemIdentifier": message_id} for message_id in failed]}


class _Started:
    """State of a process between events: one connection, and the AWS clients."""

    def __init__(self, config: VectorForgeConfig) -> None:
        # One connection: the function handles one event at a time. A dead one is replaced after a thaw.
        self._database = Database(
            log_writer_url(config.database),
            pool_size=1,
            timeout_s=config.database.database_timeout_s,
            password=database_password(config.database),
        )
        self._loop: LoopThread | None = None
        self._clients = AwsClients(read_timeout_s=3.0)
        queue_url, bucket = config.aws.query_log_queue_url, config.aws.query_log_overflow_bucket
        self._queue = SqsQueue(self._clients, queue_url) if queue_url else None
        self._overflow = QueryLogOverflow(self._clients, bucket) if bucket else None
        self._clients.warm(*(["sqs"] if queue_url else []), *(["s3"] if bucket else []))
        self.telemetry = FunctionTelemetry("log_writer", config)
        self._keys = StoredKeys.from_settings(config.aws)
        self._exporter: OtlpExporter | None = None
        self._encode: Callable[[str, QueryLog], str] | None = None
        if config.tracing.tracing == "otel":
            from vectorforge.aws.trace_export import trace_exporter
            from vectorforge.otlp.encoding import encode_trace

            self._exporter = trace_exporter(config.tracing, self.telemetry.metrics, self._keys)
            self._encode = partial(encode_trace, with_texts=config.tracing.otlp_texts)

    @property
    def is_stale(self) -> bool:
        """True if its loop is gone, as in a fork, whose resources belong to the other process."""
        return self._loop is not None and not self._loop.is_running

    def store(self, messages: Sequence[Mapping[str, Any]], deadline: Deadline) -> QueryLogBatch:
        """Store records before ``deadline`` and delay the rest."""
        if self._loop is None:  # not at startup: a snapshot or a fork would lose the thread
            self._loop = LoopThread(AsyncExitStack(), name="query-log-writer")
        remaining_s = deadline.remaining_s()
        # What is left then is for the response, and for the queue (``_delay``).
        storing_s = remaining_s - min(max(remaining_s / 5, 1.0), 6.0)
        batch = QueryLogBatch(encode=self._encode)
        batch.read(messages)
        try:
            with measure(self.telemetry.metrics, "query_log.write"):
                self._loop.run(lambda: self._store(batch, storing_s))
        except VectorForgeError as exc:
            batch.fail_rest(exc)
        if (exporter := self._exporter) is not None and batch.traces:
            from vectorforge.aws.trace_export import export_stored

            failed = self._loop.run(lambda: export_stored(exporter, batch.traces, messages, deadline))
            batch.failures = {**failed, **batch.failures}
        retried = [
            ReceivedMessage.of(message)
            for message in messages
            if (error := batch.failures.get(message["messageId"])) is not None and not is_poison(error)
        ]
        if retried:
            self._loop.run(lambda: self._delay(retried, deadline))
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

    async def _delay(self, messages: Sequence[ReceivedMessage], deadline: Deadline) -> None:
        if self._queue is None:
            logger.warning("VECTORFORGE_QUERY_LOG_QUEUE_URL is not set: messages cannot be put off")
            return
        try:
            async with asyncio.timeout(deadline.remaining_s() - _RESPONSE_S):
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
            if (error := batch.failures.get(message_id)) is None:
                continue
            poison = is_poison(error)
            self.telemetry.metrics.increment("query_log.messages_refused", int(poison))
            query_id = batch.query_ids.get(message_id)
            logger.warning(
                "A query log message was refused" if poison else "A query log message has to come again",
                extra={
                    "message_id": message_id,
                    "receive_count": message.get("attributes", {}).get("ApproximateReceiveCount"),
                    "query_id": query_id and str(query_id),
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
        self._keys.close()
        self._clients.close()
