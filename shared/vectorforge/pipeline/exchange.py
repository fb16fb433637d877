"""Details of a stored answer: what a conversation has of it besides its text."""

import re
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import QueryResult

if TYPE_CHECKING:
    from pydantic import TypeAdapter

_NUL = re.compile(r"(?<!\\)((?:\\\\)*)\\u0000")
"""NUL in JSON, which PostgreSQL's jsonb has not; after an escaped backslash, "u0000" is text."""


@dataclass(frozen=True, slots=True)
class ExchangeDetails:
    """Result of a query without its texts, which its messages and the documents have."""

    result: QueryResult
    """Without query, answer, chunks and sources."""
    scores: list[tuple[float, float | None]]
    """Score and rank value of each source, in the order of the labels."""
    has_earlier_input: bool = False
    """True if the request had earlier messages, which are not stored."""

    @classmethod
    def of(cls, run: QueryRun) -> "ExchangeDetails":
        """Return the details of a finished query."""
        result = run.last_result or run.result()
        response = result.llm_response
        return cls(
            replace(
                result,
                query="",
                answer="",
                retrieved_chunks=[],
                sources=[],
                llm_response=response and replace(response, content=""),
            ),
            [(source.score, source.relevance) for source in result.sources],
            has_earlier_input=run.config.sends_history
            and any(message.role != "system" for message in (*run.config.history, *run.config.following)),
        )

    @classmethod
    def from_json(cls, text: str | None) -> "ExchangeDetails | None":
        """Return the details that ``to_json`` wrote; None without any, or of another version."""
        try:
            return _adapter().validate_json(text) if text else None
        except ValueError:
            return None

    def to_json(self) -> str:
        """Return the details as JSON.

        Raises:
            ValueError: A text has halves of surrogate pairs.
        """
        return _NUL.sub(r"\1\\ufffd", _adapter().dump_json(self).decode())


@cache
def _adapter() -> "TypeAdapter[ExchangeDetails]":
    from pydantic import TypeAdapter

    return TypeAdapter(ExchangeDetails)
