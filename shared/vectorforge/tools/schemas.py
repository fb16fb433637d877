"""Tools of agents as models, and their schemas for OpenAI, Anthropic and Amazon Bedrock.

OpenAI: https://platform.openai.com/docs/guides/function-calling,
Anthropic: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use,
Bedrock: https://docs.aws.amazon.com/bedrock/latest/userguide/tool-use.html.
No schema of the profile tools has a ``profile_id``: the application binds it, see ``ProfileToolbox``.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Any, Final

from pydantic import BaseModel, ConfigDict, Field, ValidationError, WithJsonSchema
from pydantic.json_schema import SkipJsonSchema

from vectorforge.errors import InvalidInputError
from vectorforge.llm.tools import ToolDefinition
from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS, PROFILE_CONTEXT_CHARS
from vectorforge.types import SearchMode

MAX_TOP_K: Final = 20
"""Chunks a model may request."""
MAX_CONTEXT_CHARS: Final = 20_000
"""Characters of context a model may request."""
MAX_QUERY_CHARS: Final = 10_000

SEMANTIC_SEARCH: Final = "semantic_search"
SEMANTIC_SEARCH_WITH_CONTEXT: Final = "semantic_search_with_context"


class SearchArguments(BaseModel):
    """Arguments of ``semantic_search``."""

    model_config = ConfigDict(extra="forbid", strict=True, hide_input_in_errors=True)

    query: str = Field(
        min_length=1,
        max_length=MAX_QUERY_CHARS,
        description="What to look for, as a question or in the words of the answer.",
    )
    top_k: int = Field(default=5, ge=1, le=MAX_TOP_K, description="How many passages to return at most.")
    search_mode: Annotated[
        SearchMode, WithJsonSchema({"type": "string", "enum": [mode.value for mode in SearchMode]})
    ] = Field(
        default=SearchMode.DENSE,
        strict=False,
        description="How to search: by meaning (dense), by the words of the query (lexical: for names and "
        "numbers), or by both (hybrid).",
    )
    mmr_lambda: Annotated[float, Field(ge=0, le=1)] | SkipJsonSchema[None] = Field(
        default=None,
        description="Set it, for example to 0.7, to get passages that differ from one another: 1 chooses by "
        "relevance alone, 0 by difference.",
    )


class ContextArguments(SearchArguments):
    """Arguments of ``semantic_search_with_context``."""

    max_length: int = Field(
        default=PROFILE_CONTEXT_CHARS,
        ge=MIN_CONTEXT_CHARS,
        le=MAX_CONTEXT_CHARS,
        description="How many characters the text may have at most.",
    )


@dataclass(frozen=True, slots=True)
class AgentTool:
    """A tool as a language model sees it."""

    name: str
    description: str
    arguments: type[BaseModel]

    @property
    def parameters(self) -> dict[str, Any]:
        """JSON Schema of the arguments."""
        schema: dict[str, Any] = tool_schema(self.arguments.model_json_schema())
        del schema["description"]  # the docstring
        return schema

    @property
    def definition(self) -> ToolDefinition:
        """The tool as providers get it."""
        return ToolDefinition(self.name, self.description, self.parameters)


PROFILE_TOOLS: Final[Mapping[str, AgentTool]] = {
    tool.name: tool
    for tool in (
        AgentTool(
            SEMANTIC_SEARCH,
            "Searches this person's profile (summary, experience, projects, skills, education, CV and "
            "others), by meaning unless told otherwise. Returns a JSON list of passages, best first, each "
            "with its score and with the type and id of what it is from. An empty list: the profile says "
            "nothing of it.",
            SearchArguments,
        ),
        AgentTool(
            SEMANTIC_SEARCH_WITH_CONTEXT,
            "Searches this person's profile (summary, experience, projects, skills, education, CV and "
            "others), by meaning unless told otherwise. Returns the best passages as one text to answer "
            "from, each under a label such as [Source 1] that can be cited.",
            ContextArguments,
        ),
    )
}
"""The tools of one profile by name."""


def tool_schema(schema: Any) -> Any:
    """Return a model's JSON schema without titles and null defaults.

    Titles repeat the names and cost a model tokens. A property named ``title`` stays, since its schema is an
    object.
    """
    if isinstance(schema, dict):
        return {
            key: tool_schema(value)
            for key, value in schema.items()
            if not (key == "title" and isinstance(value, str)) and not (key == "default" and value is None)
        }
    return [tool_schema(item) for item in schema] if isinstance(schema, list) else schema


def openai_tools(tools: Mapping[str, AgentTool] = PROFILE_TOOLS) -> list[dict[str, Any]]:
    """Return the tools for ``tools`` of OpenAI's chat completions and compatible servers."""
    return [tool.definition.for_openai() for tool in tools.values()]


def anthropic_tools(tools: Mapping[str, AgentTool] = PROFILE_TOOLS) -> list[dict[str, Any]]:
    """Return the tools for ``tools`` of Anthropic's messages."""
    return [tool.definition.for_anthropic() for tool in tools.values()]


def bedrock_tools(tools: Mapping[str, AgentTool] = PROFILE_TOOLS) -> list[dict[str, Any]]:
    """Return the tools for ``toolConfig.tools`` of Amazon Bedrock's Converse."""
    return [tool.definition.for_bedrock() for tool in tools.values()]


def check_arguments(
    name: str, arguments: str | Mapping[str, Any], tools: Mapping[str, AgentTool] = PROFILE_TOOLS
) -> BaseModel:
    """Validate the arguments of a call, given as JSON text or as an object.

    Raises:
        InvalidInputError: Unknown tool or invalid arguments.
    """
    tool = tools.get(name)
    if tool is None:
        raise InvalidInputError(f"Unknown tool; available: {', '.join(tools)}.", field="name")
    try:
        if isinstance(arguments, str):
            return tool.arguments.model_validate_json(arguments)
        return tool.arguments.model_validate(dict(arguments))
    except ValidationError as exc:
        places = "; ".join(f"{'.'.join(map(str, e['loc']))}: {e['msg']}" for e in exc.errors())
        raise InvalidInputError(f"Invalid arguments of {name}: {places}.", field="arguments") from exc
