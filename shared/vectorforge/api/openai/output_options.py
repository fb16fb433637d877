"""Tools, stop sequences and JSON formats of OpenAI requests, and tool calls in their messages."""

import json
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, Literal

from pydantic import BaseModel, Field

from vectorforge.api.openai.request_schemas import MAX_TEXT_CHARS, OneOrMoreTexts
from vectorforge.bootstrap import Application
from vectorforge.errors import InvalidInputError
from vectorforge.llm.tools import NamedTool, ToolChoice, ToolDefinition
from vectorforge.llm.types import ProviderCapability
from vectorforge.pipeline.presets import Preset
from vectorforge.pipeline.types import JsonFormat, QueryConfig

MAX_TOOLS = 128
MAX_TOOL_CHARS = 128_000
"""Characters of all tools together, as JSON."""

StopSequences = Annotated[
    list[Annotated[str, Field(min_length=1, max_length=256)]],
    Field(max_length=4),
    OneOrMoreTexts,
]
ToolName = Annotated[str, Field(pattern=r"^[a-zA-Z0-9_-]{1,64}$")]


class FunctionBody(BaseModel):
    """A function of the client that the model may call."""

    name: ToolName
    description: Annotated[str, Field(max_length=MAX_TEXT_CHARS)] | None = None
    parameters: dict[str, Any] | None = Field(default=None, description="JSON Schema of its arguments.")
    strict: bool | None = None

    def definition(self) -> ToolDefinition:
        """Return the tool."""
        return ToolDefinition(self.name, self.description, self.parameters, self.strict)


class JsonSchemaBody(BaseModel):
    """A JSON Schema of an answer."""

    name: ToolName = "answer"
    schema_: dict[str, Any] = Field(default_factory=dict, alias="schema", description="Draft 2020-12.")
    strict: bool | None = None


class JsonSchemaFormat(BaseModel):
    """``response_format`` of chat completions; ``text.format`` of responses has the schema at its top."""

    type: Literal["text", "json_object", "json_schema"]
    json_schema: JsonSchemaBody | None = None

    def json_format(self, field: str) -> JsonFormat | None:
        """Return the format of the answer, None for text; ``field`` is its name in the request, for errors.

        Raises:
            InvalidInputError: The schema is missing, too large, or not one.
        """
        if self.type == "text":
            return None
        if self.type == "json_object":
            return JsonFormat()
        if self.json_schema is None:
            raise InvalidInputError("A format of type json_schema needs `json_schema`.", field=field)
        from vectorforge.pipeline.json_output import check_schema

        schema = self.json_schema
        check_schema(schema.schema_, field=field)
        return JsonFormat(schema.schema_, schema.name, bool(schema.strict))


def tool_options(functions: Sequence[FunctionBody], choice: Any, *, parallel: bool | None) -> dict[str, Any]:
    """Return the tools of a request as fields of ``QueryConfig``.

    ``choice`` is ``tool_choice`` in the form of chat completions or of responses.

    Raises:
        InvalidInputError: The tools are too large, two have one name, or the choice is not possible.
    """
    names = [function.name for function in functions]
    chosen = _choice(choice, names)
    if not functions:
        return {}
    if len(names) != len(set(names)):
        raise InvalidInputError("Each tool needs a name of its own.", field="tools")
    if len(json.dumps([function.parameters for function in functions])) > MAX_TOOL_CHARS:
        raise InvalidInputError(
            f"The parameters of `tools` may have at most {MAX_TOOL_CHARS:,} characters.", field="tools"
        )
    tools = tuple(function.definition() for function in functions)
    return {"tools": tools, "tool_choice": chosen, "parallel_tool_calls": parallel}


def _choice(choice: Any, names: Sequence[str]) -> ToolChoice:
    if choice is None or choice in ("auto", "none"):
        return choice or "auto"
    if choice == "required" and names:
        return "required"
    if isinstance(choice, Mapping) and choice.get("type") == "function":
        name = (choice.get("function") or choice).get("name")
        if name in names:
            return NamedTool(str(name))
    raise InvalidInputError(
        "`tool_choice` must be auto, none, or, with `tools` of type function, required or one of them.",
        field="tool_choice",
    )


def check_output(application: Application, config: QueryConfig, preset: Preset, *, format_field: str) -> None:
    """Check that a model can answer in the requested form, before it costs anything.

    ``format_field`` is the request's name of the format, for errors.

    Raises:
        InvalidInputError: The preset has a format of its own, or no language model answers.
    """
    wanted = {
        "retrieval": config.search_tool is not None,
        "tools": config.has_tools,
        format_field: config.response_format is not None,
    }
    if preset.response_schema is not None and any(wanted.values()):
        field = next(name for name, is_wanted in wanted.items() if is_wanted)
        raise InvalidInputError(
            f"`{preset.name}` answers in a format of its own; use `vectorforge` or `rag_query`.", field=field
        )
    if not config.needs_model:
        return
    if config.search_tool is not None:
        _check_search_tool(config, config.search_tool.definition.name, format_field)
    registry = application.llm_registry
    name = config.llm_provider
    provider = registry.get(name) if name else registry.get_default() if registry.list_providers() else None
    if provider is None or ProviderCapability.EXTRACTIVE in provider.capabilities:
        field = format_field if config.response_format is not None else "tools"
        field = "retrieval" if config.search_tool is not None else field
        raise InvalidInputError(f"`{field}` needs a language model, and none is configured.", field=field)
    if config.search_tool is not None and not provider.calls_tools:
        raise InvalidInputError(
            f"`retrieval: tool` needs a model that calls tools; {provider.name} has none.", field="retrieval"
        )


def _check_search_tool(config: QueryConfig, name: str, format_field: str) -> None:
    if any(tool.name == name for tool in config.tools):
        raise InvalidInputError(f"`{name}` is the tool of the server; rename yours.", field="tools")
    steps = "intents" if config.intents else "effort"
    for field, is_given in ((steps, config.has_steps), (format_field, config.response_format is not None)):
        if is_given:
            raise InvalidInputError(f"`{field}` cannot be combined with `retrieval: tool`.", field=field)
