"""Which models can be asked, and where their keys are."""

from vectorforge.config import VectorForgeConfig
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.health import HealthChecker
from vectorforge.llm.circuit_breaker import CircuitBreakers
from vectorforge.llm.registry import LLMProviderRegistry
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.credentials import CredentialStore
from vectorforge.vendors.failures import RetryBudget


def credential_store(config: VectorForgeConfig) -> CredentialStore | None:
    """Where providers' keys are that the environment does not hold; None when the settings name no place."""
    if not (config.aws.provider_secret_id or config.aws.provider_parameter_path):
        return None
    from vectorforge.aws.secrets import StoredKeys  # leads to boto3, which a laptop need not load

    return StoredKeys.from_settings(config.aws)


def model_registries(
    config: VectorForgeConfig,
    store: CredentialStore | None,
    metrics: MetricsCollector,
    health_checker: HealthChecker,
) -> tuple[EmbeddingProviderRegistry, LLMProviderRegistry]:
    """The providers that the settings have credentials for, with one budget of retries for all.

    Args:
        config: The settings.
        store: Has the keys that the environment does not hold.
        metrics: Where their measurements go.
        health_checker: Gets a probe of each.

    Raises:
        ConfigurationError: No embedding provider can be used, or keys cannot be read for good.
        SecretsUnavailableError: The keys cannot be read now.
    """
    from vectorforge.llm.providers.extractive import ExtractiveProvider

    retry_budget = RetryBudget()
    embedding_registry = EmbeddingProviderRegistry(retry_budget=retry_budget)
    embedding_registry.auto_discover(config, store=store, metrics=metrics, health_checker=health_checker)
    llm_registry = LLMProviderRegistry(
        metrics=metrics,
        health_checker=health_checker,
        breakers=CircuitBreakers(
            failures=config.llm.llm_circuit_failures, open_s=config.llm.llm_circuit_open_s
        ),
        retry_budget=retry_budget,
    )
    llm_registry.auto_discover(
        config,
        store=store,
        fallback=ExtractiveProvider(
            embed=embedding_registry.get_default().embed_documents,
            metrics=metrics,
            health_checker=health_checker,
        ),
    )
    return embedding_registry, llm_registry
