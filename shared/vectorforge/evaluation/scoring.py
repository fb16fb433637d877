"""What one question scored: from passages and answer to numbers."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from textwrap import shorten

from vectorforge.evaluation.judging import Passage, Target, find_hits
from vectorforge.evaluation.metrics import citation_precision, contains_answer, ndcg, recall, reciprocal_rank
from vectorforge.evaluation.questions import Question
from vectorforge.pipeline.types import QueryResult
from vectorforge.types import RetrievedChunk

_KEPT_PASSAGES = 3
_SNIPPET_CHARS = 240


@dataclass(frozen=True, slots=True)
class Found:
    """A passage as the report shows it."""

    source: str
    heading: str
    snippet: str
    score: float
    relevant: bool


@dataclass(frozen=True, slots=True)
class Scored:
    """One question under one variant."""

    question: Question
    values: Mapping[str, float]
    """Column of ``measures`` -> value; what cannot be said of this question is missing."""
    found: Sequence[Found] = ()
    """The first passages."""
    answer: str | None = None
    error: str | None = None
    """Why it failed; then whatever could have been measured is 0."""


@dataclass(frozen=True, slots=True)
class Scorer:
    """Scores answers to one question.

    Args:
        question: What was asked.
        targets: Its relevant items.
        k: Ranks that count.
    """

    question: Question
    targets: Sequence[Target]
    k: int

    def search(self, found: Sequence[RetrievedChunk], latency_ms: float) -> Scored:
        """Of passages alone."""
        values = {**self._ranking(found), "failed": 0.0, "latency_ms": latency_ms}
        return Scored(self.question, values, self._shown(found))

    def answer(self, result: QueryResult) -> Scored:
        """Of a whole answer."""
        values = {**self._ranking(result.retrieved_chunks), "failed": 0.0}
        values["latency_ms"] = result.total_latency_ms
        values["degraded"] = float(bool(result.degraded))
        if self.targets and result.outcome != "empty":
            cited = [self._is_relevant(result.sources[c.source_number - 1]) for c in result.citations]
            values["citation_precision"] = citation_precision(cited, result.invalid_citations)
        if self.question.answers:
            values["answer_containment"] = float(contains_answer(result.answer, self.question.answers))
        if result.llm_response is not None:
            values["tokens"] = float(result.llm_response.total_tokens)
        if result.cost_usd is not None:
            values["cost_usd"] = result.cost_usd
        return Scored(self.question, values, self._shown(result.retrieved_chunks), result.answer)

    def failure(self, message: str, *, answers: bool) -> Scored:
        """Of a question that failed: nothing was found, nothing was answered.

        Args:
            message: Why.
            answers: Whether it was to be answered, too.
        """
        names = ["recall", "mrr", "ndcg"] if self.targets else []
        names += ["answer_in_passages"] if self.question.answers else []
        if answers:
            names += ["citation_precision"] if self.targets else []
            names += ["answer_containment"] if self.question.answers else []
        return Scored(self.question, {**dict.fromkeys(names, 0.0), "failed": 1.0}, error=message)

    def _ranking(self, found: Sequence[RetrievedChunk]) -> dict[str, float]:
        values = {}
        if self.targets:
            hits = find_hits([passage.chunk for passage in found], self.targets)
            values["recall"] = recall(hits, len(self.targets), self.k)
            values["mrr"] = reciprocal_rank(hits, self.k)
            values["ndcg"] = ndcg(hits, [target.relevant.grade for target in self.targets], self.k)
        if self.question.answers:
            texts = (passage.chunk.text for passage in found[: self.k])
            held = any(contains_answer(text, self.question.answers) for text in texts)
            values["answer_in_passages"] = float(held)
        return values

    def _is_relevant(self, passage: Passage) -> bool:
        return any(target.is_hit(passage) for target in self.targets)

    def _shown(self, found: Sequence[RetrievedChunk]) -> tuple[Found, ...]:
        return tuple(
            Found(
                source=passage.document_source,
                heading=passage.chunk.heading or passage.document_title or "",
                snippet=shorten(passage.chunk.text, _SNIPPET_CHARS, placeholder=" …"),
                score=passage.score,
                relevant=self._is_relevant(passage.chunk),
            )
            for passage in found[:_KEPT_PASSAGES]
        )
