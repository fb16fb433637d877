"""Bodies of requests to ``/v1/responses``, whose input may name items of stored responses by id.

https://developers.openai.com/api/reference/resources/responses
"""

import re
from collections.abc import Sequence
from itertools import takewhile
from typing import Annotated, Any, Final, Literal
from uuid import UUID

from pydantic import BaseModel, BeforeValidator, Field, model_validator

from vectorforge.api.openai.labels import rewrite_labels
from vectorforge.api.openai.output_options import FunctionBody, JsonSchemaFormat, ToolName, tool_options
from vectorforge.api.openai.request_schemas import (
    MAX_CLIENT_MESSAGES,
    MAX_CONTENT_PARTS,
    MAX_RESULTS,
    AnsweringModel,
    AttributeFilter,
    ClientMessage,
    ContentPart,
    OpenAIBody,
    PartsOfText,
    RankingOptions,
    RetrievalOptions,
    Text,
)
from vectorforge.api.schemas import MAX_NAME_CHARS, ConversationId, Temperature
from vectorforge.bootstrap import TenantServices
from vectorforge.db.repositories.conversation_repo import ConversationMessage
from vectorforge.errors import InvalidInputError
from vectorforge.pipeline.exchange import ExchangeDetails

FILE_SEARCH = "file_search"
ITEM_REFERENCE: Final = "item_reference"
MAX_REFERENCES: Final = 100
"""Limit of one request; each may be a whole answer."""
_ID = re.compile(r"(msg|fc|fs)_([0-9a-f]{32})([0-9a-f]{32})?(?:_(\d{1,4}))?")


