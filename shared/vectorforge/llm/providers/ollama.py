"""Ollama, through its OpenAI-shaped API (https://github.com/ollama/ollama/blob/main/docs/openai.md)."""

from typing import Any, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.credentials import Credentials
from vectorforge.llm.providers.openai import OpenAIProvider


class OllamaProvider(OpenAIProvider):
    """Models on a machine of your own; needs an address and no key."""

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider at the address in the settings, with or without its ``/v1``; it needs no key."""
        address = (settings.ollama_base_url or "").rstrip("/")
        return cls(
            "ollama",  # a key is always sent, the server ignores it
            name="ollama",
            base_url=address if address.endswith("/v1") else f"{address}/v1",
            default_model=settings.ollama_model,
            **options,
        )
