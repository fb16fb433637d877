"""Checks before the body is read: host, origin of the page, size of the body, and credential.

Origins: https://fetch.spec.whatwg.org/#http-cors-protocol
"""

import asyncio
import re
from collections.abc import Collection, Sequence
from typing import Any, Final
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.exceptions import HTTPException
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.api.identity.authenticator import Authenticator, check_credential_headers
from vectorforge.api.identity.route_scopes import PUBLIC_PATHS, required_scope
from vectorforge.api.problems import error_response, http_problem
from vectorforge.api.request_state import RequestState, route_path
from vectorforge.config import ServerSettings
from vectorforge.config.access import ANY_ORIGIN, origins_pattern
from vectorforge.db.tenant_database import KEY_CHECK, KeyCheck
from vectorforge.embedding.cache import CACHE_TENANT
from vectorforge.errors import ConfigurationError, InsufficientScopeError, VectorForgeError
from vectorforge.telemetry import CREDENTIAL
from vectorforge.types import Principal

JSON_BODY_BYTES: Final = 16 * 1024 * 1024
"""Largest body of a route without document uploads: 100 messages of 100,000 characters, and margin."""

_SLOWEST_BYTES_PER_S: Final = 16 * 1024
_TOO_SLOW: Final = "Timed out reading the request body."
_WRONG_HOST: Final = "Host not allowed."
_CROSS_SITE: Final = "Origin not allowed; add it to VECTORFORGE_CORS_ORIGINS."
_METHODS: Final = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_EXPOSED: Final = (
    "X-Request-Id",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "Idempotent-Replayed",
    "Location",
    "WWW-Authenticate",
)
"""Response headers that scripts may read in addition to those of the standard."""
_PREFLIGHT_AGE_S: Final = 7200
"""Seconds for which a browser may reuse a preflight response; Chromium's maximum."""


def cors_options(server: ServerSettings) -> dict[str, Any]:
    """Return the arguments of Starlette's ``CORSMiddleware``; empty without ``VECTORFORGE_CORS_ORIGINS``.

    Any request header is allowed, since SDKs send their own. Only listed origins may send credentials.

    Raises:
        ConfigurationError: All origins are allowed on a server without authentication.
    """
    origins = server.cors_origins
    if not origins:
        return {}
    any_origin = ANY_ORIGIN in origins
    if any_origin and server.auth == "local":
        raise ConfigurationError(
            "VECTORFORGE_CORS_ORIGINS=* needs VECTORFORGE_AUTH=api_key: without a login every web page could "
            "read and change the documents. List the origins of your pages instead."
        )
    return {
        "allow_origins": (ANY_ORIGIN,) if any_origin else (),
        "allow_origin_regex": None if any_origin else origins_pattern(origins),
        "allow_credentials": not any_origin,
        "allow_methods": _METHODS,
        "allow_headers": ("*",),
        "allow_private_network": True,
        "expose_headers": _EXPOSED,
        "max_age": _PREFLIGHT_AGE_S,
    }


class OriginCheck:
    """Detects requests sent by pages of other origins.

    Args:
        allowed: Origins whose pages may send requests, as in ``VECTORFORGE_CORS_ORIGINS``.
    """

    def __init__(self, allowed: Sequence[str]) -> None:
        self._allowed = re.compile(origins_pattern(allowed))

    def is_foreign(self, scope: Scope) -> bool:
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
            return origin != own and self._allowed.fullmatch(origin) is None
        opens_page = (
            scope["method"] == "GET"
            and headers.get("sec-fetch-mode") == "navigate"
            and headers.get("sec-fetch-dest") == "document"
        )
        return site is not None and not opens_page


class LocalGuard:
    """Rejects unknown host names (DNS rebinding) and, in local mode, requests of pages of other origins.

    Args:
        app: The next app.
        allowed_hosts: Host names of this server; empty allows any.
        origins: Check of the pages that send requests; None allows all.
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
        state = RequestState.of(scope)
        host = _host_name(Headers(scope=scope).get("host", ""))
        if self._hosts and "*" not in self._hosts and host not in self._hosts:
            response = http_problem(421, _WRONG_HOST, state=state, code="wrong_host")
        elif self._origins is not None and self._origins.is_foreign(scope):
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


class BodyLimit:
    """Counts the body while it arrives, and stops reading at the limit (413) or when it is too slow (408).

    Args:
        app: The next app.
        max_bytes: Largest body.
        timeout_s: Seconds a body may take, plus one for every 16 KiB.
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
        has_documents = scope["path"].endswith("/documents")
        limit = self._max_bytes if has_documents else min(self._max_bytes, JSON_BODY_BYTES)
        detail = f"The body is larger than {limit} bytes."
        declared = Headers(scope=scope).get("content-length", "")
        if declared.isdecimal() and int(declared[:20]) > limit:
            close = {"Connection": "close"}
            response = http_problem(413, detail, state=RequestState.of(scope), headers=close)
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
                    # FastAPI passes an HTTPException raised while it reads the body to our handler.
                    raise HTTPException(413, detail, headers={"Connection": "close"})
            return message

        await self.app(scope, counting_receive, send)


class Authentication:
    """Authenticates the request and checks its scope before the body is read."""

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
            principal = await self._authenticate(scope)
        except VectorForgeError as exc:
            # Public paths need no credential, and work while the database is unavailable.
            if route_path(scope) not in PUBLIC_PATHS:
                await error_response(RequestState.of(scope), exc)(scope, receive, send)
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

    async def _authenticate(self, scope: Scope) -> Principal:
        headers = Headers(scope=scope)
        check_credential_headers(headers)
        principal = await self._authenticator.authenticate(headers, scope.get("aws.event"))
        RequestState.of(scope).principal = principal
        required = required_scope(scope["method"], route_path(scope))
        if required is not None and not principal.allows(required):
            raise InsufficientScopeError(required=required)
        return principal
