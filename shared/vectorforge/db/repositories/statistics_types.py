"""Types of query log statistics."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from typing import Literal, TypeAlias
from uuid import UUID

Bucket: TypeAlias = Literal["hour", "day"]


@dataclass(frozen=True, slots=True)
class Percentiles:
    """Milliseconds below which half, 95 and 99 of 100 lie, interpolated as percentile_cont does."""

    p50: float
    p95: float
    p99: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Usage:
    """Totals of a group of queries."""

    queries: int = 0
    outcomes: Mapping[str, int] = field(default_factory=dict)
    """Number of queries by outcome, without zeros."""
    cached: int = 0
    degraded: int = 0
    """Degraded answers."""
    low_quality: int = 0
    prompt_tokens: int = 0
    completion_tokens: int = 0
    cost_usd: float = 0.0
    """Cost of the queries whose price is known."""
    unpriced: int = 0
    """Queries that used a model of unknown price."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Activity(Usage):
    """Usage, and how long the queries took."""

    latency_ms: Mapping[str, Percentiles] = field(default_factory=dict)
    """By stage: total, retrieval, context, generation, first_token; those that were measured. Of models,
    variants and collections only total and first_token."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Interval(Activity):
    """One hour or day, in UTC."""

    start: datetime


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelActivity(Activity):
    """Queries answered by one model; both None without a model."""

    provider: str | None
    model: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class VariantActivity(Activity):
    """Queries with one variant's settings; None: without any."""

    variant: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class CollectionActivity(Activity):
    """Queries to one collection; its name is None if it was deleted."""

    collection_id: UUID
    name: str | None


@dataclass(frozen=True, slots=True, kw_only=True)
class DailyUsage(Usage):
    """One model on one day, in UTC."""

    start: datetime
    provider: str | None
    model: str | None


@dataclass(frozen=True, slots=True)
class Content:
    """Current contents of the collections."""

    collections: int
    documents: int
    chunks: int


@dataclass(frozen=True, slots=True)
class Statistics:
    """A tenant's queries in a range of time."""

    since: datetime
    until: datetime
    bucket: Bucket
    totals: Activity
    degraded_steps: Mapping[str, int]
    """Number of answers by degradation step; see ``pipeline.types.Degradation``."""
    series: Sequence[Interval]
    """Every hour or day of the range, oldest first, those without queries, too; the first and last are cut
    where the range is."""
    models: Sequence[ModelActivity]
    """At most 100, like the two below, those with the most queries first."""
    variants: Sequence[VariantActivity]
    collections: Sequence[CollectionActivity]
    content: Content
