"""Messages as OpenAI's API takes them; what they hold beside is ignored, as its servers do.

Bodies of ``/v1/chat/completions``: https://platform.openai.com/docs/api-reference/chat.
"""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from vectorforge.api.native.answers import AnswerDetails, SourceBody, Usage
from vectorforge.api.native.query_bodies import (
    ALLOW_UNGROUNDED,
    ConversationReference,
    Rewrite,
    Temperature,
    VariantReference,
)
from vectorforge.api.schemas import (
    MAX_NAME_CHARS,
    MAX_QUERY_CHARS,
    Filters,
    ModelName,
    ProfileId,
    ProviderName,
    SearchModeName,
    storable,
)
from vectorforge.pipeline.types import CitationVerdict

MAX_CLIENT_MESSAGES = 1000
"""Of one request: clients send their whole conversation again; its end is what goes into the prompt."""
MAX_CONTENT_PARTS = 100
MAX_TEXT_CHARS = MAX_QUERY_CHARS

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class OpenAIBody(BaseModel):
    """A body that OpenAI's clients send: fields that are not used here are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        return storable(value)


class ContentPart(BaseModel):
    """A part of a message: text, or what is refused by its ``type``."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    type: str = Field(max_length=100)
    text: Text | None = None
    refusal: Text | None = None


def _parts(value: Any) -> Any:
    return [{"type": "text", "text": value}] if isinstance(value, str) else value


class ClientMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    role: str = Field(max_length=100, description="user, assistant, system or developer.")
    content: (
        Annotated[
            list[ContentPart],
            Field(max_length=MAX_CONTENT_PARTS),
            BeforeValidator(_parts, json_schema_input_type=Text | list[ContentPart]),
        ]
        | None
    ) = Field(default=None, description="Text, or parts of text.")


ClientMessages = Annotated[list[ClientMessage], Field(min_length=1, max_length=MAX_CLIENT_MESSAGES)]


MAX_MODEL_CHARS = MAX_NAME_CHARS + 20
"""A preset, a slash and the name of a collection."""

AnsweringModel = Annotated[
    str,
    Field(
        min_length=1,
        max_length=MAX_MODEL_CHARS,
        description="A preset and a collection: `vectorforge/handbook`; `vectorforge`, `rag_query` or "
        "`docrag` alone ask the default collection. `GET /v1/models` lists them.",
    ),
]


class RetrievalOptions(OpenAIBody):
    """What OpenAI's clients may say about the search; in ``extra_body`` of its Python package."""

    top_k: Annotated[int, Field(ge=1, description="Passages to retrieve.")] | None = None
    min_score: float | None = Field(default=None, description="Passages scoring lower are dropped.")
    filters: Filters | None = None
    profile_id: ProfileId | None = None
    search_mode: SearchModeName | None = None
    llm_provider: ProviderName | None = None
    llm_model: ModelName | None = Field(default=None, description="The model that writes the answer.")
    variant: VariantReference | None = None
    conversation_id: ConversationReference | None = None
    rewrite: Rewrite | None = None
    allow_ungrounded: bool | None = Field(default=None, description=ALLOW_UNGROUNDED)

    def search_options(self) -> dict[str, Any]:
        """Those given, as fields of ``QueryConfig``; null is the same as not given."""
        return self.model_dump(include=set(RetrievalOptions.model_fields) - {"variant"}, exclude_none=True)


class StreamOptions(OpenAIBody):
    """Options of a stream."""

    include_usage: bool | None = Field(
        default=None, description="True: a last chunk without choices has the tokens."
    )


class ChatCompletionRequest(RetrievalOptions):
    """A conversation whose last message is a question. What is not listed here is ignored."""

    model: AnsweringModel
    messages: ClientMessages
    stream: bool | None = Field(default=None, description="True: chunks come as server-sent events.")
    stream_options: StreamOptions | None = None
    temperature: Temperature | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_completion_tokens: Annotated[int, Field(ge=1)] | None = None
    max_tokens: Annotated[int, Field(ge=1)] | None = Field(
        default=None, description="The older name of max_completion_tokens."
    )
    append_sources: bool | None = Field(
        default=None, description="True: the cited sources follow the answer as a Markdown list."
    )
    # What is refused, because the answer would not be what was asked for; see ``api/openai/errors.py``.
    n: int | None = None
    tools: list[Any] | None = None
    tool_choice: Any = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[Any] | None = None
    audio: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, Any] | None = None
    response_format: Any = None
    stop: Any = None
    web_search_options: Any = None

    def options(self) -> dict[str, Any]:
        """How the question is to be answered: fields of ``QueryConfig`` that the request says."""
        limit = self.max_completion_tokens or self.max_tokens
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": limit}
        given = {name: value for name, value in sampling.items() if value is not None}
        return {**self.search_options(), **given}

    @property
    def limit_field(self) -> str:
        """Which of its two names the longest answer has in this request."""
        return "max_completion_tokens" if self.max_completion_tokens else "max_tokens"


class UrlCitation(BaseModel):
    """A place in the answer that cites a source."""

    start_index: int = Field(
        description="Offset of `[n]` in the content, in characters (Unicode code points)."
    )
    end_index: int = Field(description="Behind its last character.")
    title: str
    url: str = Field(description="The source, when it is a web address; else where the server has its text.")
    source_number: int = Field(description="The n of `[n]`.")
    document_id: UUID
    chunk_id: UUID
    verdict: CitationVerdict


class Annotation(BaseModel):
    """A citation, in the only kind that chat completions know."""

    type: Literal["url_citation"] = "url_citation"
    url_citation: UrlCitation


class AnswerMessage(BaseModel):
    """The answer."""

    role: Literal["assistant"] = "assistant"
    content: str
    refusal: None = None
    annotations: list[Annotation]


class AnswerChoice(BaseModel):
    """The one choice."""

    index: Literal[0] = 0
    message: AnswerMessage
    logprobs: None = None
    finish_reason: Literal["stop", "length", "content_filter"]


class OwnDetails(AnswerDetails):
    """What other servers of this API do not say: ``vectorforge`` in the answer."""

    query_id: UUID = Field(description="Of the log: `GET /v1/queries/{query_id}`.")
    provider: str | None
    llm_model: str | None
    extractive: bool = Field(description="True: the answer quotes the documents and is written by no model.")
    outcome: str
    sources: list[SourceBody] = Field(description="The passages that the model was given, by number.")


class ChatCompletion(BaseModel):
    """The answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="As it was asked for.")
    choices: list[AnswerChoice]
    usage: Usage
    vectorforge: OwnDetails
