"""Dry runs: the exact request to the vendor, without sending, storing or logging."""

import json
from collections.abc import AsyncIterator, Callable
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.rag.fenced import without_number
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_completions import FakeCompletions
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor
from vectorforge.config import LLMSettings, ModelPrice
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.providers.openai_compatible import MaxServeProvider
from vectorforge.local.postgres import EmbeddedPostgres
from vectorforge.pipeline.dry_run import request_hash

TEXTS = {
    "kettle": "The kettle boils one litre of water in three minutes. [Source 9] says more.",
    "bread": "The bread rises for two hours, at 27 °C – “warm”.",
}
Make = Callable[[], tuple[FakeVendor, Callable[[], BaseLLMProvider]]]


def openai() -> tuple[FakeVendor, Callable[[], BaseLLMProvider]]:
    vendor = FakeOpenAI(refused={"temperature": "Unsupported parameter: 'temperature' is not supported."})
    return vendor, lambda: OpenAIProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)


def anthropic() -> tuple[FakeVendor, Callable[[], BaseLLMProvider]]:
    vendor = FakeAnthropic()
    return vendor, lambda: AnthropicProvider(
        SecretStr(vendor.api_key), base_url=vendor.base_url, default_model="claude-sonnet-5-5", retries=0
    )


def max_serve() -> tuple[FakeVendor, Callable[[], BaseLLMProvider]]:
    vendor = FakeCompletions()
    key = SecretStr(vendor.api_key)
    return vendor, lambda: MaxServeProvider(
        key, mode="completions", base_url=vendor.base_url, default_model="llama", retries=0
    )


@pytest.fixture(params=[openai, anthropic, max_serve])
async def vendor_api(
    request: pytest.FixtureRequest, postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> AsyncIterator[tuple[FakeVendor, LiveApi, str]]:
    make: Make = request.param
    vendor, build = make()
    prices = LLMSettings(model_prices={"gpt-4o": ModelPrice(input=7.0, output=30.0)})
    async with vendor:
        tenant = make_tenant()
        async with live_api(settings_for(postgres_server.app_url, [tenant], llm=prices), build()) as api:
            yield vendor, api, tenant


@pytest.mark.parametrize("surface", ["rag", "collection"])
@pytest.mark.parametrize("stream", [False, True])
async def test_dry_run_matches_the_later_request(
    vendor_api: tuple[FakeVendor, LiveApi, str], surface: str, stream: bool
) -> None:  # N11
    vendor, api, tenant = vendor_api
    async with api.client(tenant) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **TEXTS)
        conversation = (await client.post("/v1/conversations")).json()["id"]
        path = "/v1/rag/query" if surface == "rag" else f"/v1/collections/{collection}/query"
        body: dict[str, Any] = {
            "query": "How hot is the “bread”?",
            "conversation_id": conversation,
            "max_tokens": 77,
        }
        first = await client.post(path, json={"query": "Which kettle?", "conversation_id": conversation})
        assert first.status_code == 200, first.text
        calls, logged = len(vendor.requests), (await client.get("/v1/queries")).json()["queries"]

        dry = (await client.post(path, json={**body, "stream": stream, "dry_run": True})).json()

        assert len(vendor.requests) == calls  # no model was called
        assert (await client.get("/v1/queries")).json()["queries"] == logged
        assert (await client.get(f"/v1/conversations/{conversation}")).json()["message_count"] == 2
        if stream:
            await ask_streaming(client, path, body)
        else:
            await client.post(path, json=body)
    real = vendor.requests[calls].body
    assert without_number(dry["request"]) == without_number(real)
    assert dry["request_sha256"] == request_hash(real)
    assert dry["history_messages"] == 2
    assert dry["prompt_tokens"] > 50
    assert dry["max_completion_tokens"] == 77
    assert (dry["provider"], dry["model"]) == (api.application.llm_registry.get_default().name, real["model"])
    assert [source["number"] for source in dry["sources"]] == [1, 2]


async def test_prompt_instructs_model_to_cite_by_label(vendor_api: tuple[FakeVendor, LiveApi, str]) -> None:
    _, api, tenant = vendor_api
    async with api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **TEXTS)
        dry = (await client.post("/v1/rag/query", json={"query": "kettle?", "dry_run": True})).json()
    request = json.dumps(dry["request"])
    assert "Cite each passage that you use by its label, spelled as it stands there" in request
    assert dry["sources"]
    for number in range(1, len(dry["sources"]) + 1):
        assert f"[Context {number}]" in request


async def test_dry_run_reports_cost_for_known_price(vendor_api: tuple[FakeVendor, LiveApi, str]) -> None:
    _, api, tenant = vendor_api
    async with api.client(tenant) as client:
        await add_documents(client, await new_collection(client), **TEXTS)
        dry = (await client.post("/v1/rag/query", json={"query": "kettle?", "dry_run": True})).json()
    tokens = dry["prompt_tokens"]
    prices: dict[str, tuple[float, float] | None] = {
        "openai": (7.0, 30.0), "anthropic": (2.0, 10.0), "max_serve": (0.0, 0.0)
    }  # fmt: skip
    price = prices[dry["provider"]]
    assert price is not None
    assert dry["prompt_cost_usd"] == pytest.approx(tokens * price[0] / 1e6)
    assert dry["max_cost_usd"] == pytest.approx((tokens * price[0] + 2048 * price[1]) / 1e6)


async def test_dry_run_without_model_reports_empty_request_and_rejects_rewrite(
    postgres_server: EmbeddedPostgres, make_tenant: Callable[[], str]
) -> None:
    tenant = make_tenant()
    async with live_api(settings_for(postgres_server.app_url, [tenant])) as api, api.client(tenant) as client:
        collection = await new_collection(client)
        await add_documents(client, collection, **TEXTS)
        quoted = (await client.post("/v1/rag/query", json={"query": "kettle?", "dry_run": True})).json()
        history = [{"role": "user", "content": "bread"}]
        rewritten = await client.post(
            "/v1/rag/query", json={"query": "And?", "messages": history, "rewrite": True, "dry_run": True}
        )
    assert (quoted["provider"], quoted["request"], quoted["request_sha256"]) == ("extractive", None, None)
    assert (quoted["prompt_tokens"], quoted["max_cost_usd"]) == (0, 0.0)
    assert (rewritten.status_code, rewritten.json()["errors"][0]["field"]) == (422, "rewrite")


def test_request_hash_is_independent_of_json_key_order() -> None:
    assert request_hash({"a": 1, "b": ["é", None]}) == request_hash({"b": ["é", None], "a": 1})
    assert request_hash({"a": 1}) != request_hash({"a": 2})
    # printf '{"a":"é"}' | sha256sum
    assert request_hash({"a": "é"}) == "b3a092a6af48807fa9482b2ee140105575daa26d5b24b3c0e60a7e2dee6683b1"
