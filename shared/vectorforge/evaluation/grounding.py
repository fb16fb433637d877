"""Scores of questions whose right answer is to decline, to correct a premise, or to report a disagreement."""

import re
from collections.abc import Mapping

from vectorforge.evaluation.metrics import contains_answer
from vectorforge.evaluation.questions import Question
from vectorforge.pipeline.types import QueryResult

_SOURCES = r"(?:contexts?|passages?|documents?|documentation|sources?|excerpts?|texts?|information|material)"
_CANNOT = r"(?:can(?:not| not|['’]t)|could(?:n['’]t| not))"
_IS_NOT = r"(?:do|does|did|is|are|was|were)(?:n['’]t| not)"
_DECLINES = re.compile(
    rf"\bI(?: do(?:n['’]t| not)| {_CANNOT}|(?: am|['’]m| was) (?:unable|not able) to)\b[^.]{{0,40}}"
    r"\b(?:answer|information|find|determine|tell|know|say|confirm|verify)\b"
    rf"|\bthe (?:\w+ )?{_SOURCES}\b[^.]{{0,60}}\b{_IS_NOT}\b[^.]{{0,40}}"
    r"\b(?:mention|state|say|specify|specified|provide|contain|describe|cover|address|include|answer|give"
    r"|discuss|available|sufficient|enough)"
    r"|\b(?:is|are|contains?|provides?|gives?|has|have|found|find|makes?) no (?:relevant |such |specific )?"
    r"(?:information|mention|answer)\b"
    r"|\b(?:not enough|insufficient) (?:information|context|evidence)\b"
    rf"|\b{_CANNOT} be (?:answered|found|determined|confirmed)\b",
    re.IGNORECASE,
)
"""English wordings of a refusal, among them the sentences that the built-in prompts request."""
_SENTENCE = re.compile(r"[^.!?]*[.!?]+(?:\s|$)|[^.!?]+$")
_OPENING = 2
"""Sentences at the beginning of an answer in which it declines; later ones qualify an answer."""


def declines(answer: str) -> bool:
    """Return True if the first two sentences say that the documents do not answer the query."""
    opening = "".join(match[0] for match in list(_SENTENCE.finditer(answer))[:_OPENING])
    return _DECLINES.search(opening) is not None


def grounding_scores(question: Question, result: QueryResult) -> Mapping[str, float]:
    """Return the score of the question's expectation, 0 or 1, by its column of ``measures_at``.

    A refusal is recognized by its English wording, or contains one of the question's ``answers``. A
    correction declines, or contains one of the ``answers``. A disagreement is reported by an answer with all
    ``answers`` that cites at least two documents. A question with an answer has the column ``false_refusal``.
    """
    declined = result.outcome == "empty" or declines(result.answer)
    right = contains_answer(result.answer, question.answers)
    if question.expect in ("refusal", "correction"):
        return {question.expect: float(declined or right)}
    if question.expect == "disagreement":
        complete = all(contains_answer(result.answer, [text]) for text in question.answers)
        return {
            "disagreement": float(
                complete and len({citation.document_id for citation in result.citations}) > 1
            )
        }
    return {"false_refusal": float(declined)}
