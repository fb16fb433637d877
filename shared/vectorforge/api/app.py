"""``create_app``: the one ASGI app that uvicorn, Lambda's runtime and the tests serve."""

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable
from contextlib import AbstractAsyncContextManager, asynccontextmanager
from typing import TYPE_CHECKING, Any

from fastapi import FastAPI
from starlette.middleware.cors import CORSMiddleware

from vectorforge import __version__
from vectorforge.api.identity.authenticator import Authenticator
from vectorforge.api.identity.gateway_keys import StoredGatewayKeys
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.api.middleware.cross_origin import OriginCheck, cors_options
from vectorforge.api.middleware.limits import ReadingPace, TimeLimit
from vectorforge.api.middleware.observability import RequestMetrics
from vectorforge.api.middleware.request import (
    Authentication,
    BodyLimit,
    LazyStartup,
    LocalGuard,
    RequestContext,
)
from vectorforge.api.problems import install_problem_handlers
from vectorforge.api.routers import Routers, RoutersOnDemand, ScopeGuard
from vectorforge.api.streaming.client_stream import PING_INTERVAL_S
from vectorforge.db.repositories.api_key_repo import FoundApiKey, find_api_key

if TYPE_CHECKING:
    from vectorforge.bootstrap import Application

_DESCRIPTION = (
    "Ask your own documents: answers with citations, whole or as server-sent events. "
    "Every error is an RFC 9457 problem document."
)


def create_app(
    application: "Application", *, ping_interval_s: float = PING_INTERVAL_S, open_on_demand: bool = False
) -> FastAPI:
    """The HTTP door of an application.

    The app's lifespan opens the application and, unless a function of its own ingests documents, runs its
    ingestion worker. On Lambda the first request opens it, since a snapshot must hold no connection.

    Args:
        application: What answers; its settings decide about authentication, hosts and limits.
        ping_interval_s: Seconds of silence in a streamed answer after which a comment keeps it alive.
        open_on_demand: For Lambda: each request makes sure that the application is open, and is answered
            within the invocation's time; the lifespan only closes.

    Raises:
        ConfigurationError: The API keys or the origins in the settings are not usable.
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
    app = _create_empty(lifespan)
    app.state.doors = doors = Routers(app)
    app.state.application = application
    app.state.ping_interval_s = ping_interval_s
    app.state.issued_keys = issued = IssuedKeys(_key_look_up(application, open_on_demand))
    # The last one added is the outermost.
    app.add_middleware(ScopeGuard, routes=app.router.routes)
    app.add_middleware(RoutersOnDemand, doors=doors)
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
    from vectorforge.api.identity.access_tokens import AccessTokens
    from vectorforge.api.identity.key_set import KeySet

    tokens = AccessTokens(config.identity, KeySet(config.identity.jwt_jwks_url))
    return Authenticator(config.server, issued=issued, tokens=tokens, gateway_keys=gateway_keys)


def create_routes() -> FastAPI:
    """All routes without anything behind them; enough for the OpenAPI document."""
    app = _create_empty()
    Routers(app).open_all()
    return app


def _create_empty(
    lifespan: Callable[[FastAPI], AbstractAsyncContextManager[None]] | None = None,
) -> FastAPI:
    app = FastAPI(
        title="VectorForge",
        version=__version__,
        description=_DESCRIPTION,
        lifespan=lifespan,
        docs_url=None,  # both load scripts from other servers
        redoc_url=None,
    )
    install_problem_handlers(app)

    def openapi() -> dict[str, Any]:
        from vectorforge.api.openapi import describe

        if app.openapi_schema is None:
            # The order of routes in the document is not the one in which their doors were opened.
            app.openapi_schema = describe(create_routes())
        return app.openapi_schema

    app.openapi = openapi  # type: ignore[method-assign] # FastAPI's documented way to extend it
    return app
