"""``/v1/keys``: the tenant's API keys."""

from datetime import date, datetime, timedelta
from typing import Annotated, Self

from fastapi import APIRouter, Path, Request
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import Limit, Offset, Tenant
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import MAX_PAGE, Body, RequestBody
from vectorforge.db.repositories.api_key_repo import (
    DEFAULT_OVERLAP,
    MAX_KEY_NAME_CHARS,
    MAX_LIFETIME,
    MAX_OVERLAP,
    NewApiKey,
)
from vectorforge.types import Scope

_HOUR_S = 3600


class KeyRequest(RequestBody):
    """A key to be made."""

    name: str = Field(min_length=1, max_length=MAX_KEY_NAME_CHARS, description="What it is for.")
    scope: Scope = Field(default=Scope.READ, description="write includes read, and admin includes write.")
    expires_in_days: int | None = Field(
        default=None, ge=1, le=MAX_LIFETIME.days, description="Without it the key does not end by itself."
    )


class RotationRequest(RequestBody):
    """For how long the old key is still good."""

    overlap_hours: float = Field(
        default=DEFAULT_OVERLAP.total_seconds() / _HOUR_S, ge=0, le=MAX_OVERLAP.total_seconds() / _HOUR_S
    )


class KeyBody(Body):
    """A key without its secret."""

    id: str
    name: str
    scope: Scope
    created_at: datetime
    expires_at: datetime | None
    revoked_at: datetime | None
    successor: str | None = Field(description="Id of the key that takes its place, once it was rotated.")
    last_used_on: date | None = Field(description="In UTC.")


class NewKeyBody(KeyBody):
    """A key that was just made."""

    key: str = Field(description="The key itself. It is shown this once.")

    @classmethod
    def of_new(cls, made: NewApiKey) -> Self:
        """Return the body of a key with its secret."""
        return cls(**KeyBody.of(made.key).model_dump(), key=made.secret)


class KeyList(BaseModel):
    """A page of the keys, the newest first."""

    keys: list[KeyBody]
    limit: int
    offset: int


router = APIRouter(prefix="/v1/keys", tags=["keys"])

KeyId = Annotated[str, Path(max_length=64, description="16 hex digits: the part of the key after `vf_`.")]


@router.get("", responses=problems())
async def list_keys(tenant: Tenant, limit: Limit = MAX_PAGE, offset: Offset = 0) -> KeyList:
    """List the keys, newest first; keys are deleted 90 days after they end."""
    keys = await tenant.api_keys.list(limit=limit, offset=offset)
    return KeyList(keys=[KeyBody.of(key) for key in keys], limit=limit, offset=offset)


@router.post("", status_code=201, responses=problems(409, 413, 415))
async def create_key(body: KeyRequest, tenant: Tenant) -> NewKeyBody:
    """Make a key. The answer is the only place where it can be read."""
    lifetime = None if body.expires_in_days is None else timedelta(days=body.expires_in_days)
    return NewKeyBody.of_new(await tenant.api_keys.create(body.name, body.scope, lifetime=lifetime))


@router.post("/{key_id}/rotate", status_code=201, responses=problems(404, 413, 415))
async def rotate_key(
    request: Request, key_id: KeyId, tenant: Tenant, body: RotationRequest | None = None
) -> NewKeyBody:
    """Make a key of the same name, scope and lifetime; the old one is good for a while still."""
    overlap = timedelta(hours=(body or RotationRequest()).overlap_hours)
    made = await tenant.api_keys.rotate(key_id, overlap=overlap)
    request.app.state.issued_keys.forget(key_id)
    return NewKeyBody.of_new(made)


@router.delete("/{key_id}", responses=problems(404))
async def revoke_key(request: Request, key_id: KeyId, tenant: Tenant) -> KeyBody:
    """Revoke a key now, in every process; running requests continue."""
    ended = await tenant.api_keys.revoke(key_id)
    request.app.state.issued_keys.forget(key_id)
    return KeyBody.of(ended)
