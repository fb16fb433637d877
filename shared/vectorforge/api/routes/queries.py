"""``/v1/queries``: the log of every question."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query

from vectorforge.api.dependencies import Limit, Offset, Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.queries import QueryLogBody, QueryLogList
from vectorforge.errors import NotFoundError
from vectorforge.pipeline.types import LoggedOutcome

router = APIRouter(prefix="/v1/queries", tags=["query log"])


@router.get("", responses=problems())
async def list_queries(
    tenant: Tenant,
    collection_id: Annotated[UUID | None, Query()] = None,
    outcome: Annotated[
        LoggedOutcome | None,
        Query(
            description='How the query ended; "started": it is still running, or was killed before its end.'
        ),
    ] = None,
    limit: Limit = 50,
    offset: Offset = 0,
) -> QueryLogList:
    """A page of the query log, newest first."""
    found = await tenant.query_logs.list(collection_id, limit=limit, offset=offset, outcome=outcome)
    return QueryLogList(queries=[QueryLogBody.of(log) for log in found], limit=limit, offset=offset)


@router.get("/{query_id}", responses=problems(404))
async def show_query(query_id: UUID, tenant: Tenant) -> QueryLogBody:
    """One question and its answer."""
    log = await tenant.query_logs.find_by_id(query_id)
    if log is None:
        raise NotFoundError(f"Query {query_id} not found")
    return QueryLogBody.of(log)
