"""Every setting of VectorForge, from ``VECTORFORGE_*`` environment variables; read once, then immutable.

Nothing else reads the environment. Secrets are ``SecretStr``: they never appear in logs, errors or ``repr``.
"""

import re
from decimal import Decimal
from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, SecretStr, ValidationError, model_validator
from pydantic_settings import BaseSettings, SettingsConfigDict, SettingsError

from vectorforge.errors import ConfigurationError
from vectorforge.principal import Scope
from vectorforge.variant_settings import VariantOverlays, VariantSplit


def _env(*names: str, **kwargs: Any) -> Any:
    """A field read from the first of these variables that is set (``VECTORFORGE_`` is put in front)."""
    field_name, *variables = names
    choices = AliasChoices(*(f"VECTORFORGE_{name}" for name in variables), field_name)
    return Field(validation_alias=choices, **kwargs)


class _Section(BaseSettings):
    model_config = SettingsConfigDict(
        env_prefix="VECTORFORGE_",
        env_ignore_empty=True,  # VARIABLE= is how shells and compose files unset one
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # a mistyped secret must not be printed
        populate_by_name=True,
    )


class ModelPrice(BaseModel):
    """US dollars per million tokens of one model."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    input: float = Field(ge=0, allow_inf_nan=False)
    output: float = Field(ge=0, allow_inf_nan=False)
    long_prompt_over: int | None = Field(default=None, ge=1)
    """Prompt tokens beyond which the whole call has the two prices below."""
    long_input: float | None = Field(default=None, ge=0, allow_inf_nan=False)
    long_output: float | None = Field(default=None, ge=0, allow_inf_nan=False)

    @model_validator(mode="after")
    def _long_prompts_are_whole(self) -> Self:
        given = [value is not None for value in (self.long_prompt_over, self.long_input, self.long_output)]
        if any(given) and not all(given):
            raise ValueError("long_prompt_over, long_input and long_output belong together")
        return self

    def rates(self, prompt_tokens: int) -> tuple[float, float]:
        """The price of prompt and completion, for a call with a prompt of this length."""
        if (
            self.long_input is None
            or self.long_output is None
            or prompt_tokens <= (self.long_prompt_over or 0)
        ):
            return self.input, self.output
        return self.long_input, self.long_output


class DatabaseSettings(_Section):
    """Where the data lives. Without a URL it is the embedded PostgreSQL."""

    data_dir: Path | None = None
    """Folder of the embedded PostgreSQL; default: the user's folder for application data."""

    database_url: SecretStr | None = None
    """postgresql:// URL of the app role (no superuser, no BYPASSRLS)."""
    database_auth: Literal["password", "iam"] = "password"
    """How app and log writer log in. "iam": with a token of RDS, made for each connection; their URLs then
    hold no password and have sslmode=verify-full."""
    migrator_database_url: SecretStr | None = None
    """postgresql:// URL of the role that owns the schema; only ``vectorforge migrate`` uses it."""
    migrator_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret {"username": ..., "password": ...} for that URL, which then has
    neither: what RDS makes, and exchanges, for its master user."""
    log_writer_database_url: SecretStr | None = None
    """postgresql:// URL of the role that may only add to the query log."""
    eraser_database_url: SecretStr | None = None
    """postgresql:// URL of the role that may only read and delete; ``vectorforge erase`` uses it."""
    database_pool_size: int = Field(default=10, ge=1, le=200)
    """Connections of one process at most."""
    database_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Longest wait for a free connection, and for one statement."""
    database_pipeline: bool = True
    """Whether a transaction of one statement takes one round trip; else four, as with any driver."""
    log_retention_days: int = Field(default=90, ge=0, le=36_500)
    """Days that queries and ended jobs are kept; 0: for ever."""
    log_text_retention_days: int = Field(default=30, ge=0, le=36_500)
    """Days after which the query log's questions and answers are emptied; 0: they stay with their row."""
    erased_logs: Literal["text", "rows"] = "text"
    """What erasing makes of queries that used what is erased: it empties their texts, or deletes them."""


