"""Cohere's and Google's embeddings through the OpenAI-compatible provider."""

from typing import Literal

import pytest
from pydantic import SecretStr

from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.unit.openai_embedding.embedding_server import KEY
from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.embedding.providers.openai import (
    CohereEmbeddingProvider,
    GoogleEmbeddingProvider,
)
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    EmbeddingInputError,
)


async def test_cohere_request_sets_input_type_for_query_and_document() -> None:
    # the body as Cohere documents it, without fields unknown to OpenAI's SDK or Cohere
    fields = {
        "input_type": Literal["search_document", "search_query"],
        "output_dimension": Literal[256, 512, 1024, 1536],
    }
    async with FakeEmbeddingsServer(dimension=1536, api_key=KEY, fields=fields) as server:
        provider = CohereEmbeddingProvider(
            api_key=SecretStr(KEY),
            base_url=server.base_url,
            default_model="embed-v4.0",
            dimension=512,
            cache=InMemoryEmbeddingCache(10),
            batch_size=2048,
        )
        await provider.embed_documents(["due\ndate"])
        assert len(await provider.embed_query("due\ndate")) == provider.dimension() == 512
        await provider.embed_documents([f"text {number}" for number in range(97)])
        await provider.aclose()
    common = {
        "input": ["due\ndate"],
        "model": "embed-v4.0",
        "encoding_format": "base64",
        "output_dimension": 512,
    }
    assert server.requests[:2] == [
        {**common, "input_type": "search_document"},
        {**common, "input_type": "search_query"},
    ]
    assert sorted(len(body["input"]) for body in server.requests[2:]) == [1, 96]


@pytest.mark.parametrize(("dimension", "sent"), [(3072, {}), (768, {"dimensions": 768})])
async def test_google_request_sets_shortened_dimension(dimension: int, sent: dict[str, int]) -> None:
    async with FakeEmbeddingsServer(dimension=3072, api_key=KEY) as server:
        provider = GoogleEmbeddingProvider(
            api_key=SecretStr(KEY),
            base_url=server.base_url,
            default_model="gemini-embedding-001",
            dimension=dimension,
        )
        assert len(await provider.embed_query("x")) == dimension
        await provider.aclose()
    common = {"input": ["x"], "model": "gemini-embedding-001", "encoding_format": "base64"}
    assert server.requests == [{**common, **sent}]


async def test_fake_server_rejects_undocumented_fields() -> None:
    async with FakeEmbeddingsServer(api_key=KEY) as server:
        provider = CohereEmbeddingProvider(
            api_key=SecretStr(KEY), base_url=server.base_url, default_model="embed-v4.0"
        )
        with pytest.raises(EmbeddingInputError):
            await provider.embed_query("x")
        await provider.aclose()


async def test_api_keys_register_cohere_and_google() -> None:
    # A-090, C25
    fields = {"input_type": str}
    async with FakeEmbeddingsServer(dimension=1536, api_key=KEY, fields=fields) as server:
        settings = EmbeddingSettings(
            default_provider="cohere",
            cohere_api_key=SecretStr(KEY),
            cohere_base_url=server.base_url,
            google_api_key=SecretStr(KEY),
        )
        registry = EmbeddingProviderRegistry()
        registry.auto_discover(VectorForgeConfig(embedding=settings))
        assert {"cohere", "google"} <= set(registry.list_providers())
        google = registry.get("google")
        assert (google.default_model, google.dimension()) == ("gemini-embedding-001", 3072)
        assert len(await registry.get_default().embed_query("x")) == 1536
        await registry.aclose()
