"""Question sets against a real collection: measured, compared, stored and shown."""

import json
import re
from collections.abc import AsyncIterator, Callable
from dataclasses import replace
from html import unescape
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.http.live_api import build_application, settings_for
from tests.support.rag.ingested import ingest_part
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.bootstrap import Application, TenantServices
from vectorforge.config import QuerySettings
from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.evaluation.comparison import Baseline, Summary, summarize
from vectorforge.evaluation.metrics import Bootstrap, measures_at
from vectorforge.evaluation.questions import Question, QuestionSet, Relevant
from vectorforge.evaluation.report import render_report
from vectorforge.evaluation.run import Evaluation, Outcome, Plan
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.types import Collection

SUBJECTS = ("kettle", "bread", "bicycle", "violin", "telescope", "garden", "harbour", "printer")
VARIANTS: dict[str, Any] = {"narrow": {"top_k": 1}, "nothing": {"min_score": 0.99}, "gone": {"top_k": 2}}
QUESTIONS = QuestionSet(
    "subjects",
    tuple(
        Question(
            f"q{number}",
            f"What is the {name} described as?",
            (Relevant(source=f"{name}.md"),),
            (f"number {number}",),
        )
        for number, name in enumerate(SUBJECTS)
    ),
)


@pytest.fixture
async def openai() -> AsyncIterator[FakeOpenAI]:
    async with FakeOpenAI() as server:
        server.unscripted = Reply(texts=("It is ", "number 3 [Source 1], ", "and <b>so</b> [Source 9]."))
        yield server


@pytest.fixture
async def application(postgres_server: EmbeddedPostgres, openai: FakeOpenAI) -> AsyncIterator[Application]:
    config = settings_for(postgres_server.app_url, query=QuerySettings(variants=VARIANTS))
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with build_application(config, provider) as opened:
        yield opened


@pytest.fixture
def services(application: Application, make_tenant: Callable[[], str]) -> TenantServices:
    return application.for_tenant(make_tenant())


@pytest.fixture
async def collection(services: TenantServices) -> Collection:
    made = await services.create_collection("subjects")
    for number, name in enumerate(SUBJECTS):
        text = f"# {name}\n\nThe {name} is described as number {number} of <all> {name} things.\n"
        (part,) = await services.ingestion.split(text.encode(), f"/guides/{name}.md", "text/markdown")
        result = await ingest_part(services.ingestion, made, part)
        assert result.status is DocumentStatus.SUCCEEDED
    return made


def plan(*variants: str, **options: Any) -> Plan:
    return Plan(QUESTIONS, variants or ("default",), **options)


async def evaluate(services: TenantServices, collection: Collection, wanted: Plan) -> Outcome:
    evaluation = Evaluation(services, collection, wanted)
    runs = await evaluation.run()
    return Outcome(wanted, collection.name, runs, evaluation.missing_sources)


def summary_of(outcome: Outcome, baseline: Baseline | None = None) -> Summary:
    return summarize(outcome.runs, measures_at(outcome.plan.k), Bootstrap(500), baseline)


async def test_retrieval_evaluation_uses_no_model_and_no_log(
    services: TenantServices, collection: Collection, openai: FakeOpenAI
) -> None:
    steps: list[None] = []
    evaluation = Evaluation(services, collection, plan("default", "narrow", retrieval_only=True))
    default, narrow = await evaluation.run(lambda: steps.append(None))
    assert len(steps) == 16
    assert openai.bodies == []
    assert await services.query_logs.list() == []
    for scored in (*default.scored, *narrow.scored):
        ranked = {name: scored.values[name] for name in ("recall", "mrr", "ndcg", "answer_in_passages")}
        assert ranked == dict.fromkeys(ranked, 1.0), scored.question.text
        assert "answer_containment" not in scored.values
        assert scored.values["latency_ms"] > 0
        assert scored.chunks[0].relevant
        assert not any(found.relevant for found in scored.chunks[1:])
    assert {len(scored.chunks) for scored in narrow.scored} == {1}