class LLMSettings(_Section):
    """Which model writes the answers. The first provider with credentials is the default."""

    default_provider: str = _env("default_provider", "DEFAULT_LLM_PROVIDER", default="openai")
    default_model: str = _env("default_model", "DEFAULT_LLM_MODEL", default="gpt-4o")
    """Model of the OpenAI-shaped provider when a request names none."""
    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    openai_org_id: str | None = None
    anthropic_api_key: SecretStr | None = None
    anthropic_base_url: str | None = None
    anthropic_model: str = "claude-sonnet-4-20250514"
    ollama_base_url: str | None = None
    """Address of an Ollama server, e.g. http://localhost:11434; setting it registers the provider."""
    ollama_model: str = "llama3.3"
    google_api_key: SecretStr | None = None
    google_base_url: str | None = None
    google_model: str = "gemini-2.5-flash"
    cohere_api_key: SecretStr | None = None
    cohere_base_url: str | None = None
    cohere_model: str = "command-a-03-2025"
    max_serve_base_url: str | None = None
    """Address of a MAX Serve, e.g. http://localhost:8000; setting it registers the provider."""
    max_serve_model: str = "meta-llama/Llama-3.3-70B-Instruct"
    max_serve_mode: Literal["chat", "completions"] = "chat"
    """"completions": the prompt is made here, in Llama 3.3's format."""
    bedrock_model: str | None = None
    """Id or ARN of a model or inference profile on Amazon Bedrock; setting it registers the provider."""
    bedrock_region: str | None = None
    """AWS region of Bedrock; unset: as the AWS SDK finds it."""
    bedrock_base_url: str | None = None
    """Address of Bedrock's API when it is not AWS's own, such as a VPC endpoint's."""
    llm_timeout_s: float = Field(default=60.0, gt=0, le=900)
    """Longest wait for a complete answer, and for a stream's first token (between tokens at most 10 s)."""
    llm_max_retries: int = Field(default=3, ge=0, le=10)
    model_prices: dict[str, ModelPrice] = Field(default_factory=dict)
    """JSON object: model, or provider/model -> its price; they go before the published ones."""
    llm_fallbacks: list[str] = Field(default_factory=list)
    """JSON list of providers, each alone or with a model ("ollama:llama3.3"): who writes, in this order, when
    the default provider does not. Empty: nobody, since the documents' text goes to whoever writes."""
    llm_circuit_failures: int = Field(default=5, ge=0, le=1000)
    """Failed calls in a row after which a model is not asked for a while; 0: it always is."""
    llm_circuit_open_s: float = Field(default=30.0, gt=0, le=3600)
    """For how long; then one call tries it again."""
    extractive_answers: bool = True
    """Answer by quoting the best sentences when no model is configured."""


class EmbeddingSettings(_Section):
    """Which model turns text into vectors, for collections that do not say."""

    default_provider: str = _env("default_provider", "DEFAULT_EMBEDDING_PROVIDER", default="local")
    openai_api_key: SecretStr | None = None
    openai_base_url: str | None = None
    openai_embedding_model: str = "text-embedding-3-small"
    openai_embedding_dimension: int = Field(default=1536, ge=1, le=16_000)
    embedding_base_url: str | None = None
    """An OpenAI-shaped embeddings endpoint of your own (provider name "http")."""
    embedding_api_key: SecretStr | None = None
    embedding_model: str | None = None
    embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    cohere_api_key: SecretStr | None = None
    cohere_base_url: str | None = None
    cohere_embedding_model: str = "embed-v4.0"
    cohere_embedding_dimension: int = Field(default=1536, ge=1, le=16_000)
    google_api_key: SecretStr | None = None
    google_base_url: str | None = None
    google_embedding_model: str = "gemini-embedding-001"
    google_embedding_dimension: int = Field(default=3072, ge=1, le=16_000)
    bedrock_embedding_model: str | None = None
    """A Titan or Cohere model on Amazon Bedrock, e.g. amazon.titan-embed-text-v2:0; setting it registers the
    provider "bedrock"."""
    bedrock_embedding_dimension: int | None = Field(default=None, ge=1, le=16_000)
    """Length of its vectors; unset: the model's own."""
    bedrock_region: str | None = None
    bedrock_base_url: str | None = None
    embedding_timeout_s: float = Field(default=30.0, gt=0, le=600)
    embedding_max_retries: int = Field(default=3, ge=0, le=10)
    embedding_batch_size: int = Field(default=64, ge=1, le=2048)
    """Texts sent in one call."""
    embedding_cache_entries: int = Field(default=10_000, ge=0)
    """Vectors kept in memory; 0 switches the cache off."""
    model_cache_dir: Path | None = None
    """Where the local model is built once; default: the user's cache folder."""


