"""The doors of the API: which module of ``api.routes`` serves which paths, imported when a path asks for it.

Most of what importing the API costs is the making of pydantic models. A process serves few of the doors: a
Lambda function that answers questions need not build the models of the others before its first answer.
"""

from collections.abc import Mapping, Sequence
from importlib import import_module
from types import ModuleType
from typing import TYPE_CHECKING

from fastapi import APIRouter, FastAPI
from fastapi.routing import iter_route_contexts
from starlette.routing import BaseRoute, Match
from starlette.types import ASGIApp, Receive, Scope, Send

from vectorforge.api.identity.route_scopes import PUBLIC_PATHS, required_scope, undeclared
from vectorforge.api.problems import route_not_found

if TYPE_CHECKING:
    from vectorforge.api.query_route import QueryRoute

DOORS: Mapping[str, tuple[str, ...]] = {
    "vectorforge.api.native.server": ("/", "/health", "/v1/providers"),
    "vectorforge.api.native.collections": ("/v1/collections",),
    "vectorforge.api.admin.embedding_switch": ("/v1/collections/*/embedding-switch",),
    "vectorforge.api.native.conversations": ("/v1/conversations",),
    "vectorforge.api.native.documents": ("/v1/collections/*/documents", "/v1/documents", "/v1/chunks"),
    "vectorforge.api.native.uploads": ("/v1/collections/*/uploads",),
    "vectorforge.api.native.jobs": ("/v1/jobs",),
    "vectorforge.api.native.search": ("/v1/search",),
    "vectorforge.api.native.rag": ("/v1/rag", "/v1/collections/*/query"),
    "vectorforge.api.docrag.routes": ("/v1/docrag",),
    "vectorforge.api.profiles.routes": ("/v1/profiles",),
    "vectorforge.api.native.answer_streams": ("/v1/queries",),
    "vectorforge.api.openai.chat": ("/v1/chat",),
    "vectorforge.api.openai.models": ("/v1/models",),
    "vectorforge.api.openai.embeddings": ("/v1/embeddings",),
    "vectorforge.api.openai.responses": ("/v1/responses",),
    "vectorforge.api.openai.vector_stores": ("/v1/vector_stores",),
    "vectorforge.api.openai.vector_store_files": ("/v1/vector_stores/*/files",),
    "vectorforge.api.ui_chat.routes": ("/api",),
    "vectorforge.api.mcp.http": ("/mcp",),
    "vectorforge.api.native.queries": ("/v1/queries",),
    "vectorforge.api.admin.cache": ("/v1/cache",),
    "vectorforge.api.admin.erasures": ("/v1/erasures", "/v1/tenant"),
    "vectorforge.api.native.statistics": ("/v1/stats", "/statistics"),
    "vectorforge.api.native.metrics": ("/metrics",),
    "vectorforge.api.admin.keys": ("/v1/keys",),
}
"""By module: what its routes' paths begin with, in whole segments; "*" is any one segment. No two modules
have routes that match the same path and method, so the order in which they are opened changes nothing."""

_REMEMBERED_PATHS = 100
"""Callers choose paths, and memory must not grow."""

QUERY_ROUTERS = ("vectorforge.api.native.rag",)
"""Those that a function opens before its first event, where it starts faster than it answers."""


def load_router(name: str) -> ModuleType:
    """The module of this name; its ``router`` has the routes."""
    return import_module(name)


class Routers:
    """Includes the routes of a door in an app before the first request to them is matched.

    Args:
        app: Gets the routes.
    """

    def __init__(self, app: FastAPI) -> None:
        self._app = app
        self._closed = {name: [_segments(path) for path in paths] for name, paths in DOORS.items()}
        self._asked_for = set[str]()
        """Paths whose doors are open: most requests ask for one of a few."""
        self.questions: dict[str, QueryRoute] = {}
        """The open routes for questions whose paths have no parameters, by path."""

    def open_all(self) -> None:
        """Include all doors."""
        self.open(*DOORS)

    def open(self, *names: str) -> None:
        """Include these doors, unless they are included already.

        Raises:
            LookupError: A route of theirs does not say what it needs (``identity.route_scopes``).
        """
        from vectorforge.api.query_route import QueryRoute  # what doors need, and a start does not

        for name in names:
            if name in self._closed:
                router = load_router(name).router
                _check_scopes(router)
                self._app.include_router(router)
                self.questions |= {
                    route.path: route
                    for route in router.routes
                    if isinstance(route, QueryRoute) and not route.param_convertors
                }
                del self._closed[name]

    def open_for(self, path: str) -> None:
        """Include every door that may serve this path."""
        if path in self._asked_for or not self._closed:
            return
        asked = _segments(path)
        self.open(*(name for name, begins in self._closed.items() if _leads(asked, begins)))
        if len(self._asked_for) < _REMEMBERED_PATHS:
            self._asked_for.add(path)


def _check_scopes(router: APIRouter) -> None:
    routes = iter_route_contexts(router.routes)
    missing = undeclared((method, route.path or "") for route in routes for method in route.methods or ())
    if missing:
        raise LookupError(f"Routes without a scope: {', '.join(missing)}")


class RoutersOnDemand:
    """Opens doors for requests, as the innermost ASGI middleware: after a credential was found good.

    Questions go from here straight to their routes.

    Args:
        app: The next app.
        doors: Of the FastAPI app that is behind it.
    """

    def __init__(self, app: ASGIApp, *, doors: Routers) -> None:
        self.app = app
        self._doors = doors

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            self._doors.open_for(path)
            route = self._doors.questions.get(path)
            # FastAPI's own telemetry wants to know of the route, where an application has set it up.
            if route is not None and scope["method"] == "POST" and scope.get("fastapi.telemetry") is None:
                await route.serve(scope, receive, send, self.app)
                return
        await self.app(scope, receive, send)


class ScopeGuard:
    """Refuses (404) what the router would serve but ``identity.route_scopes`` does not know.

    The two match paths each in its own way, and a difference would be a route that needs no scope.

    Args:
        app: The next app: the router.
        routes: Its routes, those included.
    """

    def __init__(self, app: ASGIApp, *, routes: Sequence[BaseRoute]) -> None:
        self.app = app
        self._routes = routes

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Serve one request."""
        if scope["type"] == "http":
            path = scope["path"].removeprefix(scope.get("root_path", ""))
            is_declared = path in PUBLIC_PATHS or required_scope(scope["method"], path) is not None
            if not is_declared and any(route.matches(scope)[0] is Match.FULL for route in self._routes):
                await route_not_found(scope["state"])(scope, receive, send)
                return
        await self.app(scope, receive, send)


def _segments(path: str) -> list[str]:
    return path.removeprefix("/").split("/")


def _leads(asked: list[str], begins: list[list[str]]) -> bool:
    return any(
        all(part in ("*", given) for part, given in zip(begin, asked, strict=False))
        for begin in begins
        if len(begin) <= len(asked)
    )
