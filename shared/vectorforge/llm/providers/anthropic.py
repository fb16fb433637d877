"""Anthropic's Messages API."""

from collections.abc import AsyncGenerator, Iterable, Mapping
from contextlib import aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Self

import orjson
from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm import failures, response_body
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.request_shaping import RefusedParameters, anthropic_format, named_parameter
from vectorforge.llm.types import Completion, FinishReason, ProviderCall
from vectorforge.telemetry import MetricsCollector
from vectorforge.vendors.accounts import vertex_of
from vectorforge.vendors.credentials import Credentials, as_credentials
from vectorforge.vendors.errors import VendorStatusError
from vectorforge.vendors.http import CONNECT_TIMEOUT_S, VendorResponse
from vectorforge.vendors.sdk_clients import ClientKind, VertexAI, anthropic_transport

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic, AsyncAnthropicVertex

DEFAULT_BASE_URL = "https://api.anthropic.com"
DEFAULT_MODEL = "claude-sonnet-4-20250514"
_VERSION = "2026-10-21"
"""Of the API, as the SDK in uv.lock asks for it; a test compares. https://docs.claude.com/en/api/versioning"""

_SAMPLING = ("temperature", "top_p")
_UNKNOWN = ("frequency_penalty", "presence_penalty")
"""Sampling parameters that the API has never had."""
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
"""Status that each error type has outside a stream. Source: https://docs.claude.com/en/api/errors."""