class IngestionSettings(_Section):
    """How documents become chunks."""

    chunk_size_chars: int = Field(default=800, ge=50, le=20_000)
    chunk_overlap_chars: int = Field(default=150, ge=0, le=10_000)
    max_document_bytes: int = Field(default=25 * 1024 * 1024, ge=1)
    max_document_chars: int = Field(default=10_000_000, ge=1)
    extraction_timeout_s: float = Field(default=120.0, gt=0)
    max_documents_per_request: int = Field(default=100, ge=1, le=10_000)
    reembed_passages_per_minute: int | None = Field(default=None, ge=1)
    """Of each collection whose embedding model is being changed; unset: as many as the provider takes."""

    @model_validator(mode="after")
    def _overlap_is_smaller(self) -> Self:
        if self.chunk_overlap_chars >= self.chunk_size_chars:
            raise ValueError(
                "VECTORFORGE_CHUNK_OVERLAP_CHARS must be smaller than VECTORFORGE_CHUNK_SIZE_CHARS"
            )
        return self


class QuerySettings(_Section):
    """Bounds of a question."""

    max_query_length: int = Field(default=10_000, ge=1)
    """Characters; longer questions are cut, with a warning."""
    max_top_k: int = Field(default=100, ge=1, le=1000)
    max_answer_tokens: int = Field(default=16_384, ge=1)
    query_timeout_s: float = Field(default=120.0, gt=0, le=900)
    history_max_tokens: int = Field(default=4096, ge=0)
    """Tokens of earlier messages in the prompt; the oldest exchanges go first. 0: no limit."""
    log_text: Literal["full", "redacted", "hash", "off"] = "redacted"
    """What the query log keeps of questions and answers, for tenants without a policy of their own: all;
    personal data and keys masked; a SHA-256; nothing."""
    max_conversations: int = Field(default=10_000, ge=1)
    """Stored ones of a tenant."""
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


class RerankSettings(_Section):
    """A model that orders passages anew, behind HTTP."""

    rerank_url: str | None = Field(default=None, pattern=r"^https?://")
    """What is posted to, with its path; unset: nothing is reranked."""
    rerank_format: Literal["cohere", "tei"] = "cohere"
    rerank_model: str | None = None
    """Cohere's wants one; TEI serves one."""
    rerank_api_key: SecretStr | None = None
    rerank_candidates: int = Field(default=32, ge=2, le=1000)
    """Passages it looks at."""
    rerank_timeout_s: float = Field(default=2.0, gt=0, le=60)

    @model_validator(mode="after")
    def _cohere_wants_a_model(self) -> Self:
        if self.rerank_url and self.rerank_format == "cohere" and not self.rerank_model:
            raise ValueError("VECTORFORGE_RERANK_URL also needs VECTORFORGE_RERANK_MODEL, or the format tei")
        return self


class CacheSettings(_Section):
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


class StreamSettings(_Section):
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


