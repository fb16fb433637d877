"""The set of unanswerable, misleading and disputed queries, against scripted models."""

import asyncio
from collections.abc import AsyncIterator, Callable, Mapping
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.http.live_api import build_application, settings_for
from tests.support.rag.ingested import ingest_part
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import Reply
from vectorforge.bootstrap import TenantServices
from vectorforge.evaluation.comparison import summarize
from vectorforge.evaluation.metrics import Bootstrap, measures_at
from vectorforge.evaluation.questions import Question, read_questions
from vectorforge.evaluation.run import Evaluation, Plan
from vectorforge.ingestion.types import DocumentStatus
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

QUALITY = Path(__file__).parents[1] / "quality"
QUESTIONS = read_questions(QUALITY / "grounding.jsonl")
BY_TEXT: Mapping[str, Question] = {question.text: question for question in QUESTIONS.questions}


def query_of(body: Any) -> Question:
    """Return the question that a request's last message asks."""
    return BY_TEXT[body["messages"][-1]["content"]]


def careful(body: Any) -> Reply:
    """Decline, correct, or cite both documents."""
    question = query_of(body)
    if question.expect == "refusal":
        return Reply(texts=("The documentation does not ", "mention that."))
    if question.expect == "correction":
        return Reply(texts=(f"That is not so: it is {question.answers[0]} ", "[Source 1]."))
    one, other = question.answers
    return Reply(texts=(f"One runbook says {one} [Source 1], ", f"the other {other} [Source 2]."))


def credulous(body: Any) -> Reply:
    """Accept every premise, and believe the first document."""
    question = query_of(body)
    known = question.answers[0] if question.expect == "disagreement" else "as you say"
    return Reply(texts=(f"It is {known} ", "[Source 1]."))


@pytest.fixture
async def services(
    postgres_server: EmbeddedPostgres, openai: FakeOpenAI, make_tenant: Callable[[], str]
) -> AsyncIterator[TenantServices]:
    provider = OpenAIProvider(SecretStr(openai.api_key), base_url=openai.base_url, retries=0)
    async with build_application(settings_for(postgres_server.app_url), provider) as application:
        yield application.for_tenant(make_tenant())


@pytest.mark.parametrize(("model", "figure"), [(careful, 1.0), (credulous, 0.0)])
async def test_grounding_set_separates_careful_from_credulous_models(
    services: TenantServices, openai: FakeOpenAI, model: Callable[[Any], Reply], figure: float
) -> None:
    collection = await services.create_collection("runbooks")
    documents = {"notes.md": b"# Notes\n\nA dead letter expires, and access tokens are signed."}
    for file in (QUALITY / "disagreements").iterdir():
        documents[f"disagreements/{file.name}"] = await asyncio.to_thread(file.read_bytes)
    for source, text in documents.items():
        (part,) = await services.ingestion.split(text, source, "text/markdown")
        result = await ingest_part(services.ingestion, collection, part)
        assert result.status is DocumentStatus.SUCCEEDED
    openai.unscripted = model
    runs = await Evaluation(services, collection, Plan(QUESTIONS, ["default"], parallel=4)).run()
    figures = summarize(runs, measures_at(10), Bootstrap(100)).figures["default"]
    grounding = ("refusals", "corrections", "disagreements")
    assert {name: figures[name].value for name in grounding} == dict.fromkeys(grounding, figure)
    assert [figures[name].questions for name in grounding] == [24, 16, 8]
    assert figures["failures"].value == 0
    assert "answer_containment" not in figures
