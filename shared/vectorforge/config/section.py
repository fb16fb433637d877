"""What every section of the settings is made of."""

from typing import Any

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
