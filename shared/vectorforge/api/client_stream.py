"""One client's stream of server-sent events: what is sent to it, and the pings in between."""

import asyncio
import time
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from fastapi.sse import KEEPALIVE_COMMENT
from starlette.requests import ClientDisconnect
from starlette.types import Send

PING_INTERVAL_S = 15.0
"""Silence after which a comment is sent, as the specification of server-sent events suggests."""

STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Of every event stream; the second one keeps nginx from collecting it."""


class ClientStream:
    """The body of one response; as a context manager between its headers and its end.

    Args:
        send: Of the ASGI connection.
        headers: Of the response.
        ping_interval_s: Seconds of silence between keep-alive comments.
    """

    def __init__(self, send: Send, headers: Sequence[tuple[bytes, bytes]], *, ping_interval_s: float) -> None:
        self.has_gone = False
        """Set by whoever learns it: nothing is sent any more."""
        self._asgi_send = send
        self._headers = headers
        self._ping_interval_s = ping_interval_s
        self._last_sent = time.monotonic()
        self._pings: asyncio.Task[None] | None = None

    async def __aenter__(self) -> Self:
        await self._send_message("http.response.start", status=200, headers=self._headers)
        self._last_sent = time.monotonic()
        self._pings = asyncio.create_task(self._send_pings())
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._pings is not None:
            await end(self._pings)
        if exc is None and not self.has_gone:
            await self._send_message("http.response.body", body=b"", more_body=False)

    async def send(self, data: bytes) -> None:
        """Send events; nothing when there are none, or nobody.

        Raises:
            ClientDisconnect: The client has gone.
        """
        if not data or self.has_gone:
            return
        await self._send_message("http.response.body", body=data, more_body=True)
        self._last_sent = time.monotonic()

    async def _send_message(self, kind: str, **fields: Any) -> None:
        try:
            await self._asgi_send({"type": kind, **fields})
        except OSError as exc:  # how servers say from ASGI 2.4 on that the client has gone
            raise ClientDisconnect from exc

    async def _send_pings(self) -> None:
        """Fill silences; an ASGI server queues concurrent sends whole."""
        while True:
            silent_s = time.monotonic() - self._last_sent
            if silent_s >= self._ping_interval_s:
                await self.send(KEEPALIVE_COMMENT)
                self._last_sent = time.monotonic()
                silent_s = 0.0
            await asyncio.sleep(self._ping_interval_s - silent_s)


async def end(task: asyncio.Task[None]) -> None:
    """Cancel a task and wait for it; what it makes of a client that has gone does not matter."""
    task.cancel()
    with suppress(asyncio.CancelledError, ClientDisconnect):
        await task
