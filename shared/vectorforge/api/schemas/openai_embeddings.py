"""Bodies of ``/v1/embeddings``: https://platform.openai.com/docs/api-reference/embeddings."""

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, Field

from vectorforge.api.schemas.openai_messages import OpenAIBody

MAX_INPUTS = 2048
MAX_INPUT_CHARS = 100_000
MAX_TOTAL_CHARS = 1_000_000
"""Of all inputs together: about the 300,000 tokens that OpenAI takes in one request."""


def _no_tokens(value: Any) -> Any:
    """Refuse token numbers: each model has its own, and which tokeniser made these is not known.

    Raises:
        ValueError: There are some.
    """
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
        default=None,
        description="Numbers (the default), or their little-endian float32 bytes, which is what OpenAI's "
        "packages ask for.",
    )
    dimensions: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The model's own number; vectors are not shortened here."
    )


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
    """The vectors, in the order of the inputs."""

    object: Literal["list"] = "list"
    data: list[EmbeddingBody]
    model: str = Field(description="The provider and the model: a name that can be asked for.")
    usage: EmbeddingUsage
