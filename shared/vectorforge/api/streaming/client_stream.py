"""One client's stream of server-sent events, with pings; a disconnect cancels its work."""

import asyncio
from collections.abc import Sequence
from contextlib import suppress
from types import TracebackType
from typing import Any, Self

from fastapi.sse import KEEPALIVE_COMMENT
from starlette.requests import ClientDisconnect
from starlette.types import Receive, Send

_UNWATCHED_S = 0.05
"""Seconds before a task starts to watch for the disconnect; faster answers need none."""


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

    __slots__ = ("_gone", "_host", "_listener", "_receive", "_timer")

    def __init__(self, receive: Receive) -> None:
        self._receive = receive
        self._gone = False
        self._listener: asyncio.Task[None] | None = None

    async def __aenter__(self) -> None:
        host = asyncio.current_task()
        if host is None:
            raise RuntimeError("needs a running task")
        self._host = host
        self._timer = asyncio.get_running_loop().call_later(_UNWATCHED_S, self._start)

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
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


PING_INTERVAL_S = 15.0
"""Silence after which a comment is sent, as the specification of server-sent events suggests."""

STREAM_HEADERS = {"Cache-Control": "no-cache", "X-Accel-Buffering": "no"}
"""Headers of every event stream; the second one disables buffering in nginx."""


_MOST_WAITING_BYTES = 16 * 1024
"""Limit above which the sender waits for the client; servers buffer 64 KiB more."""


class ClientStream:
    """The body of one response; as a context manager between its headers and its end.

    Events put without a pause are sent as one message: a message for each token would cost the server and the
    operating system more than everything else about a token.

    Args:
        send: ``send`` of the ASGI connection.
        headers: Headers of the response.
        ping_interval_s: Seconds of silence between keep-alive comments.
    """

    def __init__(self, send: Send, headers: Sequence[tuple[bytes, bytes]], *, ping_interval_s: float) -> None:
        self.has_gone = False
        """True after a disconnect; nothing more is sent."""
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

    async def __aexit__(
        self, kind: type[BaseException] | None, exc: BaseException | None, trace: TracebackType | None
    ) -> None:
        assert self._writing is not None  # noqa: S101 - entered
        if exc is not None or self.has_gone:
            await end(self._writing)
            return
        async with self._turn:  # after a send in progress
            await end(self._writing)
            await self._send_message("http.response.body", body=bytes(self._waiting), more_body=False)

    async def send(self, data: bytes, *, at_once: bool = False) -> None:
        """Send events, if there are any and the client is connected.

        Args:
            data: Whole events.
            at_once: Return after the connection has accepted them.

        Raises:
            ClientDisconnect: The client disconnected.
        """
        if self.put(data, last=at_once):
            await self.flush()

    def put(self, data: bytes, *, last: bool = False) -> bool:
        """Queue events; returns True if the sender must ``flush`` before the next ones.

        Args:
            data: Whole events.
            last: True for the final events, which must be flushed.

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
                self._waiting += KEEPALIVE_COMMENT
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
