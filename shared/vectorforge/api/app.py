"""``create_app``: the one ASGI app that uvicorn, Lambda's runtime and the tests serve.

The app of a function without an embedding provider: `/health` answers, every other route is 503.
"""

from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request

from vectorforge import __version__
from vectorforge.api.identity.authenticator import Authentication, Authenticator
from vectorforge.api.identity.front_doors import StoredGatewayKeys
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.api.middleware.context import (
    LazyStartup,
    RequestContext,
    RequestMetrics,
    RoutersOnDemand,
    ScopeGuard,
    TimeLimit,
)
from vectorforge.api.middleware.guards import BodyLimit, CrossOrigin, LocalGuard, ReadingPace
from vectorforge.api.problems import install_problem_handlers
from vectorforge.api.routers import Routers
from vectorforge.config import ServerSettings
from vectorforge.config.access import ANY_ORIGIN, origins_pattern
from vectorforge.db.repositories.api_key_repo import ActiveApiKey, find_api_key
from vectorforge.errors import ConfigurationError, NotConfiguredError

if TYPE_CHECKING:
    from vectorforge.bootstrap import Application

_CORS_METHODS = ("GET", "HEAD", "POST", "PUT", "PATCH", "DELETE")
_EXPOSED_HEADERS = (
    "X-Request-Id",
    "Retry-After",
    "RateLimit",
    "RateLimit-Policy",
    "Idempotent-Replayed",
    "Location",
    "Accept-Ranges",
    "Content-Range",
    "WWW-Authenticate",
)
"""Response headers that scripts may read in addition to those of the standard."""
_PREFLIGHT_AGE_S = 7200
"""Seconds for which a browser may reuse a preflight response; Chromium's maximum."""


def create_app(application: "Application", *, open_on_demand: bool = False) -> FastAPI:
    """Create the HTTP API of an application.

    The app's lifespan opens the application and runs its ingestion worker, unless a separate function
    ingests documents. On Lambda the first request opens it, since a snapshot must hold no connection.

    Args:
        application: The application behind the API, with the settings of authentication, hosts and limits.
        open_on_demand: For Lambda: each request opens the application if necessary, and ends within the
            invocation's time; the lifespan only closes.

    Raises:
        ConfigurationError: The API keys or the origins in the settings are invalid.
    """
    server = application.config.server
    lifespan = _closing if open_on_demand else _working
    app = FastAPI(title="VectorForge", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    install_problem_handlers(app)
    app.openapi = _openapi  # type: ignore[method-assign] # FastAPI's documented way to extend it
    app.state.routers = routers = Routers(app)
    app.state.application = application
    app.state.issued_keys = issued = IssuedKeys(_key_look_up(application, open_on_demand))
    # The last one added is the outermost.
    app.add_middleware(ScopeGuard, routes=app.router.routes)
    app.add_middleware(RoutersOnDemand, routers=routers)
    if open_on_demand:
        app.add_middleware(LazyStartup, open_application=application.open)
    app.add_middleware(BodyLimit, max_bytes=server.max_body_bytes, timeout_s=server.body_timeout_s)
    app.state.gateway_keys = gateway_keys = _gateway_keys(application)
    authenticator = _authenticator(application, issued, gateway_keys)
    app.add_middleware(Authentication, authenticator=authenticator)
    origins = server.cors_origins if server.auth == "local" else None
    app.add_middleware(LocalGuard, allowed_hosts=server.allowed_hosts, origins=origins)
    if open_on_demand:
        app.add_middleware(TimeLimit)
    app.add_middleware(ReadingPace)
    app.add_middleware(RequestContext)
    if cors := cors_options(server):
        app.add_middleware(CrossOrigin, **cors)
    app.add_middleware(RequestMetrics, metrics=application.metrics)
    return app


@asynccontextmanager
async def _closing(app: FastAPI) -> AsyncIterator[None]:
    """Lifespan that leaves opening to the requests."""
    try:
        yield
    finally:
        await app.state.application.close()


@asynccontextmanager
async def _working(app: FastAPI) -> AsyncIterator[None]:
    """Lifespan of a server, which ingests as well unless a queue has another process do so."""
    async with app.state.application as application:
        if application.aws.ingestion_queue is None:
            application.background.worker.start()
        try:
            yield
        finally:
            await application.background.worker.stop()


def cors_options(server: ServerSettings) -> dict[str, Any]:
    """Return the arguments of ``CrossOrigin``; empty without ``VECTORFORGE_CORS_ORIGINS``.

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
        "allow_methods": _CORS_METHODS,
        "allow_headers": ("*",),
        "allow_private_network": True,
        "expose_headers": _EXPOSED_HEADERS,
        "max_age": _PREFLIGHT_AGE_S,
    }


def _key_look_up(
    application: "Application", open_on_demand: bool
) -> Callable[[bytes], Awaitable[ActiveApiKey | None]]:
    async def look_up(digest: bytes) -> ActiveApiKey | None:
        if open_on_demand:  # a key is the first that needs the database
            await application.open()
        return await find_api_key(application.database, digest)

    return look_up


def _gateway_keys(application: "Application") -> StoredGatewayKeys | None:
    config = application.config
    secret_id = config.aws.gateway_key_secret_id
    if secret_id is None or config.server.auth == "local":
        return None
    from vectorforge.aws.secret_readers import gateway_key_reader  # leads to boto3

    age_s = config.aws.secret_max_age_s
    return StoredGatewayKeys(gateway_key_reader(secret_id), config.server, max_age_s=age_s)


def _authenticator(
    application: "Application", issued: IssuedKeys, gateway_keys: StoredGatewayKeys | None
) -> Authenticator:
    config = application.config
    if config.identity.jwt_jwks_url is None:
        return Authenticator(config.server, issued=issued, gateway_keys=gateway_keys)
    from vectorforge.api.identity.access_tokens import AccessTokens, KeySet

    tokens = AccessTokens(config.identity, KeySet(config.identity.jwt_jwks_url))
    return Authenticator(config.server, issued=issued, tokens=tokens, gateway_keys=gateway_keys)


def _openapi() -> dict[str, Any]:
    from vectorforge.api.openapi import document  # loads every router

    return document()


def create_unconfigured_app(error: NotConfiguredError) -> FastAPI:
    """Return an app that answers `/health` with 200, and 503 with this error elsewhere.

    It checks no credential: front doors have done so, and it exposes no data.
    """
    from vectorforge.api.native.server import Component, HealthResponse  # builds models

    app = FastAPI(title="VectorForge", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    install_problem_handlers(app)

    @app.head("/health")
    @app.get("/health")
    async def health() -> HealthResponse:
        """Report the missing component, without the command, since this path is public."""
        missing = Component(
            name="embedding", healthy=False, detail="No embedding provider is configured", latency_ms=0.0
        )
        return HealthResponse(status="degraded", version=__version__, components=[missing])

    @app.api_route("/{path:path}", methods=[*_CORS_METHODS, "OPTIONS"])
    async def refuse(request: Request, path: str) -> None:
        """Answer 503.

        Raises:
            NotConfiguredError: Always.
        """
        raise error

    app.add_middleware(RequestContext)
    return app
