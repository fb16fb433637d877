"""Google's Gemini models, through its OpenAI-shaped API (https://ai.google.dev/gemini-api/docs/openai)."""

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.health import HealthChecker
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.telemetry import MetricsCollector

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"


class GoogleProvider(OpenAIProvider):
    """Gemini models."""

    @classmethod
    def from_settings(
        cls,
        settings: LLMSettings,
        credentials: SecretStr,
        *,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
    ) -> "GoogleProvider":
        """The provider with the key in ``credentials``."""
        return cls(
            credentials,
            name="google",
            base_url=settings.google_base_url or DEFAULT_BASE_URL,
            default_model=settings.google_model,
            metrics=metrics,
            health_checker=health_checker,
            retries=settings.llm_max_retries,
            timeout_s=settings.llm_timeout_s,
        )
