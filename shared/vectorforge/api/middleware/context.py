"""Request state, headers, error responses, access log, metrics, time limit, and start on demand.

The RateLimit header fields follow IETF's HTTPAPI working group
(https://datatracker.ietf.org/doc/html/draft-ietf-httpapi-ratelimit-headers-10): ``q`` is a quota, ``w`` its
window, ``r`` the remainder and ``t`` the time until more is available, in seconds.
"""

import asyncio
import logging
import math
import time
from collections.abc import Awaitable, Callable, Sequence
from typing import Final

from starlette.datastructures import Headers
from starlette.requests import ClientDisconnect
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.middleware.guards import JSON_BODY_BYTES, declared_bytes, discard
from vectorforge.api.problems import error_response, route_not_found
from vectorforge.api.request_state import (
    PUBLIC_PATHS,
    RequestState,
    escape_collection,
    invocation_time_s,
    required_scope,
    route_path,
)
from vectorforge.api.routers import Routers
from vectorforge.errors import DeadlineExceededError, VectorForgeError
from vectorforge.limits.settings import LimitState
from vectorforge.telemetry import REQUEST_ID, TRACE_PARENT, MetricsCollector

logger = logging.getLogger(__name__)

_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_CLIENT_GONE: Final = 499  # nginx's number for a disconnect before the response
_HEADERS: Final = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
"""Headers of every response; no route sets them itself."""
_MINUTE_S, _DAY_S = 60, 86_400
_LINGERING_BYTES: Final = 2 * JSON_BODY_BYTES
"""Largest body that is read after the rejection of a client without a key, so that it can read the reason."""
_ERROR_MARGIN_S = 1.0
"""Seconds reserved for the error response."""


class RequestMetrics:
    """Measures every request from its first byte to the last byte of its response.

    Tags hold the route's template and never the path, which callers choose. A streamed answer that fails
    after its first byte has status 200 here; ``pipeline.query.errors`` counts it. Requests rejected before a
    route matches count as route "unmatched".
    """

    def __init__(self, app: ASGIApp, *, metrics: MetricsCollector) -> None:
        self.app = app
        self._metrics = metrics

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        started = time.perf_counter()
        status = _CLIENT_GONE
        failed = True

        async def watching_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watching_send)
            failed = False
        except Exception:
            status = 500 if status == _CLIENT_GONE else status
            raise
        finally:
            self._record(scope, status, (time.perf_counter() - started) * 1000, failed=failed)

    def _record(self, scope: Scope, status: int, duration_ms: float, *, failed: bool) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        place = {"route": _route_of(scope), "method": method}
        self._metrics.increment("http.requests", tags={**place, "status": str(status)})
        if failed or status >= 400:
            self._metrics.increment("http.errors", tags={**place, "status": str(status)})
        self._metrics.observe("http.request.duration_ms", duration_ms, place)


class RequestContext:
    """Creates the request state, adds the headers of every response, and turns errors into responses."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        escape_collection(scope)
        state = RequestState.begin(scope)
        token = REQUEST_ID.set(state.request_id)
        parent_token = TRACE_PARENT.set(Headers(scope=scope).get("traceparent"))
        try:
            await self._respond(state, scope, receive, send)
        finally:
            if (admission := state.admission) is not None:
                await admission.end()  # settles whatever the request left unsettled
            log_access(scope)
            REQUEST_ID.reset(token)
            TRACE_PARENT.reset(parent_token)

    async def _respond(self, state: RequestState, scope: Scope, receive: Receive, send: Send) -> None:
        declared = declared_bytes(scope)
        may_linger = JSON_BODY_BYTES < declared <= _LINGERING_BYTES and "expect" not in Headers(scope=scope)

        async def send_with_headers(message: Message) -> None:
            if message["type"] == "http.response.start":
                state.status = message["status"]
                headers = message["headers"] = [*message.get("headers", ()), *_HEADERS]
                headers.append((b"x-request-id", state.request_id.encode("latin-1")))
                names = [name for name, _ in headers]
                if b"cache-control" not in names:
                    headers.append((b"cache-control", b"no-store"))
                if state.status >= 400 and b"connection" not in names and declared > JSON_BODY_BYTES:
                    headers.append((b"connection", b"close"))  # else the server would read all of the body
                admission = state.admission
                if admission is not None and admission.state is not None:
                    headers.extend(limit_headers(admission.state))
            elif may_linger and state.principal is None and not message.get("more_body"):
                await send({**message, "more_body": True})
                await discard(receive)
                message = {"type": "http.response.body"}
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return  # no client to respond to
        except Exception as exc:
            if state.status is not None:
                raise  # the server cuts the connection, so a partial response is not mistaken for a whole one
            await error_response(state, exc)(scope, receive, send_with_headers)


def log_access(scope: Scope) -> None:
    """Log the credential, route and status of a request at INFO, if it was authenticated.

    The line holds the route's template instead of the path, and the credential's name. Its query id is that
    of the query log, if the request was a query.
    """
    state = RequestState.of(scope)
    principal = state.principal
    if principal is None or not logger.isEnabledFor(logging.INFO):
        return
    logger.info(
        "%s %s: %s in %.0f ms, by %s of %r",
        scope["method"],
        _route_of(scope),
        state.status or "no answer",
        (time.monotonic() - state.arrived_at) * 1000,
        principal.credential,
        principal.tenant,
        extra={"credential": principal.credential, "query_id": str(state.query_id)},
    )


def limit_headers(state: LimitState) -> list[tuple[bytes, bytes]]:
    """Return the RateLimit header fields; empty if only cost and streams, without a window, are limited."""
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


def _route_of(scope: Scope) -> str:
    template: str = getattr(scope.get("route"), "path", "unmatched")
    return template


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
            if limit.expired():  # too late: the response is sent below
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
    """Opens the application with the first request, instead of the lifespan on Lambda."""

    def __init__(self, app: ASGIApp, *, open_application: Callable[[], Awaitable[None]]) -> None:
        self.app = app
        self._open_application = open_application

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request; 503 while the database cannot be reached."""
        if scope["type"] == "http":
            try:
                await self._open_application()
            except VectorForgeError as exc:
                if route_path(scope) != "/health":  # which reports the same in more detail
                    await error_response(RequestState.of(scope), exc)(scope, receive, send)
                    return
        await self.app(scope, receive, send)


class RoutersOnDemand:
    """Includes routers for authenticated requests, as the innermost ASGI middleware.

    A function that answers queries starts with 0.10 s of CPU for its router instead of 0.97 s for all.
    """

    def __init__(self, app: ASGIApp, *, routers: Routers) -> None:
        self.app = app
        self._routers = routers

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            path = route_path(scope)
            if path not in self._routers.seen_paths:
                self._routers.include_for(path)
        await self.app(scope, receive, send)


class ScopeGuard:
    """Rejects (404) requests to routes that ``request_state.ROUTES`` does not declare.

    The two match paths in their own ways, and a difference would be a route that needs no scope.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self.app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            path = route_path(scope)
            is_declared = path in PUBLIC_PATHS or required_scope(scope["method"], path) is not None
            if not is_declared and any(route.matches(scope)[0] is Match.FULL for route in self._routes):
                await route_not_found(scope)(scope, receive, send)
                return
        await self.app(scope, receive, send)
