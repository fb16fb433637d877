"""Responses that send a query's events while they arrive.

FastAPI's own server-sent events need a route of their own; these share a path with the JSON answer, so the
response is built with FastAPI's encoder: same headers, same pings. The query is closed on disconnect, unless
its events are stored for a client that resumes.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Callable, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from fastapi.sse import EventSourceResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from vectorforge.api.streaming.answer_buffer import AnswerBuffer
from vectorforge.api.streaming.client_stream import (
    PING_INTERVAL_S,
    STREAM_HEADERS,
    ClientStream,
    cancelled_on_disconnect,
    disconnected,
    end,
)
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError, log_unexpected
from vectorforge.pipeline.types import DoneEvent, ErrorEvent, QueryEvent, SourcesEvent, TokenEvent

logger = logging.getLogger(__name__)

_STALL_S = 10.0
"""Seconds after which a client that reads nothing counts as disconnected."""
_LATE_S = 0.4
"""Seconds that a slow client has for events at or after the deadline."""

_LAST_EVENTS = (DoneEvent, ErrorEvent)


class Delivery(Protocol):
    """Destination of a stream's events, such as ``ClientStream``."""

    def put(self, data: bytes, *, last: bool = False) -> bool:
        """Queue whole events; True if ``flush`` must be awaited before the next."""

    async def flush(self) -> None:
        """Return after the queued events are accepted."""


class QueryEventEncoder(Protocol):
    """Encoder of one stream's events in the wire format of its surface."""

    @property
    def request_id(self) -> str:
        """Id of the request in the logs."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers in addition to those of every event stream."""

    def encode(self, event: QueryEvent) -> bytes:
        """Encode an event as whole server-sent events; empty if the format has none for it.

        ``DoneEvent`` and ``ErrorEvent`` are last, and also encode the end of the stream.
        """

    def encode_failure(self, error: Exception, partial_answer: str) -> bytes:
        """Encode the end of a stream after an unexpected exception, without its message."""


class OpenedQuery:
    """A query after its search and before its answer.

    Args:
        first: Events up to ``SourcesEvent``.
        rest: Later events; closing it aborts the query.
    """

    def __init__(self, first: Sequence[QueryEvent], rest: AsyncGenerator[QueryEvent, None]) -> None:
        self.first = first
        self.rest = rest

    @classmethod
    async def open(cls, events: AsyncGenerator[QueryEvent, None]) -> "OpenedQuery":
        """Wait for the search, so that errors until then have their own HTTP status.

        Raises:
            VectorForgeError: The query failed before its answer began.
        """
        first: list[QueryEvent] = []
        async for event in events:
            if isinstance(event, ErrorEvent):
                await events.aclose()
                raise event.error
            first.append(event)
            if isinstance(event, SourcesEvent):
                break
        return cls(first, events)


class QueryEventResponse(EventSourceResponse):
    """Server-sent events of one query.

    Args:
        query: Owned by the response from here on.
        encoder: Encodes the events.
        ping_interval_s: Seconds of silence between keep-alive comments.
        deadline: Deadline of the query, by which the client must have read the sent events.
        stall_s: Seconds the client has for that without a deadline.
    """

    def __init__(
        self,
        query: OpenedQuery,
        encoder: QueryEventEncoder,
        *,
        ping_interval_s: float = PING_INTERVAL_S,
        deadline: Deadline | None = None,
        stall_s: float = _STALL_S,
    ) -> None:
        super().__init__((), headers={**STREAM_HEADERS, **encoder.headers})
        self._query = query
        self._encoder = encoder
        self._ping_interval_s = ping_interval_s
        self._deadline = deadline
        self._stall_s = stall_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; return when all are sent or on disconnect."""
        client = ClientStream(send, self.raw_headers, ping_interval_s=self._ping_interval_s)
        try:
            with suppress(ClientDisconnect):
                async with cancelled_on_disconnect(receive), client:
                    await self._deliver_events(client)
        finally:
            await self._query.rest.aclose()

    async def _deliver_events(self, delivery: Delivery) -> None:
        encode, put = self._encoder.encode, delivery.put
        answer: list[str] = []
        try:
            for event in self._query.first:
                if put(encode(event)):
                    await self._flush(delivery)
            async for event in self._query.rest:
                last = type(event) in _LAST_EVENTS
                if put(encode(event), last=last):
                    await self._flush(delivery)
                if type(event) is TokenEvent:
                    answer.append(event.text)
                if last:
                    return
            error: Exception = VectorForgeError("The answer was interrupted.")
        except ClientDisconnect:
            raise
        except Exception as exc:  # noqa: BLE001 - after the first byte every failure becomes the one error event
            error = exc
        log_unexpected(logger, f"Request {self._encoder.request_id} failed", error)
        if put(self._encoder.encode_failure(error, "".join(answer)), last=True):
            await self._flush(delivery)

    async def _flush(self, delivery: Delivery) -> None:
        left_s = float("inf") if self._deadline is None else self._deadline.remaining_s()
        limit_s = self._stall_s if left_s == float("inf") else max(left_s, _LATE_S)
        try:
            async with asyncio.timeout(limit_s):
                await delivery.flush()
        except TimeoutError as exc:  # a client that reads a byte now and then would hold its query forever
            raise ClientDisconnect from exc


class ResumableQueryResponse(QueryEventResponse):
    """Server-sent events of one query, which continues after a disconnect.

    Args:
        query: Owned by the response from here on.
        encoder: Encodes each event as at least one.
        buffer: Stores them; opened.
        ping_interval_s: Seconds of silence between keep-alive comments.
    """

    def __init__(
        self,
        query: OpenedQuery,
        encoder: QueryEventEncoder,
        buffer: AnswerBuffer,
        *,
        ping_interval_s: float = PING_INTERVAL_S,
    ) -> None:
        super().__init__(query, encoder, ping_interval_s=ping_interval_s)
        self._buffer = buffer

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send and store the events; return when all are stored, even after a disconnect."""
        client = ClientStream(send, self.raw_headers, ping_interval_s=self._ping_interval_s)
        delivery = _StoredDelivery(client, self._buffer)
        listening = asyncio.create_task(_call_on_disconnect(receive, delivery.lose_client))
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
        self._stall_s = max(min(buffer.grace_s, _STALL_S), 1.0)

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
            async with asyncio.timeout(min(self._stall_s, max(self._deadline.remaining_s(), _LATE_S))):
                await self._client.flush()
        except (ClientDisconnect, TimeoutError):
            self.lose_client()

    def lose_client(self) -> None:
        self._client.has_gone = True
        self._buffer.lose_client()


async def _call_on_disconnect(receive: Receive, lose_client: Callable[[], None]) -> None:
    await disconnected(receive)
    lose_client()
