"""The LLM providers of one application, by name; found by which credentials are set."""

import importlib
import logging
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from pydantic import SecretStr

from vectorforge.config import LLMSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, InvalidInputError, LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.resilience import CircuitBreakers
from vectorforge.llm.types import ProviderCapability, ProviderInfo
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.accounts import anthropic_credentials, openai_credentials
from vectorforge.vendors.credentials import Credentials, CredentialStore, find_credentials
from vectorforge.vendors.retry import RetryBudget

logger = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class ProviderSpec:
    """How to find and build one provider."""

    name: str
    setting: str
    """What registers it, of ``LLMSettings``: its key, or its address or model when it needs no key."""
    factory: str
    """``module:Class``, imported when that is set; the class has ``from_settings``."""
    credentials: Callable[[LLMSettings, CredentialStore | None], Credentials | None] | None = None
    """Finds the credentials where ``setting`` alone does not say; None: it does."""

    def find(self, settings: LLMSettings, store: CredentialStore | None) -> Credentials | None:
        """Return the credentials; None when there are none.

        Raises:
            ConfigurationError: The store cannot be used.
            SecretsUnavailableError: The store does not answer.
        """
        if self.credentials is not None:
            return self.credentials(settings, store)
        value = getattr(settings, self.setting)
        value = SecretStr(value) if isinstance(value, str) else value
        return find_credentials(self.setting, value, store)


PROVIDER_SPECS = (
    ProviderSpec(
        "openai",
        "openai_api_key",
        "vectorforge.llm.providers.openai:OpenAIProvider",
        openai_credentials,
    ),
    ProviderSpec(
        "anthropic",
        "anthropic_api_key",
        "vectorforge.llm.providers.anthropic:AnthropicProvider",
        anthropic_credentials,
    ),
    ProviderSpec("ollama", "ollama_base_url", "vectorforge.llm.providers.openai_compatible:OllamaProvider"),
    ProviderSpec("google", "google_api_key", "vectorforge.llm.providers.openai_compatible:GoogleProvider"),
    ProviderSpec("cohere", "cohere_api_key", "vectorforge.llm.providers.openai_compatible:CohereProvider"),
    ProviderSpec("max_serve", "max_serve_base_url", "vectorforge.llm.providers.max_serve:MaxServeProvider"),
    ProviderSpec("bedrock", "bedrock_model", "vectorforge.llm.providers.bedrock:BedrockProvider"),
)
"""In the order of preference when the configured default is not there."""


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """A provider and the model that it is asked for."""

    provider: BaseLLMProvider
    model: str


