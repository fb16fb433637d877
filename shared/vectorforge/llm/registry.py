"""LLM providers of one application, registered by the credentials in the settings."""

import logging
from collections.abc import Sequence
from dataclasses import dataclass

from vectorforge.config import LLMSettings, VectorForgeConfig
from vectorforge.errors import ConfigurationError, InvalidInputError, LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.types import ProviderCapability, ProviderInfo
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.accounts import (
    ProviderSpec,
    anthropic_credentials,
    openai_credentials,
    unknown_provider,
)
from vectorforge.vendors.credentials import CredentialStore
from vectorforge.vendors.resilience import CircuitBreakers, RetryBudget

logger = logging.getLogger(__name__)


_PROVIDERS = "vectorforge.llm.providers"

PROVIDER_SPECS: tuple[ProviderSpec[LLMSettings], ...] = (
    ProviderSpec("openai", "openai_api_key", f"{_PROVIDERS}.openai:OpenAIProvider", openai_credentials),
    ProviderSpec(
        "anthropic", "anthropic_api_key", f"{_PROVIDERS}.anthropic:AnthropicProvider", anthropic_credentials
    ),
    ProviderSpec("ollama", "ollama_base_url", f"{_PROVIDERS}.openai_compatible:OllamaProvider"),
    ProviderSpec("google", "google_api_key", f"{_PROVIDERS}.openai_compatible:GoogleProvider"),
    ProviderSpec("cohere", "cohere_api_key", f"{_PROVIDERS}.openai_compatible:CohereProvider"),
    ProviderSpec("max_serve", "max_serve_base_url", f"{_PROVIDERS}.openai_compatible:MaxServeProvider"),
    ProviderSpec("bedrock", "bedrock_model", f"{_PROVIDERS}.bedrock:BedrockProvider"),
)
"""Providers in the order of preference when the configured default is not available."""


@dataclass(frozen=True, slots=True)
class ModelTarget:
    """Provider and model of a request."""

    provider: BaseLLMProvider
    model: str


