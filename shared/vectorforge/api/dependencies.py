"""Parameters of routes: the application, the tenant's services, page limits, bodies, checks of settings."""

import asyncio
from collections.abc import Awaitable, Callable, Mapping
from typing import Annotated, Any, TypeVar
from urllib.parse import unquote
from uuid import UUID

from fastapi import Depends, Path, Query, Request, Security
from fastapi.dependencies.utils import get_flat_params
from fastapi.exceptions import RequestValidationError
from fastapi.params import ParamTypes
from fastapi.security import APIKeyHeader, HTTPBearer
from pydantic import AfterValidator, BeforeValidator, TypeAdapter, ValidationError
from starlette.types import Message, Receive

from vectorforge.api.request_state import RequestState, invocation_time_s, is_native
from vectorforge.api.schemas import (
    MAX_FILTERS_BYTES,
    MAX_NAME_CHARS,
    MAX_OFFSET,
    MAX_PAGE,
    MAX_PARTS,
    CollectionReference,
    storable,
)
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.db.repositories.paging import SqlCondition
from vectorforge.deadline import Deadline
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import AuthenticationError, FilterError, InvalidInputError, NotFoundError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.types import Principal
from vectorforge.vectorstore.filters.documents import condition_on_documents

T = TypeVar("T")

# For the OpenAPI document only: ``identity.authenticator.Authentication`` decides before the body is read.
_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key or an access token.")
_API_KEY = APIKeyHeader(name="X-Api-Key", auto_error=False, scheme_name="api_key", description="An API key.")


def application_of(request: Request) -> Application:
    """Return the application that the app was created for."""
    application: Application = request.app.state.application
    return application


def tenant_services_of(request: Request) -> TenantServices:
    """Return the services of the principal's tenant; the same object throughout a request.

    Raises:
        AuthenticationError: The request has no principal.
        RequestValidationError: A query parameter of a native route is unknown.
    """
    state = RequestState.of(request.scope)
    if state.tenant_services is None:
        if request.scope["query_string"] and is_native(request.scope):
            _check_query_names(request)
        tenant_id = principal_of(request).tenant
        state.tenant_services = application_of(request).for_tenant(tenant_id, state.query_id)
    return state.tenant_services


def _check_query_names(request: Request) -> None:
    parameters = get_flat_params(request.scope["route"].dependant)
    in_query = ParamTypes.query
    known = {one.alias for one in parameters if getattr(one.field_info, "in_", in_query) is in_query}
    signed = "X-Amz-"  # parameters of AWS's signatures
    unknown = [name for name in request.query_params if name not in known and not name.startswith(signed)]
    if unknown:
        error = {"type": "extra_forbidden", "ctx": {"known": known}}
        raise RequestValidationError([{**error, "loc": ("query", name)} for name in unknown])


def principal_of(request: Request) -> Principal:
    """Return the authenticated principal.

    Raises:
        AuthenticationError: The request has none.
    """
    principal = RequestState.of(request.scope).principal
    if principal is None:
        raise AuthenticationError
    return principal


# Coroutine functions although they await nothing: FastAPI runs others in a thread, which takes longer than
# everything else it does for a request (https://fastapi.tiangolo.com/async/#dependencies).
async def find_application(request: Request) -> Application:
    """Return ``application_of`` as a dependency."""
    return application_of(request)


async def find_tenant_services(
    request: Request,
    _bearer: Annotated[object, Security(_BEARER)] = None,
    _key: Annotated[object, Security(_API_KEY)] = None,
) -> TenantServices:
    """Return ``tenant_services_of`` as a dependency."""
    return tenant_services_of(request)


async def find_admitted_tenant(
    tenant: Annotated[TenantServices, Depends(find_tenant_services)],
) -> TenantServices:
    """Return the tenant's services and count one request against its limits.

    Raises:
        LimitExceededError: A limit is reached.
    """
    await tenant.limits.admit()
    return tenant


ApplicationDep = Annotated[Application, Depends(find_application)]
Tenant = Annotated[TenantServices, Depends(find_tenant_services)]
AdmittedTenant = Annotated[TenantServices, Depends(find_admitted_tenant)]

