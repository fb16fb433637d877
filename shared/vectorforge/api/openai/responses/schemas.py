"""Answers of ``/v1/responses``: the response, its items, and the citations in its text.

https://developers.openai.com/api/reference/resources/responses
"""

from typing import Annotated, Any, Literal, TypeAlias

from pydantic import BaseModel, Field

from vectorforge.api.openai.request_schemas import JsonDetails, OwnDetails
from vectorforge.api.openai.vector_stores.store_schemas import FoundPassage
from vectorforge.api.schemas import Body, Locations, LocationText
from vectorforge.pipeline.types import CitationVerdict

ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class FileSearchCall(BaseModel):
    """The search in the collection."""

    id: str
    type: Literal["file_search_call"] = "file_search_call"
    status: ItemStatus
    queries: list[str]
    results: list[FoundPassage] | None = Field(description="Null unless include asks for them.")


class FileCitation(Body):
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


class FunctionCall(BaseModel):
    """A call of a tool of the client."""

    id: str
    type: Literal["function_call"] = "function_call"
    status: ItemStatus
    call_id: str = Field(description="For the item with its result, `function_call_output`.")
    name: str
    arguments: str


OutputItem: TypeAlias = FileSearchCall | OutputMessage | FunctionCall


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


class TextConfig(BaseModel):
    """Format of the answer text, as requested."""

    format: dict[str, Any] = Field(default_factory=lambda: {"type": "text"})


class EchoedRequest(BaseModel):
    """Fields of the request that the response repeats."""

    model: str = Field(description="As requested.")
    instructions: str | None
    metadata: dict[str, str]
    temperature: float | None = Field(description="As sent to the model; null: its own default.")
    top_p: float | None
    max_output_tokens: int
    tools: list[dict[str, Any]] = Field(description="As requested.")
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
    status: Literal["in_progress", "completed", "incomplete", "failed"]
    error: ResponseFailure | None
    incomplete_details: IncompleteDetails | None
    output: list[Annotated[OutputItem, Field(discriminator="type")]]
    usage: ResponseUsage | None
    vectorforge: JsonDetails | OwnDetails | None = Field(description="Null until the answer is complete.")