class ResponseTool(OpenAIBody):
    """``file_search`` in one vector store, or a function of the client; of others only the type is read."""

    type: str = Field(max_length=100)
    client_function: FunctionBody | None = Field(
        default=None, exclude=True, description="Not sent: a function's fields are at the top level."
    )
    vector_store_ids: list[Annotated[str, Field(min_length=1, max_length=MAX_NAME_CHARS)]] = Field(
        default_factory=list, max_length=100, description="One collection: its id or name."
    )
    max_num_results: Annotated[int, Field(ge=1, le=MAX_RESULTS)] | None = None
    filters: AttributeFilter | None = None
    ranking_options: RankingOptions | None = None

    @model_validator(mode="before")
    @classmethod
    def _type_of_others(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.get("type") == FILE_SEARCH:
            return value
        function = {"client_function": value} if value.get("type") == "function" else {}
        return {"type": value.get("type"), **function}

    @model_validator(mode="after")
    def _one_store(self) -> "ResponseTool":
        if self.type == FILE_SEARCH and len(self.vector_store_ids) != 1:
            raise ValueError("vector_store_ids must have exactly one vector store")
        return self


class InputItem(ClientMessage):
    """A message, a tool call or its result, or another item of an earlier response."""

    type: str = Field(default="message", max_length=100)
    id: str | None = Field(
        default=None, max_length=200, description="Of `item_reference` and `function_call`: the item's."
    )
    role: str = Field(default="", max_length=100, description="user, assistant, system or developer.")
    call_id: str = Field(default="", max_length=200, description="Of `function_call` and its output.")
    name: str | None = Field(default=None, max_length=64)
    arguments: Text | None = None
    output: Annotated[list[ContentPart], Field(max_length=MAX_CONTENT_PARTS), PartsOfText] | None = None


class ConversationObject(OpenAIBody):
    """A conversation, named by its id."""

    id: ConversationId


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


class TextFormatBody(BaseModel):
    """``text.format``: text, a JSON object, or JSON of a schema."""

    type: Literal["text", "json_object", "json_schema"] = "text"
    name: ToolName = "answer"
    schema_: dict[str, Any] | None = Field(default=None, alias="schema", description="Draft 2020-12.")
    strict: bool | None = None


class TextOptions(BaseModel):
    """``text``: the format of the answer."""

    format: TextFormatBody | None = None


class ResponseRequest(RetrievalOptions):
    """A query, or a conversation whose last message is one. Other fields are ignored."""

    model: AnsweringModel
    input: Annotated[
        list[InputItem],
        Field(min_length=1, max_length=MAX_CLIENT_MESSAGES),
        BeforeValidator(
            lambda value: [{"role": "user", "content": value}] if isinstance(value, str) else value,
            json_schema_input_type=str | list[InputItem],
        ),
    ] = Field(description="The question, or messages, the oldest first.")
    instructions: Text | None = Field(
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
    text: TextOptions | None = None
    # Refused, because the answer would differ from the request: ``api/openai/responses/routes.py``.
    background: bool | None = None
    prompt: Any = None
    top_logprobs: int | None = None

    @property
    def file_search(self) -> ResponseTool | None:
        """First ``file_search`` tool."""
        return next((tool for tool in self.tools or () if tool.type == FILE_SEARCH), None)

    def options(self) -> dict[str, Any]:
        """Return the query settings of the request as fields of ``QueryConfig``.

        Top-level fields override those of the tool; filters of both apply.

        Raises:
            InvalidInputError: A tool, the choice of tools or a schema is not supported.
        """
        sampling = {
            "temperature": self.temperature,
            "top_p": self.top_p,
            "max_tokens": self.max_output_tokens,
        }
        tool = self.file_search
        options = {**_tool_options(tool), **self.search_options(), **_given(sampling), **self._output()}
        if tool and tool.filters:
            filters = tool.filters.translated()
            options["filters"] = {"$and": [self.filters, filters]} if self.filters else filters
        return options

    def _output(self) -> dict[str, Any]:
        """Return the format of the answer, and the tools of the client.

        A search, which every query makes, is a tool call that satisfies ``required``.
        """
        options: dict[str, Any] = {}
        if self.text is not None and self.text.format is not None:
            wanted = self.text.format.model_dump(by_alias=True)
            schema = wanted if wanted["schema"] is not None else None
            body = JsonSchemaFormat.model_validate({"type": wanted["type"], "json_schema": schema})
            options = _given({"response_format": body.json_format("text")})
        choice = self.tool_choice
        if self.file_search and choice in ("required", {"type": FILE_SEARCH}):
            choice = "auto"
        functions = [tool.client_function for tool in self.tools or () if tool.client_function is not None]
        return {**options, **tool_options(functions, choice, parallel=self.parallel_tool_calls)}


def _tool_options(tool: ResponseTool | None) -> dict[str, Any]:
    if tool is None:
        return {}
    ranking = tool.ranking_options
    return _given({"top_k": tool.max_num_results, "min_score": ranking.score_threshold if ranking else None})


def _given(options: dict[str, Any]) -> dict[str, Any]:
    return {name: value for name, value in options.items() if value is not None}


async def resolve_references(
    tenant: TenantServices, items: Sequence[InputItem], credential: str
) -> tuple[list[InputItem], UUID | None]:
    """Return the items without references, and the credential's own conversation of the calls at their end.

    Vercel's AI SDK sends references for the items of earlier steps, unless ``store`` is false; clients of
    OpenAI's package send the items. A reference to a search, which no conversation has, is not looked up.

    Raises:
        InvalidInputError: There are too many, or an item is not stored with a response of this credential.
    """
    ids = {
        index: _ID.fullmatch(item.id or "") for index, item in enumerate(items) if item.type == ITEM_REFERENCE
    }
    if len(ids) > MAX_REFERENCES:
        raise InvalidInputError(f"`input` may have at most {MAX_REFERENCES} item references.", field="input")
    latest = (_ID.fullmatch(item.id or "") for item in takewhile(lambda i: i.role != "user", reversed(items)))
    call = next((id_ for id_ in latest if id_ and id_[1] == "fc"), None)
    wanted = {_exchange(id_) for id_ in (*ids.values(), call) if id_ and id_[3] and id_[1] != "fs"}
    answers = await tenant.conversations.answers(list(wanted), credential=credential) if wanted else {}
    resolved = list(items)
    for index, id_ in ids.items():
        item = _item(id_, answers) if id_ else None
        if item is None:
            raise InvalidInputError(
                "This item is not stored with a response of yours. Items are stored with `store: true`; "
                "else send the item itself (AI SDK: `store: false`).",
                field=f"input.{index}.id",
            )
        resolved[index] = item
    return resolved, UUID(call[3]) if call and call[3] and _exchange(call) in answers else None


def _exchange(id_: re.Match[str]) -> tuple[UUID, UUID]:
    return UUID(id_[3]), UUID(id_[2])


def _item(id_: re.Match[str], answers: dict[tuple[UUID, UUID], ConversationMessage]) -> InputItem | None:
    kind, _, conversation, place = id_.groups()
    if kind == "fs":
        return InputItem(type="file_search_call")
    answer = answers.get(_exchange(id_)) if conversation else None
    if answer is None:
        return None
    if kind == "msg":
        text, _ = rewrite_labels(answer.content, ())  # as the client got it
        part = ContentPart.model_construct(type="output_text", text=text)  # checked with the other messages
        return InputItem(role="assistant", content=[part]) if answer.content and place is None else None
    details = ExchangeDetails.from_json(answer.details)
    calls = details.result.tool_calls if details else ()
    if place is None or int(place) >= len(calls):
        return None
    call = calls[int(place)]
    return InputItem(type="function_call", call_id=call.id, name=call.name, arguments=call.arguments)
