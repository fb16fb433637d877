"""``/v1/queries/{id}/feedback``: ratings of an answer."""

from datetime import datetime
from typing import Annotated, Literal
from uuid import UUID

from fastapi import APIRouter, Request
from pydantic import BaseModel, Field

from vectorforge.api.dependencies import Tenant, existing, principal_of
from vectorforge.api.error_schemas import problems
from vectorforge.api.schemas import Body, RequestBody
from vectorforge.db.repositories.feedback_repo import MAX_COMMENT_CHARS, MAX_SHOULD_CITE, Feedback, Rating
from vectorforge.errors import NotFoundError

Reason = Literal[
    "incorrect",
    "incomplete",
    "irrelevant",
    "wrong_citation",
    "outdated",
    "wrongly_refused",
    "unclear",
    "other",
]


class FeedbackRequest(RequestBody):
    """Rating of an answer."""

    rating: Rating
    reasons: list[Reason] = Field(default_factory=list, max_length=8)
    comment: str = Field(
        default="",
        max_length=MAX_COMMENT_CHARS,
        description="Stored under the tenant's policy for texts of the query log.",
    )
    should_cite: Annotated[list[UUID], Field(max_length=MAX_SHOULD_CITE)] = Field(
        default_factory=list, description="Ids of chunks that the answer should have cited."
    )


class FeedbackBody(Body):
    """A stored rating."""

    query_id: UUID
    rating: Rating
    reasons: list[str]
    comment: str
    should_cite: list[UUID]
    created_at: datetime
    updated_at: datetime


class ListedFeedback(FeedbackBody):
    """A stored rating, and the credential that gave it."""

    credential: str = Field(description="Name of the credential in logs.")


class FeedbackList(BaseModel):
    """All ratings of a query."""

    feedback: list[ListedFeedback] = Field(description="At most 1,000, oldest first.")


router = APIRouter(prefix="/v1/queries/{query_id}/feedback", tags=["feedback"])


@router.post("", responses=problems(404, 413, 415))
async def rate_answer(
    request: Request, query_id: UUID, body: FeedbackRequest, tenant: Tenant
) -> FeedbackBody:
    """Rate an answer; a second rating by the same credential replaces the first.

    404 with `Retry-After`: the query is running, or its record has not reached the query log yet.
    """
    feedback = Feedback(
        query_id,
        principal_of(request).credential,
        body.rating,
        tuple(dict.fromkeys(body.reasons)),
        await tenant.caches.log_texts.allowed(body.comment),
        tuple(dict.fromkeys(body.should_cite)),
    )
    return FeedbackBody.of(await tenant.feedback.store(feedback))


@router.get("", responses=problems(404))
async def list_feedback(query_id: UUID, tenant: Tenant) -> FeedbackList:
    """List all ratings of an answer."""
    existing(await tenant.query_logs.find_by_id(query_id), "Query", query_id)
    ratings = await tenant.feedback.of_query(query_id)
    return FeedbackList(feedback=[ListedFeedback.of(rating) for rating in ratings])


@router.delete("", status_code=204, responses=problems(404))
async def withdraw_rating(request: Request, query_id: UUID, tenant: Tenant) -> None:
    """Delete the credential's own rating of an answer."""
    if not await tenant.feedback.delete(query_id, principal_of(request).credential):
        raise NotFoundError(f"Feedback on query {query_id} not found")