class LimitSettings(_Section):
    """Limits of tenants that have none of their own; unset: none."""

    limit_requests_per_minute: int | None = Field(default=None, ge=1, le=1_000_000)
    limit_tokens_per_day: int | None = Field(default=None, ge=1, le=10**15)
    limit_cost_per_month_usd: Decimal | None = Field(default=None, gt=0, lt=10**10, decimal_places=2)
    limit_concurrent_streams: int | None = Field(default=None, ge=1, le=1_000_000)


class ServerSettings(_Section):
    """The HTTP door."""

    auth: Literal["api_key", "local"] = "api_key"
    """"local": everyone who can reach the port is the tenant ``local``; only commands for a laptop set it."""
    local_tenant: str = "local"
    api_keys: dict[str, str] = Field(default_factory=dict)
    """JSON object: sha256 of an API key (hex) -> tenant."""
    api_gateway_keys: dict[str, str] = Field(default_factory=dict)
    """JSON object: id of an API Gateway key -> tenant. API Gateway has checked the key."""
    iam_tenants: dict[str, str] = Field(default_factory=dict)
    """JSON object: ARN of an IAM role or user -> tenant; for front doors with AWS_IAM."""
    credential_scopes: dict[str, Scope] = Field(default_factory=dict)
    """JSON object: a name of one of the three above -> read, write or admin; admin without an entry."""
    allowed_hosts: list[str] = Field(default_factory=list)
    """Host names the server answers to; empty means any. ``vectorforge up`` allows its own only."""
    max_body_bytes: int = Field(default=64 * 1024 * 1024, ge=1)
    body_timeout_s: float = Field(default=60.0, gt=0, le=3600)
    """Longest time for a request's body; each 16 KiB that came in earn another second."""


class IdentitySettings(_Section):
    """An identity provider whose access tokens (JWT) are taken. All unset: none are."""

    jwt_issuer: str | None = Field(default=None, min_length=1)
    """As in the claim ``iss``."""
    jwt_audience: str | None = Field(default=None, min_length=1)
    """This service, as in the claim ``aud``."""
    jwt_jwks_url: str | None = Field(
        default=None, pattern=r"^(https://[^/]|http://(localhost|127\.0\.0\.1|\[::1\])[:/])"
    )
    """Where the issuer's keys are; over https, but for a provider on this machine."""
    jwt_tenant_claim: str = Field(default="tenant", min_length=1)
    jwt_scope_claim: str = Field(default="scope", min_length=1)
    """Words in one text, or a list of texts."""
    jwt_scope_prefix: str = ""
    """What stands before read, write and admin there, e.g. "vectorforge:"."""

    @model_validator(mode="after")
    def _all_or_none(self) -> Self:
        given = (self.jwt_issuer, self.jwt_audience, self.jwt_jwks_url)
        if any(given) and not all(given):
            raise ValueError("VECTORFORGE_JWT_ISSUER, _JWT_AUDIENCE and _JWT_JWKS_URL are needed together")
        return self


class AwsSettings(_Section):
    """What is there on AWS only. All unset: a laptop."""

    response_mode: Literal["stream", "buffered"] = "buffered"
    """How the query function answers. "stream" needs the runtime of ``vectorforge.runtime`` and a caller that
    invokes with response streaming: a function cannot see how it was invoked."""
    base_path: str = "/"
    """Path under which a custom domain maps the API, e.g. "/rag". A stage in an AWS host's URL is no setting:
    events tell it."""
    query_log_queue_url: str | None = None
    """SQS queue that the log-writer function reads; unset: records go straight into the table.

    The log writer itself needs it to let messages wait that have to come again."""
    query_log_overflow_bucket: str | None = None
    """S3 bucket for records larger than an SQS message."""
    query_log_timeout_s: float = Field(default=0.25, gt=0, le=5)
    """Longest time an answer waits for the queue to take its record."""
    ingestion_queue_url: str | None = None
    """SQS queue that the ingest function reads; unset: documents are ingested in this process."""
    uploads_bucket: str | None = None
    """S3 bucket for which ``POST /v1/collections/{id}/uploads`` signs forms; the ingest function reads it."""
    provider_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret: a JSON object of settings, e.g. {"openai_api_key": "..."}."""
    provider_parameter_path: str | None = None
    """SSM path with one SecureString for each setting, e.g. /vectorforge/prod for .../openai_api_key."""
    cloudwatch_metrics: Literal["essential", "all"] = "essential"
    """Which measurements are metrics of CloudWatch, billed each; the others are fields of the log's lines."""
    tracing: bool = False
    """Whether queries send spans to X-Ray; the function needs active tracing."""
    secret_max_age_s: int = Field(default=300, ge=1, le=86_400)
    """Seconds after which a key is read again, so that a rotated one is taken up without a new deployment."""


