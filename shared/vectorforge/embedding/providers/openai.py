"""Embeddings over OpenAI's protocol: OpenAI itself, or Ollama, vLLM, TEI, Gemini and others by base URL."""

import base64
import json
import sys
from array import array
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import aclosing
from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

import orjson
from pydantic import SecretStr

from vectorforge.embedding import failures
from vectorforge.embedding.base import Batch, EmbeddingProvider
from vectorforge.errors import EmbeddingError, EmbeddingInputError
from vectorforge.tokens import estimate_tokens
from vectorforge.types import Vector
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.errors import VendorConnectionError, VendorStatusError, VendorTimeoutError
from vectorforge.vendors.http import CONNECT_TIMEOUT_S
from vectorforge.vendors.sdk_clients import AzureOpenAI, ClientKind, openai_transport

if TYPE_CHECKING:
    from openai import AsyncOpenAI

_MAX_ANSWER_BYTES = 4 * 1024 * 1024
_MAX_ANSWER_BYTES_PER_TEXT = 256 * 1024
"""A vector of 8,192 numbers, written out with 17 digits, has 180 kB."""
# https://platform.openai.com/docs/api-reference/embeddings/create
_MAX_TOKENS_PER_TEXT = 8191
_MAX_TOKENS_PER_REQUEST = 300_000
_NATIVE_DIMENSIONS: Mapping[str, int] = {
    "text-embedding-3-small": 1536,
    "text-embedding-3-large": 3072,
    "text-embedding-ada-002": 1536,
}


class OpenAIEmbeddingProvider(EmbeddingProvider):
    """Calls ``POST {base_url}/embeddings``.

    As "openai", newlines become spaces, at most 8,191 tokens a text and 300,000 a request are sent
    (estimated), and ``dimensions`` is asked for when a ``text-embedding-3`` model is to be shortened. Under
    any other name the texts go out as they are and only the server knows its limits.

    Args:
        api_key: The key, or where to ask for it; None for servers that want none.
        base_url: With the version, e.g. ``https://api.openai.com/v1`` or ``http://localhost:11434/v1``.
        default_model: Model used when a call names none.
        dimension: Length of the default model's vectors; every vector is checked against it.
        name: What collections store: "openai" or "http".
        client: Whether requests go over our HTTP client or the package openai.
        azure: A resource of Azure OpenAI, asked over the package openai instead of ``base_url``.
        **options: See ``EmbeddingProvider``.
    """

    concurrent_batches: ClassVar[int] = 4

    def __init__(
        self,
        *,
        api_key: SecretStr | Credentials | None,
        base_url: str = "https://api.openai.com/v1",
        default_model: str = "text-embedding-3-small",
        dimension: int | None = None,
        name: str = "openai",
        client: ClientKind = "http",
        azure: AzureOpenAI | None = None,
        **options: Any,
    ) -> None:
        self._name = name
        super().__init__(**options)
        self._base_url = base_url
        self._default_model = default_model
        self._dimension = dimension
        self._azure = azure
        self._sdk, self._transport = openai_transport(
            as_credentials(api_key or "none"), lambda: self._base_url, client=client, azure=azure
        )

    def provider_name(self) -> str:
        """The name given; OpenAI itself is "openai"."""
        return self._name

    @property
    def default_model(self) -> str:
        """Model used when a call names none."""
        return self._default_model

    def dimension(self, model: str | None = None) -> int | None:
        """As configured for the default model, as published for OpenAI's own, else as first seen."""
        if model in (None, self._default_model) and self._dimension is not None:
            return self._dimension
        return _NATIVE_DIMENSIONS.get(model or self._default_model) or super().dimension(model)

    @property
    def _client(self) -> "AsyncOpenAI":
        """The official SDK's client for the same server and key, imported when first touched."""
        return self._sdk.get()

    async def preload(self) -> None:
        """Import what requests go over."""
        await self._transport.preload()

    async def aclose(self) -> None:
        """Close the connections."""
        await self._transport.aclose()
        await self._sdk.aclose()

    @property
    def _is_openai(self) -> bool:
        return self._name == "openai"

    def _model_key(self, model: str) -> str:
        address = self._azure.endpoint if self._azure else self._base_url
        return repr((self._name, address, model, self.dimension(model)))

    def _check_text(self, index: int, text: str, model: str) -> None:
        super()._check_text(index, text, model)
        if not self._is_openai or len(text.encode()) <= _MAX_TOKENS_PER_TEXT:  # a token is a byte or more
            return
        if (tokens := estimate_tokens(text, model)) > _MAX_TOKENS_PER_TEXT:
            raise EmbeddingInputError(
                f"Text {index} is about {tokens} tokens; {model} takes {_MAX_TOKENS_PER_TEXT} at most.",
                index=index,
            )

    def _batches(self, items: Batch, model: str) -> Iterator[Batch]:
        for batch in super()._batches(items, model):
            if sum(len(text.encode()) for _, text in batch) <= _MAX_TOKENS_PER_REQUEST:
                yield batch
                continue
            start = tokens = 0
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
            "encoding_format": "base64",  # a fifth of the bytes; servers that do not know it send floats
            **self._options(model),
        }
        limit = _MAX_ANSWER_BYTES + _MAX_ANSWER_BYTES_PER_TEXT * len(texts)
        connect_s = min(CONNECT_TIMEOUT_S, self._timeout_s)
        url = f"{'' if self._azure else self._base_url.rstrip('/')}/embeddings"
        try:
            response = await self._transport.post(url, body, connect_timeout_s=connect_s)
            async with aclosing(response):
                answer = await response.read(limit)
        except TypeError as exc:  # half a surrogate pair is no character
            raise EmbeddingInputError("The texts cannot be written as UTF-8.") from exc
        except (VendorStatusError, VendorConnectionError, VendorTimeoutError, ConnectionError) as exc:
            raise _translated(exc, model) from self._transport.without_key(exc)
        except ValueError as exc:
            raise failures.no_embeddings() from exc
        return read_vectors(answer)

    def _options(self, model: str) -> dict[str, Any]:
        """More fields of the request."""
        dimension = self.dimension(model)
        shortened = self._is_openai and model.startswith("text-embedding-3")
        shortened = shortened and dimension != _NATIVE_DIMENSIONS.get(model)
        return {"dimensions": dimension} if shortened and dimension else {}


