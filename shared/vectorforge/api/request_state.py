"""State of one HTTP request, typed; middleware fills it in, routes and error responses read it."""

import re
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING
from uuid import UUID, uuid4

from starlette.datastructures import Headers
from starlette.types import Scope

from vectorforge.api.identity.route_scopes import ROUTES
from vectorforge.types import Principal

if TYPE_CHECKING:  # both load models and the database client, which a start does not need
    from vectorforge.bootstrap import TenantServices
    from vectorforge.limits.admission import Admission

_SCOPE_KEY = "vectorforge.request"
STORED_RESPONSE_KEY = "vectorforge.stored_response"
"""Scope key of the ``StoredResponse`` that records the answer to a request with an ``Idempotency-Key``."""
_VALID_REQUEST_ID = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:-]{7,127}")
_OPENAI_FAMILIES = frozenset({"chat", "responses", "models", "embeddings", "vector_stores"})
_NATIVE_FAMILIES = frozenset(
    path.split("/")[2]
    for routes in ROUTES.values()
    for path in (route.split(" ", 1)[1] for route in routes)
    if path.startswith("/v1/")
).difference(_OPENAI_FAMILIES)
"""First segments below ``/v1`` of routes whose errors are problem documents."""


@dataclass(slots=True)
class RequestState:
    """State of one request, from its first byte to the last byte of its response."""

    query_id: UUID
    """Id of the query log record, if the request is a query."""
    request_id: str
    """Id in logs and in ``X-Request-Id``: the client's, or ``query_id``."""
    has_openai_errors: bool = False
    """True if errors have OpenAI's shape instead of problem documents."""
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
    def begin(cls, scope: Scope) -> "RequestState":
        """Create the state of a request and attach it to the ASGI scope."""
        query_id = uuid4()
        given = Headers(scope=scope).get("x-request-id", "")
        request_id = given if _VALID_REQUEST_ID.fullmatch(given) else str(query_id)
        state = cls(query_id, request_id, is_openai_path(route_path(scope)))
        scope[_SCOPE_KEY] = state
        return state

    @classmethod
    def of(cls, scope: Scope) -> "RequestState":
        """Return the state that ``begin`` attached to the scope."""
        state: RequestState = scope[_SCOPE_KEY]
        return state

    @property
    def admission(self) -> "Admission | None":
        """Admission of the request by its tenant's limits; None before the tenant is used."""
        return None if self.tenant_services is None else self.tenant_services.limits.admission


def route_path(scope: Scope) -> str:
    """Return the path below the prefix at which the app is mounted, as the router matches it."""
    path: str = scope["path"]
    root_path: str = scope.get("root_path", "")
    inside = path.removeprefix(root_path)
    return inside if not inside or inside.startswith("/") else path


def is_openai_path(path: str) -> bool:
    """Return True if errors at this path have OpenAI's shape.

    This includes unknown routes below ``/v1``: OpenAI's packages have calls for routes that are not served
    here, and show no text of an error in another shape.

    Args:
        path: Without the prefix at which the app is mounted.
    """
    _, _, below = path.partition("/v1/")
    return path.startswith("/v1/") and below.split("/", 1)[0] not in _NATIVE_FAMILIES
