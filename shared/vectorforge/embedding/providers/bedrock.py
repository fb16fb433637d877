"""Embedding models on Amazon Bedrock, through boto3: Amazon Titan V2 and Cohere, each with its own bodies."""

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

from vectorforge.config import EmbeddingSettings
from vectorforge.embedding import responses
from vectorforge.embedding.base import Batch, EmbeddingProvider
from vectorforge.errors import ConfigurationError, EmbeddingError, UnknownModelError, VectorForgeError
from vectorforge.types import Vector
from vectorforge.vendors.bedrock import BedrockClient, failure_of, status_of
from vectorforge.vendors.credentials import Credentials

InputType: TypeAlias = Literal["search_document", "search_query"]


class ModelFamily(ABC):
    """Request format and limits of a family of models."""

    texts_per_call: ClassVar[int]
    dimensions: ClassVar[tuple[int, ...]]
    """Supported lengths of vectors; the first is the default."""
    distinguishes_queries: ClassVar[bool] = False
    """True if a query gets another vector than a chunk of the same text."""

    @abstractmethod
    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """Return the body of a request for at most ``texts_per_call`` texts."""

    @abstractmethod
    def vectors(self, answer: Any) -> list[list[float]]:
        """Return the vectors of a response, in the order of the texts. Raises KeyError or TypeError."""


class TitanV2(ModelFamily):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html."""

    texts_per_call = 1
    dimensions = (1024, 512, 256)

    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """Return the body for one text and a normalized vector."""
        (text,) = texts
        return {
            "inputText": text,
            "dimensions": dimension,
            "normalize": True,
            "embeddingTypes": ["float"],
        }

    def vectors(self, answer: Any) -> list[list[float]]:
        """Return the only vector."""
        return [answer["embedding"]]


class CohereV3(ModelFamily):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v3.html."""

    texts_per_call = 96
    dimensions: ClassVar[tuple[int, ...]] = (1024,)
    distinguishes_queries = True

    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """Return a body that rejects texts that are too long instead of truncating them."""
        return {
            "texts": list(texts),
            "input_type": input_type,
            "embedding_types": ["float"],
            "truncate": "NONE",
        }

    def vectors(self, answer: Any) -> list[list[float]]:
        """Return the vectors of type float."""
        vectors: list[list[float]] = answer["embeddings"]["float"]
        return vectors


class CohereV4(CohereV3):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v4.html."""

    dimensions = (1536, 1024, 512, 256)

    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """Return the same body with the length of the vectors."""
        return {**super().request(texts, dimension, input_type), "output_dimension": dimension}


_FAMILIES = {
    "amazon.titan-embed-text-v2": TitanV2(),
    "cohere.embed-v4": CohereV4(),
    "cohere.embed-english-v3": CohereV3(),
    "cohere.embed-multilingual-v3": CohereV3(),
}


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
        super().__init__(**options)
        lengths = find_model(default_model).dimensions
        if dimension is not None and dimension not in lengths:
            supported = ", ".join(map(str, sorted(lengths)))
            raise ConfigurationError(
                f"VECTORFORGE_BEDROCK_EMBEDDING_DIMENSION: {default_model} has vectors of length {supported}."
            )
        self._default_model = default_model
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

    @property
    def default_model(self) -> str:
        """Model of calls that name none."""
        return self._default_model

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
        try:
            answer = await self._client.invoke(
                model, family.request(texts, self.dimension(model), self._input_type)
            )
            return family.vectors(answer)
        except VectorForgeError:
            raise
        except Exception as exc:
            raise _translated(exc, model) from exc


def _translated(exc: Exception, model: str) -> EmbeddingError:
    """Return our error for an exception of the SDK, or for a response of another shape."""
    if (response := status_of(exc)) is not None:
        status, headers = response
        return responses.error_for_status(status, model, headers)
    match failure_of(exc):
        case "timeout":
            return responses.timed_out()
        case "unreachable" | "broken":
            return responses.unreachable()
        case "unusable":
            return responses.no_embeddings()
