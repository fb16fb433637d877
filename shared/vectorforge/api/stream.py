"""The response that sends a query's events while they come in.

FastAPI's own server-sent events belong to routes that do nothing else; these serve the same path as the JSON
answer, so the response is made by hand with FastAPI's encoder: same headers, same pings, and the query is
closed the moment the client goes.
"""

import asyncio
import logging
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import suppress
from typing import Protocol

from fastapi.sse import KEEPALIVE_COMMENT, EventSourceResponse
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Scope, Send

from vectorforge.api.disconnect import cancelled_on_disconnect
from vectorforge.errors import VectorForgeError
from vectorforge.failure_log import log_unexpected
from vectorforge.pipeline.types import DoneEvent, ErrorEvent, QueryEvent, SourcesEvent, TokenEvent

logger = logging.getLogger(__name__)

PING_INTERVAL_S = 15.0
"""Silence after which a comment is sent, as the specification of server-sent events suggests."""


class QueryEventEncoder(Protocol):
    """Makes one door's wire format of a query's events; one for each stream."""

    @property
    def request_id(self) -> str:
        """Names the request in our logs."""

    @property
    def headers(self) -> Mapping[str, str]:
        """Headers of the response beside those of every event stream."""

    def encode(self, event: QueryEvent) -> bytes:
        """The event as it goes over the wire: whole server-sent events, none where the format has none.

        ``DoneEvent`` and ``ErrorEvent`` are the last ones, and end what the format wants ended.
        """

    def encode_failure(self, error: Exception, partial_answer: str) -> bytes:
        """The end of a stream that an unforeseen exception broke off; its text stays here."""


class OpenedQuery:
    """A query whose search has been done and whose answer has not begun.

    Args:
        first: The events up to ``SourcesEvent``.
        rest: Yields the others; closing it aborts the query.
    """

    def __init__(self, first: Sequence[QueryEvent], rest: AsyncGenerator[QueryEvent, None]) -> None:
        self.first = first
        self.rest = rest

    @classmethod
    async def open(cls, events: AsyncGenerator[QueryEvent, None]) -> "OpenedQuery":
        """Wait for the search, so that whatever fails until then still gets its own HTTP status.

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
        encoder: Makes bytes of events.
        ping_interval_s: Seconds of silence between keep-alive comments.
    """

    def __init__(
        self, query: OpenedQuery, encoder: QueryEventEncoder, *, ping_interval_s: float = PING_INTERVAL_S
    ) -> None:
        super().__init__(
            (), headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no", **encoder.headers}
        )
        self._query = query
        self._encoder = encoder
        self._ping_interval_s = ping_interval_s
        self._last_sent = time.monotonic()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the events; return when all are sent or the client has gone."""
        pings: asyncio.Task[None] | None = None
        try:
            with suppress(ClientDisconnect):
                async with cancelled_on_disconnect(receive):
                    await send({"type": "http.response.start", "status": 200, "headers": self.raw_headers})
                    self._last_sent = time.monotonic()
                    pings = asyncio.create_task(self._send_pings(send))
                    await self._send_events(send)
                    await _stop(pings)
                    await send({"type": "http.response.body", "body": b"", "more_body": False})
        finally:
            await _stop(pings)
            await self._query.rest.aclose()

    async def _send_events(self, send: Send) -> None:
        answer: list[str] = []
        try:
            for event in self._query.first:
                await self._send(send, self._encoder.encode(event))
            async for event in self._query.rest:
                await self._send(send, self._encoder.encode(event))
                if isinstance(event, TokenEvent):
                    answer.append(event.text)
                elif isinstance(event, DoneEvent | ErrorEvent):
                    return
            error: Exception = VectorForgeError("The answer broke off.")
        except ClientDisconnect:
            raise
        except Exception as exc:  # noqa: BLE001 - after the first byte every failure becomes the one error event
            error = exc
        log_unexpected(logger, f"Request {self._encoder.request_id} failed", error)
        await self._send(send, self._encoder.encode_failure(error, "".join(answer)))

    async def _send(self, send: Send, data: bytes) -> None:
        if not data:  # the door's format has no such event
            return
        try:
            await send({"type": "http.response.body", "body": data, "more_body": True})
        except OSError as exc:  # how servers say from ASGI 2.4 on that the client has gone
            raise ClientDisconnect from exc
        self._last_sent = time.monotonic()

    async def _send_pings(self, send: Send) -> None:
        """Fill silences; an ASGI server queues concurrent sends whole."""
        while True:
            silent_s = time.monotonic() - self._last_sent
            if silent_s >= self._ping_interval_s:
                await self._send(send, KEEPALIVE_COMMENT)
                silent_s = 0.0
            await asyncio.sleep(self._ping_interval_s - silent_s)


async def _stop(task: asyncio.Task[None] | None) -> None:
    if task is not None:
        task.cancel()
        with suppress(asyncio.CancelledError, ClientDisconnect):
            await task
