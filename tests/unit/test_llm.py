"""Language models without a vendor: closed streams, discovery, the registry, settings, defaults."""

import re
import subprocess
import sys
from collections.abc import AsyncGenerator
from contextlib import aclosing

import pytest
from pydantic import SecretStr

from vectorforge.config import LLMSettings, VectorForgeConfig
from vectorforge.errors import (
    ConfigurationError,
    InvalidInputError,
    LLMError,
)
from vectorforge.health import HealthChecker
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.registry import PROVIDER_SPECS, LLMProviderRegistry
from vectorforge.llm.types import (
    Completion,
    ProviderCall,
    ProviderCapability,
)
from vectorforge.telemetry import InMemoryMetrics
from vectorforge.vendors.accounts import ProviderSpec


class Quoter(BaseLLMProvider):
    """Replaces the extractive provider."""

    def __init__(self, name: str = "extractive") -> None:
        self._name = name
        self.open_streams = 0
        super().__init__(default_model="quotes")

    def provider_name(self) -> str:
        return self._name

    @property
    def capabilities(self) -> frozenset[ProviderCapability]:
        return super().capabilities | {ProviderCapability.EXTRACTIVE}

    async def _call_api(self, call: ProviderCall) -> Completion:
        return Completion("quotes", "stop", "quoted")

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        self.open_streams += 1
        try:
            yield "quoted"
            yield Completion("quotes", "stop", prompt_tokens=3, completion_tokens=4)
        finally:
            self.open_streams -= 1

    async def _list_models(self) -> list[str]:
        return ["quotes"]


QUESTION = [{"role": "user", "content": "Why?"}]


# The garbage collector would close them too, but some time later.
async def test_client_disconnect_closes_provider_stream() -> None:
    provider = Quoter()
    async with aclosing(provider.generate_stream(QUESTION)) as texts:
        await anext(texts)
        assert provider.open_streams == 1
    assert provider.open_streams == 0


#
async def test_finished_stream_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "vectorforge.llm.base")
    assert [text async for text in Quoter().generate_stream(QUESTION)] == ["quoted"]
    (message,) = caplog.messages
    assert re.fullmatch(r"Streamed 7 tokens from extractive \(quotes\) in \d+ ms", message)


def settings(
    openai: str | None = None, anthropic: str | None = None, default: str = "openai"
) -> VectorForgeConfig:
    return VectorForgeConfig(
        llm=LLMSettings(
            openai_api_key=None if openai is None else SecretStr(openai),
            anthropic_api_key=None if anthropic is None else SecretStr(anthropic),
            default_provider=default,
        )
    )


VENDORS = ["openai", "anthropic", "ollama", "google", "cohere", "max_serve", "bedrock"]


#
def test_provider_discovery_order_is_fixed() -> None:
    assert [spec.name for spec in PROVIDER_SPECS] == VENDORS


# A-089 A-090 A-093 C13
def test_vendors_are_discovered_by_their_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("VECTORFORGE_OPENAI_API_KEY", "k1")
    monkeypatch.setenv("VECTORFORGE_ANTHROPIC_API_KEY", "k2")
    monkeypatch.setenv("VECTORFORGE_OLLAMA_BASE_URL", "http://localhost:11434")
    monkeypatch.setenv("VECTORFORGE_GOOGLE_API_KEY", "k4")
    monkeypatch.setenv("VECTORFORGE_COHERE_API_KEY", "k5")
    monkeypatch.setenv("VECTORFORGE_MAX_SERVE_BASE_URL", "http://localhost:8080")
    monkeypatch.setenv("VECTORFORGE_BEDROCK_MODEL", "eu.amazon.nova-2-lite-v1:0")
    registry = LLMProviderRegistry()
    registry.auto_discover(VectorForgeConfig.from_environment())
    assert registry.list_providers() == VENDORS
    for name in registry.list_providers():
        assert registry.get(name).name == name


_OTHERS_SKIPPED = [f"Skipped LLM provider: {name} (no credentials)" for name in VENDORS[2:]]