class LLMProviderRegistry:
    """Providers by name, one of them the default. May be empty: ingestion and search need none."""

    def __init__(
        self,
        *,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        specs: tuple[ProviderSpec, ...] = PROVIDER_SPECS,
        breakers: CircuitBreakers | None = None,
        retry_budget: RetryBudget | None = None,
    ) -> None:
        """An empty registry.

        Args:
            metrics: Given to every provider that is discovered.
            health_checker: The same.
            specs: What ``auto_discover`` looks for, in this order.
            breakers: One for each model; None makes some that open after five failures, for 30 s.
            retry_budget: Shared by all providers; None makes one.
        """
        self.breakers = breakers or CircuitBreakers()
        self._retry_budget = retry_budget or RetryBudget()
        self._fallbacks: tuple[ModelTarget, ...] = ()
        self._metrics = metrics
        self._health_checker = health_checker
        self._specs = specs
        self._providers: dict[str, BaseLLMProvider] = {}
        self._default_provider: str | None = None

    def register(self, provider: BaseLLMProvider) -> None:
        """Add a provider; a second one of the same name replaces the first."""
        provider.retry_budget = self._retry_budget
        self._providers[provider.name] = provider
        logger.info("Registered LLM provider: %s", provider.name)

    def get(self, name: str) -> BaseLLMProvider:
        """The provider of this name.

        Raises:
            InvalidInputError: There is none; names the field ``llm_provider`` and what is there.
        """
        try:
            return self._providers[name]
        except KeyError:
            available = ", ".join(self._providers) or "none"
            raise InvalidInputError(
                f"llm_provider {name[:100]!r} is not available. Available: {available}.", field="llm_provider"
            ) from None

    def get_default(self) -> BaseLLMProvider:
        """The default provider; without one set, the first registered.

        Raises:
            LLMError: The registry is empty.
        """
        if not self._providers:
            raise LLMError("No LLM providers configured")
        return self._providers[self._default_provider or next(iter(self._providers))]

    def set_default(self, name: str) -> None:
        """Make a registered provider the default.

        Raises:
            ConfigurationError: It is not registered.
        """
        if name not in self._providers:
            available = ", ".join(self._providers) or "none"
            raise ConfigurationError(
                f"Default LLM provider {name!r} is not registered. Registered: {available}."
            )
        self._default_provider = name

    def set_fallbacks(self, names: Sequence[str]) -> None:
        """Say who writes, and in which order, when the provider that should does not.

        Args:
            names: Of providers, each alone (its default model) or with a model: "ollama:llama3.3". Those that
                have no credentials are left out, with a warning.

        Raises:
            ConfigurationError: A name is none of a provider with a model.
        """
        quoting = {n for n, p in self._providers.items() if ProviderCapability.EXTRACTIVE in p.capabilities}
        known = ({spec.name for spec in self._specs} | set(self._providers)) - quoting
        writers: list[ModelTarget] = []
        for entry in names:
            name, _, model = entry.partition(":")
            if name not in known:
                raise ConfigurationError(
                    f"VECTORFORGE_LLM_FALLBACKS names {name[:100]!r}; there are {', '.join(sorted(known))}."
                )
            provider = self._providers.get(name)
            if provider is None:
                logger.warning("LLM fallback %r is left out: it has no credentials", name)
            else:
                writers.append(ModelTarget(provider, model or provider.default_model))
        self._fallbacks = tuple(writers)

    def fallbacks_of(self, provider: BaseLLMProvider) -> list[ModelTarget]:
        """Who may write in this one's place, best first."""
        return [writer for writer in self._fallbacks if writer.provider.name != provider.name]

    def list_providers(self) -> list[str]:
        """Names, in the order of registration."""
        return list(self._providers)

    def infos(self) -> list[ProviderInfo]:
        """Every provider described, in the order of registration."""
        default = self.get_default().name if self._providers else None
        return [p.info(is_default=name == default) for name, p in self._providers.items()]

    def auto_discover(
        self,
        config: VectorForgeConfig,
        *,
        store: CredentialStore | None = None,
        fallback: BaseLLMProvider | None = None,
    ) -> None:
        """Register every provider that has credentials, then choose the default.

        Args:
            config: Settings; ``llm.default_provider`` is the default when it is registered, else the first.
            store: Where keys are that the settings do not hold.
            fallback: Registered after all others when ``llm.extractive_answers`` is set: what answers
                when no model is configured.

        Raises:
            ConfigurationError: The store cannot be used, or a fallback is no provider's name.
            SecretsUnavailableError: The store does not answer.
        """
        for spec in self._specs:
            credentials = spec.find(config.llm, store)
            if credentials is None:
                logger.info("Skipped LLM provider: %s (no credentials)", spec.name)
                continue
            self.register(self._build(spec, config.llm, credentials))
        if fallback is not None and config.llm.extractive_answers:
            self.register(fallback)
        self._choose_default(config.llm.default_provider)
        self.set_fallbacks(config.llm.llm_fallbacks)

    async def aclose(self) -> None:
        """Close every provider's connections."""
        for provider in self._providers.values():
            await provider.aclose()

    def _build(self, spec: ProviderSpec, settings: LLMSettings, credentials: Credentials) -> BaseLLMProvider:
        module_name, class_name = spec.factory.split(":")
        provider_class = getattr(importlib.import_module(module_name), class_name)
        provider: BaseLLMProvider = provider_class.from_settings(
            settings,
            credentials,
            metrics=self._metrics,
            health_checker=self._health_checker,
            retries=settings.llm_max_retries,
            timeout_s=settings.llm_timeout_s,
        )
        return provider

    def _choose_default(self, default_name: str) -> None:
        writers = [
            name
            for name, provider in self._providers.items()
            if ProviderCapability.EXTRACTIVE not in provider.capabilities
        ]
        if default_name in self._providers:
            self._default_provider = default_name
        elif writers:
            logger.warning("Default LLM provider '%s' not available", default_name)
            self._default_provider = writers[0]
        elif self._providers:
            self._default_provider = next(iter(self._providers))
            logger.info("No LLM credentials: answers are extractive, quoted from the sources")
        else:
            logger.warning("No LLM providers configured — generation disabled")
