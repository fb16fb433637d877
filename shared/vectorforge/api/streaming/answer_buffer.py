"""Storage of a streamed answer's events, so that a disconnected client can resume.

Events go to the client first. A task writes the events since its last write as one batch, at most ten times a
second, so that neither a token nor a client waits for the database. Each write returns what happened in other
processes: a reader, or a request to stop.
"""

import asyncio
import logging
import time
from collections import deque
from contextlib import suppress
from typing import Protocol, Self
from uuid import UUID

from vectorforge.api.streaming.stream import end
from vectorforge.db.repositories.answer_stream_repo import EventBatch, Readership, StreamState
from vectorforge.deadline import Deadline, wait_for
from vectorforge.errors import VectorForgeError, log_unexpected
from vectorforge.pipeline.stopping import StopSignal

logger = logging.getLogger(__name__)

HEARTBEAT_S = 0.5
"""Longest time between two writes, which show readers a live writer and return requests to stop."""
_BATCH_S = 0.1
"""Shortest time between two writes."""
_BATCH_BYTES = 1024 * 1024
"""Size at which a batch is closed; the last event may exceed it."""
_RETRY_S = 0.5
_LAST_WRITE_S = 5.0
_LATE_WRITE_S = 0.5
"""Time for the last write after the query's deadline; on Lambda little is left of the invocation."""


class AnswerStreams(Protocol):
    """Store of events: ``AnswerStreamRepository``, or a ``StoredResponse`` under a key."""

    async def open(self, query_id: UUID) -> None:
        """Create a stream."""

    async def write(
        self, query_id: UUID, batch: EventBatch, state: StreamState = "running"
    ) -> Readership | None:
        """Add events; None if the stream is closed."""

    async def give_up(self, query_id: UUID) -> bool:
        """Mark the stream as lost."""


class AnswerBuffer:
    """The events of one query; as a context manager it writes until the last one is stored.

    Args:
        stop: Stops the query on request of another process, or without readers.
        max_bytes: Maximum bytes of all events; later ones are not stored.
        grace_s: Seconds without a reader after which the query is stopped.
    """

    def __init__(
        self,
        streams: AnswerStreams,
        query_id: UUID,
        stop: StopSignal,
        *,
        deadline: Deadline,
        max_bytes: int,
        grace_s: float,
    ) -> None:
        self._streams = streams
        self._query_id = query_id
        self._stop = stop
        self.deadline = deadline
        self._room = max_bytes
        self.grace_s = grace_s
        self._waiting: deque[bytes] = deque()
        self._next_id = 1  # of the first event that waits
        self._state: StreamState = "running"
        self._is_storing = True
        self._is_complete = False
        self._alone_since: float | None = None
        self._last_read = float("-inf")
        self._news, self._over = asyncio.Event(), asyncio.Event()
        self._writing: asyncio.Task[None] | None = None

    async def open(self) -> bool:
        """Create the stream; False if the database is not available in time, so that it cannot be resumed."""
        try:
            async with asyncio.timeout(max(self.deadline.remaining_s(), 0.0)):
                await self._streams.open(self._query_id)
        except (VectorForgeError, TimeoutError) as exc:
            reason = exc.message if isinstance(exc, VectorForgeError) else "not in time"
            logger.warning("Query %s cannot be resumed: %s", self._query_id, reason)
            return False
        return True

    async def __aenter__(self) -> Self:
        if self._writing is None:  # entered before the search, and again by the response
            self._writing = asyncio.create_task(self._write_all())
        return self

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        assert self._writing is not None  # noqa: S101 - entered
        limit_s = min(_LAST_WRITE_S, max(self.deadline.remaining_s(), 0.0) + _LATE_WRITE_S)
        try:
            if exc is None:
                await asyncio.wait({self._writing}, timeout=limit_s)
        finally:
            await end(self._writing)
            if not self._is_complete:
                await self._give_up()

    def add(self, event: bytes, *, last: bool) -> None:
        """Add the next event without waiting."""
        self._room -= len(event)
        if self._room >= 0:
            self._waiting.append(event)
        else:
            self._state = "overflowed"
            self._lose_stream()
        if last:
            self._state = "ended" if self._state == "running" else self._state
            self._over.set()
        self._news.set()

    def lose_client(self) -> None:
        """Note the disconnect of the original client."""
        if self._alone_since is None:
            self._alone_since = time.monotonic()
            self._stop_if_unread()

    async def _write_all(self) -> None:
        try:
            await self._write()
        except Exception as exc:  # noqa: BLE001 - a failed copy must not end the answer
            log_unexpected(logger, f"Failed to store the events of query {self._query_id}", exc)
            self._lose_stream()

    async def _write(self) -> None:
        """Write batches until the last event is stored."""
        failed = False
        while True:
            await self._due()
            batch, state = self._next_batch()
            try:
                seen = await self._streams.write(self._query_id, batch, state)
            except VectorForgeError as exc:
                if not failed:
                    logger.warning("Retrying to store events of query %s: %s", self._query_id, exc.message)
                failed = True
                await asyncio.sleep(_RETRY_S)
            else:
                failed = False
                if seen is None:
                    self._lose_stream()
                    return
                self._note_written(batch, seen)
                if self._over.is_set() and not self._waiting:
                    self._is_complete = True
                    return
            self._stop_if_unread()

    async def _due(self) -> None:
        """Wait for the next write: for events, the end or the heartbeat."""
        if not self._waiting:
            await wait_for(self._news, HEARTBEAT_S)
        await wait_for(self._over, _BATCH_S)
        self._news.clear()

    def _next_batch(self) -> tuple[EventBatch, StreamState]:
        events, size = list[bytes](), 0
        for event in self._waiting:
            if size >= _BATCH_BYTES:
                break
            events.append(event)
            size += len(event)
        state = self._state if len(events) == len(self._waiting) else "running"
        return EventBatch(self._next_id, b"".join(events), len(events)), state

    def _note_written(self, batch: EventBatch, seen: Readership) -> None:
        for _ in range(batch.count):
            self._waiting.popleft()
        self._next_id += batch.count
        if seen.unread_s is not None:
            self._last_read = time.monotonic() - seen.unread_s
        if seen.stop_requested:
            self._stop.request()

    def _stop_if_unread(self) -> None:
        """Stop the query if it has no reader for too long, or cannot have one."""
        if self._alone_since is None:
            return
        unread_s = time.monotonic() - max(self._alone_since, self._last_read)
        if unread_s >= self.grace_s or not self._is_storing:
            self._stop.request()

    def _lose_stream(self) -> None:
        self._is_storing = False
        self._stop_if_unread()

    async def _give_up(self) -> None:
        """Mark the stream as lost, if the database is available."""
        with suppress(VectorForgeError, TimeoutError):
            async with asyncio.timeout(_LATE_WRITE_S):
                await self._streams.give_up(self._query_id)
