"""Anthropic's Messages API."""

from collections.abc import Mapping, Sequence
from contextlib import aclosing
from typing import Any, ClassVar, Self, Unpack

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import InvalidInputError
from vectorforge.llm import failures
from vectorforge.llm.failures import named_parameter
from vectorforge.llm.http import HttpLLMProvider, StreamAccumulator
from vectorforge.llm.tools import NamedTool, ToolCallDelta
from vectorforge.llm.types import FinishReason, LLMRequestConfig, Message, ProviderCall, ProviderOptions
from vectorforge.vendors.accounts import AnthropicClient, ClientKind, VertexAI, anthropic_transport, vertex_of
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.response import VendorStatusError

DEFAULT_BASE_URL = "https://api.anthropic.com"
DEFAULT_MODEL = "claude-sonnet-4-20250514"
_VERSION = "2026-10-21"
"""Version of the API, equal to that of the SDK in uv.lock (tested). https://docs.claude.com/en/api/versioning"""

_STATUSES = {
    "invalid_request_error": 400,
    "authentication_error": 401,
    "permission_error": 403,
    "not_found_error": 404,
    "request_too_large": 413,
    "rate_limit_error": 429,
    "api_error": 500,
    "timeout_error": 504,
    "overloaded_error": 529,
}
"""HTTP status of each error type outside a stream. Source: https://docs.claude.com/en/api/errors."""

_TOOL_CHOICES = {"auto": "auto", "required": "any", "none": "none"}


