"""Variants: named overlays on the query configuration, from JSON or a TOML file."""

import json
from pathlib import Path
from typing import Annotated, Any, Literal, TypeAlias

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, StringConstraints
from pydantic_settings import NoDecode

MAX_VARIANTS = 50
"""Maximum per deployment: each variant is a tag value of metrics, which are billed by their number."""
MAX_FILE_BYTES = 1_000_000

VariantName: TypeAlias = Annotated[str, StringConstraints(pattern=r"^[a-z0-9][a-z0-9._-]{0,63}$")]
"""Used in logs and as a tag of metrics."""
Weight: TypeAlias = Annotated[float, Field(ge=0, le=1_000_000, allow_inf_nan=False)]


def _with_placeholder(template: str) -> str:
    if "{context}" not in template:
        raise ValueError("must contain {context}")
    return template


class VariantOverlay(BaseModel):
    """Overlay of one variant; only explicitly set fields apply (``fields``), not the defaults here."""

    model_config = ConfigDict(frozen=True, extra="forbid", allow_inf_nan=False, hide_input_in_errors=True)

    top_k: int = Field(default=10, ge=1)
    min_score: float | None = 0.0
    embedding_provider: str | None = Field(default=None, max_length=100)
    llm_provider: str | None = Field(default=None, max_length=100)
    llm_model: str | None = Field(default=None, max_length=200)
    temperature: float | None = Field(default=0.7, ge=0, le=2)
    top_p: float | None = Field(default=None, ge=0, le=1)
    max_tokens: int = Field(default=1024, ge=1)
    system_prompt: Annotated[str, Field(max_length=50_000), AfterValidator(_with_placeholder)] | None = None
    rewrite: bool = False
    use_cache: bool = True
    search_mode: Literal["hybrid", "dense", "lexical"] | None = None

    @property
    def fields(self) -> dict[str, Any]:
        """Explicitly set fields of ``QueryConfig``; null is a value."""
        return self.model_dump(exclude_unset=True)


def read_variants(value: Any) -> Any:
    """Read ``VECTORFORGE_VARIANTS``: a JSON object, else the path of a TOML file with a table per variant.

    Raises:
        ValueError: It is neither; the text does not contain the value.
    """
    if not isinstance(value, str):
        return value
    if value.lstrip().startswith("{"):
        return read_object(value)
    import tomllib

    try:
        with Path(value).expanduser().open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
        if len(content) > MAX_FILE_BYTES:
            raise ValueError(f"the file is larger than {MAX_FILE_BYTES:,} bytes")
        return tomllib.loads(content.decode("utf-8"))
    except OSError as exc:
        raise ValueError(
            f"neither a JSON object nor the path of a file that can be read ({type(exc).__name__})"
        ) from None
    except (UnicodeDecodeError, tomllib.TOMLDecodeError):
        raise ValueError("the file is not TOML") from None


def read_object(value: Any) -> Any:
    """Parse a JSON object; other values are left to the type's validation.

    Raises:
        ValueError: The text is not JSON.
    """
    if not isinstance(value, str):
        return value
    try:
        return json.loads(value)
    except (ValueError, RecursionError):
        raise ValueError("not a JSON object") from None


VariantOverlays: TypeAlias = Annotated[
    dict[VariantName, VariantOverlay],
    NoDecode,
    BeforeValidator(read_variants),
    Field(max_length=MAX_VARIANTS),
]
"""Name -> overlay."""
VariantSplit: TypeAlias = Annotated[dict[VariantName, Weight], NoDecode, BeforeValidator(read_object)]
"""Name -> weight."""
