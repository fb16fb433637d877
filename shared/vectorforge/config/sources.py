"""What every section of the settings is made of.

Settings of what is there on AWS only.
"""

from typing import Any, Literal

from pydantic import AliasChoices, Field
from pydantic_settings import BaseSettings, SettingsConfigDict


class Section(BaseSettings):
    """Settings of one theme, each from the variable of its name with ``VECTORFORGE_`` in front; immutable."""

    model_config = SettingsConfigDict(
        env_prefix="VECTORFORGE_",
        env_ignore_empty=True,  # VARIABLE= is how shells and compose files unset one
        frozen=True,
        extra="ignore",
        hide_input_in_errors=True,  # a mistyped secret must not be printed
        populate_by_name=True,
    )


def env(*names: str, **kwargs: Any) -> Any:
    """A field read from the first of these variables that is set (``VECTORFORGE_`` is put in front)."""
    field_name, *variables = names
    choices = AliasChoices(*(f"VECTORFORGE_{name}" for name in variables), field_name)
    return Field(validation_alias=choices, **kwargs)


class AwsSettings(Section):
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
    gateway_key_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret: a JSON object, id of an API Gateway key -> tenant."""
    secret_max_age_s: int = Field(default=300, ge=1, le=86_400)
    """Seconds after which a secret is read again, so that a change is taken up without a new deployment."""
