"""Every embedding provider keeps the same contract; the remote ones against a server on a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path

import pytest
from pydantic import SecretStr

from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.embedding.providers.nomic import NomicEmbedder, NomicEmbeddingProvider
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.health import HealthChecker
from vectorforge.testing.contracts_embedding import EmbeddingProviderContract
from vectorforge.testing.fake_embeddings import FakeEmbeddingsServer
from vectorforge.testing.hashing_embedder import HashingEmbedder
from vectorforge.testing.sentence_encoder import HashingSentenceEncoder


@pytest.fixture
def health_checker() -> HealthChecker:
    return HealthChecker()


@pytest.fixture(scope="module")
def model_dir(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("model")


class TestHashing(EmbeddingProviderContract):
    @pytest.fixture
    def provider(self, health_checker: HealthChecker) -> EmbeddingProvider:
        return HashingEmbedder(health_checker=health_checker, batch_size=2)


class TestLocal(EmbeddingProviderContract):
    # A-007, C14: the embedder of the laptop
    @pytest.fixture
    async def provider(
        self, health_checker: HealthChecker, model_dir: Path
    ) -> AsyncIterator[EmbeddingProvider]:
        provider = LocalEmbeddingProvider(cache_dir=model_dir, health_checker=health_checker, batch_size=2)
        yield provider
        await provider.aclose()


class TestNomic(EmbeddingProviderContract):
    # B-030, C14: everything but the weights
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        embedder = NomicEmbedder(load=HashingSentenceEncoder)
        provider = NomicEmbeddingProvider(embedder, health_checker=health_checker, batch_size=2)
        yield provider
        await provider.aclose()


class TestOpenAI(EmbeddingProviderContract):
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        async with FakeEmbeddingsServer(dimension=1536, api_key="sk-test") as server:
            provider = OpenAIEmbeddingProvider(
                api_key=SecretStr("sk-test"),
                base_url=server.base_url,
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()


class TestOpenAIShapedServerWithoutBase64(EmbeddingProviderContract):
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        async with FakeEmbeddingsServer(dimension=768, knows_base64=False) as server:
            provider = OpenAIEmbeddingProvider(
                name="http",
                api_key=None,
                base_url=server.base_url,
                default_model="nomic-embed-text",
                dimension=768,
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()