# A-091 A-092 A-093 A-094 A-095
@pytest.mark.parametrize(
    ("config", "names", "default", "logged"),
    [
        (
            settings("key", "key"),
            ["openai", "anthropic"],
            "openai",
            ["Registered LLM provider: openai", "Registered LLM provider: anthropic", *_OTHERS_SKIPPED],
        ),
        (settings("key", "key", default="anthropic"), ["openai", "anthropic"], "anthropic", None),
        (
            settings("", "key"),
            ["anthropic"],
            "anthropic",
            [
                "Skipped LLM provider: openai (no credentials)",
                "Registered LLM provider: anthropic",
                *_OTHERS_SKIPPED,
                "Default LLM provider 'openai' not available",
            ],
        ),
        (
            settings("key", None, default="cohere"),
            ["openai"],
            "openai",
            [
                "Registered LLM provider: openai",
                "Skipped LLM provider: anthropic (no credentials)",
                *_OTHERS_SKIPPED,
                "Default LLM provider 'cohere' not available",
            ],
        ),
    ],
)
def test_discovery_registers_and_logs_configured_providers(
    config: VectorForgeConfig,
    names: list[str],
    default: str,
    logged: list[str] | None,
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level("INFO", "vectorforge.llm.registry")
    registry = LLMProviderRegistry()
    registry.auto_discover(config)
    assert registry.list_providers() == names
    assert registry.get_default().name == default
    assert [info.name for info in registry.infos() if info.is_default] == [default]
    if logged is not None:
        assert caplog.messages == logged
        warnings = [record.message for record in caplog.records if record.levelname == "WARNING"]
        assert warnings == [text for text in logged if text.startswith("Default")]


# A-095 A-096 A-092
def test_empty_registry_warns_and_raises_on_get_default(caplog: pytest.LogCaptureFixture) -> None:
    registry = LLMProviderRegistry()
    registry.auto_discover(settings())
    assert [(r.levelname, r.message) for r in caplog.records if r.levelno >= 30] == [
        ("WARNING", "No LLM providers configured — generation disabled")
    ]
    assert registry.list_providers() == []
    assert registry.infos() == []
    with pytest.raises(LLMError, match=r"^No LLM providers configured$"):
        registry.get_default()


#
def test_extractive_only_registry_logs_no_warning(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO", "vectorforge.llm.registry")
    registry = LLMProviderRegistry()
    registry.auto_discover(settings(), fallback=Quoter())
    assert registry.get_default().name == "extractive"
    assert {record.levelname for record in caplog.records} == {"INFO"}
    assert "answers are extractive" in caplog.messages[-1]


#
@pytest.mark.parametrize("registered_before", [True, False])
def test_extractive_provider_ranks_after_models_in_any_order(registered_before: bool) -> None:
    registry = LLMProviderRegistry()
    if registered_before:
        registry.register(Quoter())
    registry.auto_discover(settings(None, "key"), fallback=Quoter())
    assert registry.get_default().name == "anthropic"
    assert set(registry.list_providers()) == {"anthropic", "extractive"}


def test_extractive_answers_setting_disables_fallback() -> None:
    llm = LLMSettings(extractive_answers=False, openai_api_key=None, anthropic_api_key=None)
    registry = LLMProviderRegistry()
    registry.auto_discover(VectorForgeConfig(llm=llm), fallback=Quoter())
    assert registry.list_providers() == []


#
def test_unknown_provider_name_raises() -> None:
    registry = LLMProviderRegistry()
    registry.register(Quoter("a"))
    registry.register(Quoter("b"))
    with pytest.raises(InvalidInputError, match=r'Unknown LLM provider "c"; registered: a, b\.') as caught:
        registry.get("c")
    assert caught.value.field == "llm_provider"
    with pytest.raises(ConfigurationError, match="'c' is not registered"):
        registry.set_default("c")
    assert registry.get_default().name == "a"
    registry.set_default("b")
    assert registry.get_default() is registry.get("b")


#
def test_provider_spec_row_adds_a_vendor(caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level("INFO")
    factory = "vectorforge.llm.providers.openai:OpenAIProvider"
    row: ProviderSpec[LLMSettings] = ProviderSpec("second", "anthropic_api_key", factory)
    registry = LLMProviderRegistry(specs=(row,))
    registry.auto_discover(settings(None, "key", default="second"))
    assert registry.list_providers() == ["openai"]


# A-076 A-077 A-078 A-079 A-084 A-151
def test_settings_are_passed_to_providers(monkeypatch: pytest.MonkeyPatch) -> None:
    values = {
        "OPENAI_API_KEY": "sk-1",
        "OPENAI_BASE_URL": "http://localhost:11434/v1",
        "OPENAI_ORG_ID": "org-1",
        "ANTHROPIC_API_KEY": "sk-2",
        "DEFAULT_LLM_MODEL": "llama",
    }
    for name, value in values.items():
        monkeypatch.setenv(f"VECTORFORGE_{name}", value)
    health, metrics = HealthChecker(), InMemoryMetrics()
    registry = LLMProviderRegistry(metrics=metrics, health_checker=health)
    registry.auto_discover(VectorForgeConfig.from_environment())
    assert registry.get("openai").default_model == "llama"
    assert registry.get("anthropic").default_model == "claude-sonnet-4-20250514"
    assert registry.get("openai").metrics is metrics
    assert health.names() == ["llm.openai", "llm.anthropic"]
    assert vars(registry.get("openai"))["_base_url"] == values["OPENAI_BASE_URL"]
    assert "sk-1" not in repr(vars(registry.get("openai")))


#
def test_default_models_match_documentation() -> None:
    registry = LLMProviderRegistry()
    registry.auto_discover(settings("key", "key"))
    assert [info.default_model for info in registry.infos()] == ["gpt-4o", "claude-sonnet-4-20250514"]


def test_provider_construction_imports_no_sdk() -> None:
    code = (
        "import sys\n"
        "from vectorforge.llm.providers.openai import OpenAIProvider\n"
        "from vectorforge.llm.providers.anthropic import AnthropicProvider\n"
        "from vectorforge.llm.providers.bedrock import BedrockProvider\n"
        "from vectorforge.embedding.providers.bedrock import BedrockEmbeddingProvider\n"
        "OpenAIProvider('key'), AnthropicProvider('key'), BedrockProvider(default_model='m')\n"
        "BedrockEmbeddingProvider(default_model='cohere.embed-v4:0')\n"
        "heavy = {'openai', 'anthropic', 'httpx2', 'aiohttp', 'boto3', 'botocore', 'urllib3'}\n"
        "assert not heavy & set(sys.modules)\n"
    )
    subprocess.run([sys.executable, "-c", code], check=True, env={"PYTHONPATH": ":".join(sys.path)})