class AnthropicProvider(HttpLLMProvider[AnthropicClient]):
    """Messages API.

    Args:
        credentials: API key, or a source of one.
        base_url: Address of the API, without ``/v1``; default: Anthropic's.
        default_model: Model of requests that name none.
        client: Transport of requests: our HTTP client or the package anthropic.
        vertex: Project of Google Cloud, called through the package anthropic instead of ``base_url``.
        **options: See ``BaseLLMProvider``.
    """

    max_temperature: ClassVar[float] = 1.0
    unsupported: ClassVar[tuple[str, ...]] = ("frequency_penalty", "presence_penalty")
    usage_fields: ClassVar[tuple[str, str]] = ("input_tokens", "output_tokens")
    finish_reasons: ClassVar[Mapping[str | None, FinishReason]] = {
        "end_turn": "stop",
        "stop_sequence": "stop",
        "max_tokens": "length",
        "model_context_window_exceeded": "length",
        "refusal": "content_filter",
        "tool_use": "tool_calls",
    }
    _path = "messages"

    def __init__(
        self,
        credentials: SecretStr | str | Credentials,
        *,
        base_url: str | None = None,
        default_model: str = DEFAULT_MODEL,
        client: ClientKind = "http",
        vertex: VertexAI | None = None,
        **options: Unpack[ProviderOptions],
    ) -> None:
        self._base_url = base_url or DEFAULT_BASE_URL
        self._vertex = vertex
        connection = anthropic_transport(
            as_credentials(credentials),
            lambda: self._base_url,
            headers={"anthropic-version": _VERSION},
            client=client,
            vertex=vertex,
        )
        super().__init__(connection, default_model=default_model, **options)

    @classmethod
    def from_settings(cls, settings: LLMSettings, credentials: Credentials, **options: Any) -> Self:
        """Return the provider that the settings describe."""
        return cls(
            credentials,
            base_url=settings.anthropic_base_url,
            default_model=settings.anthropic_model,
            client=settings.anthropic_client,
            vertex=vertex_of(settings),
            **options,
        )

    def provider_name(self) -> str:
        """Return "anthropic"."""
        return "anthropic"

    async def _list_models(self) -> list[str]:
        if self._vertex is not None:  # lists no models; counting tokens is free and checks access alike
            text = {"model": self.default_model, "messages": [{"role": "user", "content": "Hello"}]}
            async with aclosing(await self._transport.post(self._url("messages/count_tokens"), text)):
                return [self.default_model]
        page = await self._transport.get_json(self._url("models?limit=1000"))
        return [model["id"] for model in page["data"]]

    def _url(self, path: str) -> str:
        return f"{'' if self._vertex else self._base_url.rstrip('/')}/v1/{path}"

    def _refused_name(
        self, exc: VendorStatusError, config: LLMRequestConfig, refused: frozenset[str]
    ) -> str | None:
        if exc.status != 400:
            return None
        if "output_config" in exc.text or "output format" in exc.text:
            return "output_config"
        # Where a model accepts only one of the two, temperature stays.
        return named_parameter(("top_p", "temperature"), message=exc.text)

    def _request_body(self, call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
        config = call.config
        messages = _messages(call.messages)
        shared = sum(message["role"] != "system" for message in call.messages[: config.shared_messages])
        if shared:
            messages[shared - 1]["content"] = _cached_text(messages[shared - 1]["content"])
        body = {
            "model": config.model,
            "system": "\n\n".join(m["content"] for m in call.messages if m["role"] == "system") or None,
            "messages": messages,
            "max_tokens": config.max_tokens,
            # blanks alone are refused
            "stop_sequences": [text for text in config.stop_sequences if text.strip()] or None,
            "stream": stream or None,
            "output_config": _output_config(config, refused),
            **(_tools(config) if config.tools else {}),
            "temperature": None if "temperature" in refused else config.temperature,
            "top_p": None if "top_p" in refused else config.top_p,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _accumulator(self) -> StreamAccumulator:
        return _AnthropicStream(self.name)


class _AnthropicStream(StreamAccumulator):
    """Reader of a message: https://docs.claude.com/en/docs/build-with-claude/streaming."""

    def __init__(self, provider: str) -> None:
        super().__init__(provider)
        self._tools: dict[int, int] = {}
        """Block of the message -> place of its tool call."""

    def read_whole(self, answer: Any) -> str:
        self.model, self.reason = answer.get("model"), answer.get("stop_reason")
        self.usage = _whole_usage(answer.get("usage") or {})
        blocks = answer.get("content") or ()
        for place, block in enumerate(block for block in blocks if block.get("type") == "tool_use"):
            arguments = orjson.dumps(block["input"]).decode()
            self.calls.append(ToolCallDelta(place, arguments, block["id"], block["name"]))
        return "".join(block["text"] for block in blocks if block.get("type") == "text")

    def _read(self, data: bytes) -> str:
        event = orjson.loads(data)
        match event["type"]:
            case "content_block_delta":
                if (piece := event["delta"].get("partial_json")) and event["index"] in self._tools:
                    self.calls.append(ToolCallDelta(self._tools[event["index"]], piece))
                text: str = event["delta"].get("text") or ""
                return text
            case "content_block_start":
                block = event["content_block"]
                if block["type"] == "tool_use":
                    place = self._tools[event["index"]] = len(self._tools)
                    self.calls.append(ToolCallDelta(place, "", block["id"], block["name"]))
            case "message_start":
                self.model = event["message"].get("model")
                self.usage = _whole_usage(event["message"].get("usage") or {})
            case "message_delta":
                self.reason = event["delta"].get("stop_reason") or self.reason
                # Cumulative; fields that did not change may be null.
                changed = {k: v for k, v in (event.get("usage") or {}).items() if v is not None}
                self.usage = {**self.usage, **changed}
            case "message_stop":
                self.is_complete = True
            case "error":
                status = _STATUSES.get(event["error"].get("type"), 500)
                self.error = failures.error_for_status(self.provider, status, text=str(event["error"]))
        return ""


def _messages(messages: Sequence[Message]) -> list[dict[str, Any]]:
    """Return the conversation without its system messages; results of tools are in messages of the user."""
    sent: list[dict[str, Any]] = []
    for message in messages:
        if message["role"] == "tool":
            result = {"type": "tool_result", "tool_use_id": message["tool_call_id"]}
            if not sent or not isinstance(sent[-1]["content"], list) or sent[-1]["role"] != "user":
                sent.append({"role": "user", "content": []})
            sent[-1]["content"].append({**result, "content": message["content"]})
        elif message.get("tool_calls"):
            text = [{"type": "text", "text": message["content"]}] if message["content"].strip() else []
            uses = [
                {"type": "tool_use", "id": call.id, "name": call.name, "input": call.values}
                for call in message["tool_calls"]
            ]
            sent.append({"role": "assistant", "content": [*text, *uses]})
        elif message["role"] != "system":
            sent.append(dict(message))
    if not sent:
        raise InvalidInputError("messages must hold a user message.", field="messages")
    if sent[-1]["role"] == "assistant" and isinstance(sent[-1]["content"], str):
        sent[-1]["content"] = sent[-1]["content"].rstrip()  # required of an answer that is to go on
    return sent


def _tools(config: LLMRequestConfig) -> dict[str, Any]:
    """Return the tools and their choice. https://platform.claude.com/docs/en/agents-and-tools/tool-use."""
    choice: dict[str, Any]
    if isinstance(config.tool_choice, NamedTool):
        choice = {"type": "tool", "name": config.tool_choice.name}
    else:
        choice = {"type": _TOOL_CHOICES[config.tool_choice]}
    if config.parallel_tool_calls is False and choice["type"] != "none":
        choice["disable_parallel_tool_use"] = True
    return {"tools": [tool.for_anthropic() for tool in config.tools], "tool_choice": choice}


def _cached_text(text: str) -> list[Mapping[str, Any]]:
    """Return a content whose end is the end of the prompt to cache, for five minutes.

    https://platform.claude.com/docs/en/build-with-claude/prompt-caching
    """
    return [{"type": "text", "text": text, "cache_control": {"type": "ephemeral"}}]


def _whole_usage(usage: Mapping[str, Any]) -> Mapping[str, Any]:
    """Count the prompt's tokens that were written to the cache, or read from it, among its tokens."""
    cached = [usage.get(f"cache_{what}_input_tokens") for what in ("creation", "read")]
    if not any(cached):
        return usage
    return {**usage, "input_tokens": sum(filter(None, [usage.get("input_tokens"), *cached]))}


def _output_config(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """Return ``output_config`` of a message; models before 4.5 refuse it.

    https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    """
    if config.response_schema is None or not config.strict_schema or "output_config" in refused:
        return None
    return {"format": {"type": "json_schema", "schema": dict(config.response_schema)}}
