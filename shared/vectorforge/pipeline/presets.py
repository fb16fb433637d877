"""Presets: the defaults, prompts and formats of each API surface; what is special to DocRag and profiles."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import TYPE_CHECKING, Any, Final, Literal

from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.context import ContextConfig, ContextFormat, SourceFormat
from vectorforge.pipeline.prompts import (
    BEDROCK_SYSTEM_PROMPT,
    DEFAULT_SYSTEM_PROMPT,
    DOCRAG_SYSTEM_PROMPT,
    DOCRAG_USER_PROMPT,
    RAG_QUERY_SYSTEM_PROMPT,
)
from vectorforge.pipeline.types import Citation, HistoryMessage, QueryConfig, StructuredAnswer
from vectorforge.pipeline.variants import Variant
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk, SearchMode

if TYPE_CHECKING:
    from pydantic import TypeAdapter

PROFILE_CONTEXT_CHARS: Final = 2_000
"""Default length of a profile's context."""
MIN_CONTEXT_CHARS: Final = 200
"""Room for a label, a header and the start of a chunk."""
_LONGEST_HEADER = 100
_LEAST_CONTEXT_TOKENS = 1_024
"""Budget of the context of a short answer: five chunks of 800 characters. A cut one leads to refusals."""


@dataclass(frozen=True, slots=True)
class ProfileContextFormat(ContextFormat):
    """Chunks with a line that names their origin: ``experience 12: Senior Engineer, Acme``."""

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """Return the chunk under its label and its origin."""
        metadata = chunk.chunk.metadata
        origin = " ".join(str(metadata.get(key, "")) for key in ("source_type", "source_id")).strip()
        header = ": ".join(part for part in (origin, chunk.document_title) if part)[:_LONGEST_HEADER]
        text = f"{header}\n{chunk.chunk.text}" if header else chunk.chunk.text
        # not super(): a dataclass with slots is another class than the one being compiled
        return ContextFormat.write(
            self, number, replace(chunk, chunk=replace(chunk.chunk, text=text)), include_score=include_score
        )


DEFAULT_COLLECTION = "docrag_embeddings"
UNAVAILABLE_ANSWER = "I'm temporarily unable to process your question. Please try again later."

ANSWER_SCHEMA: Mapping[str, Any] = {
    "type": "object",
    "properties": {
        "answer": {"type": "string", "description": "The answer, in Markdown."},
        "examples": {"type": "array", "items": {"type": "string"}, "description": "Code examples."},
        "sources": {"type": "array", "items": {"type": "string"}, "description": "URLs of sources used."},
        "confidence": {"type": "string", "enum": ["high", "medium", "low"]},
    },
    "required": ["answer", "examples", "sources", "confidence"],
    "additionalProperties": False,
}
"""The answer is first, so that it can be streamed before the rest."""

_EXCHANGES = 3
_ANSWER_CHARS = 200


def history_of(exchanges: Iterable[tuple[str, str]]) -> tuple[HistoryMessage, ...]:
    """Return earlier (query, answer) pairs, oldest first, as messages."""
    return tuple(
        message
        for query, answer in exchanges
        for message in (HistoryMessage("user", query), HistoryMessage("assistant", answer))
    )


def last_exchanges(history: Sequence[HistoryMessage]) -> list[str]:
    """Return the last three queries with the start of their answers, as written into the context.

    Args:
        history: Oldest first. Answers up to the next query belong to a query; system messages, and assistant
            messages before the first query, are ignored.
    """
    exchanges: list[str] = []
    for message in history:
        if message.role == "user":
            exchanges.append(f"Previous Q: {message.content}")
        elif message.role == "assistant" and exchanges:
            exchanges[-1] += f"\nPrevious A: {message.content[:_ANSWER_CHARS]}..."
    return exchanges[-_EXCHANGES:]


def quoted_answer(used: Sequence[RetrievedChunk], citations: Sequence[Citation]) -> StructuredAnswer:
    """Return the further fields of an answer that is not JSON of a model: its cited sources."""
    cited = {citation.chunk_id for citation in citations}
    sources = [chunk.document_source for chunk in used if chunk.chunk.id in cited]
    return StructuredAnswer(source_urls=tuple(dict.fromkeys(sources)))


