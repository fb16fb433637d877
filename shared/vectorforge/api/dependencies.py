"""What routes ask for: the application, and the services of the tenant who is asking."""

from collections.abc import Sequence
from typing import Annotated

from fastapi import Depends, Query, Request, Security
from fastapi.security import APIKeyHeader, HTTPBearer

from vectorforge.api.schemas.base import MAX_OFFSET, MAX_PAGE, MAX_PARTS
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.errors import AuthenticationError, InvalidInputError

# For the OpenAPI document only: ``middleware.Authentication`` has decided before the body was read.
_BEARER = HTTPBearer(auto_error=False, scheme_name="bearer", description="An API key.")
_API_KEY = APIKeyHeader(name="X-Api-Key", auto_error=False, scheme_name="api_key", description="An API key.")


def find_application(request: Request) -> Application:
    """The application that the app was created for."""
    application = request.app.state.application
    assert isinstance(application, Application)  # noqa: S101 - set by create_app
    return application


def find_tenant_services(
    request: Request,
    application: Annotated[Application, Depends(find_application)],
    _bearer: Annotated[object, Security(_BEARER)] = None,
    _key: Annotated[object, Security(_API_KEY)] = None,
) -> TenantServices:
    """The services of the tenant found by the credential.

    Raises:
        AuthenticationError: There was none; the middleware should have refused already.
    """
    tenant_id = request.scope["state"].get("tenant_id")
    if not tenant_id:
        raise AuthenticationError
    return application.for_tenant(tenant_id)


ApplicationDep = Annotated[Application, Depends(find_application)]
Tenant = Annotated[TenantServices, Depends(find_tenant_services)]

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
