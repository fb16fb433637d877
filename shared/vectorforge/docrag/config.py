"""The engine's configuration, under the names of its design."""

from collections.abc import Mapping
from dataclasses import dataclass, fields, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import Any, get_type_hints

from pydantic import SecretStr, TypeAdapter, ValidationError

from vectorforge.config import VectorForgeConfig
from vectorforge.errors import ConfigurationError
from vectorforge.pipeline.presets import DEFAULT_COLLECTION, DOCRAG
from vectorforge.pipeline.types import HistoryMessage, QueryConfig
from vectorforge.pipeline.variants import Variant


@dataclass(frozen=True, slots=True)
class Config:
    """Immutable. Everything else comes from ``VECTORFORGE_*``.

    Each value may be a string, as an environment holds it. An application that the engine is given keeps its
    own key, database, ``CACHE_TTL`` and ``OPENAI_MAX_RETRIES``, unless its settings were made with ``over``.

    Raises:
        ConfigurationError: A value has a wrong type or is out of its range.
    """

    OPENAI_API_KEY: SecretStr | str | None = None
    """A ``SecretStr`` once made. None or blank: ``VECTORFORGE_OPENAI_API_KEY``; without any, other providers.

    With a key, OpenAI's ``text-embedding-3-small`` (1,536 dimensions) embeds new collections, unless
    ``VECTORFORGE_DEFAULT_EMBEDDING_PROVIDER`` or ``VECTORFORGE_OPENAI_EMBEDDING_MODEL`` name another."""
    CHROMA_DB_PATH: Path | str | None = None
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
    MIN_SIMILARITY: float | None = None
    """Chunks that score less are dropped, -1 to 1; None drops none. Right ones often score 0.3 to 0.6."""
    CACHE_TTL: int = 3600
    """Seconds for which an answer is given again, 1 to 2,592,000."""
    OPENAI_MAX_RETRIES: int = 3
    """Attempts after the first, 0 to 10."""

    def __post_init__(self) -> None:
        for name, adapter in _adapters().items():
            try:
                value = adapter.validate_python(getattr(self, name))
            except ValidationError:  # its text holds the value, which may be a key
                expected = _EXPECTED.get(name, "a whole number")
                raise ConfigurationError(f"{name} must be {expected}.") from None
            object.__setattr__(self, name, value)
        if isinstance(self.OPENAI_API_KEY, SecretStr) and not self.OPENAI_API_KEY.get_secret_value().strip():
            object.__setattr__(self, "OPENAI_API_KEY", None)
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
        if self.MIN_SIMILARITY is not None:
            self._check("MIN_SIMILARITY", -1, 1)
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
        key = settings.embedding.openai_api_key
        if (
            key is not None
            and key.get_secret_value()
            and "default_provider" not in settings.embedding.model_fields_set
        ):
            embedding["default_provider"] = "openai"
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

    def query_config(
        self, history: tuple[HistoryMessage, ...], *, asks_openai: bool, variant: Variant | None = None
    ) -> QueryConfig:
        """How a query is answered: DocRag's preset, these values over it, and over both the variant."""
        own: dict[str, Any] = {
            "min_score": self.MIN_SIMILARITY,
            "temperature": self.TEMPERATURE,
            "max_tokens": self.MAX_RESPONSE_TOKENS,
        }
        if asks_openai and (variant is None or "llm_provider" not in variant.overlay):
            own["llm_model"] = self.OPENAI_MODEL
        preset = replace(DOCRAG, defaults={**DOCRAG.defaults, **own})
        return preset.config(variant, history=history)

    def _check(self, name: str, low: float, high: float) -> None:
        value = getattr(self, name)
        if not isfinite(value) or not low <= value <= high:
            raise ConfigurationError(f"{name} must be from {low:,} to {high:,}.")


_EXPECTED: Mapping[str, str] = {
    "OPENAI_API_KEY": "a string or a SecretStr",
    "CHROMA_DB_PATH": "a path",
    "COLLECTION_NAME": "a string",
    "OPENAI_MODEL": "a string",
    "TEMPERATURE": "a number",
    "MIN_SIMILARITY": "a number or None",
}


@cache
def _adapters() -> Mapping[str, TypeAdapter[Any]]:
    """What reads each value, strings included."""
    types = get_type_hints(Config) | {"OPENAI_API_KEY": SecretStr | None, "CHROMA_DB_PATH": Path | None}
    return {field.name: TypeAdapter(types[field.name]) for field in fields(Config)}
