"""The SDKs' clients behind the providers: created on first use, for the same server and current key."""

import asyncio
import subprocess
import sys
from collections.abc import Callable, Mapping
from typing import Any

import pytest
from anthropic import AsyncAnthropic, AsyncAnthropicVertex
from openai import AsyncAzureOpenAI, AsyncOpenAI
from pydantic import SecretStr

from tests.contract.suites.llm import MESSAGES
from tests.support.vendors.fake_anthropic import FakeAnthropic
from tests.support.vendors.fake_embeddings import FakeEmbeddingsServer
from tests.support.vendors.fake_openai import FakeOpenAI
from tests.support.vendors.fake_vendor import FakeVendor
from tests.support.vendors.vendor_behaviour import Failure
from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider
from vectorforge.errors import LLMAuthenticationError, LLMError
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.providers.openai_compatible import OllamaProvider
from vectorforge.vendors.accounts import AzureOpenAI, ClientKind, VertexAI
from vectorforge.vendors.credentials import KeyOrigin

TEXT = "The answer is 42 [Source 1]."
QUESTION: list[Any] = [{"role": "user", "content": "What is the answer?"}]


class Exchanged:
    """A key that is replaced by another when rejected."""

    origin = KeyOrigin.SECRET

    def __init__(self, now: str, later: str) -> None:
        self.key = SecretStr(now)
        self._later = SecretStr(later)

    async def current(self) -> SecretStr:
        return self.key

    async def refresh(self, refused: SecretStr) -> SecretStr:
        self.key = self._later
        return self.key


#
@pytest.mark.parametrize("client", ["http", "sdk"])
async def test_openai_provider_exposes_sdk_client(client: ClientKind) -> None:
    async with FakeOpenAI() as server:
        provider = OpenAIProvider(server.api_key, base_url=server.base_url, organization="org", client=client)
        found = provider._client
        assert type(found) is AsyncOpenAI
        assert (found.api_key, found.organization, found.max_retries) == (server.api_key, "org", 0)
        answer = await found.chat.completions.create(model="gpt-4o", messages=QUESTION)
        assert answer.choices[0].message.content == TEXT
        assert provider._client is found
        await provider.aclose()
        assert provider._client is not found
        assert (await provider.generate(MESSAGES)).content == TEXT
        await provider.aclose()


#
@pytest.mark.parametrize("client", ["http", "sdk"])
async def test_anthropic_provider_exposes_sdk_client(client: ClientKind) -> None:
    async with FakeAnthropic() as server:
        provider = AnthropicProvider(server.api_key, base_url=server.base_url, client=client)
        found = provider._client
        assert type(found) is AsyncAnthropic
        assert (found.api_key, found.max_retries) == (server.api_key, 0)
        answer = await found.messages.create(model="claude", max_tokens=9, messages=QUESTION)
        assert [block.text for block in answer.content if block.type == "text"] == [TEXT]
        await provider.aclose()


async def test_cloud_providers_expose_matching_sdk_client() -> None:
    azure = OpenAIProvider("key", azure=AzureOpenAI("https://example.openai.azure.com", "2024-10-21"))
    assert isinstance(azure._client, AsyncAzureOpenAI)
    vertex = AnthropicProvider("", vertex=VertexAI("example-project", "global"))
    assert isinstance(vertex._client, AsyncAnthropicVertex)
    assert str(vertex._client.base_url).startswith("https://aiplatform.googleapis.com/v1")
    ollama = OllamaProvider("ollama", base_url="http://localhost:11434/v1")
    assert str(ollama._client.base_url) == "http://localhost:11434/v1/"
    for provider in (azure, vertex, ollama):
        await provider.aclose()


async def test_embedding_provider_exposes_sdk_client() -> None:
    async with FakeEmbeddingsServer(dimension=1536, api_key="key") as server:
        provider = OpenAIEmbeddingProvider(api_key=SecretStr("key"), base_url=server.base_url)
        answer = await provider._client.embeddings.create(model="text-embedding-3-small", input=["one"])
        assert answer.data[0].embedding == pytest.approx(await provider.embed_query("one"))
        await provider.aclose()


