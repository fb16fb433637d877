"""State of one HTTP request, typed, and the scope that its route requires.

Middleware fills the state in; routes and error responses read it. A route must be listed in ``ROUTES``:
``routers`` does not include a module with an undeclared route.
"""

import re
import time
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal, TypeAlias
from urllib.parse import unquote
from uuid import UUID, uuid4

from starlette.datastructures import Headers
from starlette.routing import compile_path
from starlette.types import Scope as AsgiScope

from vectorforge.types import Principal, Scope

if TYPE_CHECKING:  # both load models and the database client, which a start does not need
    from vectorforge.bootstrap import TenantServices
    from vectorforge.limits.admission import Admission

PUBLIC_PATHS = frozenset({"/", "/health", "/openapi.json", "/statistics", "/source", "/docs"})
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
        "GET /v1/documents/{document_id}/original",
        "GET /v1/documents/{document_id}/pages/{page}.png",
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
        "POST /v1/queries/{query_id}/feedback",
        "DELETE /v1/queries/{query_id}/feedback",
        "GET /v1/conversations",
        "POST /v1/conversations",
        "GET /v1/conversations/{conversation_id}",
        "PATCH /v1/conversations/{conversation_id}",  # without `write` the credential's own
        "DELETE /v1/conversations/{conversation_id}",
        "GET /v1/cache",
        "POST /v1/chat/completions",
        "GET /v1/models",
        "GET /v1/models/{model:path}",
        "POST /v1/embeddings",
        "POST /v1/responses",
        "GET /v1/responses/{response_id}",
        "GET /v1/responses/{response_id}/input_items",
        "GET /v1/vector_stores",
        "GET /v1/vector_stores/{vector_store_id}",
        "POST /v1/vector_stores/{vector_store_id}/search",
        "GET /v1/vector_stores/{vector_store_id}/files",
        "GET /v1/vector_stores/{vector_store_id}/files/{file_id}",
        "GET /v1/vector_stores/{vector_store_id}/files/{file_id}/content",
        "GET /v1/vector_stores/{vector_store_id}/file_batches/{batch_id}",
        "GET /v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/files",
        "GET /v1/files",
        "GET /v1/files/{file_id}",
        "GET /v1/files/{file_id}/content",
        "POST /api/chat",
        "POST /bedrock/knowledgebases/{knowledge_base_id:path}/retrieve",
        "POST /bedrock/retrieveAndGenerate",
        "POST /bedrock/retrieveAndGenerateStream",
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
        "DELETE /v1/responses/{response_id}",
        "DELETE /v1/cache",
        "POST /v1/vector_stores",
        "POST /v1/vector_stores/{vector_store_id}",
        "DELETE /v1/vector_stores/{vector_store_id}",
        "POST /v1/vector_stores/{vector_store_id}/files",
        "POST /v1/vector_stores/{vector_store_id}/files/{file_id}",
        "DELETE /v1/vector_stores/{vector_store_id}/files/{file_id}",
        "POST /v1/vector_stores/{vector_store_id}/file_batches",
        "POST /v1/vector_stores/{vector_store_id}/file_batches/{batch_id}/cancel",
        "POST /v1/files",
        "DELETE /v1/files/{file_id}",
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
        "GET /v1/queries/{query_id}/feedback",
        "GET /v1/queries/{query_id}/replay",
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
_PATTERNS: Sequence[tuple[str, re.Pattern[str], Scope]] = [
    (method, compile_path(path)[0], scope)
    for route, scope in _SCOPES.items()
    for method, path in [route.split(" ", 1)]
]
"""Paths are matched as the router does it, so that the two never see different routes."""


def required_scope(method: str, path: str) -> Scope | None:
    """Return the scope that a request requires; if several routes match its path, the widest.

    The path is without the prefix at which the app is mounted. None if no route of ``ROUTES`` matches: the
    path is public or unknown.
    """
    exact = _SCOPES.get(f"{method} {path}")
    if exact is not None:
        return exact
    scopes = [scope for known, pattern, scope in _PATTERNS if known == method and pattern.match(path)]
    return max(scopes, key=lambda scope: len(scope.included), default=None)


def undeclared(routes: Iterable[tuple[str, str]]) -> list[str]:
    """Return the routes, by method and path, that are neither public nor in ``ROUTES``."""
    return [
        f"{method} {path}"
        for method, path in routes
        if path not in PUBLIC_PATHS and f"{method} {path}" not in _SCOPES
    ]


