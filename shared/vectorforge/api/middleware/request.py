"""What stands before the routes, as plain ASGI: ``BaseHTTPMiddleware`` queues every chunk once more.

From the outside in: ``RequestMetrics`` (in ``request_metrics``), where other origins are allowed Starlette's
``CORSMiddleware`` (``cross_origin``), ``RequestContext`` (request id, headers, last resort for errors),
``ReadingPace`` (in ``reading_pace``), on Lambda ``TimeLimit`` (in ``time_limit``), ``LocalGuard`` (hosts,
pages of other origins), ``BodyLimit``, ``Authentication`` and, on Lambda, ``LazyStartup``.
"""

import asyncio
import re
import time
from collections.abc import Awaitable, Callable, Collection
from urllib.parse import urlsplit
from uuid import uuid4

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.requests import ClientDisconnect
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.identity.authenticator import Authenticator, check_credential_headers
from vectorforge.api.identity.route_scopes import PUBLIC_PATHS, required_scope
from vectorforge.api.middleware.cross_origin import OriginCheck
from vectorforge.api.middleware.limits import limit_headers
from vectorforge.api.middleware.observability import log_access
from vectorforge.api.openai.errors import is_openai_path
from vectorforge.api.problems import error_response, http_problem
from vectorforge.db.tenant_database import KEY_CHECK, KeyCheck
from vectorforge.embedding.cache import CACHE_TENANT
from vectorforge.errors import InsufficientScopeError, VectorForgeError
from vectorforge.telemetry import CREDENTIAL, REQUEST_ID
from vectorforge.types import Principal

JSON_BODY_BYTES = 16 * 1024 * 1024
"""Largest body of a route that takes no documents: 100 messages of 100,000 characters, and some."""

_HEADERS = ((b"x-content-type-options", b"nosniff"), (b"referrer-policy", b"no-referrer"))
"""Of every response; no route sets them itself."""
_SLOWEST_BYTES_PER_S = 16 * 1024
_TOO_SLOW = "The body did not come in in time."
_SANE_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,127}")


class RequestContext:
    """Gives the request its id, the response its security headers, and every last error an answer."""

    def __init__(self, app: ASGIApp) -> None:
        self.app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope.setdefault("state", {})
        state["query_id"] = uuid4()
        state["arrived"] = time.monotonic()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _SANE_REQUEST_ID.fullmatch(given) else str(state["query_id"])
        state["request_id"] = request_id
        if is_openai_path(_route_path(scope)):
            state["error_shape"] = "openai"
        token = REQUEST_ID.set(request_id)
        try:
            await self._answer(scope, receive, send)
        finally:
            if (admission := state.get("admission")) is not None:
                await admission.end()  # what the request did not come to settle itself
            log_access(scope)
            REQUEST_ID.reset(token)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        state = scope["state"]
        request_id = state["request_id"]
        started = False

        async def send_with_headers(message: Message) -> None:
            nonlocal started
            if message["type"] == "http.response.start":
                started = True
                state["status"] = message["status"]
                headers = message["headers"] = [*message.get("headers", ()), *_HEADERS]
                headers.append((b"x-request-id", request_id.encode("latin-1")))
                if b"cache-control" not in [name for name, _ in headers]:
                    headers.append((b"cache-control", b"no-store"))
                admission = state.get("admission")
                if admission is not None and admission.state is not None:
                    headers.extend(limit_headers(admission.state))
            await send(message)

        try:
            await self.app(scope, receive, send_with_headers)
        except ClientDisconnect:
            return  # nobody is there to answer
        except Exception as exc:
            if started:
                raise  # the server cuts the connection, so nobody takes half an answer for a whole one
            await error_response(state, exc)(scope, receive, send_with_headers)


