"""Base class of settings sections, and the settings of AWS."""

from typing import Any, Literal

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Section(BaseSettings):
    """Immutable settings, each from the variable of its name with the prefix ``VECTORFORGE_``."""

    model_config = SettingsConfigDict(
        env_prefix="VECTORFORGE_",
        env_ignore_empty=True,  # VARIABLE= is how shells and compose files unset one
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # a mistyped secret must not be printed
        populate_by_name=True,
    )


def env(*names: str, **kwargs: Any) -> Any:
    """Return a field read from the first of these variables that is set, each with ``VECTORFORGE_``."""
    field_name, *variables = names
    choices = AliasChoices(*(f"VECTORFORGE_{name}" for name in variables), field_name)
    return Field(validation_alias=choices, **kwargs)


class AwsSettings(Section):
    """Resources on AWS; all unset on a laptop."""

    response_mode: Literal["stream", "buffered"] = "buffered"
    """Response mode of the query function. "stream" needs the runtime of ``vectorforge.runtime`` and a caller
    that invokes with response streaming: a function cannot detect how it was invoked."""
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
    provider_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret: a JSON object of settings, e.g. {"openai_api_key": "..."}."""
    provider_parameter_path: str | None = None
    """SSM path with one SecureString for each setting, e.g. /vectorforge/prod for .../openai_api_key."""
    cloudwatch_metrics: Literal["essential", "all"] = "essential"
    """Measurements sent as CloudWatch metrics, each billed; the others are fields of log lines."""
    tracing: bool = False
    """Send spans of queries to X-Ray; the function needs active tracing."""
    gateway_key_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret: a JSON object, id of an API Gateway key -> tenant."""
    secret_max_age_s: int = Field(default=300, ge=1, le=86_400)
    """Maximum age of a secret, so that a change takes effect without a deployment."""
