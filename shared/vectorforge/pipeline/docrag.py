"""What is DocRag's own in the one pipeline: the conversation within the context, and answers as JSON."""

from bisect import bisect_right
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from vectorforge.pipeline.types import Citation, HistoryMessage, StructuredAnswer
from vectorforge.tokens import estimate_tokens
from vectorforge.types import RetrievedChunk

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
