"""Answers of the service to judged questions: what they hold, what they cite, and what is refused."""

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
    """What ``POST /v1/rag/query`` answers by default."""

    text: str
    cited: Sequence[UUID]
    """Passages, in the order of their labels in the text; one that is cited twice stands there twice."""
    invalid: int
    """Labels that name no passage."""

    @property
    def is_refusal(self) -> bool:
        """Whether it says that the passages do not tell."""
        return not self.text.strip() or self.text.strip().startswith(NO_ANSWER)


async def ask(
    services: TenantServices, collection: Collection, queries: Sequence[Mapping[str, Any]]
) -> AsyncIterator[tuple[str, Answer]]:
    """Ask one question after the other.

    Args:
        services: Of the tenant.
        collection: What is asked.
        queries: Each with ``query_id`` and ``text``.

    Yields:
        The question's id, and the answer.
    """
    config = RAG_QUERY.config(use_cache=False)
    for row in queries:
        result = await services.query_service.query(row["text"], collection.id, config)
        cited = [citation.chunk_id for citation in result.citations]
        yield row["query_id"], Answer(result.answer, cited, result.invalid_citations)


def scores(
    answers: Mapping[str, Answer], expected: Mapping[str, Sequence[str]], gold: Mapping[str, set[UUID]]
) -> dict[str, float]:
    """Shares of all questions; a refusal cites nothing and holds nothing.

    Args:
        answers: By question.
        expected: By question, texts of which one should stand in the answer; of some questions only.
        gold: By question, the passages that were judged relevant.
    """
    asked = len(answers)
    labels = sum(len(answer.cited) + answer.invalid for answer in answers.values())
    cited = [(gold[name], answer.cited) for name, answer in answers.items()]
    found = {
        "first_citation_gold": sum(bool(ids) and ids[0] in right for right, ids in cited) / asked,
        "any_citation_gold": sum(not right.isdisjoint(ids) for right, ids in cited) / asked,
        "citations_valid": sum(len(ids) for _, ids in cited) / max(1, labels),
        "refused": sum(answer.is_refusal for answer in answers.values()) / asked,
    }
    judged = {name: texts for name, texts in expected.items() if texts}
    if judged:
        held = sum(contains_answer(answers[name].text, texts) for name, texts in judged.items())
        found["contains_answer"] = held / len(judged)
    return {name: round(value, 4) for name, value in found.items()}
