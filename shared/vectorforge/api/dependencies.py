"""What routes ask for: the application, and the services of the tenant who is asking."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Query, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from vectorforge.api.schemas import MAX_OFFSET, MAX_PAGE, MAX_PARTS
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import AuthenticationError, InvalidInputError
from vectorforge.types import Principal

# For the OpenAPI document only: ``middleware.Authentication`` has decided before the body was read.
_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key or an access token.")
_API_KEY = APIKeyHeader(name="X-Api-Key", auto_error=False, scheme_name="api_key", description="An API key.")


def application_of(request: Request) -> Application:
    """The application that the app was created for."""
    application = request.app.state.application
    assert isinstance(application, Application)  # noqa: S101 - set by create_app
    return application


def tenant_services_of(request: Request) -> TenantServices:
    """The services of the tenant found by the credential; the same throughout a request.

    Raises:
        AuthenticationError: There was none; the middleware should have refused already.
    """
    state = request.scope["state"]
    services = state.get("tenant_services")
    if services is None:
        tenant_id = state.get("tenant_id")
        if not tenant_id:
            raise AuthenticationError
        services = application_of(request).for_tenant(tenant_id, state["query_id"])
        state["tenant_services"] = services
        state["admission"] = services.limits.admission
    assert isinstance(services, TenantServices)  # noqa: S101 - set above
    return services


def principal_of(request: Request) -> Principal:
    """Who sends the request, found by the credential.

    Raises:
        AuthenticationError: There was none; the middleware should have refused already.
    """
    principal = request.scope["state"].get("principal")
    if not isinstance(principal, Principal):
        raise AuthenticationError
    return principal


# Coroutine functions although they await nothing: FastAPI sends others to a thread, which takes longer than
# all else that it does for a request (https://fastapi.tiangolo.com/async/#dependencies).
async def find_application(request: Request) -> Application:
    """``application_of`` as a dependency."""
    return application_of(request)


async def find_tenant_services(
    request: Request,
    _bearer: Annotated[object, Security(_BEARER)] = None,
    _key: Annotated[object, Security(_API_KEY)] = None,
) -> TenantServices:
    """``tenant_services_of`` as a dependency."""
    return tenant_services_of(request)


async def find_admitted_tenant(
    tenant: Annotated[TenantServices, Depends(find_tenant_services)],
) -> TenantServices:
    """``find_tenant_services`` for a route that costs something: one more request of the tenant's minute.

    Raises:
        LimitExceededError: There were too many.
    """
    await tenant.limits.admit()
    return tenant


ApplicationDep = Annotated[Application, Depends(find_application)]
Tenant = Annotated[TenantServices, Depends(find_tenant_services)]
AdmittedTenant = Annotated[TenantServices, Depends(find_admitted_tenant)]

Limit = Annotated[int, Query(ge=1, le=MAX_PAGE, description="Rows to return.")]
PartsLimit = Annotated[int, Query(ge=1, le=MAX_PARTS, description="Rows to return.")]
Offset = Annotated[int, Query(ge=0, le=MAX_OFFSET, description="Rows to skip.")]


def check_provider(field: str, name: str | None, available: Sequence[str]) -> None:
    """Refuse a provider that is not configured.

    Raises:
        InvalidInputError: There is none of this name; the text lists those that are there.
    """
    if name is not None and name not in available:
        names = ", ".join(available) or "none"
        raise InvalidInputError(f"There is no such provider; there are: {names}.", field=field)


def check_at_most(field: str, value: int, limit: int) -> None:
    """Hold a value to a limit that is a setting and so cannot stand in the schema.

    Raises:
        InvalidInputError: The value is larger.
    """
    if value > limit:
        raise InvalidInputError(f"{field} must be at most {limit}.", field=field)
