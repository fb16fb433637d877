"""Refusals, corrections and disagreements of answers, as the evaluation scores them."""

from dataclasses import replace
from uuid import uuid4

import pytest

from vectorforge.evaluation.questions import Expectation, Question
from vectorforge.evaluation.scoring import declines, grounding_scores
from vectorforge.pipeline.types import Citation, QueryResult, SourceCitation

REFUSALS = [
    "I don't have enough information to answer that question.",
    "I can't find anything about that in the documents.",
    "I’m unable to answer this from the sources.",
    "The provided context does not mention a Redis password [1].",
    "The documentation doesn’t say which regions are supported.",
    "The passages contain no information about Kafka.",
    "There is no mention of a mobile app. The handbook covers the web page only [2].",
    "Not enough information.",
    "This cannot be determined from the sources.",
    "The sources that you gave are not sufficient.",
    "The retrieved documents only cover PostgreSQL. I cannot say how MySQL behaves.",
]
ANSWERS = [
    "An API key expires after 90 days [1].",
    "Keys do not expire unless you specify `--expires` [1].",
    "No index is needed [1]. The document is deleted at once [2].",
    "A document that does not contain text is skipped [1].",
    "The table has no details column [1].",
    "The limit is 40 requests [1]. It applies to a tenant [2]. The documents do not mention a burst.",
    "A source is not available on Lambda [1].",
]


@pytest.mark.parametrize("answer", REFUSALS)
def test_refusal_in_the_first_two_sentences_is_recognized(answer: str) -> None:
    assert declines(answer)


@pytest.mark.parametrize("answer", ANSWERS)
def test_answer_with_negations_is_no_refusal(answer: str) -> None:
    assert not declines(answer)


DOCUMENTS = uuid4(), uuid4()
PASSAGES = [
    SourceCitation("a.md", 0, 0.5, "text", False, uuid4(), document, None, None, 0, 4, "text")
    for document in (DOCUMENTS[0], DOCUMENTS[0], DOCUMENTS[1])
]


def result(answer: str, *cited: int) -> QueryResult:
    return QueryResult(
        "query", answer, [], PASSAGES, 1.0, 1.0, 2.0, None, uuid4(), uuid4(),
        citations=[
            Citation(n, 0, 3, PASSAGES[n - 1].chunk_id, PASSAGES[n - 1].document_id) for n in cited
        ],
    )  # fmt: skip


@pytest.mark.parametrize(
    ("expect", "answer", "cited", "score"),
    [
        ("refusal", "I don't have enough information to answer that question.", [], 1),
        ("refusal", "Das steht nicht in den Unterlagen.", [], 1),
        ("refusal", "It is 40 [1].", [1], 0),
        ("correction", "No: the limit is 60 days [1].", [1], 1),
        ("correction", "The documents do not mention a limit of 90 days.", [], 1),
        ("correction", "Because 90 days are enough [1].", [1], 0),
        ("disagreement", "One page says 60 days [1], the other 90 days [3].", [1, 3], 1),
        ("disagreement", "One page says 60 days [1], the other 90 days [2].", [1, 2], 0),
        ("disagreement", "It is 60 days [1], as both say [3].", [1, 3], 0),
    ],
)
def test_expected_reaction_scores_one(expect: Expectation, answer: str, cited: list[int], score: int) -> None:
    answers = {
        "refusal": ("steht nicht in den Unterlagen",),
        "correction": ("60 days",),
        "disagreement": ("60 days", "90 days"),
    }[expect]
    question = Question("1", "How long?", answers=answers, expect=expect)
    assert grounding_scores(question, result(answer, *cited)) == {expect: score}


def test_refusal_of_an_answerable_question_is_counted() -> None:
    question = Question("1", "How long?", answers=("60 days",))
    assert grounding_scores(question, result("It is 60 days [1].", 1)) == {"false_refusal": 0}
    refused = result("I cannot answer that.")
    assert grounding_scores(question, refused) == {"false_refusal": 1}
    assert grounding_scores(question, replace(result("Nothing."), outcome="empty")) == {"false_refusal": 1}
