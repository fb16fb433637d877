"""Settings of queries: limits, caches, stored streams, and variants (named overlays, JSON or TOML)."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_settings import NoDecode

from vectorforge.config.base import Section

MAX_VARIANTS = 50
"""Maximum per deployment: each variant is a tag value of metrics, which are billed by their number."""
MAX_FILE_BYTES = 1_000_000

VariantName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""Used in logs and as a tag of metrics."""
CollectionName: TypeAlias = Annotated[
    str, StringConstraints(strip_whitespace=True, min_length=1, max_length=200)
]
Weight: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


def _with_placeholder(template: str) -> str:
    if "{context}" not in template:
        raise ValueError("must contain {context}")
    return template


SystemPrompt: TypeAlias = Annotated[str, Field(max_length=50_000), AfterValidator(_with_placeholder)]


class VariantOverlay(BaseModel):
    """Overlay of one variant; only explicitly set fields apply (``fields``), not the defaults here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    top_k: int = Field(default=10, ge=1)
    min_score: float | None = 0.0
    embedding_provider: str | None = Field(default=None, max_length=100)
    llm_provider: str | None = Field(default=None, max_length=100)
    llm_model: str | None = Field(default=None, max_length=200)
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)
    system_prompt: SystemPrompt | None = None
    rewrite: Literal["auto"] | bool = "auto"
    effort: Literal["minimal", "low", "medium", "auto"] = "minimal"
    use_cache: bool = True
    search_mode: Literal["hybrid", "dense", "lexical"] | None = None
    mmr_lambda: float | None = Field(default=None, ge=0, le=1)

    @property
    def fields(self) -> dict[str, Any]:
        """Explicitly set fields of ``QueryConfig``; null is a value."""
        return self.model_dump(exclude_unset=True)


def read_variants(value: Any) -> Any:
    """Read ``VECTORFORGE_VARIANTS``: a JSON object, else the path of a TOML file with a table per variant.

    Raises:
        ValueError: It is neither; the text does not contain the value.
    """
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        return read_object(value)
    import tomllib

    try:
        with Path(value).expanduser().open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"the file is larger than {MAX_FILE_BYTES:,} bytes")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as exc:
        raise ValueError(
            f"neither a JSON object nor the path of a file that can be read ({type(exc).__name__})"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ValueError("the file is not TOML") from None


def read_object(value: Any) -> Any:
    """Parse a JSON object; other values are left to the type's validation.

    Raises:
        ValueError: The text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None


VariantOverlays: TypeAlias = Annotated[
    dict[VariantName, VariantOverlay],
    NoDecode,
    BeforeValidator(read_variants),
    Field(max_length=MAX_VARIANTS),
]
"""Name -> overlay."""
VariantSplit: TypeAlias = Annotated[dict[VariantName, Weight], NoDecode, BeforeValidator(read_object)]
"""Name -> weight."""


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
    rewrite_timeout_s: float = Field(default=4.0, gt=0, le=60)
    """Time for a model to rewrite a follow-up query; then words of earlier turns are searched for instead."""
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
    default_collection: CollectionName = "default"
    """Collection of ``/v1/rag/query`` when the request names none."""
    variants: VariantOverlays = Field(default_factory=dict)
    """Named overlays on these defaults, in addition to ``pipeline.variants``: a JSON object, or the path of a
    TOML file."""
    variant_split: VariantSplit = Field(default_factory=dict)
    """JSON object: variant -> weight, for requests that name no variant."""
    variant_split_by: Literal["tenant", "conversation"] = "tenant"
    """Unit with a stable variant; requests outside a conversation use the tenant."""
    profile_collection: CollectionName = "profiles"
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
