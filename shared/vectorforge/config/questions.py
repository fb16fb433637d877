"""Settings of queries, caches and stored streams."""

from typing import Literal

from pydantic import Field

from vectorforge.config.sources import Section
from vectorforge.config.variants import VariantOverlays, VariantSplit


class QuerySettings(Section):
    """Limits and defaults of queries."""

    max_query_length: int = Field(default=10_000, ge=1)
    """Characters; longer queries are truncated with a warning."""
    max_top_k: int = Field(default=100, ge=1, le=1000)
    max_passages_per_document: int = Field(default=0, ge=0, le=1000)
    """Chunks per document in a result, while others match; 0: unlimited."""
    max_answer_tokens: int = Field(default=16_384, ge=1)
    query_timeout_s: float = Field(default=120.0, gt=0, le=900)
    history_max_tokens: int = Field(default=4096, ge=0)
    """Tokens of earlier messages in the prompt; the oldest turns are dropped first. 0: no limit."""
    log_text: Literal["full", "redacted", "hash", "off"] = "redacted"
    """Texts in the query log, for tenants without their own policy: full; personal data and keys masked; a
    SHA-256; none."""
    max_conversations: int = Field(default=10_000, ge=1)
    """Stored conversations of a tenant."""
    max_conversations_per_key: int = Field(default=5_000, ge=1)
    """Stored conversations of one API key or user."""
    max_conversation_messages: int = Field(default=1000, ge=2)
    """Messages of one stored conversation."""
    degraded_answers: bool = True
    """Without an available model, return a stale cached answer or the chunks instead of an error."""
    default_collection: str = "default"
    """Collection of ``/v1/rag/query`` when the request names none."""
    variants: VariantOverlays = Field(default_factory=dict)
    """Named overlays on these defaults, in addition to ``pipeline.variants``: a JSON object, or the path of a
    TOML file."""
    variant_split: VariantSplit = Field(default_factory=dict)
    """JSON object: variant -> weight, for requests that name no variant."""
    variant_split_by: Literal["tenant", "conversation"] = "tenant"
    """Unit with a stable variant; requests outside a conversation use the tenant."""
    profile_collection: str = Field(default="profiles", min_length=1, max_length=200)
    """Collection of the profiles, created with the first one."""


class CacheSettings(Section):
    """Caches of answers and vectors, in the database and in memory."""

    answer_cache: bool = True
    """Return the cached answer for the same query on unchanged documents."""
    answer_cache_ttl_s: float = Field(default=3600.0, gt=0, le=2_592_000)
    """Time to live of a cached answer."""
    answer_cache_stale_s: float = Field(default=86_400.0, ge=0, le=2_592_000)
    """Further time during which a stale answer may serve as a fallback."""
    answer_cache_memory_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Size of the in-memory cache of answers; 0 disables it."""
    embedding_cache_ttl_s: float = Field(default=86_400.0, ge=0, le=2_592_000)
    """Time to live of remote query vectors in the database; 0 disables the cache."""


class StreamSettings(Section):
    """Answers stored for resuming and idempotent requests."""

    stream_buffer_s: float = Field(default=600.0, gt=0, le=86_400)
    """Time to live after the end of an answer."""
    stream_buffer_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Size limit of one answer's events, in memory and in the database; longer ones are not stored."""
    resume_grace_s: float = Field(default=30.0, ge=0, le=900)
    """Time that generation continues after a disconnect."""
    idempotency_kept_s: float = Field(default=86_400.0, gt=0, le=86_400)
    """Time to live of an answer under an ``Idempotency-Key``."""
    idempotency_max_keys: int = Field(default=10_000, ge=1, le=1_000_000)
    """Keys per tenant; the oldest answers are dropped first."""
    idempotency_max_bytes: int = Field(default=256 * 1024 * 1024, ge=1)
    """Size of a tenant's answers under keys; the oldest are dropped first, and their keys are rejected."""
