"""What can be said of an answer without a model: words shared with the passages, citations that hold.

Heuristics: they find answers worth a look, and prove nothing of a single one.
"""

import logging
import re
from collections.abc import Sequence

from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.llm.providers.extractive_ranking import terms
from vectorforge.pipeline.citations import find_labels
from vectorforge.pipeline.names import fold
from vectorforge.pipeline.run import QueryRun
from vectorforge.pipeline.types import AnswerQuality, Citation
from vectorforge.telemetry import MetricsCollector

logger = logging.getLogger(__name__)

LOW_RELEVANCE = 0.3
"""Share of the answer's words in the passages below which it is poor; the design's own number (D-039)."""

_WORD = re.compile(r"[^\W_]+")
_IDEOGRAPHS = re.compile(r"[\u3040-\u30ff\u3400-\u9fff\uac00-\ud7af]+")


def relevance(answer: str, passages: Sequence[str]) -> float:
    """Share of the answer's different words that the passages hold, 0 to 1; 0 for an answer without words.

    ``|answer words ∩ context words| / |answer words|`` (D-039); labels are no words, and of Chinese, Japanese
    and Korean every two characters are one.
    """
    words = _words(_without_labels(answer))
    return len(words & _words("\n".join(passages))) / len(words) if words else 0.0


def completeness(question: str, answer: str, passages: Sequence[str]) -> float:
    """Share of the question's content words that the passages hold and the answer takes up, 0 to 1.

    Words count by their stem (``terms``). 0 for a question without content words.
    """
    asked = terms(question)
    given = terms(_without_labels(answer)) & terms("\n".join(passages))
    return len(asked & given) / len(asked) if asked else 0.0


def assess(
    question: str, answer: str, passages: Sequence[str], citations: Sequence[Citation] = (), invalid: int = 0
) -> AnswerQuality:
    """Judge an answer.

    Args:
        question: What was asked.
        answer: With its labels.
        passages: Texts that the answer could rest on.
        citations: Of the answer, judged.
        invalid: Labels that name no passage.

    Returns:
        ``low`` is set when the relevance is below ``LOW_RELEVANCE`` or at least half of the labels do not
        hold; saying that the passages do not answer the question is never low.
    """
    supported = sum(citation.verdict == "supported" for citation in citations)
    unsupported = sum(citation.verdict == "unsupported" for citation in citations)
    shared = relevance(answer, passages)
    false_labels = unsupported + invalid
    is_poorly_cited = false_labels > 0 and 2 * false_labels >= len(citations) + invalid
    return AnswerQuality(
        relevance=shared,
        completeness=completeness(question, answer, passages),
        supported_citations=supported,
        unsupported_citations=unsupported,
        low=(shared < LOW_RELEVANCE or is_poorly_cited) and not _declines(answer),
    )


def note_quality(run: QueryRun, metrics: MetricsCollector) -> None:
    """Set ``run.quality``; a low one is counted and logged. Without passages there is nothing to judge by."""
    if not run.used:
        return
    passages = [passage.chunk.text for passage in run.used]
    run.quality = quality = assess(
        run.search_text, run.answer, passages, run.citations, run.invalid_citations
    )
    if not quality.low:
        return
    metrics.increment("pipeline.answers.low_quality")
    logger.warning(
        "Low answer quality in query %s: relevance %.2f, %d of %d citations unsupported, %d name no source",
        run.request_id, quality.relevance, quality.unsupported_citations, len(run.citations),
        run.invalid_citations,
    )  # fmt: skip


def _declines(answer: str) -> bool:
    return answer.strip().startswith(NO_ANSWER)


def _without_labels(answer: str) -> str:
    for label in reversed(list(find_labels(answer, 0, len(answer)))):
        answer = f"{answer[: label.start]} {answer[label.end :]}"
    return answer


def _words(text: str) -> set[str]:
    words = set(_WORD.findall(fold(text)))
    if text.isascii():
        return words
    found: set[str] = set()
    for word in words:
        runs = _IDEOGRAPHS.findall(word)
        found.update(run[i : i + 2] for run in runs for i in range(max(1, len(run) - 1)))
        if not runs:
            found.add(word)
    return found
