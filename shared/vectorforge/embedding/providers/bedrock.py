"""Bodies of the embedding models on Amazon Bedrock: each vendor there has its own.

Embedding models on Amazon Bedrock, through boto3: Amazon Titan V2 and Cohere.
"""

import copy
import json
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from typing import Any, ClassVar, Literal, Self, TypeAlias

from vectorforge.embedding import failures
from vectorforge.embedding.base import Batch, EmbeddingProvider
from vectorforge.errors import ConfigurationError, EmbeddingError, UnknownModelError, VectorForgeError
from vectorforge.types import Vector
from vectorforge.vendors.bedrock import BedrockClient
from vectorforge.vendors.bedrock_errors import failure_of, status_of

InputType: TypeAlias = Literal["search_document", "search_query"]


class EmbeddingModel(ABC):
    """A family of models."""

    texts_per_call: ClassVar[int]
    dimensions: ClassVar[tuple[int, ...]]
    """Lengths that its vectors can have; the first is the model's own."""
    distinguishes_queries: ClassVar[bool] = False
    """Whether a question gets another vector than a passage of the same words."""

    @abstractmethod
    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """Body of the request for at most ``texts_per_call`` texts."""

    @abstractmethod
    def vectors(self, answer: Any) -> list[list[float]]:
        """The vectors of an answer, in the order of the texts; KeyError or TypeError for another shape."""


class TitanV2(EmbeddingModel):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-titan-embed-text.html."""

    texts_per_call = 1
    dimensions = (1024, 512, 256)

    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """One text, with a vector of length 1."""
        (text,) = texts
        return {
            "inputText": text,
            "dimensions": dimension,
            "normalize": True,
            "embeddingTypes": ["float"],
        }

    def vectors(self, answer: Any) -> list[list[float]]:
        """Its only vector."""
        return [answer["embedding"]]


class CohereV3(EmbeddingModel):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v3.html."""

    texts_per_call = 96
    dimensions: ClassVar[tuple[int, ...]] = (1024,)
    distinguishes_queries = True

    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """Texts that are too long are refused, not cut."""
        return {
            "texts": list(texts),
            "input_type": input_type,
            "embedding_types": ["float"],
            "truncate": "NONE",
        }

    def vectors(self, answer: Any) -> list[list[float]]:
        """By type, since a type was asked for."""
        found: list[list[float]] = answer["embeddings"]["float"]
        return found


class CohereV4(CohereV3):
    """https://docs.aws.amazon.com/bedrock/latest/userguide/model-parameters-embed-v4.html."""

    dimensions = (1536, 1024, 512, 256)

    def request(self, texts: Sequence[str], dimension: int, input_type: InputType) -> dict[str, Any]:
        """The same, and the length of the vectors."""
        return {**super().request(texts, dimension, input_type), "output_dimension": dimension}


_FAMILIES = {
    "amazon.titan-embed-text-v2": TitanV2(),
    "cohere.embed-v4": CohereV4(),
    "cohere.embed-english-v3": CohereV3(),
    "cohere.embed-multilingual-v3": CohereV3(),
}


def find_model(name: str) -> EmbeddingModel:
    """The family of a model, an inference profile or an ARN of one, e.g. "eu.cohere.embed-v4:0".

    Raises:
        UnknownModelError: It is none of those that are known here.
    """
    for part, family in _FAMILIES.items():
        if part in name:
            return family
    raise UnknownModelError(
        f'"{name[:100]}" is no embedding model of Amazon Bedrock that is known here: {", ".join(_FAMILIES)}.'
    )


class BedrockEmbeddingProvider(EmbeddingProvider):
    """InvokeModel over boto3, which retries nothing here and blocks no event loop.

    There is no key: the credentials are those of boto3's chain, on AWS the role's.

    Args:
        default_model: Id or ARN of a model or an inference profile, e.g. "amazon.titan-embed-text-v2:0".
        dimension: Length of the default model's vectors; None: the model's own. Other models' are their own.
        region: E.g. "eu-central-1"; None: as boto3's chain says.
        base_url: Address of the API; None: AWS's for the region.
        session: A boto3 session with credentials of its own; None: boto3's chain.
        **options: See ``EmbeddingProvider``.

    Raises:
        UnknownModelError: The request format of this model is not known here.
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
            known = ", ".join(map(str, sorted(lengths)))
            raise ConfigurationError(
                f"VECTORFORGE_BEDROCK_EMBEDDING_DIMENSION: {default_model} has vectors of length {known}."
            )
        self._default_model = default_model
        self._dimension = dimension or lengths[0]
        self._client = BedrockClient(
            endpoint_url=lambda: base_url, region=region, read_timeout_s=self._timeout_s, session=session
        )

    def provider_name(self) -> str:
        """``bedrock``."""
        return "bedrock"

    @property
    def default_model(self) -> str:
        """As given."""
        return self._default_model

    def dimension(self, model: str | None = None) -> int:
        """As configured for the default model, else the model's own.

        Raises:
            UnknownModelError: The model is not known here.
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
    """Our error for whatever the SDK raised, or for an answer of another shape."""
    if (found := status_of(exc)) is not None:
        status, headers = found
        return failures.error_for_status(status, model, headers)
    match failure_of(exc):
        case "timeout":
            return failures.timed_out()
        case "unreachable" | "broken":
            return failures.unreachable()
        case "unusable":
            return failures.no_embeddings()
