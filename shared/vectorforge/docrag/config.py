"""The engine's configuration, under the names of its design."""

from dataclasses import dataclass
from pathlib import Path

from pydantic import SecretStr

from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConfigurationError
from vectorforge.pipeline.docrag import DEFAULT_COLLECTION


@dataclass(frozen=True, slots=True)
class Config:
    """Immutable. Everything else comes from ``VECTORFORGE_*``.

    An application that the engine is given keeps its own key, database, ``CACHE_TTL`` and
    ``OPENAI_MAX_RETRIES``, unless its settings were made with ``over``.
    """

    OPENAI_API_KEY: SecretStr | None = None
    """None: as ``VECTORFORGE_OPENAI_API_KEY`` says; without any, who else is there answers."""
    CHROMA_DB_PATH: Path | None = None
    """Folder of the embedded PostgreSQL. None: ``VECTORFORGE_DATABASE_URL``, else the settings' folder."""
    COLLECTION_NAME: str = DEFAULT_COLLECTION
    CHUNK_SIZE: int = 800
    """Characters, 50 to 20,000."""
    CHUNK_OVERLAP: int = 150
    """Characters, 0 to half of ``CHUNK_SIZE``."""
    OPENAI_MODEL: str = "gpt-4o"
    """Asked when OpenAI, or a server that speaks its API under that name, answers."""
    MAX_RESPONSE_TOKENS: int = 1000
    """1 or more, and no more than ``VECTORFORGE_MAX_ANSWER_TOKENS``."""
    TEMPERATURE: float = 0.3
    """0 to 2; some vendors know 1 at most."""
    MIN_SIMILARITY: float | None = 0.7
    """Passages below are no part of an answer; many models score good ones lower. None: all are."""
    CACHE_TTL: int = 3600
    """Seconds for which an answer is given again, 1 to 2,592,000."""
    OPENAI_MAX_RETRIES: int = 3
    """Attempts after the first, 0 to 10."""

    def __post_init__(self) -> None:
        self.validate_config()

    def validate_config(self) -> None:
        """Check every value.

        Raises:
            ConfigurationError: One is out of its range; names it and the range, never a key.
        """
        self._check("CHUNK_SIZE", 50, 20_000)
        self._check("CHUNK_OVERLAP", 0, self.CHUNK_SIZE // 2)
        self._check("MAX_RESPONSE_TOKENS", 1, 1_000_000)
        self._check("TEMPERATURE", 0, 2)
        self._check("CACHE_TTL", 1, 2_592_000)
        self._check("OPENAI_MAX_RETRIES", 0, 10)
        for name in ("COLLECTION_NAME", "OPENAI_MODEL"):
            if not getattr(self, name).strip():
                raise ConfigurationError(f"{name} must not be empty.")

    def over(self, settings: VectorForgeConfig) -> VectorForgeConfig:
        """The settings with these values over them."""
        llm: dict[str, object] = {
            "default_model": self.OPENAI_MODEL,
            "llm_max_retries": self.OPENAI_MAX_RETRIES,
        }
        embedding: dict[str, object] = {"embedding_max_retries": self.OPENAI_MAX_RETRIES}
        if self.OPENAI_API_KEY is not None:
            llm |= {"openai_api_key": self.OPENAI_API_KEY, "default_provider": "openai"}
            embedding |= {"openai_api_key": self.OPENAI_API_KEY, "default_provider": "openai"}
        sections: dict[str, object] = {
            "llm": settings.llm.model_copy(update=llm),
            "embedding": settings.embedding.model_copy(update=embedding),
        }
        if self.CHROMA_DB_PATH is not None:
            place = {"database_url": None, "data_dir": self.CHROMA_DB_PATH}
            sections["database"] = settings.database.model_copy(update=place)
        sections["cache"] = settings.cache.model_copy(update={"answer_cache_ttl_s": float(self.CACHE_TTL)})
        return settings.model_copy(update=sections)

    def _check(self, name: str, low: float, high: float) -> None:
        if not low <= getattr(self, name) <= high:
            raise ConfigurationError(f"{name} must be from {low:,} to {high:,}.")
