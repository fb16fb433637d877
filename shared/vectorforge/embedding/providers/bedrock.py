"""Embedding models on Amazon Bedrock, through boto3: Amazon Titan V2 and Cohere, each with its own bodies."""

import copy
import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, Self, TypeAlias

from vectorforge.config import EmbeddingSettings
from vectorforge.embedding import responses
from vectorforge.embedding.base import Batch, EmbeddingProvider
from vectorforge.errors import ConfigurationError, UnknownModelError, VectorForgeError
from vectorforge.types import Vector
from vectorforge.vendors.bedrock import BedrockClient
from vectorforge.vendors.credentials import Credentials

InputType: TypeAlias = Literal["search_document", "search_query"]


@dataclass(frozen=True, slots=True)
class ModelFamily:
    """Limits of a family of models."""

    dimensions: tuple[int, ...]
    """Supported lengths of vectors; the first is the default."""
    texts_per_call: int
    distinguishes_queries: bool
    """True if a query gets another vector than a chunk of the same text."""


# https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html
_TITAN_V2 = ModelFamily((1024, 512, 256), texts_per_call=1, distinguishes_queries=False)
# https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v3.html
_COHERE_V3 = ModelFamily((1024,), texts_per_call=96, distinguishes_queries=True)
# https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v4.html
_COHERE_V4 = ModelFamily((1536, 1024, 512, 256), texts_per_call=96, distinguishes_queries=True)

_FAMILIES = {
    "amazon.titan-embed-text-v2": _TITAN_V2,
    "cohere.embed-v4": _COHERE_V4,
    "cohere.embed-english-v3": _COHERE_V3,
    "cohere.embed-multilingual-v3": _COHERE_V3,
}


def _request(
    family: ModelFamily, texts: Sequence[str], dimension: int, input_type: InputType
) -> dict[str, Any]:
    """Return the body of a request; texts that are too long are rejected, not truncated."""
    if family is _TITAN_V2:
        (text,) = texts
        return {"inputText": text, "dimensions": dimension, "normalize": True, "embeddingTypes": ["float"]}
    body = {
        "texts": list(texts),
        "input_type": input_type,
        "embedding_types": ["float"],
        "truncate": "NONE",
    }
    return {**body, "output_dimension": dimension} if family is _COHERE_V4 else body


def find_model(name: str) -> ModelFamily:
    """Return the family of a model, an inference profile or an ARN, e.g. "eu.cohere.embed-v4:0".

    Raises:
        UnknownModelError: The model is not supported.
    """
    for part, family in _FAMILIES.items():
        if part in name:
            return family
    raise UnknownModelError(
        f'"{name[:100]}" is not a supported embedding model of Amazon Bedrock: {", ".join(_FAMILIES)}.'
    )


class BedrockEmbeddingProvider(EmbeddingProvider):
    """InvokeModel over boto3, in threads and without boto3's retries.

    There is no key: the credentials are those of boto3's chain, on AWS the role's.

    Args:
        default_model: Id or ARN of a model or an inference profile, e.g. "amazon.titan-embed-text-v2:0".
        dimension: Length of the default model's vectors; default: the model's own, as for other models.
        region: E.g. "eu-central-1"; default: from boto3's chain.
        base_url: Address of the API; default: AWS's for the region.
        session: A boto3 session with credentials of its own; default: boto3's chain.
        **options: See ``EmbeddingProvider``.

    Raises:
        UnknownModelError: The model is not supported.
        ConfigurationError: The model has no vectors of this length.
    """

    concurrent_batches: ClassVar[int] = 8
    _input_type: InputType = "search_document"

    def __init__(
        self,
        *,
        default_model: str,
        dimension: int | None = None,
        region: str | None = None,
        base_url: str | None = None,
        session: Any = None,
        **options: Any,
    ) -> None:
        super().__init__(default_model=default_model, **options)
        lengths = find_model(default_model).dimensions
        if dimension is not None and dimension not in lengths:
            supported = ", ".join(map(str, sorted(lengths)))
            setting = "VECTORFORGE_BEDROCK_EMBEDDING_DIMENSION"
            text = f"{setting}: {default_model} has vectors of length {supported}."
            raise ConfigurationError(text, setting=setting)
        self._dimension = dimension or lengths[0]
        self._client = BedrockClient(
            endpoint_url=lambda: base_url, region=region, read_timeout_s=self._timeout_s, session=session
        )

    @classmethod
    def from_settings(cls, settings: EmbeddingSettings, _: Credentials, **options: Any) -> Self:
        """Return the provider of the model in the settings."""
        return cls(
            default_model=settings.bedrock_embedding_model or "",
            dimension=settings.bedrock_embedding_dimension,
            region=settings.bedrock_region,
            base_url=settings.bedrock_base_url,
            **options,
        )

    def provider_name(self) -> str:
        """Return "bedrock"."""
        return "bedrock"

    def dimension(self, model: str | None = None) -> int:
        """Return the configured length for the default model, else the model's own.

        Raises:
            UnknownModelError: The model is not supported.
        """
        if model in (None, self._default_model):
            return self._dimension
        return find_model(model).dimensions[0]

    async def preload(self) -> None:
        """Import boto3 and build its client."""
        await self._client.preload()

    async def aclose(self) -> None:
        """Close the connections."""
        self._client.close()

    def _for_queries(self) -> Self:
        twin = copy.copy(self)
        twin._input_type = "search_query"  # noqa: SLF001 - of its own class
        return twin

    def _model_key(self, model: str) -> str:
        kind = self._input_type if find_model(model).distinguishes_queries else ""
        return json.dumps([self.name, model, self.dimension(model), kind])

    def _batches(self, items: Batch, model: str) -> Iterator[Batch]:
        size = min(self._batch_size, find_model(model).texts_per_call)
        for start in range(0, len(items), size):
            yield items[start : start + size]

    async def _call_api(self, texts: Sequence[str], model: str) -> Sequence[Vector]:
        family = find_model(model)
        body = _request(family, texts, self.dimension(model), self._input_type)
        try:
            answer = await self._client.invoke(model, body)
            return [answer["embedding"]] if family is _TITAN_V2 else answer["embeddings"]["float"]
        except VectorForgeError:
            raise
        except Exception as exc:
            raise responses.error_for_exception(exc, model) from exc
