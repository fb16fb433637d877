"""What ``/v1/responses`` answers: a response, its items, and the citations in its text."""

from typing import Annotated, Any, Literal, TypeAlias
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.openai.chat_schemas import OwnDetails
from vectorforge.api.openai.file_schemas import Attributes
from vectorforge.pipeline.types import CitationVerdict

ResponseStatus: TypeAlias = Literal["in_progress", "completed", "incomplete", "failed"]
ItemStatus: TypeAlias = Literal["in_progress", "completed", "incomplete"]


class FoundPassage(BaseModel):
    """A passage that the model was given."""

    file_id: str
    filename: str = Field(description="The document's source.")
    score: float
    attributes: Attributes
    text: str
    chunk_id: str


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
    """Zeros: what a vendor had cached is not told apart here."""

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
    """Why there is no whole answer."""

    code: Literal["server_error", "rate_limit_exceeded"]
    message: str


class IncompleteDetails(BaseModel):
    """Why the answer is cut off."""

    reason: Literal["max_output_tokens", "content_filter"]


class ResponseConversation(BaseModel):
    """The stored conversation that the exchange is added to."""

    id: UUID


class TextFormat(BaseModel):
    """Always text."""

    type: Literal["text"] = "text"


class TextConfig(BaseModel):
    """How the answer is written."""

    format: TextFormat = Field(default_factory=TextFormat)


class EchoedRequest(BaseModel):
    """What of the request is said again in its response."""

    model: str = Field(description="As it was asked for.")
    instructions: str | None
    metadata: dict[str, str]
    temperature: float | None = Field(description="That the model is asked with; null: its own default.")
    top_p: float | None
    max_output_tokens: int
    tools: list[dict[str, Any]] = Field(description="Those that search.")
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
    vectorforge: OwnDetails | None = Field(description="Null until the answer is there.")
