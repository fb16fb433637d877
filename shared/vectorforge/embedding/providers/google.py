"""Gemini's embeddings, through its OpenAI-shaped API (https://ai.google.dev/gemini-api/docs/openai)."""

from typing import Any, ClassVar

from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider

DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"
_NATIVE_DIMENSION = 3072


class GoogleEmbeddingProvider(OpenAIEmbeddingProvider):
    """Gemini embedding models; arguments as ``OpenAIEmbeddingProvider``."""

    max_batch_size: ClassVar[int] = 100

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"name": "google", "base_url": DEFAULT_BASE_URL, **options})

    def _options(self, model: str) -> dict[str, Any]:
        dimension = self.dimension(model)
        return {} if dimension in (None, _NATIVE_DIMENSION) else {"dimensions": dimension}
