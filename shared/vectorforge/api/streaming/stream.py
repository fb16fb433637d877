"""Responses that send a query's events while they arrive; a disconnect cancels the query.

FastAPI's own server-sent events need a route of their own; these share a path with the JSON answer, so the
response is built with FastAPI's encoder: same headers, same pings.
"""

import asyncio
import logging
from collections.abc import AsyncGenerator, Sequence
from contextlib import suppress
from typing import Any, Protocol, Self

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from vectorforge.api.streaming.sse import QueryEventEncoder
from vectorforge.deadline import Deadline
from vectorforge.errors import VectorForgeError, log_unexpected
from vectorforge.pipeline.types import DoneEvent, ErrorEvent, QueryEvent, SourcesEvent, TokenEvent

logger = logging.getLogger(__name__)

STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of every event stream; the second one disables buffering in nginx."""
PING_INTERVAL_S = 15.0
"""Silence after which a comment is sent, as the specification of server-sent events suggests."""
STALL_S = 10.0
"""Seconds after which a client that reads nothing counts as disconnected."""
LATE_S = 0.4
"""Seconds that a slow client has for events at or after the deadline."""
_UNWATCHED_S = 0.05
"""Seconds before a task starts to watch for the disconnect; faster answers need none."""
_MOST_WAITING_BYTES = 16 * 1024
"""Limit above which the sender waits for the client; servers buffer 64 KiB more."""


async def disconnected(receive: Receive) -> None:
    """Wait for the disconnect; the request's body must have been read."""
    while (await receive())["type"] != "http.disconnect":
        pass


class cancelled_on_disconnect:  # noqa: N801 - read as the statement that it makes with "async with"
    """Cancels the block on disconnect; the request's body must have been read.

    It cancels the task once, as ``asyncio.timeout`` does, since clean-up code still has to await, for example
    to log the aborted query.

    Raises:
        ClientDisconnect: The client disconnected and the block was canceled.
    """

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        host = asyncio.current_task()
        assert host is not None  # noqa: S101 - a coroutine runs in a task
        self._host = host
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, self._start)

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        is_own = isinstance(exc, asyncio.CancelledError) and self._gone and self._host.uncancel() == 0
        self._timer.cancel()
        if self._listener is not None:
            self._listener.cancel()
            with suppress(asyncio.CancelledError):
                await self._listener
        if is_own:
            raise ClientDisconnect from None

    def _start(self) -> None:
        self._listener = asyncio.create_task(self._listen())

    async def _listen(self) -> None:
        await disconnected(self._receive)
        self._gone = True
        self._host.cancel()


