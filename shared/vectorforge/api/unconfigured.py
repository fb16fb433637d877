"""The app of a function without an embedding provider: `/health` answers, every other route is 503."""

from fastapi import FastAPI, Request

from vectorforge import __version__
from vectorforge.api.middleware.request import RequestContext
from vectorforge.api.native.server import Component, HealthResponse
from vectorforge.api.problems import install_problem_handlers
from vectorforge.errors import NotConfiguredError

_METHODS = ["GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"]


def create_unconfigured_app(error: NotConfiguredError) -> FastAPI:
    """Return an app that answers `/health` with 200, and 503 with this error elsewhere.

    It checks no credential: front doors have done so, and it has nothing to give away.

    Args:
        error: Names the command that configures the application.
    """
    app = FastAPI(title="VectorForge", version=__version__, openapi_url=None, docs_url=None, redoc_url=None)
    install_problem_handlers(app)

    @app.head("/health")
    @app.get("/health")
    async def health() -> HealthResponse:
        """Say what is missing, without the command: this path is public."""
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
