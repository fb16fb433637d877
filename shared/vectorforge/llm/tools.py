"""Tools that a model may ask its caller to run, and its calls, whole and in pieces."""

import json
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any, Literal, TypeAlias


@dataclass(frozen=True, slots=True)
class ToolDefinition:
    """A function with its arguments."""

    name: str
    description: str | None = None
    parameters: Mapping[str, Any] | None = None
    """JSON Schema of the arguments, an object; None: there are none."""
    strict: bool | None = None
    """True: the arguments must match the schema, on vendors that can guarantee it."""

    @property
    def schema(self) -> Mapping[str, Any]:
        """Schema for vendors that require one."""
        return self.parameters or {"type": "object", "properties": {}}

    def for_openai(self) -> dict[str, Any]:
        """Return the tool for OpenAI's chat completions and compatible servers."""
        return {"type": "function", "function": {k: v for k, v in asdict(self).items() if v is not None}}

    def for_anthropic(self) -> dict[str, Any]:
        """Return the tool for Anthropic's messages."""
        described = {"description": self.description} if self.description else {}
        return {"name": self.name, **described, "input_schema": dict(self.schema)}

    def for_bedrock(self) -> dict[str, Any]:
        """Return the tool for ``toolConfig.tools`` of Amazon Bedrock's Converse."""
        described = {"description": self.description} if self.description else {}
        return {"toolSpec": {"name": self.name, **described, "inputSchema": {"json": dict(self.schema)}}}


@dataclass(frozen=True, slots=True)
class NamedTool:
    """Choice of the one tool that the model must call."""

    name: str


ToolChoice: TypeAlias = Literal["auto", "none", "required"] | NamedTool


@dataclass(frozen=True, slots=True)
class ToolCall:
    """A model's request to run a tool."""

    id: str
    name: str
    arguments: str
    """JSON as the model wrote it, which need not be valid."""

    @property
    def values(self) -> dict[str, Any]:
        """Arguments as an object; text that is none is its only member ``arguments``."""
        try:
            values = json.loads(self.arguments or "{}")
        except (ValueError, RecursionError):
            values = self.arguments
        return values if isinstance(values, dict) else {"arguments": values}


@dataclass(frozen=True, slots=True)
class ToolCallDelta:
    """A piece of a streamed tool call."""

    index: int
    """Place of the call in the answer, from 0."""
    arguments: str = ""
    """Next part of the arguments."""
    id: str | None = None
    """With the name in the first piece of a call, None in the others."""
    name: str | None = None


def join_tool_calls(deltas: Iterable[ToolCallDelta]) -> tuple[ToolCall, ...]:
    """Return the calls of all pieces of an answer."""
    calls: dict[int, ToolCall] = {}
    for piece in deltas:
        call = calls.get(piece.index) or ToolCall(piece.id or "", piece.name or "", "")
        calls[piece.index] = replace(call, arguments=call.arguments + piece.arguments)
    return tuple(calls[index] for index in sorted(calls))