class ClientStream:
    """The body of one response; as a context manager between its headers and its end.

    Events put without a pause are sent as one message: a message for each token would cost the server and the
    operating system more than everything else about a token. After ``ping_interval_s`` seconds of silence a
    comment keeps the connection alive.
    """

    def __init__(
        self, send: Send, headers: Sequence[tuple[bytes, bytes]], *, ping_interval_s: float = PING_INTERVAL_S
    ) -> None:
        self.has_gone = False
        """True after a disconnect; nothing more is sent."""
        self.ping = KEEPALIVE_COMMENT
        self._asgi_send = send
        self._headers = headers
        self._ping_interval_s = ping_interval_s
        self._waiting = bytearray()
        self._news = asyncio.Event()
        self._writing: asyncio.Task[None] | None = None
        self._turn = asyncio.Lock()

    async def __aenter__(self) -> Self:
        await self._send_message("http.response.start", status=200, headers=self._headers)
        self._writing = asyncio.create_task(self._write())
        return self

    async def __aexit__(self, kind: object, exc: BaseException | None, trace: object) -> None:
        assert self._writing is not None  # noqa: S101 - entered
        if exc is not None or self.has_gone:
            await end(self._writing)
            return
        async with self._turn:  # after a send in progress
            await end(self._writing)
            await self._send_message("http.response.body", body=bytes(self._waiting), more_body=False)

    async def send(self, data: bytes, *, at_once: bool = False) -> None:
        """Queue events, and flush them if necessary or requested."""
        if self.put(data, last=at_once):
            await self.flush()

    def put(self, data: bytes, *, last: bool = False) -> bool:
        """Queue whole events; returns True if the sender must ``flush`` before more, as after the last ones.

        Raises:
            ClientDisconnect: The client disconnected.
        """
        if self._writing is not None and self._writing.done():
            raise ClientDisconnect
        if not data or self.has_gone:
            return False
        if not self._waiting:
            self._news.set()
        self._waiting += data
        return last or len(self._waiting) > _MOST_WAITING_BYTES

    async def _write(self) -> None:
        """Send queued events whenever the sender pauses, and a comment after each silence."""
        while True:
            try:
                async with asyncio.timeout(self._ping_interval_s):
                    await self._news.wait()
            except TimeoutError:
                self._waiting += self.ping
            self._news.clear()
            await self.flush()

    async def flush(self) -> None:
        """Send the queued events and wait until the connection accepts them.

        Raises:
            ClientDisconnect: The client disconnected.
        """
        async with self._turn:
            if self._waiting and not self.has_gone:
                data = bytes(self._waiting)
                self._waiting.clear()
                await self._send_message("http.response.body", body=data, more_body=True)

    async def _send_message(self, kind: str, **fields: Any) -> None:
        try:
            await self._asgi_send({"type": kind, **fields})
        except OSError as exc:  # a disconnect, since ASGI 2.4
            raise ClientDisconnect from exc


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for its end, ignoring a disconnect."""
    task.cancel()
    with suppress(asyncio.CancelledError, ClientDisconnect):
        await task


class Delivery(Protocol):
    """Destination of a stream's events: ``ClientStream``, or one that also stores them."""

    def put(self, data: bytes, *, last: bool = False) -> bool:
        """Queue whole events; True if ``flush`` must be awaited before the next."""

    async def flush(self) -> None:
        """Return after the queued events are accepted."""


class OpenedQuery:
    """A query after its search: its events up to ``SourcesEvent``, and the rest; closing that aborts it."""

    def __init__(self, first: Sequence[QueryEvent], rest: AsyncGenerator[QueryEvent, None]) -> None:
        self.first, self.rest = first, rest

    @classmethod
    async def open(cls, events: AsyncGenerator[QueryEvent, None]) -> Self:
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
    """Server-sent events of one query, or those of its encoder's media type.

    The response closes the query. By the deadline the client must have read the sent events.
    """

    ping_interval_s = PING_INTERVAL_S
    stall_s = STALL_S
    """Seconds the client has to read the sent events without a deadline."""

    def __init__(
        self, query: OpenedQuery, encoder: QueryEventEncoder, *, deadline: Deadline | None = None
    ) -> None:
        super().__init__((), headers={**STREAM_HEADERS, **encoder.headers})
        self.has_failed = False
        """True if the last event is an error."""
        self._query = query
        self._encoder = encoder
        self._deadline = deadline

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; return when all are sent or on disconnect."""
        client = ClientStream(send, self.raw_headers, ping_interval_s=self.ping_interval_s)
        client.ping = self._encoder.ping
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
                last = isinstance(event, DoneEvent | ErrorEvent)
                self.has_failed = type(event) is ErrorEvent
                if put(encode(event), last=last):
                    await self._flush(delivery)
                if isinstance(event, TokenEvent):
                    answer.append(event.text)
                if last:
                    return
            error: Exception = VectorForgeError("The answer was interrupted.")
        except ClientDisconnect:
            raise
        except Exception as exc:  # noqa: BLE001 - after the first byte every failure becomes the one error event
            error = exc
        self.has_failed = True
        log_unexpected(logger, f"Request {self._encoder.request_id} failed", error)
        own = error if isinstance(error, VectorForgeError) else VectorForgeError()  # not another's message
        if put(encode(ErrorEvent(own, "generate", "".join(answer))), last=True):
            await self._flush(delivery)

    async def _flush(self, delivery: Delivery) -> None:
        left_s = float("inf") if self._deadline is None else self._deadline.remaining_s()
        limit_s = self.stall_s if left_s == float("inf") else max(left_s, LATE_S)
        try:
            async with asyncio.timeout(limit_s):
                await delivery.flush()
        except TimeoutError as exc:  # a client that reads a byte now and then would hold its query forever
            raise ClientDisconnect from exc
