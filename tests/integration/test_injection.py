"""Prompt injections and a model that obeys all of them: nothing leaks through any API surface."""

import json
import re
from collections.abc import AsyncIterator, Callable
from itertools import chain
from typing import Any

import httpx2
import pytest
from pydantic import SecretStr

from tests.integration.injections import Injection, injections
from tests.support.http.live_api import (
    LiveApi,
    ask_streaming,
    finished_job,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.http.mcp_client import mcp_client
from tests.support.rag.fenced import unfenced
from tests.support.vendors.obedient_llm import ORDER, ObedientOpenAI
from vectorforge.config import QuerySettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

QUESTION = "At which degrees does the kettle boil?"
SECRET = "CANARYPASSAGE-5f1e77aa"
FOREIGN = "CANARYTENANT-0badcafe"
KEY = "sk-CANARYKEY-deadbeef01"
GUIDE = "https://docs.example/kettle"
WAY_OUT = re.compile(
    r"(?:[a-z]+:|/|\\|&#47;)(?://|/|\\|&#47;|&colon;)\S*evil|\]\([^)]*evil|data:|javascript:", re.IGNORECASE
)
"""Attacker's addresses, and content that would be rendered or run."""


@pytest.fixture
async def vendor() -> AsyncIterator[ObedientOpenAI]:
    async with ObedientOpenAI(seed=8, api_key=KEY) as server:
        yield server


@pytest.fixture
async def api(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str], vendor: ObedientOpenAI
) -> AsyncIterator[tuple[LiveApi, str]]:
    """Start the API with a tenant whose collection "default" has a secret and all injections."""
    tenant, other = make_tenant(), make_tenant()
    provider = OpenAIProvider(SecretStr(KEY), base_url=vendor.base_url, retries=0)
    config = settings_for(
        postgres_server.app_url, [tenant, other], query=QuerySettings(degraded_answers=False, log_text="full")
    )
    async with live_api(config, provider) as running:
        for name, texts in ((other, [f"The kettle boils. {FOREIGN}"]), (tenant, [])):
            async with running.client(name) as client:
                await store(client, await new_collection(client), texts)
        yield running, tenant


async def store(client: httpx2.AsyncClient, collection: str, texts: list[str]) -> None:
    secret: dict[str, object] = {
        "source": GUIDE,
        "text": f"Boiling: the kettle boils at 100 degrees. {SECRET}",
        "metadata": {"n": "s"},
    }
    attacks: list[dict[str, object]] = [
        {"source": f"{i.name}.txt", "text": i.text, "metadata": {"n": i.name}} for i in injections()
    ]
    others: list[dict[str, object]] = [
        {"source": f"{number}.txt", "text": text} for number, text in enumerate(texts)
    ]
    documents = others or [secret, *attacks]
    for start in range(0, len(documents), 100):
        part = {"documents": documents[start : start + 100]}
        response = await client.post(f"/v1/collections/{collection}/documents", json=part)
        job = await finished_job(client, response.json()["id"])
        assert job["status"] == "succeeded", job


def query_of(injection: Injection) -> dict[str, Any]:
    return {"query": QUESTION, "k": 2, "filters": {"n": {"$in": ["s", injection.name]}}}


def check(shown: str, injection: Injection) -> None:
    """Check that the shown text has no content of the attacker."""
    assert not WAY_OUT.search(shown), (injection.name, shown)
    assert SECRET not in shown, (injection.name, shown)
    assert FOREIGN not in shown
    assert KEY not in shown


async def test_injected_model_output_contains_no_external_links(
    api: tuple[LiveApi, str], vendor: ObedientOpenAI
) -> None:  # faults.md threats 13 to 15: 200 payloads
    running, tenant = api
    attacks = injections()
    assert len(attacks) >= 200
    assert len({attack.family for attack in attacks}) >= 20
    ignored: list[str] = []
    cached = 0
    async with running.client(tenant) as client:
        for number, attack in enumerate(attacks):
            whole = (await client.post("/v1/rag/query", json=query_of(attack))).json()
            check(whole["response"], attack)
            numbers = {citation["source_number"] for citation in whole["citations"]}
            assert numbers <= {1, 2}, attack.name
            if number % 10 == 0:
                again = (await client.post("/v1/rag/query", json=query_of(attack))).json()
                assert again["response"] == whole["response"], attack.name
                cached += again["cached"]
            prompt = unfenced(vendor.bodies[-1]["messages"][0]["content"])
            assert FOREIGN not in prompt
            assert KEY not in json.dumps(vendor.bodies[-1])
            if not ORDER.findall(prompt) or SECRET not in prompt:
                ignored.append(attack.name)
        # The model obeys: the filter must block it. Orders longer than a chunk are cut.
        assert {name.rsplit("-", 2)[0] for name in ignored} <= {"too-long"}
        assert cached > 5
        pages = [{"limit": 100, "offset": start} for start in range(0, len(attacks) + 100, 100)]
        shown = [(await client.get("/v1/queries", params=page)).json()["queries"] for page in pages]
        logged = list(chain.from_iterable(shown))
    assert len(logged) >= len(attacks)
    for row in logged:
        assert not WAY_OUT.search(row["generated_response"])


async def test_injection_defenses_apply_to_every_api_surface(
    api: tuple[LiveApi, str],
) -> None:  # all API surfaces
    running, tenant = api
    async with running.client(tenant) as client, mcp_client(running.url, tenant) as tools:
        for attack in injections()[::9]:
            body = query_of(attack)
            events = await ask_streaming(client, "/v1/rag/query", body)
            check("".join(e.data["text"] for e in events if e.name == "token"), attack)
            check(answer_in(events[-1].data), attack)
            filters = body["filters"]
            documentation = {"query": QUESTION, "n_results": 2, "min_score": -1.0, "filters": filters}
            structured = await client.post("/v1/docrag/query", json=documentation)
            check(structured.json()["answer"], attack)
            check(" ".join(structured.json()["examples"]), attack)
            assert set(structured.json()["sources"]) <= {GUIDE}
            messages = [{"role": "user", "content": QUESTION}]
            options: dict[str, Any] = {"top_k": 2, "min_score": -1.0, "filters": filters}
            chat = await client.post(
                "/v1/chat/completions", json={"model": "vectorforge/default", "messages": messages, **options}
            )
            check(chat.json()["choices"][0]["message"]["content"], attack)
            named = {"type": "in", "key": "n", "value": ["s", attack.name]}
            plain = await client.post(
                "/v1/responses", json={"model": "vectorforge/default", "input": QUESTION, "filters": named}
            )
            check(plain.json()["output"][-1]["content"][0]["text"], attack)
            parts = [{"type": "text", "text": QUESTION}]
            ui = {
                "messages": [{"id": "1", "role": "user", "parts": parts}],
                "collection": "default",
                **options,
            }
            shown = await client.post("/api/chat", json=ui)
            check("".join(re.findall(r'"type": ?"text-delta".*?"delta": ?"(.*?)"\}', shown.text)), attack)
            called = await tools.call_tool("ask", {"query": QUESTION, "top_k": 2, "filters": filters})
            check(str((called.structured_content or {})["answer"]), attack)


def answer_in(done: dict[str, Any]) -> str:
    return str(done.get("response", done.get("answer", "")))
