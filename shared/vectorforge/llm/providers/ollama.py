"""Ollama, through its OpenAI-shaped API (https://github.com/ollama/ollama/blob/main/docs/openai.md)."""

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.health import HealthChecker
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.telemetry import MetricsCollector


class OllamaProvider(OpenAIProvider):
    """Models on a machine of your own; needs an address and no key."""

    @classmethod
    def from_settings(
        cls,
        settings: LLMSettings,
        credentials: SecretStr,
        *,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
    ) -> "OllamaProvider":
        """The provider at the address in ``credentials``, with or without its ``/v1``."""
        address = credentials.get_secret_value().rstrip("/")
        return cls(
            "ollama",  # the SDK wants a key, the server ignores it
            name="ollama",
            base_url=address if address.endswith("/v1") else f"{address}/v1",
            default_model=settings.ollama_model,
            metrics=metrics,
            health_checker=health_checker,
            retries=settings.llm_max_retries,
            timeout_s=settings.llm_timeout_s,
        )
