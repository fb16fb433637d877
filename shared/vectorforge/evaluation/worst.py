"""Which questions went worst, and what had been expected of them."""

from collections.abc import Iterator, Sequence

from vectorforge.evaluation.questions import Question
from vectorforge.evaluation.scoring import Scored

_QUALITY = ("answer_containment", "ndcg", "answer_in_passages", "citation_precision", "recall")
_SHOWN_CHARS = 300


def worst_questions(scored: Sequence[Scored], limit: int) -> list[Scored]:
    """The questions with the lowest mean over the measures of quality that each has, without perfect ones.

    Args:
        scored: Of one run.
        limit: So many at most, the worst first; failed ones before all.
    """
    with_means = [(_mean(one), number, one) for number, one in enumerate(scored)]
    return [one for mean, _, one in sorted(with_means, key=lambda row: row[:2])[:limit] if mean < 1]


def describe(question: Question) -> Iterator[str]:
    """What was expected: answers, documents, passages; a line for each."""
    if question.answers:
        yield "Answer: " + " / ".join(question.answers)
    if question.reference:
        yield "In other words: " + question.reference[:_SHOWN_CHARS]
    for relevant in question.relevant:
        if relevant.text is not None:
            yield f"Passage: {relevant.text[:_SHOWN_CHARS]}"
        elif relevant.start is not None:
            yield f"Source: {relevant.source}, characters {relevant.start} to {relevant.end}"
        else:
            yield f"Source: {relevant.source}"


def _mean(scored: Scored) -> float:
    if scored.error is not None:
        return -1.0
    values = [scored.values[name] for name in _QUALITY if name in scored.values]
    return sum(values) / len(values) if values else 1.0
