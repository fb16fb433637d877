"""``/v1/queries``: the query log, and the logged requests rebuilt."""

from base64 import urlsafe_b64decode, urlsafe_b64encode
from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Annotated, Any
from uuid import UUID

from fastapi import APIRouter, Query
from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field

from vectorforge.api.dependencies import CollectionInQuery, Tenant, existing, listed_of_collection
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import MAX_OFFSET, MAX_PAGE, Body, ModelName, ProviderName, storable
from vectorforge.db.repositories.paging import QueryFilter
from vectorforge.db.repositories.query_log_repo import QueryLog
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.replay import ChangeKind, ReplayStatus
from vectorforge.types import LoggedOutcome


def _in_utc(value: datetime) -> datetime:
    try:
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)
    except OverflowError:
        raise ValueError("beyond the years 1 to 9999") from None


Moment = Annotated[datetime, AfterValidator(_in_utc)]


class RangeParameters(BaseModel):
    """A range of time, and which of its queries."""

    model_config = ConfigDict(hide_input_in_errors=True)

    since: Moment | None = Field(default=None, description="Not before; ISO 8601, UTC without an offset.")
    until: Moment | None = Field(default=None, description="Before; ISO 8601, UTC without an offset.")
    collection_id: CollectionInQuery | None = None
    provider: Annotated[ProviderName, BeforeValidator(storable)] | None = None
    model: Annotated[ModelName, BeforeValidator(storable)] | None = Field(
        default=None, description="The name that the vendor answered with."
    )
    variant: Annotated[str, BeforeValidator(storable), Field(min_length=1, max_length=100)] | None = None

    def matching(self, collection_id: UUID | None) -> QueryFilter:
        """Return the filter of these parameters, with the id of their collection."""
        names = QueryFilter.__dataclass_fields__.keys() & type(self).model_fields.keys()
        return QueryFilter(**{name: getattr(self, name) for name in names} | {"collection_id": collection_id})


class LogParameters(RangeParameters):
    """Filters of the query log."""

    outcome: LoggedOutcome | None = Field(
        default=None, description='"started": the query is still running, or its process was killed.'
    )
    cached: bool | None = Field(default=None, description="Whether the answer came from the cache.")
    degraded: bool | None = Field(default=None, description="Whether the answer came down any step.")
    text: Annotated[str, BeforeValidator(storable), Field(min_length=1, max_length=200)] | None = Field(
        default=None, description="Part of the question, in upper or lower case."
    )


class QueryLogBody(Body):
    """One query, its answer and its figures."""

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
    quality: Annotated[dict[str, float | bool] | None, BeforeValidator(lambda quality: quality or None)]
    context_ms: float | None
    first_token_ms: float | None
    cost_usd: float | None
    steps: list[dict[str, float | str | None]] = Field(
        description="Figures of the steps of a search with `effort`: `queries` is their number."
    )


class QueryLogList(BaseModel):
    """List the query log, newest first."""

    queries: list[QueryLogBody]
    limit: int
    offset: int
    next: str | None = Field(description="`after` of the next page; null: this one was not full.")


def cursor_after(log: QueryLog) -> str:
    """Return the cursor of the page after a log."""
    assert log.created_at is not None  # noqa: S101 - the table has no row without
    place = f"{log.created_at.astimezone(UTC).isoformat()}/{log.id}"
    return urlsafe_b64encode(place.encode()).decode().rstrip("=")


def read_cursor(cursor: str) -> tuple[datetime, UUID]:
    """Return the time and id that ``cursor_after`` encoded.

    Raises:
        InvalidInputError: It was not made by ``cursor_after``.
    """
    try:
        place = urlsafe_b64decode(cursor.encode() + b"=" * (-len(cursor) % 4)).decode()
        moment, _, log_id = place.partition("/")
        return datetime.fromisoformat(moment).astimezone(UTC), UUID(log_id)
    except (ValueError, OverflowError):
        raise InvalidInputError("`after` must be the `next` of a page of queries.", field="after") from None


router = APIRouter(prefix="/v1/queries", tags=["query log"])


class PageParameters(LogParameters):
    """Query parameters of ``/v1/queries``."""

    limit: int = Field(default=50, ge=1, le=MAX_PAGE, description="Rows to return.")
    offset: int = Field(
        default=0,
        ge=0,
        le=MAX_OFFSET,
        description="Rows to skip; prefer `after`, which new rows do not shift.",
    )
    after: str | None = Field(default=None, max_length=200, description="`next` of the previous page.")


@router.get("", responses=problems(404))
async def list_queries(tenant: Tenant, parameters: Annotated[PageParameters, Query()]) -> QueryLogList:
    """List the query log, newest first."""
    if parameters.after is not None and parameters.offset:
        raise InvalidInputError("`after` and `offset` cannot be combined.", field="offset")
    after = None if parameters.after is None else read_cursor(parameters.after)
    is_first = after is None and not parameters.offset  # a later page may be empty

    async def find(collection_id: UUID | None) -> Sequence[QueryLog]:
        return await tenant.query_logs.find(
            parameters.matching(collection_id), limit=parameters.limit, offset=parameters.offset, after=after
        )

    logs = await listed_of_collection(
        tenant, parameters.collection_id, find, lambda found: is_first and not found
    )
    return QueryLogList(
        queries=[QueryLogBody.of(log) for log in logs],
        limit=parameters.limit,
        offset=parameters.offset,
        next=cursor_after(logs[-1]) if len(logs) == parameters.limit else None,
    )


@router.get("/{query_id}", responses=problems(404))
async def show_query(query_id: UUID, tenant: Tenant) -> QueryLogBody:
    """Return one query and its answer."""
    return QueryLogBody.of(existing(await tenant.query_logs.find_by_id(query_id), "Query", query_id))


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


@router.get("/{query_id}/replay", responses=problems(404))
async def replay_query(query_id: UUID, tenant: Tenant) -> ReplayBody:
    """Rebuild the request that went to the model; nothing is sent."""
    log = existing(await tenant.query_logs.find_by_id(query_id), "Query", query_id)
    return ReplayBody.of(await tenant.replayer.replay(log))
