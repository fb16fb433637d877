"""Every embedding provider satisfies the same contract; the remote ones against a server on a real socket."""

from collections.abc import AsyncIterator
from pathlib import Path
from typing import ClassVar, Literal

import boto3
import pytest
from pydantic import SecretStr

from tests.contract.suites.embedding import EmbeddingProviderContract
from tests.support.vendors.fake_bedrock_embeddings import FakeBedrockEmbeddings
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.hashing_embedder import HashingEmbedder
from tests.support.vendors.onnx_folders import embedding_folder
from tests.support.vendors.sentence_encoder import HashingSentenceEncoder
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.providers.bedrock import BedrockEmbeddingProvider
from vectorforge.embedding.providers.local import LocalEmbeddingProvider
from vectorforge.embedding.providers.nomic import NomicEmbedder, NomicEmbeddingProvider
from vectorforge.embedding.providers.openai import (
    CohereEmbeddingProvider,
    GoogleEmbeddingProvider,
    OpenAIEmbeddingProvider,
)
from vectorforge.health import HealthChecker
from vectorforge.vendors.accounts import AzureOpenAI, ClientKind


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
    # A-007, C14: the laptop's embedder
    @pytest.fixture
    async def provider(
        self, health_checker: HealthChecker, model_dir: Path
    ) -> AsyncIterator[EmbeddingProvider]:
        provider = LocalEmbeddingProvider(cache_dir=model_dir, health_checker=health_checker, batch_size=2)
        yield provider
        await provider.aclose()


class TestLocalFolder(EmbeddingProviderContract):
    # a model that is not bundled, with prefixes, pooling and norm of its description
    @pytest.fixture
    async def provider(
        self, health_checker: HealthChecker, tmp_path: Path
    ) -> AsyncIterator[EmbeddingProvider]:
        folder = embedding_folder(tmp_path)
        provider = LocalEmbeddingProvider(folder=folder, health_checker=health_checker, batch_size=2)
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
    client: ClassVar[ClientKind] = "http"

    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        async with FakeEmbeddingsServer(dimension=1536, api_key="sk-test") as server:
            provider = OpenAIEmbeddingProvider(
                api_key=SecretStr("sk-test"),
                base_url=server.base_url,
                client=self.client,
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()


class TestOpenAIWithSdk(TestOpenAI):
    client = "sdk"


class TestAzureOpenAI(EmbeddingProviderContract):
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        path = "/openai/deployments/team-embeddings/embeddings"
        async with FakeEmbeddingsServer(
            dimension=1536, api_key="azure-key", path=path, key_header="api-key"
        ) as server:
            provider = OpenAIEmbeddingProvider(
                api_key=SecretStr("azure-key"),
                azure=AzureOpenAI(
                    server.base_url.removesuffix("/v1"),
                    "2024-10-21",
                    {"text-embedding-3-small": "team-embeddings"},
                ),
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()


class TestOpenAICompatibleServerWithoutBase64(EmbeddingProviderContract):
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


class TestCohere(EmbeddingProviderContract):
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        fields = {"input_type": Literal["search_document", "search_query"]}
        async with FakeEmbeddingsServer(dimension=1536, api_key="co-test", fields=fields) as server:
            provider = CohereEmbeddingProvider(
                api_key=SecretStr("co-test"),
                base_url=server.base_url,
                default_model="embed-v4.0",
                dimension=1536,
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()


class TestGoogle(EmbeddingProviderContract):
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker) -> AsyncIterator[EmbeddingProvider]:
        async with FakeEmbeddingsServer(dimension=3072, api_key="g-test", knows_base64=False) as server:
            provider = GoogleEmbeddingProvider(
                api_key=SecretStr("g-test"),
                base_url=server.base_url,
                default_model="gemini-embedding-001",
                dimension=3072,
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()


@pytest.mark.parametrize(
    "model", ["amazon.titan-embed-text-v2:0", "cohere.embed-v4:0", "cohere.embed-multilingual-v3"]
)
class TestBedrock(EmbeddingProviderContract):
    @pytest.fixture
    async def provider(self, health_checker: HealthChecker, model: str) -> AsyncIterator[EmbeddingProvider]:
        async with FakeBedrockEmbeddings() as server:
            provider = BedrockEmbeddingProvider(
                default_model=model,
                base_url=server.base_url,
                session=boto3.session.Session("AKIATEST", server.secret, region_name="eu-central-1"),
                health_checker=health_checker,
                batch_size=2,
            )
            yield provider
            await provider.aclose()
