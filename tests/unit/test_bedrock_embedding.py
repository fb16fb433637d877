"""Embedding models on Bedrock through boto3, over a real socket."""

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from typing import Any

import boto3
import pytest

from tests.support.vendors.fake_bedrock_embeddings import FakeBedrockEmbeddings
from tests.support.vendors.hashing_embedder import hashed_vector
from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.embedding.providers.bedrock import BedrockEmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    ConfigurationError,
    EmbeddingAuthenticationError,
    EmbeddingError,
    EmbeddingInputError,
    EmbeddingRateLimitError,
    EmbeddingTimeoutError,
    UnknownModelError,
)

TITAN = "amazon.titan-embed-text-v2:0"
COHERE = "eu.cohere.embed-v4:0"


@pytest.fixture
async def server() -> AsyncIterator[FakeBedrockEmbeddings]:
    async with FakeBedrockEmbeddings() as running:
        yield running


@asynccontextmanager
async def connected(
    server: FakeBedrockEmbeddings, model: str = TITAN, *, secret: str | None = None, **options: Any
) -> AsyncIterator[BedrockEmbeddingProvider]:
    provider = BedrockEmbeddingProvider(
        default_model=model,
        base_url=server.base_url,
        session=boto3.session.Session("AKIATEST", secret or server.secret, region_name="eu-central-1"),
        **options,
    )
    try:
        yield provider
    finally:
        await provider.aclose()


@pytest.mark.parametrize(("dimension", "sent"), [(None, 1024), (256, 256), (512, 512), (1024, 1024)])
async def test_titan_request_holds_one_text(
    server: FakeBedrockEmbeddings, dimension: int | None, sent: int
) -> None:
    async with connected(server, dimension=dimension) as provider:
        vectors = await provider.embed_documents(["one", "two", "three"])
        assert provider.dimension() == sent
    assert [
        vector == pytest.approx(hashed_vector(text, sent), abs=1e-6)
        for vector, text in zip(vectors, ["one", "two", "three"], strict=True)
    ] == [True] * 3
    assert sorted(body["inputText"] for _, body in server.requests) == ["one", "three", "two"]
    for model, body in server.requests:
        assert model == TITAN
        text = body.pop("inputText")
        assert text
        assert body == {"dimensions": sent, "normalize": True, "embeddingTypes": ["float"]}


async def test_titan_requests_run_concurrently_up_to_limit(server: FakeBedrockEmbeddings) -> None:
    server.delay_s = 0.05
    async with connected(server) as provider:
        await provider.embed_documents([f"text {number}" for number in range(30)])
    assert len(server.requests) == 30
    assert 2 <= server.most_at_once <= provider.concurrent_batches == 8


async def test_cohere_request_sets_input_type_for_query_and_document(server: FakeBedrockEmbeddings) -> None:
    async with connected(server, COHERE, dimension=512, cache=InMemoryEmbeddingCache(10)) as provider:
        (document,) = await provider.embed_documents(["due date"])
        query = await provider.embed_query("due date")
        assert await provider.embed_documents(["due date"]) == [document]
        assert await provider.embed_query("due date") == query
    assert document != query  # and neither came from the other's cache entry
    common = {
        "texts": ["due date"],
        "embedding_types": ["float"],
        "truncate": "NONE",
        "output_dimension": 512,
    }
    assert server.requests == [
        (COHERE, {**common, "input_type": "search_document"}),
        (COHERE, {**common, "input_type": "search_query"}),
    ]


async def test_titan_query_and_document_share_one_cached_vector(server: FakeBedrockEmbeddings) -> None:
    async with connected(server, cache=InMemoryEmbeddingCache(10)) as provider:
        assert [await provider.embed_query("due date")] == await provider.embed_documents(["due date"])
    assert len(server.requests) == 1


async def test_cohere_request_holds_at_most_96_texts(server: FakeBedrockEmbeddings) -> None:
    texts = [f"text {number}" for number in range(100)]
    async with connected(server, COHERE, batch_size=2048) as provider:
        vectors = await provider.embed_documents(texts)
    assert sorted(len(body["texts"]) for _, body in server.requests) == [4, 96]
    assert vectors[97] == pytest.approx(hashed_vector("text 97", 1536), abs=1e-6)


