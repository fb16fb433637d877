"""Bodies of ``/v1/chat/completions``: the request, the answer, and the citations in it.

https://platform.openai.com/docs/api-reference/chat
"""

from typing import Annotated, Any, Literal
from uuid import UUID

from pydantic import BaseModel, Field

from vectorforge.api.answers import Usage
from vectorforge.api.openai.output_options import (
    MAX_TOOLS,
    FunctionBody,
    JsonSchemaFormat,
    StopSequences,
    tool_options,
)
from vectorforge.api.openai.request_schemas import (
    AnsweringModel,
    CalledTool,
    ClientMessages,
    JsonDetails,
    OpenAIBody,
    OwnDetails,
    RetrievalOptions,
)
from vectorforge.api.schemas import Body, Locations, Temperature
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.types import CitationVerdict


class StreamOptions(OpenAIBody):
    """Options of a stream."""

    include_usage: bool | None = Field(default=None, description="True: the last chunk has the tokens.")


class ChatTool(BaseModel):
    """A tool of the client."""

    type: str = Field(default="function", max_length=100)
    function: FunctionBody | None = None


class ChatCompletionRequest(RetrievalOptions):
    """A conversation; the last message of the user is the query. Other fields are ignored."""

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
    stop: StopSequences | None = None
    response_format: JsonSchemaFormat | None = None
    tools: Annotated[list[ChatTool], Field(max_length=MAX_TOOLS)] | None = None
    tool_choice: Any = None
    parallel_tool_calls: bool | None = None
    # Rejected if set, because the answer would differ from the request: ``api/openai/chat.py``.
    n: int | None = None
    functions: list[Any] | None = None
    function_call: Any = None
    modalities: list[Any] | None = None
    audio: Any = None
    logprobs: bool | None = None
    top_logprobs: int | None = None
    logit_bias: dict[str, Any] | None = None
    web_search_options: Any = None

    def options(self) -> dict[str, Any]:
        """Return the query settings of the request as fields of ``QueryConfig``.

        Raises:
            InvalidInputError: A tool, the choice of tools or a schema is not supported.
        """
        limit = self.max_completion_tokens or self.max_tokens
        sampling = {"temperature": self.temperature, "top_p": self.top_p, "max_tokens": limit}
        output: dict[str, Any] = {"stop": tuple(self.stop or ()) or None}
        if self.response_format is not None:
            output["response_format"] = self.response_format.json_format("response_format")
        given = {name: value for name, value in {**sampling, **output}.items() if value is not None}
        tools = tool_options(self._functions(), self.tool_choice, parallel=self.parallel_tool_calls)
        return {**self.search_options(), **given, **tools}

    def _functions(self) -> list[FunctionBody]:
        for number, tool in enumerate(self.tools or ()):
            if tool.function is None:
                raise InvalidInputError(
                    "Only tools of the type function are supported.", field=f"tools.{number}.type"
                )
        return [tool.function for tool in self.tools or () if tool.function is not None]

    @property
    def limit_field(self) -> str:
        """Name of the field that limits the answer's length in this request."""
        return "max_completion_tokens" if self.max_completion_tokens else "max_tokens"


class UrlCitation(Body):
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


class ToolCallMessage(BaseModel):
    """An answer with calls of tools of the client."""

    role: Literal["assistant"] = "assistant"
    content: str | None = Field(description="Null without text.")
    refusal: None = None
    tool_calls: list[CalledTool]
    annotations: list[Annotation]


FinishReason = Literal["stop", "length", "content_filter", "tool_calls"]


class AnswerChoice(BaseModel):
    """The one choice."""

    index: Literal[0] = 0
    message: AnswerMessage | ToolCallMessage
    logprobs: None = None
    finish_reason: FinishReason


class ChatCompletion(BaseModel):
    """The answer."""

    id: str
    object: Literal["chat.completion"] = "chat.completion"
    created: int = Field(description="Unix time in seconds.")
    model: str = Field(description="As requested.")
    choices: list[AnswerChoice]
    usage: Usage
    vectorforge: JsonDetails | OwnDetails
