"""Guards against clients: host, origin of the page, size of the body, and slow readers.

Origins: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import asyncio
import logging
import math
import re
from collections.abc import Collection, Mapping, Sequence
from contextlib import suppress
from functools import partial
from typing import Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import ClientDisconnect
from starlette.responses import Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.problems import http_problem
from vectorforge.api.request_state import RequestState
from vectorforge.config.access import origins_pattern

logger = logging.getLogger(__name__)

JSON_BODY_BYTES: Final = 16 * 1024 * 1024
"""Largest body of a route without document uploads: 100 messages of 100,000 characters, and margin."""

_SLOWEST_BYTES_PER_S: Final = 16 * 1024
PART_BYTES: Final = 64 * 1024
"""Bytes of one message to the server, which buffers a whole message for a slow client."""
_STALL_S: Final = 10.0
_DISCARDED_BYTES: Final = 128 * 1024 * 1024
_READS_TOO_SLOWLY: Final = "the client reads its response too slowly"
_CROSS_SITE: Final = "Origin not allowed; add it to VECTORFORGE_CORS_ORIGINS."


def is_foreign(scope: Scope, allowed: re.Pattern[str]) -> bool:
    """Return True if a page of a disallowed origin sent this, except to open a page of this server.

    Another port of the same host is another origin, although browsers call it the same site.
    https://developer.mozilla.org/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
    """
    headers = Headers(scope=scope)
    site = headers.get("sec-fetch-site")
    if site in ("same-origin", "none"):
        return False
    if (origin := headers.get("origin")) is not None:
        own = f"{scope['scheme']}://{headers.get('host', '')}".lower()
        return origin != own and allowed.fullmatch(origin) is None
    opens_page = (
        scope["method"] == "GET"
        and headers.get("sec-fetch-mode") == "navigate"
        and headers.get("sec-fetch-dest") == "document"
    )
    return site is not None and not opens_page


class CrossOrigin(CORSMiddleware):
    """CORS, with problem documents for rejected preflights."""

    def preflight_response(self, request_headers: Headers) -> Response:
        """Return the response to a preflight."""
        response = super().preflight_response(request_headers)
        if response.status_code < 400:
            return response
        headers = {name: value for name, value in response.headers.items() if not name.startswith("content-")}
        if not self.is_allowed_origin(request_headers["origin"]):
            return _RejectedPreflight(403, _CROSS_SITE, "cross_site", headers)
        supported = f"Method not supported across origins; supported: {', '.join(self.allow_methods)}."
        return _RejectedPreflight(405, supported, None, headers)


class _RejectedPreflight(Response):
    """Rejection of a request that has no state, since it does not reach ``RequestContext``."""

    def __init__(self, status: int, detail: str, code: str | None, headers: Mapping[str, str]) -> None:
        super().__init__(status_code=status, headers=headers)
        self._problem = partial(http_problem, status, detail, code=code)
        self._cors_headers = headers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send the problem document."""
        state = RequestState.begin(scope)
        headers = {**self._cors_headers, "X-Request-Id": state.request_id}
        await self._problem(state=state, headers=headers)(scope, receive, send)


class LocalGuard:
    """Rejects unknown host names (DNS rebinding) and, in local mode, requests of pages of other origins.

    Empty ``allowed_hosts`` allow any host. ``origins`` are those whose pages may send requests, as in
    ``VECTORFORGE_CORS_ORIGINS``; None allows any page.
    """

    def __init__(
        self, app: ASGIApp, *, allowed_hosts: Collection[str], origins: Sequence[str] | None
    ) -> None:
        self.app = app
        self._hosts = {host.lower() for host in allowed_hosts}
        self._allowed = None if origins is None else re.compile(origins_pattern(origins))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = RequestState.of(scope)
        host = _host_name(Headers(scope=scope).get("host", ""))
        if self._hosts and "*" not in self._hosts and host not in self._hosts:
            response = http_problem(421, "Host not allowed.", state=state, code="wrong_host")
        elif self._allowed is not None and is_foreign(scope, self._allowed):
            response = http_problem(403, _CROSS_SITE, state=state, code="cross_site")
        else:
            await self.app(scope, receive, send)
            return
        await response(scope, receive, send)


def _host_name(host: str) -> str:
    """Return the name without the port, in lower case; IPv6 addresses without brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


def declared_bytes(scope: Scope) -> int:
    """Return the size of the body that the request declares; 0 if none."""
    declared = Headers(scope=scope).get("content-length", "")
    return int(declared[:20]) if declared.isdecimal() else 0


async def discard(receive: Receive) -> None:
    """Read a body, since clients that send it whole before they read would see a reset connection instead."""
    with suppress(TimeoutError):
        async with asyncio.timeout(_STALL_S):
            while (await receive()).get("more_body"):
                pass


class BodyLimit:
    """Counts the body while it arrives, and stops reading at the limit (413) or when it is too slow (408).

    A body may take ``timeout_s`` seconds, plus one for every 16 KiB. What is over the limit is discarded for
    authenticated clients; ``RequestContext`` reads less for others.
    """

    def __init__(self, app: ASGIApp, *, max_bytes: int, timeout_s: float) -> None:
        self.app = app
        self._max_bytes = max_bytes
        self._timeout_s = timeout_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        has_documents = scope["path"].endswith(("/documents", "/v1/files"))
        limit = self._max_bytes if has_documents else min(self._max_bytes, JSON_BODY_BYTES)
        detail = f"The body is larger than {limit} bytes."
        if (declared := declared_bytes(scope)) > limit:
            state = RequestState.of(scope)
            waits = "expect" in Headers(scope=scope)
            if state.principal is not None and declared <= _DISCARDED_BYTES and not waits:
                await discard(receive)
            response = http_problem(413, detail, state=state, headers={"Connection": "close"})
            await response(scope, receive, send)
            return
        received, complete = 0, False
        started = asyncio.get_running_loop().time()

        async def counting_receive() -> Message:
            nonlocal received, complete
            if complete:
                return await receive()
            give_up_at = started + self._timeout_s + received / _SLOWEST_BYTES_PER_S
            try:
                async with asyncio.timeout_at(give_up_at):
                    message = await receive()
            except TimeoutError:
                too_slow = "Timed out reading the request body."
                raise HTTPException(408, too_slow, headers={"Connection": "close"}) from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > limit:
                    # FastAPI passes an HTTPException raised while it reads the body to our handler.
                    raise HTTPException(413, detail, headers={"Connection": "close"})
            return message

        await self.app(scope, counting_receive, send)


class ReadingPace:
    """Sends large bodies in parts, and ends the response if the client does not read a part in time.

    Args:
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
            raise OSError(_READS_TOO_SLOWLY)
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
            raise OSError(_READS_TOO_SLOWLY) from None  # as servers report a disconnect
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
