"""Bodies of ``/v1/queries``: the query log.

``/v1/queries``: the log of every question.
"""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from datetime import UTC, datetime
from typing import Annotated, Self
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import Tenant
from vectorforge.api.native.query_filters import LogParameters
from vectorforge.api.responses import problems
from vectorforge.api.schemas import MAX_OFFSET, MAX_PAGE
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import InvalidInputError, NotFoundError


class QueryLogBody(BaseModel):
    """One question, its answer, and how it went."""

    id: UUID
    collection_id: UUID
    query_text: str
    retrieved_chunk_ids: list[UUID]
    used_chunk_ids: list[UUID]
    generated_response: str | None
    latency_ms: float
    retrieval_ms: float | None
    generation_ms: float | None
    outcome: str
    provider: str | None
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    error_code: str | None
    error_stage: str | None
    created_at: datetime | None
    preset: str | None
    variant: str | None
    conversation_id: UUID | None
    cached: bool = Field(description="The answer was given before, to the same question.")
    degraded: list[str] = Field(description="Steps down from the full answer, in order.")
    quality: dict[str, float | bool] | None
    context_ms: float | None
    first_token_ms: float | None
    cost_usd: float | None

    @classmethod
    def of(cls, log: QueryLog) -> Self:
        """The body for the record."""
        return cls(
            id=log.id,
            collection_id=log.collection_id,
            query_text=log.query_text,
            retrieved_chunk_ids=list(log.retrieved_chunk_ids),
            used_chunk_ids=list(log.used_chunk_ids),
            generated_response=log.generated_response,
            latency_ms=log.latency_ms,
            retrieval_ms=log.retrieval_ms,
            generation_ms=log.generation_ms,
            outcome=log.outcome,
            provider=log.provider,
            model=log.model,
            prompt_tokens=log.prompt_tokens,
            completion_tokens=log.completion_tokens,
            error_code=log.error_code,
            error_stage=log.error_stage,
            created_at=log.created_at,
            preset=log.preset,
            variant=log.variant,
            conversation_id=log.conversation_id,
            cached=log.cached,
            degraded=list(log.degraded),
            quality=dict(log.quality) if log.quality else None,
            context_ms=log.context_ms,
            first_token_ms=log.first_token_ms,
            cost_usd=log.cost_usd,
        )


class QueryLogList(BaseModel):
    """A page of the query log, newest first."""

    queries: list[QueryLogBody]
    limit: int
    offset: int
    next: str | None = Field(
        description="Send it as `after` for the page behind this one; null: this one was not full."
    )


def cursor_after(log: QueryLog) -> str:
    """Names the place behind a log that was read from the table."""
    assert log.created_at is not None  # noqa: S101 - the table has no row without
    place = f"{log.created_at.astimezone(UTC).isoformat()}/{log.id}"
    return urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[datetime, UUID]:
    """The time and id that ``cursor_after`` was given.

    Raises:
        InvalidInputError: It was not made by ``cursor_after``.
    """
    try:
        place = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)).decode()
        moment, _, log_id = place.partition("/")
        return datetime.fromisoformat(moment).astimezone(UTC), UUID(log_id)
    except (ValueError, OverflowError):
        raise InvalidInputError("after must be the `next` of a page of queries.", field="after") from None


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