class VectorForgeConfig(BaseModel):
    """All settings, by section."""

    model_config = ConfigDict(frozen=True)

    database: DatabaseSettings = Field(default_factory=DatabaseSettings)
    llm: LLMSettings = Field(default_factory=LLMSettings)
    embedding: EmbeddingSettings = Field(default_factory=EmbeddingSettings)
    ingestion: IngestionSettings = Field(default_factory=IngestionSettings)
    query: QuerySettings = Field(default_factory=QuerySettings)
    rerank: RerankSettings = Field(default_factory=RerankSettings)
    cache: CacheSettings = Field(default_factory=CacheSettings)
    streams: StreamSettings = Field(default_factory=StreamSettings)
    limits: LimitSettings = Field(default_factory=LimitSettings)
    server: ServerSettings = Field(default_factory=ServerSettings)
    identity: IdentitySettings = Field(default_factory=IdentitySettings)
    aws: AwsSettings = Field(default_factory=AwsSettings)

    @classmethod
    def from_environment(cls, **overrides: Any) -> "VectorForgeConfig":
        """Read ``VECTORFORGE_*``; sections given as keywords replace what was read.

        Raises:
            ConfigurationError: A variable does not parse; the text names it, never its value.
        """
        try:
            return cls(**overrides)
        except ValidationError as exc:
            places = "; ".join(f"{_place(e['loc'])}: {e['msg']}" for e in exc.errors())
            raise ConfigurationError(f"Check the VECTORFORGE_* settings: {places}") from exc
        except SettingsError as exc:  # pydantic-settings parses JSON before pydantic sees it
            field = re.search(r'field "(\w+)"', str(exc))
            name = _variable(field[1]) if field else "A VECTORFORGE_* variable"
            # Not "from exc": the parser's error carries the value.
            raise ConfigurationError(
                f'{name} is not valid JSON; see docs/configuration.md, e.g. ["example.com"] for a list.'
            ) from None


def known_variables() -> frozenset[str]:
    """The names of all environment variables that are settings."""
    sections = (field.annotation for field in VectorForgeConfig.model_fields.values())
    fields = [
        (name, field)
        for section in sections
        if isinstance(section, type) and issubclass(section, _Section)
        for name, field in section.model_fields.items()
    ]
    return frozenset(
        _variable(choice)
        for name, field in fields
        for choice in (
            field.validation_alias.choices[:-1]  # the last one is the field's own name
            if isinstance(field.validation_alias, AliasChoices)
            else [name]
        )
        if isinstance(choice, str)
    )


def _place(loc: tuple[str | int, ...]) -> str:
    """The variable, and the way into its value: VECTORFORGE_VARIANTS.terse.top_k."""
    return ".".join([*map(_variable, loc[:1]), *map(str, loc[1:])]) or "VECTORFORGE_*"


def _variable(place: str | int) -> str:
    """The name of a setting's environment variable."""
    name = str(place)
    return name if name.startswith("VECTORFORGE_") else f"VECTORFORGE_{name.upper()}"
