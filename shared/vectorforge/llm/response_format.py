"""How a model is asked for JSON, and what is left of that when it refuses."""

import json
import re
from collections.abc import Mapping
from typing import Any

from vectorforge.llm.types import LLMRequestConfig

_STEPS = ("response_format.json_schema", "response_format")
"""What a model may refuse, in this order: to keep to a schema, then JSON at all."""
_ABOUT_THE_FORMAT = re.compile(r"response_?format|json_schema|json_object", re.IGNORECASE)
"""Every OpenAI-shaped server has its own words, but names the field, e.g.
https://github.com/ikawrakow/ik_llama.cpp/issues/778."""


def openai_format(config: LLMRequestConfig, refused: frozenset[str]) -> dict[str, Any] | None:
    """``response_format`` of a chat completion: structured outputs, else any JSON object, else nothing.

    https://developers.openai.com/api/docs/guides/structured-outputs
    """
    if config.response_schema is None or "response_format" in refused:
        return None
    if "response_format.json_schema" in refused:
        return {"type": "json_object"}
    schema = {"name": "answer", "schema": dict(config.response_schema), "strict": True}
    return {"type": "json_schema", "json_schema": schema}


def refused_openai_format(complaint: str, refused: frozenset[str]) -> str | None:
    """The next step to go without when a server complains about the format; None when it does not."""
    if not _ABOUT_THE_FORMAT.search(complaint):
        return None
    return next((step for step in _STEPS if step not in refused), None)


def refused_steps(config: LLMRequestConfig, refused: frozenset[str]) -> list[str]:
    """Which steps a request for JSON went without."""
    return [step for step in _STEPS if step in refused] if config.response_schema is not None else []


def anthropic_format(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """``output_config`` of a message; models before 4.5 refuse it.

    https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    """
    if config.response_schema is None or "output_config" in refused:
        return None
    return {"format": {"type": "json_schema", "schema": dict(config.response_schema)}}


def bedrock_format(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """``outputConfig`` of a conversation on Amazon Bedrock; not every model there takes it.

    https://docs.aws.amazon.com/bedrock/latest/userguide/structured-output.html
    """
    if config.response_schema is None or "output_config" in refused:
        return None
    schema = {"name": "answer", "schema": json.dumps(config.response_schema)}
    return {"textFormat": {"type": "json_schema", "structure": {"jsonSchema": schema}}}
