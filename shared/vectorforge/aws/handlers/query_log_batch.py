"""A batch of queue messages becomes rows: which can be stored, and which fail, for good or for now."""

import asyncio
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, TypeVar
from uuid import UUID

from vectorforge.aws.query_log_queue import QueryLogOverflow
from vectorforge.aws.query_log_record import MAX_RECORD_BYTES, QueryLogPointer, QueryLogRecord, parse_message
from vectorforge.db.repositories.query_log_repo import QueryLogWriter
from vectorforge.errors import (
    ConfigurationError,
    DatabaseError,
    DatabaseUnavailableError,
    InvalidInputError,
    MigrationError,
    NotFoundError,
    ObjectStoreError,
    RefusedRowError,
    UnsafeRoleError,
    VectorForgeError,
)

SLICE_BYTES = 2 * MAX_RECORD_BYTES
"""Records of one statement, as JSON: a batch of the largest ones has 800 MiB, the function a part of that."""
_OBJECT_S = 5.0
"""Time limit of reading an object; S3 returns 8 MiB in a fraction of a second."""
_SETUP_ERRORS = (DatabaseUnavailableError, MigrationError, UnsafeRoleError)

_T = TypeVar("_T")
_Record = tuple[str, QueryLogRecord]
"""With the id of its message."""


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
        """Store the records: first those that are here, then those that lie in the bucket.

        It may be canceled: what is stored stays stored, and is not failed by ``fail_rest``.

        Raises:
            VectorForgeError: Something that is not about one record: the others would meet it, too.
        """
        for part in self._slices():
            await self._write(writer, part)
        await self._store_overflow(writer, overflow)

    def fail_rest(self, error: VectorForgeError) -> None:
        """Nothing more will be stored: every message that waits fails."""
        self.failures |= dict.fromkeys((*self._inline, *self._pointers), error)
        self._inline.clear()
        self._pointers.clear()

    def _slices(self) -> Iterator[list[_Record]]:
        part: list[_Record] = []
        size = 0
        for message_id, (record, record_size) in list(self._inline.items()):
            if part and size + record_size > SLICE_BYTES:
                yield part
                part, size = [], 0
            part.append((message_id, record))
            size += record_size
        yield part

    async def _store_overflow(self, writer: QueryLogWriter, overflow: QueryLogOverflow | None) -> None:
        part: list[_Record] = []
        size = 0
        stopped: VectorForgeError | None = None
        for message_id, pointer in list(self._pointers.items()):
            try:
                record, record_size = await _within(_of(overflow).get, pointer)
            except (InvalidInputError, NotFoundError) as exc:  # this one alone
                self._fail(message_id, exc)
                continue
            except VectorForgeError as exc:  # each of the others would wait as long
                stopped = exc
                break
            part.append((message_id, record))
            size += record_size
            if size > SLICE_BYTES - MAX_RECORD_BYTES:  # the next one may not fit any more
                await self._write_overflow(writer, overflow, part)
                part, size = [], 0
        await self._write_overflow(writer, overflow, part)
        if stopped is not None:
            raise stopped

    async def _write_overflow(
        self, writer: QueryLogWriter, overflow: QueryLogOverflow | None, part: Sequence[_Record]
    ) -> None:
        """Write, then remove the texts from the objects; a message is done after both."""
        waiting = {message_id: self._pointers[message_id] for message_id, _ in part}
        await self._write(writer, part)
        for message_id, record in part:
            if message_id not in self.failures:
                await _within(_of(overflow).empty, waiting[message_id], record)
                self._pointers.pop(message_id, None)

    async def _write(self, writer: QueryLogWriter, part: Sequence[_Record]) -> None:
        """Write in one statement, or one by one if the database rejects a record.

        Raises:
            VectorForgeError: The database is unavailable.
        """
        if not part:
            return
        try:
            written = await writer.write([(record.tenant_id, record.query_log()) for _, record in part])
        except _SETUP_ERRORS:
            raise
        except (InvalidInputError, DatabaseError) as exc:
            if len(part) > 1:
                for item in part:
                    await self._write(writer, [item])
                return
            if not (is_poison(exc) or self.stored or self.already_there):
                raise  # not caused by this record
            self._fail(part[0][0], exc)
        else:
            self.stored += written.stored
            self.already_there += written.already_there
            for message_id, _ in part:
                self._inline.pop(message_id, None)  # what lies in the bucket is not done yet

    def _fail(self, message_id: str, error: VectorForgeError) -> None:
        self.failures[message_id] = error
        self._inline.pop(message_id, None)
        self._pointers.pop(message_id, None)


def is_poison(error: VectorForgeError) -> bool:
    """Return True if the message itself is invalid, so that a retry does not help."""
    return isinstance(error, (InvalidInputError, RefusedRowError))


def _of(overflow: QueryLogOverflow | None) -> QueryLogOverflow:
    if overflow is None:
        raise ConfigurationError("VECTORFORGE_QUERY_LOG_OVERFLOW_BUCKET is not set.")
    return overflow


async def _within(call: Callable[..., _T], *arguments: Any) -> _T:
    try:
        async with asyncio.timeout(_OBJECT_S):
            return await asyncio.to_thread(call, *arguments)
    except TimeoutError as exc:
        raise ObjectStoreError("The overflow bucket did not answer in time.") from exc
