"""Vendors with OpenAI's protocol: their presets, and MAX Serve's address as a setting."""

from typing import Any

# Imported before the first test, since it takes seconds on a busy machine, and the tests' timeouts are short.
import openai.resources.chat  # noqa: F401 - see above
import pytest

from tests.contract.suites.llm import MESSAGES, collect
from tests.support.vendors.fake_openai import FakeOpenAI
from vectorforge.config import LLMSettings, VectorForgeConfig
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.llm.providers.openai_compatible import (
    CohereProvider,
    GoogleProvider,
    OllamaProvider,
)
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.llm.types import StreamEnd
from vectorforge.vendors.credentials import FixedCredentials


# A-089 A-090 C29: one adapter, three more vendors
@pytest.mark.parametrize(
    ("provider_class", "key_field", "url_field", "model_field"),
    [
        (OllamaProvider, None, "ollama_base_url", "ollama_model"),
        (GoogleProvider, "google_api_key", "google_base_url", "google_model"),
        (CohereProvider, "cohere_api_key", "cohere_base_url", "cohere_model"),
    ],
)
async def test_openai_compatible_vendors_generate_and_stream(
    provider_class: type[OpenAIProvider], key_field: str | None, url_field: str, model_field: str
) -> None:
    async with FakeOpenAI(api_key="ollama" if key_field is None else "sk-vendor") as server:
        values: dict[str, Any] = {url_field: server.base_url, model_field: "their-model"}
        if key_field is not None:
            values[key_field] = server.api_key
        settings = LLMSettings(**values)
        credentials = FixedCredentials(server.base_url if key_field is None else server.api_key)
        provider = provider_class.from_settings(settings, credentials)
        response = await provider.generate(MESSAGES)
        *_, end = await collect(provider)
        await provider.aclose()
    assert response.provider == provider.name == model_field.removesuffix("_model")
    assert isinstance(end, StreamEnd)
    assert end.response.content == response.content
    assert [body["model"] for body in server.bodies] == ["their-model", "their-model"]


# C13: by default it is another OpenAI-compatible server
async def test_max_serve_base_url_registers_chat_provider() -> None:
    async with FakeOpenAI(api_key="max-serve") as server:
        address = server.base_url.removesuffix("/v1")
        config = VectorForgeConfig(llm=LLMSettings(max_serve_base_url=address, max_serve_model="their-model"))
        registry = LLMProviderRegistry()
        registry.auto_discover(config)
        provider = registry.get_default()
        await provider.generate(MESSAGES)
        await registry.aclose()
    assert provider.name == "max_serve"
    (body,) = server.bodies
    assert (body["model"], body["messages"]) == ("their-model", MESSAGES)
    assert "stop" not in body
