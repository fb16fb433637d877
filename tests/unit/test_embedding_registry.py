"""The registry of embedding providers: discovery, the default, errors."""

import logging
from typing import Any

import pytest
from pydantic import SecretStr

from tests.support.vendors.hashing_embedder import HashingEmbedder
from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.embedding.registry import EMBEDDING_SPECS, EmbeddingProviderRegistry
from vectorforge.errors import ConfigurationError
from vectorforge.vendors.accounts import ProviderSpec

# --- registry


@pytest.mark.parametrize("spec", EMBEDDING_SPECS, ids=lambda spec: spec.name)
def test_dimension_settings_of_each_provider_exist(spec: ProviderSpec[EmbeddingSettings]) -> None:
    assert len(spec.dimension_settings) == 2
    assert {spec.setting, *spec.dimension_settings} <= set(EmbeddingSettings.model_fields)


def settings(**values: Any) -> VectorForgeConfig:
    return VectorForgeConfig(embedding=EmbeddingSettings(**values))


def test_empty_registry_error_names_setting() -> None:
    #
    registry = EmbeddingProviderRegistry()
    for ask in (registry.get_default, lambda: registry.get("local")):
        with pytest.raises(ConfigurationError, match="VECTORFORGE_OPENAI_API_KEY"):
            ask()


def test_unknown_provider_error_lists_known_names() -> None:
    #
    registry = EmbeddingProviderRegistry()
    registry.register(HashingEmbedder(name="one"))
    registry.register(HashingEmbedder(name="two"))
    with pytest.raises(ConfigurationError, match='Unknown embedding provider "three"; registered: one, two'):
        registry.get("three")
    with pytest.raises(ConfigurationError):
        registry.set_default("three")


def test_first_provider_is_default_until_changed() -> None:
    registry = EmbeddingProviderRegistry()
    first, second = HashingEmbedder(name="one"), HashingEmbedder(name="two")
    registry.register(first)
    registry.register(second)
    assert registry.get_default() is first
    registry.set_default("two")
    assert registry.get_default() is registry.get("two") is second
    assert registry.list_providers() == ["one", "two"]


def test_discovery_registers_configured_providers(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    registry = EmbeddingProviderRegistry()
    registry.auto_discover(
        settings(
            openai_api_key=SecretStr("sk-secret-1"),
            embedding_base_url="http://localhost:11434/v1",
            embedding_model="nomic-embed-text",
            embedding_dimension=768,
        )
    )
    assert registry.list_providers() == ["local", "openai", "http"]
    assert registry.get_default().name == "local"
    assert registry.get("local").dimension() == 384
    assert registry.get("openai").dimension() == 1536
    assert registry.get("openai").default_model == "text-embedding-3-small"
    assert registry.get("http").dimension() == 768
    assert "Registered embedding provider: http" in caplog.text
    assert "sk-secret" not in caplog.text


def test_discovery_without_credentials_registers_local_provider(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.INFO)
    registry = EmbeddingProviderRegistry()
    registry.auto_discover(settings(openai_api_key=SecretStr("")))
    assert registry.list_providers() == ["local"]
    assert "Skipped embedding provider: openai (no credentials)" in caplog.text


def test_missing_default_provider_logs_warning(caplog: pytest.LogCaptureFixture) -> None:
    registry = EmbeddingProviderRegistry()
    registry.auto_discover(settings(default_provider="openai"))
    assert registry.get_default().name == "local"
    assert caplog.messages == ["Default embedding provider 'openai' not available; using 'local'"]


def test_custom_endpoint_without_dimension_is_rejected() -> None:
    with pytest.raises(ConfigurationError, match="VECTORFORGE_EMBEDDING_DIMENSION"):
        EmbeddingProviderRegistry().auto_discover(settings(embedding_base_url="http://x/v1"))
