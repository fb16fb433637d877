"""OpenAI and Anthropic behind a cloud's authentication, which only their SDKs support."""

import json
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import anthropic.resources.messages  # noqa: F401 - within a test it would cost seconds of its timeouts
import openai.resources.chat  # noqa: F401 - the same
import pytest
from aiohttp import web
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric import rsa

from tests.contract.suites.llm import MESSAGES, collect
from tests.contract.suites.llm_streams import LLMStreamContract
from tests.support.vendors.fake_azure_openai import FakeAzureOpenAI
from tests.support.vendors.fake_vendor import FakeVendor
from tests.support.vendors.fake_vertex import PROJECT, REGION, FakeVertex
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.vendors.accounts import AzureOpenAI, VertexAI
from vectorforge.vendors.credentials import AccessToken, FixedCredentials

VERSION = "2024-10-21"


class TestAzureOpenAI(LLMStreamContract):
    def make_server(self, **kwargs: Any) -> FakeVendor:
        return FakeAzureOpenAI(**kwargs)

    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        return OpenAIProvider(credentials, azure=AzureOpenAI(base_url, VERSION), **kwargs)

    async def test_mapped_deployment_serves_its_model(self) -> None:
        async with FakeAzureOpenAI() as server:
            azure = AzureOpenAI(server.base_url, VERSION, {"gpt-4o": "team-chat"})
            provider = OpenAIProvider(server.api_key, azure=azure)
            response = await provider.generate(MESSAGES)
            await collect(provider)
            await provider.aclose()
        assert {request.path for request in server.requests} == {
            "/openai/deployments/team-chat/chat/completions"
        }
        assert response.provider == "openai"

    async def test_entra_token_is_sent_as_bearer_without_key(self) -> None:
        async with FakeAzureOpenAI(token="entra-token") as server:
            provider = OpenAIProvider(
                AccessToken(FixedCredentials("entra-token")), azure=AzureOpenAI(server.base_url, VERSION)
            )
            assert (await provider.generate(MESSAGES)).content
            assert await provider.list_models() == ["gpt-4o", "gpt-6-luna"]
            answer = await provider._client.chat.completions.create(
                model="gpt-4o", messages=[{"role": "user", "content": "What is the answer?"}]
            )
            await provider.aclose()
        assert answer.choices[0].message.content == "The answer is 42 [Source 1]."


class TestVertex(LLMStreamContract):
    def make_server(self, **kwargs: Any) -> FakeVendor:
        return FakeVertex(**kwargs)

    def make_provider(self, credentials: str, base_url: str, **kwargs: Any) -> BaseLLMProvider:
        token = AccessToken(FixedCredentials(credentials))
        return AnthropicProvider(token, vertex=VertexAI(PROJECT, REGION, base_url), **kwargs)

    async def test_model_list_is_the_configured_model(self, provider: BaseLLMProvider) -> None:
        assert await provider.list_models() == ["claude-sonnet-4-20250514"]


class GoogleTokens:
    """Google's token endpoint, for one service account."""

    def __init__(self) -> None:
        self.granted = 0
        self.url = ""

    async def grant(self, request: web.Request) -> web.Response:
        form = await request.post()
        assert form["grant_type"] == "urn:ietf:params:oauth:grant-type:jwt-bearer"
        self.granted += 1
        return web.json_response({"access_token": "ya29.token", "expires_in": 3600, "token_type": "Bearer"})


@pytest.fixture
async def google_tokens() -> AsyncIterator[GoogleTokens]:
    tokens, app = GoogleTokens(), web.Application()
    app.router.add_post("/token", tokens.grant)
    runner = web.AppRunner(app, shutdown_timeout=0.1)
    await runner.setup()
    await web.TCPSite(runner, "127.0.0.1", 0).start()
    tokens.url = f"http://127.0.0.1:{runner.addresses[0][1]}/token"
    yield tokens
    await runner.cleanup()


async def test_vertex_without_token_uses_google_default_credentials(
    google_tokens: GoogleTokens, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    key = rsa.generate_private_key(public_exponent=65537, key_size=2048).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    account = {
        "type": "service_account",
        "project_id": PROJECT,
        "private_key_id": "1",
        "private_key": key.decode(),
        "client_email": "rag@example-project.iam.gserviceaccount.com",
        "token_uri": google_tokens.url,
    }
    (tmp_path / "account.json").write_text(json.dumps(account))
    monkeypatch.setenv("GOOGLE_APPLICATION_CREDENTIALS", str(tmp_path / "account.json"))
    async with FakeVertex(api_key="ya29.token") as server:
        vertex = VertexAI(PROJECT, REGION, server.base_url)
        provider = AnthropicProvider("", vertex=vertex)
        assert (await provider.generate(MESSAGES)).content == "The answer is 42 [Source 1]."
        assert (await provider.generate(MESSAGES)).content
        await provider.aclose()
    assert google_tokens.granted == 1
