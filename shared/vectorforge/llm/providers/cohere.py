"""Cohere's models, through its OpenAI-shaped API (https://docs.cohere.com/docs/compatibility-api)."""

from typing import Any, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.credentials import Credentials
from vectorforge.llm.providers.openai import OpenAIProvider

DEFAULT_BASE_URL = "https://api.cohere.ai/compatibility/v1"


class CohereProvider(OpenAIProvider):
    """Command models; their native citations are not part of this API."""

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider with the key in ``credentials``."""
        return cls(
            credentials,
            name="cohere",
            base_url=settings.cohere_base_url or DEFAULT_BASE_URL,
            default_model=settings.cohere_model,
            **options,
        )
