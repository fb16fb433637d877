"""Bodies of ``/v1/cache``."""

from dataclasses import asdict
from datetime import datetime
from typing import Self

from pydantic import BaseModel, Field

from vectorforge.db.repositories.answer_cache_repo import CacheStatistics


class CacheBody(BaseModel):
    """What the tenant's caches hold, and of what use they were."""

    enabled: bool = Field(description="Whether answers are cached at all.")
    ttl_s: float = Field(description="Seconds for which an answer is fresh.")
    fresh: int = Field(description="Answers that the next equal question gets.")
    stale: int = Field(description="Expired ones, which may take the place of an answer that cannot be had.")
    outdated: int = Field(description="Of documents that have changed; deleted by and by.")
    bytes: int = Field(description="Of all these answers, as they are stored.")
    oldest_at: datetime | None
    newest_at: datetime | None
    embeddings: int = Field(description="Vectors of questions.")
    answered_last_day: int = Field(description="Questions of the last 24 hours that were answered.")
    hits_last_day: int = Field(description="Those of them that were answered from the cache.")

    @classmethod
    def of(cls, found: CacheStatistics, *, enabled: bool, ttl_s: float) -> Self:
        """The body for the statistics."""
        return cls(enabled=enabled, ttl_s=ttl_s, **asdict(found))


class CacheCleared(BaseModel):
    """What was deleted."""

    deleted: int = Field(description="Answers and vectors.")