async def test_answer_evaluation_measures_citations_containment_and_cost(
    services: TenantServices, collection: Collection, openai: FakeOpenAI
) -> None:
    outcome = await evaluate(services, collection, plan())
    assert len(openai.bodies) == 8
    for number, scored in enumerate(outcome.runs[0].scored):
        assert scored.values["citation_precision"] == 0.5  # [Source 1] is right, [Source 9] does not exist
        assert scored.values["answer_containment"] == float(number == 3)
        assert scored.values["tokens"] == 18
    figures = summary_of(outcome).figures["default"]
    assert figures["answer_containment"].value == 1 / 8
    assert figures["failures"].value == 0
    assert {record.variant for record in await services.query_logs.list()} == {"default"}


@pytest.mark.parametrize("retrieval_only", [True, False])
async def test_worse_variant_is_reported_as_regression(
    services: TenantServices, collection: Collection, retrieval_only: bool
) -> None:
    outcome = await evaluate(
        services, collection, plan("default", "nothing", "narrow", retrieval_only=retrieval_only)
    )
    summary = summary_of(outcome)
    worse = {(d.measure.name, d.candidate) for d in summary.regressions}
    assert worse >= {(f"{name}@10", "nothing") for name in ("recall", "mrr", "ndcg", "answer_in_passages")}
    assert {candidate for _, candidate in worse} == {"nothing"}
    recall = next(
        d for d in summary.differences if d.measure.name == "recall@10" and d.candidate == "nothing"
    )
    assert (recall.estimate.value, recall.estimate.low, recall.estimate.high) == (-1, -1, -1)


async def test_baseline_comparison_detects_regressions(
    services: TenantServices, collection: Collection, tmp_path: Path
) -> None:
    before = await evaluate(services, collection, plan(retrieval_only=True))
    Baseline.of(before).write(tmp_path / "before.json")
    again = await evaluate(services, collection, plan(retrieval_only=True))
    stored = Baseline.read(tmp_path / "before.json", again.plan)
    assert summary_of(again, stored).regressions == []

    for name in SUBJECTS[:3]:
        document = await services.documents.find_by_source(collection.id, f"/guides/{name}.md")
        assert document is not None
        await services.vector_store.delete_document(document.id)
    worse = await evaluate(services, collection, plan(retrieval_only=True))
    assert worse.missing_sources == sorted(f"{name}.md" for name in SUBJECTS[:3])
    summary = summary_of(worse, stored)
    assert summary.figures["default"]["recall@10"].value == 5 / 8
    assert {d.reference for d in summary.regressions} == {"default (baseline)"}
    assert "recall@10" in {d.measure.name for d in summary.regressions}


async def test_changed_questions_are_excluded_from_baseline_comparison(
    services: TenantServices, collection: Collection
) -> None:
    stored = Baseline.of(await evaluate(services, collection, plan(retrieval_only=True)))
    changed = replace(QUESTIONS.questions[0], relevant=(Relevant(source="bread.md"),))
    questions = replace(QUESTIONS, questions=(changed, *QUESTIONS.questions[1:]))
    other = replace(plan(retrieval_only=True), questions=questions)
    summary = summary_of(await evaluate(services, collection, other), stored)
    assert summary.changed_questions == 1
    assert {d.estimate.questions for d in summary.differences} == {7}
    assert summary.regressions == []


async def test_incompatible_baseline_is_rejected(
    services: TenantServices, collection: Collection, tmp_path: Path
) -> None:
    outcome = await evaluate(services, collection, plan("default", "narrow", retrieval_only=True))
    stored = Baseline.of(outcome)
    stored.write(tmp_path / "b.json")
    with pytest.raises(InvalidInputError, match="--cutoff 10"):
        Baseline.read(tmp_path / "b.json", plan(retrieval_only=True, k=5))
    with pytest.raises(InvalidInputError, match="with --retrieval-only"):
        Baseline.read(tmp_path / "b.json", plan())
    with pytest.raises(InvalidInputError, match="no variant precise; it has: default, narrow"):
        stored.column_for("precise", {})
    with pytest.raises(InvalidInputError, match="none of these questions"):
        stored.column_for("default", {"q0": "0123"})
    (tmp_path / "b.json").write_text("{}")
    with pytest.raises(InvalidInputError, match="is not a baseline"):
        Baseline.read(tmp_path / "b.json", outcome.plan)