CollectionInPath = Annotated[
    str,
    BeforeValidator(lambda segment: storable(unquote(segment))),  # see ``request_state.escape_collection``
    Path(max_length=MAX_NAME_CHARS, description="Id or name of the collection, percent-encoded; an id wins."),
]
"""Parameter ``collection_id`` of a route; ``CollectionCatalogue`` finds the collection."""

CollectionInQuery = Annotated[CollectionReference, AfterValidator(storable)]
"""Query parameter ``collection_id`` of a list; ``listed_of_collection`` finds the collection."""

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows to return.")]
PartsLimit = Annotated[int, Query(ge=1, le=MAX_PARTS, description="Rows to return.")]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="Rows to skip.")]


def existing(value: T | None, kind: str, id_: object) -> T:
    """Return the object of a look-up.

    Raises:
        NotFoundError: There is none.
    """
    if value is None:
        raise NotFoundError(f"{kind} {id_} not found")
    return value


async def listed_of_collection(
    tenant: TenantServices,
    name_or_id: str | None,
    find: Callable[[UUID | None], Awaitable[T]],
    is_empty: Callable[[T], bool],
) -> T:
    """Return what a list has of a collection by id or name; an id wins. None: of all collections.

    What is left of a deleted collection can be listed by its id.

    Raises:
        NotFoundError: No such collection, and nothing is listed.
    """
    if name_or_id is None:
        return await find(None)

    async def find_of(collection_id: UUID) -> T:
        found = await find(collection_id)
        if is_empty(found):
            existing(await tenant.collections.find_by_id(collection_id), "Collection", collection_id)
        return found

    return await tenant.with_collection_id(name_or_id, find_of)


def check_provider(
    field: str, name: str | None, registry: EmbeddingProviderRegistry | LLMProviderRegistry
) -> None:
    """Check that a provider is configured.

    Raises:
        InvalidInputError: It is not; the message lists the configured ones.
    """
    if name is not None and name not in registry.list_providers():
        raise InvalidInputError(registry.unknown(name), field=field)


def check_at_most(field: str, value: int, limit: int) -> None:
    """Check a value against a limit that is a setting and so cannot be part of the schema.

    Raises:
        InvalidInputError: The value is larger.
    """
    if value > limit:
        raise InvalidInputError(f"{field} must be at most {limit}.", field=field)


LAMBDA_MARGIN_S = 2.0
"""Seconds of an invocation that a query reserves for ending its answer and logging it."""


def deadline_of(request: Request) -> Deadline:
    """Return the time limit from the request's arrival, on Lambda cut to the rest of the invocation."""
    timeout_s = application_of(request).config.query.query_timeout_s
    at = RequestState.of(request.scope).arrived_at + timeout_s
    left_s = invocation_time_s(request.scope)
    if left_s is not None:
        at = min(at, Deadline.after(left_s - LAMBDA_MARGIN_S).at)
    return Deadline(at)


def receive_once(body: bytes) -> Receive:
    """Return the ``receive`` of a request whose body has been read; it reports no disconnect."""
    messages: list[Message] = [{"type": "http.request", "body": body, "more_body": False}]

    async def receive() -> Message:
        if messages:
            return messages.pop()
        await asyncio.Event().wait()
        raise AssertionError("never set")

    return receive


def document_filter(
    kind: TypeAdapter[T], condition: Callable[[T], Mapping[str, Any]], *, description: str, example: str
) -> Callable[..., Awaitable[SqlCondition]]:
    """Return the dependency for the query parameter ``filters``, the JSON that bodies have as an object.

    It raises FilterError unless that is JSON, and RequestValidationError unless it is of this kind.
    """

    async def read(
        filters: Annotated[
            str | None, Query(max_length=MAX_FILTERS_BYTES, description=description, examples=[example])
        ] = None,
    ) -> SqlCondition:
        if filters is None:
            return condition_on_documents(None)
        try:
            parsed = kind.validate_json(filters)
        except ValidationError as exc:
            if exc.errors()[0]["type"] == "json_invalid":
                raise FilterError("filters must be a JSON object.", field="filters") from None
            errors = [{**error, "loc": ("query", "filters", *error["loc"])} for error in exc.errors()]
            raise RequestValidationError(errors) from None
        return condition_on_documents(condition(parsed))

    return read
