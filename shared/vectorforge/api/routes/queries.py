"""``/v1/queries``: the log of every question."""

from typing import Annotated
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import Field

from vectorforge.api.dependencies import Tenant
from vectorforge.api.responses import problems
from vectorforge.api.schemas.base import MAX_OFFSET, MAX_PAGE
from vectorforge.api.schemas.queries import QueryLogBody, QueryLogList, cursor_after, read_cursor
from vectorforge.api.schemas.query_filter import LogParameters
from vectorforge.errors import InvalidInputError, NotFoundError

router = APIRouter(prefix="/v1/queries", tags=["query log"])


class PageParameters(LogParameters):
    """Of ``/v1/queries``."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE, description="Rows to return.")
    offset: int = Field(
        default=0,
        ge=0,
        le=MAX_OFFSET,
        description="Rows to skip; while queries come in, rows come twice. Use `after` instead.",
    )
    after: str | None = Field(
        default=None, max_length=200, description="`next` of the page before: the rows behind its last one."
    )


@router.get("", responses=problems())
async def list_queries(tenant: Tenant, parameters: Annotated[PageParameters, Query()]) -> QueryLogList:
    """A page of the query log, newest first."""
    if parameters.after is not None and parameters.offset:
        raise InvalidInputError("after and offset exclude each other.", field="offset")
    found = await tenant.query_logs.find(
        parameters.matching(),
        limit=parameters.limit,
        offset=parameters.offset,
        after=None if parameters.after is None else read_cursor(parameters.after),
    )
    return QueryLogList(
        queries=[QueryLogBody.of(log) for log in found],
        limit=parameters.limit,
        offset=parameters.offset,
        next=cursor_after(found[-1]) if len(found) == parameters.limit else None,
    )


@router.get("/{query_id}", responses=problems(404))
async def show_query(query_id: UUID, tenant: Tenant) -> QueryLogBody:
    """One question and its answer."""
    log = await tenant.query_logs.find_by_id(query_id)
    if log is None:
        raise NotFoundError(f"Query {query_id} not found")
    return QueryLogBody.of(log)
