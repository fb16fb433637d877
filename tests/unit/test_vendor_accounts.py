"""Vendor accounts by settings: OpenAI or Azure, Anthropic or Vertex AI."""

import sys
from pathlib import Path
from typing import Any

import pytest
from pydantic import SecretStr

from tests.contract.suites.llm import MESSAGES
from tests.support.vendors.fake_azure_openai import FakeAzureOpenAI
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vertex import PROJECT, REGION, FakeVertex
from vectorforge.aws.secrets import KeyPlace, StoredKeys
from vectorforge.config import EmbeddingSettings, LLMSettings, VectorForgeConfig
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError, LLMAuthenticationError
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.vendors.credentials import CommandCredentials, CredentialStore, KeyOrigin

TEXT = "The answer is 42 [Source 1]."


def stored(**fields: str) -> CredentialStore:
    return StoredKeys((KeyPlace("Secret s", KeyOrigin.SECRET, lambda: fields, max_age_s=300),))


async def answer(name: str, store: CredentialStore | None = None, **settings: Any) -> str:
    """Return the answer of a discovered provider with these settings only."""
    registry = LLMProviderRegistry()
    registry.auto_discover(VectorForgeConfig(llm=LLMSettings(**settings)), store=store)
    try:
        return (await registry.get(name).generate(MESSAGES)).content
    finally:
        await registry.aclose()


async def test_azure_key_in_the_environment_registers_openai() -> None:
    async with FakeAzureOpenAI() as server:
        key = SecretStr(server.api_key)
        first_answer = await answer("openai", azure_openai_endpoint=server.base_url, azure_openai_api_key=key)
        assert first_answer == TEXT


async def test_azure_key_in_the_secret_registers_openai() -> None:
    async with FakeAzureOpenAI() as server:
        store = stored(azure_openai_api_key=server.api_key, openai_api_key="sk-of-openai-itself")
        assert await answer("openai", store, azure_openai_endpoint=server.base_url) == TEXT
        [request] = server.requests
    assert "sk-of-openai-itself" not in str(request.headers)


async def test_entra_token_in_the_secret_registers_openai() -> None:
    async with FakeAzureOpenAI(token="entra-token") as server:
        store = stored(VECTORFORGE_AZURE_OPENAI_AD_TOKEN="entra-token")
        assert await answer("openai", store, azure_openai_endpoint=server.base_url) == TEXT


async def test_endpoint_without_its_own_credentials_registers_nothing() -> None:
    registry = LLMProviderRegistry()
    settings = LLMSettings(azure_openai_endpoint="https://example.azure.com", openai_api_key=SecretStr("sk"))
    registry.auto_discover(VectorForgeConfig(llm=settings))
    assert registry.list_providers() == []


async def test_azure_embeddings_use_configured_deployment() -> None:
    path = "/openai/deployments/team-embeddings/embeddings"
    async with FakeEmbeddingsServer(dimension=1536, api_key="k", path=path, key_header="api-key") as server:
        settings = EmbeddingSettings(
            default_provider="openai",
            azure_openai_endpoint=server.base_url.removesuffix("/v1"),
            azure_openai_api_key=SecretStr("k"),
            azure_openai_deployments={"text-embedding-3-small": "team-embeddings"},
        )
        registry = EmbeddingProviderRegistry()
        registry.auto_discover(VectorForgeConfig(embedding=settings))
        assert len(await registry.get("openai").embed_query("What is the answer?")) == 1536
        await registry.aclose()


async def test_vertex_project_with_a_stored_token_registers_anthropic() -> None:
    async with FakeVertex(api_key="ya29.token") as server:
        settings = {"vertex_project": PROJECT, "vertex_region": REGION, "vertex_base_url": server.base_url}
        assert await answer("anthropic", stored(vertex_access_token="ya29.token"), **settings) == TEXT


async def test_client_setting_chooses_the_sdk() -> None:
    async with FakeOpenAI() as server:
        for client in ("http", "sdk"):
            key = SecretStr(server.api_key)
            await answer("openai", openai_api_key=key, openai_base_url=server.base_url, openai_client=client)
        ours, theirs = (request.headers["User-Agent"] for request in server.requests)
    assert ours == "VectorForge"
    assert theirs.startswith("AsyncOpenAI/Python")


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("VECTORFORGE_OPENAI_CLIENT", "aiohttp"),
        ("VECTORFORGE_AZURE_OPENAI_ENDPOINT", "example.openai.azure.com"),
        ("VECTORFORGE_VERTEX_PROJECT", "a project/x"),
        ("VECTORFORGE_AZURE_OPENAI_AD_TOKEN_COMMAND", "az 'account"),
    ],
)
def test_invalid_setting_is_rejected_by_name(name: str, value: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(name, value)
    if name != "VECTORFORGE_AZURE_OPENAI_ENDPOINT":
        monkeypatch.setenv("VECTORFORGE_AZURE_OPENAI_ENDPOINT", "https://example.openai.azure.com")
    with pytest.raises(ConfigurationError, match=name):
        LLMProviderRegistry().auto_discover(VectorForgeConfig.from_environment())


class TestTokenCommand:
    @staticmethod
    def command(folder: Path, body: str) -> str:
        script = folder / "token.py"
        script.write_text(body)
        return f"'{sys.executable}' '{script}'"

    async def test_token_is_cached_and_reread_after_rejection(self, tmp_path: Path) -> None:
        counted = tmp_path / "runs"
        body = f"open({str(counted)!r}, 'a').write('x'); print('token-' + open({str(counted)!r}).read())"
        async with FakeAzureOpenAI(token="token-x") as server:
            settings = LLMSettings(
                azure_openai_endpoint=server.base_url,
                azure_openai_ad_token_command=self.command(tmp_path, body),
            )
            registry = LLMProviderRegistry()
            registry.auto_discover(VectorForgeConfig(llm=settings))
            provider = registry.get("openai")
            assert [(await provider.generate(MESSAGES)).content for _ in range(2)] == [TEXT, TEXT]
            assert counted.read_text() == "x"
            server.token = "another"
            with pytest.raises(LLMAuthenticationError):
                await provider.generate(MESSAGES)
            assert counted.read_text() == "x"  # it ran less than 5 s ago
            await registry.aclose()

    @pytest.mark.parametrize(
        ("body", "reason"),
        [
            ("import sys; print('canary'); sys.exit(3)", "exit code 3"),
            ("print()", "it must print one token"),
            ("print('canary words')", "it must print one token"),
        ],
    )
    async def test_failure_is_logged_without_command_output(
        self, tmp_path: Path, body: str, reason: str, caplog: pytest.LogCaptureFixture
    ) -> None:
        credentials = CommandCredentials(self.command(tmp_path, body), "VECTORFORGE_X_COMMAND")
        assert (await credentials.current()).get_secret_value() == ""
        assert f"VECTORFORGE_X_COMMAND printed no token ({reason}" in caplog.text
        assert "canary" not in caplog.text
        assert credentials.origin == KeyOrigin.COMMAND

    async def test_missing_program_is_logged(self, caplog: pytest.LogCaptureFixture) -> None:
        await CommandCredentials("no-such-program-here", "VECTORFORGE_X_COMMAND").current()
        assert "FileNotFoundError" in caplog.text
