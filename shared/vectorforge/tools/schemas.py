"""The tools as OpenAI, Anthropic and Amazon Bedrock want them described.

OpenAI: https://platform.openai.com/docs/guides/function-calling,
Anthropic: https://docs.anthropic.com/en/docs/agents-and-tools/tool-use/implement-tool-use,
Bedrock: https://docs.aws.amazon.com/bedrock/latest/userguide/tool-use.html.
No schema has a ``profile_id``: the application binds it, see ``toolbox``.
"""

from typing import Any, Final

from vectorforge.pipeline.presets import MIN_CONTEXT_CHARS, PROFILE_CONTEXT_CHARS
from vectorforge.types import SearchMode

MAX_TOP_K: Final = 20
"""Passages a model may ask for."""
MAX_CONTEXT_CHARS: Final = 20_000
"""Characters of context a model may ask for."""
MAX_QUERY_CHARS: Final = 10_000

_QUERY: Final = {
    "type": "string",
    "minLength": 1,
    "maxLength": MAX_QUERY_CHARS,
    "description": "What to look for, as a question or in the words of the answer.",
}
_TOP_K: Final = {
    "type": "integer",
    "minimum": 1,
    "maximum": MAX_TOP_K,
    "default": 5,
    "description": "How many passages to return at most.",
}
_MAX_LENGTH: Final = {
    "type": "integer",
    "minimum": MIN_CONTEXT_CHARS,
    "maximum": MAX_CONTEXT_CHARS,
    "default": PROFILE_CONTEXT_CHARS,
    "description": "How many characters the text may have at most.",
}
_SEARCH_MODE: Final = {
    "type": "string",
    "enum": [mode.value for mode in SearchMode],
    "default": SearchMode.DENSE.value,
    "description": "How to search: by meaning (dense), by the words of the query (lexical: for names and "
    "numbers), or by both (hybrid).",
}

SEMANTIC_SEARCH: Final = "semantic_search"
SEMANTIC_SEARCH_WITH_CONTEXT: Final = "semantic_search_with_context"

_DESCRIPTIONS: Final = {
    SEMANTIC_SEARCH: (
        "Searches this person's profile (summary, experience, projects, skills, education, CV and others), "
        "by meaning unless told otherwise. Returns a JSON list of passages, best first, each with its score "
        "and with the type and id of what it is from. An empty list: the profile says nothing of it."
    ),
    SEMANTIC_SEARCH_WITH_CONTEXT: (
        "Searches this person's profile (summary, experience, projects, skills, education, CV and others), "
        "by meaning unless told otherwise. Returns the best passages as one text to answer from, each under "
        "a label such as [Source 1] that can be cited."
    ),
}
PARAMETERS: Final[dict[str, dict[str, Any]]] = {
    SEMANTIC_SEARCH: {
        "type": "object",
        "properties": {"query": _QUERY, "top_k": _TOP_K, "search_mode": _SEARCH_MODE},
        "required": ["query"],
        "additionalProperties": False,
    },
    SEMANTIC_SEARCH_WITH_CONTEXT: {
        "type": "object",
        "properties": {
            "query": _QUERY,
            "top_k": _TOP_K,
            "max_length": _MAX_LENGTH,
            "search_mode": _SEARCH_MODE,
        },
        "required": ["query"],
        "additionalProperties": False,
    },
}
"""JSON Schema of each tool's arguments."""


def openai_tools() -> list[dict[str, Any]]:
    """Both tools for the parameter ``tools`` of OpenAI's chat completions (and servers shaped like it)."""
    return [
        {
            "type": "function",
            "function": {"name": name, "description": _DESCRIPTIONS[name], "parameters": parameters},
        }
        for name, parameters in PARAMETERS.items()
    ]


def anthropic_tools() -> list[dict[str, Any]]:
    """Both tools for the parameter ``tools`` of Anthropic's messages."""
    return [
        {"name": name, "description": _DESCRIPTIONS[name], "input_schema": parameters}
        for name, parameters in PARAMETERS.items()
    ]


def bedrock_tools() -> list[dict[str, Any]]:
    """Both tools for ``toolConfig.tools`` of Amazon Bedrock's Converse."""
    return [
        {
            "toolSpec": {
                "name": name,
                "description": _DESCRIPTIONS[name],
                "inputSchema": {"json": parameters},
            }
        }
        for name, parameters in PARAMETERS.items()
    ]
