"""Bodies of ``/v1/responses``: the request, the response, its items, and the citations in its text.

https://developers.openai.com/api/reference/resources/responses
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from vectorforge.api.openai.request_schemas import (
    MAX_CLIENT_MESSAGES,
    MAX_RESULTS,
    MAX_TEXT_CHARS,
    AnsweringModel,
    AttributeFilter,
    ClientMessage,
    OpenAIBody,
    OwnDetails,
    RankingOptions,
    RetrievalOptions,
)
from vectorforge.api.openai.vector_store_schemas import FoundPassage
from vectorforge.api.schemas import MAX_NAME_CHARS, ConversationId, Locations, LocationText, Temperature
from vectorforge.pipeline.types import CitationVerdict

FILE_SEARCH = "file_search"


class ResponseTool(OpenAIBody):
    """``file_search`` in one vector store; only the type of other tools is read."""

    type: str = Field(max_length=100)
    vector_store_ids: list[Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]] = Field(
        default_factory=list, max_length=100, description="One collection: its id or name."
    )
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    filters: AttributeFilter | None = None
    ranking_options: RankingOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _type_of_others(cls, value: Any) -> Any:
        if isinstance(value, dict) and value.get("type") != FILE_SEARCH:
            return {name: value[name] for name in ("type",) if name in value}
        return value

    @model_validator(mode="after")
    def _one_store(self) -> "ResponseTool":
        if self.type == FILE_SEARCH and len(self.vector_store_ids) != 1:
            raise ValueError("vector_store_ids must have exactly one vector store")
        return self


class InputItem(ClientMessage):
    """A message, or another item of an earlier response."""

    type: str = Field(default="message", max_length=100)
    role: str = Field(default="", max_length=100, description="user, assistant, system or developer.")


class ConversationObject(OpenAIBody):
    """A conversation, named by its id."""

    id: ConversationId


def _items(value: Any) -> Any:
    return [{"role": "user", "content": value}] if isinstance(value, str) else value


_Conversation = Annotated[
    ConversationObject,
    BeforeValidator(
        lambda value: {"id": value} if isinstance(value, str) else value,
        json_schema_input_type=str | ConversationObject,
    ),
]
_Metadata = Annotated[
    dict[Annotated[str, Field(max_length=64)], Annotated[str, Field(max_length=512)]], Field(max_length=16)
]


class ResponseRequest(RetrievalOptions):
    """A query, or a conversation whose last message is one. Other fields are ignored."""

    model: AnsweringModel
    input: Annotated[
        list[InputItem],
        Field(min_length=1, max_length=MAX_CLIENT_MESSAGES),
        BeforeValidator(_items, json_schema_input_type=str | list[InputItem]),
    ] = Field(description="The question, or messages, the oldest first.")
    instructions: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = Field(
        default=None, description="In addition to the prompt with the passages."
    )
    stream: bool | None = Field(default=None, description="True: events come as server-sent events.")
    tools: Annotated[list[ResponseTool], Field(max_length=128)] | None = Field(
        default=None, description="file_search chooses the collection when the model's name does not."
    )
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    include: Annotated[list[str], Field(max_length=20)] | None = Field(
        default=None, description="`file_search_call.results`: the passages in the prompt."
    )
    temperature: Temperature | None = None
    top_p: Annotated[float, Field(ge=0, le=1)] | None = None
    max_output_tokens: Annotated[int, Field(ge=1)] | None = None
    metadata: _Metadata | None = Field(default=None, description="Repeated in the response; not stored.")
    store: bool | None = Field(default=None, description="True: store it in a new conversation.")
    previous_response_id: Annotated[str, Field(max_length=200)] | None = Field(
        default=None, description="A stored response, which must be the last one of its conversation."
    )
    conversation: _Conversation | None = Field(default=None, description="As conversation_id.")
    # Refused, because the answer would differ from the request: ``api/openai/responses.py``.
    background: bool | None = None
    prompt: Any = None
    text: dict[str, Any] | None = None
    top_logprobs: int | None = None

    @property
    def file_search(self) -> ResponseTool | None:
        """First ``file_search`` tool."""
        return next((tool for tool in self.tools or () if tool.type == FILE_SEARCH), None)

    def options(self) -> dict[str, Any]:
        """Return the query settings of the request as fields of ``QueryConfig``.

        Top-level fields override those of the tool; filters of both apply.
        """
        sampling = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
        }
        tool = self.file_search
        options = {**_tool_options(tool), **self.search_options(), **_given(sampling)}
        if tool and tool.filters:
            filters = tool.filters.translated()
            options["filters"] = {"$and": [self.filters, filters]} if self.filters else filters
        return options


def _tool_options(tool: ResponseTool | None) -> dict[str, Any]:
    if tool is None:
        return {}
    ranking = tool.ranking_options
    return _given({"top_k": tool.max_num_results, "min_score": ranking.score_threshold if ranking else None})


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


ResponseStatus: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]
ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class FileSearchCall(BaseModel):
    """The search in the collection."""

    id: str
    type: Literal["file_search_call"] = "file_search_call"
    status: ItemStatus
    queries: list[str]
    results: list[FoundPassage] | None = Field(description="Null unless include asks for them.")


class FileCitation(BaseModel):
    """A place in the text that cites a document."""

    type: Literal["file_citation"] = "file_citation"
    file_id: str
    filename: str
    index: int = Field(description="Offset of `[n]` in the text, in characters (Unicode code points).")
    end_index: int = Field(description="Behind `[n]`. This and what follows is not in OpenAI's own object.")
    source_number: int = Field(description="The n.")
    chunk_id: str
    verdict: CitationVerdict
    locations: Locations
    location_text: LocationText


class OutputText(BaseModel):
    """The answer."""

    type: Literal["output_text"] = "output_text"
    text: str
    annotations: list[FileCitation]
    logprobs: list[Any] = Field(default_factory=list, max_length=0)


class OutputMessage(BaseModel):
    """The message with the answer."""

    id: str
    type: Literal["message"] = "message"
    role: Literal["assistant"] = "assistant"
    status: ItemStatus
    content: list[OutputText]


class InputTokens(BaseModel):
    """Zeros, since cached tokens of a vendor are not counted separately."""

    cached_tokens: Literal[0] = 0
    cache_write_tokens: Literal[0] = 0


class OutputTokens(BaseModel):
    """Zero: tokens of a model's reasoning are among the others."""

    reasoning_tokens: Literal[0] = 0


