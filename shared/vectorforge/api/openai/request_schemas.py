"""Request fields and details of answers that the OpenAI routers share.

Unknown fields are ignored, as OpenAI's servers do. https://platform.openai.com/docs/api-reference/chat
"""

from typing import Annotated, Any, Literal, Self
from uuid import UUID

from pydantic import AfterValidator, BaseModel, BeforeValidator, ConfigDict, Field, model_validator

from vectorforge.api.answers import AnswerDetails, SourceBody
from vectorforge.api.schemas import (
    ALLOW_UNGROUNDED,
    MAX_JSON_DEPTH,
    MAX_NAME_CHARS,
    MAX_QUERY_CHARS,
    Body,
    ConversationReference,
    EffortLevel,
    Filters,
    Intents,
    Locations,
    LocationText,
    ModelName,
    ProviderName,
    Rewrite,
    SearchOptions,
    VariantReference,
    storable,
)
from vectorforge.llm.tools import ToolCall
from vectorforge.pipeline.types import CitationVerdict
from vectorforge.vectorstore.filters.parse import MAX_CONDITIONS, MAX_KEY_LENGTH, MAX_LIST_LENGTH

MAX_CLIENT_MESSAGES = 1000
"""Messages of one request: clients send the whole conversation; its end becomes part of the prompt."""
MAX_CONTENT_PARTS = 100
MAX_TEXT_CHARS = MAX_QUERY_CHARS

MAX_SCHEMA_DEPTH = 64
"""Levels of JSON of a field with a JSON Schema, of which a level of the data takes two or three."""
_WITH_SCHEMAS = frozenset({"response_format", "tools", "text", "parameters"})

Text = Annotated[str, Field(max_length=MAX_TEXT_CHARS)]


class OpenAIBody(BaseModel):
    """A body that OpenAI's clients send: fields that are not used here are ignored."""

    model_config = ConfigDict(extra="ignore", allow_inf_nan=False, hide_input_in_errors=True)

    @model_validator(mode="before")
    @classmethod
    def _storable(cls, value: Any) -> Any:
        if not isinstance(value, dict) or value.keys().isdisjoint(_WITH_SCHEMAS):
            return storable(value)
        limits = {name: MAX_SCHEMA_DEPTH if name in _WITH_SCHEMAS else MAX_JSON_DEPTH for name in value}
        return {storable(name): storable(part, 1, limits[name]) for name, part in value.items()}


class ContentPart(BaseModel):
    """A part of a message: text, or a part rejected by its ``type``."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    type: str = Field(max_length=100)
    text: Text | None = None
    refusal: Text | None = None


PartsOfText = BeforeValidator(
    lambda value: [{"type": "text", "text": value}] if isinstance(value, str) else value,
    json_schema_input_type=Text | list[ContentPart],
)
OneOrMoreTexts = BeforeValidator(
    lambda value: [value] if isinstance(value, str) else value, json_schema_input_type=str | list[str]
)


class CalledFunction(BaseModel):
    """A function with its arguments."""

    name: str = Field(max_length=64)
    arguments: Text = Field(default="", description="JSON as the model wrote it, which need not be valid.")


class CalledTool(BaseModel):
    """A call of a tool of the client by the model."""

    id: str = Field(max_length=200)
    type: Literal["function"] = "function"
    function: CalledFunction

    @classmethod
    def of(cls, call: ToolCall) -> Self:
        """Return the body of a call."""
        return cls(id=call.id, function=CalledFunction(name=call.name, arguments=call.arguments))


class ClientMessage(BaseModel):
    """A message of a conversation."""

    model_config = ConfigDict(extra="ignore", hide_input_in_errors=True)

    role: str = Field(max_length=100, description="user, assistant, system, developer or tool.")
    tool_calls: Annotated[list[CalledTool], Field(max_length=128)] | None = Field(
        default=None, description="Of the assistant."
    )
    tool_call_id: str | None = Field(default=None, max_length=200, description="Of a tool: its call.")
    content: Annotated[list[ContentPart], Field(max_length=MAX_CONTENT_PARTS), PartsOfText] | None = Field(
        default=None, description="Text, or parts of text."
    )


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


class RetrievalOptions(OpenAIBody, SearchOptions):
    """Search options of OpenAI requests; ``extra_body`` in OpenAI's Python package."""

    top_k: Annotated[int, Field(ge=1, description="Passages to retrieve.")] | None = None
    min_score: float | None = Field(default=None, description="Passages scoring lower are dropped.")
    filters: Filters | None = None
    llm_provider: ProviderName | None = None
    llm_model: ModelName | None = Field(default=None, description="The model that writes the answer.")
    variant: VariantReference | None = None
    conversation_id: ConversationReference | None = None
    rewrite: Rewrite | None = None
    retrieval: Literal["always", "tool"] | None = Field(
        default=None,
        description="`tool`: the model decides what to search for, with a tool of the server, "
        "`search_documents`. `always`, the default: a search precedes the answer.",
    )
    effort: EffortLevel | None = None
    intents: Intents | None = None
    allow_ungrounded: bool | None = Field(default=None, description=ALLOW_UNGROUNDED)

    def search_options(self) -> dict[str, Any]:
        """Return the given options as fields of ``QueryConfig``; null counts as omitted."""
        fields = set(RetrievalOptions.model_fields) - {"variant", "retrieval"}
        tool: dict[str, Any] = {}
        if self.retrieval == "tool":
            from vectorforge.tools.document_schemas import SEARCH_TOOL

            tool = {"search_tool": SEARCH_TOOL}
        return {**self.model_dump(include=fields, exclude_none=True), **tool}


class OwnDetails(AnswerDetails):
    """Details beyond OpenAI's API: ``vectorforge`` in the answer."""

    query_id: UUID = Field(description="Of the log: `GET /v1/queries/{query_id}`.")
    provider: str | None
    llm_model: str | None
    extractive: bool = Field(description="True: the answer quotes the documents; no model wrote it.")
    outcome: str
    sources: list[SourceBody] = Field(description="The passages in the prompt, by number.")


class JsonCitation(Body):
    """A citation of an answer in JSON, whose texts have no labels."""

    source_number: int
    chunk_id: UUID
    document_id: UUID
    verdict: CitationVerdict
    locations: Locations
    location_text: LocationText


class JsonDetails(OwnDetails):
    """Details of an answer in JSON."""

    citations: list[JsonCitation] = Field(description="In the order of the labels that the model wrote.")
