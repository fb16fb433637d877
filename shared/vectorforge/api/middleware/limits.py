"""Time limits of a response: slow clients, Lambda's timeout, and start of the application on demand."""

import asyncio
import logging
import math
from collections.abc import Awaitable, Callable
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.problems import error_response
from vectorforge.api.request_state import RequestState, route_path
from vectorforge.errors import DeadlineExceededError, VectorForgeError

logger = logging.getLogger(__name__)

PART_BYTES = 64 * 1024
"""Bytes of one message to the server, which buffers a whole message for a slow client."""
_STALL_S = 10.0
_SLOWEST_BYTES_PER_S = 16 * 1024
_TOO_SLOW = "the client reads its response too slowly"


class ReadingPace:
    """Sends large bodies in parts, and ends the response if the client does not read a part in time.

    Args:
        app: The next app.
        stall_s: Seconds a client has for a part of any size; detection takes up to as long again.
        slowest_bytes_per_s: Minimum rate at which it must read a larger part.
    """

    def __init__(
        self,
        app: ASGIApp,
        *,
        stall_s: float = _STALL_S,
        slowest_bytes_per_s: float = _SLOWEST_BYTES_PER_S,
    ) -> None:
        self.app = app
        self._stall_s = stall_s
        self._slowest_bytes_per_s = slowest_bytes_per_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        watch = _Watch(send, self._stall_s, self._slowest_bytes_per_s)
        try:
            await self.app(scope, receive, watch.send)
        except (OSError, ClientDisconnect):
            if not watch.has_gone:
                raise
            logger.info("Disconnected a client that read its response too slowly.")
        finally:
            watch.end()


class _Watch:
    """Supervision of one response.

    One timer per response checks progress: ``asyncio.timeout`` around each message would cost a stream as
    much as the message itself.
    """

    def __init__(self, send: Send, stall_s: float, slowest_bytes_per_s: float) -> None:
        self.has_gone = False
        self._send = send
        self._stall_s = stall_s
        self._slowest_bytes_per_s = slowest_bytes_per_s
        self._due = math.inf
        self._sending: asyncio.Task[object] | None = None
        """Task that sends, which is not always the request's own."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(stall_s, self._check)

    async def send(self, message: Message) -> None:
        """Send a message, a large body in parts.

        Raises:
            OSError: The client does not read it.
        """
        if self.has_gone:
            raise OSError(_TOO_SLOW)
        body = message.get("body", b"")
        rest = max(0, (len(body) - 1) // PART_BYTES * PART_BYTES)
        for start in range(0, rest, PART_BYTES):
            part = bytes(body[start : start + PART_BYTES])
            await self._send_part({"type": message["type"], "body": part, "more_body": True})
        await self._send_part({**message, "body": body[rest:]} if rest else message)

    async def _send_part(self, message: Message) -> None:
        self._sending = task = asyncio.current_task()
        assert task is not None  # noqa: S101 - a coroutine runs in a task
        cancelled_before = task.cancelling()
        size = len(message.get("body", b""))
        self._due = self._loop.time() + self._stall_s + size / self._slowest_bytes_per_s
        try:
            await self._send(message)
        except asyncio.CancelledError:
            # Tell this cancellation from others as asyncio.timeout does.
            if not self.has_gone or task.uncancel() > cancelled_before:
                raise
            raise OSError(_TOO_SLOW) from None  # as servers report a disconnect
        finally:
            self._due = math.inf

    def _check(self) -> None:
        if self._due > self._loop.time():
            self._timer = self._loop.call_later(self._stall_s, self._check)
        elif self._sending is not None:
            self.has_gone = self._sending.cancel()

    def end(self) -> None:
        """Stop the supervision."""
        self._timer.cancel()


LAMBDA_MARGIN_S = 2.0
"""Seconds of an invocation that a query reserves for ending its answer and logging it."""

_ERROR_MARGIN_S = 1.0
"""Seconds reserved for the error response."""


def invocation_time_s(scope: Scope) -> float | None:
    """Return the seconds until Lambda stops the process; None elsewhere."""
    context: Any = scope.get("aws.context")  # set by Mangum and by our runtime
    return None if context is None else context.get_remaining_time_in_millis() / 1000


class TimeLimit:
    """Ends a request one second before Lambda's timeout: with 504, or by cutting a response that has started.

    Queries end earlier by their own deadline; this covers everything before a query, such as an unresponsive
    database, and all other routes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        time_s = invocation_time_s(scope) if scope["type"] == "http" else None
        if time_s is None:
            await self.app(scope, receive, send)
            return
        limit = asyncio.timeout(time_s - _ERROR_MARGIN_S)
        has_begun = is_complete = False

        async def limited_send(message: Message) -> None:
            nonlocal has_begun, is_complete
            if limit.expired():
                # Too late: the response is sent below.
                return
            has_begun = True
            await send(message)
            is_complete = message["type"] == "http.response.body" and not message.get("more_body", False)

        failure: Exception | None = None
        try:
            async with limit:
                await self.app(scope, receive, limited_send)
        except Exception as exc:
            if not limit.expired():
                raise
            failure = exc
        if not limit.expired() or is_complete:  # a complete response may leave a background task
            return
        if has_begun:  # its status is sent; the server cuts the connection
            raise DeadlineExceededError from failure
        await error_response(RequestState.of(scope), DeadlineExceededError())(scope, receive, send)


class LazyStartup:
    """Opens the application with the first request, instead of the lifespan on Lambda.

    Args:
        app: The next app.
        open_application: Opens the application; does nothing if it is open.
    """

    def __init__(self, app: ASGIApp, *, open_application: Callable[[], Awaitable[None]]) -> None:
        self.app = app
        self._open_application = open_application
        self._opening = asyncio.Lock()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; 503 while the database cannot be reached."""
        if scope["type"] == "http":
            try:
                async with self._opening:
                    await self._open_application()
            except VectorForgeError as exc:
                if route_path(scope) != "/health":  # which reports the same in more detail
                    await error_response(RequestState.of(scope), exc)(scope, receive, send)
                    return
        await self.app(scope, receive, send)
