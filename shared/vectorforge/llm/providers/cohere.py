"""Cohere's models, through its OpenAI-shaped API (https://docs.cohere.com/docs/compatibility-api)."""

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.health import HealthChecker
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.telemetry import MetricsCollector

DEFAULT_BASE_URL = "https://api.cohere.ai/compatibility/v1"


class CohereProvider(OpenAIProvider):
    """Command models; their native citations are not part of this API."""

    @classmethod
    def from_settings(
        cls,
        settings: LLMSettings,
        credentials: SecretStr,
        *,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
    ) -> "CohereProvider":
        """The provider with the key in ``credentials``."""
        return cls(
            credentials,
            name="cohere",
            base_url=settings.cohere_base_url or DEFAULT_BASE_URL,
            default_model=settings.cohere_model,
            metrics=metrics,
            health_checker=health_checker,
            retries=settings.llm_max_retries,
            timeout_s=settings.llm_timeout_s,
        )
