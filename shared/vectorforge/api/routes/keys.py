"""``/v1/keys``: the tenant's API keys."""

from datetime import timedelta
from typing import Annotated

from fastapi import APIRouter, Path, Request

from vectorforge.api.dependencies import Limit, Offset, Tenant
from vectorforge.api.identity.issued_keys import IssuedKeys
from vectorforge.api.responses import problems
from vectorforge.api.schemas.base import MAX_PAGE
from vectorforge.api.schemas.keys import KeyBody, KeyList, KeyRequest, NewKeyBody, RotationRequest

router = APIRouter(prefix="/v1/keys", tags=["keys"])

KeyId = Annotated[str, Path(max_length=64, description="16 hex digits: the part of the key after `vf_`.")]


@router.get("", responses=problems())
async def list_keys(tenant: Tenant, limit: Limit = MAX_PAGE, offset: Offset = 0) -> KeyList:
    """A page of the keys, the newest first; those that ended go after 90 days."""
    found = await tenant.api_keys.list(limit=limit, offset=offset)
    return KeyList(keys=[KeyBody.of(key) for key in found], limit=limit, offset=offset)


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
    _issued(request).forget(key_id)
    return NewKeyBody.of_new(made)


@router.delete("/{key_id}", responses=problems(404))
async def revoke_key(request: Request, key_id: KeyId, tenant: Tenant) -> KeyBody:
    """End a key now, in every process; requests that have begun go on."""
    ended = await tenant.api_keys.revoke(key_id)
    _issued(request).forget(key_id)
    return KeyBody.of(ended)


def _issued(request: Request) -> IssuedKeys:
    issued = request.app.state.issued_keys
    assert isinstance(issued, IssuedKeys)  # noqa: S101 - set by create_app
    return issued
