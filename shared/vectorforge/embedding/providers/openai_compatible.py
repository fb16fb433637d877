"""Cohere's embeddings, through its OpenAI-shaped API (https://docs.cohere.com/docs/compatibility-api).

Gemini's embeddings, through its OpenAI-shaped API (https://ai.google.dev/gemini-api/docs/openai).
"""

import copy
import json
from typing import Any, ClassVar, Literal, Self

from vectorforge.embedding.providers.openai import OpenAIEmbeddingProvider

DEFAULT_BASE_URL = "https://api.cohere.ai/compatibility/v1"
_NATIVE_DIMENSION = 1536


class CohereEmbeddingProvider(OpenAIEmbeddingProvider):
    """Embed models, which want to know whether a text is a passage or a question.

    ``input_type`` and ``output_dimension`` are fields of Cohere's own API
    (https://docs.cohere.com/reference/embed), sent beside the OpenAI-shaped ones; arguments as
    ``OpenAIEmbeddingProvider``.
    """

    max_batch_size: ClassVar[int] = 96
    _input_type: Literal["search_document", "search_query"] = "search_document"

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"name": "cohere", "base_url": DEFAULT_BASE_URL, **options})

    def _for_queries(self) -> Self:
        twin = copy.copy(self)
        twin._input_type = "search_query"  # noqa: SLF001 - of its own class
        return twin

    def _model_key(self, model: str) -> str:
        return json.dumps([super()._model_key(model), self._input_type])

    def _options(self, model: str) -> dict[str, Any]:
        dimension = self.dimension(model)
        shortened = {"output_dimension": dimension} if dimension not in (None, _NATIVE_DIMENSION) else {}
        return {"input_type": self._input_type, **shortened}


GOOGLE_DEFAULT_BASE_URL = "https://generativelanguage.googleapis.com/v1beta/openai/"
_GOOGLE_NATIVE_DIMENSION = 3072


class GoogleEmbeddingProvider(OpenAIEmbeddingProvider):
    """Gemini embedding models; arguments as ``OpenAIEmbeddingProvider``."""

    max_batch_size: ClassVar[int] = 100

    def __init__(self, **options: Any) -> None:
        super().__init__(**{"name": "google", "base_url": GOOGLE_DEFAULT_BASE_URL, **options})

    def _options(self, model: str) -> dict[str, Any]:
        dimension = self.dimension(model)
        return {} if dimension in (None, _GOOGLE_NATIVE_DIMENSION) else {"dimensions": dimension}
