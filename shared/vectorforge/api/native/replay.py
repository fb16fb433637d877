"""``/v1/queries/{id}/replay``: the request that went to the model, rebuilt from the query log."""

from typing import Any
from uuid import UUID

from fastapi import APIRouter
from pydantic import Field

from vectorforge.api.dependencies import Tenant, existing
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import Body
from vectorforge.pipeline.replay import ChangeKind, ReplayStatus


class ReplayChangeBody(Body):
    """A difference from the time of the query."""

    kind: ChangeKind
    detail: str
    chunk_id: UUID | None


class ReplayBody(Body):
    """A logged query's request to its model."""

    query_id: UUID
    status: ReplayStatus = Field(
        description='"equal": its hash is the logged one; "not_rebuilt": a part of it does not exist.'
    )
    logged_sha256: str | None
    rebuilt_sha256: str | None
    messages: list[dict[str, Any]] | None = Field(
        description="As sent, with zeros for the random number of the fence, which is not logged."
    )
    settings: dict[str, Any] = Field(description="Model and sampling of the request.")
    changes: list[ReplayChangeBody] = Field(description="What has changed since, or was never logged.")


router = APIRouter(prefix="/v1/queries/{query_id}/replay", tags=["query log"])


@router.get("", responses=problems(404))
async def replay_query(query_id: UUID, tenant: Tenant) -> ReplayBody:
    """Rebuild the request that went to the model; nothing is sent."""
    log = existing(await tenant.query_logs.find_by_id(query_id), "Query", query_id)
    return ReplayBody.of(await tenant.replayer.replay(log))
