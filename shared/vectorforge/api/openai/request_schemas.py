"""Request fields that the OpenAI routers share, and the bodies of ``/v1/chat/completions``.

Unknown fields are ignored, as OpenAI's servers do. https://platform.openai.com/docs/api-reference/chat
"""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from vectorforge.api.answers import AnswerDetails, SourceBody, Usage
from vectorforge.api.schemas import (
    ALLOW_UNGROUNDED,
    MAX_NAME_CHARS,
    MAX_QUERY_CHARS,
    ConversationReference,
    EffortLevel,
    Filters,
    Intents,
    Locations,
    MmrLambda,
    ModelName,
    ProfileId,
    ProviderName,
    Rewrite,
    SearchModeName,
    Temperature,
    VariantReference,
    storable,
)
from vectorforge.pipeline.types import CitationVerdict
from vectorforge.vectorstore.filters.parse import MAX_CONDITIONS, MAX_KEY_LENGTH, MAX_LIST_LENGTH

MAX_CLIENT_MESSAGES = 1000
"""Messages of one request: clients send the whole conversation; its end becomes part of the prompt."""
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
    """A part of a message: text, or a part rejected by its ``type``."""

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
        "`docrag` alone query the default collection. `GET /v1/models` lists them.",
    ),
]


_COMPOUND = ("and", "or")
_OF_LISTS = ("in", "nin")


class AttributeFilter(BaseModel):
    """``{"type": "eq", "key": "year", "value": 2024}``, or several such in ``and`` and ``or``."""

    model_config = ConfigDict(extra="forbid", hide_input_in_errors=True)

    type: Literal["eq", "ne", "gt", "gte", "lt", "lte", "in", "nin", "and", "or"]
    key: Annotated[str, Field(min_length=1, max_length=MAX_KEY_LENGTH)] | None = Field(
        default=None, description="Of a comparison: the attribute; a dot leads into a nested object."
    )
    value: Any = Field(default=None, description="String, number or boolean; a list of them for in and nin.")
    filters: Annotated[list["AttributeFilter"], Field(min_length=1, max_length=MAX_CONDITIONS)] | None = (
        Field(default=None, description="Of and, or: the conditions.")
    )

    @model_validator(mode="after")
    def _usable(self) -> "AttributeFilter":
        if self.type in _COMPOUND:
            if self.filters is None or not {"key", "value"}.isdisjoint(self.model_fields_set):
                raise ValueError(f"{self.type} has filters, and neither key nor value")
            return self
        if self.key is None or self.filters is not None:
            raise ValueError(f"{self.type} has key and value, and no filters")
        if self.key.startswith("$"):
            raise ValueError("key must not begin with $")
        if self.type in _OF_LISTS:
            if not isinstance(self.value, list) or len(self.value) > MAX_LIST_LENGTH:
                raise ValueError(f"{self.type} requires a list of at most {MAX_LIST_LENGTH} values")
        elif not isinstance(self.value, str | int | float):
            raise ValueError(f"{self.type} requires a string, a number or a boolean")
        return self

    def translated(self) -> dict[str, Any]:
        """Return the condition as a native filter; ``vectorstore.filters`` checks the values of lists."""
        if self.filters is not None:
            return {f"${self.type}": [part.translated() for part in self.filters]}
        return {str(self.key): {f"${self.type}": self.value}}


def unsupported(reason: str) -> Any:
    """Return the validator of an unsupported field, which may only be empty."""

    def check(value: Any) -> Any:
        if value:
            raise ValueError(reason)
        return value

    return AfterValidator(check)


MAX_RESULTS = 50  # as in OpenAI's API


class RankingOptions(OpenAIBody):
    """Selection of chunks."""

    ranker: Literal["none", "auto"] = Field(default="auto", description="Both: by similarity alone.")
    score_threshold: float | None = Field(default=None, description="Passages below are dropped.")
    hybrid_search: Annotated[Any, unsupported("hybrid search weights are not supported")] = None


class RetrievalOptions(OpenAIBody):
    """Search options of OpenAI requests; ``extra_body`` in OpenAI's Python package."""

    top_k: Annotated[int, Field(ge=1, description="Passages to retrieve.")] | None = None
    min_score: float | None = Field(default=None, description="Passages scoring lower are dropped.")
    filters: Filters | None = None
    profile_id: ProfileId | None = None
    search_mode: SearchModeName | None = None
    mmr_lambda: MmrLambda | None = None
    llm_provider: ProviderName | None = None
    llm_model: ModelName | None = Field(default=None, description="The model that writes the answer.")
    variant: VariantReference | None = None
    conversation_id: ConversationReference | None = None
    rewrite: Rewrite | None = None
    effort: EffortLevel | None = None
    intents: Intents | None = None
    allow_ungrounded: bool | None = Field(default=None, description=ALLOW_UNGROUNDED)

    def search_options(self) -> dict[str, Any]:
        """Return the given options as fields of ``QueryConfig``; null counts as omitted."""
        return self.model_dump(include=set(RetrievalOptions.model_fields) - {"variant"}, exclude_none=True)


class StreamOptions(OpenAIBody):
    """Options of a stream."""

    include_usage: bool | None = Field(default=None, description="True: the last chunk has the tokens.")


class ChatCompletionRequest(RetrievalOptions):
    """A conversation whose last message is the query. Other fields are ignored."""

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
        default=None, description="True: append the cited sources in Markdown."
    )
    # Rejected if set, because the answer would differ from the request: ``api/openai/chat.py``.
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
        """Return the query settings of the request as fields of ``QueryConfig``."""
        limit = self.max_completion_tokens or self.max_tokens
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": limit}
        given = {name: value for name, value in sampling.items() if value is not None}
        return {**self.search_options(), **given}

    @property
    def limit_field(self) -> str:
        """Name of the field that limits the answer's length in this request."""
        return "max_completion_tokens" if self.max_completion_tokens else "max_tokens"


class UrlCitation(BaseModel):
    """Position in the answer that cites a source."""

    start_index: int = Field(description="Offset of `[n]` in the content, in Unicode code points.")
    end_index: int = Field(description="Behind its last character.")
    title: str = Field(description="The document's title or source, and the place: `Handbook, p. 12`.")
    url: str = Field(
        description="The source, when it is a web address, with the page, `#page=12`; else the page of this "
        "server that shows it."
    )
    source_number: int = Field(description="The n of `[n]`.")
    document_id: UUID
    chunk_id: UUID
    verdict: CitationVerdict
    locations: Locations


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
    """Details beyond OpenAI's API: ``vectorforge`` in the answer."""

    query_id: UUID = Field(description="Of the log: `GET /v1/queries/{query_id}`.")
    provider: str | None
    llm_model: str | None
    extractive: bool = Field(description="True: the answer quotes the documents; no model wrote it.")
    outcome: str
    sources: list[SourceBody] = Field(description="The passages in the prompt, by number.")


class ChatCompletion(BaseModel):
    """The answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="As requested.")
    choices: list[AnswerChoice]
    usage: Usage
    vectorforge: OwnDetails
