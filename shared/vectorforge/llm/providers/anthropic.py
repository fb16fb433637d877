"""Anthropic's Messages API."""

import json
from collections.abc import AsyncGenerator, Mapping
from contextlib import AbstractAsyncContextManager, AsyncExitStack, aclosing
from typing import TYPE_CHECKING, Any, ClassVar, Self

from pydantic import SecretStr

from vectorforge.config import LLMSettings
from vectorforge.credentials import Credentials, as_credentials
from vectorforge.errors import InvalidInputError, LLMError
from vectorforge.health import HealthChecker
from vectorforge.llm import failures, response_body
from vectorforge.llm.base import BaseLLMProvider
from vectorforge.llm.refused_parameters import RefusedParameters, named_parameter
from vectorforge.llm.response_format import anthropic_format
from vectorforge.llm.types import Completion, FinishReason, ProviderCall
from vectorforge.sdk_client import SDKClient
from vectorforge.telemetry import MetricsCollector

if TYPE_CHECKING:
    from anthropic import AsyncAnthropic

DEFAULT_BASE_URL = "https://api.anthropic.com"
DEFAULT_MODEL = "claude-sonnet-4-20250514"

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
    """Messages over the official SDK, which retries nothing here."""

    max_temperature: ClassVar[float] = 1.0

    def __init__(
        self,
        credentials: SecretStr | str | Credentials,
        *,
        base_url: str | None = None,
        default_model: str = DEFAULT_MODEL,
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
            metrics: Where measurements go.
            health_checker: Gets the probe ``llm.anthropic``.
            retries: See ``BaseLLMProvider``.
            timeout_s: See ``BaseLLMProvider``.
            token_gap_s: See ``BaseLLMProvider``.
        """
        self._base_url = base_url or DEFAULT_BASE_URL
        self._client = SDKClient(
            as_credentials(credentials),
            self._build_client,
            lambda client: client.close(),
            is_refusal=self._is_refusal,
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
            **options,
        )

    def provider_name(self) -> str:
        """``anthropic``."""
        return "anthropic"

    async def preload(self) -> None:
        """Import the SDK and build its client."""
        await self._client.preload()

    async def aclose(self) -> None:
        """Close connections. The provider may be used again; it connects anew."""
        await self._client.aclose()

    async def _call_api(self, call: ProviderCall) -> Completion:
        async with AsyncExitStack() as stack:
            response, dropped = await self._send(stack, call, stream=False)
            answer = await response_body.read_json(response)
        texts = (block["text"] for block in answer.get("content") or () if block.get("type") == "text")
        ending = (answer.get("model"), answer.get("stop_reason"), answer.get("usage") or {})
        return _completion(*ending, call, dropped, "".join(texts))

    async def _call_api_stream(self, call: ProviderCall) -> AsyncGenerator[str | Completion, None]:
        model = reason = None
        usage: dict[str, Any] = {}
        async with AsyncExitStack() as stack:
            response, dropped = await self._send(stack, call, stream=True)
            events = await stack.enter_async_context(aclosing(response_body.events(response)))
            async for data in events:
                event = json.loads(data)
                match event["type"]:
                    case "message_start":
                        model = event["message"].get("model")
                        usage.update(event["message"].get("usage") or {})
                    case "content_block_delta":
                        if text := event["delta"].get("text"):
                            yield text
                    case "message_delta":
                        reason = event["delta"].get("stop_reason") or reason
                        # Cumulative; fields that did not change may be null.
                        usage.update({k: v for k, v in (event.get("usage") or {}).items() if v is not None})
                    case "message_stop":
                        await response_body.drain(events)
                        yield _completion(model, reason, usage, call, dropped)
                        return
                    case "error":
                        status = _STATUSES.get(event["error"].get("type"), 500)
                        raise failures.error_for_status(self.name, status)

    async def _list_models(self) -> list[str]:
        async with AsyncExitStack() as stack:
            page = await self._client.send(stack, lambda client, _: client.models.list(limit=1000))
            return [model.id for model in page.data]

    def _body(self, call: ProviderCall, *, stream: bool) -> Mapping[str, Any]:
        refused = self._refused.of(call.config.model)
        return {**_request_body(call, refused, stream=stream), **_sampling(call, refused)}

    async def _send(
        self, stack: AsyncExitStack, call: ProviderCall, *, stream: bool
    ) -> tuple[Any, list[str]]:
        """Send the request; the response (closed by ``stack``) and the sampling parameters left out."""

        async def request(client: "AsyncAnthropic", contexts: AsyncExitStack) -> tuple[Any, frozenset[str]]:
            async def attempt(refused: frozenset[str]) -> Any:
                sent = _request(client, call, refused, stream=stream)
                return await contexts.enter_async_context(sent)

            return await self._refused.send(call.config.model, attempt, self._refused_name)

        response, refused = await self._client.send(stack, request)
        left_out = (*refused, *_UNKNOWN)
        names = [n for n in (*_SAMPLING, *_UNKNOWN) if n in left_out and getattr(call.config, n) is not None]
        if "output_config" in refused and call.config.response_schema is not None:
            names.append("output_config")
        return response, names

    def _refused_name(self, exc: Exception) -> str | None:
        import anthropic

        if not isinstance(exc, anthropic.BadRequestError):
            return None
        if "output_config" in exc.message or "output format" in exc.message:
            return "output_config"
        # Where a model takes only one of both, temperature stays.
        return named_parameter(("top_p", "temperature"), message=exc.message)

    def _is_refusal(self, exc: Exception) -> bool:
        import anthropic

        return isinstance(exc, anthropic.AuthenticationError | anthropic.PermissionDeniedError)

    def _build_client(self, key: SecretStr) -> "AsyncAnthropic":
        from anthropic import AsyncAnthropic

        client = AsyncAnthropic(
            api_key=key.get_secret_value(),
            base_url=self._base_url,
            max_retries=0,
            open_telemetry=False,  # or the environment may have prompts and answers sent elsewhere
        )
        # The SDK puts the headers of ANTHROPIC_CUSTOM_HEADERS here; only VECTORFORGE_* variables count.
        client._custom_headers = {}  # noqa: SLF001 - there is no public way to leave them out
        _ = client.messages  # imports its modules here, in the thread, not in the first request
        return client

    def _map_error(self, exc: Exception) -> LLMError:
        import anthropic

        return failures.error_for_sdk_exception(anthropic, self.name, exc)

    def _safe_cause(self, exc: Exception) -> Exception:
        return self._client.without_key(exc)


def _request(
    client: "AsyncAnthropic", call: ProviderCall, refused: frozenset[str], *, stream: bool
) -> AbstractAsyncContextManager[Any]:
    """The request, sent when the context is entered; ``refused`` parameters are left out."""
    import anthropic

    return client.messages.with_streaming_response.create(
        model=call.config.model,
        max_tokens=call.config.max_tokens,
        messages=[],
        # As arguments the SDK would look through all of it, and it has none for the sampling any more.
        extra_body={**_request_body(call, refused, stream=stream), **_sampling(call, refused)},
        # Silence is limited by the base class, which also counts pings as silence.
        timeout=anthropic.Timeout(None, connect=min(5.0, call.timeout_s)),
    )


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