class AnthropicProvider(BaseLLMProvider):
    """Messages."""

    max_temperature: ClassVar[float] = 1.0

    def __init__(
        self,
        credentials: SecretStr | str | Credentials,
        *,
        base_url: str | None = None,
        default_model: str = DEFAULT_MODEL,
        client: ClientKind = "http",
        vertex: VertexAI | None = None,
        metrics: MetricsCollector | None = None,
        health_checker: HealthChecker | None = None,
        retries: int = 3,
        timeout_s: float = 60.0,
        token_gap_s: float = 10.0,
    ) -> None:
        """Connects to nothing and imports no SDK yet.

        Args:
            credentials: API key, or where to ask for it.
            base_url: Address of the API, without ``/v1``; default: Anthropic's.
            default_model: Used when a request names none.
            client: Whether requests go over our HTTP client or the package anthropic.
            vertex: A project of Google Cloud, asked over the package anthropic instead of ``base_url``.
            metrics: Where measurements go.
            health_checker: Gets the probe ``llm.anthropic``.
            retries: See ``BaseLLMProvider``.
            timeout_s: See ``BaseLLMProvider``.
            token_gap_s: See ``BaseLLMProvider``.
        """
        self._base_url = base_url or DEFAULT_BASE_URL
        self._vertex = vertex
        self._sdk, self._transport = anthropic_transport(
            as_credentials(credentials),
            lambda: self._base_url,
            headers={"anthropic-version": _VERSION},
            client=client,
            vertex=vertex,
        )
        self._refused = RefusedParameters()
        super().__init__(
            default_model=default_model,
            metrics=metrics,
            health_checker=health_checker,
            retries=retries,
            timeout_s=timeout_s,
            token_gap_s=token_gap_s,
        )

    @classmethod
    def from_settings(
        cls, settings: LLMSettings, credentials: SecretStr | Credentials, **options: Any
    ) -> Self:
        """The provider that the settings describe."""
        return cls(
            credentials,
            base_url=settings.anthropic_base_url,
            default_model=settings.anthropic_model,
            client=settings.anthropic_client,
            vertex=vertex_of(settings),
            **options,
        )

    def provider_name(self) -> str:
        """``anthropic``."""
        return "anthropic"

    @property
    def _client(self) -> "AsyncAnthropic | AsyncAnthropicVertex":
        """The official SDK's client for the same server and key, imported when first touched."""
        return self._sdk.get()

    async def preload(self) -> None:
        """Import what requests go over."""
        await self._transport.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again; it connects anew."""
        await self._transport.aclose()
        await self._sdk.aclose()

    async def _call_api(self, call: ProviderCall) -> Completion:
        response, dropped = await self._send(call, stream=False)
        async with aclosing(response):
            answer = await response_body.read_json(response)
        texts = (block["text"] for block in answer.get("content") or () if block.get("type") == "text")
        ending = (answer.get("model"), answer.get("stop_reason"), answer.get("usage") or {})
        return _completion(*ending, call, dropped, "".join(texts))

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        response, dropped = await self._send(call, stream=True)
        written = StreamAccumulator()
        async with aclosing(response), aclosing(response_body.events(response)) as events:
            async for arrived in events:
                if text := written.read_together(arrived, self.name):
                    yield text
                if written.error is not None:
                    raise written.error
                if written.is_complete:
                    await response_body.finish(response)
                    yield _completion(written.model, written.reason, written.usage, call, dropped)
                    return

    async def _list_models(self) -> list[str]:
        if self._vertex is not None:  # lists no models; counting tokens is free, and refused as an answer is
            text = {"model": self.default_model, "messages": [{"role": "user", "content": "Hello"}]}
            async with aclosing(await self._transport.post(self._url("messages/count_tokens"), text)):
                return [self.default_model]
        page = await self._transport.get_json(self._url("models?limit=1000"))
        return [model["id"] for model in page["data"]]

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        refused = self._refused.of(call.config.model)
        return {**_request_body(call, refused, stream=stream), **_sampling(call, refused)}

    async def _send(self, call: ProviderCall, *, stream: bool) -> tuple[VendorResponse, list[str]]:
        """Send the request; the response, to be closed, and the sampling parameters left out."""

        async def attempt(refused: frozenset[str]) -> VendorResponse:
            body = {**_request_body(call, refused, stream=stream), **_sampling(call, refused)}
            # Silence is limited by the base class, which also counts pings as silence.
            connect_s = min(CONNECT_TIMEOUT_S, call.timeout_s)
            return await self._transport.post(self._url("messages"), body, connect_timeout_s=connect_s)

        response, refused = await self._refused.send(call.config.model, attempt, self._refused_name)
        left_out = (*refused, *_UNKNOWN)
        names = [n for n in (*_SAMPLING, *_UNKNOWN) if n in left_out and getattr(call.config, n) is not None]
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
        # Where a model takes only one of both, temperature stays.
        return named_parameter(("top_p", "temperature"), message=exc.text)

    def _map_error(self, exc: Exception) -> LLMError:
        return failures.error_for_exception(self.name, exc)

    def _safe_cause(self, exc: Exception) -> Exception:
        return self._transport.without_key(exc)


class StreamAccumulator:
    """What the events of a stream have said so far, besides the text.

    https://docs.claude.com/en/docs/build-with-claude/streaming
    """

    def __init__(self) -> None:
        self.model: str | None = None
        self.reason: str | None = None
        self.usage: dict[str, Any] = {}
        self.is_complete = False
        self.error: Exception | None = None
        """What went wrong after the text: what the stream says, or that something in it cannot be read."""

    def read_together(self, arrived: Iterable[bytes], provider: str) -> str:
        """The text of events that arrived together, as one: each costs its readers more than us."""
        texts: list[str] = []
        try:
            for data in arrived:
                texts.append(self._read(orjson.loads(data), provider))
                if self.error is not None:
                    break
        except Exception as exc:  # noqa: BLE001 - whatever it is, the text before it was said; it is raised later
            self.error = exc
        return "".join(texts)

    def _read(self, event: Mapping[str, Any], provider: str) -> str:
        """The text of an event, empty for most kinds."""
        match event["type"]:
            case "content_block_delta":
                return event["delta"].get("text") or ""
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
                self.error = failures.error_for_status(provider, status, said=str(event["error"]))
        return ""


def _sampling(call: ProviderCall, refused: frozenset[str]) -> dict[str, Any]:
    """Parameters that newer models refuse."""
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
        "output_config": anthropic_format(call.config, refused),
    }
    return {name: value for name, value in body.items() if value is not None}


def _completion(
    model: str | None,
    reason: str | None,
    usage: Mapping[str, Any],
    call: ProviderCall,
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
