"""``vectorforge eval export --from feedback``: rated queries as a question set that ``eval`` measures."""

import asyncio
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

from tests.support.http.live_api import add_documents, live_api, new_collection, settings_for
from vectorforge.evaluation.questions import read_questions
from vectorforge.evaluation.run import Evaluation, Plan

QUESTIONS = ("How hot is green tea?", "How long is bread baked?", "What is onion soup served with?")
VECTORFORGE = Path(sys.executable).with_name("vectorforge")
GUIDES = {
    "tea": "Green tea is brewed at eighty degrees.",
    "bread": "Rye bread is baked for an hour.",
    "soup": "Onion soup is served with cheese.",
}


def export(url: str, tenant: str, file: Path) -> "subprocess.CompletedProcess[str]":
    inherited = {name: value for name, value in os.environ.items() if not name.startswith("VECTORFORGE_")}
    return subprocess.run(
        [VECTORFORGE, "eval", "export", "--from", "feedback", "--tenant", tenant, "-o", file],
        env=inherited | {"VECTORFORGE_DATABASE_URL": url},
        capture_output=True, text=True, check=False, timeout=120,
    )  # fmt: skip


async def test_rated_queries_are_exported_as_questions_that_eval_measures(
    app_url: str, make_tenant: Callable[[], str], tmp_path: Path
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(app_url, [tenant])) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **GUIDES)
        services = api.application.for_tenant(tenant)
        ids = {}
        for question in (
            "How hot is green tea?",
            "How long is bread baked?",
            "What is onion soup served with?",
        ):
            answer = await client.post(f"/v1/collections/{collection}/query", json={"query": question})
            ids[question] = answer.json()["id"]
        cheese = (await client.post("/v1/search", json={"query": "cheese", "top_k": 1})).json()["results"][0]
        bodies = [
            {"rating": "up"},
            {"rating": "down"},
            {"rating": "down", "should_cite": [cheese["chunk_id"]]},
        ]
        for query_id, body in zip(ids.values(), bodies, strict=True):
            response = await client.post(f"/v1/queries/{query_id}/feedback", json=body)
            assert response.status_code == 200, response.text

        file = tmp_path / "rated.jsonl"
        done = await asyncio.to_thread(export, app_url, tenant, file)
        assert done.returncode == 0, done.stderr
        assert "3 questions, 1 of them without judgments; 0 left out" in done.stderr
        lines = {
            line["question"]: line["relevant"] for line in map(json.loads, file.read_text().splitlines())
        }
        named = {question: [judged["source"] for judged in relevant] for question, relevant in lines.items()}
        assert named == dict(zip(ids, (["tea.md"], [], ["soup.md"]), strict=True))

        questions = read_questions(file)
        assert (len(questions.questions), questions.unjudged) == (2, 1)
        target = await services.find_collection("default")
        evaluation = Evaluation(services, target, Plan(questions, ["default"], 10, retrieval_only=True))
        (run,) = await evaluation.run()
        assert evaluation.missing_sources == []
        assert [scored.values["recall"] for scored in run.scored] == [1.0, 1.0]
