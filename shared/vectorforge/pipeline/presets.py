"""Presets: the defaults, prompts and formats of each API surface; what is special to DocRag and profiles."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from typing import Any, Final, Literal

from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.context import ContextFormat, SourceFormat
from vectorforge.pipeline.prompts import (
    DEFAULT_SYSTEM_PROMPT,
    DOCRAG_SYSTEM_PROMPT,
    DOCRAG_USER_PROMPT,
    RAG_QUERY_SYSTEM_PROMPT,
)
from vectorforge.pipeline.types import Citation, HistoryMessage, QueryConfig, StructuredAnswer
from vectorforge.pipeline.variants import Variant
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk, SearchMode

PROFILE_CONTEXT_CHARS: Final = 2_000
"""Characters of a profile's context, unless a caller says otherwise."""
MIN_CONTEXT_CHARS: Final = 200
"""Room for a label, a header and the start of a passage."""
_LONGEST_HEADER = 100


@dataclass(frozen=True, slots=True)
class ProfileContextFormat(ContextFormat):
    """As any passage, with a line that says what it is from: ``experience 12: Senior Engineer, Acme``."""

    def write(self, number: int, chunk: RetrievedChunk, *, include_score: bool) -> str:
        """The passage under its label and its origin."""
        metadata = chunk.chunk.metadata
        origin = " ".join(str(metadata.get(key, "")) for key in ("source_type", "source_id")).strip()
        header = ": ".join(part for part in (origin, chunk.document_title) if part)[:_LONGEST_HEADER]
        text = f"{header}\n{chunk.chunk.text}" if header else chunk.chunk.text
        # not super(): a dataclass with slots is another class than the one that the compiler saw
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
"""The answer comes first, so that it can be read while the rest is being written."""

_EXCHANGES = 3
_ANSWER_CHARS = 200


def history_of(exchanges: Iterable[tuple[str, str]]) -> tuple[HistoryMessage, ...]:
    """Earlier (question, answer) pairs, oldest first, as messages."""
    return tuple(
        message
        for question, answer in exchanges
        for message in (HistoryMessage("user", question), HistoryMessage("assistant", answer))
    )


def last_exchanges(history: Sequence[HistoryMessage]) -> list[str]:
    """The last three questions with the start of their answers, as they stand in the context.

    Args:
        history: Oldest first. Each question goes with the answers up to the next one; system messages, and
            what an assistant said before the first question, are no part of an exchange.
    """
    exchanges: list[str] = []
    for message in history:
        if message.role == "user":
            exchanges.append(f"Previous Q: {message.content}")
        elif message.role == "assistant" and exchanges:
            exchanges[-1] += f"\nPrevious A: {message.content[:_ANSWER_CHARS]}..."
    return exchanges[-_EXCHANGES:]


def quoted_answer(used: Sequence[RetrievedChunk], citations: Sequence[Citation]) -> StructuredAnswer:
    """What can be said beside an answer that no model wrote as JSON: which sources it cites."""
    cited = {citation.chunk_id for citation in citations}
    sources = [chunk.document_source for chunk in used if chunk.chunk.id in cited]
    return StructuredAnswer(source_urls=tuple(dict.fromkeys(sources)))


def accuracy_indicators(examples: Sequence[str], sources: Sequence[str]) -> list[str]:
    """Name what an answer offers to check it by: "sources_provided", "examples_provided"."""
    offered = {"sources_provided": sources, "examples_provided": examples}
    return [name for name, values in offered.items() if values]


def trim_context_to_token_limit(context: str, max_tokens: int = 4000, model: str = "gpt-4o") -> str:
    """The last lines of a text that together have at most ``max_tokens`` tokens.

    For callers with a text of their own. Of a context this would keep the worst passages, so the pipeline
    leaves out exchanges first and the lowest-ranked passages after them; see ``ContextConfig``.
    """
    if estimate_tokens(context, model) <= max_tokens:
        return context
    lines = context.split("\n")
    kept = bisect_right(
        range(1, len(lines) + 1),
        max_tokens,
        key=lambda count: estimate_tokens("\n".join(lines[-count:]), model),
    )
    return "\n".join(lines[len(lines) - kept :])


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
