"""Providers over HTTP: models, availability, and unsupported parameters."""

from collections.abc import AsyncIterator
from contextlib import AsyncExitStack, asynccontextmanager

import boto3
import httpx2
import pytest

from tests.support.http.live_api import (
    LiveApi,
    add_documents,
    ask_streaming,
    live_api,
    new_collection,
    settings_for,
)
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_bedrock import MODEL, FakeBedrock
from tests.support.vendors.fake_bedrock_embeddings import FakeBedrockEmbeddings
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor
from vectorforge.embedding.providers.bedrock import BedrockEmbeddingProvider
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.bedrock import BedrockProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.local.postgres import EmbeddedPostgres

LOCAL = {"auth": "local", "local_tenant": "tenant-providers"}
REFUSED = {"temperature": "temperature is not supported with this model."}


def openai(server: FakeVendor) -> BaseLLMProvider:
    return OpenAIProvider(server.api_key, base_url=server.base_url, default_model="gpt-4o")


def anthropic(server: FakeVendor) -> BaseLLMProvider:
    return AnthropicProvider(server.api_key, base_url=server.base_url, default_model="claude-haiku-5-5")


def bedrock(server: FakeVendor) -> BaseLLMProvider:
    session = boto3.session.Session("AKIATEST", server.api_key, region_name="eu-central-1")
    return BedrockProvider(default_model=MODEL, base_url=server.base_url, session=session)


@asynccontextmanager
async def serving(postgres: EmbeddedPostgres, *providers: BaseLLMProvider) -> AsyncIterator[LiveApi]:
    async with live_api(settings_for(postgres.app_url, server=LOCAL), *providers) as api:
        yield api


#
async def test_models_of_each_provider_are_listed(postgres_server: EmbeddedPostgres) -> None:
    async with FakeOpenAI() as one, FakeAnthropic() as two, FakeBedrock() as three:
        providers = [openai(one), anthropic(two), bedrock(three)]
        async with serving(postgres_server, *providers) as api, api.client(None) as client:
            found = {
                name: (await client.get(f"/v1/providers/{name}/models")).json()
                for name in ("openai", "anthropic", "bedrock")
            }
            missing = await client.get("/v1/providers/nobody/models")
    assert found["openai"] == {
        "provider": "openai",
        "default_model": "gpt-4o",
        "default_is_offered": True,
        "models": ["gpt-4o", "gpt-6-luna"],
    }
    assert found["anthropic"]["models"] == ["claude-haiku-5-5", "claude-sonnet-5-5"]
    assert found["bedrock"]["models"] == ["amazon.nova-2-lite-v1:0", MODEL]
    assert (missing.status_code, missing.json()["code"]) == (404, "not_found")
    assert "openai, anthropic, bedrock" in missing.json()["detail"]


#
async def test_rejected_provider_key_returns_502_without_the_key(postgres_server: EmbeddedPostgres) -> None:
    async with FakeOpenAI() as server:
        provider = OpenAIProvider("sk-wrong-key", base_url=server.base_url)
        async with serving(postgres_server, provider) as api, api.client(None) as client:
            response = await client.get("/v1/providers/openai/models")
    assert (response.status_code, response.json()["code"]) == (502, "llm_authentication")
    assert "Invalid credentials for openai" in response.json()["detail"]
    assert "sk-wrong-key" not in response.text


async def test_models_without_key_returns_401(postgres_server: EmbeddedPostgres) -> None:
    async with live_api(settings_for(postgres_server.app_url)) as api, api.client(None) as client:
        assert (await client.get("/v1/providers/extractive/models")).status_code == 401


# A-151 A-152 C25
async def test_deep_health_check_probes_models_and_embedders(postgres_server: EmbeddedPostgres) -> None:
    async with FakeOpenAI() as good, FakeBedrockEmbeddings() as vectors, AsyncExitStack() as stack:
        api = await stack.enter_async_context(serving(postgres_server, openai(good)))
        client = await stack.enter_async_context(api.client(None))
        health = api.application.health_checker
        probed = (
            OpenAIProvider(good.api_key, base_url=good.base_url, health_checker=health),
            BedrockProvider(
                default_model=MODEL,
                base_url=good.base_url,
                session=boto3.session.Session("AKIATEST", "wrong", region_name="eu-central-1"),
                health_checker=health,
            ),
            BedrockEmbeddingProvider(
                default_model="cohere.embed-v4:0",
                base_url=vectors.base_url,
                session=boto3.session.Session("AKIATEST", vectors.secret, region_name="eu-central-1"),
                health_checker=health,
            ),
        )
        for provider in probed:
            stack.push_async_callback(provider.aclose)
        body = (await client.get("/health", params={"deep": "1"})).json()
    found = {one["name"]: (one["healthy"], one["detail"]) for one in body["components"]}
    assert body["status"] == "degraded"
    assert found["llm.openai"] == (True, "")
    assert found["llm.bedrock"][0] is False
    assert found["embedding.bedrock"] == (True, "cohere.embed-v4:0")


# C12 C38: in the terms of each API surface, buffered and streamed
@pytest.mark.parametrize("vendor", ["openai", "anthropic", "bedrock"])
async def test_dropped_parameters_are_named_by_every_api_surface(
    postgres_server: EmbeddedPostgres, vendor: str
) -> None:
    fakes: dict[str, type[FakeVendor]] = {
        "openai": FakeOpenAI,
        "anthropic": FakeAnthropic,
        "bedrock": FakeBedrock,
    }
    builders = {"openai": openai, "anthropic": anthropic, "bedrock": bedrock}
    async with (
        fakes[vendor](refused=REFUSED) as server,
        serving(postgres_server, builders[vendor](server)) as api,
        api.client(None) as client,
    ):
        collection = await new_collection(client, f"dropped-{vendor}")
        await add_documents(client, collection, answer="The answer is 42.")
        found = [await dropped(client, collection, temperature) for temperature in (0.3, 0.0)]
    assert found == [[["temperature"]] * 4, [["temperature"]] * 4]
    assert "temperature" in server.sampling(server.bodies[0])
    assert not any("temperature" in server.sampling(body) for body in server.bodies[1:])


async def test_accepted_parameters_leave_dropped_list_empty(postgres_server: EmbeddedPostgres) -> None:
    async with (
        FakeOpenAI() as server,
        serving(postgres_server, openai(server)) as api,
        api.client(None) as client,
    ):
        collection = await new_collection(client, "nothing-dropped")
        await add_documents(client, collection, answer="The answer is 42.")
        assert await dropped(client, collection, 0.3) == [[]] * 4


async def dropped(client: httpx2.AsyncClient, collection: str, temperature: float) -> list[list[str]]:
    """Return ``dropped_parameters`` of both API surfaces, buffered and streamed."""
    found: list[list[str]] = []
    surfaces = {
        "/v1/rag/query": {"collection": collection},
        f"/v1/collections/{collection}/query": {},
    }
    for path, extra in surfaces.items():
        body = {"query": "What is the answer?", "temperature": temperature, **extra}
        response = await client.post(path, json={**body, "stream": False})
        response.raise_for_status()
        found.append(response.json()["dropped_parameters"])
        events = await ask_streaming(client, path, body)
        found.append(events[-1].data["dropped_parameters"])
    return found