def accuracy_indicators(examples: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Return the means of checking that an answer has: "sources_provided", "examples_provided"."""
    offered = {"sources_provided": sources, "examples_provided": examples}
    return [name for name, values in offered.items() if values]


def trim_context_to_token_limit(context: str, max_tokens: int = 4000, model: str = "gpt-4o") -> str:
    """Return the last lines of a text that together have at most ``max_tokens`` tokens.

    For callers with a text of their own. Of a context this would leave the worst chunks, so the pipeline
    drops exchanges first and then the lowest-ranked chunks; see ``ContextConfig``.
    """
    if estimate_tokens(context, model) <= max_tokens:
        return context
    lines = context.split("\n")
    count = bisect_right(
        range(1, len(lines) + 1),
        max_tokens,
        key=lambda last: estimate_tokens("\n".join(lines[-last:]), model),
    )
    return "\n".join(lines[len(lines) - count :])


@dataclass(frozen=True, slots=True)
class Preset:
    """Immutable defaults of an API surface; explicit values of a request have priority."""

    name: str
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Fields of ``QueryConfig`` that differ from its own defaults."""
    system_prompt: str = DEFAULT_SYSTEM_PROMPT
    context_format: ContextFormat = field(default_factory=ContextFormat)
    chunk_separator: str = "\n---\n"
    context_tokens_per_answer_token: int | None = 3
    """Budget of the context as a multiple of ``max_tokens``, at least 1,024 tokens; None for no limit."""
    max_context_tokens: int | None = None
    """Budget of the context in tokens of ``counting_model``, instead of a multiple."""
    counting_model: str = "gpt-4"
    user_template: str | None = None
    """See ``ContextConfig.user_template``; ignored for a request with its own system prompt."""
    history_policy: Literal["messages", "last_exchanges"] = "messages"
    """Form of the conversation so far: all as messages, or its end as text in the context."""
    response_schema: Mapping[str, Any] | None = None
    """Schema of the model's JSON object, whose property ``answer`` is the answer."""
    context_chars: int | None = None
    """Budget of the context in characters, in place of tokens."""
    on_empty: Literal["sentence", "generate"] = "sentence"
    """Answer to an empty result: a fixed sentence, or the model without context."""
    case_matters: bool = True
    """False: queries that differ in case or blanks share a cached answer."""
    unavailable_answer: str | None = None
    """Last fallback of the degradation ladder; None: an error is raised."""

    def config(self, variant: Variant | None = None, /, **explicit: Any) -> QueryConfig:
        """Return the preset's defaults, overlaid by the variant and then by the explicit values."""
        named = {**variant.overlay, "variant": variant.name} if variant else {}
        if explicit.get("llm_provider") not in (None, named.get("llm_provider")):
            named.pop("llm_model", None)  # a model of another provider
        return QueryConfig(**{**self.defaults, **named, **explicit, "preset": self.name})

    def context_config(self, config: QueryConfig, limit: int | None = None) -> ContextConfig:
        """Return the context's settings with the query's own template; ``limit`` replaces the budget."""
        factor = self.context_tokens_per_answer_token
        multiple = max(config.max_tokens * factor, _LEAST_CONTEXT_TOKENS) if factor else None
        budget = self.max_context_tokens or multiple
        in_context = self.history_policy == "last_exchanges"
        return ContextConfig(
            system_prompt_template=config.system_prompt or self.system_prompt,
            max_context_tokens=limit or budget,
            include_sources=config.include_sources,
            chunk_separator=self.chunk_separator,
            format=self.context_format,
            model=self.counting_model,
            max_context_chars=None if limit else self.context_chars,
            exchanges=last_exchanges(config.history) if in_context else (),
            user_template=None if config.system_prompt else self.user_template,
        )


@cache
def _option_types() -> "TypeAdapter[QueryConfig]":
    from pydantic import TypeAdapter

    return TypeAdapter(QueryConfig)


def validated_options(options: Mapping[str, Any]) -> dict[str, Any]:
    """Convert values, which may be as in JSON, to the types of ``QueryConfig``; unknown options remain.

    Raises:
        InvalidInputError: A value is invalid.
    """
    from pydantic import ValidationError

    try:
        config = _option_types().validate_python(options)
    except ValidationError as exc:
        error = exc.errors()[0]
        field = ".".join(map(str, error["loc"]))
        raise InvalidInputError(f"`{field}`: {error['msg']}.", field=field) from None
    return {name: getattr(config, name, value) for name, value in options.items()}


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


BEDROCK = Preset(
    "bedrock",
    defaults={"top_k": 5, "min_score": None, "temperature": 0.0, "max_tokens": 2048},
    system_prompt=BEDROCK_SYSTEM_PROMPT,
)
"""``/bedrock``, with the defaults of Bedrock's Knowledge Bases."""

PROFILE = Preset(
    "profile",
    defaults={"top_k": 5, "min_score": None, "search_mode": SearchMode.DENSE},
    context_format=ProfileContextFormat(),
    context_chars=PROFILE_CONTEXT_CHARS,
)
"""``/v1/profiles/{profile_id}/query``."""

PRESETS: Mapping[str, Preset] = {
    preset.name: preset for preset in (VECTORFORGE, RAG_QUERY, DOCRAG, BEDROCK, PROFILE)
}


def find_preset(name: str) -> Preset:
    """Return the preset of this name.

    Raises:
        InvalidInputError: It does not exist.
    """
    try:
        return PRESETS[name]
    except KeyError:
        raise InvalidInputError(
            f"There is no preset {name!r}; there are {', '.join(PRESETS)}.", field="preset"
        ) from None


@cache
def preset_text(name: str) -> str:
    """Return the whole preset, prompts included, as text that is the same in every process.

    Raises:
        InvalidInputError: It does not exist.
    """
    return repr(find_preset(name))
