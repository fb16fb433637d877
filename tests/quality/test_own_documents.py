"""Questions about the project's own documentation, through the real pipeline with the local model.

A regression test, not a benchmark: forty-nine questions of VectorForge's users, in the words of the page, in
other words, or with just the name of a setting or an error, forty that the documentation does not answer,
eighty-three judged by the first sentence of the answer, and forty-eight that need a refusal, a correction
or two disagreeing sources. When you rename a page or rewrite an expected sentence, update
``questions.jsonl`` and ``sentences.jsonl``.
"""

import asyncio
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from statistics import fmean

import pytest

from tests.quality.documentation import AT_A_TIME, Documentation, ingest_file
from tests.quality.quoted_sentences import Wanted, read_wanted, share
from tests.support.http.live_api import settings_for
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.evaluation.questions import Question, read_questions
from vectorforge.evaluation.run import Evaluation, Plan
from vectorforge.evaluation.scoring import Scored
from vectorforge.llm.providers.extractive import NO_ANSWER
from vectorforge.pipeline.presets import DOCRAG, VECTORFORGE, Preset
from vectorforge.pipeline.types import QueryResult
from vectorforge.types import Collection, SearchMode

pytestmark = pytest.mark.slow

HERE = Path(__file__).parent
K = 5

# About two queries below the figures measured on 2026-11-22: nDCG .935, .861, .903, then .978, .891, .714,
# 12. Without titles and headings in the embedded text the dense search had .798; without words the hybrid one
# would equal the dense one.
NDCG = {SearchMode.HYBRID: 0.89, SearchMode.DENSE: 0.82, SearchMode.LEXICAL: 0.86}
IN_PASSAGES = 0.93
IN_ANSWERS = 0.82
CITED = 0.64
REFUSED = 0.95
FIRST = 0.78
"""Share of the judged answers that begin with the wanted sentence: 0.82 on 2026-11-29; the goal is 0.85."""

GROUNDED = {"refusal": 0.75, "correction": 0.85, "disagreement": 0.7}
"""Bounds without a model; .83 of 24, .94 of 16 and 1 of 8 on 2026-11-29."""


@dataclass(frozen=True, slots=True)
class Measured:
    """The results of all questions."""

    searched: Mapping[SearchMode, Sequence[Scored]]
    answered: Sequence[Scored]
    foreign: Sequence[str]
    """Answers to questions that the documents do not answer."""
    docrag: Sequence[QueryResult]
    """Answers with DocRag's defaults, in the order of the questions."""
    docrag_foreign: Sequence[str]
    quoted: Sequence[tuple[Wanted, str]]
    """Judged queries with their answers."""
    grounded: Sequence[Scored]
    """Queries without an answer, with a false premise, or with an answer in disagreeing documents."""


def check_mean(scored: Sequence[Scored], column: str, bound: float) -> None:
    """Fail if the mean is below the bound, listing the questions below 1."""
    mean = fmean(one.values[column] for one in scored)
    lost = [
        f"{one.question.id}: {one.values[column]:.2f}, found {[found.source for found in one.chunks]}"
        for one in scored
        if one.values[column] < 1
    ]
    assert mean >= bound, f"{column} {mean:.3f} is below {bound}:\n" + "\n".join(lost)


async def ask(services: TenantServices, collection: Collection, plan: Plan) -> Sequence[Scored]:
    evaluation = Evaluation(services, collection, plan)
    (run,) = await evaluation.run()
    assert evaluation.missing_sources == []
    return run.scored


async def measure(documentation: Documentation) -> Measured:
    async with Application.build(settings_for(documentation.database_url)) as application:
        services, collection = application.for_tenant(documentation.tenant), documentation.collection
        plan = Plan(read_questions(HERE / "questions.jsonl"), ["default"], k=K, parallel=AT_A_TIME)
        searched = {
            mode: await ask(services, collection, replace(plan, search_mode=mode, retrieval_only=True))
            for mode in SearchMode
        }
        answered = await ask(services, collection, plan)
        foreign = read_questions(HERE / "foreign.jsonl", unjudged_too=True).questions

        async def answers(preset: Preset, questions: Sequence[Question]) -> list[QueryResult]:
            config = preset.config(services.choose_variant("default"), use_cache=False)
            return [await services.query_service.query(q.text, collection.id, config) for q in questions]

        wanted = read_wanted()
        quoted = await answers(VECTORFORGE, [Question(one.id, one.question) for one in wanted])
        docrag = [await answers(DOCRAG, asked) for asked in (plan.questions.questions, foreign)]
        own_foreign = await answers(VECTORFORGE, foreign)
        for file in (HERE / "disagreements").iterdir():
            await ingest_file(services, collection, f"disagreements/{file.name}", file)
        grounding = replace(plan, questions=read_questions(HERE / "grounding.jsonl"))
        return Measured(
            searched,
            answered,
            [result.answer for result in own_foreign],
            docrag[0],
            [result.answer for result in docrag[1]],
            [(one, result.answer) for one, result in zip(wanted, quoted, strict=True)],
            await ask(services, collection, grounding),
        )


