"""Embeddings over OpenAI's API: OpenAI, Cohere, Gemini, or any compatible server (Ollama, vLLM, TEI, ...)."""

import copy
import json
from collections.abc import Iterator, Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Literal, Self

from pydantic import SecretStr

from vectorforge.config import EmbeddingSettings
from vectorforge.embedding import responses
from vectorforge.embedding.base import Batch, EmbeddingProvider
from vectorforge.errors import ConfigurationError, EmbeddingInputError
from vectorforge.tokens import estimate_tokens
from vectorforge.types import Vector
from vectorforge.vendors.accounts import (
    COHERE_BASE_URL,
    GOOGLE_BASE_URL,
    OPENAI_BASE_URL,
    AzureOpenAI,
    ClientKind,
    OpenAIClient,
    azure_of,
    openai_transport,
)
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.http import CONNECT_TIMEOUT_S
from vectorforge.vendors.response import VendorConnectionError, VendorStatusError, VendorTimeoutError

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_ANSWER_BYTES_PER_TEXT = 256 * 1024
"""A vector of 8,192 numbers with 17 digits each has 180 kB."""
# https://platform.openai.com/docs/api-reference/embeddings/create
_MAX_TOKENS_PER_TEXT = 8191
_MAX_TOKENS_PER_REQUEST = 300_000
_NATIVE_DIMENSIONS: Mapping[str, int] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}
_COHERE_DIMENSION = 1536
_GOOGLE_DIMENSION = 3072


class OpenAIEmbeddingProvider(EmbeddingProvider):
    """Calls ``POST {base_url}/embeddings``.

    With the name "openai", newlines become spaces, at most 8,191 tokens per text and 300,000 per request
    are sent (estimated), and ``dimensions`` is sent to shorten vectors of ``text-embedding-3`` models. With
    any other name texts are sent unchanged and the server enforces its limits.

    Args:
        api_key: Key, or a source of one; None for servers that need none.
        base_url: Address with the version; default: the vendor's.
        default_model: Model of calls that name none.
        dimension: Length of the default model's vectors; every vector is checked against it.
        name: Provider name stored by collections; default: the class's.
        client: Transport of requests: our HTTP client or the package openai.
        azure: Resource of Azure OpenAI, called through the package openai instead of ``base_url``.
        **options: See ``EmbeddingProvider``.
    """

    vendor: ClassVar[str] = "openai"
    address: ClassVar[str] = OPENAI_BASE_URL
    concurrent_batches: ClassVar[int] = 4

    def __init__(
        self,
        *,
        api_key: SecretStr | Credentials | None,
        base_url: str | None = None,
        default_model: str = "text-embedding-3-small",
        dimension: int | None = None,
        name: str | None = None,
        client: ClientKind = "http",
        azure: AzureOpenAI | None = None,
        **options: Any,
    ) -> None:
        self._name = name or self.vendor
        self._is_openai = self._name == "openai"
        super().__init__(default_model=default_model, **options)
        self._base_url = base_url or self.address
        self._dimension = dimension
        self._azure = azure
        self._sdk, self._transport = openai_transport(
            as_credentials(api_key or "none"), lambda: self._base_url, client=client, azure=azure
        )

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider that the settings describe."""
        return cls(
            api_key=credentials,
            base_url=settings.openai_base_url,
            default_model=settings.openai_embedding_model,
            dimension=settings.openai_embedding_dimension,
            client=settings.openai_client,
            azure=azure_of(settings),
            **options,
        )

    def provider_name(self) -> str:
        """Return the configured name, "openai" by default."""
        return self._name

    def dimension(self, model: str | None = None) -> int | None:
        """Return the configured length of the default model, else the published one, else the one seen."""
        if model in (None, self._default_model) and self._dimension is not None:
            return self._dimension
        return _NATIVE_DIMENSIONS.get(model or self._default_model) or super().dimension(model)

    @property
    def _client(self) -> "OpenAIClient":
        """The official SDK's client for the same server and key, imported when first used."""
        return self._sdk.get()

    async def preload(self) -> None:
        """Import the transport's packages."""
        await self._transport.preload()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
        await self._sdk.aclose()

    def _model_key(self, model: str) -> str:
        address = self._azure.endpoint if self._azure else self._base_url
        return repr((self._name, address, model, self.dimension(model)))

    def _check_text(self, index: int, text: str, model: str) -> None:
        super()._check_text(index, text, model)
        if not self._is_openai or len(text.encode()) <= _MAX_TOKENS_PER_TEXT:  # a token is a byte or more
            return
        if (tokens := estimate_tokens(text, model)) > _MAX_TOKENS_PER_TEXT:
            raise EmbeddingInputError(
                f"Text {index} is about {tokens} tokens; {model} accepts at most {_MAX_TOKENS_PER_TEXT}.",
                index=index,
            )

    def _batches(self, items: Batch, model: str) -> Iterator[Batch]:
        for batch in super()._batches(items, model):
            start = tokens = 0
            if sum(len(text.encode()) for _, text in batch) > _MAX_TOKENS_PER_REQUEST:
                for end, (_, text) in enumerate(batch):
                    size = estimate_tokens(text, model)
                    if end > start and tokens + size > _MAX_TOKENS_PER_REQUEST:
                        yield batch[start:end]
                        start, tokens = end, 0
                    tokens += size
            yield batch[start:]

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        if self._is_openai:
            texts = [text.replace("\n", " ") for text in texts]
        body = {
            "model": self._azure.deployment(model) if self._azure else model,
            "input": list(texts),
            "encoding_format": "base64",  # a fifth of the bytes; servers without it send floats
            **self._options(model),
        }
        limit = _MAX_ANSWER_BYTES + _MAX_ANSWER_BYTES_PER_TEXT * len(texts)
        connect_s = min(CONNECT_TIMEOUT_S, self._timeout_s)
        url = f"{'' if self._azure else self._base_url.rstrip('/')}/embeddings"
        try:
            response = await self._transport.post(url, body, connect_timeout_s=connect_s)
            async with aclosing(response):
                answer = await response.read(limit)
        except TypeError as exc:  # half a surrogate pair is not a character
            raise EmbeddingInputError("The texts cannot be encoded as UTF-8.") from exc
        except (
            VendorStatusError,
            VendorConnectionError,
            VendorTimeoutError,
            ConnectionError,
            ValueError,
        ) as exc:
            raise responses.error_for_exception(exc, model) from self._transport.without_key(exc)
        return responses.read_vectors(answer)

    def _options(self, model: str) -> dict[str, Any]:
        """Return additional fields of the request."""
        dimension = self.dimension(model)
        shortened = self._is_openai and model.startswith("text-embedding-3")
        shortened = shortened and dimension != _NATIVE_DIMENSIONS.get(model)
        return {"dimensions": dimension} if shortened and dimension else {}


