"""Settings of questions: their bounds, and what is kept of their answers."""

from typing import Literal

from pydantic import Field

from vectorforge.config.sources import Section
from vectorforge.config.variants import VariantOverlays, VariantSplit


class QuerySettings(Section):
    """Bounds of a question."""

    max_query_length: int = Field(default=10_000, ge=1)
    """Characters; longer questions are cut, with a warning."""
    max_top_k: int = Field(default=100, ge=1, le=1000)
    max_passages_per_document: int = Field(default=0, ge=0, le=1000)
    """Of those found for a question, while others match; 0: no cap."""
    max_answer_tokens: int = Field(default=16_384, ge=1)
    query_timeout_s: float = Field(default=120.0, gt=0, le=900)
    history_max_tokens: int = Field(default=4096, ge=0)
    """Tokens of earlier messages in the prompt; the oldest exchanges go first. 0: no limit."""
    log_text: Literal["full", "redacted", "hash", "off"] = "redacted"
    """What the query log keeps of questions and answers, for tenants without a policy of their own: all;
    personal data and keys masked; a SHA-256; nothing."""
    max_conversations: int = Field(default=10_000, ge=1)
    """Stored ones of a tenant."""
    max_conversations_per_key: int = Field(default=5_000, ge=1)
    """Of those, begun with one API key or by one user."""
    max_conversation_messages: int = Field(default=1000, ge=2)
    """Of one stored conversation."""
    degraded_answers: bool = True
    """Without a model that answers: an earlier answer, marked as stale, or the passages; else an error."""
    default_collection: str = "default"
    """Name of the collection that ``/v1/rag/query`` asks when the request names none."""
    variants: VariantOverlays = Field(default_factory=dict)
    """Named overlays on these defaults, beside those of ``pipeline.variants``: a JSON object, or the path of
    a TOML file."""
    variant_split: VariantSplit = Field(default_factory=dict)
    """JSON object: variant -> weight, for requests that name no variant. Empty: those have none."""
    variant_split_by: Literal["tenant", "conversation"] = "tenant"
    """What keeps its variant; "conversation": the tenant, for a request outside of any."""
    profile_collection: str = Field(default="profiles", min_length=1, max_length=200)
    """Name of the collection that holds the profiles; made with the first of them."""


class CacheSettings(Section):
    """Answers and vectors that are kept, in the database for all processes and in each one's memory."""

    answer_cache: bool = True
    """Whether the same question on the same documents gets the answer that was given before."""
    answer_cache_ttl_s: float = Field(default=3600.0, gt=0, le=2_592_000)
    """For how long."""
    answer_cache_stale_s: float = Field(default=86_400.0, ge=0, le=2_592_000)
    """For how much longer it may take the place of an answer that cannot be had."""
    answer_cache_memory_bytes: int = Field(default=16 * 1024 * 1024, ge=0)
    """Answers kept in memory as well; 0: none."""
    embedding_cache_ttl_s: float = Field(default=86_400.0, ge=0, le=2_592_000)
    """For how long vectors of questions are kept in the database, but for those made here; 0: not at all."""


class StreamSettings(Section):
    """Answers that are kept for clients who come back."""

    stream_buffer_s: float = Field(default=600.0, gt=0, le=86_400)
    """For how long, after their end."""
    stream_buffer_bytes: int = Field(default=8 * 1024 * 1024, ge=1)
    """Of one answer's events at most, in memory and in the database; a longer one is not kept."""
    resume_grace_s: float = Field(default=30.0, ge=0, le=900)
    """How long an answer that nobody reads any more is written on."""
    idempotency_kept_s: float = Field(default=86_400.0, gt=0, le=86_400)
    """For how long an answer under an ``Idempotency-Key`` is given again."""
    idempotency_max_keys: int = Field(default=10_000, ge=1, le=1_000_000)
    """Of each tenant; the oldest answers are forgotten first."""
    idempotency_max_bytes: int = Field(default=256 * 1024 * 1024, ge=1)
    """Of each tenant's answers under keys; the oldest are dropped first, and their keys are refused."""
