"""Routers of the API by path; each module is imported when the first request to its paths arrives.

Most of the cost of importing the API is building pydantic models, and a process serves few of the routers: a
Lambda function that answers queries starts without the models of the others.
"""

from collections.abc import Mapping
from importlib import import_module

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts

from vectorforge.api.request_state import undeclared

ROUTERS: Mapping[str, tuple[str, ...]] = {
    "vectorforge.api.native.server": ("/", "/health", "/v1/providers"),
    "vectorforge.api.native.pages": ("/docs", "/source", "/statistics"),
    "vectorforge.api.native.collections": ("/v1/collections",),
    "vectorforge.api.admin.embedding_switch": ("/v1/collections/*/embedding-switch",),
    "vectorforge.api.native.conversations": ("/v1/conversations",),
    "vectorforge.api.native.documents": ("/v1/collections/*/documents", "/v1/documents", "/v1/chunks"),
    "vectorforge.api.native.originals": ("/v1/documents/*/original", "/v1/documents/*/pages"),
    "vectorforge.api.native.jobs": ("/v1/collections/*/uploads", "/v1/jobs"),
    "vectorforge.api.native.search": ("/v1/search",),
    "vectorforge.api.native.rag": ("/v1/rag", "/v1/collections/*/query"),
    "vectorforge.api.docrag": ("/v1/docrag",),
    "vectorforge.api.profiles": ("/v1/profiles",),
    "vectorforge.api.native.answer_streams": ("/v1/queries",),
    "vectorforge.api.openai.chat": ("/v1/chat",),
    "vectorforge.api.openai.models": ("/v1/models",),
    "vectorforge.api.openai.embeddings": ("/v1/embeddings",),
    "vectorforge.api.openai.responses.routes": ("/v1/responses",),
    "vectorforge.api.openai.responses.stored": ("/v1/responses/*",),
    "vectorforge.api.openai.vector_stores.stores": ("/v1/vector_stores",),
    "vectorforge.api.openai.vector_stores.store_files": (
        "/v1/vector_stores/*/files",
        "/v1/vector_stores/*/file_batches",
    ),
    "vectorforge.api.openai.vector_stores.files": ("/v1/files",),
    "vectorforge.api.ui_chat.routes": ("/api",),
    "vectorforge.api.bedrock.routes": ("/bedrock",),
    "vectorforge.api.mcp.server": ("/mcp",),
    "vectorforge.api.native.queries": ("/v1/queries",),
    "vectorforge.api.native.feedback": ("/v1/queries/*/feedback",),
    "vectorforge.api.admin.erasures": ("/v1/erasures", "/v1/tenant"),
    "vectorforge.api.native.statistics": ("/v1/cache", "/v1/stats", "/metrics"),
    "vectorforge.api.admin.keys": ("/v1/keys",),
}
"""Path prefixes of the routes of each module's ``router``, in whole segments; "*" is any one segment.

No two modules have routes with the same path and method, so the order of inclusion has no effect.
"""

_MAX_SEEN_PATHS = 100
"""Bound of memory: callers choose paths."""

QUERY_ROUTERS = ("vectorforge.api.native.rag",)
"""Routers that a function includes before its first event, where start time is cheaper than answer time."""


class Routers:
    """Includes a router in an app before the first request to its paths is matched."""

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._pending = {name: [_segments(path) for path in paths] for name, paths in ROUTERS.items()}
        self.seen_paths = set[str]()
        """Paths whose routers are included."""

    def include_all(self) -> None:
        """Include all routers."""
        self.include(*ROUTERS)

    def include(self, *names: str) -> None:
        """Include the routers of these modules, unless they are included already.

        Raises:
            LookupError: One of their routes declares no scope in ``request_state``.
        """
        for name in names:
            if name in self._pending:
                router = import_module(name).router
                _check_scopes(router)
                # include_router would build each route's models a second time, at its first request.
                self._app.router.routes.extend(router.routes)
                del self._pending[name]

    def include_for(self, path: str) -> None:
        """Include every router that may serve this path."""
        if path in self.seen_paths or not self._pending:
            return
        segments = _segments(path)
        self.include(*(name for name, begins in self._pending.items() if _matches(segments, begins)))
        if len(self.seen_paths) < _MAX_SEEN_PATHS:
            self.seen_paths.add(path)


def _check_scopes(router: APIRouter) -> None:
    routes = iter_route_contexts(router.routes)
    missing = undeclared((method, route.path or "") for route in routes for method in route.methods or ())
    if missing:
        raise LookupError(f"Routes without a scope: {', '.join(missing)}")


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").split("/")


def _matches(segments: list[str], begins: list[list[str]]) -> bool:
    return any(
        all(part in ("*", given) for part, given in zip(begin, segments, strict=False))
        for begin in begins
        if len(begin) <= len(segments)
    )
