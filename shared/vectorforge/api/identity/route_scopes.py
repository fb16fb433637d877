"""Required scope of each route; ``middleware.guards.Authentication`` checks it before the body is read.

A route must be listed here: ``routers`` does not include a module with an undeclared route.
"""

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from re import Pattern

from starlette.routing import compile_path

from vectorforge.types import Scope

PUBLIC_PATHS = frozenset({"/", "/health", "/openapi.json", "/statistics"})
"""Paths without authentication and tenant data; ``/health?deep=1`` requires a credential itself."""

ROUTES: Mapping[Scope, tuple[str, ...]] = {
    Scope.READ: (
        "GET /v1/providers",
        "GET /v1/providers/{name}/models",
        "GET /v1/collections",
        "GET /v1/collections/{collection_id}",
        "GET /v1/collections/{collection_id}/documents",
        "GET /v1/collections/{collection_id}/embedding-switch",
        "POST /v1/collections/{collection_id}/query",
        "GET /v1/documents/{document_id}",
        "GET /v1/documents/{document_id}/text",
        "GET /v1/documents/{document_id}/chunks",
        "GET /v1/chunks/{chunk_id}",
        "GET /v1/jobs",
        "GET /v1/jobs/{job_id}",
        "POST /v1/search",
        "POST /v1/rag/query",
        "POST /v1/docrag/query",
        "POST /v1/profiles/{profile_id}/search",
        "POST /v1/profiles/{profile_id}/query",
        # only the requester has the id of an answer
        "GET /v1/queries/{query_id}/events",
        "POST /v1/queries/{query_id}/stop",
        "GET /v1/conversations",
        "POST /v1/conversations",
        "GET /v1/conversations/{conversation_id}",
        "GET /v1/cache",
        "POST /v1/chat/completions",
        "GET /v1/models",
        "GET /v1/models/{model:path}",
        "POST /v1/embeddings",
        "POST /v1/responses",
        "GET /v1/vector_stores",
        "GET /v1/vector_stores/{vector_store_id}",
        "POST /v1/vector_stores/{vector_store_id}/search",
        "GET /v1/vector_stores/{vector_store_id}/files",
        "GET /v1/vector_stores/{vector_store_id}/files/{file_id}",
        "GET /v1/vector_stores/{vector_store_id}/files/{file_id}/content",
        "POST /api/chat",
        "POST /mcp",  # no tool changes anything
        "POST /mcp/",
    ),
    Scope.WRITE: (
        "POST /v1/collections",
        "PATCH /v1/collections/{collection_id}",
        "DELETE /v1/collections/{collection_id}",
        "POST /v1/collections/{collection_id}/documents",
        "POST /v1/collections/{collection_id}/documents/delete",
        "POST /v1/collections/{collection_id}/uploads",
        "DELETE /v1/documents/{document_id}",
        "POST /v1/profiles/{profile_id}",
        "PUT /v1/profiles/{profile_id}",
        "POST /v1/profiles/{profile_id}/documents",
        "DELETE /v1/profiles/{profile_id}",
        "DELETE /v1/conversations/{conversation_id}",
        "DELETE /v1/cache",
        "POST /v1/vector_stores",
        "DELETE /v1/vector_stores/{vector_store_id}",
        "POST /v1/vector_stores/{vector_store_id}/files",
        "DELETE /v1/vector_stores/{vector_store_id}/files/{file_id}",
        # results of deletions, which require the same scope
        "GET /v1/erasures",
        "GET /v1/erasures/{erasure_id}",
    ),
    Scope.ADMIN: (
        "GET /v1/keys",
        "POST /v1/keys",
        "POST /v1/keys/{key_id}/rotate",
        "DELETE /v1/keys/{key_id}",
        "DELETE /v1/tenant",
        # all queries and their cost
        "GET /v1/queries",
        "GET /v1/queries/{query_id}",
        "GET /v1/stats",
        "GET /v1/stats/usage",
        "GET /metrics",
        # re-embeds a whole collection
        "POST /v1/collections/{collection_id}/embedding-switch",
        "POST /v1/collections/{collection_id}/embedding-switch/switch",
        "POST /v1/collections/{collection_id}/embedding-switch/rollback",
        "POST /v1/collections/{collection_id}/embedding-switch/finish",
        "POST /v1/collections/{collection_id}/embedding-switch/cancel",
    ),
}
"""Method and path of each route by what it needs, the paths as the routes have them."""

_SCOPES: Mapping[str, Scope] = {route: scope for scope, routes in ROUTES.items() for route in routes}
_FIRST_SEGMENTS = 2
"""Leading segments without parameters in all routes; with the number of slashes they index the patterns."""


def _indexed() -> Mapping[tuple[str, str, int | None], Sequence[tuple[Pattern[str], Scope]]]:
    """Index the patterns of all routes; the number of slashes is None for ``:path`` parameters.

    Routes without parameters are included, because the router's patterns allow a newline at the end.
    """
    index = defaultdict[tuple[str, str, int | None], list[tuple[Pattern[str], Scope]]](list)
    for route, scope in _SCOPES.items():
        method, path = route.split(" ", 1)
        if "{" in (start := _start_of(path)):
            raise ValueError(f"{route} has a parameter among its first {_FIRST_SEGMENTS} segments")
        slashes = None if ":path}" in path else path.count("/")
        # Paths are matched as the router does it, so that the two never see different routes.
        index[method, start, slashes].append((compile_path(path)[0], scope))
    return dict(index)


def _start_of(path: str) -> str:
    return "/".join(path.split("/", _FIRST_SEGMENTS + 1)[: _FIRST_SEGMENTS + 1])


_PATTERNS = _indexed()


def required_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a request requires.

    Args:
        method: HTTP method.
        path: Path without the prefix at which the app is mounted.

    Returns:
        The scope; if several routes match, the widest. None if no route of ``ROUTES`` matches: the path is
        public or unknown.
    """
    exact = _SCOPES.get(f"{method} {path}")
    if exact is not None:
        return exact
    start = _start_of(path.removesuffix("\n"))
    found = [
        scope
        for slashes in (path.count("/"), None)
        for pattern, scope in _PATTERNS.get((method, start, slashes), ())
        if pattern.match(path)
    ]
    return max(found, key=lambda scope: len(scope.included), default=None)


def undeclared(routes: Iterable[tuple[str, str]]) -> list[str]:
    """Return the routes, by method and path, that are neither public nor in ``ROUTES``."""
    return [
        f"{method} {path}"
        for method, path in routes
        if path not in PUBLIC_PATHS and f"{method} {path}" not in _SCOPES
    ]
