"""Settings from ``VECTORFORGE_*`` environment variables, read once and immutable.

Nothing else reads the environment. Secrets are ``SecretStr`` and never appear in logs, errors or ``repr``.
"""

import re
from typing import Any

from pydantic import AliasChoices, BaseModel, ConfigDict, Field, ValidationError
from pydantic_settings import SettingsError

from vectorforge.config.access import IdentitySettings, LimitSettings, ServerSettings
from vectorforge.config.base import (
    AwsSettings,
    DatabaseSettings,
    IngestionSettings,
    Section,
    TracingSettings,
)
from vectorforge.config.models import (
    EmbeddingSettings,
    LLMSettings,
    ModelPrice,
    RerankSettings,
    VendorSettings,
)
from vectorforge.config.queries import CacheSettings, QuerySettings, StreamSettings
from vectorforge.errors import ConfigurationError

__all__ = [
    "AwsSettings",
    "CacheSettings",
    "DatabaseSettings",
    "EmbeddingSettings",
    "IdentitySettings",
    "IngestionSettings",
    "LLMSettings",
    "LimitSettings",
    "ModelPrice",
    "QuerySettings",
    "RerankSettings",
    "ServerSettings",
    "StreamSettings",
    "TracingSettings",
    "VectorForgeConfig",
    "VendorSettings",
    "known_variables",
]


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
    tracing: TracingSettings = Field(default_factory=TracingSettings)

    @classmethod
    def from_environment(cls, **overrides: Any) -> "VectorForgeConfig":
        """Read ``VECTORFORGE_*``; sections passed as keywords replace those of the environment.

        Raises:
            ConfigurationError: A variable does not parse; the text names it, never its value.
        """
        try:
            return cls(**overrides)
        except ValidationError as exc:
            places = "; ".join(
                f"{_place(e['loc'])}{e['msg'].removeprefix('Value error, ')}" for e in exc.errors()
            )
            raise ConfigurationError(f"Check the VECTORFORGE_* settings: {places}") from exc
        except SettingsError as exc:  # pydantic-settings parses JSON before pydantic sees it
            field = re.search(r'field "(\w+)"', str(exc))
            name = _variable(field[1]) if field else "A VECTORFORGE_* variable"
            # Not "from exc": the parser's error contains the value.
            raise ConfigurationError(
                f'{name} is not valid JSON, e.g. ["a.com"] for a list; see docs/operate/configuration.md.'
            ) from None


def known_variables() -> frozenset[str]:
    """Return the names of all environment variables that are settings."""
    sections = (field.annotation for field in VectorForgeConfig.model_fields.values())
    fields = [
        (name, field)
        for section in sections
        if isinstance(section, type) and issubclass(section, Section)
        for name, field in section.model_fields.items()
    ]
    return frozenset(
        _variable(choice)
        for name, field in fields
        for choice in (
            field.validation_alias.choices[:-1]  # the last one is the field's name
            if isinstance(field.validation_alias, AliasChoices)
            else [name]
        )
        if isinstance(choice, str)
    )


def _place(loc: tuple[str | int, ...]) -> str:
    """Return the variable and the path into its value, "VECTORFORGE_VARIANTS.terse.top_k: ".

    Empty for an error of several settings, whose text names them.
    """
    return ".".join([*map(_variable, loc[:1]), *map(str, loc[1:])]) + ": " if loc else ""


def _variable(place: str | int) -> str:
    """Return the name of a setting's environment variable."""
    name = str(place)
    return name if name.startswith("VECTORFORGE_") else f"VECTORFORGE_{name.upper()}"
