"""A client that takes its response too slowly counts as gone; plain ASGI, as ``middleware``."""

import asyncio
import logging
import math

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

logger = logging.getLogger(__name__)

PART_BYTES = 64 * 1024
"""Given to the server at a time: it keeps for a slow client what it was given, as long as that takes."""
_STALL_S = 10.0
_SLOWEST_BYTES_PER_S = 16 * 1024
_TOO_SLOW = "the client takes its response too slowly"


class ReadingPace:
    """Sends large bodies in parts, and ends the response of a client that does not take one in time.

    Args:
        app: The next app.
        stall_s: Seconds a client has for a part, however small; up to as many pass before it is looked at.
        slowest_bytes_per_s: What it has to take in each second more.
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
            logger.info("A client took its response too slowly.")
        finally:
            watch.end()


class _Watch:
    """One response on its way.

    It looks now and then: a timeout around each message would cost a stream as much as the message.
    """

    def __init__(self, send: Send, stall_s: float, slowest_bytes_per_s: float) -> None:
        self.has_gone = False
        self._send = send
        self._stall_s = stall_s
        self._slowest_bytes_per_s = slowest_bytes_per_s
        self._due = math.inf
        self._sending: asyncio.Task[object] | None = None
        """Not always the request's own task; that one may have more to do than to send."""
        self._loop = asyncio.get_running_loop()
        self._timer = self._loop.call_later(stall_s, self._look)

    async def send(self, message: Message) -> None:
        """Send a message, a large body in parts.

        Raises:
            OSError: The client does not take it.
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
        assert task is not None  # noqa: S101 - whoever awaits is in a task
        cancelled_before = task.cancelling()
        size = len(message.get("body", b""))
        self._due = self._loop.time() + self._stall_s + size / self._slowest_bytes_per_s
        try:
            await self._send(message)
        except asyncio.CancelledError:
            # As asyncio.timeout knows its own cancellation.
            if not self.has_gone or task.uncancel() > cancelled_before:
                raise
            raise OSError(_TOO_SLOW) from None  # as servers say it
        finally:
            self._due = math.inf

    def _look(self) -> None:
        if self._due > self._loop.time():
            self._timer = self._loop.call_later(self._stall_s, self._look)
        elif self._sending is not None:
            self.has_gone = self._sending.cancel()

    def end(self) -> None:
        """Look no more."""
        self._timer.cancel()
