"""Google's Gemini models, through its OpenAI-shaped API (https://ai.google.dev/gemini-api/docs/openai)."""

from typing import Any, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.credentials import Credentials
from vectorforge.llm.providers.openai import OpenAIProvider

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"


class GoogleProvider(OpenAIProvider):
    """Gemini models."""

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider with the key in ``credentials``."""
        return cls(
            credentials,
            name="google",
            base_url=settings.google_base_url or DEFAULT_BASE_URL,
            default_model=settings.google_model,
            **options,
        )
