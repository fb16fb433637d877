"""What a response says of the tenant's limits: the RateLimit fields of IETF's HTTPAPI working group.

https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10: ``q`` is a quota, ``w`` its
window, ``r`` what is left, ``t`` when there is more; seconds.

A client that takes its response too slowly counts as gone; plain ASGI, as ``middleware``.

The time that an invocation has on Lambda, and an answer before it is over.
"""

import asyncio
import logging
import math
from typing import Any

from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.problems import error_response
from vectorforge.errors import DeadlineExceededError
from vectorforge.limits.settings import LimitState

_MINUTE_S, _DAY_S = 60, 86_400


def limit_headers(state: LimitState) -> list[tuple[bytes, bytes]]:
    """Header fields as in ASGI; none where nothing but cost and streams is limited, which have no window."""
    policies, left = [], []
    limits = state.limits
    if limits.requests_per_minute is not None:
        policies.append(f'"requests";q={limits.requests_per_minute};w={_MINUTE_S}')
        left.append(_service_limit("requests", state.requests_left, state.minute_reset_s))
    if limits.tokens_per_day is not None:
        policies.append(f'"tokens";q={limits.tokens_per_day};w={_DAY_S}')
        left.append(_service_limit("tokens", state.tokens_left, state.day_reset_s))
    if not policies:
        return []
    return [
        (b"ratelimit-policy", ", ".join(policies).encode()),
        (b"ratelimit", ", ".join(left).encode()),
    ]


def _service_limit(name: str, left: int | None, reset_s: float | None) -> str:
    more = "" if reset_s is None else f";t={max(1, math.ceil(reset_s))}"
    return f'"{name}";r={left or 0}{more}'


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


LAMBDA_MARGIN_S = 2.0
"""Kept back of an invocation's time by a query, to end its answer in good order and to log it."""

_LAST_WORD_S = 1.0
"""Kept back for the answer that there is no answer."""


def invocation_time_s(scope: Scope) -> float | None:
    """Seconds until Lambda stops the process; None elsewhere."""
    context: Any = scope.get("aws.context")  # set by Mangum and by our runtime
    return None if context is None else context.get_remaining_time_in_millis() / 1000


class TimeLimit:
    """Ends what is not answered a second before Lambda's timeout: with 504, or cut off if it has begun.

    Queries end by themselves before that; this is for what comes before them, such as a database that does
    not answer, and for all other routes.
    """

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        time_s = invocation_time_s(scope) if scope["type"] == "http" else None
        if time_s is None:
            await self.app(scope, receive, send)
            return
        limit = asyncio.timeout(time_s - _LAST_WORD_S)
        has_begun = is_complete = False

        async def limited_send(message: Message) -> None:
            nonlocal has_begun, is_complete
            if limit.expired():
                # What the app makes of its cancellation comes too late: the answer is given below.
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
        if not limit.expired() or is_complete:  # what a whole answer leaves at work is a background task
            return
        if has_begun:  # its status has left; whoever serves it cuts it off
            raise DeadlineExceededError from failure
        await error_response(scope["state"], DeadlineExceededError())(scope, receive, send)
