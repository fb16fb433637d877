"""Google's Gemini models, through its OpenAI-shaped API (https://ai.google.dev/gemini-api/docs/openai)."""

import re
from typing import Any, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.credentials import Credentials
from vectorforge.llm.providers.openai import OpenAIProvider
from vectorforge.vendor_errors import VendorStatusError

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"

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
            base_url=settings.google_base_url or DEFAULT_BASE_URL,
            default_model=settings.google_model,
            **options,
        )

    def _is_refusal(self, exc: VendorStatusError) -> bool:
        return (exc.status == 400 and bool(_ABOUT_THE_KEY.search(exc.text))) or super()._is_refusal(exc)
