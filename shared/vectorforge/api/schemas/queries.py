"""Bodies of ``/v1/queries``: the query log."""

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.db.repositories.query_log_repo import QueryLog


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