class LocalGuard:
    """Refuses unknown host names (DNS rebinding) and, in local mode, what pages of other origins send.

    Args:
        app: The next app.
        allowed_hosts: Host names of this server; empty means any.
        origins: Check of the pages that send requests; None admits all.
    """

    def __init__(self, app: ASGIApp, *, allowed_hosts: Collection[str], origins: OriginCheck | None) -> None:
        self.app = app
        self._hosts = {host.lower() for host in allowed_hosts}
        self._origins = origins

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        state = scope["state"]
        host = _host_name(Headers(scope=scope).get("host", ""))
        if self._hosts and "*" not in self._hosts and host not in self._hosts:
            detail = "This server does not answer to this host name."
            response = http_problem(421, detail, scope_state=state, code="wrong_host")
        elif self._origins is not None and self._origins.is_foreign(scope):
            detail = (
                "Requests from pages of other origins are refused; allow yours in VECTORFORGE_CORS_ORIGINS."
            )
            response = http_problem(403, detail, scope_state=state, code="cross_site")
        else:
            await self.app(scope, receive, send)
            return
        await response(scope, receive, send)


def _route_path(scope: Scope) -> str:
    """The path without where the app is mounted, as the router takes it."""
    path: str = scope["path"]
    root_path: str = scope.get("root_path", "")
    inside = path.removeprefix(root_path)
    return inside if not inside or inside.startswith("/") else path


def _host_name(host: str) -> str:
    """Without the port, in lower case; IPv6 addresses without brackets."""
    try:
        return urlsplit(f"//{host}").hostname or ""
    except ValueError:
        return ""


class BodyLimit:
    """Counts the body while it comes in, and stops reading at the limit (413) or when it is too slow (408).

    Args:
        app: The next app.
        max_bytes: Largest body.
        timeout_s: Seconds a body may take; it earns one more with every 16 KiB.
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
        takes_documents = scope["path"].endswith("/documents")
        limit = self._max_bytes if takes_documents else min(self._max_bytes, JSON_BODY_BYTES)
        detail = f"The body is larger than {limit} bytes."
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            response = http_problem(413, detail, scope_state=scope["state"], headers={"Connection": "close"})
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
                raise HTTPException(408, _TOO_SLOW, headers={"Connection": "close"}) from None
            if message["type"] == "http.request":
                received += len(message.get("body", b""))
                complete = not message.get("more_body", False)
                if received > limit:
                    # FastAPI hands an HTTPException raised while it reads the body to our handler.
                    raise HTTPException(413, detail, headers={"Connection": "close"})
            return message

        await self.app(scope, counting_receive, send)


class Authentication:
    """Finds who is asking, and whether they may, before a byte of the body is read."""

    def __init__(self, app: ASGIApp, *, authenticator: Authenticator) -> None:
        self.app = app
        self._authenticator = authenticator

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] != "http":
            await self.app(scope, receive, send)
            return
        principal = None
        try:
            principal = await self._admit(scope)
        except VectorForgeError as exc:
            # What is public needs no credential, and answers while there is no database.
            if _route_path(scope) not in PUBLIC_PATHS:
                await error_response(scope["state"], exc)(scope, receive, send)
                return
        remembered = principal.remembered_keys if principal is not None else None
        check = KEY_CHECK.set(KeyCheck(remembered, self._authenticator.forget) if remembered else None)
        credential = CREDENTIAL.set(principal.credential if principal is not None else None)
        tenant = CACHE_TENANT.set(principal.tenant if principal is not None else "")
        try:
            await self.app(scope, receive, send)
        finally:
            CACHE_TENANT.reset(tenant)
            CREDENTIAL.reset(credential)
            KEY_CHECK.reset(check)

    async def _admit(self, scope: Scope) -> Principal:
        headers = Headers(scope=scope)
        check_credential_headers(headers)
        principal = await self._authenticator.authenticate(headers, scope.get("aws.event"))
        state = scope["state"]
        state["principal"], state["tenant_id"] = principal, principal.tenant
        required = required_scope(scope["method"], _route_path(scope))
        if required is not None and not principal.allows(required):
            raise InsufficientScopeError(required=required)
        return principal


class LazyStartup:
    """Opens the application when the first request comes; stands in for the lifespan on Lambda.

    Args:
        app: The next app.
        open_application: Does nothing when it is open.
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
                if _route_path(scope) != "/health":  # which says the same in more detail
                    await error_response(scope["state"], exc)(scope, receive, send)
                    return
        await self.app(scope, receive, send)
