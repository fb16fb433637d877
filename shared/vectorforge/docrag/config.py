"""Configuration of the DocRag engine, the application it opens in a thread, and OpenAI's official client."""

from collections.abc import AsyncIterator, Mapping
from contextlib import ExitStack, asynccontextmanager
from dataclasses import dataclass, fields, replace
from functools import cache
from math import isfinite
from pathlib import Path
from typing import TYPE_CHECKING, Any, get_type_hints

from pydantic import SecretStr, TypeAdapter, ValidationError

from vectorforge.bootstrap import Application
from vectorforge.client import open_migrated
from vectorforge.config import VectorForgeConfig
from vectorforge.docrag.store import DocumentStore
from vectorforge.errors import ConfigurationError
from vectorforge.pipeline.presets import DEFAULT_COLLECTION, DOCRAG
from vectorforge.pipeline.types import HistoryMessage, QueryConfig
from vectorforge.pipeline.variants import Variant
from vectorforge.vendors.accounts import OPENAI_BASE_URL
from vectorforge.vendors.credentials import find_credentials

if TYPE_CHECKING:
    from openai import OpenAI


@dataclass(frozen=True, slots=True)
class Config:
    """Immutable configuration of the engine; other settings come from ``VECTORFORGE_*``.

    Each value may be a string, as in an environment. An application passed to the engine uses its own key,
    database, ``CACHE_TTL`` and ``OPENAI_MAX_RETRIES``, unless its settings were created with ``over``.

    Raises:
        ConfigurationError: A value has a wrong type or is out of range.
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
    """Model of the provider openai."""
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
        ranges: dict[str, tuple[float, float]] = {
            "CHUNK_SIZE": (50, 20_000),
            "CHUNK_OVERLAP": (0, self.CHUNK_SIZE // 2),
            "MAX_RESPONSE_TOKENS": (1, 1_000_000),
            "TEMPERATURE": (0, 2),
            "CACHE_TTL": (1, 2_592_000),
            "OPENAI_MAX_RETRIES": (0, 10),
            "MIN_SIMILARITY": (-1, 1),
        }
        for name, (low, high) in ranges.items():
            value = getattr(self, name)
            if value is not None and not (isfinite(value) and low <= value <= high):
                raise ConfigurationError(f"{name} must be from {low:,} to {high:,}.")
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
        has_key = key is not None and bool(key.get_secret_value())
        if has_key and "default_provider" not in settings.embedding.model_fields_set:
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
        """Return the query configuration: DocRag's preset, overridden by these values and by the variant."""
        own: dict[str, Any] = {
            "min_score": self.MIN_SIMILARITY,
            "temperature": self.TEMPERATURE,
            "max_tokens": self.MAX_RESPONSE_TOKENS,
        }
        if asks_openai and (variant is None or "llm_provider" not in variant.overlay):
            own["llm_model"] = self.OPENAI_MODEL
        return replace(DOCRAG, defaults={**DOCRAG.defaults, **own}).config(variant, history=history)


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
    """Return the parsers of the values, which accept strings."""
    types = get_type_hints(Config) | {"OPENAI_API_KEY": SecretStr | None, "CHROMA_DB_PATH": Path | None}
    return {field.name: TypeAdapter(types[field.name]) for field in fields(Config)}


async def openai_client(application: Application) -> "OpenAI":
    """Make a synchronous client, to be closed; connects to nothing.

    It does not retry on its own. The package is imported here, since no query needs it.

    Raises:
        ConfigurationError: There is no key.
        SecretsUnavailableError: The key is stored elsewhere and cannot be read now.
    """
    settings = application.config.llm
    store = application.shared.credential_store
    credentials = find_credentials("openai_api_key", settings.openai_api_key, store)
    if credentials is None:
        raise ConfigurationError(
            "There is no OpenAI key: pass Config(OPENAI_API_KEY=...) or set VECTORFORGE_OPENAI_API_KEY."
        )
    from openai import OpenAI

    return OpenAI(
        api_key=(await credentials.current()).get_secret_value(),
        base_url=settings.openai_base_url or OPENAI_BASE_URL,
        organization=settings.openai_org_id,
        timeout=settings.llm_timeout_s,
        max_retries=0,
    )


def build_application(config: Config, stack: ExitStack) -> tuple[Application, str | None]:
    """Build the application that the environment and ``config`` describe.

    Args:
        config: Overrides the environment.
        stack: Stops the embedded PostgreSQL, started without a database URL, when it is closed.

    Returns:
        The application, not open yet, and the connection string to migrate the embedded database by.
    """
    from vectorforge.local.laptop import local_setup

    setup = stack.enter_context(local_setup(config.over(VectorForgeConfig.from_environment()), create=True))
    return Application.build(setup.config), setup.migrator_url if setup.embedded else None


@asynccontextmanager
async def open_prepared(
    application: Application, store: DocumentStore, migrator_url: str | None
) -> AsyncIterator[None]:
    """Migrate with ``migrator_url``, if any, and open the application; warn about another embedding model.

    Raises:
        DatabaseUnavailableError: The database does not answer.
    """
    async with open_migrated(application, migrator_url):
        await store.warn_of_other_model(application.embedding_registry.get_default())
        yield
