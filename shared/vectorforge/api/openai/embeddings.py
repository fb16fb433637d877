"""Texts to vectors: which provider a model's name means, and vectors as OpenAI's packages read them."""

import base64
import sys
from array import array
from collections.abc import Sequence

from vectorforge.api.schemas.openai_embeddings import MAX_TOTAL_CHARS, EmbeddingsRequest
from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    AnsweringModelNotFoundError,
    EmbeddingInputError,
    InvalidInputError,
    UnknownModelError,
)
from vectorforge.tokens import estimate_tokens


def find_embedder(registry: EmbeddingProviderRegistry, name: str) -> tuple[EmbeddingProvider, str]:
    """The provider and the model that a name means: ``local``, ``openai/text-embedding-3-large``.

    The name of a provider's default model means that one, the default provider's first.

    Raises:
        AnsweringModelNotFoundError: There is no such provider; the text lists those that are there.
        ConfigurationError: There is none at all.
    """
    default = registry.get_default()
    names = registry.list_providers()
    providers = [default, *(registry.get(other) for other in names if other != default.provider_name())]
    prefix, slash, model = name.partition("/")
    for provider in providers:
        if prefix == provider.provider_name() and (model or not slash):
            return provider, model or provider.default_model
    for provider in providers:
        if name == provider.default_model:
            return provider, name
    raise AnsweringModelNotFoundError(
        f"There is no such embedding model; name a provider, or one and its model, as in {names[0]}/..., "
        f"of: {', '.join(names)}."
    )


def check_size(body: EmbeddingsRequest) -> None:
    """Hold all inputs together to their limit.

    Raises:
        InvalidInputError: They are longer.
    """
    if sum(map(len, body.input)) > MAX_TOTAL_CHARS:
        raise InvalidInputError(
            f"All inputs together may hold {MAX_TOTAL_CHARS} characters at most.", field="input"
        )


async def embed(
    provider: EmbeddingProvider, model: str, body: EmbeddingsRequest, deadline: Deadline
) -> list[list[float]]:
    """The vectors, in the order of the inputs.

    Raises:
        InvalidInputError: An input is blank, too long or refused, or the model's vectors have another
            length than the one asked for.
        AnsweringModelNotFoundError: The provider knows that it has no such model.
        EmbeddingError: The provider failed.
        DeadlineExceededError: The time ran out.
    """
    _check_dimensions(body.dimensions, provider.dimension(model))
    try:
        vectors = await provider.embed_documents(body.input, model=model, deadline=deadline)
    except EmbeddingInputError as exc:
        field = "input" if exc.index is None else f"input.{exc.index}"
        raise InvalidInputError(exc.message, field=field) from exc
    except UnknownModelError as exc:
        raise AnsweringModelNotFoundError(exc.message) from exc
    _check_dimensions(body.dimensions, len(vectors[0]))
    return vectors


def as_base64(vector: Sequence[float]) -> str:
    """Little-endian float32 bytes of the vector, as OpenAI's packages decode them."""
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode()


def count_tokens(texts: Sequence[str], model: str) -> int:
    """Tokens of all texts, as we count them."""
    return sum(estimate_tokens(text, model) for text in texts)


def _check_dimensions(asked: int | None, actual: int | None) -> None:
    if asked is not None and actual is not None and asked != actual:
        raise InvalidInputError(f"The model's vectors have {actual} dimensions.", field="dimensions")
