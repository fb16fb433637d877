"""One line for each request of a known caller: which credential did what, and which answer it got.

``http.*``: the one place that counts requests, whatever answered them.
"""

import logging
import time
from typing import Final

from starlette.types import ASGIApp, Message, Receive, Scope, Send

from vectorforge.telemetry import MetricsCollector
from vectorforge.types import Principal

logger = logging.getLogger(__name__)


def log_access(scope: Scope) -> None:
    """Say who asked for what, at INFO; nothing where nobody was recognised, which anybody can bring about.

    The route's template stands for the path, the credential's name for the credential. The id is the one of
    the query log, if the request was a question.
    """
    state = scope["state"]
    principal = state.get("principal")
    if not isinstance(principal, Principal) or not logger.isEnabledFor(logging.INFO):
        return
    logger.info(
        "%s %s: %s in %.0f ms, by %s of %r",
        scope["method"],
        getattr(scope.get("route"), "path", "unmatched"),
        state.get("status", "no answer"),
        (time.monotonic() - state["arrived"]) * 1000,
        principal.credential,
        principal.tenant,
        extra={"credential": principal.credential, "query_id": str(state["query_id"])},
    )


_METHODS: Final = frozenset({"GET", "HEAD", "POST", "PUT", "PATCH", "DELETE", "OPTIONS"})
_NO_ROUTE: Final = "unmatched"
_CLIENT_GONE: Final = 499  # nginx's number for a client that left before its answer began
_BROKEN: Final = 500


class RequestMetrics:
    """Measures every request from its first byte to the last byte of its answer.

    Tags hold the route's template and never the path, so that callers cannot make series grow. A streamed
    answer that fails after its first byte has status 200 here; ``pipeline.query.errors`` counts it.

    Args:
        app: The next app; what it refuses before any route is counted as route "unmatched".
        metrics: Where ``http.requests``, ``http.errors`` and ``http.request.duration_ms`` go.
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
        broken = True

        async def watching_send(message: Message) -> None:
            nonlocal status
            if message["type"] == "http.response.start":
                status = message["status"]
            await send(message)

        try:
            await self.app(scope, receive, watching_send)
            broken = False
        except Exception:
            status = _BROKEN if status == _CLIENT_GONE else status
            raise
        finally:
            self._record(scope, status, (time.perf_counter() - started) * 1000, broken=broken)

    def _record(self, scope: Scope, status: int, duration_ms: float, *, broken: bool) -> None:
        method = scope["method"] if scope["method"] in _METHODS else "other"
        place = {"route": _route_of(scope), "method": method}
        self._metrics.increment("http.requests", tags={**place, "status": str(status)})
        if broken or status >= 400:
            self._metrics.increment("http.errors", tags={**place, "status": str(status)})
        self._metrics.observe("http.request.duration_ms", duration_ms, place)


def _route_of(scope: Scope) -> str:
    """The template of the route that took the request, e.g. "/v1/jobs/{job_id}"."""
    return getattr(scope.get("route"), "path", _NO_ROUTE)
