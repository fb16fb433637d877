"""The doors' presets: each design's defaults and formats over the one pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.context import ContextFormat
from vectorforge.pipeline.prompts import DEFAULT_SYSTEM_PROMPT, RAG_QUERY_SYSTEM_PROMPT
from vectorforge.pipeline.types import QueryConfig


@dataclass(frozen=True, slots=True)
class Preset:
    """An immutable set of defaults; what a request says explicitly always wins."""

    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``QueryConfig`` that differ from its own defaults."""
    system_prompt: str = DEFAULT_SYSTEM_PROMPT
    context_format: ContextFormat = field(default_factory=ContextFormat)
    chunk_separator: str = "\n---\n"
    context_tokens_per_answer_token: int | None = 3
    """The context's budget as a multiple of ``max_tokens``; None for no limit."""
    on_empty: Literal["sentence", "generate"] = "sentence"
    """Nothing was found: a fixed sentence, or the model without any context."""
    unavailable_answer: str | None = None
    """What is answered when nobody can; None: an error is raised."""

    def config(self, **explicit: Any) -> QueryConfig:
        """The preset's defaults under the values given."""
        return QueryConfig(**{**self.defaults, **explicit, "preset": self.name})


VECTORFORGE = Preset("vectorforge")
"""The library and ``/v1/collections/{id}/query``."""

RAG_QUERY = Preset(
    "rag_query",
    defaults={"top_k": 5, "min_score": None, "temperature": 0.7, "top_p": 0.9, "max_tokens": 2048},
    system_prompt=RAG_QUERY_SYSTEM_PROMPT,
    context_format=ContextFormat(label="[Context {number}]", after_text="\n"),
    chunk_separator="\n",
    context_tokens_per_answer_token=None,
    on_empty="generate",
)
"""``/v1/rag/query``."""

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in (VECTORFORGE, RAG_QUERY)}


def find_preset(name: str) -> Preset:
    """The preset of this name.

    Raises:
        InvalidInputError: There is none.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise InvalidInputError(
            f"There is no preset {name!r}; there are {', '.join(PRESETS)}.", field="preset"
        ) from None
