"""Base class of settings sections; settings of the database, of ingestion and of AWS."""

from pathlib import Path
from typing import Any, Literal, Self

from pydantic import AliasChoices, Field, SecretStr, field_validator, model_validator
from pydantic_settings import BaseSettings, PydanticBaseSettingsSource, SettingsConfigDict


class Section(BaseSettings):
    """Immutable settings, each from the variable of its name with the prefix ``VECTORFORGE_``."""

    model_config = SettingsConfigDict(
        env_prefix="VECTORFORGE_",
        env_ignore_empty=True,  # VARIABLE= is how shells and compose files unset one
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # a mistyped secret must not be printed
        populate_by_name=True,
        allow_inf_nan=False,
    )

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Read arguments and the environment; sources for files would double the time."""
        return init_settings, env_settings


def env(field_name: str, variable: str, **kwargs: Any) -> Any:
    """Return a field read from another variable than that of its name; ``variable`` without prefix."""
    return Field(validation_alias=AliasChoices(f"VECTORFORGE_{variable}", field_name), **kwargs)


class DatabaseSettings(Section):
    """Database; without a URL the embedded PostgreSQL."""

    data_dir: Path | None = None
    """Folder of the embedded PostgreSQL; default: the user's folder for application data."""

    database_url: SecretStr | None = None
    """postgresql:// URL of the app role (no superuser, no BYPASSRLS)."""
    database_auth: Literal["password", "iam"] = "password"
    """Login of app and log writer. "iam": a token of RDS for each connection; their URLs then have no
    password and sslmode=verify-full."""
    database_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret {"username": ..., "password": ...} of the app's role; its URL
    then has no password. Re-read when the database rejects it."""
    migrator_database_url: SecretStr | None = None
    """postgresql:// URL of the role that owns the schema; only ``vectorforge migrate`` uses it."""
    migrator_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret {"username": ..., "password": ...} for that URL, which then has
    neither: the secret that RDS creates and rotates for its master user."""
    operator_template: str | None = None
    """Id of the EC2 launch template of hosts for long work; unset: the migrate function starts none."""
    log_writer_database_url: SecretStr | None = None
    """postgresql:// URL of the role that may only insert into the query log."""
    eraser_database_url: SecretStr | None = None
    """postgresql:// URL of the role that may only read and delete; ``vectorforge erase`` uses it."""
    database_pool_size: int = Field(default=10, ge=1, le=200)
    """Maximum number of connections of one process."""
    database_timeout_s: float = Field(default=10.0, gt=0, le=600)
    """Time limit of the wait for a connection, and of one statement."""
    database_pipeline: bool = True
    """Send a transaction of one statement in one round trip instead of four."""
    database_reader_host: str | None = None
    """Host of the read replicas that answer searches, with the rest of ``database_url``; unset: the writer
    answers."""
    database_reader_port: int | None = Field(default=None, ge=1, le=65_535)
    """Port of the read replicas; unset: that of ``database_url``."""
    database_reader_lag_s: float = Field(default=1.0, ge=0, le=60)
    """Time after which a search misses no change of another process any more; 0: it never misses one."""
    log_retention_days: int = Field(default=90, ge=0, le=36_500)
    """Retention of queries and finished jobs in days; 0: unlimited."""
    log_text_retention_days: int = Field(default=30, ge=0, le=36_500)
    """Retention of texts in the query log in days; 0: as long as the row."""
    erased_logs: Literal["text", "rows"] = "text"
    """Erasure of queries that used erased data: empty their texts, or delete their rows."""


