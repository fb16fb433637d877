"""``/v1/embeddings``: vectors of texts by the providers that collections use.

https://platform.openai.com/docs/api-reference/embeddings
"""

import asyncio
import base64
import sys
from array import array
from collections.abc import Sequence
from typing import Annotated, Any, Literal

from fastapi import APIRouter, Request
from pydantic import BaseModel, BeforeValidator, Field

from vectorforge.api.dependencies import ApplicationDep, Tenant, deadline_of
from vectorforge.api.error_schemas import openai_problems
from vectorforge.api.openai.request_schemas import OpenAIBody
from vectorforge.api.streaming.stream import cancelled_on_disconnect
from vectorforge.deadline import Deadline
from vectorforge.embedding.base import EmbeddingProvider
from vectorforge.embedding.registry import EmbeddingProviderRegistry
from vectorforge.errors import (
    AnsweringModelNotFoundError,
    EmbeddingInputError,
    InvalidInputError,
    UnknownModelError,
)
from vectorforge.limits.settings import Claim
from vectorforge.tokens import estimate_tokens

MAX_INPUTS = 2048
MAX_INPUT_CHARS = 100_000
MAX_TOTAL_CHARS = 1_000_000
"""Characters of all inputs: about the 300,000 tokens that OpenAI accepts in one request."""


def _no_tokens(value: Any) -> Any:
    """Return the input as a list; token numbers are rejected, since their tokenizer is unknown."""
    first = value[0] if isinstance(value, list) and value else None
    if isinstance(first, int | list):
        raise ValueError(
            "must be text, not tokens; with LangChain's OpenAIEmbeddings set check_embedding_ctx_length=False"
        )
    return [value] if isinstance(value, str) else value


class EmbeddingsRequest(OpenAIBody):
    """Texts to be embedded. What is not listed here is ignored."""

    model: Annotated[
        str,
        Field(
            min_length=1,
            max_length=300,
            description="A provider (`local`), a provider and a model (`openai/text-embedding-3-small`), or "
            "a provider's default model.",
        ),
    ]
    input: Annotated[
        list[Annotated[str, Field(max_length=MAX_INPUT_CHARS)]],
        BeforeValidator(_no_tokens, json_schema_input_type=str | list[str]),
        Field(min_length=1, max_length=MAX_INPUTS, description="A text, or texts. Not tokens."),
    ]
    encoding_format: Literal["float", "base64"] | None = Field(
        default=None, description="Numbers (the default), or base64 of their little-endian float32 bytes."
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(default=None, description="The model's own only.")


class EmbeddingBody(BaseModel):
    """The vector of one input."""

    object: Literal["embedding"] = "embedding"
    index: int = Field(description="Of its input, from 0.")
    embedding: list[float] | str = Field(description="Numbers, or base64 of their bytes.")


class EmbeddingUsage(BaseModel):
    """Tokens, as we count them; the provider may count otherwise."""

    prompt_tokens: int
    total_tokens: int


class EmbeddingList(BaseModel):
    """Return the vectors in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[EmbeddingBody]
    model: str = Field(description="The provider and the model: a name that can be asked for.")
    usage: EmbeddingUsage


def find_embedder(registry: EmbeddingProviderRegistry, name: str) -> tuple[EmbeddingProvider, str]:
    """Return the provider and model of a name such as ``local`` or ``openai/text-embedding-3-large``.

    The name of a default model selects its provider, the default provider first.

    Raises:
        AnsweringModelNotFoundError: Unknown provider; the message lists the configured ones.
        ConfigurationError: No provider is configured.
    """
    default = registry.get_default()
    names = registry.list_providers()
    providers = [default, *(registry.get(other) for other in names if other != default.name)]
    prefix, slash, model = name.partition("/")
    for provider in providers:
        if prefix == provider.name and (model or not slash):
            return provider, model or provider.default_model
    for provider in providers:
        if name == provider.default_model:
            return provider, name
    raise AnsweringModelNotFoundError(
        f"Unknown embedding model; use a provider, or a provider and its model as in {names[0]}/..., "
        f"of: {', '.join(names)}."
    )


async def embed(
    provider: EmbeddingProvider, model: str, body: EmbeddingsRequest, deadline: Deadline
) -> list[list[float]]:
    """Return the vectors in the order of the inputs.

    Raises:
        InvalidInputError: An input is blank, too long or rejected, or the model has another dimension than
            requested.
        AnsweringModelNotFoundError: The provider does not have the model.
        EmbeddingError: The provider failed.
        DeadlineExceededError: The deadline was exceeded.
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
    """Return the vector as base64 of little-endian float32, as OpenAI's packages decode it."""
    values = array("f", vector)
    if sys.byteorder == "big":
        values.byteswap()
    return base64.b64encode(values.tobytes()).decode()


def _check_dimensions(requested: int | None, actual: int | None) -> None:
    if requested is not None and actual is not None and requested != actual:
        raise InvalidInputError(f"The model's vectors have {actual} dimensions.", field="dimensions")


router = APIRouter(prefix="/v1", tags=["openai"])


@router.post("/embeddings", responses=openai_problems(404, 413, 415, 429, 502, 504))
async def create_embeddings(
    request: Request, body: EmbeddingsRequest, application: ApplicationDep, tenant: Tenant
) -> EmbeddingList:
    """Embed texts as documents, without the prefix of a collection."""
    if sum(map(len, body.input)) > MAX_TOTAL_CHARS:
        raise InvalidInputError(
            f"All inputs together must have at most {MAX_TOTAL_CHARS} characters.", field="input"
        )
    provider, model = find_embedder(tenant.embeddings, body.model)
    async with cancelled_on_disconnect(request.receive):
        tokens = await asyncio.to_thread(lambda: sum(estimate_tokens(text, model) for text in body.input))
        await tenant.limits.admit(Claim(tokens=tokens, field="input"))
        await tenant.confirm_credential()
        vectors = await embed(provider, model, body, deadline_of(request))
        tenant.limits.note_used(tokens)
    is_base64 = body.encoding_format == "base64"
    return EmbeddingList(
        data=[
            EmbeddingBody(index=index, embedding=as_base64(vector) if is_base64 else vector)
            for index, vector in enumerate(vectors)
        ],
        model=f"{provider.name}/{model}",
        usage=EmbeddingUsage(prompt_tokens=tokens, total_tokens=tokens),
    )