def test_sdk_client_created_outside_event_loop_works_inside() -> None:
    async def address() -> int:
        async with FakeOpenAI() as server:
            return int(server.base_url.split(":")[2].split("/")[0])

    port = asyncio.run(address())
    provider = OpenAIProvider("key", base_url=f"http://127.0.0.1:{port}/v1")
    client = provider._client

    async def ask() -> str | None:
        async with FakeOpenAI(api_key="key", port=port):
            answer = await client.chat.completions.create(model="gpt-4o", messages=QUESTION)
            await provider.aclose()
            return answer.choices[0].message.content

    assert asyncio.run(ask()) == TEXT


# C25: over the SDK as over our own transport
@pytest.mark.parametrize(
    ("vendor", "make"),
    [
        (FakeOpenAI, lambda key, url: OpenAIProvider(key, base_url=url, client="sdk")),
        (FakeAnthropic, lambda key, url: AnthropicProvider(key, base_url=url, client="sdk")),
    ],
)
async def test_rejected_key_is_refreshed_once(
    vendor: Callable[..., FakeVendor], make: Callable[..., OpenAIProvider | AnthropicProvider]
) -> None:
    keys = Exchanged("sk-old", "sk-new")
    async with vendor(api_key="sk-new") as server:
        provider = make(keys, server.base_url)
        assert (await provider.generate(MESSAGES)).content == TEXT
        sent = [{k.lower(): v for k, v in r.headers.items()}["authorization"] for r in server.requests]
        assert sent == ["Bearer sk-old", "Bearer sk-new"]
        client: Any = provider._client  # has the current key
        assert await client.models.list()
        keys.key = SecretStr("sk-wrong")
        server.script(Failure(401), Failure(401))
        with pytest.raises(LLMAuthenticationError):
            await provider.generate(MESSAGES)
        assert len(server.requests) == 4
        await provider.aclose()


class Redirecting(FakeOpenAI):
    """Answers status 307 with another server's address."""

    elsewhere = ""

    def error_headers(self, status: int) -> Mapping[str, str]:
        return {"location": f"{self.elsewhere}/chat/completions"}


async def test_redirect_is_not_followed_with_the_key() -> None:
    async with FakeOpenAI() as elsewhere, Redirecting() as server:
        server.elsewhere = elsewhere.base_url
        server.script(Failure(307))
        provider = OpenAIProvider(server.api_key, base_url=server.base_url, client="sdk", retries=0)
        with pytest.raises(LLMError, match="status 307"):
            await provider.generate(MESSAGES)
        await provider.aclose()
        assert not elsewhere.requests


HIDDEN = """
import asyncio, sys
class Hidden:
    def find_spec(self, name, path=None, target=None):
        if name == PACKAGE:
            raise ModuleNotFoundError(f"No module named {name!r}", name=name)
sys.meta_path.insert(0, Hidden())
from vectorforge.llm.providers.anthropic import AnthropicProvider
from vectorforge.llm.providers.openai import OpenAIProvider
from tests.contract.suites.llm import MESSAGES
made = {"openai": OpenAIProvider, "anthropic": AnthropicProvider}[PACKAGE]("key", client="sdk")
try:
    asyncio.run(made.generate(MESSAGES))
except Exception as exc:
    print(type(exc).__name__, exc)
"""


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_missing_sdk_package_error_names_package_and_setting(package: str) -> None:
    found = subprocess.run(
        [sys.executable, "-c", f"PACKAGE = {package!r}\n{HIDDEN}"], capture_output=True, text=True, check=True
    ).stdout
    assert found.startswith(f"ConfigurationError {package} is not installed: pip install 'vectorforge[")
    assert f"VECTORFORGE_{package.upper()}_CLIENT=http" in found


@pytest.mark.parametrize("package", ["openai", "anthropic"])
def test_sdk_package_is_imported_on_first_use(package: str) -> None:
    code = (
        "import sys\n"
        "from vectorforge.llm.providers.anthropic import AnthropicProvider\n"
        "from vectorforge.llm.providers.openai import OpenAIProvider\n"
        "made = {'openai': OpenAIProvider, 'anthropic': AnthropicProvider}[sys.argv[1]]\n"
        "providers = [made('key', client=client) for client in ('http', 'sdk')]\n"
        "seen = [name in sys.modules for name in ('openai', 'anthropic', 'httpx2')]\n"
        "providers[0]._client\n"
        "print(seen, [name for name in ('openai', 'anthropic') if name in sys.modules])\n"
    )
    found = subprocess.run(
        [sys.executable, "-c", code, package], capture_output=True, text=True, check=True
    ).stdout
    assert found.strip() == f"[False, False, False] ['{package}']"
