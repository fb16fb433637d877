"""Fallback providers by configuration."""

import logging

import pytest
from pydantic import SecretStr

from tests.support.vendors.scripted_llm import ScriptedLLM
from vectorforge.config import LLMSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, LLMError
from vectorforge.llm.providers.extractive import ExtractiveProvider
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.pipeline.fallback.quoting import unavailable


def discovered(*fallbacks: str) -> LLMProviderRegistry:
    settings = LLMSettings(
        openai_api_key=SecretStr("sk-test"),
        ollama_base_url="http://localhost:11434",
        llm_fallbacks=list(fallbacks),
    )
    registry = LLMProviderRegistry()
    registry.auto_discover(VectorForgeConfig(llm=settings))
    return registry


def order(registry: LLMProviderRegistry, of: str) -> list[tuple[str, str]]:
    return [(writer.provider.name, writer.model) for writer in registry.fallbacks_of(registry.get(of))]


def test_fallbacks_default_to_none() -> None:
    assert order(discovered(), "openai") == []


def test_fallbacks_follow_configured_order(monkeypatch: pytest.MonkeyPatch) -> None:
    registry = discovered("ollama:qwen3:8b", "openai", "ollama")
    assert order(registry, "openai") == [("ollama", "qwen3:8b"), ("ollama", "llama3.3")]
    assert order(registry, "ollama") == [("openai", "gpt-4o")]
    monkeypatch.setenv("VECTORFORGE_LLM_FALLBACKS", '["ollama"]')
    assert VectorForgeConfig.from_environment().llm.llm_fallbacks == ["ollama"]


def test_fallback_without_credentials_is_skipped_with_warning(caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.WARNING):
        registry = discovered("anthropic", "ollama")
    assert order(registry, "openai") == [("ollama", "llama3.3")]
    assert "LLM fallback 'anthropic' is skipped: it has no credentials" in caplog.text


def test_unknown_fallback_name_is_rejected_at_startup() -> None:
    with pytest.raises(ConfigurationError, match=r"VECTORFORGE_LLM_FALLBACKS names 'antropic'"):
        discovered("antropic")
    registry = discovered()
    registry.register(ExtractiveProvider())
    with pytest.raises(ConfigurationError, match="extractive"):
        registry.set_fallbacks(["extractive"])  # quotes are the implicit last fallback, marked as such


def test_providers_share_one_retry_budget() -> None:
    registry = LLMProviderRegistry()
    first, second = ScriptedLLM(name="first"), ScriptedLLM(name="second")
    assert first.retry_budget is not second.retry_budget
    registry.register(first)
    registry.register(second)
    assert first.retry_budget is second.retry_budget


@pytest.mark.parametrize("message", ["No model answered", "No model answered."])
def test_error_without_fallback_ends_its_sentence(message: str) -> None:
    assert unavailable(LLMError(message)).message == "No model answered. Try again later."