async def test_other_model_has_own_dimension_and_unknown_model_raises(server: FakeBedrockEmbeddings) -> None:
    async with connected(server, TITAN, dimension=256) as provider:
        assert len(await provider.embed_query("x", model=COHERE)) == provider.dimension(COHERE) == 1536
        with pytest.raises(UnknownModelError, match="not a supported embedding model of Amazon Bedrock"):
            await provider.embed_query("x", model="their.model")


@pytest.mark.parametrize(
    ("model", "dimension", "known"),
    [(TITAN, 1536, "256, 512, 1024"), (COHERE, 1000, "256, 512, 1024, 1536"), (TITAN, 0, "256")],
)
def test_unsupported_dimension_error_names_setting(model: str, dimension: int, known: str) -> None:
    with pytest.raises(ConfigurationError, match=f"VECTORFORGE_BEDROCK_EMBEDDING_DIMENSION.*{known}"):
        BedrockEmbeddingProvider(default_model=model, dimension=dimension)


# C23
@pytest.mark.parametrize(
    ("status", "kind", "error", "retryable"),
    [
        (403, "AccessDeniedException", EmbeddingAuthenticationError, False),
        (400, "ExpiredTokenException", EmbeddingAuthenticationError, False),
        (404, "ResourceNotFoundException", EmbeddingError, False),
        (400, "ValidationException", EmbeddingInputError, False),
        (429, "ThrottlingException", EmbeddingRateLimitError, True),
        (429, "ModelNotReadyException", EmbeddingRateLimitError, True),
        (408, "ModelTimeoutException", EmbeddingError, True),
        (503, "ServiceUnavailableException", EmbeddingError, True),
    ],
)
async def test_service_errors_map_to_embedding_errors(
    server: FakeBedrockEmbeddings, status: int, kind: str, error: type[EmbeddingError], retryable: bool
) -> None:
    server.failures.append((status, kind, {"retry-after": "9"}))
    async with connected(server, retries=0) as provider:
        with pytest.raises(error) as caught:
            await provider.embed_query("a secret")
    assert caught.value.retryable is retryable
    assert "secret" not in caught.value.message
    if error is EmbeddingRateLimitError:
        assert caught.value.retry_after_s == 9


async def test_throttling_and_broken_connection_are_retried(server: FakeBedrockEmbeddings) -> None:
    server.failures.extend([(429, "ThrottlingException", {"retry-after": "0"})] * 2)
    server.cuts_off = 1
    async with connected(server) as provider:
        assert len(await provider.embed_query("x")) == 1024
    assert len(server.requests) == 4  # the SDK adds none of its own


async def test_oversized_text_error_names_its_index(server: FakeBedrockEmbeddings) -> None:
    async with connected(server) as provider:
        with pytest.raises(EmbeddingInputError) as caught:
            await provider.embed_documents(["short", "x" * 50_001, "also short"])
    assert caught.value.index == 1


async def test_wrong_secret_raises_authentication_error(server: FakeBedrockEmbeddings) -> None:
    async with connected(server, secret="another") as provider:
        with pytest.raises(EmbeddingAuthenticationError):
            await provider.embed_query("x")


async def test_unresponsive_service_raises_timeout(server: FakeBedrockEmbeddings) -> None:
    server.delay_s = 30
    async with connected(server, retries=0, timeout_s=0.3) as provider:
        await provider.preload()
        with pytest.raises(EmbeddingTimeoutError):
            await provider.embed_query("x")


async def test_unreachable_service_raises_retryable_error() -> None:
    async with FakeBedrockEmbeddings() as gone:
        pass
    async with connected(gone, retries=0) as provider:
        with pytest.raises(EmbeddingError, match="cannot be reached") as caught:
            await provider.embed_query("x")
    assert caught.value.retryable


async def test_bedrock_settings_register_the_provider(
    monkeypatch: pytest.MonkeyPatch, server: FakeBedrockEmbeddings
) -> None:
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "AKIATEST")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", server.secret)
    settings = EmbeddingSettings(
        default_provider="bedrock",
        bedrock_embedding_model=COHERE,
        bedrock_embedding_dimension=256,
        bedrock_region="eu-west-1",
        bedrock_base_url=server.base_url,
    )
    registry = EmbeddingProviderRegistry()
    registry.auto_discover(VectorForgeConfig(embedding=settings))
    provider = registry.get_default()
    assert (provider.name, provider.default_model, provider.dimension()) == ("bedrock", COHERE, 256)
    assert len(await provider.embed_query("x")) == 256
    await registry.aclose()
