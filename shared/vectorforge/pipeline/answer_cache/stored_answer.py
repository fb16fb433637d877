"""Stored form of an answer, and the answer cache's state of one query."""

from dataclasses import dataclass
from functools import cache
from typing import TYPE_CHECKING

from vectorforge.db.repositories.answer_cache_repo import FoundAnswer
from vectorforge.llm.types import LLMResponse
from vectorforge.pipeline.types import AnswerQuality, Citation, StructuredAnswer
from vectorforge.types import RetrievedChunk, Scan, SearchMode

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """Everything of an answer except its prompt, which is built again."""

    retrieved: list[RetrievedChunk]
    matched: int | None
    matched_is_at_least: bool
    search_mode: SearchMode | None
    scan: Scan | None
    below_min_score: int
    answer: str
    citations: list[Citation]
    invalid_citations: int
    finish_reason: str
    response: LLMResponse
    rewritten_query: str | None = None
    quality: AnswerQuality | None = None
    structured: StructuredAnswer | None = None

    @classmethod
    def from_json(cls, text: str | bytes) -> "StoredAnswer":
        """Return the answer that ``to_json`` wrote.

        Raises:
            ValueError: The text is something else.
        """
        return _adapter().validate_json(text)

    def to_json(self) -> str:
        """Return the answer as JSON."""
        return _adapter().dump_json(self).decode()


@dataclass(slots=True)
class CacheState:
    """Answer cache as one query sees it. Step 0 sets the first two fields, the cache the others."""

    digest: bytes | None = None
    """Digest of everything that decides the answer except documents and collection; None: not looked up."""
    found: FoundAnswer | None = None
    """Result of step 0 for ``digest``."""
    key: bytes | None = None
    data_version: int | None = None
    """Version of the collection, read before the search; None if unknown."""
    stored: StoredAnswer | None = None
    """Answer to the same query on the same documents, fresh or expired."""
    hit: bool = False
    """True if the stored answer is the query's answer."""


@cache
def _adapter() -> "TypeAdapter[StoredAnswer]":
    from pydantic import TypeAdapter

    return TypeAdapter(StoredAnswer)
