"""Bodies of ``/v1/queries``: the query log."""

from datetime import datetime
from typing import Self
from uuid import UUID

from pydantic import BaseModel

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
        )


class QueryLogList(BaseModel):
    """A page of the query log, newest first."""

    queries: list[QueryLogBody]
    limit: int
    offset: int
