"""Contextual collections without a model: outlines, the dry run, re-embedding, and settings."""

import asyncio
from collections.abc import AsyncIterator, Callable

import pytest
from pydantic import SecretStr

from tests.integration.contextual.conftest import CHUNKS, Setup, paragraph, text_of
from tests.support.http.live_api import live_api, settings_for
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import IngestionSettings, LLMSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.registry import LLMProviderRegistry


@pytest.fixture
async def plain(app_url: str, make_tenant: Callable[[], str], vendor: FakeAnthropic) -> AsyncIterator[Setup]:
    """Set up a server without a model."""
    tenant = make_tenant()
    async with (
        live_api(settings_for(app_url, [tenant], ingestion=CHUNKS)) as api,
        api.client(tenant) as client,
    ):
        made = await client.post("/v1/collections", json={"name": "chronicle", "contextual": True})
        yield Setup(api, client, tenant, vendor, app_url, made.json()["id"])


@pytest.mark.parametrize("mode", ["lexical", "hybrid"])
async def test_chunk_is_found_by_the_first_sentence_of_its_document(plain: Setup, mode: str) -> None:
    text = f"Zanzibar is the subject of this chronicle here.\n\n{text_of(3)}"
    results = await plain.ingest_all({"a.txt": text, "b.txt": text_of(5, "other")})
    assert [result["warnings"] for result in results.values()] == [[], []]
    found = await plain.search("zanzibar", mode)
    assert {hit["text"] for hit in found} >= {paragraph(2), paragraph(3)}
    assert not any("other" in hit["text"] for hit in found[:3])
    assert sum("Zanzibar" in hit["text"] for hit in found) == 1


async def test_unchanged_chunks_keep_their_vectors(plain: Setup) -> None:
    embedder = plain.api.application.embedding_registry.get("hashing")
    assert isinstance(embedder, HashingEmbedder)
    await plain.ingest(text_of(6))
    assert len(embedder.texts) == 6
    assert f"{paragraph(1)}\n{paragraph(5)}" in embedder.texts
    result = await plain.ingest(text_of(6) + f"\n\n{paragraph(7)}")
    assert (result["chunks_kept"], len(embedder.texts)) == (6, 7)
    await plain.switch(contextual=False)
    result = await plain.ingest(text_of(6) + f"\n\n{paragraph(7)}")
    assert (result["chunks_kept"], result["chunks_added"]) == (1, 6)  # the first chunk has no context


async def test_document_without_contexts_is_not_embedded_again_by_this_version(plain: Setup) -> None:
    await plain.switch(contextual=False)
    await plain.ingest(text_of(3))
    assert (await plain.ingest(text_of(3)))["status"] == "unchanged"
    assert plain.rows("index_context") == [(None,)] * 3


async def test_change_of_the_embedding_model_embeds_contexts_too(plain: Setup) -> None:
    other = HashingEmbedder(name="other", dimension=32)
    plain.api.application.embedding_registry.register(other)
    await plain.ingest(text_of(3))
    path = f"/v1/collections/{plain.collection}/embedding-switch"
    assert (await plain.client.post(path, json={"embedding_provider": "other"})).status_code == 202
    async with asyncio.timeout(30):
        while (await plain.client.get(path)).json()["vectors"] < 3:  # noqa: ASYNC110 - another task works
            await asyncio.sleep(0.02)
    assert f"{paragraph(1)}\n{paragraph(2)}" in other.texts


async def test_configured_provider_extractive_writes_outlines(
    app_url: str, make_tenant: Callable[[], str], vendor: FakeAnthropic
) -> None:
    tenant = make_tenant()
    model = AnthropicProvider(SecretStr(vendor.api_key), base_url=vendor.base_url, retries=0)
    ingestion = CHUNKS.model_copy(update={"context_provider": "extractive"})
    settings = settings_for(app_url, [tenant], ingestion=ingestion)
    async with live_api(settings, model) as api, api.client(tenant) as client:
        made = await client.post("/v1/collections", json={"name": "chronicle", "contextual": True})
        setup = Setup(api, client, tenant, vendor, app_url, made.json()["id"])
        await setup.ingest(text_of(3))
        assert (vendor.bodies, setup.rows("index_context")[1]) == ([], (paragraph(1),))


def test_context_provider_without_credentials_fails_at_the_start() -> None:
    config = VectorForgeConfig(ingestion=IngestionSettings(context_provider="anthropic"), llm=LLMSettings())
    with pytest.raises(ConfigurationError, match="VECTORFORGE_CONTEXT_PROVIDER names 'anthropic'"):
        LLMProviderRegistry().auto_discover(config)
