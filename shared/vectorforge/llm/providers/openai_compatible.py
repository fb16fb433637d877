"""Cohere's models, through its OpenAI-shaped API (https://docs.cohere.com/docs/compatibility-api).

Google's Gemini models, through its OpenAI-shaped API (https://ai.google.dev/gemini-api/docs/openai).

Ollama, through its OpenAI-shaped API (https://github.com/ollama/ollama/blob/main/docs/openai.md).
"""

import re
from typing import Any, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.vendors.credentials import Credentials
from vectorforge.vendors.errors import VendorStatusError

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


GOOGLE_DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"

_ABOUT_THE_KEY = re.compile(r"API_KEY_INVALID|API key (not valid|expired)")
"""What Google says, with status 400, of a key that was deleted or has expired. Source: e.g.
https://github.com/cequence-io/openai-scala-client/issues/109."""


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
            base_url=settings.google_base_url or GOOGLE_DEFAULT_BASE_URL,
            default_model=settings.google_model,
            **options,
        )

    def _is_refusal(self, exc: VendorStatusError) -> bool:
        return (exc.status == 400 and bool(_ABOUT_THE_KEY.search(exc.text))) or super()._is_refusal(exc)


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
