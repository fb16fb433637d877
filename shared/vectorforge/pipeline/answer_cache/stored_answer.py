"""An answer as it is kept for the next time the same question is asked."""

from collections.abc import Iterator
from dataclasses import dataclass, replace
from functools import cache
from typing import TYPE_CHECKING

from vectorforge.llm.types import LLMResponse
from vectorforge.pipeline.generation import replay_as_events
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import AnswerQuality, Citation, QueryEvent, StructuredAnswer, UsageEvent
from vectorforge.retriever.base import Passages
from vectorforge.types import RetrievedChunk, Scan, SearchMode
from vectorforge.vectorstore.base import NearestChunks

if TYPE_CHECKING:
    from pydantic import TypeAdapter


@dataclass(frozen=True, slots=True)
class StoredAnswer:
    """All of an answer that its prompt, which is made anew, does not give."""

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
    def of(cls, run: QueryRun) -> "StoredAnswer | None":
        """The run's answer; None when it is none that another question should get.

        Only what a model wrote to its end is kept: no error, no step down the ladder, nothing cut off,
        nothing that was found poor, nothing from a prompt that had to be shortened, since another one is made
        of the passages kept, and nothing quoted, which costs no more to make again.
        """
        response = run.response
        if response is None or response.metadata.get("extractive"):
            return None
        whole = run.outcome == "answered" and run.finish_reason == "stop" and bool(run.answer)
        poor = (run.quality is not None and run.quality.low) or (
            run.structured is not None and run.structured.confidence == "low"
        )
        if not whole or poor or run.degraded or run.overflowed:
            return None
        return cls(
            retrieved=list(run.retrieved),
            matched=run.retrieved.matched,
            matched_is_at_least=run.retrieved.matched_is_at_least,
            search_mode=run.retrieved.search_mode,
            scan=run.retrieved.scan,
            below_min_score=run.retrieved.below_min_score,
            answer=run.answer,
            citations=run.citations,
            invalid_citations=run.invalid_citations,
            finish_reason=run.finish_reason,
            response=response,
            rewritten_query=run.rewritten_query,
            quality=run.quality,
            structured=run.structured,
        )

    @classmethod
    def from_json(cls, text: str | bytes) -> "StoredAnswer":
        """What ``to_json`` made.

        Raises:
            ValueError: It is something else.
        """
        return _adapter().validate_json(text)

    def to_json(self) -> str:
        """The answer as JSON."""
        return _adapter().dump_json(self).decode()

    def found_in(self, run: QueryRun) -> bool:
        """Whether its labels name the passages that the run has found."""
        return [c.chunk.id for c in self.retrieved] == [c.chunk.id for c in run.retrieved]

    def restore_chunks(self, run: QueryRun) -> None:
        """Take the passages into a run that has not searched."""
        run.retrieved = Passages(
            NearestChunks(
                self.retrieved, self.matched, matched_is_at_least=self.matched_is_at_least, scan=self.scan
            )
        )
        run.retrieved.search_mode = self.search_mode
        run.retrieved.below_min_score = self.below_min_score
        run.rewritten_query = self.rewritten_query

    def replay(self, run: QueryRun) -> Iterator[QueryEvent]:
        """Take the answer into a run that has the passages.

        No token was read or written for it, so none is counted: what an answer cost is logged with the query
        that it was made for.

        Yields:
            ``TokenEvent`` and ``CitationEvent`` in the order of the text, then ``UsageEvent``.
        """
        run.cached, run.outcome, run.cost_usd = True, "cached", 0.0
        run.finish_reason, run.quality, run.structured = self.finish_reason, self.quality, self.structured
        run.citations, run.invalid_citations = self.citations, self.invalid_citations
        run.response = replace(
            self.response, prompt_tokens=0, completion_tokens=0, total_tokens=0, latency_ms=0.0
        )
        run.note_first_token()
        run.answer = self.answer
        yield from replay_as_events(self.answer, self.citations)
        yield UsageEvent(0, 0, 0)


@cache
def _adapter() -> "TypeAdapter[StoredAnswer]":
    from pydantic import TypeAdapter

    return TypeAdapter(StoredAnswer)
