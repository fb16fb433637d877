"""Settings of what is stored: the database, and how documents come into it."""

from pathlib import Path
from typing import Literal, Self

from pydantic import Field, SecretStr, model_validator

from vectorforge.config.sources import Section


class DatabaseSettings(Section):
    """Where the data lives. Without a URL it is the embedded PostgreSQL."""

    data_dir: Path | None = None
    """Folder of the embedded PostgreSQL; default: the user's folder for application data."""

    database_url: SecretStr | None = None
    """postgresql:// URL of the app role (no superuser, no BYPASSRLS)."""
    database_auth: Literal["password", "iam"] = "password"
    """How app and log writer log in. "iam": with a token of RDS, made for each connection; their URLs then
    hold no password and have sslmode=verify-full."""
    database_secret_id: str | None = None
    """Name or ARN of a Secrets Manager secret {"username": ..., "password": ...} of the app's role; its URL
    then holds no password. Read again when the database refuses it."""
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


class IngestionSettings(Section):
    """How documents become chunks."""

    chunk_size_chars: int = Field(default=800, ge=50, le=20_000)
    chunk_overlap_chars: int = Field(default=150, ge=0, le=10_000)
    max_document_bytes: int = Field(default=25 * 1024 * 1024, ge=1)
    max_document_chars: int = Field(default=10_000_000, ge=1)
    extraction_timeout_s: float = Field(default=120.0, gt=0)
    max_chunks_per_document: int = Field(default=50_000, ge=1)
    """A document of more fails before anything of it is embedded."""
    max_chunks_per_request: int = Field(default=50_000, ge=1)
    """Of all texts of one request for a profile, which are written together."""
    max_documents_per_request: int = Field(default=100, ge=1, le=10_000)
    max_collections: int = Field(default=1_000, ge=1)
    """Of a tenant, those of profiles and vector stores among them."""
    reembed_passages_per_minute: int | None = Field(default=None, ge=1)
    """Of each collection whose embedding model is being changed; unset: as many as the provider takes."""

    @model_validator(mode="after")
    def _overlap_is_at_most_half(self) -> Self:
        if self.chunk_overlap_chars > self.chunk_size_chars // 2:
            raise ValueError(
                "VECTORFORGE_CHUNK_OVERLAP_CHARS must be at most half of VECTORFORGE_CHUNK_SIZE_CHARS, "
                f"{self.chunk_size_chars // 2}"
            )
        return self
