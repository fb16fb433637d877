"""Anthropic's Messages API."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Self, Unpack

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import InvalidInputError
from vectorforge.llm import failures
from vectorforge.llm.failures import named_parameter
from vectorforge.llm.http import HttpLLMProvider, StreamAccumulator
from vectorforge.llm.types import FinishReason, LLMRequestConfig, ProviderCall, ProviderOptions
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
        messages: list[dict[str, Any]] = [dict(m) for m in call.messages if m["role"] != "system"]
        if not messages:
            raise InvalidInputError("messages must hold a user message.", field="messages")
        shared = sum(message["role"] != "system" for message in call.messages[: config.shared_messages])
        if shared:
            messages[shared - 1]["content"] = _cached_text(messages[shared - 1]["content"])
        body = {
            "model": config.model,
            "system": "\n\n".join(m["content"] for m in call.messages if m["role"] == "system") or None,
            "messages": messages,
            "max_tokens": config.max_tokens,
            "stop_sequences": list(config.stop_sequences) or None,
            "stream": stream or None,
            "output_config": _output_config(config, refused),
            "temperature": None if "temperature" in refused else config.temperature,
            "top_p": None if "top_p" in refused else config.top_p,
        }
        return {name: value for name, value in body.items() if value is not None}

    def _accumulator(self) -> StreamAccumulator:
        return _AnthropicStream(self.name)


class _AnthropicStream(StreamAccumulator):
    """Reader of a message: https://docs.claude.com/en/docs/build-with-claude/streaming."""

    def read_whole(self, answer: Any) -> str:
        self.model, self.reason = answer.get("model"), answer.get("stop_reason")
        self.usage = _whole_usage(answer.get("usage") or {})
        return "".join(block["text"] for block in answer.get("content") or () if block.get("type") == "text")

    def _read(self, data: bytes) -> str:
        event = orjson.loads(data)
        match event["type"]:
            case "content_block_delta":
                text: str = event["delta"].get("text") or ""
                return text
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
    if config.response_schema is None or "output_config" in refused:
        return None
    return {"format": {"type": "json_schema", "schema": dict(config.response_schema)}}