async def test_failed_question_scores_zero_and_evaluation_continues(
    services: TenantServices, collection: Collection, openai: FakeOpenAI
) -> None:
    openai.script(Reply(), Failure(400))
    outcome = await evaluate(services, collection, plan())
    (failed,) = [scored for scored in outcome.runs[0].scored if scored.error]
    assert failed.values == {
        "recall": 0, "mrr": 0, "ndcg": 0, "answer_in_passages": 0,
        "citation_precision": 0, "answer_containment": 0, "failed": 1,
    }  # fmt: skip
    assert summary_of(outcome).figures["default"]["failures"].value == 1 / 8


async def test_unavailable_model_aborts_the_evaluation(
    services: TenantServices, collection: Collection, openai: FakeOpenAI
) -> None:
    openai.script(*[Failure(500)] * 50)  # each query gets chunks instead of an answer
    with pytest.raises(LLMError, match="8 answers in a row"):
        await evaluate(services, collection, plan("default", "narrow", parallel=3))
    assert len(openai.bodies) < 12


async def test_collection_without_the_sources_is_rejected(services: TenantServices) -> None:
    empty = await services.create_collection("empty")
    with pytest.raises(InvalidInputError, match=r"empty has none of the sources .* kettle\.md"):
        await evaluate(services, empty, plan(retrieval_only=True))


async def test_unknown_variant_is_rejected_before_any_query(
    services: TenantServices, collection: Collection
) -> None:
    with pytest.raises(InvalidInputError, match="default, precise, comprehensive, narrow"):
        Evaluation(services, collection, plan("default", "yours"))


async def test_report_is_self_contained_and_lists_largest_losses(
    services: TenantServices, collection: Collection
) -> None:
    evil = Question("<i>", "What is the <script>alert(1)</script>?", (Relevant(source="kettle.md"),), ("no",))
    questions = replace(QUESTIONS, questions=(evil, *QUESTIONS.questions))
    outcome = await evaluate(services, collection, replace(plan("default", "nothing"), questions=questions))
    page = render_report(outcome, summary_of(outcome))
    assert re.findall(r"(?:src|href)=|https?://|url\(|@import|<script", page) == []
    assert 'name="viewport"' in page
    assert "prefers-color-scheme: dark" in page
    text = unescape(re.sub(r"<[^>]+>", " ", page))
    assert "recall@10 : nothing differs from default by" in text
    assert "<script>alert(1)</script>" in text  # as text
    assert "It is number 3 [Source 1], and <b>so</b> ." in text
    assert "Source: kettle.md" in text
    assert "✓ relevant" in text
    bars = re.findall(r'<svg [^>]*aria-label="recall@10: default ([\d.]+) [^"]*; nothing ([\d.]+) ', page)
    assert bars == [("1.000", "0.000")]
    assert len(re.findall(r'class="loss"', page)) >= 8  # a line for each query with a lower score


def test_baseline_json_round_trips(tmp_path: Path) -> None:
    scored = {"fingerprint": "ab", "values": {"recall": 1.0}}
    rows = {
        "format": "vectorforge-baseline-1", "created_at": "2026-11-22T10:00:00Z", "collection": "c",
        "questions": "q", "k": 10, "retrieval_only": True, "variants": {"default": {"q1": scored}},
    }  # fmt: skip
    (tmp_path / "b.json").write_text(json.dumps(rows))
    read = Baseline.read(tmp_path / "b.json", plan(retrieval_only=True))
    read.write(tmp_path / "again.json")
    assert json.loads((tmp_path / "again.json").read_text()) == rows