ErrorShape: TypeAlias = Literal["problem", "openai", "aws", "mcp"]
_SCOPE_KEY = "vectorforge.request"
STORED_RESPONSE_KEY = "vectorforge.stored_response"
"""Scope key of the ``StoredResponse`` that records the answer to a request with an ``Idempotency-Key``."""
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,127}")
_OPENAI_FAMILIES = frozenset({"chat", "responses", "models", "embeddings", "vector_stores", "files"})
_NATIVE_FAMILIES = frozenset(
    path.split("/")[2]
    for routes in ROUTES.values()
    for path in (route.split(" ", 1)[1] for route in routes)
    if path.startswith("/v1/")
).difference(_OPENAI_FAMILIES)
"""First segments below ``/v1`` of routes whose errors are problem documents."""
_BEDROCK_FAMILIES = frozenset({"knowledgebases", "retrieveAndGenerate", "retrieveAndGenerateStream"})


@dataclass(slots=True)
class RequestState:
    """State of one request, from its first byte to the last byte of its response."""

    query_id: UUID
    """Id of the query log record, if the request is a query."""
    request_id: str
    """Id in logs and in ``X-Request-Id``: the client's, or ``query_id``."""
    error_shape: ErrorShape = "problem"
    """Shape of error bodies: problem documents, or as OpenAI's or AWS's clients read them."""
    arrived_at: float = field(default_factory=time.monotonic)
    """Monotonic seconds."""
    principal: Principal | None = None
    """Set by ``Authentication``; None on public paths without a credential."""
    tenant_services: "TenantServices | None" = None
    """Created by the first use, for the principal's tenant."""
    problem_prefix: str = ""
    """Text before the detail of a 5xx error."""
    status: int | None = None
    """HTTP status, after the response has started."""

    @classmethod
    def begin(cls, scope: AsgiScope) -> "RequestState":
        """Create the state of a request and attach it to the ASGI scope."""
        query_id = uuid4()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _VALID_REQUEST_ID.fullmatch(given) else str(query_id)
        state = cls(query_id, request_id, error_shape_of(route_path(scope)))
        scope[_SCOPE_KEY] = state
        return state

    @classmethod
    def of(cls, scope: AsgiScope) -> "RequestState":
        """Return the state that ``begin`` attached to the scope."""
        state: RequestState = scope[_SCOPE_KEY]
        return state

    @property
    def admission(self) -> "Admission | None":
        """Admission of the request by its tenant's limits; None before the tenant is used."""
        return None if self.tenant_services is None else self.tenant_services.limits.admission


def route_path(scope: AsgiScope) -> str:
    """Return the path below the prefix at which the app is mounted, as the router matches it."""
    path: str = scope["path"]
    root_path: str = scope.get("root_path", "")
    inside = path.removeprefix(root_path)
    return inside if not inside or inside.startswith("/") else path


_COLLECTIONS = "/v1/collections/"


def escape_collection(scope: AsgiScope) -> None:
    """Escape "%" and "/" in the collection's name in ``path``, so that any name is one segment.

    ``dependencies.CollectionInPath`` reverses it. Without ``raw_path`` a slash in a name separates segments.
    """
    path = route_path(scope)
    if not path.startswith(_COLLECTIONS):
        return
    decoded = path.removeprefix(_COLLECTIONS)
    raw = (scope.get("raw_path") or b"").decode("latin-1").partition(_COLLECTIONS)[2]
    if unquote(raw) == decoded:
        name, slash, below = (unquote(part) for part in raw.partition("/"))
    else:
        name, slash, below = decoded.partition("/")
    escaped = name.replace("%", "%25").replace("/", "%2F")
    scope["path"] = scope["path"].removesuffix(decoded) + escaped + slash + below


def is_native(scope: AsgiScope) -> bool:
    """Return True for a route below ``/v1`` that is not of OpenAI's API."""
    path = route_path(scope)
    return path.startswith("/v1/") and error_shape_of(path) == "problem"


def error_shape_of(path: str) -> ErrorShape:
    """Return the shape of errors at a path of the app; "aws" is for clients of Bedrock's API.

    Unknown routes below ``/v1`` have "openai", since OpenAI's packages show no text of another shape, as MCP
    clients show none but "mcp".
    """
    path = missing_prefix(path) + path
    if path.startswith("/v1/"):
        return "problem" if path.split("/")[2] in _NATIVE_FAMILIES else "openai"
    if path.rstrip("/") == "/mcp":
        return "mcp"
    return "aws" if path.startswith("/bedrock/") else "problem"


def missing_prefix(path: str) -> Literal["/v1", "/bedrock", ""]:
    """Return the prefix that a path lacks because its client was given the server's root; "" if none."""
    family = path.removeprefix("/").partition("/")[0]
    if family in _OPENAI_FAMILIES:
        return "/v1"
    return "/bedrock" if family in _BEDROCK_FAMILIES else ""


def invocation_time_s(scope: AsgiScope) -> float | None:
    """Return the seconds until Lambda stops the process; None elsewhere."""
    context: Any = scope.get("aws.context")  # set by Mangum and by our runtime
    return None if context is None else context.get_remaining_time_in_millis() / 1000
