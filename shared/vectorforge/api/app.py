"""``create_app``: the one ASGI app that uvicorn, Lambda's runtime and the tests serve.

The app of a function without an embedding provider: `/health` answers, every other route is 503.
"""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI, Request
from starlette.middleware.cors import CORSMiddleware

from vectorforge import __version__
from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.api.identity.front_doors import StoredGatewayKeys
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.api.middleware.context import RequestContext, RequestMetrics
from vectorforge.api.middleware.guards import Authentication, BodyLimit, LocalGuard, OriginCheck, cors_options
from vectorforge.api.middleware.limits import LazyStartup, ReadingPace, TimeLimit
from vectorforge.api.problems import install_problem_handlers
from vectorforge.api.routers import Routers, RoutersOnDemand, ScopeGuard
from vectorforge.api.streaming.client_stream import PING_INTERVAL_S
from vectorforge.db.repositories.api_key_repo import FoundApiKey, find_api_key
from vectorforge.errors import NotConfiguredError

if TYPE_CHECKING:
    from vectorforge.bootstrap import Application


def create_app(
    application: "Application", *, ping_interval_s: float = PING_INTERVAL_S, open_on_demand: bool = False
) -> FastAPI:
    """Create the HTTP API of an application.

    The app's lifespan opens the application and runs its ingestion worker, unless a separate function
    ingests documents. On Lambda the first request opens it, since a snapshot must hold no connection.

    Args:
        application: The application behind the API, with the settings of authentication, hosts and limits.
        ping_interval_s: Seconds of silence in a streamed answer after which a comment keeps it alive.
        open_on_demand: For Lambda: each request opens the application if necessary, and ends within the
            invocation's time; the lifespan only closes.

    Raises:
        ConfigurationError: The API keys or the origins in the settings are invalid.
    """

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        if open_on_demand:
            try:
                yield
            finally:
                await application.close()
            return
        async with application:
            if application.aws.ingestion_queue is None:
                application.background.worker.start()
            try:
                yield
            finally:
                await application.background.worker.stop()

    server = application.config.server
    app = FastAPI(title="VectorForge", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None)
    install_problem_handlers(app)
    app.openapi = _openapi  # type: ignore[method-assign] # FastAPI's documented way to extend it
    app.state.routers = routers = Routers(app)
    app.state.application = application
    app.state.ping_interval_s = ping_interval_s
    app.state.issued_keys = issued = IssuedKeys(_key_look_up(application, open_on_demand))
    # The last one added is the outermost.
    app.add_middleware(ScopeGuard, routes=app.router.routes)
    app.add_middleware(RoutersOnDemand, routers=routers)
    if open_on_demand:
        app.add_middleware(LazyStartup, open_application=application.open)
    app.state.gateway_keys = gateway_keys = _gateway_keys(application)
    authenticator = _authenticator(application, issued, gateway_keys)
    app.add_middleware(Authentication, authenticator=authenticator)
    app.add_middleware(BodyLimit, max_bytes=server.max_body_bytes, timeout_s=server.body_timeout_s)
    origins = OriginCheck(server.cors_origins) if server.auth == "local" else None
    app.add_middleware(LocalGuard, allowed_hosts=server.allowed_hosts, origins=origins)
    if open_on_demand:
        app.add_middleware(TimeLimit)
    app.add_middleware(ReadingPace)
    app.add_middleware(RequestContext)
    if cors := cors_options(server):
        app.add_middleware(CORSMiddleware, **cors)
    app.add_middleware(RequestMetrics, metrics=application.metrics)
    return app


def _key_look_up(
    application: "Application", open_on_demand: bool
) -> Callable[[bytes], Awaitable[FoundApiKey | None]]:
    opening = asyncio.Lock()

    async def look_up(digest: bytes) -> FoundApiKey | None:
        if open_on_demand:  # a key is the first that needs the database
            async with opening:
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


_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def create_unconfigured_app(error: NotConfiguredError) -> FastAPI:
    """Return an app that answers `/health` with 200, and 503 with this error elsewhere.

    It checks no credential: front doors have done so, and it exposes no data.

    Args:
        error: Names the command that configures the application.
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

    @app.api_route("/{path:path}", methods=_METHODS)
    async def refuse(request: Request, path: str) -> None:
        """Answer 503.

        Raises:
            NotConfiguredError: Always.
        """
        raise error

    app.add_middleware(RequestContext)
    return app