class HttpEmbeddingProvider(OpenAIEmbeddingProvider):
    """Compatible server of your own, under the name "http"; arguments as ``OpenAIEmbeddingProvider``."""

    vendor: ClassVar[str] = "http"

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider that the settings describe.

        Raises:
            ConfigurationError: The model or its dimension is not set.
        """
        if not settings.embedding_model or settings.embedding_dimension is None:
            raise ConfigurationError(
                "VECTORFORGE_EMBEDDING_BASE_URL also needs VECTORFORGE_EMBEDDING_MODEL and "
                "VECTORFORGE_EMBEDDING_DIMENSION."
            )
        return cls(
            api_key=credentials,
            base_url=settings.embedding_base_url,
            default_model=settings.embedding_model,
            dimension=settings.embedding_dimension,
            **options,
        )


class CohereEmbeddingProvider(OpenAIEmbeddingProvider):
    """Cohere's Embed models, which distinguish chunks from queries; arguments as ``OpenAIEmbeddingProvider``.

    ``input_type`` and ``output_dimension`` are fields of Cohere's own API
    (https://docs.cohere.com/reference/embed, https://docs.cohere.com/docs/compatibility-api).
    """

    vendor: ClassVar[str] = "cohere"
    address: ClassVar[str] = COHERE_BASE_URL
    max_batch_size: ClassVar[int] = 96
    _input_type: Literal["search_document", "search_query"] = "search_document"

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider with the key in ``credentials``."""
        return cls(
            api_key=credentials,
            base_url=settings.cohere_base_url,
            default_model=settings.cohere_embedding_model,
            dimension=settings.cohere_embedding_dimension,
            **options,
        )

    def _for_queries(self) -> Self:
        twin = copy.copy(self)
        twin._input_type = "search_query"  # noqa: SLF001 - of its own class
        return twin

    def _model_key(self, model: str) -> str:
        return json.dumps([super()._model_key(model), self._input_type])

    def _options(self, model: str) -> dict[str, Any]:
        dimension = self.dimension(model)
        shortened = {"output_dimension": dimension} if dimension not in (None, _COHERE_DIMENSION) else {}
        return {"input_type": self._input_type, **shortened}


class GoogleEmbeddingProvider(OpenAIEmbeddingProvider):
    """Gemini embedding models (https://ai.google.dev/gemini-api/docs/openai).

    Arguments as ``OpenAIEmbeddingProvider``.
    """

    vendor: ClassVar[str] = "google"
    address: ClassVar[str] = GOOGLE_BASE_URL
    max_batch_size: ClassVar[int] = 100

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider with the key in ``credentials``."""
        return cls(
            api_key=credentials,
            base_url=settings.google_base_url,
            default_model=settings.google_embedding_model,
            dimension=settings.google_embedding_dimension,
            **options,
        )

    def _options(self, model: str) -> dict[str, Any]:
        dimension = self.dimension(model)
        return {} if dimension in (None, _GOOGLE_DIMENSION) else {"dimensions": dimension}