def _translated(exc: Exception, model: str) -> EmbeddingError:
    """Our error, without the vendor's text (which may quote the key or the input)."""
    if isinstance(exc, VendorTimeoutError):
        return failures.timed_out()
    if not isinstance(exc, VendorStatusError):
        return failures.unreachable()
    error = failures.error_for_status(exc.status, model, exc.headers)
    if exc.code == "insufficient_quota":  # an empty account does not fill by waiting
        error.retryable = False
    return error


def _parsed(body: bytes) -> Any:
    try:
        return orjson.loads(body)
    except ValueError:
        return json.loads(body)  # takes NaN, which some servers send and which is refused as what it is


def read_vectors(body: bytes) -> list[Vector]:
    """The vectors of a response, in the order of the texts.

    Gemini leaves out an ``index`` of 0 and others leave out all: the place in the list stands for it.

    Raises:
        EmbeddingError: The body is not what the protocol says.
    """
    try:
        items = _parsed(body)["data"]
        indexes = [item.get("index", place) for place, item in enumerate(items)]
        decode = _decoder(len(items))
        vectors = dict(zip(indexes, (_decoded(item["embedding"], decode) for item in items), strict=True))
    except (AttributeError, KeyError, OverflowError, RecursionError, TypeError, ValueError) as exc:
        raise failures.no_embeddings() from exc
    if vectors.keys() != set(range(len(items))):
        raise EmbeddingError("The embedding provider's vectors cannot be matched to the texts.")
    return [vectors[index] for index in range(len(items))]


def _decoder(count: int) -> Callable[[str], bytes]:
    """What decodes base64; for a question's one vector the faster one is not worth being imported."""
    if count == 1:
        return partial(base64.b64decode, validate=True)
    import pybase64

    return partial(pybase64.b64decode, validate=True)


def _decoded(embedding: Any, decode: Callable[[str], bytes]) -> Vector:
    """A vector sent as base64 of little-endian float32, or as a list of numbers; TypeError for other JSON."""
    if not isinstance(embedding, str):
        return array("d", embedding)  # checked for its precision later
    vector = array("f", decode(embedding))
    if sys.byteorder == "big":
        vector.byteswap()
    return vector
