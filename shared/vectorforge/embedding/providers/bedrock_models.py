"""Bodies of the embedding models on Amazon Bedrock: each vendor there has its own."""

from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Any, ClassVar, Literal, TypeAlias

from vectorforge.errors import UnknownModelError

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
