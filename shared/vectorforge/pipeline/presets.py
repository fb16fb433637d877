"""The doors' presets: each design's defaults and formats over the one pipeline."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from typing import Any, Literal

from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.context import ContextFormat, SourceFormat
from vectorforge.pipeline.docrag import ANSWER_SCHEMA, UNAVAILABLE_ANSWER
from vectorforge.pipeline.profile_context import PROFILE_CONTEXT_CHARS, ProfileContextFormat
from vectorforge.pipeline.prompts import (
    DEFAULT_SYSTEM_PROMPT,
    DOCRAG_SYSTEM_PROMPT,
    DOCRAG_USER_PROMPT,
    RAG_QUERY_SYSTEM_PROMPT,
)
from vectorforge.pipeline.types import QueryConfig
from vectorforge.pipeline.variants import Variant
from vectorforge.types import SearchMode


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
    max_context_tokens: int | None = None
    """The context's budget in tokens of ``counting_model``, instead of a multiple."""
    counting_model: str = "gpt-4"
    user_template: str | None = None
    """See ``ContextConfig.user_template``; not for a request with a system prompt of its own."""
    history_policy: Literal["messages", "last_exchanges"] = "messages"
    """The conversation so far: all of it as messages, or the end of it as text in the context."""
    response_schema: Mapping[str, Any] | None = None
    """The model answers with such a JSON object; its property ``answer`` is the answer."""
    context_chars: int | None = None
    """The context's budget in characters, in place of tokens."""
    on_empty: Literal["sentence", "generate"] = "sentence"
    """Nothing was found: a fixed sentence, or the model without any context."""
    case_matters: bool = True
    """False: a query in other case, or with other blanks, gets the same cached answer."""
    unavailable_answer: str | None = None
    """What is answered when nobody can; None: an error is raised."""

    def config(self, variant: Variant | None = None, /, **explicit: Any) -> QueryConfig:
        """The preset's defaults, the variant over them, and over both the values given."""
        named = {**variant.overlay, "variant": variant.name} if variant else {}
        if explicit.get("llm_provider") not in (None, named.get("llm_provider")):
            named.pop("llm_model", None)  # it is another provider's
        return QueryConfig(**{**self.defaults, **named, **explicit, "preset": self.name})


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

DOCRAG = Preset(
    "docrag",
    defaults={
        "top_k": 5,
        "min_score": None,
        "temperature": 0.3,
        "max_tokens": 1000,
        "search_mode": SearchMode.DENSE,
    },
    system_prompt=DOCRAG_SYSTEM_PROMPT,
    context_format=SourceFormat(heading="\n--- RELEVANT DOCUMENTATION ---", after_text="\n---"),
    chunk_separator="\n",
    max_context_tokens=4000,
    counting_model="gpt-4o",
    user_template=DOCRAG_USER_PROMPT,
    history_policy="last_exchanges",
    response_schema=ANSWER_SCHEMA,
    case_matters=False,
    unavailable_answer=UNAVAILABLE_ANSWER,
)
"""``RAGEngine`` and ``/v1/docrag/query``."""


PROFILE = Preset(
    "profile",
    defaults={"top_k": 5, "min_score": None, "search_mode": SearchMode.DENSE},
    context_format=ProfileContextFormat(),
    context_chars=PROFILE_CONTEXT_CHARS,
)
"""``/v1/profiles/{profile_id}/query``."""

PRESETS: Mapping[str, Preset] = {preset.name: preset for preset in (VECTORFORGE, RAG_QUERY, DOCRAG, PROFILE)}


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


@cache
def preset_text(name: str) -> str:
    """All that the preset says, prompts included, as text that is the same in every process.

    Raises:
        InvalidInputError: There is none of this name.
    """
    return repr(find_preset(name))
