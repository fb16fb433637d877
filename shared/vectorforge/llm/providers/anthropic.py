"""Anthropic's Messages API."""

from collections.abc import Mapping
from contextlib import aclosing
from typing import Any, ClassVar, Self, Unpack

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import InvalidInputError
from vectorforge.llm import failures
from vectorforge.llm.base import ProviderOptions
from vectorforge.llm.failures import named_parameter
from vectorforge.llm.http import HttpLLMProvider, StreamAccumulator, read_json
from vectorforge.llm.types import Completion, FinishReason, LLMRequestConfig, ProviderCall
from vectorforge.vendors.accounts import vertex_of
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.failures import VendorStatusError
from vectorforge.vendors.http import CONNECT_TIMEOUT_S
from vectorforge.vendors.response import VendorResponse
from vectorforge.vendors.sdk_clients import AnthropicClient, ClientKind, VertexAI, anthropic_transport

DEFAULT_BASE_URL = "https://api.anthropic.com"
DEFAULT_MODEL = "claude-sonnet-4-20250514"
_VERSION = "2026-10-21"
"""Version of the API, equal to that of the SDK in uv.lock (tested). https://docs.claude.com/en/api/versioning"""

_SAMPLING = ("temperature", "top_p")
_UNSUPPORTED = ("frequency_penalty", "presence_penalty")
"""Sampling parameters that the API does not have."""
_FINISH_REASONS: Mapping[str | None, FinishReason] = {
    "end_turn": "stop",
    "stop_sequence": "stop",
    "max_tokens": "length",
    "model_context_window_exceeded": "length",
    "refusal": "content_filter",
}
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
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
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

    async def _call_api(self, call: ProviderCall) -> Completion:
        response, dropped = await self._send(call, stream=False)
        async with aclosing(response):
            answer = await read_json(response)
        text = "".join(block["text"] for block in answer.get("content") or () if block.get("type") == "text")
        usage = answer.get("usage") or {}
        return self._completion(call, answer.get("model"), answer.get("stop_reason"), usage, dropped, text)

    async def _list_models(self) -> list[str]:
        if self._vertex is not None:  # lists no models; counting tokens is free and checks access alike
            text = {"model": self.default_model, "messages": [{"role": "user", "content": "Hello"}]}
            async with aclosing(await self._transport.post(self._url("messages/count_tokens"), text)):
                return [self.default_model]
        page = await self._transport.get_json(self._url("models?limit=1000"))
        return [model["id"] for model in page["data"]]

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        refused = self._refused.of(call.config.model)
        return {**_request_body(call, refused, stream=stream), **_sampling(call, refused)}

    async def _send(self, call: ProviderCall, *, stream: bool) -> tuple[VendorResponse, list[str]]:
        async def attempt(refused: frozenset[str]) -> VendorResponse:
            body = {**_request_body(call, refused, stream=stream), **_sampling(call, refused)}
            # The base class limits silence, and counts pings as silence.
            connect_s = min(CONNECT_TIMEOUT_S, call.timeout_s)
            return await self._transport.post(self._url("messages"), body, connect_timeout_s=connect_s)

        response, refused = await self._refused.send(call.config.model, attempt, self._refused_name)
        left_out = (*refused, *_UNSUPPORTED)
        names = [
            n for n in (*_SAMPLING, *_UNSUPPORTED) if n in left_out and getattr(call.config, n) is not None
        ]
        if "output_config" in refused and call.config.response_schema is not None:
            names.append("output_config")
        return response, names

    def _url(self, path: str) -> str:
        return f"{'' if self._vertex else self._base_url.rstrip('/')}/v1/{path}"

    def _refused_name(self, exc: Exception) -> str | None:
        if not isinstance(exc, VendorStatusError) or exc.status != 400:
            return None
        if "output_config" in exc.text or "output format" in exc.text:
            return "output_config"
        # Where a model accepts only one of the two, temperature stays.
        return named_parameter(("top_p", "temperature"), message=exc.text)

    def _accumulator(self) -> StreamAccumulator:
        return _AnthropicStream(self.name)

    def _completion(
        self,
        call: ProviderCall,
        model: str | None,
        reason: str | None,
        usage: Mapping[str, Any],
        dropped: list[str],
        text: str = "",
    ) -> Completion:
        return Completion(
            model=model or call.config.model,
            finish_reason=_FINISH_REASONS.get(reason, "other"),
            content=text,
            prompt_tokens=usage.get("input_tokens"),
            completion_tokens=usage.get("output_tokens"),
            metadata={"dropped_parameters": dropped} if dropped else {},
        )


class _AnthropicStream(StreamAccumulator):
    """Reader of the stream's events: https://docs.claude.com/en/docs/build-with-claude/streaming."""

    def __init__(self, provider: str) -> None:
        super().__init__()
        self._provider = provider

    def _read(self, data: bytes) -> str:
        event = orjson.loads(data)
        match event["type"]:
            case "content_block_delta":
                text: str = event["delta"].get("text") or ""
                return text
            case "message_start":
                self.model = event["message"].get("model")
                self.usage.update(event["message"].get("usage") or {})
            case "message_delta":
                self.reason = event["delta"].get("stop_reason") or self.reason
                # Cumulative; fields that did not change may be null.
                self.usage.update({k: v for k, v in (event.get("usage") or {}).items() if v is not None})
            case "message_stop":
                self.is_complete = True
            case "error":
                status = _STATUSES.get(event["error"].get("type"), 500)
                self.error = failures.error_for_status(self._provider, status, text=str(event["error"]))
        return ""


def _sampling(call: ProviderCall, refused: frozenset[str]) -> dict[str, Any]:
    """Return the parameters that newer models refuse."""
    sampling = {n: getattr(call.config, n) for n in _SAMPLING if n not in refused}
    return {name: value for name, value in sampling.items() if value is not None}


def _request_body(call: ProviderCall, refused: frozenset[str], *, stream: bool) -> dict[str, Any]:
    system = "\n\n".join(m["content"] for m in call.messages if m["role"] == "system")
    messages = [dict(message) for message in call.messages if message["role"] != "system"]
    if not messages:
        raise InvalidInputError("messages must hold a user message.", field="messages")
    body = {
        "model": call.config.model,
        "system": system or None,
        "messages": messages,
        "max_tokens": call.config.max_tokens,
        "stop_sequences": list(call.config.stop_sequences) or None,
        "stream": stream or None,
        "output_config": _output_config(call.config, refused),
    }
    return {name: value for name, value in body.items() if value is not None}


def _output_config(config: LLMRequestConfig, refused: frozenset[str]) -> Mapping[str, Any] | None:
    """Return ``output_config`` of a message; models before 4.5 refuse it.

    https://platform.claude.com/docs/en/build-with-claude/structured-outputs
    """
    if config.response_schema is None or "output_config" in refused:
        return None
    return {"format": {"type": "json_schema", "schema": dict(config.response_schema)}}