class IngestionSettings(Section):
    """Chunking and limits of documents."""

    chunk_size_chars: int = Field(default=800, ge=50, le=20_000)
    chunk_overlap_chars: int = Field(default=150, ge=0, le=10_000)
    max_document_bytes: int = Field(default=25 * 1024 * 1024, ge=1)
    max_document_chars: int = Field(default=10_000_000, ge=1)
    extraction_timeout_s: float = Field(default=120.0, gt=0)
    ocr_engine: Literal["auto", "rapidocr", "tesseract"] = "auto"
    """Engine of collections with ``ocr``; auto: RapidOCR if it is installed, else tesseract."""
    ocr_languages: str = Field(default="eng", pattern=r"^\w+(\+\w+)*$", max_length=200)
    """Languages of tesseract, as in "eng+deu"; RapidOCR has one model for all of its languages."""
    ocr_max_pages: int = Field(default=100, ge=1)
    """Pages without a text layer in one document."""
    max_chunks_per_document: int = Field(default=50_000, ge=1)
    """Documents with more fail before anything is embedded."""
    max_chunks_per_request: int = Field(default=50_000, ge=1)
    """Chunks of all texts of one profile request, which are written together."""
    max_documents_per_request: int = Field(default=1_000, ge=1, le=10_000)
    max_collections: int = Field(default=1_000, ge=1)
    """Collections of a tenant, including those of profiles and vector stores."""
    reembed_passages_per_minute: int | None = Field(default=None, ge=1)
    """Rate per collection during a change of the embedding model; unset: unlimited."""
    context_provider: str | None = None
    """LLM provider that writes the contexts of contextual collections; "extractive": none does. Unset: the
    default one."""
    context_model: str | None = None
    """Its model; unset: the provider's default."""
    context_timeout_s: float = Field(default=300.0, gt=0, le=3600)
    """Time limit of the contexts of one document."""

    @model_validator(mode="after")
    def _overlap_is_at_most_half(self) -> Self:
        if self.chunk_overlap_chars > self.chunk_size_chars // 2:
            raise ValueError(
                "VECTORFORGE_CHUNK_OVERLAP_CHARS must be at most half of VECTORFORGE_CHUNK_SIZE_CHARS, "
                f"{self.chunk_size_chars // 2}"
            )
        return self


class AwsSettings(Section):
    """Resources on AWS; all unset on a laptop."""

    response_mode: Literal["stream", "buffered"] | None = None
    """Response mode of the query function; None: "stream" in the runtime of ``vectorforge.runtime``, which it
    needs, else "buffered". Must suit the front door: a function cannot detect how it was invoked."""
    base_path: str = "/"
    """Path under which a custom domain maps the API, e.g. "/rag". A stage in an AWS host's URL is read
    from events."""
    query_log_queue_url: str | None = None
    """SQS queue that the log-writer function reads; unset: records are written to the table directly.

    The log writer itself needs it to delay failed messages."""
    query_log_overflow_bucket: str | None = None
    """S3 bucket for records larger than an SQS message."""
    query_log_timeout_s: float = Field(default=0.25, gt=0, le=5)
    """Time limit of sending a record before the end of an answer."""
    ingestion_queue_url: str | None = None
    """SQS queue that the ingest function reads; unset: documents are ingested in this process."""
    uploads_bucket: str | None = None
    """S3 bucket for ``POST /v1/collections/{id}/uploads``, read by the ingest function."""
    originals_bucket: str | None = None
    """S3 bucket for the files of documents; unset: they are stored in the database."""
    provider_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret: a JSON object of settings, e.g. {"openai_api_key": "..."}."""
    provider_parameter_path: str | None = None
    """SSM path with one SecureString for each setting, e.g. /vectorforge/prod for .../openai_api_key."""
    cloudwatch_metrics: Literal["essential", "all"] = "essential"
    """Measurements sent as CloudWatch metrics, each billed; the others are fields of log lines."""
    gateway_key_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret: a JSON object, id of an API Gateway key -> tenant."""
    secret_max_age_s: int = Field(default=300, ge=1, le=86_400)
    """Maximum age of a secret, so that a change takes effect without a deployment."""


class TracingSettings(Section):
    """Spans of queries."""

    tracing: Literal["off", "xray", "otel"] = "off"
    """Destination of spans. "xray": the daemon of a function with active tracing. "otel": the query log
    record, from which the log writer, or this process without a queue, exports them."""
    otlp_endpoint: str | None = Field(
        default=None, pattern=r"^https?://[^\s/@?#]+(/[^\s#]*)?$", max_length=2_048
    )
    """Address for traces of an OTLP/HTTP backend; requests to CloudWatch's are signed."""
    otlp_headers: SecretStr | None = None
    """Headers of its requests: name=value pairs, separated by commas."""
    otlp_resource: str = "service.name=vectorforge"
    """Resource attributes of all spans, in the same format."""
    otlp_texts: bool = False
    """Export query and answer as the query log has them."""

    @field_validator("tracing", mode="before")
    @classmethod
    def _accept_former_values(cls, value: Any) -> Any:
        return {"true": "xray", "false": "off"}.get(str(value).lower(), value)

    @model_validator(mode="after")
    def _otel_has_endpoint(self) -> Self:
        if self.tracing == "otel" and self.otlp_endpoint is None:
            raise ValueError("VECTORFORGE_TRACING=otel requires VECTORFORGE_OTLP_ENDPOINT")
        return self
