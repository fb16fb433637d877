"""A batch of queue messages becomes rows: which can be stored, and which fail, for good or for now."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from vectorforge.aws.query_log_overflow import QueryLogOverflow
from vectorforge.aws.query_log_record import QueryLogRecord, parse_message
from vectorforge.db.repositories.query_log_writer import QueryLogWriter
from vectorforge.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailableError,
    InvalidInputError,
    MigrationError,
    UnsafeRoleError,
    VectorForgeError,
)

_SETUP_ERRORS = (DatabaseUnavailableError, MigrationError, UnsafeRoleError)


@dataclass(slots=True)
class QueryLogBatch:
    """One batch, from messages to rows. Fill it with ``read``, then ``store`` it."""

    records: dict[str, QueryLogRecord] = field(default_factory=dict)
    """By message id: what is to be stored."""
    failures: dict[str, VectorForgeError] = field(default_factory=dict)
    """By message id: why a message was not stored."""
    max_characters: int = 32_000_000
    """Texts of one statement: jsonb holds 256 MB, and the function's memory ends before."""
    stored: int = 0
    """Rows that are new or were completed."""
    already_there: int = 0

    def read(self, messages: Sequence[Mapping[str, Any]], overflow: QueryLogOverflow | None) -> None:
        """Validate the messages of an SQS event; get from the bucket what was too large for the queue.

        Messages beyond ``max_characters`` fail, and are stored when they come again.
        """
        characters = 0
        for message in messages:
            try:
                if characters > self.max_characters:
                    raise VectorForgeError("The batch has no room for another record.")
                record = _read(message["body"], overflow)
            except VectorForgeError as exc:
                self.failures[message["messageId"]] = exc
            else:
                self.records[message["messageId"]] = record
                characters += len(record.query_text) + len(record.generated_response)

    async def store(self, writer: QueryLogWriter) -> None:
        """Store the records in one statement; one by one only when the database does not take one of them."""
        try:
            await self._write(writer, list(self.records))
        except _SETUP_ERRORS as exc:
            self.fail_all(exc)
        except (InvalidInputError, DatabaseError) as exc:
            if len(self.records) == 1:
                self.fail_all(exc)
            else:
                await self._store_one_by_one(writer)

    def fail_all(self, error: VectorForgeError) -> None:
        """Nothing could be stored."""
        self.failures |= dict.fromkeys(self.records, error)

    async def _store_one_by_one(self, writer: QueryLogWriter) -> None:
        ids = list(self.records)
        for position, message_id in enumerate(ids):
            try:
                await self._write(writer, [message_id])
            except _SETUP_ERRORS as exc:  # the others would wait for it, too
                self.failures |= dict.fromkeys(ids[position:], exc)
                return
            except (InvalidInputError, DatabaseError) as exc:
                self.failures[message_id] = exc

    async def _write(self, writer: QueryLogWriter, message_ids: Sequence[str]) -> None:
        if not message_ids:
            return
        records = [self.records[message_id] for message_id in message_ids]
        written = await writer.write([(record.tenant_id, record.query_log()) for record in records])
        self.stored += written.stored
        self.already_there += written.already_there


def is_poison(error: VectorForgeError) -> bool:
    """Whether the message itself is at fault: trying again changes nothing."""
    return isinstance(error, (InvalidInputError, DatabaseError)) and not isinstance(error, _SETUP_ERRORS)


def _read(body: str, overflow: QueryLogOverflow | None) -> QueryLogRecord:
    message = parse_message(body)
    if isinstance(message, QueryLogRecord):
        return message
    if overflow is None:
        raise ConfigurationError("VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET is not set.")
    return overflow.get(message)
