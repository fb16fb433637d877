"""Bodies of ``/v1/stats``."""

from datetime import datetime
from typing import Literal
from uuid import UUID

from pydantic import BaseModel, ConfigDict, Field


class _Body(BaseModel):
    model_config = ConfigDict(from_attributes=True)


class PercentilesBody(_Body):
    """Milliseconds below which half, 95 and 99 of 100 queries lie."""

    p50: float
    p95: float
    p99: float


class UsageBody(_Body):
    """What some queries came to."""

    queries: int
    outcomes: dict[str, int] = Field(description="How many ended how; outcomes of no query are left out.")
    cached: int = Field(description="Answers from the cache.")
    degraded: int = Field(description="Answers that came down at least one step.")
    low_quality: int = Field(description="Answers that the quality checks found wanting.")
    prompt_tokens: int
    completion_tokens: int
    cost_usd: float = Field(description="Of the answers whose model has a known price.")
    unpriced: int = Field(description="Queries that used a model whose price is not known.")


class ActivityBody(UsageBody):
    """Usage, and how long the queries took."""

    latency_ms: dict[str, PercentilesBody] = Field(
        description="By stage: total, retrieval, context, generation, first_token (from the question to the "
        "first token); those that were measured. Of models, variants and collections only total and "
        "first_token."
    )


class IntervalBody(ActivityBody):
    """One hour or day in UTC."""

    start: datetime


class ModelActivityBody(ActivityBody):
    """Queries that one model answered; null: none was asked."""

    provider: str | None
    model: str | None


class VariantActivityBody(ActivityBody):
    """Queries with the settings of one variant; null: without any."""

    variant: str | None


class CollectionActivityBody(ActivityBody):
    """Queries to one collection; its name is null when it was deleted."""

    collection_id: UUID
    name: str | None


class ContentBody(_Body):
    """What there is to ask, now."""

    collections: int
    documents: int
    chunks: int


class StatisticsBody(_Body):
    """The queries of a range of time."""

    since: datetime
    until: datetime
    bucket: Literal["hour", "day"]
    totals: ActivityBody
    degraded_steps: dict[str, int] = Field(description="How many answers came down each step.")
    series: list[IntervalBody] = Field(description="Every interval, oldest first, empty ones too.")
    models: list[ModelActivityBody] = Field(description="At most 100, those with the most queries first.")
    variants: list[VariantActivityBody] = Field(description="As models.")
    collections: list[CollectionActivityBody] = Field(description="As models.")
    content: ContentBody


class DailyUsageBody(UsageBody):
    """One model on one day in UTC."""

    start: datetime
    provider: str | None
    model: str | None


class UsageList(_Body):
    """Usage by day, provider and model."""

    usage: list[DailyUsageBody] = Field(description="Oldest day first, at most 5,000 rows.")