@pytest.fixture(scope="module")
def measured(documentation: Documentation) -> Measured:
    return asyncio.run(measure(documentation))


# P6, D16: the default finds chunks that either search alone would miss
@pytest.mark.parametrize("mode", list(SearchMode))
def test_search_ndcg_reaches_the_threshold(measured: Measured, mode: SearchMode) -> None:
    check_mean(measured.searched[mode], "ndcg", NDCG[mode])


def test_hybrid_search_outperforms_dense_and_lexical(measured: Measured) -> None:
    ndcg = {mode: fmean(one.values["ndcg"] for one in scored) for mode, scored in measured.searched.items()}
    assert ndcg[SearchMode.HYBRID] > max(ndcg[SearchMode.DENSE], ndcg[SearchMode.LEXICAL])


def test_expected_answers_are_contained_in_retrieved_chunks(measured: Measured) -> None:
    check_mean(measured.searched[SearchMode.HYBRID], "answer_in_passages", IN_PASSAGES)


def test_answers_are_extracted_and_cited(measured: Measured) -> None:
    assert {one.error for one in measured.answered} == {None}
    check_mean(measured.answered, "answer_containment", IN_ANSWERS)
    check_mean(measured.answered, "citation_precision", CITED)


def test_suggested_questions_of_the_page_are_answered(measured: Measured) -> None:
    texts = HERE.parents[1] / "shared" / "vectorforge" / "api" / "page" / "strings" / "en.json"
    suggested = [question for question, _ in json.loads(texts.read_text(encoding="utf-8"))["sampleQuestions"]]
    answered = {one.question.text: one.values["answer_containment"] for one in measured.answered}
    assert len(suggested) == 3
    assert {text: answered.get(text) for text in suggested} == dict.fromkeys(suggested, 1)


def test_foreign_questions_return_no_answer(measured: Measured) -> None:
    for foreign in (measured.foreign, measured.docrag_foreign):
        assert foreign.count(NO_ANSWER) >= REFUSED * len(foreign), [
            answer for answer in foreign if answer != NO_ANSWER
        ]


def test_answers_begin_with_the_wanted_sentence(measured: Measured) -> None:
    halves = measured.quoted[::2], measured.quoted[1::2]
    lost = [
        f"{wanted.question} -> {answer!r}"
        for wanted, answer in measured.quoted
        if not wanted.is_first_in(answer)
    ]
    figures = f"{share(measured.quoted):.3f}; tuned {share(halves[0]):.3f}, unseen {share(halves[1]):.3f}"
    print(f"\nwanted sentence first: {figures}", *lost, sep="\n")  # noqa: T201 - shown with -s, or if it fails
    assert share(measured.quoted) >= FIRST


# D-018, C04: no threshold excludes the right chunks from an answer. DocRag searches by vectors alone; one
# commit had at most two refusals on one machine and three on another, probably by the int8 arithmetic.
def test_docrag_with_defaults_answers_own_questions(measured: Measured) -> None:
    assert [result.query for result in measured.docrag if not result.retrieved_chunks] == []
    refused = [result.query for result in measured.docrag if result.answer == NO_ANSWER]
    assert len(refused) <= 0.07 * len(measured.docrag), refused


@pytest.mark.parametrize(("column", "bound"), GROUNDED.items())
def test_ungrounded_questions_are_declined_or_corrected(
    measured: Measured, column: str, bound: float
) -> None:
    scored = [one for one in measured.grounded if column in one.values]
    lost = [f"{one.question.text} -> {one.answer!r}" for one in scored if one.values[column] < 1]
    mean = fmean(one.values[column] for one in scored)
    print(f"\n{column}: {mean:.3f} of {len(scored)}", *lost, sep="\n")  # noqa: T201 - shown with -s, or if it fails
    assert mean >= bound