class LLMProviderRegistry:
    """Providers by name, one of them the default. May be empty: ingestion and search need none.

    Args:
        metrics: Passed to every discovered provider.
        health_checker: Passed to every discovered provider.
        specs: Providers that ``auto_discover`` looks for, in this order.
        breakers: Circuit breakers of the models; by default they open after five failures, for 30 s.
        retry_budget: Shared by all providers.
    """

    def __init__(
        self,
        *,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        specs: tuple[ProviderSpec[LLMSettings], ...] = PROVIDER_SPECS,
        breakers: CircuitBreakers | None = None,
        retry_budget: RetryBudget | None = None,
    ) -> None:
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
        """Return the provider of this name.

        Raises:
            InvalidInputError: Unknown name; names the field ``llm_provider`` and the registered providers.
        """
        try:
            return self._providers[name]
        except KeyError:
            raise InvalidInputError(self.unknown(name), field="llm_provider") from None

    def unknown(self, name: str) -> str:
        """Return the error text for a provider that is not registered."""
        return unknown_provider("LLM", name, self._providers, self._specs)

    def get_default(self) -> BaseLLMProvider:
        """Return the default provider, or the first registered one if none is set.

        Raises:
            LLMError: The registry is empty.
        """
        if not self._providers:
            raise LLMError("No LLM providers configured")
        return self._providers[self._default_provider or next(iter(self._providers))]

    def set_default(self, name: str) -> None:
        """Make a registered provider the default.

        Raises:
            ConfigurationError: The provider is not registered.
        """
        if name not in self._providers:
            available = ", ".join(self._providers) or "none"
            raise ConfigurationError(
                f"Default LLM provider {name!r} is not registered. Registered: {available}."
            )
        self._default_provider = name

    def set_fallbacks(self, names: Sequence[str]) -> None:
        """Set the models that replace a failed one, best first.

        Args:
            names: Names of providers, alone (default model) or with a model: "ollama:llama3.3". Those without
                credentials are skipped with a warning.

        Raises:
            ConfigurationError: A name is not that of a provider with a model.
        """
        quoting = {n for n, p in self._providers.items() if ProviderCapability.EXTRACTIVE in p.capabilities}
        valid = ({spec.name for spec in self._specs} | set(self._providers)) - quoting
        targets: list[ModelTarget] = []
        for entry in names:
            name, _, model = entry.partition(":")
            if name not in valid:
                raise ConfigurationError(
                    f"VECTORFORGE_LLM_FALLBACKS names {name[:100]!r}; there are {', '.join(sorted(valid))}.",
                    setting="VECTORFORGE_LLM_FALLBACKS",
                )
            provider = self._providers.get(name)
            if provider is None:
                logger.warning("LLM fallback %r is skipped: it has no credentials", name)
            else:
                targets.append(ModelTarget(provider, model or provider.default_model))
        self._fallbacks = tuple(targets)

    def fallbacks_of(self, provider: BaseLLMProvider) -> list[ModelTarget]:
        """Return the models that may replace this provider, best first."""
        return [target for target in self._fallbacks if target.provider.name != provider.name]

    def context_target(self, name: str | None, model: str | None) -> ModelTarget | None:
        """Return the model for the contexts of chunks, by default the default one; None if it only quotes.

        Raises:
            ConfigurationError: The provider has no credentials.
        """
        if name is None and not self._providers:
            return None
        provider = self._providers.get(name) if name is not None else self.get_default()
        if provider is None and name != "extractive":
            available = ", ".join(self._providers) or "none"
            raise ConfigurationError(
                f"VECTORFORGE_CONTEXT_PROVIDER names {str(name)[:100]!r}. Available: {available}.",
                setting="VECTORFORGE_CONTEXT_PROVIDER",
            )
        if provider is None or ProviderCapability.EXTRACTIVE in provider.capabilities:
            return None
        return ModelTarget(provider, model or provider.default_model)

    def list_providers(self) -> list[str]:
        """Return the names, in the order of registration."""
        return list(self._providers)

    def infos(self) -> list[ProviderInfo]:
        """Describe every provider, in the order of registration."""
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
            store: Source of keys that are not in the settings.
            fallback: Provider used when no model is configured, registered last if
                ``llm.extractive_answers`` is set.

        Raises:
            ConfigurationError: The store cannot be used, or a fallback is not a provider's name.
            SecretsUnavailableError: The store does not respond.
        """
        for spec in self._specs:
            credentials = spec.find(config.llm, store)
            if credentials is None:
                logger.info("Skipped LLM provider: %s (no credentials)", spec.name)
                continue
            self.register(
                spec.build(
                    config.llm,
                    credentials,
                    metrics=self._metrics,
                    health_checker=self._health_checker,
                    retries=config.llm.llm_max_retries,
                    timeout_s=config.llm.llm_timeout_s,
                )
            )
        if fallback is not None and config.llm.extractive_answers:
            self.register(fallback)
        self._choose_default(config.llm.default_provider)
        self.set_fallbacks(config.llm.llm_fallbacks)
        self.context_target(config.ingestion.context_provider, None)  # fails at the start, not at a document

    async def aclose(self) -> None:
        """Close every provider's connections."""
        for provider in self._providers.values():
            await provider.aclose()

    def _choose_default(self, default_name: str) -> None:
        models = [
            name
            for name, provider in self._providers.items()
            if ProviderCapability.EXTRACTIVE not in provider.capabilities
        ]
        if default_name in self._providers:
            self._default_provider = default_name
        elif models:
            logger.warning("Default LLM provider '%s' not available", default_name)
            self._default_provider = models[0]
        elif self._providers:
            self._default_provider = next(iter(self._providers))
            logger.info("No LLM credentials: answers are extractive, quoted from the sources")
        else:
            logger.warning("No LLM providers configured — generation disabled")
