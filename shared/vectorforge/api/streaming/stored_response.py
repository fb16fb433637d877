"""Answers stored while they are sent: for clients that resume, and under an ``Idempotency-Key``."""

import asyncio
import math
from collections.abc import AsyncGenerator
from contextlib import suppress
from uuid import UUID

from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from vectorforge.api.streaming.answer_buffer import AnswerBuffer
from vectorforge.api.streaming.sse import QueryEventEncoder
from vectorforge.api.streaming.stream import (
    LATE_S,
    STALL_S,
    ClientStream,
    OpenedQuery,
    QueryEventResponse,
    disconnected,
    end,
)
from vectorforge.db.repositories.answer_stream_repo import EventBatch, Readership, StreamState
from vectorforge.db.repositories.idempotent_answer_repo import IdempotentAnswerRepository, StreamHead
from vectorforge.deadline import Deadline, concurrently
from vectorforge.errors import VectorForgeError
from vectorforge.pipeline.stopping import StopSignal
from vectorforge.pipeline.types import QueryEvent


class ResumableQueryResponse(QueryEventResponse):
    """Server-sent events of one query, which continues after a disconnect.

    Its encoder encodes each event as at least one, and the opened buffer stores them.
    """

    def __init__(self, query: OpenedQuery, encoder: QueryEventEncoder, buffer: AnswerBuffer) -> None:
        super().__init__(query, encoder)
        self._buffer = buffer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send and store the events; return when all are stored, even after a disconnect."""
        client = ClientStream(send, self.raw_headers)
        delivery = _StoredDelivery(client, self._buffer)
        listening = asyncio.create_task(delivery.watch(receive))
        try:
            with suppress(ClientDisconnect):  # at the very end, when all is stored
                async with client, self._buffer:
                    try:
                        await self._deliver_events(delivery)
                    finally:
                        await self._query.rest.aclose()
        finally:
            await end(listening)
            await self._query.rest.aclose()  # of a response that never started


class _StoredDelivery:
    """Delivery to a client while it is connected, and to the buffer always."""

    def __init__(self, client: ClientStream, buffer: AnswerBuffer) -> None:
        self._client = client
        self._buffer = buffer
        self._deadline = buffer.deadline
        self._stall_s = max(min(buffer.grace_s, STALL_S), 1.0)

    def put(self, data: bytes, *, last: bool = False) -> bool:
        try:
            must_flush = self._client.put(data, last=last)
        except ClientDisconnect:
            self.lose_client()
            must_flush = False
        self._buffer.add(data, last=last)
        return must_flush

    async def flush(self) -> None:
        try:
            async with asyncio.timeout(min(self._stall_s, max(self._deadline.remaining_s(), LATE_S))):
                await self._client.flush()
        except (ClientDisconnect, TimeoutError):
            self.lose_client()

    async def watch(self, receive: Receive) -> None:
        await disconnected(receive)
        self.lose_client()

    def lose_client(self) -> None:
        self._client.has_gone = True
        self._buffer.lose_client()


async def resumable_response(
    events: AsyncGenerator[QueryEvent, None], encoder: QueryEventEncoder, buffer: AnswerBuffer
) -> QueryEventResponse:
    """Return an answer that a client can resume, or a plain one if it cannot be stored.

    Raises:
        VectorForgeError: The query failed before its answer began.
    """
    async with concurrently(buffer.open()) as opening:  # the search's events stay in this task
        opened = await OpenedQuery.open(events)
        is_stored = await opening
    if is_stored:
        return ResumableQueryResponse(opened, encoder, buffer)
    return QueryEventResponse(opened, encoder, deadline=buffer.deadline)


class StoredResponse:
    """Recorder of an answer for replay, attached to the request state; the caller has claimed its key.

    It is the store of its own buffer (``AnswerStreams``), since a streamed answer's head is stored with the
    first events. An answer of more than ``max_bytes`` is not stored.
    """

    def __init__(
        self, answers: IdempotentAnswerRepository, query_id: UUID, *, deadline: Deadline, max_bytes: int
    ) -> None:
        self.stop = StopSignal()
        """Stops the stream on request."""
        self.is_streamed = False
        self._answers = answers
        self._response: ResumableQueryResponse | None = None
        self._head: StreamHead | None = None
        """Head of a streamed response until it is stored."""
        self._query_id = query_id
        self.buffer = AnswerBuffer(
            self,
            query_id,
            self.stop,
            deadline=deadline,
            max_bytes=max_bytes,
            grace_s=math.inf,  # a client may retry at any time
        )

    async def stream(
        self, events: AsyncGenerator[QueryEvent, None], encoder: QueryEventEncoder, *, resumable: bool
    ) -> ResumableQueryResponse:
        """Return the answer as server-sent events, once the search is done.

        Raises:
            VectorForgeError: The query failed before its answer began.
        """
        self.is_streamed = True
        response = ResumableQueryResponse(await OpenedQuery.open(events), encoder, self.buffer)
        self._response, self._head = response, StreamHead(dict(response.headers), resumable)
        if resumable:  # its reader may resume in another process
            with suppress(VectorForgeError):  # else written with the first events
                await self.write(self._query_id, EventBatch(1, b"", 0))
        return response

    async def open(self, query_id: UUID) -> None:
        """Do nothing: it was opened when its key was claimed."""

    async def give_up(self, query_id: UUID) -> bool:
        """Mark the answer as lost."""
        return await self._answers.give_up(query_id)

    async def write(
        self, query_id: UUID, batch: EventBatch, state: StreamState = "running"
    ) -> Readership | None:
        """Store events for the buffer; one that ends with an error is generated again by a retry."""
        head, has_failed = self._head, self._response is not None and self._response.has_failed
        retain = state == "running" or not has_failed
        seen = await self._answers.write(query_id, batch, state, head=head, retain=retain)
        if head is not None:
            self._head = None
        return seen