class ResponseUsage(BaseModel):
    """Tokens, as the vendor counted them."""

    input_tokens: int
    input_tokens_details: InputTokens = Field(default_factory=InputTokens)
    output_tokens: int
    output_tokens_details: OutputTokens = Field(default_factory=OutputTokens)
    total_tokens: int


class ResponseFailure(BaseModel):
    """Error of a failed response."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str


class IncompleteDetails(BaseModel):
    """Reason of a truncated answer."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseConversation(BaseModel):
    """The stored conversation that the exchange is added to."""

    id: str


class TextFormat(BaseModel):
    """Always text."""

    type: Literal["text"] = "text"


class TextConfig(BaseModel):
    """Format of the answer text."""

    format: TextFormat = Field(default_factory=TextFormat)


class EchoedRequest(BaseModel):
    """Fields of the request that the response repeats."""

    model: str = Field(description="As requested.")
    instructions: str | None
    metadata: dict[str, str]
    temperature: float | None = Field(description="As sent to the model; null: its own default.")
    top_p: float | None
    max_output_tokens: int
    tools: list[dict[str, Any]] = Field(description="The `file_search` tool, if any.")
    tool_choice: Any
    parallel_tool_calls: bool
    previous_response_id: str | None
    conversation: ResponseConversation | None
    store: bool
    background: Literal[False] = False
    truncation: Literal["auto"] = "auto"
    text: TextConfig = Field(default_factory=TextConfig)


class ResponseBody(EchoedRequest):
    """An answer with what led to it."""

    id: str
    object: Literal["response"] = "response"
    created_at: int = Field(description="Unix time in seconds.")
    completed_at: int | None
    status: ResponseStatus
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    output: list[Annotated[FileSearchCall | OutputMessage, Field(discriminator="type")]]
    usage: ResponseUsage | None
    vectorforge: OwnDetails | None = Field(description="Null until the answer is complete.")
