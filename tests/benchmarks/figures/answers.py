"""Answers of the service to judged queries: their content, citations and refusals."""

from collections.abc import AsyncIterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any
from uuid import UUID

from vectorforge.bootstrap import TenantServices
from vectorforge.evaluation.metrics import contains_answer
from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.pipeline.presets import RAG_QUERY
from vectorforge.types import Collection


@dataclass(frozen=True, slots=True)
class Answer:
    """An answer of ``POST /v1/rag/query`` with default settings."""

    text: str
    cited: Sequence[UUID]
    """Cited chunks in the order of their labels in the text, repetitions included."""
    invalid: int
    """Labels without a chunk."""

    @property
    def is_refusal(self) -> bool:
        """Return whether it states that the chunks have no answer."""
        return not self.text.strip() or self.text.strip().startswith(NO_ANSWER)


async def ask(
    services: TenantServices, collection: Collection, queries: Sequence[Mapping[str, Any]]
) -> AsyncIterator[tuple[str, Answer]]:
    """Answer queries in sequence.

    Args:
        services: Services of the tenant.
        collection: Collection to query.
        queries: Queries with ``query_id`` and ``text``.

    Yields:
        The query's id, and the answer.
    """
    config = RAG_QUERY.config(use_cache=False)
    for row in queries:
        result = await services.query_service.query(row["text"], collection.id, config)
        cited = [citation.chunk_id for citation in result.citations]
        yield row["query_id"], Answer(result.answer, cited, result.invalid_citations)


def scores(
    answers: Mapping[str, Answer], expected: Mapping[str, Sequence[str]], gold: Mapping[str, set[UUID]]
) -> dict[str, float]:
    """Return shares of all queries; a refusal has no citations and no content.

    Args:
        answers: Answers by query.
        expected: Texts of which one should be in the answer, for some of the queries.
        gold: Chunks judged relevant, by query.
    """
    total = len(answers)
    labels = sum(len(answer.cited) + answer.invalid for answer in answers.values())
    cited = [(gold[name], answer.cited) for name, answer in answers.items()]
    found = {
        "first_citation_gold": sum(bool(ids) and ids[0] in right for right, ids in cited) / total,
        "any_citation_gold": sum(not right.isdisjoint(ids) for right, ids in cited) / total,
        "citations_valid": sum(len(ids) for _, ids in cited) / max(1, labels),
        "refused": sum(answer.is_refusal for answer in answers.values()) / total,
    }
    judged = {name: texts for name, texts in expected.items() if texts}
    if judged:
        held = sum(contains_answer(answers[name].text, texts) for name, texts in judged.items())
        found["contains_answer"] = held / len(judged)
    return {name: round(value, 4) for name, value in found.items()}
